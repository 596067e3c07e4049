"""Counts of what rules match, held against the interpreter of their syntax trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from delivery_cases import GOOGL, ITCH, Row, batches_of, handle, scenes
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.replay.live_offsets import LiveOffsets
from stackcast.udfs.delivery.senders import senders_of
from stackcast.udfs.errors import MessageError
from stackcast.udfs.filters.advertisements import Advertisement
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.reference import build_packet, read_message, read_packet
from stackcast.udfs.replay.match_counts import MatchCounts

pytestmark = pytest.mark.unit


def counted(
    rows: Sequence[Row],
    texts: Sequence[str],
    since: dict[int, list[int]],
    announced: Sequence[str],
) -> Counter[int]:
    """How many messages each rule matches from its offsets on, one by one."""
    conditions = [parse_rule(text, ITCH).condition for text in texts]
    gates = [parse_rule(text, ITCH).condition for text in announced]
    found: Counter[int] = Counter()
    for partition, offset, value in rows:
        try:
            messages = read_packet(value or b"")[2]
        except MessageError:
            continue
        for message in messages:
            try:
                event = read_message(ITCH, message)
            except MessageError:
                continue
            if gates and not any(matches(gate, event) for gate in gates):
                continue
            for rule, condition in enumerate(conditions):
                if offset >= since[partition][rule] and matches(condition, event):
                    found[rule] += 1
    return found


@examples(60)
@given(scenes(), st.lists(st.integers(0, 25), max_size=3), st.data())
def test_each_rule_counts_the_messages_that_it_matches_since_it_is_live(
    scene: tuple[list[Subscription], list[Row]], cuts: list[int], data: st.DataObject
):
    subscriptions, rows = scene
    texts = [row.filter for row in subscriptions]
    offsets = sorted({offset for _, offset, _ in rows}) or [0]
    some = st.lists(st.sampled_from([0, *offsets]), min_size=len(texts), max_size=len(texts))
    since = {partition: data.draw(some) for partition in range(3)}
    announced = data.draw(st.sampled_from([[], ["price > 40"], ["buy_sell == B", "price < 10"]]))
    rows_of = [Advertisement("feed1", text) for text in announced]
    senders = senders_of(["feed1"], None, "partition", {"feed1": rows_of}, ITCH, ())
    made = handle(MatchCounts(Packets(ITCH), texts, senders)).value
    begin = {partition: np.array(each, np.int64) for partition, each in since.items()}
    found: Counter[int] = Counter()
    for batch in made.run(begin)(batches_of(rows, cuts, False)):
        for row in batch.to_pylist():
            found[row["rule"]] += row["messages"]
    assert found == counted(rows, texts, since, announced)


def test_a_rule_with_state_is_told_apart_and_others_count_as_they_are():
    rows: list[Row] = [(0, 7, build_packet(b"SOURCE    ", 1, [GOOGL, GOOGL]))]
    made = MatchCounts(Packets(ITCH), ["avg(price, 1s) > 5", "stock == GOOGL", "price < 1"])
    assert made.counted.tolist() == [False, True, True]
    since = {0: np.zeros(3, np.int64)}
    (found,) = made.run(since)(batches_of(rows, [], False))
    assert found.to_pylist() == [{"rule": 1, "messages": 2}]


def test_a_rule_counts_from_the_first_offset_that_its_version_or_a_later_one_was_used_for():
    # A checkpoint begun anew: version 5 has read again what 3 had read.
    offsets = LiveOffsets({0: {3: 10, 4: 20, 5: 15}, 1: {4: 7}}, {0: 40, 1: 9})
    found = {p: each.tolist() for p, each in offsets.since([1, 3, 4, 5, 6]).items()}
    assert found == {0: [10, 10, 15, 15, 40], 1: [7, 7, 7, 9, 9]}
