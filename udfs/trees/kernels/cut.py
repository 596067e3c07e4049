"""The cut of a delivery tree into pieces, where one stack would be too long.

A piece costs its own hops and stops, and the way to it once more. So pieces hang together, and few
are better than even ones.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from stackcast.udfs.trees.kernels.search import inner, word_at, words_of
from stackcast.udfs.trees.kernels.sorting import sorted_by
from stackcast.udfs.trees.kernels.stack import labels_of

#: Fills of a piece that are tried, from the least one in twentieths of the room: the way to it and
#: the stored trees take some.
_LEAST_FILL, _FULL = 17, 20


@njit(cache=True, nogil=True)
def cut(links, work, count, room):  # type: ignore[no-untyped-def]
    """Cuts the delivery tree of the stack that stands in ``work`` into few pieces of up to ``room``
    hops and stops; a switch that has more by itself is a piece of its own.

    Returns of each switch the number of its piece, int64, -1 for those that are no members.
    """
    place, own, above = work.path, np.zeros(count, np.int64), np.full(count, -1, np.int64)
    for at in range(count):
        u = work.members[at]
        place[u] = at
        for step in range(words_of(links, u)):
            own[at] += labels_of(work, word_at(links, u, step))
        if at > 0:
            above[at] = place[links.source[work.parent[u]]]
    piece, fewest = _pieces(links, work, own, above, room * _LEAST_FILL // _FULL)
    for fill in range(_LEAST_FILL + 1, _FULL + 1):
        other, pieces = _pieces(links, work, own, above, room * fill // _FULL)
        if pieces < fewest:
            piece, fewest = other, pieces
    found = np.full(work.inside.size, -1, np.int64)
    for at in range(count):
        found[work.members[at]] = piece[at]
    return found


@inner
def _pieces(links, work, own, above, most):  # type: ignore[no-untyped-def]
    """Returns the piece of each member and how many there are: from the leaves up, a switch with
    more than ``most`` below gives away its heaviest branch, and others that fit into the piece with
    it, until it has not."""
    weight = own.copy()
    branches = sorted_by(above)
    end = above.size
    piece = np.full(above.size, -1, np.int64)
    pieces = np.int64(1)
    for at in range(above.size - 1, -1, -1):
        first = end
        while above[branches[first - 1]] == at:
            first -= 1
        below = branches[first:end]
        end = first
        weight[at] += weight[below].sum()
        if weight[at] <= most:
            continue
        below = below[sorted_by(-weight[below])]
        for heaviest in range(below.size):
            if weight[at] <= most:
                break
            if piece[below[heaviest]] >= 0:
                continue
            filled = np.int64(0)
            for branch in below[heaviest:]:
                if piece[branch] < 0 and (filled == 0 or filled + weight[branch] <= most):
                    piece[branch] = pieces
                    filled += weight[branch]
                    link = work.parent[work.members[branch]]
                    flooded = work.flood[links.port_word[link]] & links.port[link] != 0
                    # The port towards it was a hop, or is a stop from now on.
                    weight[at] += (1 if flooded else -1) - weight[branch]
            pieces += 1
    piece[0] = 0
    for at in range(1, above.size):
        if piece[at] < 0:
            piece[at] = piece[above[at]]
    return piece, pieces
