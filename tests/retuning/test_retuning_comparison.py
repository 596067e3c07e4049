"""What a replay says of trees that bring notifications to some hosts only."""

import networkx as nx
import pytest
from networks import from_graph

from stackcast.udfs.retuning.comparison import Record
from stackcast.udfs.trees.publications import Publication, by_entry
from stackcast.udfs.trees.steiner import steiner_tree

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("objective", ["bytes", "labels", "latency"])
def test_no_trees_are_worse_than_one_that_alone_leads_to_a_far_host(objective):
    # Without a stored tree a host 69 links away needs more labels than a stack has.
    network = from_graph(nx.path_graph(70))
    near, far = (Publication("feed1", frozenset(hosts), 3, 300) for hosts in (["h2"], ["h70"]))
    record = Record(network, [near, far], objective)
    way = steiner_tree(network, ["feed1", "h70"])
    assert record.replay([way]).cost < record.replay([]).cost


def test_a_host_out_of_reach_does_not_make_the_others_free():
    network = from_graph(nx.path_graph(70))
    alone = Record(network, [Publication("feed1", frozenset({"h2", "h3"}), 1, 100)]).replay([])
    with_far = Record(network, [Publication("feed1", frozenset({"h2", "h3", "h70"}), 1, 100)])
    assert with_far.replay([]).cost > alone.cost


def test_what_a_publisher_gets_of_its_own_is_weighed_where_it_enters():
    network = from_graph(nx.path_graph(6), publishers=3)
    names = network.publishers()
    own = [
        Publication(name, frozenset({"h4", name} if name != "feed3" else {name}), 2, 200)
        for name in names
    ]
    record = Record(network, by_entry(own, names))
    assert record.left_out == 0
    assert {(each.publisher, each.receivers) for each in record.publications} == {
        ("feed1", frozenset({"h4"})),
        ("feed2", frozenset({"h4"})),
        ("feed2", frozenset({"feed1"})),
        ("feed3", frozenset({"feed2"})),
        ("feed1", frozenset({"feed3"})),
    }
    others = [Publication("feed1", frozenset({"h2"}), 1, 100)]
    assert by_entry(others, names) == others == by_entry(others, ())
    # A publisher alone has no link to get its own by.
    assert by_entry(own[:1], ()) == own[:1]
