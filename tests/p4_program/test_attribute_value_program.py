"""The attribute/value program: what p4c made of it, and events in it find their receivers."""

from __future__ import annotations

import json
import math
import random
import re
import struct
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product

import attribute_value_cases as cases
import numpy as np
import p4_products
import program_switches
import pytest
from attribute_value_cases import ENCODINGS, PORTS, REASONS, TABLE, Row, pairs_frame
from examples import examples
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from p4_coverage import soil
from program_switches import OPEN, open_ports
from real_switch import RealSwitch
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from virtual_trees_cases import datagram, plain_frame

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.attributes.events import ETHERTYPE, FINE, WIDTHS, code_of
from stackcast.udfs.messages.attributes.frames import (
    BITMASK_GROUP,
    ID_PAIRS_GROUP,
    events_of_frames,
)
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.attributes.registry import attribute as make_attribute
from stackcast.udfs.network.programs import STATES
from stackcast.udfs.network_match.generic.boxes import boxes_of
from stackcast.udfs.network_match.generic.entries import CELLS, SEND_BY_STATE, event_entries
from stackcast.udfs.network_match.generic.passes import MAX_PASSES, WORDS, Limits, passes_of
from stackcast.udfs.network_match.generic.table import MAX_ROWS
from stackcast.udfs.switches.bridge import BRIDGE
from stackcast.udfs.switches.bridge import SEND as BRIDGE_SEND
from stackcast.udfs.switches.entry import canonical
from stackcast.udfs.switches.routes import DELIVER, ROUTE, SEND
from stackcast.udfs.switches.sources import HOST, SOURCE, TRUST, receiving_port

pytestmark = pytest.mark.unit

dropped = partial(program_switches.dropped, REASONS)
told = partial(program_switches.told, REASONS)

RANDOM = st.randoms(use_true_random=False)
SIZES = (p4_products.FOLDER / "attribute_value/sizes.p4").read_text()
ALL_PORTS = tuple(range(1, PORTS + 1))
DECODED = {
    FINE: [],
    code_of("truncated_event"): ["CUT_SHORT"],
    code_of("empty_event"): ["EMPTY_EVENT"],
    code_of("unknown_attribute"): ["UNKNOWN_ATTRIBUTE"],
    code_of("id_twice"): ["ID_TWICE"],
}
SOME_IDS = (0, 1, 5, 30, 31)
ATTRIBUTES = WIDTHS.bitmask


@pytest.fixture(scope="module")
def info():
    return text_format.Parse(cases.INFO.read_text(), p4info_pb2.P4Info())


@pytest.fixture(scope="module")
def bare():
    """A switch with groups and routes, and no events; each test takes its own away again."""
    return switch_with([], cached=False)


@pytest.fixture(scope="module")
def odd():
    """A switch that sends whatever is an event to port 4."""
    return switch_with(cases.ODD_ROWS, cached=False)


def switch_with(rows, **options) -> SimpleSwitch:
    switch = SimpleSwitch(**options)
    switch.load(cases.PROGRAM.read_bytes())
    switch.apply({entry.key: entry for entry in base_entries()})
    switch.apply({entry.key: entry for entry in (row.entry() for row in rows)})
    return switch


def base_entries(entered=OPEN):
    """All but rows: the one pass takes rows 1. entered: ports that frames come in by."""
    return [
        *open_ports("s", ALL_PORTS, entered),
        *cases.route_entries(),
        *cases.bridge_entries(),
        cases.pass_entry(0, rows=1),
    ]


@contextmanager
def holding(switch, rows):
    """The switch with these rows, and without them afterwards."""
    entries = [row.entry() for row in rows]
    assert len({entry.key for entry in entries}) == len(entries)
    switch.apply({entry.key: entry for entry in entries})
    try:
        yield switch
    finally:
        switch.apply(dict.fromkeys(entry.key for entry in entries))


def wanted(ports, port, frame):
    """What `told` must say of an event for these ports."""
    copies = [(out, frame) for out in sorted(ports) if out != port]
    return copies, [] if copies else ["NO_PORT" if ports else "NO_RECEIVER"]


# -- what p4c made of it


def constant(name: str) -> int:
    """A number of sizes.p4."""
    found = re.search(rf"\b{name} (?:= )?(0x[0-9a-f]+|\d+)\b", SIZES)
    assert found is not None, name
    return int(found[1], 0)


def test_numbers_of_the_program_are_those_of_events():
    assert constant("ATTRIBUTES") == ATTRIBUTES == cases.ATTRIBUTES
    assert constant("EVENT") == ETHERTYPE
    assert constant("BITMASKS") == BITMASK_GROUP == int.from_bytes(cases.BITMASK_GROUP)
    assert int.from_bytes(cases.ID_PAIRS_GROUP) == ID_PAIRS_GROUP


def test_one_table_takes_the_bitmask_and_every_value_and_one_of_each_value_terms(info):
    tables = {table.preamble.name: table for table in info.tables}
    values = [f"{cases.MATCH}.value_{number}" for number in range(ATTRIBUTES)]
    assert tables.keys() == {TABLE, f"{cases.MATCH}.passes", STATES, *values, ROUTE, BRIDGE, SOURCE}
    kinds = p4info_pb2.MatchField
    assert [(f.id, f.name, f.bitwidth, f.match_type) for f in tables[TABLE].match_fields] == [
        (1, "rows", 32, kinds.EXACT),
        (2, "bitmask", ATTRIBUTES, kinds.TERNARY),
        *((3 + number, f"value_{number}", 32, kinds.TERNARY) for number in range(ATTRIBUTES)),
    ]
    assert tables[TABLE].size == constant("EVENTS") == MAX_ROWS
    for name in values:
        assert [(f.name, f.bitwidth, f.match_type) for f in tables[name].match_fields] == [
            ("vectors", 32, kinds.EXACT),
            ("present", 1, kinds.EXACT),
            ("value", 32, kinds.RANGE),
        ]
    assert [(f.name, f.bitwidth, f.match_type) for f in tables[STATES].match_fields] == [
        ("states", 32, kinds.EXACT),
        ("value", 64, kinds.RANGE),
    ]
    (route,) = tables[ROUTE].match_fields
    assert (route.name, route.bitwidth, route.match_type) == ("dst", 32, kinds.LPM)


def test_entries_send_to_ports_leave_terms_or_route(info):
    names = {action.preamble.id: action.preamble.name for action in info.actions}
    free = {
        table.preamble.name: {
            names[ref.id] for ref in table.action_refs if ref.scope != ref.DEFAULT_ONLY
        }
        for table in info.tables
        if not table.preamble.name.startswith(f"{cases.MATCH}.value_")
    }
    assert free == {
        TABLE: {cases.SEND_TO_PORTS},
        f"{cases.MATCH}.passes": {f"{cases.MATCH}.take", f"{cases.MATCH}.ask"},
        STATES: {SEND_BY_STATE},
        ROUTE: {SEND, DELIVER},
        SOURCE: {TRUST, HOST},
        BRIDGE: {BRIDGE_SEND},
    }
    params = {p.name: p.bitwidth for action in info.actions for p in action.params}
    assert params == {
        "ports": 64,
        "ipv4": 32,
        "rows": 32,
        "vectors": 32,
        "terms": 64 * WORDS,
        "subset": 8,
        "next": 32,
        "timed": 1,
        "states": 32,
        "tag": 96,
        "slot": 32,
        "function": 8,
        "window": 64,
        "operand": 32,
        "port": 9,
        "mac": 48,
    }
    assert constant("PASSES") >= 2 * MAX_PASSES
    assert {register.size for register in info.registers} == {constant("CELLS")} == {CELLS}
    assert info.pkg_info.name == "attribute_value"


def test_every_reason_to_drop_a_frame_is_counted_apart(info):
    numbers = re.findall(r"^const reason_t \w+ = (\d+);", SIZES, re.MULTILINE)
    assert [*map(int, numbers)] == list(range(constant("REASONS")))
    sizes = {counter.preamble.name: counter.size for counter in info.counters}
    assert sizes == {"ingress.dropped": len(REASONS)}
    text = "".join(path.read_text() for path in p4_products.sources("attribute_value"))
    for name in REASONS[1:]:
        assert f"reason = {name};" in text, name


def test_the_products_say_nothing_of_the_place_where_they_were_made():
    text = cases.PROGRAM.read_text()
    assert json.loads(text)["program"] == "attribute_value.p4"
    assert {x for x in re.findall(r'"filename":"([^"]*)"', text) if x} <= {
        path.relative_to(p4_products.FOLDER).as_posix()
        for path in p4_products.sources("attribute_value")
    }


@pytest.mark.p4c
def test_p4c_finds_nothing_to_warn_of(pytestconfig):
    p4c = str(pytestconfig.getoption("--p4c"))
    p4_products.compile_program(p4c, p4_products.FOLDER / "attribute_value.p4", ["--Werror"])


# -- events


@examples(60)
@given(RANDOM, st.booleans(), st.sampled_from([SOME_IDS, tuple(range(32))]))
def test_an_event_goes_where_a_look_at_every_row_says(bare, rng, by_size, ids):
    rows = cases.random_rows(rng, rng.choice([1, 5, 40]), ids, by_size=by_size)
    with holding(bare, rows):
        for _ in range(10):
            event = cases.random_event(rng, ids)
            sets = cases.outcomes(rows, event)
            payload = rng.randbytes(rng.choice([0, 1, 18, 300]))
            port = rng.randint(1, PORTS)
            found = []
            for build in ENCODINGS.values():
                frame = build(event, payload)
                got = told(bare, port, frame)
                assert got in [wanted(ports, port, frame) for ports in sets]
                found.append(([out for out, _ in got[0]], got[1]))
            # The same event has the same receivers, however it is encoded.
            assert found[0] == found[1]


@examples(60)
@given(st.dictionaries(st.integers(0, 31), st.integers(0, 2**32 - 1), min_size=1), st.binary())
def test_frames_that_scapy_builds_leave_bit_by_bit_as_they_came(bare, event, payload):
    with holding(bare, [Row((0, 0), (), ALL_PORTS, 1)]):
        frames = cases.scapy_frames(event, payload)
        assert frames == [build(event, payload) for build in ENCODINGS.values()]
        for frame in frames:
            copies, reasons = told(bare, 7, frame)
            assert copies == [(out, frame) for out in ALL_PORTS if out != 7]
            assert not reasons


@examples(60)
@given(RANDOM)
def test_pairs_have_any_order_and_leave_in_it(bare, rng):
    """Attribute 0 alone comes first, as after a pair its id is the end."""
    ids = rng.choice([SOME_IDS, tuple(range(32))])
    rows = cases.random_rows(rng, 20, ids, by_size=False)
    with holding(bare, rows):
        for _ in range(10):
            event = cases.random_event(rng, ids)
            pairs = sorted(event.items(), key=lambda pair: (pair[0] > 0, rng.random()))
            payload = rng.randbytes(rng.choice([0, 18]))
            head = cases.ID_PAIRS_GROUP + cases.SOURCE + cases.EVENT
            frame = head + cases.id_pairs(pairs, payload)
            (ports,) = cases.outcomes(rows, event)
            assert told(bare, 5, frame) == wanted(ports, 5, frame)


def test_each_attribute_is_matched_at_its_own_place(bare):
    every = {number: 1000 + number for number in range(ATTRIBUTES)}
    for number, value in every.items():
        mask = (1 << number, 1 << number)
        row = Row(mask, ((number, value, 32),), (2, 3), 34)
        with holding(bare, [row]):
            for build in ENCODINGS.values():
                for event in ({number: value}, every):
                    frame = build(event, b"rest")
                    assert told(bare, 1, frame) == wanted((2, 3), 1, frame)
                for other in ({number: value + 1}, {(number + 1) % 32: value}):
                    assert told(bare, 1, build(other)) == wanted((), 1, b"")


@examples(40)
@given(RANDOM)
def test_an_attribute_that_no_entry_names_changes_nothing(bare, rng):
    known, added = (0, 1, 5), (2, 17, 31)
    rows = cases.random_rows(rng, 20, known, by_size=False)
    with holding(bare, rows):
        for _ in range(5):
            event = cases.random_event(rng, known)
            more = event | cases.random_event(rng, added)
            for build in ENCODINGS.values():
                old, new = ([p for p, _ in told(bare, 9, build(e))[0]] for e in (event, more))
                assert old == new


def test_an_absent_attribute_is_not_one_of_value_0(bare):
    asks_for_0 = Row((1 << 5, 1 << 5), ((5, 0, 32),), (4, 12), 34)
    with holding(bare, [asks_for_0]):
        for build in ENCODINGS.values():
            for event, ports in (({5: 0}, (4, 12)), ({6: 0}, ()), ({5: 0, 6: 9}, (4, 12))):
                frame = build(event)
                assert told(bare, 1, frame) == wanted(ports, 1, frame)


def test_a_hole_takes_events_from_a_larger_entry(bare):
    is_there = (2, 2)
    rows = [
        Row(is_there, ((1, 16, 28),), (2, 3), 30),
        Row(is_there, ((1, 20, 32),), (), 34),
    ]
    with holding(bare, rows):
        for value in range(10, 40):
            ports = (2, 3) if 16 <= value <= 31 and value != 20 else ()
            for build in ENCODINGS.values():
                frame = build({1: value})
                assert told(bare, 1, frame) == wanted(ports, 1, frame)


def test_no_event_goes_back_to_where_it_came_from(bare):
    with holding(bare, [Row((0, 0), (), ALL_PORTS, 1)]):
        for port in (0, *ALL_PORTS, 13, 511):
            frame = pairs_frame({3: 4}, b"x")
            assert told(bare, port, frame) == wanted(ALL_PORTS, port, frame)
    with holding(bare, [Row((0, 0), (), (1,), 1)]):
        assert told(bare, 1, pairs_frame({3: 4})) == ([], ["NO_PORT"])


@examples(60)
@given(RANDOM)
def test_ports_of_all_passes_and_of_all_terms_that_hold_are_united(bare, rng):
    """Entries made by hand; a term is right if each attribute that asks leaves its bit."""
    entries, passes = [], []
    numbers = rng.sample(range(1, 1 << 32), rng.randint(1, 4))
    for at, number in enumerate(numbers):
        rows = cases.random_rows(rng, 4, SOME_IDS, by_size=False) if rng.random() < 0.5 else []
        asked = {}
        for attribute in rng.sample(SOME_IDS, rng.randint(0, 3)):
            asked[attribute] = [
                *((1, span, rng.getrandbits(512)) for span in ((0, 3), (4, 4), (9, 1 << 31))),
                *((present, None, rng.getrandbits(512)) for present in (0, 1)),
            ]
        subset = rng.choice([0, 1, 2])
        terms = sum(rng.getrandbits(1) << bit for bit in range(512) if _port(bit, subset) <= PORTS)
        passes.append((rows, asked, terms, subset))
        following = numbers[at + 1] if at + 1 < len(numbers) else 0
        # The chain begins with pass 0, whatever the numbers of the others.
        own = 0 if at == 0 else number
        entries.append(
            cases.pass_entry(
                own, rows=1 + at, vectors=number, terms=terms, subset=subset, next=following
            )
        )
        entries += (replace(row.entry(), match=_of_rows(row, 1 + at)) for row in rows)
        entries += (
            cases.value_entry(a, number, *one) for a, found in asked.items() for one in found
        )
    bare.apply({entry.key: entry for entry in entries})
    try:
        for _ in range(8):
            event = cases.random_event(rng, SOME_IDS)
            ports = {
                port
                for rows, asked, terms, subset in passes
                for port in _met(rows, asked, terms, subset, event)
            }
            for build in ENCODINGS.values():
                frame = build(event, b"rest")
                assert told(bare, 1, frame) == wanted(ports, 1, frame)
    finally:
        bare.apply(dict.fromkeys(entry.key for entry in entries))
        bare.apply({entry.key: entry for entry in base_entries()})


def _of_rows(row, number):
    (name, kind, _), *others = row.entry().match
    return ((name, kind, canonical(number)), *others)


def _met(rows, asked, terms, subset, event):
    """The ports of one pass: of its best row, and of each bit that all attributes leave."""
    (found,) = cases.outcomes(rows, event)
    yield from found
    for attribute, entries in asked.items():
        value = event.get(attribute)
        present = int(attribute in event)
        fitting = [one for p, span, one in entries if p == present and span is None]
        if value is not None:
            inside = [one for p, span, one in entries if span and span[0] <= value <= span[1]]
            fitting = inside or fitting
        terms &= fitting[0]
    yield from (_port(bit, subset) for bit in range(512) if terms >> bit & 1)


def _port(bit, subset):
    return bit % 64 + 1 if not subset else bit % 8 + 1 + 8 * (subset - 1)


def test_a_switch_that_remembers_frames_answers_the_same():
    rng = random.Random(8)
    rows = cases.random_rows(rng, 40, SOME_IDS, by_size=False)
    fresh, remembering = (switch_with(rows, cached=cached) for cached in (False, True))
    events = [cases.random_event(rng, SOME_IDS) for _ in range(40)]
    for _ in range(400):
        build = rng.choice([*ENCODINGS.values()])
        frame, port = build(rng.choice(events), rng.randbytes(4)), rng.randint(1, PORTS)
        assert sorted(remembering.process(port, frame)) == sorted(fresh.process(port, frame))
    assert remembering.counters() == fresh.counters()
    assert remembering.cache.hits > 50


def test_metadata_need_not_be_zeros_at_first(monkeypatch):
    rng = random.Random(6)
    rows = cases.random_rows(rng, 40, SOME_IDS, by_size=False)
    switch = switch_with(rows, cached=False)
    soil(monkeypatch, switch, cases.PROGRAM.read_bytes())
    for _ in range(200):
        event, port = cases.random_event(rng, SOME_IDS), rng.randint(1, PORTS)
        (ports,) = cases.outcomes(rows, event)
        for build in ENCODINGS.values():
            frame = build(event)
            assert told(switch, port, frame) == wanted(ports, port, frame)
    for _, frame, reason in cases.odd_frames():
        if reason is not None:
            assert told(switch, 1, frame) == ([], [reason])


# -- what is no event


@pytest.mark.parametrize("name", [name for name, _, _ in cases.odd_frames()])
def test_what_cannot_be_forwarded_is_dropped_and_counted_once(odd, name):
    ((frame, reason),) = [case for what, *case in cases.odd_frames() if what == name]
    copies, reasons = told(odd, 1, frame)
    assert reasons == ([reason] if reason else [])
    assert bool(copies) == (reason is None)
    if frame[12:14] == cases.EVENT:
        assert copies in ([], [(4, frame)])


@examples(100)
@given(RANDOM)
def test_any_bytes_are_forwarded_as_they_are_or_counted_as_the_decoder_does(odd, rng):
    for _ in range(10):
        event = cases.random_event(rng, range(32))
        build = rng.choice([*ENCODINGS.values()])
        frame = bytearray(build(event, rng.randbytes(rng.choice([0, 20]))))
        for _ in range(rng.randint(0, 3)):
            frame[rng.randrange(14, len(frame))] = rng.choice([0, 1, 31, 32, rng.getrandbits(8)])
        if rng.random() < 0.4:
            del frame[rng.randint(0, len(frame)) :]
        copies, reasons = told(odd, 1, bytes(frame))
        assert (copies, len(reasons)) in (([(4, bytes(frame))], 0), ([], 1))
        if len(frame) > 14:
            data = np.frombuffer(bytes(frame), np.uint8)
            _, event = events_of_frames(np.array([0, len(data)]), data, 0xFFFFFFFF, 1 << 20)
            assert reasons == DECODED[int(event.reason[0])]


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2**32 - 1)), min_size=1, max_size=6))
def test_a_chain_is_an_event_if_each_id_is_known_and_there_once(odd, chain):
    frame = cases.ID_PAIRS_GROUP + cases.SOURCE + cases.EVENT + cases.id_pairs(chain, b"\xff" * 9)
    ids = [number for number, _ in chain]
    # Behind a pair, id 0 is the end: what follows is payload.
    read = ids[: ids.index(0, 1)] if 0 in ids[1:] else ids
    wrong = None
    for place, number in enumerate(read):
        if number in read[:place]:
            wrong = "ID_TWICE"
        elif number >= ATTRIBUTES:
            wrong = "UNKNOWN_ATTRIBUTE"
        if wrong is not None:
            break
    assert told(odd, 1, frame) == (([(4, frame)], []) if wrong is None else ([], [wrong]))


def test_other_traffic_is_routed_by_its_address(odd):
    for address, target, port in (("10.1.2.3", cases.HOST_MAC, 2), ("10.1.7.7", None, 3)):
        frame = plain_frame(datagram(dst=address, ttl=9, tos=3))
        ((out, copy),), reasons = told(odd, 1, frame)
        assert (out, reasons) == (port, [])
        assert Ether(copy).dst == Ether(plain_frame(b"", target=target)).dst
        assert bytes(Ether(copy)[IP]) == datagram(dst=address, ttl=8, tos=3)


def test_every_statement_of_the_program_is_reached():
    switch = switch_with(
        [Row((0, 0), (), (4,), 1), Row((1, 1), (), (), 2), Row((2, 2), (), (4, 12), 3)],
        cached=False,
        coverage=True,
    )
    switch.process(1, pairs_frame({3: 4}))
    more = [
        cases.pass_entry(0, rows=1, vectors=1, terms=2, next=7),
        cases.pass_entry(7, rows=2, vectors=2, subset=2),
        *(cases.value_entry(number, 1, 1, (1, 1), 2) for number in range(ATTRIBUTES)),
        *open_ports("s", range(1, 65)),
    ]
    # To one subset after the other, then to all, then to where it came in, then to nobody.
    chosen = [*(1 << 8 * subset for subset in range(8)), (1 << 64) - 1, 1 << 19, 0]
    for terms in chosen:
        entry = cases.pass_entry(0, vectors=1, terms=terms)
        switch.apply({entry.key: entry})
        switch.process(20, pairs_frame({3: 4}))
        switch.process(100, pairs_frame({3: 4}))
    switch.apply({entry.key: None})
    switch.process(1, pairs_frame({3: 4}))
    switch.apply({entry.key: entry for entry in more})
    for _, frame, _ in cases.odd_frames():
        for port in (1, 4):
            switch.process(port, frame)
    for number in range(ATTRIBUTES):
        for build in ENCODINGS.values():
            switch.process(1, build({number: 1}))
    # Each function, in a window that is open and in one that is over; averages of all lengths.
    for function, window in product(range(6), (1 << 40, 0)):
        asking = {"terms": 1, "vectors": 9, "states": 3, "tag": 7, "timed": 1, "slot": function}
        asking |= {"function": function, "window": window}
        for operand in (1, (1 << 32) - 1):
            found = cases.ask_entry(0, operand=operand, **asking), cases.state_entry(3, (0, 9), 6)
            switch.apply({each.key: each for each in found})
            for value in (5, 3, (1 << 32) - 1):
                switch.process(1, pairs_frame({1: value}))
                switch.process(1, pairs_frame({2: value}))
            full = {"owners": 7, "counts": 1, "values": (1 << 64) - 1, "starts": 1 << 40}
            for name, cell in full.items():
                switch.write_register(f"{cases.MATCH}.cells.{name}", function, cell)
            switch.process(1, pairs_frame({1: 0}))
    for number in range(ATTRIBUTES):
        entry = cases.ask_entry(0, operand=number, **asking)
        switch.apply({entry.key: entry})
        switch.process(1, pairs_frame({number: 1}))
    # A host that may only receive, and a port with nothing behind it.
    entry = receiving_port("s", 2, 0x0A000001)
    switch.apply({entry.key: entry})
    plain = (datagram(), datagram(src="10.9.9.9"))
    for frame in (pairs_frame({1: 1}), b"\x08" * 60, *map(plain_frame, plain)):
        switch.process(2, frame)
        switch.process(500, frame)
    entry = cases.ask_entry(0, rows=99, states=3)
    switch.apply({entry.key: entry})
    switch.process(1, pairs_frame({1: 1}))
    missed = {
        what
        for number, what in switch.program.coverage_points.items()
        if number not in switch.program.covered
    }
    assert not missed


@pytest.mark.bmv2
@pytest.mark.integration
def test_bmv2_gives_events_to_the_same_receivers(pytestconfig, tmp_path):
    rng = random.Random(5)
    real = RealSwitch(str(pytestconfig.getoption("--bmv2")), tmp_path, PORTS)
    try:
        real.load(cases.INFO.read_text(), cases.PROGRAM.read_bytes())
        real.insert(base_entries(ALL_PORTS))  # its table holds no more than ports can be
        rows = cases.random_rows(rng, 60, SOME_IDS, by_size=False)
        real.insert([row.entry() for row in rows])
        for _ in range(200):
            event = cases.random_event(rng, SOME_IDS)
            (ports,) = cases.outcomes(rows, event)
            port = rng.randint(1, PORTS)
            for build in ENCODINGS.values():
                frame = build(event, rng.randbytes(rng.choice([0, 18, 60])))
                copies, _ = wanted(ports, port, frame)
                assert sorted(real.process(port, frame, len(copies))) == copies
        real.delete([row.entry() for row in rows])
        everything = Row((0, 0), (), (4, 5, 12), 1)
        real.insert([everything.entry()])
        ours = switch_with([everything])
        begin = [packets for packets, _ in real.counter("ingress.dropped")]
        # An interface takes no frame without a whole Ethernet header.
        for _, frame, _ in (case for case in cases.odd_frames() if len(case[1]) >= 14):
            copies = sorted(ours.process(1, frame))
            assert sorted(real.process(1, frame, len(copies))) == copies
        counted = [packets for packets, _ in real.counter("ingress.dropped")]
        assert [b - a for a, b in zip(begin, counted, strict=True)] == dropped(ours)
    finally:
        real.close()


# -- rules on floats and texts


def test_events_go_by_floats_and_texts_as_python_compares_them(bare):
    registry = Registry((make_attribute(2, "level", "float"), make_attribute(5, "place", "text")))
    conditions = {
        "level > -0.5": lambda level, place: level > -0.5,
        "level <= 0 and place == AB": lambda level, place: level <= 0 and place == "AB",
        "place >= GO and place < GP": lambda level, place: place[:2] == "GO",
        "not (level == 0) or place == GOOD": lambda level, place: level != 0 or place == "GOOD",
        "level < -1e30": lambda level, place: level < -1e30,
    }
    rules = [
        CheckedRule(text, parse_rule(text, registry.specification()).condition, (str(2 + at),))
        for at, text in enumerate(conditions)
    ]
    # As rows, and where there is no room for any as bit vectors.
    for limits in (Limits(), Limits(rows=0)):
        made = passes_of(boxes_of(rules, registry), limits)
        assert not made.refused
        entries = event_entries("s", made.passes, ())
        bare.apply({entry.key: entry for entry in entries})
        for level, place in product(LEVELS, ("AB", "AC", "GOOD", "GO", "GP", "")):
            (bits,) = struct.unpack(">I", struct.pack(">f", level))
            raw = (1 << 31) + (-1 if bits >> 31 else 1) * (bits & 0x7FFFFFFF)
            ports = [2 + at for at, holds in enumerate(conditions.values()) if holds(level, place)]
            for build in ENCODINGS.values():
                frame = build({2: raw, 5: int.from_bytes(f"{place:4}".encode())}, b"rest")
                assert told(bare, 1, frame) == wanted(ports, 1, frame)
        bare.apply(dict.fromkeys(entry.key for entry in entries))
        bare.apply({entry.key: entry for entry in base_entries()})


LEVELS = (0.0, -0.0, -0.5, 1e-45, -1e-45, 2.5, -3e38, -math.inf, math.inf)
