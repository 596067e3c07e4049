"""Compiled loops of Steiner trees and encoders. Contracts are at :mod:`udfs.trees.switch_graph` and
:mod:`udfs.trees.encode`.

Port masks are int64: ports are 1..63. All loops stand in one module, since numba's cache of a
function does not notice that one of another module, which it calls, has changed.

A delivery tree is ``work.members[:count]`` (switches, parents first) with ``work.parent[v]``, the
link it comes by, an index into ``links``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

# Counting references to every array of a NamedTuple would cost more than most calls do; what does
# not allocate can go without.
_helper: Any = njit(cache=True, nogil=True, _nrt=False)

_FAR = np.int64(1 << 62)
# The queue: a list a cost, and a count of the switches in each block of lists, so that the search
# steps over what is empty. Beyond its end costs share the last list.
_LISTS = 1 << 19
_BLOCK_BITS = 6
# Costs that count labels: the label, then weights of 1..15, then links.
_LABEL_COST = 1 << 10
_WEIGHT_COST = 4
#: Trees in a stack at most. A stack has 64 labels.
MOST_TREES = 64
#: Trees that the refined encoder adds to its best with a delivery tree made for them.
_TRIED = 8
#: How many labels above the best a beginning may be to be gone on with.
_NEAR = 3

Integers = NDArray[np.int64]


class Links(NamedTuple):
    """Directed usable links between switches, sorted by ``(source, target)``.

    ``offset[u]:offset[u + 1]`` leave u. edge: number of the undirected edge. port, back: bits of
    the ports at source and target. cost: of a search. weight: 1..15.
    """

    offset: Integers
    source: Integers
    target: Integers
    edge: Integers
    port: Integers
    back: Integers
    cost: Integers
    weight: Integers


class Forest(NamedTuple):
    """Stored trees: ``switch`` and ``mask`` (ports that it floods) at ``offset[t]:offset[t + 1]``;
    its usable edges at ``edge_offset[t]:edge_offset[t + 1]``."""

    offset: Integers
    switch: Integers
    mask: Integers
    edge_offset: Integers
    edge: Integers


class Work(NamedTuple):
    """Memory of one search and of one encoding."""

    distance: Integers
    parent: Integers
    inside: NDArray[np.uint8]
    waiting: NDArray[np.uint8]
    members: Integers
    path: Integers
    first: NDArray[np.int32]
    filled: NDArray[np.int32]
    following: NDArray[np.int32]
    previous: NDArray[np.int32]
    listed: NDArray[np.int32]
    free: Integers
    wanted: Integers
    needed: Integers
    ingress: Integers
    flood: Integers
    best_members: Integers
    best_parent: Integers


def workspace(switches: int, edges: int) -> Work:
    """Memory for a graph of this size. ``free`` and ``wanted`` begin as zeros."""

    def integers(size: int) -> Integers:
        return np.zeros(size, np.int64)

    return Work(
        distance=integers(switches),
        parent=integers(switches),
        inside=np.zeros(switches, np.uint8),
        waiting=np.zeros(switches, np.uint8),
        members=integers(switches),
        path=integers(switches),
        first=np.full(_LISTS, -1, np.int32),
        filled=np.zeros(_LISTS >> _BLOCK_BITS, np.int32),
        following=np.zeros(switches, np.int32),
        previous=np.zeros(switches, np.int32),
        listed=np.full(switches, -1, np.int32),
        free=integers(edges),
        wanted=integers(switches),
        needed=integers(switches),
        ingress=integers(switches),
        flood=integers(switches),
        best_members=integers(switches),
        best_parent=integers(switches),
    )


@intrinsic
def _count(_typing, mask):  # type: ignore[no-untyped-def]
    """Bits of a mask, int64."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@_helper
def _enqueue(work, v, cost):  # type: ignore[no-untyped-def]
    """Put a switch first in the list of its cost, and take it out of the one where it stood."""
    if work.listed[v] >= 0:
        _dequeue(work, v)
    at = min(cost, _LISTS - 1)
    after = work.first[at]
    work.following[v] = after
    work.previous[v] = -1
    if after >= 0:
        work.previous[after] = v
    work.first[at] = v
    work.listed[v] = at
    work.filled[at >> _BLOCK_BITS] += 1


@_helper
def _dequeue(work, v):  # type: ignore[no-untyped-def]
    at, before, after = work.listed[v], work.previous[v], work.following[v]
    if before >= 0:
        work.following[before] = after
    else:
        work.first[at] = after
    if after >= 0:
        work.previous[after] = before
    work.listed[v] = -1
    work.filled[at >> _BLOCK_BITS] -= 1


@_helper
def _nearest(work, at):  # type: ignore[no-untyped-def]
    """The first cost from ``at`` on that a switch is listed under; ``_LISTS`` if none."""
    while at < _LISTS:
        if work.filled[at >> _BLOCK_BITS] == 0:
            at = ((at >> _BLOCK_BITS) + 1) << _BLOCK_BITS
        elif work.first[at] < 0:
            at += 1
        else:
            break
    return at


@_helper
def _link_cost(links, work, link, by_labels):  # type: ignore[no-untyped-def]
    """What a link costs a search.

    By weight: nothing but its count where a stored tree covers it (WERNECKE 5.2.7). By labels: what
    it adds to the stack, which is a hop, or nothing where a stored tree covers it, and stops at the
    switch that it leads to, two of which the link itself spares where it is covered.
    """
    if not by_labels:
        return np.int64(1) if work.free[links.edge[link]] > 0 else links.cost[link]
    v = links.target[link]
    stops = np.int64(0)
    if work.wanted[v] == 0:
        stops = _count(work.flood[v])
        labels = max(np.int64(0), stops - 2) if work.free[links.edge[link]] > 0 else stops + 1
    else:
        labels = np.int64(0) if work.free[links.edge[link]] > 0 else np.int64(3)
    return labels * _LABEL_COST + links.weight[link] * _WEIGHT_COST + 1


@_helper
def grow(links, work, root, terminals, rotation, by_labels, through=-1, barred=-1):  # type: ignore[no-untyped-def]
    """Takahashi and Matsuyama: join the nearest terminal to the tree by a shortest path, again and
    again. Returns the number of members, -1 if a terminal is out of reach.

    One search serves the whole tree: a path that joins becomes distance 0, and the search goes on
    from there; what was learnt about other switches stays an upper bound. Of equal costs the first
    found counts; ``rotation`` is where each switch begins among its links. ``through``: a switch to
    join like a terminal. ``barred``: one to go round.
    """
    distance, parent, inside = work.distance, work.parent, work.inside
    waiting, members, path = work.waiting, work.members, work.path
    distance[:] = _FAR
    inside[:] = 0
    waiting[:] = 0
    left = 0
    for v in terminals:
        if v != root and waiting[v] == 0:
            waiting[v] = 1
            left += 1
    if through >= 0 and waiting[through] == 0:
        waiting[through] = 1
        left += 1
    if barred >= 0:
        distance[barred] = -1
    count = 1
    members[0] = root
    inside[root] = 1
    parent[root] = -1
    distance[root] = 0
    _enqueue(work, root, np.int64(0))
    at, queued = np.int64(0), 1
    while left > 0 and queued > 0:
        at = _nearest(work, at)
        u = work.first[at]
        _dequeue(work, u)
        queued -= 1
        if waiting[u] == 1:
            length = 0
            v = np.int64(u)
            while inside[v] == 0:
                path[length] = v
                length += 1
                v = links.source[parent[v]]
            for step in range(length - 1, -1, -1):
                v = path[step]
                members[count] = v
                count += 1
                inside[v] = 1
                if waiting[v] == 1:
                    waiting[v] = 0
                    left -= 1
                distance[v] = 0
                if work.listed[v] < 0:
                    queued += 1
                _enqueue(work, v, np.int64(0))
            at = np.int64(0)
            continue
        first = links.offset[u]
        degree = links.offset[u + 1] - first
        turn = rotation % degree if degree > 0 else 0
        reached = distance[u]
        for step in range(degree):
            turned = step + turn
            if turned >= degree:
                turned -= degree
            link = first + turned
            v = links.target[link]
            if inside[v] == 1:
                continue
            further = reached + _link_cost(links, work, link, by_labels)
            if further < distance[v]:
                distance[v] = further
                parent[v] = link
                if work.listed[v] < 0:
                    queued += 1
                _enqueue(work, v, further)
    # What is still queued must not stand there in the next search.
    while queued > 0:
        at = _nearest(work, np.int64(0) if left > 0 else at)
        _dequeue(work, work.first[at])
        queued -= 1
    return count if left == 0 else -1


@_helper
def _take_needs(links, work, count, entry):  # type: ignore[no-untyped-def]
    """The ports that each member must send out of, and the one that it receives by."""
    needed, ingress = work.needed, work.ingress
    needed[:] = 0
    for at in range(count):
        u = work.members[at]
        needed[u] = work.wanted[u]
    ingress[work.members[0]] = entry
    for at in range(1, count):
        v = work.members[at]
        link = work.parent[v]
        needed[links.source[link]] |= links.port[link]
        ingress[v] = links.back[link]


@_helper
def _labels(work, count):  # type: ignore[no-untyped-def]
    """Hop and stop labels of the tree whose needs were taken, above what ``flood`` sends."""
    total = np.int64(0)
    for at in range(count):
        u = work.members[at]
        needed, flood = work.needed[u], work.flood[u]
        total += _count(needed & ~flood) + _count(flood & ~(needed | work.ingress[u]))
    return total


@_helper
def _weight(links, work, count):  # type: ignore[no-untyped-def]
    total = np.int64(0)
    for at in range(1, count):
        total += links.cost[work.parent[work.members[at]]]
    return total


@_helper
def _overlap(forest, work, tree):  # type: ignore[no-untyped-def]
    """How many needed ports the tree serves."""
    total = np.int64(0)
    for at in range(forest.offset[tree], forest.offset[tree + 1]):
        total += _count(forest.mask[at] & work.needed[forest.switch[at]])
    return total


@_helper
def _serves(forest, work, tree):  # type: ignore[no-untyped-def]
    """How many receivers the tree leads to."""
    total = np.int64(0)
    for at in range(forest.offset[tree], forest.offset[tree + 1]):
        total += _count(forest.mask[at] & work.wanted[forest.switch[at]])
    return total


@_helper
def _gain(forest, work, tree):  # type: ignore[no-untyped-def]
    """Labels that the tree would spare on the delivery tree as it is, its own counted."""
    total = np.int64(-1)
    for at in range(forest.offset[tree], forest.offset[tree + 1]):
        u = forest.switch[at]
        if work.inside[u] == 1:
            new = forest.mask[at] & ~work.flood[u] & ~work.ingress[u]
            needed = _count(new & work.needed[u])
            total += 2 * needed - _count(new)
    return total


@_helper
def _set_flood(forest, work, trees, number):  # type: ignore[no-untyped-def]
    """``flood`` and ``free`` of these trees and no other."""
    work.flood[:] = 0
    work.free[:] = 0
    for at in range(number):
        _add(forest, work, trees[at])


@_helper
def _add(forest, work, tree):  # type: ignore[no-untyped-def]
    for at in range(forest.offset[tree], forest.offset[tree + 1]):
        work.flood[forest.switch[at]] |= forest.mask[at]
    for at in range(forest.edge_offset[tree], forest.edge_offset[tree + 1]):
        work.free[forest.edge[at]] += 1


@_helper
def _keep(work, count):  # type: ignore[no-untyped-def]
    """The tree in ``members`` is the best so far."""
    for at in range(count):
        v = work.members[at]
        work.best_members[at] = v
        work.best_parent[v] = work.parent[v]


@_helper
def _recall(links, work, count, entry):  # type: ignore[no-untyped-def]
    """The best tree so far stands in ``members`` again."""
    work.inside[:] = 0
    for at in range(count):
        v = work.best_members[at]
        work.members[at] = v
        work.parent[v] = work.best_parent[v]
        work.inside[v] = 1
    _take_needs(links, work, count, entry)


@njit(cache=True, nogil=True)
def _greedy(links, forest, work, root, entry, terminals, rotation, order, trees):  # type: ignore[no-untyped-def]
    """Algorithm 5.1: take a tree if the stack gets shorter with it. The result is the best tree.

    Returns ``(count, number, labels)``: members, trees (in ``trees``), all labels; count is -1 if a
    terminal is out of reach. ``order``: of trees that replace equally many hops.
    """
    work.flood[:] = 0
    work.free[:] = 0
    number = 0
    count = grow(links, work, root, terminals, rotation, False)
    if count < 0:
        return count, number, np.int64(0)
    _take_needs(links, work, count, entry)
    best = _labels(work, count)
    _keep(work, count)
    # sort(T_virt): trees that replace most hops of the plain tree first.
    rank = np.empty(order.size, np.int64)
    for at in range(order.size):
        rank[at] = -_overlap(forest, work, order[at]) * order.size + at
    for at in np.argsort(rank):
        if best == 1 or number == MOST_TREES:
            break
        tree = order[at]
        trees[number] = tree
        _set_flood(forest, work, trees, number + 1)
        tried = grow(links, work, root, terminals, rotation, False)
        _take_needs(links, work, tried, entry)
        labels = _labels(work, tried) + number + 1
        if labels < best:
            best = labels
            count = tried
            number += 1
            _keep(work, tried)
    return count, number, best


@njit(cache=True, nogil=True)
def _choose(forest, work, count, order, trees, number, near):  # type: ignore[no-untyped-def]
    """Better trees for the delivery tree as it is: add one while labels fall; where those are at
    most ``near``, drop or exchange one.

    Begins with ``trees[:number]``, whose flood is set; returns the new ``number``.
    """
    candidates = np.empty(order.size, np.int64)
    able = 0
    for at in range(order.size):
        if _overlap(forest, work, order[at]) > 1:
            candidates[able] = order[at]
            able += 1
    labels = _labels(work, count) + number
    while True:
        best, taken, dropped = np.int64(0), np.int64(-1), np.int64(-1)
        if number < MOST_TREES:
            for at in range(able):
                gain = _gain(forest, work, candidates[at])
                if gain > best:
                    best, taken = gain, candidates[at]
        if taken < 0 and labels <= near:
            for out in range(number):
                spare = trees[out]
                trees[out] = trees[number - 1]
                _set_flood(forest, work, trees, number - 1)
                without = _labels(work, count) + number - 1
                gain = labels - without
                if gain > best:
                    best, taken, dropped = gain, np.int64(-1), np.int64(out)
                for at in range(able):
                    gain = labels - without + _gain(forest, work, candidates[at])
                    if gain > best:
                        best, taken, dropped = gain, candidates[at], np.int64(out)
                trees[number - 1] = trees[out]
                trees[out] = spare
        if best == 0:
            break
        if dropped >= 0:
            trees[dropped] = trees[number - 1]
            number -= 1
        if taken >= 0:
            trees[number] = taken
            number += 1
        _set_flood(forest, work, trees, number)
        labels -= best
    _set_flood(forest, work, trees, number)
    return number


@njit(cache=True, nogil=True)
def _improve(
    links, forest, work, root, entry, terminals, rotation, order, trees, number, count, near
):  # type: ignore[no-untyped-def]
    """From the tree in ``members`` and these stored trees on: better trees for the delivery tree, a
    better delivery tree for the trees, in turn while labels (then weights) fall. The result stands
    in ``members``; returns ``(count, number, labels)``."""
    kept = trees.copy()
    kept_number = number
    saved_members = work.members[:count].copy()
    saved_parent = work.parent[saved_members].copy()
    kept_count = count
    labels = _labels(work, count) + number
    weight = _weight(links, work, count)
    while True:
        number = _choose(forest, work, count, order, trees, number, near)
        chosen = _labels(work, count) + number
        better = chosen < labels
        if better:
            labels, kept_number = chosen, number
            kept[:number] = trees[:number]
            kept_count = count
            saved_members = work.members[:count].copy()
            saved_parent = work.parent[saved_members].copy()
            weight = _weight(links, work, count)
        count = grow(links, work, root, terminals, rotation, True)
        _take_needs(links, work, count, entry)
        grown = _labels(work, count) + number
        heavy = _weight(links, work, count)
        if grown < labels or (grown == labels and heavy < weight):
            better = True
            labels, weight, kept_number, kept_count = grown, heavy, number, count
            kept[:number] = trees[:number]
            saved_members = work.members[:count].copy()
            saved_parent = work.parent[saved_members].copy()
        if not better:
            break
    trees[:kept_number] = kept[:kept_number]
    work.inside[:] = 0
    for at in range(kept_count):
        v = saved_members[at]
        work.members[at] = v
        work.parent[v] = saved_parent[at]
        work.inside[v] = 1
    _take_needs(links, work, kept_count, entry)
    _set_flood(forest, work, trees, kept_number)
    return kept_count, kept_number, labels


@_helper
def _prune(links, work, root, count):  # type: ignore[no-untyped-def]
    """Leave out branches that lead to no receiver; returns how many members are left."""
    children = work.path
    for at in range(count):
        children[work.members[at]] = 0
    for at in range(1, count):
        children[links.source[work.parent[work.members[at]]]] += 1
    for at in range(count - 1, 0, -1):
        v = work.members[at]
        if children[v] == 0 and work.wanted[v] == 0:
            work.inside[v] = 0
            children[links.source[work.parent[v]]] -= 1
    kept = 0
    for at in range(count):
        v = work.members[at]
        if work.inside[v] == 1:
            work.members[kept] = v
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _detours(links, work, count):  # type: ignore[no-untyped-def]
    """Switches beside the delivery tree, by links to it, most first; at least two."""
    beside = np.zeros(work.inside.size, np.int64)
    for at in range(count):
        u = work.members[at]
        for link in range(links.offset[u], links.offset[u + 1]):
            beside[links.target[link]] += 1
    for at in range(count):
        beside[work.members[at]] = 0
    found = np.flatnonzero(beside > 1)
    return found[np.argsort(-beside[found], kind="mergesort")]


@njit(cache=True, nogil=True)
def _bend(  # type: ignore[no-untyped-def]
    links,
    forest,
    work,
    root,
    entry,
    terminals,
    rotation,
    order,
    trees,
    number,
    count,
    labels,
    effort,
):
    """From the best on: round a switch that nobody listens at, or through one beside the tree. Ends
    with the first that has fewer labels; returns what is left of ``effort`` with the new best."""
    _recall(links, work, count, entry)
    beside = _detours(links, work, count)
    members = work.best_members[:count].copy()
    tried = np.empty(MOST_TREES, np.int64)
    for step in range(count - 1 + beside.size):
        if effort == 0:
            break
        if step < count - 1:
            barred, through = members[step + 1], np.int64(-1)
            if work.wanted[barred] != 0:
                continue
        else:
            barred, through = np.int64(-1), beside[step - count + 1]
        effort -= 1
        _set_flood(forest, work, trees, number)
        grown = grow(links, work, root, terminals, rotation, True, through, barred)
        if grown < 0:
            continue
        grown = _prune(links, work, root, grown)
        _take_needs(links, work, grown, entry)
        if _labels(work, grown) + number > labels + 1:
            continue
        tried[:number] = trees[:number]
        grown, begun, better = _improve(
            links,
            forest,
            work,
            root,
            entry,
            terminals,
            rotation,
            order,
            tried,
            number,
            grown,
            labels + 1,
        )
        if better < labels:
            trees[:begun] = tried[:begun]
            _keep(work, grown)
            return grown, begun, better, effort
    return count, number, labels, effort


@njit(cache=True, nogil=True)
def _exchange(  # type: ignore[no-untyped-def]
    links, forest, work, root, entry, terminals, rotation, order, trees, number, count, labels
):
    """From the best on: one stored tree more, or one less, with a delivery tree made for it."""
    tried = np.empty(MOST_TREES, np.int64)
    promise = np.empty(order.size, np.int64)
    while labels > 1:
        _recall(links, work, count, entry)
        _set_flood(forest, work, trees, number)
        for at in range(order.size):
            promise[at] = -_gain(forest, work, order[at])
            for has in range(number):
                if trees[has] == order[at]:
                    promise[at] = _FAR
        ranked = np.argsort(promise, kind="mergesort")
        found = False
        for step in range(min(_TRIED, order.size) + number):
            tried[:number] = trees[:number]
            begun = number
            if step < number:
                begun -= 1
                tried[step] = trees[begun]
            elif promise[ranked[step - number]] < _FAR and number < MOST_TREES:
                tried[begun] = order[ranked[step - number]]
                begun += 1
            else:
                continue
            _set_flood(forest, work, tried, begun)
            grown = grow(links, work, root, terminals, rotation, True)
            _take_needs(links, work, grown, entry)
            if _labels(work, grown) + begun > labels + 1:
                continue
            grown, begun, better = _improve(
                links,
                forest,
                work,
                root,
                entry,
                terminals,
                rotation,
                order,
                tried,
                begun,
                grown,
                labels + 1,
            )
            if better < labels:
                count, number, labels = grown, begun, better
                trees[:number] = tried[:number]
                _keep(work, grown)
                found = True
                break
        if not found:
            break
    return count, number, labels


@njit(cache=True, nogil=True)
def _refined(  # type: ignore[no-untyped-def]
    links, forest, work, root, entry, terminals, rotation, order, trees, effort, most
):
    """Never more labels than :func:`_greedy`, whose answer it improves; else alike. ``effort``:
    delivery trees to try at last. Above ``most`` labels the greedy answer is left as it is."""
    count, number, labels = _greedy(
        links, forest, work, root, entry, terminals, rotation, order, trees
    )
    if count < 0 or labels == 1 or order.size == 0 or labels > most:
        return count, number, labels
    tried = np.empty(MOST_TREES, np.int64)
    # From the greedy answer, from the plain tree without any, and from single trees, first those
    # that serve most of the receivers.
    rank = np.empty(order.size, np.int64)
    for at in range(order.size):
        rank[at] = -_serves(forest, work, order[at])
    ranked = order[np.argsort(rank, kind="mergesort")]
    best_weight = np.int64(0)
    for start in range(2 + min(effort, ranked.size)):
        begun = number if start == 0 else min(start - 1, 1)
        if start == 0:
            tried[:number] = trees[:number]
            _recall(links, work, count, entry)
            grown = count
        else:
            if start > 1:
                tried[0] = ranked[start - 2]
            _set_flood(forest, work, tried, begun)
            grown = grow(links, work, root, terminals, rotation, start > 1)
            _take_needs(links, work, grown, entry)
        _set_flood(forest, work, tried, begun)
        if start > 1 and _labels(work, grown) + begun > labels + _NEAR:
            continue
        grown, begun, better = _improve(
            links,
            forest,
            work,
            root,
            entry,
            terminals,
            rotation,
            order,
            tried,
            begun,
            grown,
            labels + 1,
        )
        weight = _weight(links, work, grown)
        if start == 0 or better < labels or (better == labels and weight < best_weight):
            count, number, labels, best_weight = grown, begun, better, weight
            trees[:number] = tried[:number]
            _keep(work, grown)
    while labels > 1:
        count, number, labels = _exchange(
            links,
            forest,
            work,
            root,
            entry,
            terminals,
            rotation,
            order,
            trees,
            number,
            count,
            labels,
        )
        before = labels
        count, number, labels, effort = _bend(
            links,
            forest,
            work,
            root,
            entry,
            terminals,
            rotation,
            order,
            trees,
            number,
            count,
            labels,
            effort,
        )
        if labels == before:
            break
    return count, number, labels


@njit(cache=True, nogil=True)
def encode(  # type: ignore[no-untyped-def]
    links, forest, work, root, entry, terminals, rotation, order, trees, refined, effort, most
):
    """One header stack. ``work.wanted`` holds the ports towards receivers, ``terminals`` their
    switches. The result stands in ``work``: members by distance from the root, parents, needed and
    ingress ports, flood of the trees, which are ``trees[:number]``, ascending.

    Returns ``(count, number, hops, stops, crossings)``; count is -1 if a terminal is out of reach.
    crossings: labels on links between switches and on the publisher's, summed over those links.
    """
    if refined:
        count, number, _ = _refined(
            links, forest, work, root, entry, terminals, rotation, order, trees, effort, most
        )
    else:
        count, number, _ = _greedy(
            links, forest, work, root, entry, terminals, rotation, order, trees
        )
    if count < 0:
        return count, number, np.int64(0), np.int64(0), np.int64(0)
    _recall(links, work, count, entry)
    trees[:number] = np.sort(trees[:number])
    _set_flood(forest, work, trees, number)
    _by_depth(links, work, count)
    hops = stops = np.int64(0)
    for at in range(count):
        u = work.members[at]
        needed, flood = work.needed[u], work.flood[u]
        hops += _count(needed & ~flood)
        stops += _count(flood & ~(needed | work.ingress[u]))
    # A hop or stop leaves the stack where it is used: ``path`` is what each member sends on.
    left, crossings = work.path, number + hops + stops
    for at in range(count):
        u = work.members[at]
        came = number + hops + stops
        if at > 0:
            came = left[links.source[work.parent[u]]]
            crossings += came
        needed, flood = work.needed[u], work.flood[u]
        used = _count(needed & ~flood) + _count(flood & ~(needed | work.ingress[u]))
        left[u] = came - used
    return count, number, hops, stops, crossings


@njit(cache=True, nogil=True)
def _by_depth(links, work, count):  # type: ignore[no-untyped-def]
    """Members by distance from the root, in links; equal ones stay in order."""
    depth = work.distance
    depth[work.members[0]] = 0
    deepest = np.int64(0)
    for at in range(1, count):
        v = work.members[at]
        depth[v] = depth[links.source[work.parent[v]]] + 1
        deepest = max(deepest, depth[v])
    first = np.zeros(deepest + 2, np.int64)
    for at in range(count):
        first[depth[work.members[at]] + 1] += 1
    first = np.cumsum(first)
    for at in range(count):
        v = work.members[at]
        work.path[first[depth[v]]] = v
        first[depth[v]] += 1
    work.members[:count] = work.path[:count]
