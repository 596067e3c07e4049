"""Each batch has one row in the ledger, regardless of where a process was killed."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import VirtualTime

from stackcast.jobs.adapters.checkpoint.journal import PATIENCE, RETRY, Journal
from stackcast.jobs.adapters.checkpoint.reports import TABLES, Report, Rows, merge_rows
from stackcast.jobs.adapters.tables.tables import LEDGER
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.unit

WRITER = "stackcast-q"


class Killed(BaseException):
    """The process ends here. No handler of errors sees it."""


class Disk:
    """Everything that survives a process: report files, and tables with transaction numbers.

    Attributes:
        kill_at: number of writes until the process is killed; 0 or less: it is not.
        is_written: whether the last write before a kill or a failure reaches the disk.
        failures: number of writes that fail from now on.
    """

    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}
        self.tables: dict[str, list[int]] = {name: [] for name in TABLES}
        self.packets: list[tuple[int, int]] = []
        self.transactions: dict[tuple[str, str], int] = {}
        self.commits = Counter[str]()
        self.kill_at = 0
        self.is_written = False
        self.failures = 0

    def write(self, action: Callable[[], Any]) -> None:
        self.kill_at -= 1
        if self.kill_at == 0 and not self.is_written:
            raise Killed
        if self.failures:
            self.failures -= 1
            if self.is_written:
                action()
            raise OSError(28, "No space left on device")
        action()
        if self.kill_at == 0:
            raise Killed


class Process:
    """The files and tables of a journal, on a disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def pending(self) -> list[Report]:
        return [Report.unpacked(self.disk.files[b], str(b)) for b in sorted(self.disk.files)]

    def put(self, report: Report) -> None:
        self.disk.write(lambda: self.disk.files.update({report.batch_id: report.packed()}))

    def remove(self, batch_id: int) -> None:
        self.disk.write(lambda: self.disk.files.pop(batch_id, None))

    def last_transaction(self, name: str, writer: str) -> int | None:
        return self.disk.transactions.get((name, writer))

    def append(self, name: str, rows: pa.Table, transaction: tuple[str, int]) -> None:
        writer, number = transaction
        batches = rows.column("batch_id").to_pylist()

        def commit() -> None:
            # Delta ignores a transaction number that it has.
            if number > self.disk.transactions.get((name, writer), -1):
                self.disk.transactions[name, writer] = number
                self.disk.tables[name] += batches
                self.disk.commits[name] += 1
                if name == LEDGER:
                    packets = rows.column("packets").to_pylist()
                    self.disk.packets += zip(batches, packets, strict=True)

        self.disk.write(commit)


def report(batch_id: int, packets: int = 0, writer: str = WRITER, rows: int = 1) -> Report:
    same = {"batch_id": batch_id}
    tables = {name: Rows(rows, same, {}) for name in TABLES}
    tables[LEDGER] = Rows(1, same, {"packets": [packets]})
    return Report(writer, batch_id, tables)


def journal(
    process: Process, time: VirtualTime | None = None, interval: float = 0.0, **options: Any
) -> Journal:
    """Return a journal on a virtual clock, which writes nothing before its thread waits."""
    return Journal(process, process, interval, threads=time or VirtualTime(), **options)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 14),
        st.booleans(),
        st.integers(0, 2),
    ),
    max_size=8,
)


@examples(300)
@given(STEPS, st.lists(st.integers(0, 2), max_size=3))
def test_every_batch_is_in_every_table_once_wherever_a_process_was_killed(
    steps: list[tuple[int, int, bool, int]], earlier: list[int]
) -> None:
    """Processes run one after the other.

    Args:
        steps: per process, the number of its batches, the write at which it is killed (0: none),
            whether that write reaches the disk, and the number of commits that fail.
        earlier: per process before them, the last table that it has written for batch 0.
    """
    disk = Disk()
    batch = 0
    for last_table in earlier:
        for name in TABLES[: last_table + 1]:
            rows = pa.table({"batch_id": [0], "packets": [0]})
            Process(disk).append(name, rows, (WRITER, 0))
    for batches, kill_at, is_written, failures in [*steps, (1, 0, False, 0)]:
        disk.kill_at, disk.is_written, disk.failures = kill_at, is_written, 0
        try:
            stream = journal(Process(disk))
            stream.recover()
            for _ in range(batches):
                stream.put(report(batch, batch))
                # Spark commits the batch now. If the process is killed before, it runs again.
                batch += 1
            disk.failures = failures
            stream.close()
        except Killed:
            continue
    disk.kill_at = disk.failures = 0
    journal(Process(disk)).recover()
    for name in TABLES:
        assert disk.tables[name] == list(range(batch))
    assert not disk.files
    assert all(packets == number for number, packets in disk.packets)


def test_waiting_batches_are_one_commit_per_table() -> None:
    disk = Disk()
    for number in range(20):
        Process(disk).put(report(number))
    journal(Process(disk)).recover()
    assert disk.commits == dict.fromkeys(TABLES, 1)
    assert disk.transactions == {(name, WRITER): 19 for name in TABLES}


def test_a_batch_is_recorded_from_its_report_on_also_for_later_processes() -> None:
    disk = Disk()
    stream = journal(Process(disk))
    stream.put(report(3))
    assert disk.files and stream.recorded(WRITER, 3)
    assert not stream.recorded(WRITER, 4) and not stream.recorded("another", 3)
    stream.close()
    assert not disk.files
    for later in (stream, journal(Process(disk))):
        assert later.recorded(WRITER, 3)
        assert not later.recorded(WRITER, 4) and not later.recorded("another", 3)


def test_batches_of_two_checkpoints_have_separate_numbers() -> None:
    disk = Disk()
    disk.transactions = {(name, "stackcast-old"): 7 for name in TABLES}
    Process(disk).put(report(3, writer="stackcast-old"))
    Process(disk).put(report(4, writer="stackcast-new"))
    journal(Process(disk)).recover()
    assert disk.tables[LEDGER] == [4]


def test_a_batch_without_frames_is_in_the_ledger_but_not_in_statistics() -> None:
    disk = Disk()
    Process(disk).put(report(0, rows=0))
    journal(Process(disk)).recover()
    assert disk.tables == {name: [0] if name == LEDGER else [] for name in TABLES}
    assert not disk.files


def test_a_batch_that_runs_again_while_its_report_waits_counts_once() -> None:
    disk = Disk()
    Process(disk).put(report(5))
    stream = journal(Process(disk))
    disk.failures = 1
    stream.recover()
    stream.put(report(5))
    stream.put(report(6))
    stream.close()
    assert disk.tables == {name: [5, 6] for name in TABLES}


def test_groups_are_written_at_most_once_per_interval_and_the_rest_at_the_end() -> None:
    disk, time = Disk(), VirtualTime()
    stream = journal(Process(disk), time, interval=3600.0)
    stream.put(report(0))
    time.sleep(1.0)
    assert disk.tables[LEDGER] == [0]
    for number in (1, 2):
        stream.put(report(number))
        time.sleep(1.0)
    assert disk.tables[LEDGER] == [0]
    time.sleep(3600.0)
    assert disk.tables[LEDGER] == [0, 1, 2] and disk.commits[LEDGER] == 2
    stream.put(report(3))
    disk.failures = 2
    stream.close()
    assert disk.tables == {name: [0, 1, 2, 3] for name in TABLES}
    assert not disk.files


def test_a_failed_write_is_repeated_after_a_pause() -> None:
    disk, time = Disk(), VirtualTime()
    stream = journal(Process(disk), time)
    stream.put(report(0))
    disk.failures = 2
    time.sleep(1.9 * RETRY)
    assert not disk.tables[LEDGER]
    time.sleep(RETRY)
    assert disk.tables[LEDGER] == [0]


def test_reports_that_cannot_be_written_at_the_end_remain_for_the_next_start() -> None:
    disk = Disk()
    stream = journal(Process(disk))
    stream.put(report(0))
    disk.failures = 1 << 30
    stream.close()
    assert list(disk.files) == [0] and not disk.tables[LEDGER]
    disk.failures = 0
    journal(Process(disk)).recover()
    assert disk.tables[LEDGER] == [0] and not disk.files


def test_the_stream_waits_for_capacity_and_ends_with_the_reason_if_nothing_is_written() -> None:
    disk, time, backlog = Disk(), VirtualTime(), list[int]()
    stream = journal(
        Process(disk), time, on_backlog=lambda waiting, _: backlog.append(waiting), capacity=3
    )
    for number in range(3):
        stream.wait_for_capacity()
        stream.put(report(number))
    assert backlog == [1, 2, 3]
    disk.failures = 1 << 30
    with pytest.raises(StreamError, match=r"LEDGER_BEHIND: 3 batches .* No space left on device"):
        stream.wait_for_capacity()
    assert time.monotonic() == PATIENCE
    waiting = time.start("stream", stream.wait_for_capacity)
    time.sleep(RETRY)
    assert not waiting.done()
    disk.failures = 0
    waiting.result()
    assert time.monotonic() < PATIENCE + 3 * RETRY
    assert disk.tables[LEDGER] == [0, 1, 2] and backlog[-1] == 0


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@given(
    st.lists(st.lists(NAMES, max_size=3), max_size=4),
    st.dictionaries(NAMES, st.integers(0, 1 << 40), max_size=3),
    st.one_of(st.none(), st.dictionaries(NAMES, NAMES, max_size=3)),
    st.datetimes(timezones=st.just(dt.UTC)),
)
def test_a_report_is_the_same_after_it_was_in_a_file(
    receivers: list[list[str]],
    versions: dict[str, int],
    settings: dict[str, str] | None,
    time: dt.datetime,
) -> None:
    same = {"versions": versions, "settings": settings, "recorded_at": time, "seconds": 1.5}
    columns = {"receivers": receivers, "frames": [1 << 40] * len(receivers)}
    written = Report("w", 3, {LEDGER: Rows(len(receivers), same, columns)})
    read = Report.unpacked(written.packed(), "3.json")
    expected, table = merge_rows([written], LEDGER), merge_rows([read], LEDGER)
    if not receivers:
        assert expected is None and table is None
        return
    assert table is not None and table.equals(expected)
    rows = table.to_pylist(maps_as_pydicts="strict")
    assert rows == [same | {"receivers": names, "frames": 1 << 40} for names in receivers]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"tables": {"x": {}}}'])
def test_the_error_of_a_damaged_report_names_its_file(content: bytes) -> None:
    with pytest.raises(StreamError, match=r"REPORT_UNREADABLE: here/7\.json"):
        Report.unpacked(content, "here/7.json")
