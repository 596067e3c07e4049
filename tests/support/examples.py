"""How many examples Hypothesis tries: as many as a test asks for, or a tenth of them.

Profile ``ci`` tries all of them, ``dev`` a tenth. ``ci`` is taken where all tests run and where the
environment has CI, ``dev`` where some are chosen, by file, -k, -m or --lf; ``--hypothesis-profile``
says another. What a test takes is the machine's affair in both: others run beside it, and compile.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

#: Of a hundred examples that a test asks for.
PROFILES = {"ci": 100, "dev": 10}
#: With fewer, Hypothesis hardly leaves the simplest example.
FEWEST = 5

for _name, _percent in PROFILES.items():
    settings.register_profile(
        _name,
        max_examples=_percent,
        derandomize=False,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def examples(number: int, like: settings | None = None, **given: Any) -> settings:
    """Settings that try ``number`` examples for each hundred of the profile; else like ``like``."""
    scaled = number * settings.default.max_examples // 100
    return settings(like, max_examples=max(scaled, min(number, FEWEST)), **given)


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests are asked for."""
    chosen = [config.getoption(name, None) for name in ("markexpr", "keyword", "lf")]
    return config.args == config.getini("testpaths") and not any(chosen)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the profile before Hypothesis' plugin loads it."""
    if not config.option.hypothesis_profile:
        all_of_them = is_whole(config) or os.environ.get("CI")
        config.option.hypothesis_profile = "ci" if all_of_them else "dev"
