"""Each batch has exactly one row in the ledger in the end, whatever is cut off and wherever."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.checkpoint.journal import Journal
from stackcast.jobs.adapters.checkpoint.reports import TABLES, Report, Rows, merged
from stackcast.jobs.adapters.tables.tables import LEDGER
from stackcast.udfs.errors import StreamError

pytestmark = pytest.mark.unit


class Killed(BaseException):
    """The process ends here: no handler of errors sees it."""


class Disk:
    """What outlives a process: report files, and tables with Delta's transaction numbers.

    `left` counts down at each write; at 0 it is the last one, before or after it happened.
    """

    def __init__(self) -> None:
        self.files: dict[int, bytes] = {}
        self.tables: dict[str, list[int]] = {name: [] for name in TABLES}
        self.contents: list[tuple[int, int]] = []
        self.numbers: dict[tuple[str, str], int] = {}
        self.commits = Counter[str]()
        self.left = 0
        self.after = False
        self.failing = 0

    def write(self, act):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        if self.failing:
            self.failing -= 1
            if self.after:
                act()  # it went in, and nobody was told
            raise OSError(28, "No space left on device")
        act()
        if self.left == 0:
            raise Killed


class Process:
    """Files and tables as a journal has them, on a disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def left(self):
        return [Report.unpacked(self.disk.files[b], str(b)) for b in sorted(self.disk.files)]

    def put(self, report):
        self.disk.write(lambda: self.disk.files.update({report.batch_id: report.packed()}))

    def remove(self, batch_id):
        self.disk.write(lambda: self.disk.files.pop(batch_id, None))

    def last_transaction(self, name, writer):
        return self.disk.numbers.get((name, writer))

    def append(self, name, rows, transaction):
        writer, number = transaction
        batches = rows.column("batch_id").to_pylist()

        def act():
            # As Delta does: a number counts once.
            if number > self.disk.numbers.get((name, writer), -1):
                self.disk.numbers[name, writer] = number
                self.disk.tables[name] += batches
                self.disk.commits[name] += 1
                if name == LEDGER:
                    self.disk.contents += zip(
                        batches, rows.column("packets").to_pylist(), strict=True
                    )

        self.disk.write(act)


def report(batch_id: int, content: int = 0, writer: str = "stackcast-q", rows: int = 1) -> Report:
    same = {"batch_id": batch_id}
    return Report(
        writer,
        batch_id,
        {
            name: Rows(rows, same, {}) if name != LEDGER else Rows(1, same, {"packets": [content]})
            for name in TABLES
        },
    )


def journal(process: Process, **others) -> Journal:
    values = {"interval": 0.0, "retry": 0.0, "most": 1000, **others}
    return Journal(process, process, **values)


def flushed(made: Journal) -> None:
    """What the thread does once, here and now, so that a kill ends this test's process."""
    while made._waiting and not made._flush():
        pass


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),  # batches that run before a group is written
        st.integers(0, 14),  # the write that the process dies at; 0: none
        st.booleans(),  # whether that write happened
        st.integers(0, 2),  # writes that fail and are told so
    ),
    max_size=8,
)


@examples(300)
@given(STEPS, st.lists(st.integers(0, 2), max_size=3))
def test_every_batch_is_in_every_table_once_wherever_a_process_was_killed(steps, earlier):
    disk = Disk()
    batch = 0
    # The version before ours committed batch by batch, table by table, with the same numbers.
    for tables in earlier:
        for name in TABLES[: tables + 1]:
            Process(disk).append(
                name, pa.table({"batch_id": [0], "packets": [0]}), ("stackcast-q", 0)
            )
    for batches, kill, after, failing in [*steps, (1, 0, False, 0)]:
        disk.left, disk.after, disk.failing = kill, after, 0
        process = Process(disk)
        try:
            made = journal(process)
            made.recover()
            for _ in range(batches):
                made._start = lambda: None
                made.put(report(batch, batch))
                # Spark commits it now; killed before, the same batch runs again.
                batch += 1
            disk.failing = failing
            flushed(made)
        except Killed:
            continue
    disk.left = disk.failing = 0
    last = journal(Process(disk))
    last.recover()
    for name in TABLES:
        assert disk.tables[name] == list(range(batch))
    assert not disk.files
    assert all(content == number for number, content in disk.contents)


def test_what_waits_is_one_commit_a_table():
    disk = Disk()
    for number in range(20):
        Process(disk).put(report(number))
    journal(Process(disk)).recover()
    assert disk.commits == dict.fromkeys(TABLES, 1)
    assert disk.numbers == {(name, "stackcast-q"): 19 for name in TABLES}


def test_a_batch_is_on_record_from_its_report_on_and_after_its_process_too():
    disk = Disk()
    made = journal(Process(disk))
    made._start = lambda: None
    made.put(report(3))
    assert made.recorded("stackcast-q", 3)
    assert not made.recorded("stackcast-q", 4) and not made.recorded("another", 3)
    flushed(made)
    assert not disk.files
    for again in (made, journal(Process(disk))):
        assert again.recorded("stackcast-q", 3)
        assert not again.recorded("stackcast-q", 4) and not again.recorded("another", 3)


def test_batches_of_two_checkpoints_are_numbered_apart():
    disk = Disk()
    disk.numbers = {(name, "stackcast-old"): 7 for name in TABLES}
    Process(disk).put(report(3, writer="stackcast-old"))
    Process(disk).put(report(4, writer="stackcast-new"))
    journal(Process(disk)).recover()
    assert disk.tables[LEDGER] == [4]


def test_a_batch_without_frames_is_in_the_ledger_and_in_no_statistics():
    disk = Disk()
    Process(disk).put(report(0, rows=0))
    journal(Process(disk)).recover()
    assert disk.tables == {name: [0] if name == LEDGER else [] for name in TABLES}
    assert not disk.files


def test_a_batch_that_runs_again_while_its_report_still_waits_counts_once():
    disk = Disk()
    Process(disk).put(report(5))
    made = journal(Process(disk))
    made._start = lambda: None
    disk.failing = 1
    made.recover()
    made.put(report(5))
    made.put(report(6))
    flushed(made)
    assert disk.tables == {name: [5, 6] for name in TABLES}


def test_the_end_writes_all_and_a_failing_table_is_tried_again():
    disk = Disk()
    made = journal(Process(disk), interval=3600.0)
    for number in range(3):
        made.put(report(number))
    deadline = time.monotonic() + 600
    while disk.tables[LEDGER] != [0] and time.monotonic() < deadline:
        # The first is written at once; the others may wait for an hour, or for the end.
        if disk.tables[LEDGER]:
            break
        time.sleep(0.01)
    disk.failing = 2
    made.close()
    assert disk.tables == {name: [0, 1, 2] for name in TABLES}
    assert not disk.files


def test_what_cannot_be_written_at_the_end_stays_for_the_next_start():
    disk = Disk()
    disk.failing = 1 << 30

    class Full(Process):
        def put(self, report):
            self.disk.files[report.batch_id] = report.packed()

    made = journal(Full(disk))
    made.put(report(0))
    made.close()
    assert list(disk.files) == [0] and not disk.tables[LEDGER]
    disk.failing = 0
    journal(Process(disk)).recover()
    assert disk.tables[LEDGER] == [0] and not disk.files


def test_the_stream_waits_before_too_much_has_piled_up_and_then_ends_with_the_reason():
    disk = Disk()
    told = []
    made = Journal(Process(disk), Process(disk), 0.0, lambda n, _: told.append(n), 3, 0.2, 3600.0)
    made._failure = "No space left on device"
    made._start = lambda: None
    for number in range(3):
        made.wait_for_capacity()
        made.put(report(number))
    assert told == [1, 2, 3]
    with pytest.raises(StreamError, match=r"LEDGER_BEHIND: 3 batches .* No space left on device"):
        made.wait_for_capacity()
    waiting = threading.Thread(target=made.wait_for_capacity)
    waiting.start()
    made._flush()
    waiting.join(600)
    assert not waiting.is_alive()
    assert disk.tables[LEDGER] == [0, 1, 2] and told[-1] == 0


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)


@given(
    st.lists(st.lists(NAMES, max_size=3), max_size=4),
    st.dictionaries(NAMES, st.integers(0, 1 << 40), max_size=3),
    st.one_of(st.none(), st.dictionaries(NAMES, NAMES, max_size=3)),
    st.datetimes(timezones=st.just(dt.UTC)),
)
def test_a_report_is_the_same_when_it_comes_back_from_its_file(receivers, versions, other, now):
    same = {"versions": versions, "settings": other, "recorded_at": now, "seconds": 1.5}
    columns = {"receivers": receivers, "frames": [1 << 40] * len(receivers)}
    made = Report("w", 3, {LEDGER: Rows(len(receivers), same, columns)})
    read = Report.unpacked(made.packed(), "3.json")
    table, again = merged([made], LEDGER), merged([read], LEDGER)
    if not receivers:
        assert table is None and again is None
        return
    assert again.equals(table)
    rows = again.to_pylist(maps_as_pydicts="strict")
    assert rows == [same | {"receivers": r, "frames": 1 << 40} for r in receivers]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"tables": {"x": {}}}'])
def test_a_damaged_report_is_named(content):
    with pytest.raises(StreamError, match=r"REPORT_UNREADABLE: here/7\.json"):
        Report.unpacked(content, "here/7.json")
