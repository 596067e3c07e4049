"""Decides whether a measured series of a long run grows.

The growth of a series is the slope by Theil and Sen (the median of the slopes between all pairs of
samples, Sen 1968) times the measured time. Up to 29 % of the samples may be outliers without any
effect on it, so a busy machine or a single collection of garbage decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Share of a run that is not judged: until then, caches fill up and kernels are compiled.
WARM_UP = 0.3
#: With fewer samples after the warm-up, outliers decide.
FEWEST_SAMPLES = 6


@dataclass(frozen=True)
class Limit:
    """The growth that counts as flat: a share of the median, plus an allowance.

    Attributes:
        share: part of the median of the series after the warm-up.
        allowance: growth in the unit of the series; a share of a small number is no measure.
    """

    share: float
    allowance: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """A judged series.

    Attributes:
        level: median after the warm-up.
        growth: growth from the end of the warm-up to the end.
        limit: largest growth that counts as flat.
    """

    level: float
    growth: float
    limit: float

    @property
    def is_flat(self) -> bool:
        """Whether the series grew no more than the limit."""
        return self.growth <= self.limit


def judge(
    times: Sequence[float], values: Sequence[float], limit: Limit, warm_at: float = 0.0
) -> Verdict:
    """Judge a series.

    Args:
        times: times of the samples in seconds, ascending, from the beginning of the run.
        values: one value per sample.
        limit: growth that counts as flat.
        warm_at: time at which the warm-up ends, if it takes longer than `WARM_UP`.

    Raises:
        ValueError: fewer than `FEWEST_SAMPLES` samples are left after the warm-up.
    """
    time, value = np.asarray(times, float), np.asarray(values, float)
    measured = time >= max(warm_at, time[0] + WARM_UP * (time[-1] - time[0]))
    time, value = time[measured], value[measured]
    if time.size < FEWEST_SAMPLES:
        raise ValueError(f"{time.size} samples after the warm-up, at least {FEWEST_SAMPLES} needed")
    first, second = np.triu_indices(time.size, 1)
    slopes = (value[second] - value[first]) / (time[second] - time[first])
    level = float(np.median(value))
    growth = float(np.median(slopes)) * float(time[-1] - time[0])
    return Verdict(level, growth, limit.share * abs(level) + limit.allowance)
