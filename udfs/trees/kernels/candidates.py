"""An index of candidates: of many stored trees, the few that are worth a look for one publication.

Trees are found by the switches of the plain Steiner tree that they touch, so time grows with the
trees that touch those and not with all. Half of them are the first in the order of Algorithm 5.1,
which is by the ports of the plain tree that a tree serves, and half those that would spare most
labels on it. The listing ends after the first half: "the possibility of an early exit" (WERNECKE
5.2.7).
"""

from __future__ import annotations

import numpy as np

from stackcast.udfs.trees.kernels.arrays import EncodingTask, Forest
from stackcast.udfs.trees.kernels.known import grown
from stackcast.udfs.trees.kernels.search import BY_WEIGHT, count_bits, inner, word_at, words_of
from stackcast.udfs.trees.kernels.sorting import least
from stackcast.udfs.trees.kernels.stack import use


@inner
def candidates(task):  # type: ignore[no-untyped-def]
    """Chooses the stored trees to look at, ``looked_at`` at most of more than ``all_up_to``.

    Returns ``(small, listed, numbers)``: the task with these trees alone, their number in ``task``
    by that in ``small``, and which of them Algorithm 5.1 takes, in order. Up to ``all_up_to`` trees
    are all looked at.
    """
    forest, work, number = task.forest, task.work, task.order.size
    if number <= task.all_up_to:
        return task, task.order, np.arange(number)
    use(task, task.order, np.int64(0))
    count = grown(task, BY_WEIGHT)
    if count < 0:
        return task, task.order, np.arange(number)
    served = np.zeros(number, np.int64)
    spared = np.zeros(number, np.int64)
    touched = np.empty(number, np.int64)
    found = 0
    for member in range(count):
        u = work.members[member]
        for step in range(words_of(task.links, u)):
            word = word_at(task.links, u, step)
            needed, ingress = work.needed[word], work.ingress[word]
            for at in range(forest.at_offset[word], forest.at_offset[word + 1]):
                tree, mask = forest.at_tree[at], forest.at_mask[at]
                if served[tree] == 0:
                    if mask & needed == 0:
                        continue
                    touched[found] = tree
                    found += 1
                served[tree] += count_bits(mask & needed)
                new = mask & ~ingress
                spared[tree] += 2 * count_bits(new & needed) - count_bits(new)
    half = task.looked_at // 2
    # Where too few serve a port, the first of the others.
    for tree in task.order:
        if found >= half:
            break
        if served[tree] == 0:
            touched[found] = tree
            found += 1
    # A tree's place in the order of ties, which is that of the trees, turned.
    trees = touched[:found]
    places = (trees - task.order[0]) % number
    first = least(places - served[trees] * number, half) % number
    best = least(places - spared[trees] * number, task.looked_at - half) % number
    numbers, listed = _united(task.order, first, best)
    small = EncodingTask(
        task.links,
        _part(forest, numbers),
        work,
        task.root,
        task.entry,
        task.entry_word,
        task.terminals,
        task.rotation,
        np.arange(numbers.size),
        task.effort,
        task.all_up_to,
        task.looked_at,
    )
    return small, listed, numbers


@inner
def _united(order, first, best):  # type: ignore[no-untyped-def]
    """Returns the trees at places of ``first`` or ``best``, in order, and where those of ``first``
    are among them."""
    taken = np.zeros(order.size, np.uint8)
    for at in best:
        taken[at] = 1
    for at in first:
        taken[at] = 2
    numbers = np.empty(first.size + best.size, np.int64)
    listed = np.empty(first.size, np.int64)
    count = marked = np.int64(0)
    for at in range(order.size):
        if taken[at] == 0:
            continue
        if taken[at] == 2:
            listed[marked] = count
            marked += 1
        numbers[count] = order[at]
        count += 1
    return numbers[:count], listed


@inner
def _part(forest, numbers):  # type: ignore[no-untyped-def]
    """Returns these trees as a forest of their own."""
    offset = np.zeros(numbers.size + 1, np.int64)
    link_offset = np.zeros(numbers.size + 1, np.int64)
    at_offset = np.zeros(forest.at_offset.size, np.int64)
    for at in range(numbers.size):
        tree = numbers[at]
        offset[at + 1] = offset[at] + forest.offset[tree + 1] - forest.offset[tree]
        link_offset[at + 1] = (
            link_offset[at] + forest.link_offset[tree + 1] - forest.link_offset[tree]
        )
    word, mask = np.empty(offset[-1], np.int64), np.empty(offset[-1], np.int64)
    link = np.empty(link_offset[-1], np.int32)
    for at in range(numbers.size):
        for port in range(forest.offset[numbers[at] + 1] - forest.offset[numbers[at]]):
            word[offset[at] + port] = forest.word[forest.offset[numbers[at]] + port]
            mask[offset[at] + port] = forest.mask[forest.offset[numbers[at]] + port]
        for over in range(link_offset[at + 1] - link_offset[at]):
            link[link_offset[at] + over] = forest.link[forest.link_offset[numbers[at]] + over]
    for at in range(word.size):
        at_offset[word[at] + 1] += 1
    for at in range(1, at_offset.size):
        at_offset[at] += at_offset[at - 1]
    filled = at_offset.copy()
    at_tree, at_mask = np.empty(word.size, np.int64), np.empty(word.size, np.int64)
    for tree in range(numbers.size):
        for at in range(offset[tree], offset[tree + 1]):
            place = filled[word[at]]
            filled[word[at]] += 1
            at_tree[place] = tree
            at_mask[place] = mask[at]
    return Forest(offset, word, mask, link_offset, link, at_offset, at_tree, at_mask)
