"""Stacks that are shorter than Algorithm 5.1's: stored trees and delivery tree made for each other.

A beginning is a set of stored trees and a delivery tree. From it, stored trees are added, dropped
and exchanged for the delivery tree as it is, and a delivery tree is grown by what each link adds to
the stack with the stored trees as they are, in turn while labels fall (:func:`_improve`).
Beginnings are the greedy answer, delivery trees grown with all stored trees in sight, the plain
Steiner tree, rounds of best gain, and single trees; the best of all is then changed by a tree or a
switch at a time. Parts of a set that was cut have quick beginnings alone, and the stored trees of
the whole set for the first (:func:`resumed`).
"""

from __future__ import annotations

import numpy as np

from stackcast.udfs.trees.kernels.candidates import candidates
from stackcast.udfs.trees.kernels.greedy import greedy
from stackcast.udfs.trees.kernels.known import grown
from stackcast.udfs.trees.kernels.search import (
    BY_LABELS,
    BY_PRICE,
    BY_WEIGHT,
    FULL_PRICE,
    NOWHERE,
    count_bits,
    helper,
    inner,
    listens,
    search,
)
from stackcast.udfs.trees.kernels.sorting import copy, sorted_by
from stackcast.udfs.trees.kernels.stack import (
    MOST_TREES,
    copied,
    count_labels,
    keep,
    prune,
    put_back,
    recall,
    serves,
    take_gains,
    take_needs,
    total_weight,
    use,
)

_FAR = np.int64(1 << 62)
#: Beginnings before those of single trees, and how many of them parts have.
_STARTS, _QUICK_STARTS = 5, np.int64(3)
#: Trees that are added to the best, at most, with a delivery tree made for them.
_TRIED = 6
#: How many labels one of them may cost on the delivery tree as it is.
_HOPEFUL = 2
#: Trees that a round of best gain tries.
_ROUND = 8
#: How many labels above the best a beginning may be to be gone on with.
_NEAR = 3


@inner
def choose(task, count, trees, number, near):  # type: ignore[no-untyped-def]
    """Chooses better stored trees for the delivery tree as it is: adds one while labels fall; where
    those are at most ``near``, drops or exchanges one.

    Begins with ``trees[:number]``, whose flood is set; returns the new ``number``.
    """
    links, forest, work, order = task.links, task.forest, task.work, task.order
    gains = np.empty(order.size, np.int64)
    labels = count_labels(links, work, count) + number
    while True:
        best, taken, dropped = np.int64(0), np.int64(-1), np.int64(-1)
        if number < MOST_TREES:
            take_gains(links, forest, work, count, gains)
            for tree in order:
                if gains[tree] > best:
                    best, taken = gains[tree], tree
        if taken < 0 and labels <= near and number > 0:
            for out in range(number):
                spare = trees[out]
                trees[out] = trees[number - 1]
                use(task, trees, number - 1)
                dropping = labels - (count_labels(links, work, count) + number - 1)
                if dropping > best:
                    best, taken, dropped = dropping, np.int64(-1), np.int64(out)
                take_gains(links, forest, work, count, gains)
                for tree in order:
                    if dropping + gains[tree] > best:
                        best, taken, dropped = dropping + gains[tree], tree, np.int64(out)
                trees[number - 1] = trees[out]
                trees[out] = spare
            use(task, trees, number)
        if best == 0:
            break
        if dropped >= 0:
            trees[dropped] = trees[number - 1]
            number -= 1
        if taken >= 0:
            trees[number] = taken
            number += 1
        use(task, trees, number)
        labels -= best
    return number


@inner
def _improve(task, trees, number, count, near):  # type: ignore[no-untyped-def]
    """Improves the delivery tree in ``members`` and these stored trees while labels, then weights
    fall. The result stands in ``members``; returns ``(count, number, labels)``."""
    links, work = task.links, task.work
    kept, kept_number, kept_count = np.empty(MOST_TREES, np.int64), number, count
    copy(kept, trees, number)
    members, parent = copied(work, count)
    labels = count_labels(links, work, count) + number
    weight = total_weight(links, work, count)
    better = True
    while better:
        better = False
        number = choose(task, count, trees, number, near)
        # First with the delivery tree as it is, then with those grown for these stored trees.
        for step in range(3):
            if step > 0:
                mode = BY_LABELS if step == 1 else BY_WEIGHT
                count = grown(task, mode)
            found = count_labels(links, work, count) + number
            heavy = total_weight(links, work, count)
            if found < labels or (found == labels and heavy < weight):
                better = True
                labels, weight, kept_number, kept_count = found, heavy, number, count
                copy(kept, trees, number)
                members, parent = copied(work, count)
    copy(trees, kept, kept_number)
    put_back(task, members, parent)
    use(task, trees, kept_number)
    return kept_count, kept_number, labels


@inner
def _regrow(task):  # type: ignore[no-untyped-def]
    """Grows the better delivery tree of two for the stored trees in use: one that takes their edges
    as free, and one that counts the stops at their branches, perhaps too often. Returns ``(count,
    labels)``, the trees' own not counted."""
    links, work = task.links, task.work
    first = grown(task, BY_WEIGHT)
    labels = count_labels(links, work, first)
    members, parent = copied(work, first)
    second = grown(task, BY_LABELS)
    found = count_labels(links, work, second)
    if found < labels:
        return second, found
    put_back(task, members, parent)
    return first, labels


@helper
def _set_prices(task, bold):  # type: ignore[no-untyped-def]
    """Sets the price of each link as if its best stored tree were in the stack: a share of that
    tree's label and of the stops at hosts that it should not reach. They are shared with the hosts
    that it serves or, where ``bold``, less the hops that those would take."""
    forest, work = task.forest, task.work
    work.price[:] = FULL_PRICE
    for tree in task.order:
        edges = max(1, (forest.link_offset[tree + 1] - forest.link_offset[tree]) // 2)
        ports = np.int64(0)
        for at in range(forest.offset[tree], forest.offset[tree + 1]):
            ports += count_bits(forest.mask[at])
        served = serves(forest, work, tree)
        labels = 1 + max(np.int64(0), ports - 2 * edges - served)
        if bold:
            price = FULL_PRICE * max(np.int64(0), labels - served) // edges
        else:
            price = FULL_PRICE * labels // (served + edges)
        for at in range(forest.link_offset[tree], forest.link_offset[tree + 1]):
            link = forest.link[at]
            work.price[link] = min(work.price[link], price)


@inner
def _best_gains(task, trees):  # type: ignore[no-untyped-def]
    """Adds the stored tree that spares most labels with a delivery tree made for it, round by
    round, as the prose of WERNECKE 5.2.7 has it. Each round tries those of most gain on the
    delivery tree as it is. Returns their number."""
    links, forest, work, order = task.links, task.forest, task.work, task.order
    gains = np.empty(order.size, np.int64)
    number = np.int64(0)
    while True:
        use(task, trees, number)
        count = grown(task, BY_WEIGHT)
        fewest, best = count_labels(links, work, count) + number, np.int64(-1)
        if number == MOST_TREES or fewest <= 1:
            return number
        take_gains(links, forest, work, count, gains)
        ranked = sorted_by(-gains[order])
        for at in range(min(_ROUND, order.size)):
            tree = order[ranked[at]]
            trees[number] = tree
            use(task, trees, number + 1)
            tried = grown(task, BY_WEIGHT)
            labels = count_labels(links, work, tried) + number + 1
            if labels < fewest:
                fewest, best = labels, tree
        if best < 0:
            return number
        trees[number] = best
        number += 1


@inner
def _begin(task, trees, number, count, labels, starts):  # type: ignore[no-untyped-def]
    """Improves so many beginnings and keeps the best; the first is given, as the best so far."""
    links, forest, work = task.links, task.forest, task.work
    rank = np.empty(task.order.size, np.int64)
    for at in range(task.order.size):
        rank[at] = -serves(forest, work, task.order[at])
    ranked = task.order[sorted_by(rank)]
    tried = np.empty(MOST_TREES, np.int64)
    weight = np.int64(0)
    for start in range(starts):
        begun = np.int64(0)
        if start == 0:
            begun = number
            copy(tried, trees, number)
            recall(task, count)
            use(task, tried, begun)
            size = count
        else:
            if start == 4:
                begun = _best_gains(task, tried)
            elif start >= _STARTS:
                tried[0] = ranked[start - _STARTS]
                begun = np.int64(1)
            use(task, tried, begun)
            if start >= _STARTS:
                size, found = _regrow(task)
                if found + 1 > labels + _NEAR:
                    continue
            elif start in (1, 2):
                _set_prices(task, start == 2)
                size = search(task, BY_PRICE, NOWHERE, NOWHERE, False)
                take_needs(task, size)
            else:
                size = grown(task, BY_WEIGHT)
        size, begun, found = _improve(task, tried, begun, size, labels + 1)
        heavy = total_weight(links, work, size)
        if start == 0 or found < labels or (found == labels and heavy < weight):
            count, number, labels, weight = size, begun, found, heavy
            copy(trees, tried, number)
            keep(work, size)
    return count, number, labels


@inner
def _exchange(task, trees, number, count, labels):  # type: ignore[no-untyped-def]
    """Tries the best with one stored tree less, or one more, and a delivery tree made for it."""
    links, forest, work, order = task.links, task.forest, task.work, task.order
    tried = np.empty(MOST_TREES, np.int64)
    promise = np.empty(order.size, np.int64)
    gains = np.empty(order.size, np.int64)
    found = True
    while found and labels > 1:
        found = False
        recall(task, count)
        use(task, trees, number)
        take_gains(links, forest, work, count, gains)
        for at in range(order.size):
            promise[at] = -gains[order[at]]
            for has in range(number):
                if trees[has] == order[at]:
                    promise[at] = _FAR
        ranked = sorted_by(promise)
        for step in range(number + min(_TRIED, order.size)):
            copy(tried, trees, number)
            begun = number
            if step < number:
                begun -= 1
                tried[step] = trees[begun]
            elif promise[ranked[step - number]] <= _HOPEFUL and number < MOST_TREES:
                tried[begun] = order[ranked[step - number]]
                begun += 1
            else:
                continue
            use(task, tried, begun)
            size, fewer = _regrow(task)
            if fewer + begun > labels + 1:
                continue
            size, begun, fewer = _improve(task, tried, begun, size, labels + 1)
            if fewer < labels:
                count, number, labels = size, begun, fewer
                copy(trees, tried, number)
                keep(work, size)
                found = True
                break
    return count, number, labels


@inner
def _detours(task, count):  # type: ignore[no-untyped-def]
    """Lists switches beside the delivery tree with two links to it or more, most first."""
    links, work = task.links, task.work
    beside = np.zeros(work.inside.size, np.int64)
    for at in range(count):
        u = work.members[at]
        for link in range(links.offset[u], links.offset[u + 1]):
            beside[links.target[link]] += 1
    for at in range(count):
        beside[work.members[at]] = 0
    found = np.empty(beside.size, np.int64)
    number = 0
    for v in range(beside.size):
        if beside[v] > 1:
            found[number] = v
            number += 1
    found = found[:number]
    return found[sorted_by(-beside[found])]


@inner
def _bend(task, trees, number, count, labels, effort):  # type: ignore[no-untyped-def]
    """Tries the best with a way round a switch that nobody listens at, or through one beside the
    tree. Ends with the first that has fewer labels; returns the rest of ``effort`` with the new
    best."""
    links, work = task.links, task.work
    recall(task, count)
    beside = _detours(task, count)
    members, _ = copied(work, count)
    tried = np.empty(MOST_TREES, np.int64)
    for step in range(count - 1 + beside.size):
        if effort == 0:
            break
        if step < count - 1:
            barred, through = np.int64(members[step + 1]), NOWHERE
            if listens(links, work, barred):
                continue
        else:
            barred, through = NOWHERE, beside[step - count + 1]
        effort -= 1
        use(task, trees, number)
        size = search(task, BY_LABELS, through, barred, False)
        if size < 0:
            continue
        size = prune(links, work, size)
        take_needs(task, size)
        if count_labels(links, work, size) + number > labels + 1:
            continue
        copy(tried, trees, number)
        size, begun, fewer = _improve(task, tried, number, size, labels + 1)
        if fewer < labels:
            copy(trees, tried, begun)
            keep(work, size)
            return size, begun, fewer, effort
    return count, number, labels, effort


@inner
def resumed(task, trees, begun):  # type: ignore[no-untyped-def]
    """Improves the stored trees ``begun``, with a delivery tree grown for them, and the delivery
    trees grown with all in sight. Returns ``(count, number)``; the best is kept."""
    small, _, numbers = candidates(task)
    number = np.int64(0)
    for at in range(numbers.size):
        for tree in begun:
            if numbers[at] == tree:
                trees[number] = at
                number += 1
    use(small, trees, number)
    count, labels = _regrow(small)
    keep(small.work, count)
    count, number, _ = _begin(small, trees, number, count, labels + number, _QUICK_STARTS)
    _name(trees, number, numbers)
    return count, number


@inner
def refined(task, trees, most):  # type: ignore[no-untyped-def]
    """Improves the answer of :func:`stackcast.udfs.trees.kernels.greedy.greedy`, and never has more
    labels. Above twice ``most`` labels, and where none is found of at most ``most``, the greedy
    answer stands. Returns ``(count, number, labels)``, the labels being those of that answer."""
    small, listed, numbers = candidates(task)
    count, number, labels = greedy(small, trees, listed)
    first = labels
    if count > 0 and labels > 1 and small.order.size > 0 and labels <= 2 * most:
        starts = _STARTS + min(small.effort, small.order.size)
        count, number, labels = _begin(small, trees, number, count, labels, starts)
        effort, before = small.effort, labels + 1
        while 1 < labels < before:
            before = labels
            count, number, labels = _exchange(small, trees, number, count, labels)
            count, number, labels, effort = _bend(small, trees, number, count, labels, effort)
        if labels > most:
            count, number, first = greedy(small, trees, listed)
    _name(trees, number, numbers)
    return count, number, first


@helper
def _name(trees, number, numbers):  # type: ignore[no-untyped-def]
    """Names trees by their numbers among all."""
    for at in range(number):
        trees[at] = numbers[trees[at]]
