"""Algorithm 5.1 (WERNECKE 5.2.7), as in the text."""

from __future__ import annotations

import numpy as np

from stackcast.udfs.trees.kernels.known import grown
from stackcast.udfs.trees.kernels.search import BY_WEIGHT, inner
from stackcast.udfs.trees.kernels.sorting import sorted_by
from stackcast.udfs.trees.kernels.stack import MOST_TREES, count_labels, keep, overlap, use


@inner
def greedy(task, trees, order):  # type: ignore[no-untyped-def]
    """Takes a stored tree if the stack gets shorter with it; the result is the best tree kept.
    ``order``: the trees to try, as ties between them are settled.

    Returns ``(count, number, labels)``: members, trees (in ``trees``), all labels; count is -1 if a
    terminal is out of reach.
    """
    links, forest, work = task.links, task.forest, task.work
    number = np.int64(0)
    use(task, trees, number)
    count = grown(task, BY_WEIGHT)
    if count < 0:
        return count, number, np.int64(0)
    best = count_labels(links, work, count)
    keep(work, count)
    # sort(T_virt): trees that replace most hops of the plain tree first.
    rank = np.empty(order.size, np.int64)
    for at in range(order.size):
        rank[at] = -overlap(forest, work, order[at]) * order.size + at
    for at in sorted_by(rank):
        if best == 1 or number == MOST_TREES:
            break
        trees[number] = order[at]
        use(task, trees, number + 1)
        tried = grown(task, BY_WEIGHT)
        total = count_labels(links, work, tried) + number + 1
        if total < best:
            best = total
            count = tried
            number += 1
            keep(work, tried)
    return count, number, best
