"""The index of the ledger keeps topics of one name apart, and generations of one topic."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from stackcast.jobs.adapters.replay.ledger import KnownSession, SentLedger
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.replay.sent_ranges import Gap, SentRange

pytestmark = pytest.mark.unit

FIRST, SECOND = Topic("t", "A"), Topic("t", "A", 1)


class Rows:
    """The ledger as a list of rows."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []

    def add(self, topic: Topic, *partitions: tuple[int, int, int, int | None]) -> None:
        number = len(self.all)
        self.all.append(
            {
                "topic": topic.name,
                "topic_id": topic.id,
                "generation": topic.generation,
                "batch_id": number,
                "started_at": dt.datetime.fromtimestamp(number, dt.UTC),
                "versions": {"links": 1},
                "settings": {},
                "partitions": [
                    {
                        "partition": p,
                        "from_offset": start,
                        "until_offset": until,
                        "records": until - start,
                        "first_sequence": start << 26,
                        "last_sequence": (until - 1) << 26,
                        "leader_epoch": epoch,
                    }
                    for p, start, until, epoch in partitions
                ],
            }
        )

    def head(self, _: str) -> tuple[str, int]:
        return "ledger", len(self.all)

    def rows(self, _: str, version: int) -> list[dict[str, Any]]:
        return self.all[:version]

    def added(self, _: str, before: int, version: int) -> list[dict[str, Any]]:
        return self.all[before:version]


@pytest.fixture
def rows() -> Rows:
    made = Rows()
    made.add(FIRST, (0, 0, 50, 3), (1, 0, 40, 3))
    made.add(FIRST, (0, 50, 90, 4))
    return made


def index(rows: Rows) -> SentLedger:
    return SentLedger(rows, "t")  # type: ignore[arg-type]


@pytest.mark.parametrize("at_once", [True, False])
def test_after_a_truncation_the_old_session_ends_there_and_the_new_one_begins(rows, at_once):
    ledger = index(rows)
    if not at_once:
        ledger.refresh()
    rows.add(SECOND, (0, 70, 70, None), (1, 40, 40, None))
    rows.add(SECOND, (0, 70, 80, 6))
    ledger.refresh()
    assert ledger.topic == SECOND
    assert ledger.sessions[session_id(FIRST, 0)] == KnownSession(0, 0, 70, 90)
    assert ledger.sessions[session_id(FIRST, 1)] == KnownSession(1, 0, 40, 40)
    assert ledger.sessions[session_id(SECOND, 0)] == KnownSession(0, 70)
    assert ledger.sessions[session_id(SECOND, 1)] == KnownSession(1, 40)
    assert ledger.read == {0: (80, 6), 1: (40, -1)}
    kept, again = ledger.ranges.at(0, 60), ledger.ranges.at(0, 75)
    assert isinstance(kept, SentRange) and isinstance(again, SentRange)
    assert ledger.origins[kept.origin].topic == FIRST and kept.until == 70
    assert ledger.origins[again.origin].topic == SECOND
    # No batch has read the records that took the offsets of lost ones.
    assert ledger.ranges.at(0, 85) == Gap(85, None, False, 0)


def test_a_topic_that_was_created_again_shares_nothing_with_the_old_one(rows):
    ledger = index(rows)
    ledger.refresh()
    created = Topic("t", "B")
    rows.add(created, (0, 0, 10, 0))
    ledger.refresh()
    assert ledger.topic == created
    assert ledger.sessions[session_id(FIRST, 0)] == KnownSession(0, 0, 0, 90)
    assert ledger.sessions[session_id(created, 0)] == KnownSession(0)
    assert ledger.read == {0: (10, 0)}
    assert ledger.ranges.partitions == [0]
    assert ledger.ranges.at(0, 20) == Gap(20, None, False, 0)
