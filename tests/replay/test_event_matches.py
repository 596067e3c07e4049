"""The newest events of records, and the rules that they match, against rule after rule."""

from __future__ import annotations

import numpy as np
import pytest
from pcap_deployment import records

from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.buffers import Batch, read_only
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.replay.event_matches import NewestEvents

pytestmark = pytest.mark.unit

RULES = ("price > 150", 'buy_sell == "B"', "count(1s) > 3", "shares < 200 or price > 300")


def batch_of(packets: list[bytes], partition: int, first: int) -> Batch:
    count = len(packets)
    return Batch(
        read_only(np.full(count, partition), np.int32),
        read_only(np.arange(first, first + count), np.int64),
        read_only(np.cumsum([0, *map(len, packets)]), np.int64),
        read_only(np.frombuffer(b"".join(packets), np.uint8), np.uint8),
        read_only(np.arange(first, first + count) * 1_000 + partition, np.int64),
    )


@pytest.mark.parametrize("matched", [False, True])
@pytest.mark.parametrize("wanted", ["", "price > 120"])
def test_the_newest_come_first_with_all_rules_that_match(
    itch: Specification, wanted: str, matched: bool
):
    most, packets = 12, records()[:120]
    kept = NewestEvents(Packets(itch), RULES, wanted, most, matched)
    assert kept.matches.plain[: len(RULES)].tolist() == [True, True, False, True]
    for partition in (0, 1):
        own = packets[partition::2]
        for begin in range(0, len(own), 25):
            kept.add(batch_of(own[begin : begin + 25], partition, begin))
    every = []
    for number, packet in enumerate(packets):
        offset, partition = divmod(number, 2)
        for index, message in enumerate(read_packet(packet)[2]):
            every.append((offset * 1_000 + partition, offset, index, partition, message))
    conditions = [parse_rule(text, itch).condition for text in RULES]
    chosen = [
        event
        for event in every
        if not wanted or matches(parse_rule(wanted, itch).condition, read_message(itch, event[-1]))
    ]
    if matched:
        chosen = [
            event
            for event in chosen
            if any(matches(conditions[n], read_message(itch, event[-1])) for n in (0, 1, 3))
        ]
    assert (kept.looked_at, kept.found) == (len(every), len(chosen))
    chosen.sort(key=lambda event: event[:3], reverse=True)
    assert len(chosen) > most
    for found, (time, offset, index, partition, message) in zip(
        kept.newest(), chosen[:most], strict=True
    ):
        assert found[:4] == (partition, offset, index, time) and found.message == message
        raw = read_message(itch, message)
        rules = [n for n in (0, 1, 3) if matches(conditions[n], raw)]
        assert list(found.rules) == rules


def test_records_that_cannot_be_read_are_no_events(itch: Specification):
    kept = NewestEvents(Packets(itch), (), "", 10)
    kept.add(batch_of([b"", b"x" * 30, records()[0][:-1]], 0, 0))
    assert kept.newest() == [] and kept.looked_at == kept.found == 0
