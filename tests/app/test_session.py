"""Slots of a cluster are counted when its executors are there, and not before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stackcast.jobs.adapters.app.session import slots

pytestmark = pytest.mark.unit


class Cluster:
    """A Spark whose executors, of so many slots each, register one a look, up to ``most``."""

    def __init__(self, master: str, most: int, each: int = 2) -> None:
        self.master, self._most, self._each, self.looks = master, most, each, 0
        manager = SimpleNamespace(defaultResourceProfile=lambda: "default")
        context = SimpleNamespace(
            resourceProfileManager=lambda: manager, maxNumConcurrentTasks=self._slots
        )
        self._jsc = SimpleNamespace(sc=lambda: context)

    def _slots(self, profile: str) -> int:
        assert profile == "default"
        self.looks += 1
        return self._each * min(self.looks - 1, self._most)


def of(cluster: Cluster, **how: Any) -> int:
    return slots(SimpleNamespace(sparkContext=cluster), pause=0.0, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("master", ["spark://master:7077", "local-cluster[5,2,1024]"])
def test_a_cluster_is_waited_for_until_it_has_what_is_wanted(master: str):
    assert of(Cluster(master, 5), wanted=9) == 10


def test_a_cluster_is_waited_for_until_no_more_executors_come():
    assert of(Cluster("spark://master:7077", 4)) == 8


def test_a_cluster_that_stays_too_small_is_not_waited_for_for_ever():
    assert of(Cluster("spark://master:7077", 1), wanted=9, patience=0.1) == 2


def test_one_executor_of_one_core_has_one_slot_and_none_has_none():
    assert of(Cluster("spark://master:7077", 1, each=1), wanted=2, patience=0.1) == 1
    assert of(Cluster("spark://master:7077", 0), wanted=1, patience=0.1) == 0


def test_executors_are_not_waited_for_by_a_job_that_is_to_end():
    cluster = Cluster("spark://master:7077", 0)
    assert of(cluster, wanted=1, patience=600.0, given_up=lambda: cluster.looks > 3) == 0


def test_a_local_master_has_its_slots_at_once():
    cluster = Cluster("local[2]", 1)
    cluster.looks = 1
    assert of(cluster, wanted=9) == 2 and cluster.looks == 2
