"""The attribute/value program for headers of other widths: rules one by one say who gets an event.

One pair of widths is compiled beside the tests; p4c makes the others where it is there.
"""

from __future__ import annotations

import json
from random import Random

import p4_products
import pytest
from examples import examples
from generic_rows import rule
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_P4, COMPILED_TEST_P4, P4
from program_switches import open_ports

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches.filters import NetworkMatch
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.attributes.events import WIDTHS, Widths
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.network_match.generic.boxes import boxes_of
from stackcast.udfs.network_match.generic.entries import event_entries
from stackcast.udfs.network_match.generic.network import header_widths
from stackcast.udfs.network_match.generic.passes import Limits, passes_of

pytestmark = pytest.mark.unit

SMALL = Widths(16, 8)
COMPILED = COMPILED_TEST_P4 / "attribute_value_16_8.json"
PORTS = range(1, 11)
GROUPS = {"id_pairs": bytes.fromhex("035343000001"), "bitmask": bytes.fromhex("035343000002")}
REASONS = {"CUT_SHORT": 1, "EMPTY_EVENT": 2, "UNKNOWN_ATTRIBUTE": 3, "ID_TWICE": 4}


def switch_of(program: bytes) -> SimpleSwitch:
    switch = SimpleSwitch()
    switch.load(program)
    switch.apply({entry.key: entry for entry in open_ports("s", PORTS)})
    return switch


@pytest.fixture(scope="module")
def small() -> SimpleSwitch:
    return switch_of(COMPILED.read_bytes())


def frame(header: bytes, encoding: str) -> bytes:
    return GROUPS[encoding] + bytes(5) + b"\x09\x90\x01" + header


def deliver_as_rules_say(switch: SimpleSwitch, of: Widths, rng: Random) -> None:
    """Random rules, as rows and as bit vectors, and random events in both encodings."""
    ids = sorted({0, of.bitmask - 1, *rng.sample(range(of.bitmask), 4)})
    known = Registry(tuple(attribute(i, f"a{i}", "unsigned", widths=of) for i in ids), of)
    signs = ("<", ">", "==", "!=")
    rules = [
        rule(
            " and ".join(
                f"a{i} {rng.choice(signs)} {rng.randrange(5)}"
                for i in rng.sample(ids, rng.randint(1, 2))
            ),
            str(rng.choice(PORTS)),
            known=known,
        )
        for _ in range(rng.randint(1, 6))
    ]
    limits = rng.choice([Limits(), Limits(rows=0)])
    made = passes_of(boxes_of(rules, known), limits)
    assert not made.refused
    entries = event_entries("s", made.passes, ())
    switch.apply({entry.key: entry for entry in entries})
    try:
        for _ in range(8):
            event = {
                i: rng.randrange(6) for i in range(of.bitmask) if i in ids or rng.random() < 0.1
            }
            event = {i: raw for i, raw in event.items() if rng.random() < 0.7} or {0: 1}
            named = {f"a{i}": raw for i, raw in event.items() if i in ids}
            wanted = {
                int(port) for r in rules if matches(r.condition, named) for port in r.receivers
            }
            for encoding in GROUPS:
                sent = frame(write_event(event, encoding, b"rest", of), encoding)
                assert sorted(switch.process(64, sent)) == [(port, sent) for port in sorted(wanted)]
    finally:
        switch.apply(dict.fromkeys(entry.key for entry in entries))


@examples(60)
@given(st.randoms(use_true_random=False))
def test_events_of_short_bitmasks_and_long_ids_go_where_rules_say(small, rng) -> None:
    deliver_as_rules_say(small, SMALL, rng)


@pytest.mark.parametrize(
    ("header", "encoding", "reason"),
    [
        ("0008 00000001 0000", "id_pairs", "UNKNOWN_ATTRIBUTE"),
        ("0100 00000001 0000", "id_pairs", "UNKNOWN_ATTRIBUTE"),
        ("0001 00000001 0001 00000002 0000", "id_pairs", "ID_TWICE"),
        ("0001 00000001 00", "id_pairs", "CUT_SHORT"),
        ("00", "id_pairs", "CUT_SHORT"),
        ("00", "bitmask", "EMPTY_EVENT"),
        ("80 000000", "bitmask", "CUT_SHORT"),
    ],
)
def test_a_damaged_header_is_dropped_for_what_is_wrong_with_it(small, header, encoding, reason):
    before = small.counter("ingress.dropped", REASONS[reason])[0]
    assert not small.process(1, frame(bytes.fromhex(header), encoding))
    assert small.counter("ingress.dropped", REASONS[reason])[0] == before + 1


@pytest.mark.p4c
@pytest.mark.parametrize("of", [Widths(8, 16), Widths(8, 64), Widths(16, 64)], ids=str)
def test_p4c_makes_a_program_for_each_of_them(pytestconfig, of) -> None:
    p4c = str(pytestconfig.getoption("--p4c"))
    source = P4 / "attribute_value.p4"
    _, program = p4_products.compile_program(p4c, source, p4_products.width_options(of))
    assert header_widths(program.encode()) == of
    switch = switch_of(program.encode())
    for seed in range(10):
        deliver_as_rules_say(switch, of, Random(seed))


def test_widths_of_another_program_are_refused_with_the_way_to_make_one(tmp_path) -> None:
    assert header_widths((COMPILED_P4 / "attribute_value.json").read_bytes()) == WIDTHS
    assert header_widths(b"of another target") is header_widths(b"{}") is None
    asked = {"match": "network", "format": "attributes", "p4_folder": str(COMPILED_P4)}
    NetworkMatch(Settings(**asked))
    other = Settings(**asked, attributes_id_bits=16, attributes_bitmask_bits=8)
    with pytest.raises(SettingsError) as refused:
        NetworkMatch(other)
    assert refused.value.code == "SETTINGS.WRONG_WIDTHS"
    assert "--widths 16/8" in refused.value.message and "ids of 8 bits" in refused.value.message
    for suffix in (".json", ".p4info.txtpb"):
        made = COMPILED.with_name(f"attribute_value_16_8{suffix}")
        (tmp_path / f"attribute_value{suffix}").write_bytes(made.read_bytes())
    asked["p4_folder"] = str(tmp_path)
    NetworkMatch(Settings(**asked, attributes_id_bits=16, attributes_bitmask_bits=8))
    with pytest.raises(SettingsError, match="ids of 16 bits and bitmasks of 8"):
        NetworkMatch(Settings(**asked))
    assert json.loads(COMPILED.read_text())["program"].endswith("attribute_value_16_8.p4")
