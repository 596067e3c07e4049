"""The programs of source and stored routes: their products fit what the control plane believes."""

from __future__ import annotations

import json
import re

import p4_products
import pytest
from google.protobuf import text_format

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.udfs.network.encodings import ROUTES
from stackcast.udfs.network.labels import MAX_PORT
from stackcast.udfs.network.source_routes import (
    SOURCE_ROUTES,
    TAGS,
    WIDE_SOURCE_ROUTES,
    SourceRoute,
    SwitchLabels,
)
from stackcast.udfs.network.stored_routes import BLOCK, HYBRID, PORT_BITMAPS, STORED_ROUTES
from stackcast.udfs.switches import sources as of_sources
from stackcast.udfs.switches.ports import FAN_OUT
from stackcast.udfs.switches.routes import DELIVER, ROUTE, SEND
from stackcast.udfs.switches.stack_entries import (
    HOST_PORT,
    LABELS_A_PASS,
    SPLIT,
    TAKE_STACK_OFF,
    label_table,
    positions_of,
)
from stackcast.udfs.switches.tunnels import END, LINK, PUT_ON, TAKE_OFF

#: Bits of a mask of ports, of which the highest is none.
PORTS = MAX_PORT + 1

pytestmark = pytest.mark.unit

SOURCE, STORED = (
    (p4_products.FOLDER / f"{name}/sizes.p4").read_text()
    for name in ("source_routes", "stored_routes")
)
EACH = pytest.mark.parametrize(
    "form", [*ROUTES.values(), *WIDE_SOURCE_ROUTES.values()], ids=lambda form: form.program
)


def products(form) -> tuple[p4info_pb2.P4Info, str]:
    """P4Info, and the text of the JSON."""
    info, program = p4_products.products(form.program)
    return text_format.Parse(info.read_text(), p4info_pb2.P4Info()), program.read_text()


def constant(sizes: str, name: str) -> int:
    """A number of a sizes.p4."""
    found = re.search(rf"\b{name} (?:= )?(0x[0-9a-f]+|\d+)\b", sizes)
    assert found is not None, name
    return int(found[1], 0)


def test_numbers_of_the_program_are_those_of_the_control_plane():
    source = [*SOURCE_ROUTES.values(), *WIDE_SOURCE_ROUTES.values()]
    for sizes, forms in ((SOURCE, source), (STORED, STORED_ROUTES.values())):
        assert constant(sizes, "LABELS_A_PASS") == LABELS_A_PASS
        most = re.findall(r"const bit<16> MAX_LABELS = (\d+);", sizes)
        assert {int(each) for each in most} == {form.max_labels for form in forms}
        assert constant(sizes, "FAN_OUT") == FAN_OUT
        kinds = re.findall(r"const bit<16> STACK = (0x\w+);", sizes)
        assert {int(kind, 0) for kind in kinds} == {form.ether_type for form in forms}
    assert constant(SOURCE, "SPLIT") == SPLIT
    for tag, name in TAGS.items():
        assert constant(SOURCE, name.upper()) == tag
    for kind, name in HYBRID.kinds.items():
        assert constant(STORED, name.upper()) == kind
    assert constant(STORED, "BLOCK") == BLOCK
    assert constant(STORED, "PORTS_OF") == PORT_BITMAPS.ports(1)[0] >> 14


@EACH
def test_tables_and_actions_are_those_of_the_entries(form):
    info, program = products(form)
    assert info.pkg_info.name == form.program
    params = {p.name: p.bitwidth for action in info.actions for p in action.params}
    hosts = {"hosts": PORTS} if isinstance(form, SourceRoute) else {}
    of_tunnels = {"next_hop": 48, "src": 32, "dst": 32}
    assert params == {"ports": PORTS, **hosts, "port": 9, "mac": 48, "ipv4": 32, **of_tunnels}
    names = {action.preamble.id: action.preamble.name for action in info.actions}
    tables = {
        table.preamble.name: {
            names[ref.id] for ref in table.action_refs if ref.scope != ref.DEFAULT_ONLY
        }
        for table in info.tables
    }
    places = range(1, LABELS_A_PASS + 1)
    of_labels = ["own"] if isinstance(form, SourceRoute) else ["stored"]
    of_labels += ["hop", "root"] if form == HYBRID else []
    of_labels += ["own"] if form == PORT_BITMAPS else []
    assert tables == {
        HOST_PORT: {TAKE_STACK_OFF},
        ROUTE: {SEND, DELIVER},
        of_sources.SOURCE: {of_sources.TRUST, of_sources.HOST},
        LINK: {PUT_ON},
        END: {TAKE_OFF},
        **{label_table(n): {f"ingress.label_{n}.{action}" for action in of_labels} for n in places},
    }
    assert positions_of(tables) == LABELS_A_PASS
    ids = {f.bitwidth for t in info.tables for f in t.match_fields if f.name in ("id", "label")}
    assert ids == {form.id_bits if isinstance(form, SwitchLabels) else form.bits}
    (later,) = (h for h in json.loads(program)["header_types"] if h["name"] == "labels_h")
    assert later["max_length"] * 8 == form.max_labels * form.bits


def test_every_reason_to_drop_a_frame_is_counted_apart():
    trees = (p4_products.FOLDER / "virtual_trees/sizes.p4").read_text()
    shared = re.findall(r"^const reason_t (\w+) = (\d+);", trees, re.MULTILINE)
    for sizes, form in ((SOURCE, SOURCE_ROUTES["port"]), (STORED, HYBRID)):
        reasons = re.findall(r"^const reason_t (\w+) = (\d+);", sizes, re.MULTILINE)
        assert [int(number) for _, number in reasons] == list(range(constant(sizes, "REASONS")))
        (counter,) = products(form)[0].counters
        assert (counter.preamble.name, counter.size) == ("ingress.dropped", len(reasons))
        assert [r for r in reasons if r not in shared] == [("NO_LABEL_LEFT", "5")]
