"""The programs of replicated state: what p4c made of them fits what the control plane believes."""

from __future__ import annotations

import re

import p4_products
import pytest
from google.protobuf import text_format
from state_cases import CAPACITY, REASONS, REGISTERS, SIZES, TABLE

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.udfs.network.programs import REPLICATING
from stackcast.udfs.states.messages import (
    ACKNOWLEDGER,
    HEADER_BYTES,
    PROTO_ID,
    STATES_PORT,
    MessageKind,
)
from stackcast.udfs.states.subscriptions import PERIOD_BITS
from stackcast.udfs.switches.derivation import DERIVATIONS
from stackcast.udfs.switches.ports import FAN_OUT
from stackcast.udfs.switches.ports import NARROW_PORTS as PORTS
from stackcast.udfs.switches.routes import DELIVER, ROUTE, SEND
from stackcast.udfs.switches.sources import HOST, SOURCE, TRUST
from stackcast.udfs.switches.state_entries import PROTOCOL, PUBLISHER, SPAN, TREE

pytestmark = pytest.mark.unit

SHARED = {TREE: {SPAN}, SOURCE: {TRUST, PUBLISHER, HOST}, ROUTE: {SEND, DELIVER}}


def info_of(program: str) -> p4info_pb2.P4Info:
    info, _ = p4_products.products(program)
    return text_format.Parse(info.read_text(), p4info_pb2.P4Info())


def tables_of(info: p4info_pb2.P4Info) -> dict[str, set[str]]:
    """The actions of entries, by table."""
    names = {action.preamble.id: action.preamble.name for action in info.actions}
    return {
        table.preamble.name: {
            names[ref.id] for ref in table.action_refs if ref.scope != ref.DEFAULT_ONLY
        }
        for table in info.tables
    }


def constant(name: str) -> int:
    """A number of sizes.p4."""
    found = re.search(rf"\b{name} (?:= )?(0x[0-9A-Fa-f]+|0b[01]+|\d+)\b", SIZES)
    assert found is not None, name
    return int(found[1], 0)


def test_numbers_of_the_programs_are_those_of_messages_and_control_plane():
    assert constant("PROTO_ID") == PROTO_ID == PROTOCOL
    assert constant("STATES_PORT") == STATES_PORT
    assert constant("HEADER_BYTES") == HEADER_BYTES
    assert constant("ACKNOWLEDGER") == ACKNOWLEDGER
    assert constant("FAN_OUT") == FAN_OUT
    assert {kind.name: constant(kind.name) for kind in MessageKind} == dict(MessageKind.__members__)
    assert constant("STATES") == CAPACITY
    assert constant("PERIOD_BITS") == PERIOD_BITS


def test_tables_and_actions_are_those_of_the_entries():
    assert set(REPLICATING) == {REGISTERS, TABLE} <= set(DERIVATIONS)
    for name in REPLICATING:
        info = info_of(name)
        assert info.pkg_info.name == name
        (counter,) = info.counters
        assert (counter.preamble.name, counter.size) == ("ingress.dropped", len(REASONS))
        (span,) = (action for action in info.actions if action.preamble.name == SPAN)
        assert [(p.name, p.bitwidth) for p in span.params] == [
            *(("links", PORTS), ("hosts", PORTS), ("lease", 8))
        ]
    assert tables_of(info_of(REGISTERS)) == SHARED


def test_who_subscribed_is_in_registers_of_one_program_and_in_a_table_of_the_other():
    registers = info_of(REGISTERS).registers
    assert {(r.preamble.name, r.type_spec.bitstring.bit.bitwidth, r.size) for r in registers} == {
        ("ingress.states.subscribers", PORTS, CAPACITY),
        ("ingress.states.earlier", PORTS, CAPACITY),
        ("ingress.states.generation", 32, CAPACITY),
        ("ingress.states.informed", PORTS, CAPACITY),
        ("ingress.states.period_informed", 32, CAPACITY),
    }
    info = info_of(TABLE)
    assert not info.registers
    assert tables_of(info) == {**SHARED, "ingress.states.state": {"ingress.states.send"}}
    (state,) = (t for t in info.tables if t.preamble.name == "ingress.states.state")
    assert list(state.preamble.annotations) == ['@p4runtime_role("states")']
    fields = {
        each.preamble.name: [(field.name, field.bitwidth) for field in each.metadata]
        for each in info.controller_packet_metadata
    }
    assert fields == {"packet_in": [("port", 16)], "packet_out": [("ports", PORTS)]}


def test_every_reason_to_drop_a_frame_is_counted_apart():
    numbers = re.findall(r"^const reason_t \w+ = (\d+);", SIZES, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(constant("REASONS")))
    trees = (p4_products.FOLDER / "virtual_trees/sizes.p4").read_text()
    numbered = re.findall(r"^const reason_t (\w+) = (\d+);", trees, re.MULTILINE)
    both = {name: int(number) for name, number in numbered if name in REASONS}
    assert len(both) == 11
    assert {name: REASONS.index(name) for name in both} == both
