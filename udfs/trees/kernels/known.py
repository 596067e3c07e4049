"""Delivery trees that were grown for a publication: each search is made once.

Greedy, its refinement and their beginnings come to the same stored trees by many ways, and the
delivery tree that is grown for these is always the same.
"""

from __future__ import annotations

import numpy as np

from stackcast.udfs.trees.kernels.search import NOWHERE, helper, search
from stackcast.udfs.trees.kernels.stack import put_back, take_needs


@helper
def forget(work):  # type: ignore[no-untyped-def]
    """Begins with another publication."""
    work.known.filled[0] = 0


@helper
def grown(task, mode):  # type: ignore[no-untyped-def]
    """Grows the delivery tree for the stored trees in use, as
    `stackcast.udfs.trees.kernels.search.grow` does by weight or by labels, or recalls it, and takes
    its needs. Returns what that does.

    Were two sets of trees known by one number of 64 bits, the tree of one would serve the other,
    too, by a longer stack perhaps: what a stack does follows from its delivery tree.
    """
    work, known = task.work, task.work.known
    key, count = known.in_use[0] ^ np.int64(mode), known.filled[0]
    for at in range(count):
        if known.key[at] == key:
            first, end = known.end[at], known.end[at + 1]
            put_back(task, known.members[first:end], known.parent[first:end])
            return end - first
    size = search(task, mode, NOWHERE, NOWHERE, False)
    if size < 0:
        return size
    take_needs(task, size)
    first = known.end[count]
    if count < known.key.size and first + size <= known.members.size:
        for at in range(size):
            v = work.members[at]
            known.members[first + at], known.parent[first + at] = v, work.parent[v]
        known.key[count], known.end[count + 1] = key, first + size
        known.filled[0] += 1
    return size
