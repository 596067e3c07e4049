"""Slots of a cluster are counted when its executors are there, and not before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.adapters.app.session import slots

pytestmark = pytest.mark.unit


class Cluster:
    """A Spark whose executors, of two slots each, register one a look, up to ``most``."""

    def __init__(self, master: str, most: int) -> None:
        self.master, self._most, self._looks = master, most, 0
        status = SimpleNamespace(size=self._executors)
        context = SimpleNamespace(getExecutorMemoryStatus=lambda: status)
        self._jsc = SimpleNamespace(sc=lambda: context)

    def _executors(self) -> int:
        self._looks += 1
        return 1 + min(self._looks - 1, self._most)

    @property
    def defaultParallelism(self) -> int:  # noqa: N802 (Spark's name)
        # What Spark says before any executor is there.
        return max(2, 2 * min(self._looks - 1, self._most))


def of(cluster: Cluster, **how: Any) -> int:
    return slots(SimpleNamespace(sparkContext=cluster), pause=0.0, **how)  # type: ignore[arg-type]


def test_a_cluster_is_waited_for_until_it_has_what_is_wanted():
    assert of(Cluster("spark://master:7077", 5), wanted=9) == 10


def test_a_cluster_is_waited_for_until_no_more_executors_come():
    assert of(Cluster("spark://master:7077", 4)) == 8


def test_a_cluster_that_stays_too_small_is_not_waited_for_for_ever():
    assert of(Cluster("spark://master:7077", 1), wanted=9, patience=0.1) == 2


def test_a_local_master_has_its_slots_at_once():
    cluster = Cluster("local[2]", 0)
    assert of(cluster, wanted=9) == 2 and cluster._looks == 0
