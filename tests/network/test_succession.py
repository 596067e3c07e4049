"""One network takes the place of another: what stays stays, and no id gets a second meaning."""

import dataclasses

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import NARROW, WIDE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_from_rows, tree_from_row, tree_to_row
from stackcast.udfs.network.succession import Succession, SwitchSettings, succession
from stackcast.udfs.network.topology import fabric, jellyfish
from stackcast.udfs.network.virtual_tree import tree_ports
from stackcast.udfs.switches.rollout import NetworkVersion, check_meaning
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

NOTHING: dict[str, list] = {"switches": [], "hosts": [], "links": []}


def at(network: Network, where: str = "switch") -> dict[str, str]:
    return {name: f"{where}-{name}:9559" for name in network.switches}


def after(network: Network, held=NOTHING, trees=(), **choices) -> Succession:
    return succession(network, held, trees, SwitchSettings(at(network), **choices))


def of(rows, labels=NARROW) -> Network:
    return network_from_rows(rows["switches"], rows["hosts"], rows["links"], labels)


def test_into_empty_tables_goes_the_network_as_it_is():
    network = fabric(2, 2, 2, 1, 1)
    plan = after(network)
    assert of(plan.rows) == network
    assert not plan.destroys
    assert plan.fresh
    assert plan.changes["links"].added == len(network.links)
    row = plan.rows["switches"][0]
    assert (row["address"], row["pipeline"]) == ("switch-pod1-rack1:9559", "virtual_trees")


def test_the_same_again_changes_nothing_and_keeps_what_people_wrote():
    network = fabric(2, 2, 2, 1, 1)
    held = dict(after(network).rows)
    held["switches"] = [
        row | {"address": "10.0.0.1:1", "max_rules": 7, "rack": "B4"} for row in held["switches"]
    ]
    held["links"] = [row | {"up": row["link_id"] != 3} for row in held["links"]]
    plan = after(network, held)
    assert plan.rows == held
    assert not any(plan.changes.values())
    assert (plan.kept_links, plan.destroys, plan.retired) == (len(network.links), False, {})
    # What is chosen goes before what is there.
    other = after(network, held, addresses=at(network, "new"), max_rules=9)
    assert str(other.changes["switches"]) == "0 new, 0 gone, 7 changed"
    assert other.rows["switches"][0]["address"] == "new-pod1-rack1:9559"
    assert other.rows["switches"][0]["max_rules"] == 9
    assert other.rows["switches"][0]["rack"] == "B4"


def test_another_program_is_chosen_for_other_labels_and_never_the_wrong_one():
    narrow = fabric(2, 1, 1, 1, 1)
    wide = fabric(2, 1, 1, 1, 1, labels=WIDE)
    held = after(narrow).rows
    assert {row["pipeline"] for row in after(wide, held).rows["switches"]} == {"virtual_trees_32"}
    mine = dict(held) | {"switches": [r | {"pipeline": "mine"} for r in held["switches"]]}
    assert {row["pipeline"] for row in after(wide, mine).rows["switches"]} == {"mine"}
    with pytest.raises(NetworkError, match="WRONG_PIPELINE"):
        after(wide, held, pipeline="virtual_trees")


@examples(60)
@given(st.integers(2, 12), st.integers(2, 12), st.integers(0, 3), st.integers(0, 3))
def test_no_link_id_and_no_stored_tree_gets_another_meaning(before, now, seed, publishers):
    old = jellyfish(before, 1 if before == 2 else 2, publishers=publishers, seed=seed)
    new = jellyfish(now, 1 if now == 2 else 2, publishers=1, seed=9)
    held = after(old).rows
    trees = broadcast_trees(old, count=3)
    plan = after(new, held, [tree_to_row(tree) for tree in trees])
    network = of(plan.rows)
    states = [
        dataclasses.replace(t, state=("retired" if t.id in plan.retired else t.state))
        for t in trees
    ]
    assert set(plan.retired.values()) <= {"active"}
    # The refresher's own rule: link ids and trees of versions in use mean what they meant.
    check_meaning(NetworkVersion(network, states), [NetworkVersion(of(held), trees)])
    for tree in states:
        if tree.state != "retired":
            assert tree_ports(network, tree) == tree_ports(of(held), tree)
    # But for ids it is the network that was asked for.
    assert len(network.links) == len(new.links)
    ports = {(x.switch, x.port, x.neighbor, x.neighbor_port, x.weight) for x in network.links}
    assert ports == {(x.switch, x.port, x.neighbor, x.neighbor_port, x.weight) for x in new.links}
    # Doing it again does nothing.
    again = after(new, plan.rows, [tree_to_row(tree) for tree in states])
    assert again.rows == plan.rows
    assert not any(again.changes.values())
    assert again.retired == {}


def test_a_tree_retires_with_its_own_of_two_cables_and_not_with_the_other():
    network = fabric(2, 2, 1, 1, 1)
    one = network.link("pod1-fabric1", "pod1-rack1")
    back = network.link("pod1-rack1", "pod1-fabric1")
    second = [
        dataclasses.replace(one, id=900, port=500, neighbor_port=501),
        dataclasses.replace(back, id=901, port=501, neighbor_port=500),
    ]

    def linked(links):
        return Network.from_rows(network.switches.values(), network.hosts.values(), links)

    rest = [link for link in network.links if link not in (one, back)]
    row = {
        "tree_id": 4,
        "edges": [{"u": "pod1-fabric1", "v": "pod1-rack1"}],
        "strategy": "t",
        "state": "active",
    }
    both = after(linked([*rest, one, back, *second]), after(network).rows, [row])
    assert not both.retired and both.changes["links"].added == 2
    assert not after(linked([*rest, one, back]), both.rows, [row]).retired
    assert after(linked([*rest, *second]), both.rows, [row]).retired == {4: "active"}


def test_a_tree_of_links_that_stay_lives_on_and_a_retired_one_is_left_alone():
    old = fabric(2, 2, 1, 1, 1)
    new = fabric(2, 2, 1, 1, 2)  # another spine
    inner = [("pod1-fabric1", "pod1-rack1"), ("h1", "pod1-rack1")]
    row = {
        "tree_id": 4,
        "edges": [{"u": u, "v": v} for u, v in inner],
        "strategy": "t",
        "state": "active",
    }
    lost = row | {"tree_id": 5, "edges": [{"u": "pod1-rack9", "v": "pod1-fabric1"}]}
    gone = lost | {"tree_id": 6, "state": "retired"}
    plan = after(new, after(old).rows, [row, lost, gone])
    assert plan.retired == {5: "active"}
    assert tree_from_row(row).state == "active"
    assert plan.changes["links"].removed == 0
    assert plan.changes["links"].added == 4
    assert not plan.destroys  # it only grew


def test_where_14_bits_have_no_room_for_new_ids_it_is_said():
    old, new = jellyfish(560, 15, seed=1), jellyfish(560, 15, seed=2)
    plan = after(new, after(old).rows)
    assert (plan.fresh, plan.kept_links) == (False, 0)
    assert of(plan.rows) == new
    wide = jellyfish(560, 15, seed=2, labels=WIDE)
    assert after(wide, after(old).rows).fresh


def test_ids_between_those_that_are_taken_are_used_when_the_top_is_reached():
    network = fabric(1, 2, 1, 1, 1)
    held = after(network).rows
    top = [row | {"link_id": NARROW.max_id - row["link_id"]} for row in held["links"]]
    other = fabric(1, 3, 1, 1, 1)
    plan = after(other, dict(held) | {"links": top})
    ids = {row["link_id"] for row in plan.rows["links"]}
    known = {row["link_id"] for row in top}
    assert plan.fresh
    assert 0 < plan.kept_links < len(network.links)
    assert len(ids - known) == len(other.links) - plan.kept_links
    assert min(ids) >= 1
    assert NARROW.max_id in ids
    of(plan.rows)
