"""What switches should hold: rows that say the same as the model, and their comparison."""

import dataclasses

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from p4.config.v1 import p4info_pb2

from udfs.errors import NetworkError, StackError
from udfs.stacks.entries import network_tables, switch_entries, tables_from_entries
from udfs.switches.entry import SwitchEntry, canonical, difference
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.rows import entry_from_row, entry_to_row
from udfs.trees.topology import fabric

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def network():
    return fabric(2, 2, 2, 2, 2)


@pytest.fixture(scope="module")
def p4info(request):
    path = request.config.rootpath / "p4" / "virtual_trees.p4info.txtpb"
    return text_format.Parse(path.read_text(), p4info_pb2.P4Info())


def of_switch(entries, name):
    return [entry for entry in entries if entry.switch == name]


def test_entries_amount_to_the_tables_of_the_forwarding_model(network):
    trees = broadcast_trees(network, 4)
    entries = switch_entries(network, trees)
    tables = network_tables(network, trees)
    for name in network.switches:
        assert tables_from_entries(of_switch(entries, name)) == tables[name]
    assert entries == switch_entries(network, trees[::-1])
    assert len({(entry.switch, entry.key) for entry in entries}) == len(entries)


def test_keys_and_values_are_those_that_p4runtime_writes(network):
    entries = switch_entries(network, broadcast_trees(network))
    tree = next(e for e in of_switch(entries, "pod1-rack1") if e.table == "ingress.check_tree")
    assert tree.key == "ingress.check_tree|label=4001"
    # Hosts on ports 1 and 2, the publisher on 3, the first fabric switch on 4.
    assert tree.params == (("ports", b"\x0f"),)
    assert tree.match == (("label", "exact", b"\x40\x01"),)
    assert [canonical(v) for v in (0, 255, 256, 1 << 62)] == [
        b"\x00",
        b"\xff",
        b"\x01\x00",
        b"\x40" + bytes(7),
    ]


def test_every_entry_fits_the_p4info(network, p4info):
    actions = {action.preamble.id: action for action in p4info.actions}
    tables = {table.preamble.name: table for table in p4info.tables}
    entries = switch_entries(network, broadcast_trees(network))
    assert {entry.table for entry in entries} == set(tables)
    for entry in entries:
        table = tables[entry.table]
        assert table.preamble.id >> 24 == 0x02
        widths = {field.name: field.bitwidth for field in table.match_fields}
        assert {name for name, _, _ in entry.match} == set(widths)
        assert all(
            int.from_bytes(value, "big").bit_length() <= widths[f] for f, _, value in entry.match
        )
        (action,) = (actions[ref.id] for ref in table.action_refs)
        assert action.preamble.id >> 24 == 0x01
        assert action.preamble.name == entry.action
        assert [param.name for param in action.params] == [name for name, _ in entry.params]
        assert all(
            int.from_bytes(value, "big").bit_length() <= param.bitwidth
            for param, (_, value) in zip(action.params, entry.params, strict=True)
        )


def test_a_tree_leaves_out_the_port_of_a_failed_link(network):
    trees = broadcast_trees(network)
    whole = network_tables(network, trees)["pod1-rack1"].trees[1]
    link = network.link("pod1-rack1", "h2")
    links = [dataclasses.replace(x, up=x.id != link.id) for x in network.links]
    broken = type(network).from_rows(network.switches.values(), network.hosts.values(), links)
    assert network_tables(broken, trees)["pod1-rack1"].trees[1] == whole & ~(1 << link.port - 1)


def test_two_trees_of_one_id_are_refused(network):
    (tree,) = broadcast_trees(network)
    with pytest.raises(NetworkError, match="DUPLICATE_TREE"):
        switch_entries(network, [tree, tree])


@pytest.mark.parametrize(
    "change",
    [
        {"table": "ingress.other"},
        {"action": "ingress.set_hop_port"},
        {"match": (("port", "exact", b"\x01"),)},
        {"match": (("label", "exact", b"\x80\x01"),)},
        {"params": ()},
    ],
)
def test_an_entry_that_the_pipeline_has_not_is_named(change):
    good = SwitchEntry(
        "s",
        "ingress.check_tree",
        (("label", "exact", b"\x40\x01"),),
        "ingress.set_tree_ports",
        (("ports", b"\x03"),),
    )
    assert tables_from_entries([good]).trees == {1: 3}
    with pytest.raises(StackError, match=r"BAD_ENTRY.*'s'"):
        tables_from_entries([dataclasses.replace(good, **change)])
    with pytest.raises(StackError, match="BAD_ENTRY"):
        tables_from_entries([good, good])


ENTRIES = st.lists(
    st.builds(
        lambda switch, number, ports: SwitchEntry(
            switch,
            "ingress.check_tree",
            (("label", "exact", canonical(0x4000 | number)),),
            "ingress.set_tree_ports",
            (("ports", canonical(ports)),),
        ),
        st.sampled_from("ab"),
        st.integers(1, 4),
        st.integers(1, 3),
    ),
    unique_by=lambda entry: (entry.switch, entry.key),
)


@settings(max_examples=100, deadline=None)
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
