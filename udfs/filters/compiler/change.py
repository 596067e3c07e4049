"""The change that an edit of a rule set makes to the tables, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.levels import Levels
from stackcast.udfs.filters.compiler.tables import ENTRY, CompiledFilter, leaf_row


@dataclass(frozen=True)
class TableChange:
    """Holds the change of the tables by an update.

    compiled, previous: the filter now and before; None before the first update.
    added, changed: rows of ``compiled.entries``; a changed row was there with another next state.
    removed: rows of ``previous.entries``.
    leaves_added, leaves_changed, leaves_removed: int32, states of leaves; those changed were there
        with another outcome.
    """

    compiled: CompiledFilter
    previous: CompiledFilter | None
    added: NDArray[Any]
    removed: NDArray[Any]
    changed: NDArray[Any]
    leaves_added: NDArray[np.int32]
    leaves_removed: NDArray[np.int32]
    leaves_changed: NDArray[np.int32]

    @property
    def size(self) -> int:
        """The number of rows, of entries and of leaves, that are touched."""
        entries = len(self.added) + len(self.removed) + len(self.changed)
        leaves = len(self.leaves_added) + len(self.leaves_removed) + len(self.leaves_changed)
        return entries + leaves

    def entry_rows(self) -> dict[str, Iterator[dict[str, Any]]]:
        """Returns rows of table ``filter_entries`` by ``added``, ``removed`` and ``changed``."""
        before = self.previous or self.compiled
        return {
            "added": self.compiled.rows_of(self.added),
            "removed": before.rows_of(self.removed),
            "changed": self.compiled.rows_of(self.changed),
        }

    def leaf_rows(self) -> dict[str, list[dict[str, Any]]]:
        """Returns rows of table ``filter_leaves`` by ``added``, ``removed`` and ``changed``."""
        now, before = self.compiled.outcomes, (self.previous or self.compiled).outcomes
        return {
            "added": [leaf_row(s, now[s]) for s in self.leaves_added.tolist()],
            "removed": [leaf_row(s, before[s]) for s in self.leaves_removed.tolist()],
            "changed": [leaf_row(s, now[s]) for s in self.leaves_changed.tolist()],
        }


def table_change(
    compiled: CompiledFilter,
    previous: CompiledFilter | None,
    levels: Levels,
    made: NDArray[Any],
    lost: NDArray[Any],
    leaves: NDArray[np.int32],
    gone: NDArray[np.int32],
) -> TableChange:
    """Compares the rows (``field`` is the level) and the leaves of states that are new with those
    of states that are gone."""
    if previous is None:
        none, no_states = np.empty(0, ENTRY), np.empty(0, np.int32)
        return TableChange(
            compiled, None, compiled.entries, none, none, leaves, no_states, no_states
        )
    both = [_with_fields(made, levels, compiled), _with_fields(lost, levels, previous)]
    # By name: a field that is new moves those behind it.
    codes = [
        np.array([levels.of_name[name] for name in filter_.fields], np.uint16)
        for filter_ in (compiled, previous)
    ]
    return TableChange(
        compiled,
        previous,
        *compared(both[0], both[1], codes[0], codes[1]),
        np.setdiff1d(leaves, gone),
        np.setdiff1d(gone, leaves),
        np.intersect1d(leaves, gone),
    )


def _with_fields(entries: NDArray[Any], levels: Levels, compiled: CompiledFilter) -> NDArray[Any]:
    """Numbers entries by the filter's fields in place of levels."""
    number = {name: at for at, name in enumerate(compiled.fields)}
    of_level = np.array([number.get(name, 0) for name in levels.names], np.uint16)
    entries["field"] = of_level[entries["field"]]
    return entries


_KEY = np.dtype([(name, ENTRY[name]) for name in ("field", "state", "low", "high", "kind")])


def compared(
    made: NDArray[Any],
    lost: NDArray[Any],
    made_level: NDArray[np.uint16],
    lost_level: NDArray[np.uint16],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns rows that are added, removed, and changed in their next state alone."""
    new, old = _keys(made, made_level), _keys(lost, lost_level)
    order = np.argsort(old)
    at = np.searchsorted(old, new, sorter=order)
    held = np.zeros(len(new), np.bool_)
    inside = at < len(old)
    match = order[at[inside]]
    held[inside] = old[match] == new[inside]
    match = match[held[inside]]
    changed = held.copy()
    changed[held] = lost["next"][match] != made["next"][held]
    left = np.ones(len(old), np.bool_)
    left[match] = False
    return made[~held], lost[left], made[changed]


def _keys(entries: NDArray[Any], level: NDArray[np.uint16]) -> NDArray[Any]:
    keys = np.empty(len(entries), _KEY)
    for name in _KEY.names or ():
        keys[name] = entries[name]
    keys["field"] = level[entries["field"]]
    # Of one length, so that nothing is lost by the zeros that numpy takes off at the end.
    return keys.view(f"S{_KEY.itemsize}")
