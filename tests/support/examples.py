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


def profile(config: pytest.Config) -> str:
    """The profile of a run where nobody names one."""
    chosen = [config.getoption(name, None) for name in ("markexpr", "keyword", "lf")]
    all_tests = config.args == config.getini("testpaths") and not any(chosen)
    return "ci" if all_tests or os.environ.get("CI") else "dev"


def pytest_configure(config: pytest.Config) -> None:
    """Choose the profile before Hypothesis' plugin loads it; xdist's processes are told it."""
    if not config.option.hypothesis_profile:
        config.option.hypothesis_profile = profile(config)
