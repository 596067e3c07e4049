"""The benchmark of replicated state: extremes are extremes, tables say what was measured."""

from __future__ import annotations

import re
from collections import Counter

import networkx as nx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.states import document, tree
from benchmarks.states.carry import CountedNetwork, long_lived
from benchmarks.support.tables import pages
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.states.frames import pack_frame, read_frame
from stackcast.udfs.states.messages import MessageKind, StateHeader, group_of

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def extremes():
    return tree.extremes()


def test_the_tree_is_the_texts_but_for_its_leaves() -> None:
    assert (tree.GRAPH.number_of_edges(), len(tree.GRAPH), len(tree.LEAVES)) == (84, 85, 64)


def test_the_extremes_are_reached(extremes) -> None:
    links = {name: len(tree.links_of_tree(*extremes[name])) for name in ("best", "worst")}
    alone = {name: tree.unicast(*extremes[f"unicast {name}"]) for name in ("best", "worst")}
    assert links == {"best": 20, "worst": 37} and alone == {"best": 32, "worst": 96}
    # Where unicast is at its worst, the tree has the links that the text's ALM goes with.
    assert len(tree.links_of_tree(*extremes["unicast worst"])) == 24


@examples(100)
@given(
    st.sampled_from(sorted(tree.GRAPH)),
    st.lists(st.sampled_from(tree.LEAVES), min_size=16, max_size=16, unique=True),
)
def test_no_other_choice_is_beyond_them(extremes, publisher, leaves) -> None:
    links = nx.Graph(tree.links_of_tree(publisher, leaves))
    assert nx.is_tree(links) and {publisher, *leaves} <= set(links)
    assert 20 <= links.number_of_edges() <= 37
    assert 32 <= tree.unicast(publisher, leaves) <= 96


def test_copies_are_counted_by_where_they_go() -> None:
    network = fabric(2, 1, 1, 1, 1, 1)
    carried = CountedNetwork(network, "state_replication")
    reader, group = network.host("h2"), group_of(MessageKind.REGISTER, 7)
    got = carried.send("h2", pack_frame(reader.ipv4, group, StateHeader(1, 1).pack()))
    assert got == Counter(["h2"])  # the ack
    assert (carried.outside, carried.between) == (2, 4)
    carried.zero()
    sender, group = network.host("feed1"), group_of(MessageKind.PUBLISH, 7)
    frame = pack_frame(sender.ipv4, group, StateHeader(9, 1, 1, 1).pack() + b"x")
    assert carried.send("feed1", frame) == Counter(["h2"])
    assert (carried.outside, carried.between) == (2, 4)
    assert carried.bytes == 6 * len(frame)


def test_a_longer_life_leaves_the_frame_whole() -> None:
    frame = pack_frame(0x0A000001, 0x0A000002, b"state")
    longer = long_lived(frame)
    assert longer[22] == 64 and longer != frame
    assert read_frame(longer) == read_frame(frame)


MARKED = re.compile(r"<!-- table states (\w+) -->")
LINES = [
    {"name": "rule", "kind": "table", "bytes": 300.4, "half": 2.1, "bits": 86, "text": 184},
    {"name": "messages", "way": "ALM", "best": [20, 59], "worst": [37, 93],
     "text": [[20, 59], [26, 67]]},
    {"name": "bytes", "network": "fabric", "replicas": 4, "way": "states", "bytes": 20_475.0},
    {"name": "bytes", "network": "fabric", "replicas": 4, "way": "virtual trees", "bytes": 1.0},
    {"name": "bytes", "network": "fabric", "replicas": 4, "way": "unicast", "bytes": 2.0},
    {"name": "bytes", "network": "fabric", "replicas": 4, "way": "Kafka topic", "bytes": 3.0},
    {"name": "kept", "network": "fabric", "replicas": 4, "labels": 8.5, "register_bytes": 1050.0,
     "share": 0.034, "everywhere_bytes": 4200.0, "everywhere_share": 0.137},
    {"name": "wire", "what": "register to ack", "copies": 1, "p50_ms": 0.4, "p99_ms": 1.2,
     "max_ms": 3.0},
    {"name": "programs", "what": "Kafka topic", "p50_ms": 5.0, "p99_ms": 6.0, "max_ms": 7.0},
    {"name": "recovery", "loss": 5, "came": 0.995, "p50_ms": 9.0, "p99_ms": 900.0, "max_ms": 1e3,
     "lost_frames": 29, "mean_staleness_ms": 4.5, "max_staleness_ms": 435.0, "converged_ms": 80.0},
]  # fmt: skip


def test_the_tables_of_the_document_say_what_was_measured() -> None:
    text = "".join(page.read_text("utf-8") for page in pages("states"))
    assert set(MARKED.findall(text)) == set(document.TABLES)
    marks = "".join(f"<!-- table states {name} -->\n<!-- end -->\n" for name in document.TABLES)
    filled = document.filled(marks, LINES)
    for row in (
        "| a table, with a controller on the switch | 300.4 ± 2.1 | 86 (10.75 bytes) | 184 |",
        "| ALM | 20 | 59 | **37** (26) | **93** (67) |",
        "| fabric, 4 replicas | 20,475 | 1 | 2 | 3 | 8.5 | 1,050, 3 % | 4,200, 14 % |",
        "| register to ack, 1 host, sockets only | 0.4 | 1.2 | 3.0 |",
        "| Kafka topic, programs | 5.0 | 6.0 | 7.0 |",
        "| 5 % | 29 | 99.5 % | 9.0 | 900.0 | 1,000.0 | 4.5 | 435 | 80 |",
    ):
        assert row in filled
    # What was not measured stays.
    assert document.filled(text, []) == text
