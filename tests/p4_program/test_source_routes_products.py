"""The programs of source routes: what p4c made of them fits what the control plane believes."""

from __future__ import annotations

import json
import re

import p4_products
import pytest
from google.protobuf import text_format
from p4.config.v1 import p4info_pb2

from udfs.network.labels import MAX_LABELS
from udfs.network.programs import stack_program
from udfs.network.source_routes import SOURCE_ROUTES, TAGS, HopLabels
from udfs.switches.ports import FAN_OUT, PORTS
from udfs.switches.routes import DELIVER, ROUTE, SEND
from udfs.switches.sources import HOST, SOURCE, TRUST
from udfs.switches.stack_entries import (
    HOST_PORT,
    LABELS_A_PASS,
    SPLIT,
    TAKE_STACK_OFF,
    label_table,
    positions_of,
)

pytestmark = pytest.mark.unit

SIZES = (p4_products.FOLDER / "source_routes/sizes.p4").read_text()
EACH = pytest.mark.parametrize("form", SOURCE_ROUTES.values(), ids=SOURCE_ROUTES)


def products(form) -> tuple[p4info_pb2.P4Info, str]:
    """P4Info, and the text of the JSON."""
    info, program = p4_products.products(stack_program(form))
    return text_format.Parse(info.read_text(), p4info_pb2.P4Info()), program.read_text()


def constant(name: str) -> int:
    """A number of sizes.p4."""
    found = re.search(rf"\b{name} (?:= )?(0x[0-9a-f]+|\d+)\b", SIZES)
    assert found is not None, name
    return int(found[1], 0)


def test_numbers_of_the_program_are_those_of_the_control_plane():
    assert constant("LABELS_A_PASS") == LABELS_A_PASS
    assert constant("MAX_LABELS") == MAX_LABELS
    assert (constant("FAN_OUT"), constant("SPLIT")) == (FAN_OUT, SPLIT)
    kinds = re.findall(r"const bit<16> STACK = (0x\w+);", SIZES)
    assert [int(kind, 0) for kind in kinds] == [f.ether_type for f in SOURCE_ROUTES.values()]
    for tag, name in TAGS.items():
        assert constant(name.upper()) == tag


@EACH
def test_tables_and_actions_are_those_of_the_entries(form):
    info, program = products(form)
    assert info.pkg_info.name == stack_program(form)
    params = {p.name: p.bitwidth for action in info.actions for p in action.params}
    assert params == {"ports": PORTS, "hosts": PORTS, "port": 9, "mac": 48, "ipv4": 32}
    names = {action.preamble.id: action.preamble.name for action in info.actions}
    tables = {
        table.preamble.name: {
            names[ref.id] for ref in table.action_refs if ref.scope != ref.DEFAULT_ONLY
        }
        for table in info.tables
    }
    places = range(1, LABELS_A_PASS + 1)
    assert tables == {
        HOST_PORT: {TAKE_STACK_OFF},
        ROUTE: {SEND, DELIVER},
        SOURCE: {TRUST, HOST},
        **{label_table(place): {f"ingress.label_{place}.own"} for place in places},
    }
    assert positions_of(tables) == LABELS_A_PASS
    ids = {f.bitwidth for t in info.tables for f in t.match_fields if f.name == "id"}
    assert ids == {form.bits if isinstance(form, HopLabels) else 8}
    (later,) = (h for h in json.loads(program)["header_types"] if h["name"] == "labels_h")
    assert later["max_length"] * 8 == MAX_LABELS * form.bits


def test_every_reason_to_drop_a_frame_is_counted_apart():
    reasons = re.findall(r"^const reason_t (\w+) = (\d+);", SIZES, re.MULTILINE)
    assert [int(number) for _, number in reasons] == list(range(constant("REASONS")))
    (counter,) = products(SOURCE_ROUTES["port"])[0].counters
    assert (counter.preamble.name, counter.size) == ("ingress.dropped", len(reasons))
    trees = (p4_products.FOLDER / "virtual_trees/sizes.p4").read_text()
    shared = re.findall(r"^const reason_t (\w+) = (\d+);", trees, re.MULTILINE)
    assert [r for r in reasons if r not in shared] == [("NO_LABEL_LEFT", "5")]
