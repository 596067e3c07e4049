"""The ledger of a real-time stream: reports are taken at once, whatever becomes of its topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from jobs.adapters.app.settings import Settings
from jobs.adapters.realtime import ledger as ledger_module
from jobs.adapters.realtime import topic_writer
from jobs.adapters.realtime.ledger import RealTimeLedger
from jobs.adapters.realtime.topic_writer import TopicWriter
from jobs.adapters.stream.metrics import StreamMetrics
from udfs.delivery.realtime import TaskReport

pytestmark = pytest.mark.unit

SETTINGS = Settings(realtime_ledger_topic="ledger", dead_letter_topic="dead")
PATIENT = 60


class Topics:
    """A broker with topics that may be missing: those that are wait, then fail."""

    def __init__(self, *_: object) -> None:
        self.there: dict[str, list[str]] = {}
        self.missing: set[str] = set()
        #: Rows after which sending fails, by topic.
        self.fails_after: dict[str, int] = {}
        self.waits = threading.Event()
        self.tries = 0
        self.closed = False

    def send(self, topic: str, values: Sequence[str]) -> Iterator[None]:
        self.tries += 1
        for value in values:
            if topic in self.missing:
                self.waits.wait(PATIENT)
                raise TimeoutError(f"Topic {topic} not present in metadata")
            if self.fails_after.get(topic, 1) <= 0:
                raise TimeoutError("Expiring 1 record(s)")
            if topic in self.fails_after:
                self.fails_after[topic] -= 1
            self.there.setdefault(topic, []).append(value)
            yield

    def close(self) -> None:
        self.closed = True


class Positions:
    def __init__(self) -> None:
        self.written: list[Mapping[int, int]] = []

    def write(self, positions: Mapping[int, int]) -> None:
        self.written.append(positions)


def report(begin: int, until: int, dead: int = 0) -> TaskReport:
    counts = dict.fromkeys(("packets", "messages", "matched", "frames", "bytes"), until - begin)
    row: dict[str, Any] = {"kind": "partition", "partition": 0, **counts}
    row |= {"from_offset": begin, "until_offset": until}
    row |= {"first_sequence": None, "last_sequence": None}
    rows = [row]
    if dead:
        rows.append({"kind": "reason", "reason": "empty_record", "count": dead})
        letter = {"kind": "sample", "partition": 0, "from_offset": begin, "message_index": None}
        rows += [letter | {"reason": "empty_record", "length": 0, "sample": b""}] * dead
    return TaskReport(0, 1.5, 0.25, rows)


def wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENT
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> Iterator[Topics]:
    made = Topics()
    monkeypatch.setattr(ledger_module, "Producer", lambda *_: made)
    monkeypatch.setattr(topic_writer, "_AGAIN_SECONDS", 0.01)
    yield made
    made.waits.set()


@pytest.fixture
def positions() -> Positions:
    return Positions()


@pytest.fixture
def metrics() -> StreamMetrics:
    return StreamMetrics()


@pytest.fixture
def ledger(topics, positions, metrics) -> RealTimeLedger:
    return RealTimeLedger(None, SETTINGS, positions, {0: 0}, metrics)


def packets(metrics: StreamMetrics) -> float:
    return metrics.registry.get_sample_value("stackcast_packets_total")


@pytest.mark.parametrize("missing", ["dead", "ledger"])
def test_a_missing_topic_keeps_no_report_waiting(missing, topics, ledger, metrics):
    topics.missing = {missing}
    # Each of these would wait for the topic, were it written meanwhile.
    for begin in range(20):
        assert ledger.take(report(begin, begin + 1, dead=3), None)
    assert ledger.sent == {0: 20}
    assert packets(metrics) == 20


def test_without_dead_letters_the_ledger_is_complete_and_positions_follow(
    topics, positions, ledger, caplog
):
    topics.missing = {"dead"}
    for begin in range(5):
        ledger.take(report(begin, begin + 1, dead=2), None)
    wait(lambda: ledger.waiting == 0)
    assert ledger.write_positions() == {0: 5} and positions.written == [{0: 5}]
    assert len(topics.there["ledger"]) == 5
    topics.waits.set()
    wait(lambda: "topic dead for dead letters cannot be written" in caplog.text)
    topics.missing = set()
    wait(lambda: ledger._letters.waiting == 0)
    ledger.take(report(5, 6, dead=1), None)
    wait(lambda: "written again; 10 were lost" in caplog.text)
    assert len(topics.there["dead"]) == 1
    ledger.close()
    assert topics.closed


def test_what_is_not_in_the_ledgers_topic_is_not_in_the_positions(topics, positions, ledger):
    topics.missing = {"ledger"}
    ledger.take(report(0, 7), None)
    assert ledger.sent == {0: 7} and ledger.waiting == 1
    assert ledger.write_positions() == {0: 0}
    topics.waits.set()
    topics.missing = set()
    wait(lambda: ledger.waiting == 0)
    ledger.close()
    assert positions.written[-1] == {0: 7}


def test_what_waits_for_the_ledgers_topic_has_a_bound(topics, ledger, metrics, monkeypatch):
    monkeypatch.setattr(ledger._rows, "_most", 10)
    topics.missing = {"ledger"}
    taken = [ledger.take(report(begin, begin + 1, dead=1), None) for begin in range(12)]
    assert taken == [True] * 10 + [False] * 2
    # Who was not taken is told again, and counts then.
    assert ledger.sent == {0: 10} and packets(metrics) == 10
    topics.missing = set()
    topics.waits.set()
    wait(lambda: ledger.waiting == 0)
    assert ledger.take(report(10, 11), None)
    assert packets(metrics) == 11


def test_rows_that_the_broker_has_are_not_sent_again(topics, monkeypatch):
    topics.fails_after["ledger"] = 3
    written: list[Any] = []
    made = TopicWriter(topics, "ledger", "the ledger", 100, keeps=True, written=written.append)
    rows = [{"n": n} for n in range(8)]
    made.put(rows)
    wait(lambda: topics.fails_after["ledger"] == 0 and topics.tries > 1)
    assert made.waiting == 5 and written == rows[:3]
    del topics.fails_after["ledger"]
    wait(lambda: made.waiting == 0)
    assert topics.there["ledger"] == [f'{{"n": {n}}}' for n in range(8)] and written == rows
    made.close()


def test_an_end_writes_what_waits_and_waits_for_no_topic_that_is_gone(topics, caplog):
    made = TopicWriter(topics, "ledger", "the ledger", 1000, keeps=True)
    rows = [{"n": n} for n in range(900)]
    made.put(rows)
    made.close()
    assert len(topics.there["ledger"]) == 900 and not made._thread.is_alive()
    topics.waits.set()
    topics.missing = {"ledger"}
    gone = TopicWriter(topics, "ledger", "the ledger", 1000, keeps=True)
    gone.put(rows[:7])
    gone.close()
    assert not gone._thread.is_alive()
    assert "7 rows are not in topic ledger" in caplog.text


def test_a_topic_that_stays_away_is_told_once_in_a_while_and_in_the_health(
    topics, ledger, metrics, monkeypatch, caplog
):
    monkeypatch.setattr(ledger_module, "_BEHIND_SECONDS", 0.0)
    topics.missing = {"ledger"}
    topics.waits.set()
    ledger.take(report(0, 1), None)
    tries = topics.tries
    wait(lambda: topics.tries > tries + 5)
    assert caplog.text.count("topic ledger for the ledger cannot be written") == 1
    assert metrics.journal_waits == 1 and metrics.journal_age(time.monotonic() + 100) > 100
    topics.missing = set()
    wait(lambda: metrics.journal_waits == 0)
    ledger.close()
