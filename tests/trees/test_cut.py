"""Pieces of a delivery tree: what a stack that is too long is cut into."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import random_network

from stackcast.udfs.trees.kernels.cut import cut
from stackcast.udfs.trees.kernels.search import BY_WEIGHT, NOWHERE, grow
from stackcast.udfs.trees.switch_graph import SwitchGraph

pytestmark = pytest.mark.unit


@examples(100)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_pieces_hang_together_and_have_room_unless_a_switch_alone_has_too_much(rng, room):
    graph = SwitchGraph(random_network(rng, 14, failing=0, hosts=5))
    links, work = graph.links, graph.work
    switches = range(len(graph.names))
    listening = sorted(rng.sample(switches, rng.randint(1, len(switches))))
    count = grow(
        links, work, 0, np.array(listening, np.int64), 0, BY_WEIGHT, NOWHERE, NOWHERE, False
    )
    members = work.members[:count].tolist()
    above = {v: int(links.source[work.parent[v]]) for v in members[1:]}
    for u in switches:
        work.needed[u], work.flood[u] = (rng.getrandbits(12) for _ in range(2))
    for v, u in above.items():
        link = work.parent[v]
        work.needed[u] |= links.port[link]
        work.ingress[v] = links.back[link]
    needed, flood, ingress = (each.tolist() for each in (work.needed, work.flood, work.ingress))
    pieces = cut(links, work, count, room).tolist()
    assert {u for u in switches if pieces[u] >= 0} == set(members)
    labels: Counter[int] = Counter()
    tops = defaultdict(set)
    for u in members:
        hops, stops = needed[u] & ~flood[u], flood[u] & ~(needed[u] | ingress[u])
        labels[pieces[u]] += hops.bit_count() + stops.bit_count()
        if u not in above or pieces[above[u]] != pieces[u]:
            tops[pieces[u]].add(above.get(u))
    for v, u in above.items():
        if pieces[u] != pieces[v]:
            # What led on to the other piece is a hop less, or a stop more.
            labels[pieces[u]] += 1 if flood[u] & int(links.port[work.parent[v]]) else -1
    assert all(len(meeting) == 1 for meeting in tops.values())
    sizes = Counter(pieces[u] for u in members)
    assert all(labels[piece] <= room or sizes[piece] == 1 for piece in sizes)
