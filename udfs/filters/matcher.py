"""The compiled rows over columns: messages in, leaves out, no Python statement a message."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from udfs.filters.compile import KINDS, CompiledFilter
from udfs.filters.kernels import walk

_DEFAULT = KINDS.index("default")


class Matcher:
    """Finds the leaf of each message by the rows of a ``CompiledFilter`` and nothing else.

    fields: qualified names whose raw values ``match`` takes, in this order.
    receivers: by leaf index; index 0 is always nobody, ``()``.
    states: int32, by leaf index, the leaf's state in the tables.

    Holds numpy arrays and tuples only, so it pickles to executors.
    """

    fields: tuple[str, ...]
    receivers: list[tuple[str, ...]]
    states: NDArray[np.int32]

    def __init__(self, compiled: CompiledFilter) -> None:
        self.fields = compiled.fields[1:]
        leaves = sorted(compiled.leaves, key=lambda s: (compiled.leaves[s] != (), s))
        self.states = np.array(leaves, np.int32)
        self.receivers = [compiled.leaves[state] for state in leaves]
        count = max(leaves) + 1
        self._leaf = np.zeros(count, np.int32)
        self._leaf[self.states] = np.arange(len(leaves), dtype=np.int32)

        entries = compiled.entries
        typed = entries["field"] == 0
        self._first_state = _after_message_type(entries[typed], compiled.root)
        lanes = entries[~typed]
        is_default = lanes["kind"] == _DEFAULT
        rows = lanes[~is_default]
        # States are numbered table by table, so rows sorted by table are sorted by state.
        self._begin = np.searchsorted(rows["state"], np.arange(count + 1)).astype(np.int32)
        self._low, self._high, self._next = (
            np.ascontiguousarray(rows[name]) for name in ("low", "high", "next")
        )
        defaults = lanes[is_default]
        self._default = np.full(count, -1, np.int32)
        self._default[defaults["state"]] = defaults["next"]
        self._lane = np.full(count, -1, np.int32)
        self._lane[defaults["state"]] = defaults["field"].astype(np.int32) - 1

    def match(
        self, message_type: NDArray[np.uint8], values: NDArray[np.uint64]
    ) -> NDArray[np.int32]:
        """Leaf index of each message: int32[m].

        ``message_type``: uint8[m]. ``values``: uint64[len(fields), m] raw values; what
        stands there for fields of absent headers is not read. Messages that could not be
        decoded are for the caller to leave out.
        """
        shape = (len(self.fields), len(message_type))
        if values.shape != shape:
            raise ValueError(f"values has shape {values.shape}, {shape} is expected")
        # One layout and writeable: otherwise numba compiles the kernel once more.
        states = walk(
            np.require(message_type, np.uint8, ["C", "W"]),
            np.require(values, np.uint64, ["C", "W"]),
            self._first_state,
            self._lane,
            self._begin,
            self._default,
            self._low,
            self._high,
            self._next,
        )
        leaves: NDArray[np.int32] = self._leaf[states]
        return leaves


def _after_message_type(rows: NDArray[np.void], root: int) -> NDArray[np.int32]:
    """int32[256]: the state after the first table, by message type."""
    if not len(rows):
        return np.full(256, root, np.int32)
    states = np.full(256, rows["next"][rows["kind"] == _DEFAULT][0], np.int32)
    for row in rows[rows["kind"] != _DEFAULT]:
        states[int(row["low"]) : int(row["high"]) + 1] = row["next"]
    return states
