"""What switches should hold: rows that say the same as the model, and their comparison."""

import dataclasses

import pytest
from entry_tables import tables_by_position, tables_from_entries
from examples import examples
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_P4
from tunnels import tunnelled

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.udfs.errors import NetworkError, StackError, SwitchError
from stackcast.udfs.network.labels import MAX_PORT, NARROW, WIDE, SwitchTables
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.switches.entry import (
    GROUPS,
    canonical,
    difference,
    entry_from_row,
    entry_to_row,
)
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.ports import port_groups
from stackcast.udfs.switches.routes import ROUTE
from stackcast.udfs.switches.stack_entries import (
    LABELS_A_PASS,
    label_table,
    network_tables,
    positions_of,
    switch_entries,
    table_entries,
)
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def network():
    return fabric(2, 2, 2, 2, 2)


def program_info(name):
    path = COMPILED_P4 / f"{name}.p4info.txtpb"
    return text_format.Parse(path.read_text(), p4info_pb2.P4Info())


def of_switch(entries, name):
    return [entry for entry in entries if entry.switch == name]


def wide(network):
    """The network with labels of 32 bits, and ids that need them."""
    links = [dataclasses.replace(link, id=link.id + (1 << 29)) for link in network.links]
    rows = network.switches.values(), network.hosts.values(), links
    return type(network).from_rows(*rows, labels=WIDE)


def told(network, trees):
    """Tables of all switches, as entries tell them: of virtual trees none says a switch's id."""
    tables = network_tables(network, trees)
    return {name: dataclasses.replace(each, device=0) for name, each in tables.items()}


@pytest.mark.parametrize("labels", [NARROW, WIDE], ids=["16 bits", "32 bits"])
def test_entries_amount_to_the_tables_of_the_forwarding_model(network, labels):
    network = network if labels == NARROW else wide(network)
    trees = broadcast_trees(network, 4, first_id=labels.max_id - 3)
    entries = switch_entries(network, trees)
    tables = told(network, trees)
    for name in network.switches:
        assert tables_from_entries(of_switch(entries, name), labels) == tables[name]
    assert entries == switch_entries(network, trees[::-1])
    assert len({(entry.switch, entry.key) for entry in entries}) == len(entries)


@pytest.mark.parametrize("positions", [1, 4, 64])
def test_every_position_of_a_pass_holds_all_labels(network, positions):
    trees = broadcast_trees(network, 4)
    entries = switch_entries(network, trees, positions)
    tables = told(network, trees)
    for name in network.switches:
        by_position = tables_by_position(of_switch(entries, name))
        assert by_position == [tables[name]] * positions
    assert positions_of(entry.table for entry in entries) == positions


def test_a_program_that_looks_at_no_labels_is_named():
    assert positions_of(["ingress.label_2.look_up", "x", "ingress.label_1.look_up"]) == 2
    for tables in ([], ["ingress.label_2.look_up"], ["ingress.other"]):
        with pytest.raises(SwitchError, match=r"WRONG_PROGRAM.*label_1\.look_up"):
            positions_of(tables)


def test_a_label_that_is_not_alike_in_all_positions_is_named(network):
    entries = of_switch(switch_entries(network, broadcast_trees(network), 3), "pod1-rack1")
    last = entries.pop()
    held = tables_by_position(entries)
    assert held[0] == held[1] and held[2].stops.keys() < held[0].stops.keys()
    with pytest.raises(StackError, match=r"BAD_ENTRY.*label_1.*label_3"):
        tables_from_entries(entries)
    assert tables_from_entries([*entries, last]) == held[0]


def test_keys_and_values_are_those_that_p4runtime_writes(network):
    entries = switch_entries(network, broadcast_trees(network))
    rack = of_switch(entries, "pod1-rack1")
    tree = next(e for e in rack if e.action == "ingress.label_1.tree")
    assert tree.key == "ingress.label_1.look_up|label=4001"
    # Hosts on ports 1 and 2, the publisher on 3, the first fabric switch on 4.
    assert tree.params == (("ports", b"\x0f"),)
    assert tree.match == (("label", "exact", b"\x40\x01"),)
    hop = next(e for e in rack if e.action == "ingress.label_8.hop")
    assert hop.table == "ingress.label_8.look_up" and hop.params == (("ports", b"\x01"),)
    assert [canonical(v) for v in (0, 255, 256, 1 << 62)] == [
        b"\x00",
        b"\xff",
        b"\x01\x00",
        b"\x40" + bytes(7),
    ]


@pytest.mark.parametrize("program", ["virtual_trees", "virtual_trees_32"])
def test_every_entry_fits_the_p4info(network, program):
    p4info = program_info(program)
    network = network if program == "virtual_trees" else wide(network)
    islands = next(link.id for link in network.links if link.neighbor in network.switches)
    network = tunnelled(network, {islands})
    actions = {action.preamble.id: action for action in p4info.actions}
    tables = {table.preamble.name: table for table in p4info.tables}
    trees = broadcast_trees(network, first_id=network.labels.max_id)
    entries = switch_entries(network, trees)
    assert {entry.table for entry in entries} == {*tables, GROUPS}
    kinds = {"exact": p4info_pb2.MatchField.EXACT, "lpm": p4info_pb2.MatchField.LPM}
    for entry in entries:
        if entry.table == GROUPS:
            continue
        fields = {field.name: field for field in tables[entry.table].match_fields}
        assert {name for name, _, _ in entry.match} == set(fields)
        for name, kind, joined in entry.match:
            match = Match.parted(name, kind, joined)
            assert fields[name].match_type == kinds[kind]
            assert int.from_bytes(match.value, "big").bit_length() <= fields[name].bitwidth
        references = tables[entry.table].action_refs
        allowed = [actions[r.id] for r in references if r.scope != r.DEFAULT_ONLY]
        (action,) = (found for found in allowed if found.preamble.name == entry.action)
        assert [param.name for param in action.params] == [name for name, _ in entry.params]
        assert all(
            int.from_bytes(value, "big").bit_length() <= param.bitwidth
            for param, (_, value) in zip(action.params, entry.params, strict=True)
        )


@pytest.mark.parametrize("program", ["virtual_trees", "virtual_trees_32"])
def test_tables_have_room_for_16_383_trees_and_the_labels_of_all_ports(program):
    sizes = {table.preamble.name: table.size for table in program_info(program).tables}
    for position in range(1, LABELS_A_PASS + 1):
        assert sizes[label_table(position)] >= 16_383 + 2 * MAX_PORT
    assert sizes["egress.host_port"] >= MAX_PORT


def test_a_switch_holds_a_group_for_any_of_its_ports(network):
    entries = switch_entries(network, [])
    for name in network.switches:
        ports = [link.port for link in network.links if link.switch == name]
        groups = [entry for entry in of_switch(entries, name) if entry.table == GROUPS]
        assert groups == port_groups(name, ports)


def test_failed_links_change_routes_alone(network):
    trees = broadcast_trees(network)
    links = [dataclasses.replace(link, up=link.id % 5 != 1) for link in network.links]
    broken = type(network).from_rows(network.switches.values(), network.hosts.values(), links)

    def without_routes(of):
        return [e for e in switch_entries(of, trees) if e.table != ROUTE]

    assert without_routes(broken) == without_routes(network)
    assert switch_entries(broken, trees) != switch_entries(network, trees)


def test_two_trees_of_one_id_are_refused(network):
    (tree,) = broadcast_trees(network)
    with pytest.raises(NetworkError, match="DUPLICATE_TREE"):
        switch_entries(network, [tree, tree])


def test_a_tree_that_labels_cannot_name_is_refused(network):
    trees = broadcast_trees(network, first_id=1 << 14)
    with pytest.raises(NetworkError, match=r"BAD_TREE_ID.*16384.*1\.\.16383.*32-bit labels"):
        switch_entries(network, trees)
    assert switch_entries(wide(network), trees)


def tree_entry(switch, number, ports, position=1):
    (entry,) = table_entries(switch, SwitchTables({number: ports}), position)[position - 1 :]
    return entry


@pytest.mark.parametrize(
    "change",
    [
        {"table": "ingress.other"},
        {"table": "ingress.label_0.look_up"},
        {"action": "ingress.label_1.hop"},
        {"action": "ingress.label_2.tree"},
        {"match": (("port", "exact", b"\x01"),)},
        {"match": (("label", "exact", b"\x80\x01"),)},
        {"match": (("label", "exact", b"\x00\x01"),)},
        {"params": ()},
        {"match": (("label", "exact", b"\x80\x01"),), "action": "ingress.label_1.hop"},
    ],
)
def test_an_entry_that_the_program_has_not_is_named(change):
    good = tree_entry("s", 1, 3)
    assert tables_from_entries([good]).trees == {1: 3}
    with pytest.raises(StackError, match=r"BAD_(ENTRY.*'s'|LABEL)"):
        tables_from_entries([dataclasses.replace(good, **change)])
    with pytest.raises(StackError, match="BAD_ENTRY"):
        tables_from_entries([good, good])


ENTRIES = st.lists(
    st.builds(tree_entry, st.sampled_from("ab"), st.integers(1, 4), st.integers(1, 3)),
    unique_by=lambda entry: (entry.switch, entry.key),
)


@examples(100)
@given(ENTRIES, ENTRIES)
def test_what_is_written_turns_the_held_into_the_desired_and_then_nothing_is_left(desired, held):
    found = difference(desired, held)
    now = {(entry.switch, entry.key): entry for entry in held}
    for entry in found.delete:
        assert now.pop((entry.switch, entry.key)) == entry
    for entry in found.modify:
        assert now[entry.switch, entry.key] != entry
        now[entry.switch, entry.key] = entry
    for entry in found.insert:
        assert (entry.switch, entry.key) not in now
        now[entry.switch, entry.key] = entry
    assert set(now.values()) == set(desired)
    assert not difference(desired, now.values())
    assert bool(found) == (set(desired) != set(held))


def test_an_entry_survives_its_table(network):
    for entry in switch_entries(network, broadcast_trees(network)):
        row = entry_to_row(entry)
        assert row["entry_key"] == entry.key
        # Arrow and Spark give back bytearray.
        row["params"] = [{**p, "value": bytearray(p["value"])} for p in row["params"]]
        assert entry_from_row(row) == entry
