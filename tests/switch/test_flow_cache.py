"""A switch that remembers runs answers and counts exactly as one that does not."""

from __future__ import annotations

import random
import struct
from collections.abc import Collection
from dataclasses import replace
from itertools import islice

import pytest
import virtual_trees_cases
from examples import examples
from feature_cases import FEATURES, Feature, keys, requests
from hypothesis import given
from hypothesis import strategies as st

from stackcast.switch.bmv2.flow_cache import CachedRun, FlowCache
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.switches.entry import GROUPS, SESSIONS, SwitchEntry, group_entry

pytestmark = pytest.mark.unit


def pair(feature: Feature) -> tuple[SimpleSwitch, SimpleSwitch]:
    return feature.switch(cached=True), feature.switch(cached=False)


def same_figures(
    feature: Feature, held: Collection[str], cached: SimpleSwitch, plain: SimpleSwitch
) -> None:
    assert (cached.frames, cached.passes, cached.copies) == (
        plain.frames,
        plain.passes,
        plain.copies,
    )
    assert cached.drops == plain.drops
    if feature.name == "feature_tables":
        for row in feature.entries:
            if row.table == "ingress.by_value" and row.key in held:
                of = (row.table, row.key)
                assert cached.direct_counter(*of) == plain.direct_counter(*of)
    if feature.name == "feature_state":
        for index in range(16):
            for name in ("ingress.frames", "ingress.frames_alone", "ingress.bytes_alone"):
                assert cached.counter(name, index) == plain.counter(name, index)
        assert cached.register("ingress.cells") == plain.register("ingress.cells")


def other_action(row: SwitchEntry) -> SwitchEntry:
    """The same entry with other values in its action."""
    if row.table in (GROUPS, SESSIONS):
        return replace(row, params=(("port", b"\x06"),))
    return replace(row, params=tuple((name, b"\x63") for name, _ in row.params))


@examples(60)
@given(
    st.sampled_from(sorted(FEATURES)),
    st.integers(0, 1 << 32),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 2)), min_size=5, max_size=60),
)
def test_remembering_changes_nothing_whatever_is_changed_in_between(
    name: str, seed: int, steps: list[tuple[int, int]]
) -> None:
    feature = FEATURES[name]
    switches = pair(feature)
    # Few frames, so that most come again; some only with another end.
    frames = list(islice(feature.frames(random.Random(seed)), 6))
    frames += [(port, frame + b"another end") for port, frame in frames[:3]]
    frames += [(port, frame[:-3]) for port, frame in frames[3:6]]
    present = {row.key: row for row in feature.entries}
    for number, change in steps:
        port, frame = frames[number % len(frames)]
        if change and feature.entries:
            row = feature.entries[(seed + number) % len(feature.entries)]
            if change == 1:
                present[row.key] = row if present.get(row.key) != row else other_action(row)
            else:
                present.pop(row.key, None)
            for switch in switches:
                switch.apply({row.key: present.get(row.key)})
        answers = [switch.process(port, frame) for switch in switches]
        assert answers[0] == answers[1]
    same_figures(feature, present.keys(), *switches)


def test_frames_that_differ_in_what_nobody_looked_at_share_a_run() -> None:
    switch = FEATURES["feature_tables"].switch()
    assert switch.cache is not None
    copies = [switch.process(1, keys(0xFF, 1, 2) + bytes([n]) * n)[0][1] for n in range(9)]
    assert switch.cache.hits == 8
    assert [copy[-n - 7 :] for n, copy in enumerate(copies)] == [
        b"payload" + bytes([n]) * n for n in range(9)
    ]
    row = FEATURES["feature_tables"].entries[0]
    assert switch.direct_counter(row.table, row.key)[0] == 9


def test_what_depends_on_more_than_the_frame_runs_every_time() -> None:
    state = FEATURES["feature_state"].switch()
    for _ in range(3):
        state.process(1, struct.pack(">BBI", 1, 1, 5))
    traffic = FEATURES["feature_traffic"].switch()
    for _ in range(3):
        assert len(traffic.process(1, requests(0x01))) == 2  # a clone
    assert state.cache is not None and traffic.cache is not None
    assert state.cache.hits == traffic.cache.hits == 0


def test_a_frame_that_ends_too_early_says_nothing_of_longer_ones() -> None:
    cache = FlowCache()
    short, run = b"0123456789" * 2, CachedRun()
    cache.keep(1, short, 25, False, run)
    assert cache.find(1, short) is run
    assert cache.find(1, short + b"x" * 10) is None
    assert cache.find(2, short) is None


def test_frames_that_fare_by_their_length_are_told_apart_by_it() -> None:
    cache = FlowCache()
    runs = [CachedRun(), CachedRun()]
    cache.keep(1, bytes(30), 20, True, runs[0])
    cache.keep(1, bytes(40), 20, True, runs[1])
    assert [cache.find(1, bytes(size)) for size in (30, 40, 50)] == [*runs, None]


def test_a_full_memory_starts_anew() -> None:
    cache = FlowCache(limit=10)
    for number in range(25):
        cache.keep(1, number.to_bytes(20), 20, False, CachedRun())
        assert len(cache) <= 10
    assert cache.find(1, (24).to_bytes(20)) is not None
    assert cache.find(1, (1).to_bytes(20)) is None


def test_a_changed_group_holds_for_the_next_frame() -> None:
    switch = FEATURES["feature_traffic"].switch()
    frame = requests(0x10)
    assert len(switch.process(1, frame)) == len(switch.process(1, frame)) == 4
    changed = group_entry("s", 5, [(2, 0)])
    switch.apply({changed.key: changed})
    assert [port for port, _ in switch.process(1, frame)] == [2]
    switch.apply({changed.key: None})
    assert switch.process(1, frame) == []


@examples(30)
@given(st.randoms(use_true_random=False))
def test_remembering_changes_nothing_for_virtual_trees(rng: random.Random) -> None:
    frames = []
    for _ in range(8):
        labels = virtual_trees_cases.random_stack(rng)
        frame = virtual_trees_cases.stack_frame(labels, virtual_trees_cases.datagram())
        frames += [frame, frame[:-1], frame[: rng.randrange(len(frame))], frame + b"z"]
        frames.append(frame[:-40] + rng.randbytes(40))  # another payload
    frames += [frame for _, frame, _ in virtual_trees_cases.odd_frames()]
    for _ in range(3):
        tables = virtual_trees_cases.random_tables(rng, 20)
        rows = {row.key: row for row in virtual_trees_cases.entries_of(tables, 20)}
        for switch in TREES:
            switch.apply(rows)
        for frame in rng.choices(frames, k=120):
            port = rng.choice([1, 2, 9])
            answers = [switch.process(port, frame) for switch in TREES]
            assert answers[0] == answers[1]
        for switch in TREES:
            switch.apply(dict.fromkeys(rows))
    cached, plain = TREES
    assert (cached.passes, cached.drops) == (plain.passes, plain.drops)
    assert cached.counters() == plain.counters()
    assert cached.cache is not None and cached.cache.hits > cached.frames / 4


def _trees(cached: bool) -> SimpleSwitch:
    switch = SimpleSwitch(cached=cached)
    switch.load(virtual_trees_cases.program()[1].read_bytes())
    return switch


TREES = _trees(True), _trees(False)
