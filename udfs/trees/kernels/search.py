"""The search that grows trees (Takahashi and Matsuyama 1980), on a bucket queue of costs."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from stackcast.udfs.trees.kernels.arrays import BLOCK_BITS, LISTS

# What only kernels call: no wrapper is compiled that would read each array of a NamedTuple for
# Python, which takes longer than most kernels do.
inner: Any = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
# Counting references to every array of a NamedTuple would cost more than most calls do; what does
# not allocate can go without.
helper: Any = njit(
    cache=True, nogil=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
)

# What a link costs. Numbers of numpy: of Python's, numba would compile a version for each value.
BY_WEIGHT, BY_LABELS, BY_PRICE = np.int64(0), np.int64(1), np.int64(2)
#: No switch.
NOWHERE = np.int64(-1)
#: By weight: a link that a stored tree in use covers (WERNECKE 5.2.7). All others cost more.
COVERED = 1

_FAR = np.int64(1 << 62)
_IN_BLOCK = (1 << BLOCK_BITS) - 1
# Costs that count labels: the label, then weights of 1..15, then links.
_LABEL_COST = 1 << 10
_WEIGHT_COST = 4
#: The price of an edge that no stored tree covers.
FULL_PRICE = 64


@intrinsic
def count_bits(_typing, mask):  # type: ignore[no-untyped-def]
    """Counts the bits of a mask, int64."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@intrinsic
def _lowest_bit(_typing, mask):  # type: ignore[no-untyped-def]
    """Returns the number of the lowest bit of a mask, int64, that has one."""

    def generate(_context, builder, _signature, arguments):  # type: ignore[no-untyped-def]
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


@helper
def _bit_of(at):  # type: ignore[no-untyped-def]
    return np.int64(1) << (at & _IN_BLOCK)


@helper
def _enqueue(work, v, cost):  # type: ignore[no-untyped-def]
    """Puts a switch first in the list of its cost, and takes it out of the one where it stood."""
    if work.listed[v] >= 0:
        _dequeue(work, v)
    at = min(cost, LISTS - 1)
    after = work.first[at]
    work.following[v] = after
    work.previous[v] = -1
    if after >= 0:
        work.previous[after] = v
    else:
        work.filled[at >> BLOCK_BITS] |= _bit_of(at)
    work.first[at] = v
    work.listed[v] = at


@helper
def _dequeue(work, v):  # type: ignore[no-untyped-def]
    at, before, after = np.int64(work.listed[v]), work.previous[v], work.following[v]
    if after >= 0:
        work.previous[after] = before
    if before >= 0:
        work.following[before] = after
    else:
        work.first[at] = after
        if after < 0:
            work.filled[at >> BLOCK_BITS] &= ~_bit_of(at)
    work.listed[v] = -1


@helper
def _nearest(work, at):  # type: ignore[no-untyped-def]
    """Returns the first cost from ``at`` on that a switch is listed under; there is one."""
    block = at >> BLOCK_BITS
    some = work.filled[block] & -_bit_of(at)
    while some == 0:
        block += 1
        some = work.filled[block]
    return (block << BLOCK_BITS) + _lowest_bit(some)


@helper
def words_of(links, u):  # type: ignore[no-untyped-def]
    """Counts the words that a switch's ports are in."""
    return 1 + links.more[u + 1] - links.more[u]


@helper
def word_at(links, u, step):  # type: ignore[no-untyped-def]
    """Returns one of a switch's words, by its place among them."""
    return np.int64(u) if step == 0 else links.more[u] + step - 1


@helper
def listens(links, work, u):  # type: ignore[no-untyped-def]
    """Returns True if a receiver is at this switch."""
    wanted = work.wanted[u]
    for word in range(links.more[u], links.more[u + 1]):
        wanted |= work.wanted[word]
    return wanted != 0


@helper
def _take_stops(links, work):  # type: ignore[no-untyped-def]
    """Counts the ports of each switch that the stored trees in use send out of; -1 where a receiver
    is."""
    stops = work.stops
    for u in range(stops.size):
        stops[u] = count_bits(work.flood[u]) if work.wanted[u] == 0 else -1
    for at in range(links.further.size):
        u, word = links.further[at], links.more[0] + at
        if work.wanted[word] != 0:
            stops[u] = -1
        elif stops[u] >= 0:
            stops[u] += count_bits(work.flood[word])


@helper
def _take_costs(links, work, mode):  # type: ignore[no-untyped-def]
    """Sets the cost of each link by labels or by price.

    By labels: those that it adds to the stack, which is a hop, or nothing where a stored tree
    covers it, and stops at the switch that it leads to, two of which the link itself spares where
    it is covered. By price: see `stackcast.udfs.trees.kernels.refined`.
    """
    cost = work.cost
    if mode == BY_PRICE:
        for link in range(cost.size):
            cost[link] = links.cost[link] * work.price[link] // FULL_PRICE + 1
    else:
        _take_stops(links, work)
        for link in range(cost.size):
            stops, covered = work.stops[links.target[link]], work.by_weight[link] == COVERED
            if stops >= 0:
                labels = max(0, stops - 2) if covered else stops + 1
            else:
                labels = 0 if covered else 3
            cost[link] = labels * _LABEL_COST + links.weight[link] * _WEIGHT_COST + 1


@njit(cache=True, nogil=True, _nrt=False)
def grow(links, work, root, terminals, rotation, mode, through, barred, shortest):  # type: ignore[no-untyped-def]
    """Joins the nearest terminal to the tree by a shortest path, again and again. Returns the
    number of members, -1 if a terminal is out of reach.

    One search serves the whole tree: a path that joins becomes distance 0, and the search goes on
    from there; what was learnt about other switches stays an upper bound. Of equal costs the first
    found counts; ``rotation`` is where each switch begins among its links. ``mode``: what a link
    costs. ``through``: a switch to join like a terminal. ``barred``: one to go round (`NOWHERE`: no
    such one). ``shortest``: shortest paths from the root instead, each paid in full.
    """
    distance, parent, inside = work.distance, work.parent, work.inside
    waiting, members, path = work.waiting, work.members, work.path
    target, cost = links.target, work.by_weight
    if mode != BY_WEIGHT:
        cost = work.cost
        _take_costs(links, work, mode)
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
                if not shortest:
                    distance[v] = 0
                    if work.listed[v] < 0:
                        queued += 1
                    _enqueue(work, v, np.int64(0))
            if not shortest:
                at = np.int64(0)
                continue
        first = links.offset[u]
        degree = links.offset[u + 1] - first
        turn = rotation % degree if degree > 0 else 0
        reached = distance[u]
        for step in range(degree):
            link = first + turn + step
            if step + turn >= degree:
                link -= degree
            v = np.int64(target[link])
            # A member has distance 0, or the shortest there is.
            further = reached + cost[link]
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


@helper
def search(task, mode, through, barred, shortest):  # type: ignore[no-untyped-def]
    """Grows the delivery tree of a task by :func:`grow`."""
    return np.int64(
        grow(
            task.links,
            task.work,
            task.root,
            task.terminals,
            task.rotation,
            mode,
            through,
            barred,
            shortest,
        )
    )
