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

    def add(
        self,
        topic: Topic,
        *partitions: tuple[int, int, int, int | None],
        seconds: int | None = None,
    ) -> None:
        """Adds a batch: by partition, its first offset, the offset after its last, and the leader
        epoch.

        seconds: when the batch began; None for the order of the batches.
        """
        number = len(self.all)
        self.all.append(
            {
                "topic": topic.name,
                "topic_id": topic.id,
                "generation": topic.generation,
                "batch_id": number,
                "started_at": dt.datetime.fromtimestamp(
                    number if seconds is None else seconds, dt.UTC
                ),
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
                        "ingress": None,
                    }
                    for p, start, until, epoch in partitions
                ],
            }
        )

    def head(self, _: str) -> tuple[str, int]:
        return "ledger", len(self.all)

    def rows(self, _: str, version: int) -> list[dict[str, Any]]:
        return self.all[:version]

    def commit(self, _: str, version: int) -> list[dict[str, Any]]:
        return [{"add": {"path": str(version)}}]

    def rows_of_files(self, _: str, files: list[str]) -> list[dict[str, Any]]:
        return [self.all[int(file) - 1] for file in files]


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


def test_a_clock_that_goes_back_does_not_bring_an_earlier_generation_back(rows):
    rows.add(SECOND, (0, 70, 70, None), (1, 40, 40, None), seconds=-9)
    rows.add(SECOND, (0, 70, 80, 6), seconds=-8)
    ledger = index(rows)
    ledger.refresh()
    assert ledger.topic == SECOND
    assert ledger.sessions[session_id(FIRST, 0)] == KnownSession(0, 0, 70, 90)
    assert ledger.read == {0: (80, 6), 1: (40, -1)}
    assert ledger.ranges.at(0, 85) == Gap(85, None, False, 0)


def test_a_partition_that_the_first_batch_of_a_generation_lacks_begins_later(rows):
    rows.add(SECOND, (0, 70, 80, 6))
    rows.add(SECOND, (1, 30, 45, 6), (2, 5, 9, 6))
    ledger = index(rows)
    ledger.refresh()
    assert ledger.sessions[session_id(FIRST, 1)] == KnownSession(1, 0, 30, 40)
    assert ledger.sessions[session_id(SECOND, 1)] == KnownSession(1, 30)
    assert ledger.sessions[session_id(SECOND, 2)] == KnownSession(2, 5)
    again = ledger.ranges.at(1, 35)
    assert isinstance(again, SentRange) and ledger.origins[again.origin].topic == SECOND


def test_a_new_checkpoint_may_send_from_before_the_begin_of_a_generation(rows):
    rows.add(SECOND, (0, 70, 70, None))
    rows.add(SECOND, (0, 70, 80, 6))
    rows.add(SECOND, (0, 20, 30, 7))
    ledger = index(rows)
    ledger.refresh()
    assert ledger.sessions[session_id(FIRST, 0)] == KnownSession(0, 0, 20, 90)
    assert ledger.sessions[session_id(SECOND, 0)] == KnownSession(0, 20)
    # Up to here was read of this generation.
    assert ledger.read[0] == (80, 6)
    origins = {offset: ledger.ranges.at(0, offset) for offset in (19, 20, 29, 30, 69, 70)}
    assert {
        offset: None if isinstance(found, Gap) else ledger.origins[found.origin].topic
        for offset, found in origins.items()
    } == {19: FIRST, 20: SECOND, 29: SECOND, 30: None, 69: None, 70: SECOND}


def test_each_offset_has_the_generation_that_sent_it(rows):
    rows.add(SECOND, (0, 70, 70, None), (1, 40, 40, None))
    third = SECOND._replace(generation=2)
    rows.add(third, (0, 50, 60, 9))
    ledger = index(rows)
    ledger.refresh()
    found = {offset: ledger.generation_at(0, offset) for offset in (0, 49, 50, 90)}
    assert found == {0: (FIRST, 50), 49: (FIRST, 50), 50: (third, None), 90: (third, None)}
    assert ledger.generation_at(1, 39) == (FIRST, 40)
    assert ledger.generation_at(1, 40) == (third, None)
