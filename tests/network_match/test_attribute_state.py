"""Rules with state in the program of attributes: the interpreter says who gets an event.

The software switch runs what p4c made, by a clock that the test sets; rules come and go meanwhile.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_P4
from program_switches import fill, open_ports

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.nodes import Forward, Rule
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.attributes.registry import Registry, attribute
from stackcast.udfs.network.programs import PASSES
from stackcast.udfs.network.topology import line
from stackcast.udfs.network_match.generic import entries as generic_entries
from stackcast.udfs.network_match.generic.boxes import boxes_of
from stackcast.udfs.network_match.generic.cells import cells_of
from stackcast.udfs.network_match.generic.entries import event_entries
from stackcast.udfs.network_match.generic.network import AttributeFilters
from stackcast.udfs.network_match.generic.passes import Limits, passes_of
from stackcast.udfs.switches.entry import SwitchEntry

pytestmark = pytest.mark.unit

REGISTRY = Registry(
    (
        attribute(0, "a", "unsigned"),
        attribute(1, "b", "signed"),
        attribute(5, "c", "float"),
    )
)
FORMAT = REGISTRY.specification()
PORTS = range(1, 9)
LINE = line(3, 2)
CONDITIONS = (
    "avg(a, 50us) > 3",
    "a < 4 and avg(a, 50us) > 3",
    "a < 4 and avg(a, 50us) between 1 and 2",
    "a < 4 and avg(b, 80us) <= -1",
    "count(100us) >= 2 and b == 1",
    "count(100us) < 2",
    "sum(a, 60us) >= 9 or b < 0",
    "not (b >= 0 and max(c, 40us) > 0.5)",
    "min(b, 30us) == -2 and c <= 2",
    "a in {1, 3, 5} and (min(a, 90us) < 2 or max(a, 90us) > 4)",
    "changed(b)",
    "b > 0 and changed(c)",
    "a != 3 and not moved(a, 3) or changed(a) and b == 1",
    "b != 0",
    "a > 2 and c > -1",
)
events = st.fixed_dictionaries(
    {},
    optional={
        0: st.integers(0, 6),
        1: st.integers(-3, 3).map(lambda value: value + (1 << 31)),
        5: st.sampled_from(["-2.5", "0", "0.5", "0.75", "3"]).map(
            FORMAT.field("c").encode  # the interpreter reads raw values, too
        ),
    },
)
sets = st.lists(
    st.tuples(st.sampled_from(CONDITIONS), st.sampled_from(PORTS)), max_size=5, unique=True
)


class World:
    """A switch and an interpreter that are given the same rules and events."""

    def __init__(self) -> None:
        self.now = 0
        self.switch = SimpleSwitch(clock=lambda: self.now)
        self.switch.load((COMPILED_P4 / "attribute_value.json").read_bytes())
        self.switch.apply({entry.key: entry for entry in open_ports("s", PORTS)})
        self.held: list[SwitchEntry] = []
        self.edits = 0
        self.interpreter: Interpreter | None = None

    def adopt(self, drawn: list[tuple[str, int]], limits: Limits) -> None:
        """Gives both the rules."""
        conditions = [(parse_rule(text, FORMAT).condition, (str(port),)) for text, port in drawn]
        rules = [CheckedRule(str(at), *one) for at, one in enumerate(conditions)]
        made = passes_of(boxes_of(rules, REGISTRY), limits, cells_of(rules, REGISTRY))
        assert not made.refused and not made.without
        self.edits += 1
        entries = event_entries("s", made.passes, self.held, self.edits)
        gone = {entry.key for entry in self.held} - {entry.key for entry in entries}
        self.switch.apply({entry.key: entry for entry in entries} | dict.fromkeys(gone))
        self.held = entries
        told = Interpreter([Rule(c, (Forward(to),)) for c, to in conditions], FORMAT)
        if self.interpreter is not None:
            told.carry(self.interpreter)
        self.interpreter = told

    def deliver(self, event: dict[int, int], encoding: str) -> None:
        assert self.interpreter is not None
        group = {"id_pairs": "01", "bitmask": "02"}[encoding]
        head = bytes.fromhex(f"0353430000{group} 020000000009 9001")
        sent = head + write_event(event, encoding, b"rest")
        names = {one.id: one.name for one in REGISTRY.attributes}
        raw = {names[number]: value for number, value in event.items()}
        wanted = [int(port) for port in self.interpreter.step(raw, self.now).receivers]
        assert sorted(self.switch.process(64, sent)) == [(port, sent) for port in wanted]


@patch.object(generic_entries, "CELLS", 20)
@examples(100)
@given(data=st.data(), limits=st.sampled_from([Limits(), Limits(rows=0)]))
def test_a_switch_keeps_state_as_the_interpreter_does_also_while_rules_change(data, limits):
    """Of few registers, so that new cells have those of others that went, or they themselves."""
    world = World()
    versions = data.draw(st.lists(sets, min_size=1, max_size=3))
    happen = data.draw(st.lists(events.filter(bool), max_size=6))
    for rules in [*versions, *versions[:1]]:
        world.adopt(rules, limits)
        for event in happen:
            world.now += data.draw(st.sampled_from([0, 1, 9, 25, 49, 50, 51]))
            world.deliver(event, data.draw(st.sampled_from(["id_pairs", "bitmask"])))


def rejections(*drawn: tuple[str, str], limits: Limits | None = None):
    rows = [Subscription(f"r{at}", host, text) for at, (host, text) in enumerate(drawn)]
    rules, bad = check(rows, FORMAT, set(LINE.subscribers()), "feed1")
    assert not bad
    return AttributeFilters(REGISTRY, "feed1", limits).entries(LINE, rules, {})


def test_what_a_switch_cannot_keep_is_refused_rule_by_rule_and_all_others_are_live() -> None:
    made = rejections(
        ("h1", "a < 4 and avg(a, 1s) > 3"),
        ("h1", "avg(a, 1s) > 3 and count(1s) > 5"),
        ("h5", "a < 4 and avg(a, 1s) > 3"),
        ("h5", "a < 4"),
    )
    told = {one.id: (one.code, one.message) for one in made.rejections}
    assert {id: code for id, (code, _) in told.items()} == {
        "r1": "SUBSCRIPTION.NOT_ON_SWITCHES",
        "r2": "SUBSCRIPTION.STATE_BEYOND_FIRST_SWITCH",
    }
    assert "avg and count" in told["r1"][1]
    assert made.passes == 2
    asking = [e for e in made.entries["s1"] if e.table == PASSES and e.action.endswith(".ask")]
    assert len(asking) == 1
    assert not any(e.action.endswith(".ask") for e in made.entries["s2"])


def test_cells_beyond_the_passes_of_an_event_are_refused_those_that_fewest_rules_ask_first() -> (
    None
):
    few = Limits(passes=3)
    asked = [(f"h{1 + n % 2}", f"a == {n} and count(1s) > 2") for n in range(4)]
    made = rejections(("h1", "b > 0"), *asked, ("h2", "a == 3 and count(1s) > 2"), limits=few)
    assert {one.code for one in made.rejections} == {"SUBSCRIPTION.NO_ROOM_ON_SWITCHES"}
    assert len(made.rejections) == 2
    # The fourth cell is asked by two rules.
    assert not {"r0", "r4", "r5"} & {one.id for one in made.rejections}


def test_a_cell_keeps_its_registers_whatever_comes_and_goes_beside_it() -> None:
    held: list[SwitchEntry] = []
    kept: dict[bytes, bytes] = {}
    texts = ["a < 4 and count(1s) > 2", "b > 0 and sum(a, 1s) > 9", "c > 1 and count(1s) < 9"]
    for chosen in ([0], [0, 1], [2, 1, 0], [0, 2], [0]):
        rules = [
            CheckedRule(f"{n}", parse_rule(texts[n], FORMAT).condition, ("1",)) for n in chosen
        ]
        held = event_entries("s", passes_of([], Limits(), cells_of(rules, REGISTRY)).passes, held)
        asking = [dict(entry.params) for entry in held if entry.action.endswith(".ask")]
        slots = {one["tag"]: one["slot"] for one in asking}
        kept = kept or slots
        assert len(set(slots.values())) == len(chosen)
        assert kept.items() <= slots.items()


@pytest.mark.integration
def test_rules_with_state_go_to_a_switch_by_p4runtime_edit_after_edit() -> None:
    running = {name: SimpleSwitch() for name in LINE.switches}
    devices = [Device(n, s.device_id, running[n]) for n, s in LINE.switches.items()]
    server = P4RuntimeServer(devices).start()
    texts = ["a < 4 and count(1h) >= 1", "max(b, 1h) > 0 or c > 0", "changed(a)", "avg(a, 1h) >= 0"]
    filters, held = AttributeFilters(REGISTRY, "feed1"), {}
    publisher = LINE.hosts["feed1"]
    port = LINE.hosts["h1"].port
    head = bytes.fromhex("035343000002 020000000009 9001")
    try:
        for chosen in (texts[:2], texts, texts[2:]):
            rows = [Subscription(text, "h1", text) for text in chosen]
            rules, bad = check(rows, FORMAT, set(LINE.subscribers()), "feed1")
            made = filters.entries(LINE, rules, held)
            assert not bad and not made.rejections
            held = made.entries
            for name, switch in LINE.switches.items():
                ports = [link.port for link in LINE.links if link.switch == name]
                entries = [*open_ports(name, ports), *held[name]]
                fill(server.address, switch, entries, "attribute_value")
            sent = head + write_event({0: 3}, "bitmask", b"rest")
            switch = running[publisher.switch]
            copies = [switch.process(publisher.port, sent) for _ in range(2)]
            # Whatever the cells held, the second event finds a count, and an average that lasts.
            assert copies[1] == [(port, sent)]
    finally:
        server.stop()
