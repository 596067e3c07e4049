"""Arrays that the kernels of trees work on.

Port masks are words, int64, of `WORD` ports each: the first of switch u is word u, and further
ones, which few switches have, stand behind those of all. Switches, links, edges and stored trees
are known by number. A delivery tree is ``work.members[:count]`` (switches, parents first) with
``work.parent[v]``, the link it comes by; ``work.inside`` is 1 for its members and 0 for others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
#: Looked at once a link and search: half as long, they stay in the nearest cache.
Short = NDArray[np.int32]

#: Ports in a word: bit 0 of the first is port 1.
WORD = 63

#: Lists of the queue: one a cost; those beyond share the last.
LISTS = 1 << 19
#: A bit of 64 lists each, set where somebody is listed, so that a search steps over the empty ones.
BLOCK_BITS = 6

#: Delivery trees that are remembered of a publication, and how many of all switches have room.
_KNOWN, _KNOWN_WHOLE = 256, 64


class Links(NamedTuple):
    """Directed usable links between switches, sorted by ``(source, target)``.

    ``offset[u]:offset[u + 1]`` leave u. port, back: bits of the ports at
    source and target, in the words ``port_word`` and ``back_word``. cost: of a search. weight:
    1..15. further: of each word that is no first one, ascending, its switch; those of u are the
    words ``more[u]:more[u + 1]``.
    """

    offset: Integers
    source: Short
    target: Short
    port: Integers
    back: Integers
    cost: Short
    weight: Short
    port_word: Short
    back_word: Short
    further: Integers
    more: Integers


class Forest(NamedTuple):
    """Stored trees: ``word`` and ``mask`` (ports that it floods) at ``offset[t]:offset[t + 1]``;
    the links over its usable edges, both ways, at ``link_offset[t]:link_offset[t + 1]``. The ports
    by word: ``at_tree`` and ``at_mask`` at ``at_offset[w]:at_offset[w + 1]``."""

    offset: Integers
    word: Integers
    mask: Integers
    link_offset: Integers
    link: Short
    at_offset: Integers
    at_tree: Integers
    at_mask: Integers


class Known(NamedTuple):
    """Delivery trees that were grown for one publication (`stackcast.udfs.trees.kernels.known`).

    in_use: one number for the stored trees in use. filled: how many are remembered. key: of each,
    what it was grown for. end: the end of its switches in ``members``, and of the links that they
    come by in ``parent``, after a 0.
    """

    in_use: Integers
    filled: Integers
    key: Integers
    end: Integers
    members: Short
    parent: Short


class Work(NamedTuple):
    """Memory of one search and of one encoding.

    cost: of a link in the search, but for that by weight, whose costs are in ``by_weight`` as long
    as the same stored trees are in use. stops: of a search by labels, ports of a switch that those
    send out of, -1 where a receiver is. price: what a link costs where all stored trees are in
    sight. wanted: ports towards receivers.
    needed, ingress: ports that each member must send out of, and the one that it receives by.
    flood: ports that the stored trees in use send out of.
    """

    distance: Integers
    parent: Integers
    inside: NDArray[np.uint8]
    waiting: NDArray[np.uint8]
    members: Integers
    path: Integers
    first: NDArray[np.int32]
    filled: Integers
    following: NDArray[np.int32]
    previous: NDArray[np.int32]
    listed: NDArray[np.int32]
    cost: Short
    by_weight: Short
    stops: Short
    price: Short
    wanted: Integers
    needed: Integers
    ingress: Integers
    flood: Integers
    best_members: Integers
    best_parent: Integers
    known: Known


def workspace(switches: int, words: int, links: int) -> Work:
    """Memory for a graph of this size. ``wanted`` begins as zeros."""

    def integers(size: int) -> Integers:
        return np.zeros(size, np.int64)

    return Work(
        distance=integers(switches),
        parent=integers(switches),
        inside=np.zeros(switches, np.uint8),
        waiting=np.zeros(switches, np.uint8),
        members=integers(switches),
        path=integers(switches),
        first=np.full(LISTS, -1, np.int32),
        filled=integers(LISTS >> BLOCK_BITS),
        following=np.zeros(switches, np.int32),
        previous=np.zeros(switches, np.int32),
        listed=np.full(switches, -1, np.int32),
        cost=np.zeros(links, np.int32),
        by_weight=np.zeros(links, np.int32),
        stops=np.zeros(switches, np.int32),
        price=np.zeros(links, np.int32),
        wanted=integers(words),
        needed=integers(words),
        ingress=integers(words),
        flood=integers(words),
        best_members=integers(switches),
        best_parent=integers(switches),
        known=Known(
            in_use=integers(1),
            filled=integers(1),
            key=integers(_KNOWN),
            end=integers(_KNOWN + 1),
            members=np.zeros(_KNOWN_WHOLE * switches, np.int32),
            parent=np.zeros(_KNOWN_WHOLE * switches, np.int32),
        ),
    )


class EncodingTask(NamedTuple):
    """One publication: who sends to whom, over what.

    entry: the port that the publisher's frames come in by, in word ``entry_word``. order: the
    stored trees, as ties between them are settled. rotation: where switches begin among their
    links. effort: how many delivery trees may be tried at each step of the refined algorithm.
    """

    links: Links
    forest: Forest
    work: Work
    root: int
    entry: int
    entry_word: int
    terminals: Integers
    rotation: int
    order: Integers
    effort: int
    all_up_to: int
    looked_at: int
