"""The encoding of one header stack, from receivers to the ports that each switch sends out of."""

from __future__ import annotations

import numpy as np
from numba import njit

from udfs.trees.kernels.candidates import candidates
from udfs.trees.kernels.greedy import greedy
from udfs.trees.kernels.known import forget
from udfs.trees.kernels.refined import choose, refined, resumed
from udfs.trees.kernels.search import BY_WEIGHT, count_bits, grow, inner, listens, word_at, words_of
from udfs.trees.kernels.stack import (
    by_depth,
    labels_of,
    recall,
    take_needs,
    use,
)

#: LISTED: greedy over the stored trees that refined would list, which are all where those are few.
GREEDY, REFINED, QUICK, SHORTEST, LISTED = 0, 1, 2, 3, 4


@njit(cache=True, nogil=True)
def encode(task, trees, algorithm, most):  # type: ignore[no-untyped-def]
    """Works out a stack. ``work.wanted`` holds the ports towards receivers, ``task.terminals``
    their switches. The result stands in ``work``: members by distance from the root, parents,
    needed and ingress ports, flood of the stored trees, which are ``trees[:number]``, ascending.

    Returns ``(count, number, hops, stops, crossings, ways, first)``; count is -1 if a terminal is
    out of reach. crossings: labels on links between switches and on the publisher's, summed over
    those links. ways: links from the publisher to each receiver, summed over receivers. first:
    labels of the greedy answer, 0 if there is none.
    """
    work = task.work
    first = np.int64(0)
    forget(work)
    if algorithm in (QUICK, SHORTEST):
        use(task, trees, 0)
    if algorithm in (GREEDY, REFINED, LISTED):
        if algorithm == GREEDY:
            count, number, first = greedy(task, trees, task.order)
        else:
            count, number, first = refined(task, trees, most if algorithm == REFINED else 0)
        if count > 0:
            recall(task, count)
            use(task, trees, number)
    else:
        count = grow(
            task.links,
            task.work,
            task.root,
            task.terminals,
            task.rotation,
            BY_WEIGHT,
            -1,
            -1,
            algorithm == SHORTEST,
        )
        number = 0
        if count > 0:
            number = _chosen(task, count, trees)
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


@njit(cache=True, nogil=True)
def encode_part(task, begun, trees):  # type: ignore[no-untyped-def]
    """Works out a stack as :func:`encode` does, for some of the receivers of a stack that has the
    stored trees ``begun``, int64: these are one beginning."""
    forget(task.work)
    small, _, numbers = candidates(task)
    number = 0
    for at in range(numbers.size):
        for tree in begun:
            if numbers[at] == tree:
                trees[number] = at
                number += 1
    count, number = resumed(small, trees, number)
    recall(small, count)
    use(small, trees, number)
    trees[:number] = numbers[trees[:number]]
    return *_finished(task, count, number, trees), np.int64(0)


@inner
def _chosen(task, count, trees):  # type: ignore[no-untyped-def]
    """Chooses stored trees for the delivery tree in ``members``."""
    take_needs(task, count)
    use(task, trees, 0)
    return choose(task, count, trees, 0, 0)


@inner
def _finished(task, count, number, trees):  # type: ignore[no-untyped-def]
    if count < 0:
        return count, number, np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    links, work = task.links, task.work
    trees[:number] = np.sort(trees[:number])
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
