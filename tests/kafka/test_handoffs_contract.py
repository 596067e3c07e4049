"""Handoffs by files and in memory behave alike."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from memory_handoffs import MemoryHandoffs
from virtual_time import VirtualTime

from stackcast.jobs.adapters.kafka.file_handoffs import FileHandoffs
from stackcast.jobs.adapters.kafka.handoffs import Handoff, HandoffKey, Handoffs
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.udfs.delivery.summary_progress import SummaryProgress

pytestmark = pytest.mark.unit

KEY = HandoffKey("run", 3, 7)
HANDOFF = Handoff(12, 5, SummaryProgress(12, 9, {10: ["h1"]}, {"h2": (1, 2, 3)}))
#: Longer than a thread takes to reach its wait.
SOON = 0.05


class Machine(NamedTuple):
    """Handoffs, and the threads of their tasks."""

    handoffs: Handoffs
    threads: Threads


@pytest.fixture(params=["files", "memory"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    if request.param == "files":
        return Machine(FileHandoffs(lambda: str(tmp_path)), SYSTEM_THREADS)
    time = VirtualTime()
    return Machine(MemoryHandoffs(time), time)


def test_a_reader_waits_until_the_task_has_ended_and_gets_its_handoff(machine: Machine) -> None:
    with machine.handoffs.hold(KEY) as write:
        reading = machine.threads.start("reader", machine.handoffs.read, KEY)
        assert not machine.threads.wait([reading], SOON)
        write(HANDOFF)
        assert not machine.threads.wait([reading], SOON)
    assert reading.result() == HANDOFF
    assert machine.handoffs.read(KEY) == HANDOFF


@pytest.mark.parametrize("progress", [None, SummaryProgress.complete(12)])
def test_the_progress_may_be_unknown_or_complete(
    machine: Machine, progress: SummaryProgress | None
) -> None:
    handoff = HANDOFF._replace(progress=progress)
    with machine.handoffs.hold(KEY) as write:
        write(handoff)
    assert machine.handoffs.read(KEY) == handoff


def test_a_task_that_was_never_here_or_has_died_leaves_no_handoff(machine: Machine) -> None:
    assert machine.handoffs.read(KEY) is None
    with pytest.raises(OSError, match="died"), machine.handoffs.hold(KEY):
        raise OSError("died")
    assert machine.handoffs.read(KEY) is None


def test_handoffs_of_runs_partitions_and_slices_are_separate(machine: Machine) -> None:
    with machine.handoffs.hold(KEY) as write:
        write(HANDOFF)
        others = (KEY._replace(run="other"), KEY._replace(partition=4), KEY.earlier())
        assert [machine.handoffs.read(key) for key in others] == [None] * 3


def test_a_task_forgets_the_handoff_of_the_task_two_slices_before(machine: Machine) -> None:
    for number in range(3):
        with machine.handoffs.hold(KEY._replace(slice_number=number)) as write:
            write(HANDOFF)
    read = [machine.handoffs.read(KEY._replace(slice_number=number)) for number in range(3)]
    assert read == [None, HANDOFF, HANDOFF]


def test_a_new_attempt_replaces_the_handoff_of_the_one_before(machine: Machine) -> None:
    for offset in (12, 15):
        with machine.handoffs.hold(KEY) as write:
            write(HANDOFF._replace(offset=offset))
    assert machine.handoffs.read(KEY) == HANDOFF._replace(offset=15)
