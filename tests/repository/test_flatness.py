"""The rule of the soak test: noise, steps down and outliers are flat, and a slow leak is not."""

from __future__ import annotations

import numpy as np
import pytest
from flatness import FEWEST_SAMPLES, WARM_UP, Limit, judge

pytestmark = pytest.mark.unit

TIMES = np.arange(60) * 5.0
LIMIT = Limit(0.05)


def series(growth: float, noise: float, seed: int = 1) -> np.ndarray:
    """Return values around 500 that grow by a share of it in the time that is judged."""
    slope = growth * 500 / ((1 - WARM_UP) * TIMES[-1])
    return 500 + slope * TIMES + np.random.default_rng(seed).normal(0, noise * 500, TIMES.size)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("seed", range(20))
def test_noise_around_a_level_is_flat(noise: float, seed: int) -> None:
    assert judge(TIMES, series(0.0, noise, seed), LIMIT).is_flat


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
@pytest.mark.parametrize("seed", range(20))
def test_a_leak_that_noise_hides_from_the_eye_is_not_flat(noise: float, seed: int) -> None:
    verdict = judge(TIMES, series(0.15, noise, seed), LIMIT)
    assert not verdict.is_flat
    assert verdict.growth == pytest.approx(0.15 * 500, abs=0.1 * 500)


def test_growth_below_the_limit_is_flat() -> None:
    verdict = judge(TIMES, series(0.04, 0.0), LIMIT)
    assert verdict.is_flat
    assert verdict.growth == pytest.approx(20, rel=0.01)


def test_growth_that_ends_with_the_warm_up_is_flat() -> None:
    values = np.minimum(TIMES, WARM_UP * TIMES[-1])
    assert judge(TIMES, values, Limit(0.0)).is_flat


def test_a_warm_up_can_be_longer() -> None:
    values = np.minimum(TIMES, 220)
    assert not judge(TIMES, values, LIMIT).is_flat
    assert judge(TIMES, values, LIMIT, warm_at=220).is_flat


def test_outliers_neither_hide_a_leak_nor_look_like_one() -> None:
    flat, leak = series(0.0, 0.01), series(0.15, 0.01)
    flat[-8:] *= 3
    leak[-8:] /= 3
    assert judge(TIMES, flat, LIMIT).is_flat
    assert not judge(TIMES, leak, LIMIT).is_flat


def test_a_series_that_falls_is_flat() -> None:
    assert judge(TIMES, series(-0.5, 0.0), LIMIT).is_flat


def test_an_allowance_is_added_to_the_share() -> None:
    threads = 10 + np.linspace(0, 2, TIMES.size)
    assert not judge(TIMES, threads, LIMIT).is_flat
    assert judge(TIMES, threads, Limit(0.05, 2)).is_flat


def test_a_short_series_is_refused() -> None:
    with pytest.raises(ValueError, match="5 samples"):
        judge(TIMES[: FEWEST_SAMPLES + 1], np.ones(FEWEST_SAMPLES + 1), LIMIT)
