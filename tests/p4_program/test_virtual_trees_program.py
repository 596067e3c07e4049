"""The program of virtual trees: what p4c made of it fits what the control plane believes of it."""

from __future__ import annotations

import json
import re

import p4_products
import pytest
from google.protobuf import text_format

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.udfs.network.labels import FORMATS, MAX_LABELS, MAX_PORT
from stackcast.udfs.network.programs import STACKS
from stackcast.udfs.network.tunnel import TUNNEL_PORT
from stackcast.udfs.switches.ports import FAN_OUT
from stackcast.udfs.switches.routes import DELIVER, ROUTE, SEND
from stackcast.udfs.switches.sources import HOST, SOURCE, TRUST
from stackcast.udfs.switches.stack_entries import (
    HOST_PORT,
    LABELS_A_PASS,
    TAKE_STACK_OFF,
    label_table,
    positions_of,
)
from stackcast.udfs.switches.tunnels import END, LINK, PUT_ON, TAKE_OFF

#: Bits of a mask of ports, of which the highest is none.
PORTS = MAX_PORT + 1

pytestmark = pytest.mark.unit

SIZES = (p4_products.FOLDER / "virtual_trees/sizes.p4").read_text()
EACH = pytest.mark.parametrize("name", ["virtual_trees", "virtual_trees_32"])


def products(name: str) -> tuple[p4info_pb2.P4Info, str]:
    """P4Info, and the text of the JSON."""
    info, program = (path.read_text() for path in p4_products.products(name))
    return p4info(info), program


def p4info(text: str) -> p4info_pb2.P4Info:
    return text_format.Parse(text, p4info_pb2.P4Info())


def constant(name: str) -> int:
    """A number of sizes.p4."""
    found = re.search(rf"\b{name} (?:= )?(0x[0-9a-f]+|\d+)\b", SIZES)
    assert found is not None, name
    return int(found[1], 0)


def actions_of(info: p4info_pb2.P4Info) -> dict[str, set[str]]:
    """The actions that entries of each table may have."""
    names = {action.preamble.id: action.preamble.name for action in info.actions}
    return {
        table.preamble.name: {
            names[ref.id] for ref in table.action_refs if ref.scope != ref.DEFAULT_ONLY
        }
        for table in info.tables
    }


def wanted_actions(positions: int) -> dict[str, set[str]]:
    tables = {
        HOST_PORT: {TAKE_STACK_OFF},
        ROUTE: {SEND, DELIVER},
        SOURCE: {TRUST, HOST},
        LINK: {PUT_ON},
        END: {TAKE_OFF},
    }
    for place in range(1, positions + 1):
        control = f"ingress.label_{place}"
        tables[label_table(place)] = {f"{control}.{kind}" for kind in ("tree", "hop", "stop")}
    return tables


def test_numbers_of_the_program_are_those_of_the_control_plane():
    assert constant("LABELS_A_PASS") == LABELS_A_PASS
    assert constant("MAX_LABELS") == MAX_LABELS
    assert constant("FAN_OUT") == FAN_OUT
    tunnel = (p4_products.FOLDER / "tunnel/headers.p4").read_text()
    assert re.findall(r"TUNNEL_PORT = (\d+);", tunnel) == [str(TUNNEL_PORT)]
    widths = re.findall(r"if LABEL_BITS == (\d+)\nconst bit<16> STACK = (0x\w+);", SIZES)
    assert {int(bits): int(kind, 0) for bits, kind in widths} == {
        labels.bits: labels.ether_type for labels in FORMATS.values()
    }


@EACH
def test_tables_and_actions_are_those_of_the_entries(name):
    info, _ = products(name)
    params = {p.name: p.bitwidth for action in info.actions for p in action.params}
    of_tunnels = {"next_hop": 48, "src": 32, "dst": 32}
    assert params == {"ports": PORTS, "port": 9, "mac": 48, "ipv4": 32, **of_tunnels}
    assert actions_of(info) == wanted_actions(LABELS_A_PASS)
    assert positions_of(actions_of(info)) == LABELS_A_PASS
    fields = {
        (table.preamble.name, field.name, field.bitwidth, field.match_type)
        for table in info.tables
        for field in table.match_fields
    }
    exact, lpm = p4info_pb2.MatchField.EXACT, p4info_pb2.MatchField.LPM
    bits = STACKS[name].bits
    labels = {(label_table(n), "label", bits, exact) for n in range(1, LABELS_A_PASS + 1)}
    assert fields == labels | {
        (HOST_PORT, "port", 9, exact),
        (SOURCE, "port", 9, exact),
        (ROUTE, "dst", 32, lpm),
        (LINK, "port", 9, exact),
        (END, "port", 9, exact),
        (END, "src", 32, exact),
        (END, "dst", 32, exact),
    }


@EACH
def test_a_program_has_room_for_64_labels_of_its_width_and_its_name(name):
    info, program = products(name)
    assert info.pkg_info.name == name
    (later,) = (h for h in json.loads(program)["header_types"] if h["name"] == "labels_h")
    assert later["max_length"] * 8 == MAX_LABELS * STACKS[name].bits


def test_every_reason_to_drop_a_frame_is_counted_apart():
    reasons = re.findall(r"^const reason_t (\w+) = (\d+);", SIZES, re.MULTILINE)
    assert [int(number) for _, number in reasons] == list(range(constant("REASONS")))
    (counter,) = products("virtual_trees")[0].counters
    assert (counter.preamble.name, counter.size) == ("ingress.dropped", len(reasons))
    text = "".join(path.read_text() for path in p4_products.sources("virtual_trees"))
    for name, _ in reasons:
        assert re.search(rf"\b(?:reason = {name};|reason [!=]= {name}\b)", text), name
    explained = (p4_products.FOLDER.parent / "docs/reference/drop-reasons.md").read_text()
    assert re.findall(r"^\| (\d+) \| `(\w+)` \|", explained, re.MULTILINE) == [
        (number, name) for name, number in reasons[1:]
    ]


@EACH
def test_json_and_p4info_name_the_same_tables_actions_and_counters(name):
    info, text = products(name)
    program = json.loads(text)
    tables = {table["name"]: table for part in program["pipelines"] for table in part["tables"]}
    for table in info.tables:
        assert tables[table.preamble.name]["max_size"] == table.size
    actions = {action["name"] for action in program["actions"]}
    assert {action.preamble.name for action in info.actions} <= actions
    assert [counter["name"] for counter in program["counter_arrays"]] == ["ingress.dropped"]


@EACH
def test_the_products_say_nothing_of_the_place_where_they_were_made(name):
    _, text = products(name)
    program = json.loads(text)
    assert program["program"] == f"{name}.p4"
    assert {x for x in re.findall(r'"filename":"([^"]*)"', text) if x} <= {
        path.relative_to(p4_products.FOLDER).as_posix() for path in p4_products.sources(name)
    }
    assert json.dumps(program, separators=(",", ":")) + "\n" == text


@pytest.mark.p4c
@pytest.mark.parametrize(
    ("name", "positions"),
    [*(("virtual_trees", 1 << power) for power in range(7)), ("virtual_trees_32", 64)],
)
def test_labels_a_pass_are_an_option_of_the_compiler(name, positions, pytestconfig):
    p4c = str(pytestconfig.getoption("--p4c"))
    option = [f"-DLABELS_A_PASS={positions}", "--Werror"]
    source = p4_products.FOLDER / f"{name}.p4"
    info, program = p4_products.compile_program(p4c, source, option)
    assert actions_of(p4info(info)) == wanted_actions(positions)
    assert len(json.loads(program)["headers"]) == positions + 11
