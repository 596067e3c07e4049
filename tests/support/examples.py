"""The number of examples that Hypothesis tries, by profile.

A test asks for a number with ``@examples(60)``. Profile ``long`` tries all of them, ``short`` a
share. A run of the long tier, or of a part of it, uses ``long``; any other uses ``short``, unless
``--hypothesis-profile`` names a profile. No example is timed, because other processes share the
machine and kernels may still be compiled.
"""

from __future__ import annotations

from typing import Any

import pytest
import tiers
from hypothesis import HealthCheck, settings

#: Percentage of the requested examples, by profile.
PROFILES = {"short": 10, "long": 100}
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


def examples(number: int, like: settings | None = None, **options: Any) -> settings:
    """Return settings that try ``number`` examples in profile ``long``.

    Args:
        number: how many examples to try.
        like: settings to start from; default: those of the profile.
        **options: further settings of Hypothesis.
    """
    scaled = number * settings.default.max_examples // 100
    return settings(like, max_examples=max(scaled, min(number, FEWEST)), **options)


def configure(config: pytest.Config) -> None:
    """Choose the profile before Hypothesis' plugin loads it."""
    if not config.option.hypothesis_profile:
        config.option.hypothesis_profile = "long" if tiers.runs_long(config) else "short"
