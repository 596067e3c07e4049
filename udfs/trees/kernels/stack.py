"""The stack of a delivery tree and stored trees: needed ports, hops, stops, and gains of trees."""

from __future__ import annotations

import numpy as np

from stackcast.udfs.trees.kernels.search import COVERED, count_bits, helper, inner, listens

#: Trees in a stack at most. A stack has 64 labels.
MOST_TREES = 64


@helper
def member_word(links, work, count, at):  # type: ignore[no-untyped-def]
    """Returns a word of the members' ports: below ``count`` the first of each, from there on the
    further ones of all switches, -1 for those of no member."""
    if at < count:
        return work.members[at]
    if work.inside[links.further[at - count]] == 0:
        return np.int64(-1)
    return links.more[0] + at - count


@helper
def take_needs(task, count):  # type: ignore[no-untyped-def]
    """Notes the ports that each member must send out of, and the one that it receives by."""
    links, work = task.links, task.work
    needed, ingress = work.needed, work.ingress
    needed[:] = 0
    for at in range(count + links.further.size):
        word = member_word(links, work, count, at)
        if word >= 0:
            needed[word], ingress[word] = work.wanted[word], 0
    ingress[task.entry_word] = task.entry
    for at in range(1, count):
        link = work.parent[work.members[at]]
        needed[links.port_word[link]] |= links.port[link]
        ingress[links.back_word[link]] = links.back[link]


@helper
def count_labels(links, work, count):  # type: ignore[no-untyped-def]
    """Counts hop and stop labels of the tree whose needs were taken, beside what ``flood``
    sends."""
    total = np.int64(0)
    for at in range(count + links.further.size):
        word = member_word(links, work, count, at)
        if word >= 0:
            total += labels_of(work, word)
    return total


@helper
def labels_of(work, word):  # type: ignore[no-untyped-def]
    """Counts the hops and stops of a word of ports."""
    needed, flood = work.needed[word], work.flood[word]
    return count_bits(needed & ~flood) + count_bits(flood & ~(needed | work.ingress[word]))


@helper
def total_weight(links, work, count):  # type: ignore[no-untyped-def]
    total = np.int64(0)
    for at in range(1, count):
        total += links.cost[work.parent[work.members[at]]]
    return total


@helper
def overlap(forest, work, tree):  # type: ignore[no-untyped-def]
    """Counts the needed ports that the tree serves."""
    total = np.int64(0)
    for at in range(forest.offset[tree], forest.offset[tree + 1]):
        total += count_bits(forest.mask[at] & work.needed[forest.word[at]])
    return total


@helper
def serves(forest, work, tree):  # type: ignore[no-untyped-def]
    """Counts the receivers that the tree leads to."""
    total = np.int64(0)
    for at in range(forest.offset[tree], forest.offset[tree + 1]):
        total += count_bits(forest.mask[at] & work.wanted[forest.word[at]])
    return total


@helper
def take_gains(links, forest, work, count, gains):  # type: ignore[no-untyped-def]
    """Counts the labels that each stored tree would spare on the delivery tree as it is, its own
    counted."""
    gains[:] = -1
    for member in range(count + links.further.size):
        word = member_word(links, work, count, member)
        if word < 0:
            continue
        known, needed = work.flood[word] | work.ingress[word], work.needed[word]
        for at in range(forest.at_offset[word], forest.at_offset[word + 1]):
            new = forest.at_mask[at] & ~known
            gains[forest.at_tree[at]] += 2 * count_bits(new & needed) - count_bits(new)


@helper
def use(task, trees, number):  # type: ignore[no-untyped-def]
    """Takes these stored trees into use, in whatever order, and no other: their ports, and the
    links that they cover."""
    work = task.work
    work.flood[:] = 0
    for link in range(work.by_weight.size):
        work.by_weight[link] = task.links.cost[link]
    work.known.in_use[0] = 0
    for at in range(number):
        _add(task.forest, work, trees[at])
        work.known.in_use[0] ^= _scattered(trees[at])


@helper
def _scattered(tree):  # type: ignore[no-untyped-def]
    """Returns a number of 64 bits for a tree (the finalizer of MurmurHash3)."""
    bits = np.uint64(tree + 1)
    bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return np.int64(bits ^ (bits >> np.uint64(33)))


@helper
def _add(forest, work, tree):  # type: ignore[no-untyped-def]
    for at in range(forest.offset[tree], forest.offset[tree + 1]):
        work.flood[forest.word[at]] |= forest.mask[at]
    for at in range(forest.link_offset[tree], forest.link_offset[tree + 1]):
        work.by_weight[forest.link[at]] = COVERED


@helper
def keep(work, count):  # type: ignore[no-untyped-def]
    """Keeps the tree in ``members`` as the best so far."""
    for at in range(count):
        v = work.members[at]
        work.best_members[at] = v
        work.best_parent[v] = work.parent[v]


@helper
def recall(task, count):  # type: ignore[no-untyped-def]
    """Puts the best tree so far into ``members`` again."""
    work = task.work
    work.inside[:] = 0
    for at in range(count):
        v = work.best_members[at]
        work.members[at] = v
        work.parent[v] = work.best_parent[v]
        work.inside[v] = 1
    take_needs(task, count)


@inner
def copied(work, count):  # type: ignore[no-untyped-def]
    """Returns the delivery tree in ``members``: these, and the links that they come by, int32."""
    members, parent = np.empty(count, np.int32), np.empty(count, np.int32)
    for at in range(count):
        v = work.members[at]
        members[at], parent[at] = v, work.parent[v]
    return members, parent


@helper
def put_back(task, members, parent):  # type: ignore[no-untyped-def]
    """Puts this delivery tree into ``members`` again; ``parent`` is in the order of ``members``."""
    work = task.work
    work.inside[:] = 0
    for at in range(members.size):
        v = members[at]
        work.members[at] = v
        work.parent[v] = parent[at]
        work.inside[v] = 1
    take_needs(task, members.size)


@helper
def prune(links, work, count):  # type: ignore[no-untyped-def]
    """Leaves out branches that lead to no receiver; returns how many members are left."""
    children = work.path
    for at in range(count):
        children[work.members[at]] = 0
    for at in range(1, count):
        children[links.source[work.parent[work.members[at]]]] += 1
    for at in range(count - 1, 0, -1):
        v = work.members[at]
        if children[v] == 0 and not listens(links, work, v):
            work.inside[v] = 0
            children[links.source[work.parent[v]]] -= 1
    kept = 0
    for at in range(count):
        v = work.members[at]
        if work.inside[v] == 1:
            work.members[kept] = v
            kept += 1
    return kept


@inner
def by_depth(links, work, count):  # type: ignore[no-untyped-def]
    """Sorts members by distance from the root, in links; equal ones stay in order."""
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
    for at in range(1, first.size):
        first[at] += first[at - 1]
    for at in range(count):
        v = work.members[at]
        work.path[first[depth[v]]] = v
        first[depth[v]] += 1
    for at in range(count):
        work.members[at] = work.path[at]
