"""The index of the ledger says of each offset which batch sent it, or why none did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.replay.sent_ranges import NOTHING, Gap, SentRange, SentRanges

pytestmark = pytest.mark.unit

OFFSETS = 60


def sent(from_: int, until: int, batch: int, started: int = -1, origin: int = 0) -> SentRange:
    started = batch if started < 0 else started
    numbers = from_ << 26, from_ << 26, batch, started, origin, until - from_
    return SentRange(from_, until, from_, until, *numbers)


def filled(*rows: SentRange) -> SentRanges:
    made = SentRanges()
    for row in rows:
        made.batch(row.batch, row.started, row.origin)
        made.add(0, row)
    return made


@st.composite
def rows(draw: st.DrawFn) -> list[SentRange]:
    """Rows that overlap in any way, each with a start of its own, in any order."""
    spans = draw(
        st.lists(st.tuples(st.integers(0, OFFSETS - 1), st.integers(1, 20)), min_size=1, max_size=9)
    )
    made = [sent(at, at + length, number) for number, (at, length) in enumerate(spans)]
    return draw(st.permutations(made))


@given(rows())
def test_of_each_offset_the_batch_that_started_last_counts(found: list[SentRange]):
    index = filled(*found)
    for offset in range(OFFSETS + 25):
        mine = [row for row in found if row.from_ <= offset < row.until]
        said = index.at(0, offset)
        if mine:
            last = max(mine, key=lambda row: row.started)
            assert isinstance(said, SentRange)
            assert (said.batch, said.begin, said.end) == (last.batch, last.begin, last.end)
            assert said.from_ <= offset < said.until
        else:
            following = [row.from_ for row in found if row.from_ > offset]
            assert isinstance(said, Gap)
            assert said.until == min(following, default=None)


def test_the_newest_range_is_of_the_last_batch_that_sent_something():
    index = SentRanges()
    assert index.last_sent() is None
    silent = sent(30, 40, 3)._replace(first=NOTHING, last=NOTHING)
    for partition, row in ((0, sent(0, 10, 1)), (1, sent(0, 20, 2)), (0, silent)):
        index.add(partition, row)
    assert index.last_sent() == (1, sent(0, 20, 2))


@given(rows(), st.integers(0, OFFSETS + 20), st.integers(1, 40), st.booleans())
def test_an_offset_range_has_the_offset_and_nothing_of_another_origin(found, offset, most, whole):
    index = filled(*(row._replace(origin=row.batch % 2) for row in found))
    at = index.at(0, offset)
    if isinstance(at, Gap):
        return
    span = index.range_at(0, offset, most, whole)
    assert span.from_ <= offset < span.until
    assert whole or span.until - span.from_ <= most
    if whole:
        assert span.from_ == at.from_ and span.until >= at.until
    assert {row.origin for row in span.ranges} == {at.origin}
    for inside in range(span.from_, span.until):
        said = index.at(0, inside)
        assert isinstance(said, Gap) or said in span.ranges


@pytest.mark.parametrize("offset", [0, 7, 13])
def test_what_lies_between_batches_was_not_sent_if_none_of_them_is_missing(offset: int):
    index = filled(sent(5, 7, 0), sent(10, 12, 1), sent(15, 20, 2))
    assert index.at(0, offset) == Gap(
        offset, min(f for f in (5, 10, 15) if f > offset), False, {0: 0, 7: 1, 13: 2}[offset]
    )


def test_nobody_knows_what_a_batch_sent_that_the_ledger_lacks():
    index = filled(sent(5, 7, 3), sent(10, 12, 5))
    assert index.at(0, 0) == Gap(0, 5, True, 3)
    assert index.at(0, 8) == Gap(8, 10, True, 5)
    assert index.at(0, 12) == Gap(12, None, False, 0)
    # Its row comes late, and says that it read another partition.
    index.batch(4, 4, 0)
    assert index.at(0, 8) == Gap(8, 10, False, 5)


def test_batches_of_a_checkpoint_that_was_begun_anew_count_from_nought():
    index = filled(sent(0, 10, 0, 100), sent(10, 20, 1, 101), sent(25, 30, 0, 200))
    assert index.at(0, 22) == Gap(22, 25, False, 200)
    assert index.newest(0) == (200, 0)
    assert index.newest(7) is None
    # The batches before do not run on into it.
    assert index.range_at(0, 3, 100).until == 20


def test_a_batch_that_sent_nothing_of_a_partition_is_silent():
    quiet = sent(0, 10, 0)._replace(first=NOTHING, last=NOTHING)
    assert filled(quiet).range_at(0, 3, 100).silent
    assert not filled(quiet, sent(10, 12, 1)).range_at(0, 3, 100).silent


@given(rows(), st.integers(0, OFFSETS + 25), st.integers(0, OFFSETS + 25))
def test_what_is_cut_is_not_known_and_all_around_it_stays(
    found: list[SentRange], begin: int, until: int
):
    index, whole = filled(*found), filled(*found)
    index.cut(0, begin, until)
    index.cut(1, begin, until)
    for offset in range(OFFSETS + 25):
        said, before = index.at(0, offset), whole.at(0, offset)
        if begin <= offset < until:
            assert isinstance(said, Gap)
        elif isinstance(before, SentRange):
            assert isinstance(said, SentRange)
            cut = {"from_": said.from_, "until": said.until}
            assert said == before._replace(**cut)
            assert before.from_ <= said.from_ <= offset < said.until <= before.until
            assert said.until <= begin or until <= said.from_ or until <= begin
        else:
            assert isinstance(said, Gap)
