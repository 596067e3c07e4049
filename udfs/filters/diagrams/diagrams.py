"""Reduced ordered multi-terminal interval decision diagrams, all of one pool.

A node tests one field and sends disjoint intervals of its values, which cover the domain, to
children at later fields; where the field may be absent, it has a child for that too. A leaf is a
set of tokens (who or what an event reaches). This is the diagram of CAMUS 3.2 with the
predicates of one field drawn as one node, and its three reductions hold by
construction: equal nodes are one (hash-consing), a node whose children are all equal is its child,
and no interval is empty or implied. So two diagrams are the same function if and only if they are
the same number, however they were made.

The diagram of many terms is the union of theirs, two by two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.diagrams import kernels as diagram_kernels
from stackcast.udfs.filters.diagrams import pool as diagram_pool
from stackcast.udfs.filters.diagrams import token_sets, walks
from stackcast.udfs.filters.diagrams.pool import DROPPED, NOBODY, Moved, Pool, Reachable

__all__ = ["DROPPED", "NOBODY", "Diagrams", "Moved", "Reachable"]

_WORK_PER_ROW = 64
"""Mean rows read for each row that the limit allows."""
_MAX_CACHE = 1 << 22
_LARGEST_ID = 2**31 - 2
_MEMBERS_AT_ONCE = 1 << 21


class Diagrams:
    """A pool of diagrams over the same levels and tokens.

    Ids are int32: inner nodes from 0, leaves below 0, ``NOBODY`` (-1) the leaf without tokens.
    An id stays until ``compact``. Not for several threads at once.

    Parameters
    ----------
    maxima: greatest value of each level, at most 2**64 - 1; level 0 is tested first.
    optional: True where a level's field may be absent.
    tokens: leaves are sets of 0..tokens - 1.
    max_rows: rows the pool may hold, those that no longer serve included. Errors of all
        methods that make nodes: ``FilterError`` TOO_LARGE beyond it, or for work out
        of all proportion to it; what was made before stays.
    capacity: nodes that it can hold at first.
    """

    def __init__(
        self,
        maxima: Sequence[int],
        optional: Sequence[bool],
        tokens: int,
        max_rows: int,
        *,
        capacity: int = 4096,
    ) -> None:
        height = 0
        while tokens > 64 << height:
            height += 1
        self.tokens = tokens
        self.max_rows = max_rows
        self._width = 1 << height
        counters = np.zeros(diagram_pool.COUNTERS, np.int64)
        counters[diagram_pool.SETS] = 1
        counters[diagram_pool.HEIGHT] = height
        counters[diagram_pool.MAX_ROWS] = min(max_rows, _LARGEST_ID)
        counters[diagram_pool.MAX_SETS] = min(8 * max_rows + 32 * (tokens + 64), _LARGEST_ID)
        counters[diagram_pool.MAX_WORK] = _WORK_PER_ROW * (max_rows + 1024)
        self._pool = Pool(
            maxima=np.array(maxima, np.uint64),
            optional=np.array(optional, np.uint8),
            counters=counters,
            node_level=np.empty(0, np.int32),
            node_start=np.zeros(1, np.int64),
            node_absent=np.empty(0, np.int32),
            node_hash=np.empty(0, np.uint32),
            node_table=np.zeros(1, np.int32),
            row_low=np.empty(0, np.uint64),
            row_child=np.empty(0, np.int32),
            set_key=np.zeros(1, np.uint64),
            set_height=np.zeros(1, np.uint8),
            set_table=np.zeros(1, np.int32),
            cache=np.zeros(4, np.int32),
            stack=np.empty(diagram_kernels.FRAME * 8, np.int64),
            scratch_low=np.empty(max(capacity, 2), np.uint64),
            scratch_child=np.empty(max(capacity, 2), np.int32),
            set_stack=np.empty(4 * (height + 1), np.int64),
        )
        self._members: dict[int, tuple[int, ...]] = {}
        self._resize(nodes=capacity, rows=2 * capacity, sets=capacity)

    @property
    def pool(self) -> Pool:
        """The arrays as they are now (``diagram_pool``); replaced as the pool grows."""
        return self._pool

    @property
    def node_count(self) -> int:
        return int(self._pool.counters[diagram_pool.NODES])

    @property
    def row_count(self) -> int:
        return int(self._pool.counters[diagram_pool.ROWS])

    @property
    def nbytes(self) -> int:
        """The bytes of the pool, spare capacity and the cache included."""
        return sum(array.nbytes for array in self._pool)

    def leaf(self, tokens: Iterable[int]) -> int:
        """Returns the leaf of a set of tokens."""
        words = [0] * self._width
        for token in tokens:
            if not 0 <= token < self.tokens:
                raise ValueError(f"token {token} is not below {self.tokens}")
            words[token >> 6] |= 1 << (token & 63)
        return self._grown(
            lambda: int(token_sets.leaf(self._pool, np.array(words, np.uint64))),
            lambda made: made != diagram_pool.FAILED,
        )

    def members(self, leaf: int) -> tuple[int, ...]:
        """Returns the tokens of a leaf, ascending."""
        found = self._members.get(leaf)
        if found is None:
            _, tokens = self.members_of(np.array([leaf], np.int32))
            found = self._members[leaf] = tuple(tokens.tolist())
        return found

    def members_of(self, leaves: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Returns the tokens of leaves as start, tokens: ``tokens[start[i]:start[i + 1]]`` of leaf
        i."""
        counts: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        tokens: list[NDArray[np.int32]] = [np.empty(0, np.int32)]
        height = int(self._pool.counters[diagram_pool.HEIGHT])
        step = max(_MEMBERS_AT_ONCE // self._width, 1)
        for begin in range(0, len(leaves), step):
            part = leaves[begin : begin + step]
            words = np.zeros((len(part), self._width), "<u8")
            walks.sets_words(self._pool, part, height, words)
            bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
            counts.append(bits.sum(axis=1, dtype=np.int64))
            tokens.append(np.nonzero(bits)[1].astype(np.int32))
        return np.cumsum(np.concatenate(counts)), np.concatenate(tokens)

    def tokens_in(self, leaves: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns the tokens that are in any of many leaves, ascending."""
        found: NDArray[np.int64] = walks.tokens_in(self._pool, leaves)
        return found

    def rows(self, node: int) -> tuple[int, list[int], list[int], int | None]:
        """Returns level, first value of each row, child of each row, and the child for an absent
        field (None where the level is not optional) of an inner node."""
        pool = self._pool
        part = slice(int(pool.node_start[node]), int(pool.node_start[node + 1]))
        level = int(pool.node_level[node])
        absent = int(pool.node_absent[node]) if pool.optional[level] else None
        return level, pool.row_low[part].tolist(), pool.row_child[part].tolist(), absent

    def terms(
        self,
        term_start: NDArray[np.int64],
        level: NDArray[np.int32],
        interval_start: NDArray[np.int64],
        low: NDArray[np.uint64],
        high: NDArray[np.uint64],
        leaf: NDArray[np.int32],
    ) -> NDArray[np.int32]:
        """Makes the diagram of each of t terms, which has the leaf where all its constraints hold.

        term_start: int64[t + 1] into level (int32[c], ascending within a term).
        interval_start: int64[c + 1] into low and high (uint64[i], both included, within the
            level's maximum; ascending, disjoint and not adjacent within a constraint).
        leaf: int32[t]. Returns int32[t]. An absent field makes a term that names it false.
        """
        roots = np.empty(len(leaf), np.int32)

        def run(begin: int) -> int:
            return int(
                diagram_kernels.terms(
                    self._pool, begin, term_start, level, interval_start, low, high, leaf, roots
                )
            )

        self._resumed(run, len(roots))
        return roots

    def union(self, a: int, b: int) -> int:
        """Returns the diagram that gives every event the tokens of both."""
        tree = np.array([NOBODY, NOBODY, a, b], np.int32)
        self.repair(tree, np.ones(1, np.int64))
        return int(tree[1])

    def union_all(self, roots: NDArray[np.int32]) -> int:
        """Returns the union of many, two by two, neighbours first: put like terms side by side."""
        if not len(roots):
            return NOBODY
        width = 1 << (len(roots) - 1).bit_length()
        tree = np.full(2 * width, NOBODY, np.int32)
        tree[width : width + len(roots)] = roots
        self.repair(tree, np.arange(width - 1, 0, -1, dtype=np.int64))
        return int(tree[1])

    def repair(self, tree: NDArray[np.int32], places: NDArray[np.int64]) -> None:
        """Unites the two below each place of a heap (children of p: 2p, 2p + 1), in that order."""
        self._resumed(
            lambda begin: int(diagram_kernels.unite(self._pool, begin, tree, places)), len(places)
        )

    def reachable(self, root: int) -> Reachable:
        """Returns all nodes, rows and leaves below a root."""
        pool = self._pool
        counters = pool.counters
        position = np.full(counters[diagram_pool.NODES], -1, np.int32)
        leaf_position = np.full(counters[diagram_pool.SETS], -1, np.int32)
        nodes = np.empty(len(position), np.int32)
        leaves = np.empty(len(leaf_position), np.int32)
        count, leaf_count, row_count = walks.reach(
            pool, root, position, leaf_position, nodes, leaves
        )
        nodes = nodes[:count].copy()
        row_start = np.empty(count + 1, np.int64)
        low, high = np.empty(row_count, np.uint64), np.empty(row_count, np.uint64)
        child = np.empty(row_count, np.int32)
        walks.copy_rows(pool, nodes, row_start, low, high, child)
        return Reachable(
            nodes=nodes,
            level=pool.node_level[nodes],
            absent=pool.node_absent[nodes],
            row_start=row_start,
            low=low,
            high=high,
            child=child,
            leaves=leaves[:leaf_count].copy(),
            position=position,
            leaf_position=leaf_position,
        )

    def compact(self, keep: NDArray[np.int32]) -> Moved:
        """Keeps only nodes and leaves below the diagrams ``keep``; every id changes. See
        ``Moved``."""
        pool = self._pool
        counters = pool.counters
        new_node = np.full(counters[diagram_pool.NODES], -1, np.int32)
        new_set = np.full(counters[diagram_pool.SETS], -1, np.int32)
        walks.compact(pool, keep, new_node, new_set)
        with np.errstate(over="ignore"):
            walks.rehash_nodes(pool)
        pool.cache[:] = 0
        self._members.clear()
        self._resize(
            nodes=2 * int(counters[diagram_pool.NODES]),
            rows=2 * int(counters[diagram_pool.ROWS]),
            sets=2 * int(counters[diagram_pool.SETS]),
        )
        # Parts of sets are no leaves, but their numbers cannot be asked for.
        moved_leaves = np.where(new_set < 0, DROPPED, -1 - new_set).astype(np.int32)
        moved_nodes = np.where(new_node < 0, DROPPED, new_node).astype(np.int32)
        return Moved(moved_nodes, moved_leaves)

    def change_levels(
        self, place: NDArray[np.int32], maxima: Sequence[int], optional: Sequence[bool]
    ) -> None:
        """Goes over to the levels ``maxima`` and ``optional``, of which old level i is
        ``place[i]``.

        ``place`` ascends, but for -1 where no node of the pool tests the old level, which is
        dropped. What was optional stays so. All ids stay.
        """
        level = self._pool.node_level[: self.node_count]
        level[:] = place[level]
        self._pool = self._pool._replace(
            maxima=np.array(maxima, np.uint64), optional=np.array(optional, np.uint8)
        )
        self._enter_again()

    def add_tokens(self, tokens: int) -> Moved:
        """Grows to at least ``tokens`` tokens. All leaves but nobody's change their ids."""
        counters = self._pool.counters
        height = int(counters[diagram_pool.HEIGHT])
        moved = np.arange(int(counters[diagram_pool.SETS]), dtype=np.int64)
        while tokens > 64 << height:
            self._resize(sets=2 * int(counters[diagram_pool.SETS]))
            walks.double_leaves(self._pool, moved)
            height += 1
        self.tokens = max(tokens, self.tokens)
        self._width = 1 << height
        self._members.clear()
        result = Moved(np.arange(self.node_count, dtype=np.int32), (-1 - moved).astype(np.int32))
        pool = self._pool = self._pool._replace(set_stack=np.empty(4 * (height + 1), np.int64))
        for children in (pool.row_child[: self.row_count], pool.node_absent[: self.node_count]):
            children[:] = result.of(children)
        pool.cache[:] = 0
        self._resize(sets=len(pool.set_key))
        self._enter_again()
        return result

    def _enter_again(self) -> None:
        """Enters nodes into the table by their present levels and children."""
        with np.errstate(over="ignore"):
            walks.rehash_nodes(self._pool)
        self._resize(nodes=len(self._pool.node_level))

    def _resumed(self, run: Callable[[int], int], end: int) -> None:
        """Runs a kernel that returns the place it stopped at, until it is at the end."""
        self._pool.counters[diagram_pool.WORK] = 0
        begin = 0
        while True:
            with np.errstate(over="ignore"):
                begin = run(begin)
            if begin == end:
                return
            self._grow()

    def _grown(self, run: Callable[[], int], done: Callable[[int], bool]) -> int:
        """Runs a kernel until the pool is large enough for it."""
        self._pool.counters[diagram_pool.WORK] = 0
        while True:
            with np.errstate(over="ignore"):
                result = run()
            if done(result):
                return result
            self._grow()

    def _grow(self) -> None:
        """Doubles the arrays that the last kernel found full."""
        pool, need = self._pool, int(self._pool.counters[diagram_pool.NEED])
        if need == diagram_pool.NEED_LESS:
            raise FilterError(
                "TOO_LARGE",
                f"the subscriptions need more than {self.max_rows} table entries, because rules "
                "that compare different fields, or several fields with many constants, multiply: "
                "use fewer distinct constants, or have each rule name the stock",
                max_entries=self.max_rows,
            )
        if need == diagram_pool.NEED_STACK:
            self._pool = pool._replace(stack=_longer(pool.stack))
        elif need == diagram_pool.NEED_SCRATCH:
            self._pool = pool._replace(
                scratch_low=_longer(pool.scratch_low), scratch_child=_longer(pool.scratch_child)
            )
        elif need == diagram_pool.NEED_NODES:
            self._resize(nodes=2 * len(pool.node_level))
        elif need == diagram_pool.NEED_ROWS:
            self._resize(rows=2 * len(pool.row_low))
        else:
            self._resize(sets=2 * len(pool.set_key))

    def _resize(
        self, nodes: int | None = None, rows: int | None = None, sets: int | None = None
    ) -> None:
        """Changes the capacity (None: as before), with the tables and the cache to suit."""
        pool = self._pool
        made, made_rows, made_sets = (int(x) for x in pool.counters[: diagram_pool.SETS + 1])
        if nodes is not None:
            size = 1 << (max(nodes, 16) - 1).bit_length()
            table = np.zeros(2 * size, np.int32)
            node_hash = _resized(pool.node_hash, made, size)
            walks.enter_nodes(node_hash, made, table)
            cache = np.zeros(4 * min(size, _MAX_CACHE), np.int32)
            with np.errstate(over="ignore"):
                walks.enter_unions(pool.cache, cache)
            pool = pool._replace(
                node_level=_resized(pool.node_level, made, size),
                node_start=_resized(pool.node_start, made + 1, size + 1),
                node_absent=_resized(pool.node_absent, made, size),
                node_hash=node_hash,
                node_table=table,
                cache=cache,
            )
        if rows is not None:
            size = max(rows, 16)
            pool = pool._replace(
                row_low=_resized(pool.row_low, made_rows, size),
                row_child=_resized(pool.row_child, made_rows, size),
            )
        if sets is not None:
            size = 1 << (max(sets, 16) - 1).bit_length()
            table = np.zeros(2 * size, np.int32)
            set_key = _resized(pool.set_key, made_sets, size)
            set_height = _resized(pool.set_height, made_sets, size)
            with np.errstate(over="ignore"):
                walks.enter_sets(set_key, set_height, made_sets, table)
            pool = pool._replace(set_key=set_key, set_height=set_height, set_table=table)
        self._pool = pool


def _resized(array: NDArray[Any], count: int, size: int) -> NDArray[Any]:
    """Copies the first ``count`` items into an array of another size."""
    result = np.empty(size, array.dtype)
    result[:count] = array[:count]
    return result


def _longer(array: NDArray[Any]) -> NDArray[Any]:
    return np.empty(2 * len(array), array.dtype)
