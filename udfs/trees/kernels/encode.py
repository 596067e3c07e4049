"""The encoding of one header stack, from receivers to the ports that each switch sends out of."""

from __future__ import annotations

import numpy as np
from numba import njit

from stackcast.udfs.trees.kernels.greedy import greedy
from stackcast.udfs.trees.kernels.known import forget
from stackcast.udfs.trees.kernels.refined import choose, refined, resumed
from stackcast.udfs.trees.kernels.search import (
    BY_WEIGHT,
    NOWHERE,
    count_bits,
    inner,
    listens,
    search,
    word_at,
    words_of,
)
from stackcast.udfs.trees.kernels.sorting import sort
from stackcast.udfs.trees.kernels.stack import (
    by_depth,
    labels_of,
    recall,
    take_needs,
    use,
)

#: LISTED: greedy over the stored trees that refined would list, which are all where those are few.
#: PART: of the receivers of a stack whose stored trees are known.
GREEDY, REFINED, QUICK, SHORTEST, LISTED, PART = 0, 1, 2, 3, 4, 5


@njit(cache=True, nogil=True)
def encode(task, trees, algorithm, most, begun):  # type: ignore[no-untyped-def]
    """Works out a stack. ``work.wanted`` holds the ports towards receivers, ``task.terminals``
    their switches. The result stands in ``work``: members by distance from the root, parents,
    needed and ingress ports, flood of the stored trees, which are ``trees[:number]``, ascending.
    ``begun``: int64, the stored trees of the stack that a part is of: they are one beginning.

    Returns ``(count, number, hops, stops, crossings, ways, first)``; count is -1 if a terminal is
    out of reach. crossings: labels on links between switches and on the publisher's, summed over
    those links. ways: links from the publisher to each receiver, summed over receivers. first:
    labels of the greedy answer, 0 if there is none.
    """
    work = task.work
    first = number = np.int64(0)
    forget(work)
    if algorithm in (QUICK, SHORTEST):
        use(task, trees, number)
        count = search(task, BY_WEIGHT, NOWHERE, NOWHERE, algorithm == SHORTEST)
        if count > 0:
            number = _chosen(task, count, trees)
    else:
        if algorithm == GREEDY:
            count, number, first = greedy(task, trees, task.order)
        elif algorithm == PART:
            count, number = resumed(task, trees, begun)
        else:
            count, number, first = refined(task, trees, most if algorithm == REFINED else 0)
        if count > 0:
            recall(task, count)
            use(task, trees, number)
    return *_finished(task, count, number, trees), first


@njit(cache=True, nogil=True)
def encode_branch(task, members, parent, trees):  # type: ignore[no-untyped-def]
    """Works out a stack as :func:`encode` does, on the part of a given delivery tree that receivers
    need: ``members``, parents first, with ``parent`` in the same order."""
    links, work = task.links, task.work
    inside = work.inside
    inside[:] = 0
    inside[members[0]] = 1
    for at in range(members.size - 1, 0, -1):
        if inside[members[at]] == 1 or listens(links, work, members[at]):
            inside[members[at]] = inside[links.source[parent[at]]] = 1
    count = 0
    for at in range(members.size):
        v = members[at]
        if inside[v] == 1:
            work.members[count], work.parent[v] = v, parent[at]
            count += 1
    return *_finished(task, count, _chosen(task, count, trees), trees), np.int64(0)


@inner
def _chosen(task, count, trees):  # type: ignore[no-untyped-def]
    """Chooses stored trees for the delivery tree in ``members``."""
    take_needs(task, count)
    none = np.int64(0)
    use(task, trees, none)
    return choose(task, count, trees, none, none)


@inner
def _finished(task, count, number, trees):  # type: ignore[no-untyped-def]
    if count < 0:
        return count, number, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    links, work = task.links, task.work
    sort(trees, number)
    by_depth(links, work, count)
    hops = stops = ways = np.int64(0)
    for at in range(count):
        u = work.members[at]
        for step in range(words_of(links, u)):
            word = word_at(links, u, step)
            ways += count_bits(work.wanted[word]) * (work.distance[u] + 2)
            needed, flood = work.needed[word], work.flood[word]
            hops += count_bits(needed & ~flood)
            stops += count_bits(flood & ~(needed | work.ingress[word]))
    # A hop or stop leaves the stack where it is used: ``path`` is what each member sends on.
    total = number + hops + stops
    left, crossings = work.path, total
    for at in range(count):
        u = work.members[at]
        came = total
        if at > 0:
            came = left[links.source[work.parent[u]]]
            crossings += came
        left[u] = came
        for step in range(words_of(links, u)):
            left[u] -= labels_of(work, word_at(links, u, step))
    return count, number, hops, stops, crossings, ways
