"""The change of a retuning is written to `virtual_trees`, step by step.

Everything is worked out from tables, so a run that was cut off is gone on with by running again.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.retune.deployment import Deployment, read_deployment
from stackcast.jobs.adapters.retune.options import RetuneOptions
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.tables.changes import committed_at
from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions
from stackcast.jobs.adapters.tables.tables import TREES, Tables
from stackcast.udfs.errors import TableError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import tree_from_row, tree_to_row
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.retuning.steps import TreeStep, Wanted, next_step
from stackcast.udfs.switches.rollout import free_ids
from stackcast.udfs.trees.strategies.strategy import Edges

log = logging.getLogger(__name__)

#: Times that a commit is tried again after somebody else wrote the table.
_TRIES = 5


class TreeWriter:
    """Writes by `step` until nothing is left."""

    def __init__(
        self,
        tables: Tables,
        settings: Settings,
        options: RetuneOptions,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tables, self._settings, self._options = tables, settings, options
        self._clock = clock

    def look(self, wanted: Wanted) -> TreeStep:
        """Returns what is to be written next, by the tables as they are now."""
        version = self._tables.version(TREES)
        now = self._read()
        free = self._free_ids(now.network, now.trees, wanted, version)
        return next_step(now.network, now.trees, wanted, now.budget, free)

    def step(self, wanted: Wanted, may_write: Callable[[], object] = lambda: None) -> TreeStep:
        """Write what is next, in one commit, if anything; returns it.

        Where somebody else writes the table meanwhile, it is read again. ``may_write`` is called
        between reading and writing, and raises where we are not to write any more: whoever is to
        write in our place and has written by then is found out by the commit.
        """
        for tried in range(_TRIES):
            version = self._tables.version(TREES)
            rows = {row["tree_id"]: row for row in self._tables.rows(TREES, version)}
            now = self._read()
            trees = [tree_from_row(row) for row in rows.values()]
            free = self._free_ids(now.network, trees, wanted, version)
            step = next_step(now.network, trees, wanted, now.budget, free)
            changed = {n: rows[n] | {"state": after} for n, (_, after) in step.moved.items()}
            changed |= {tree.id: self._row(tree, rows) for tree in step.installed}
            may_write()
            try:
                written = [*changed.values()]
                if not written or self._tables.merge(TREES, written, [], ("tree_id",), version):
                    return step
            except StorageError as error:
                if tried == _TRIES - 1 or not error.conflict:
                    raise
                log.warning("another writer changed table %s: %s", TREES, one_line(error))
            log.warning("another writer changed table %s, which is read again", TREES)
        raise TableError("BUSY", f"other writers keep changing table {TREES}: try again later")

    def _free_ids(
        self, network: Network, trees: Sequence[VirtualTree], wanted: Wanted, version: int
    ) -> set[int]:
        """Returns the ids of retired trees to give again, if there may not be new ones enough:
        those that have been retired for the quarantine, and that nothing in use holds."""
        above = network.labels.max_id - max((tree.id for tree in trees), default=0)
        if len(wanted) <= above:
            return set()
        long = self._retired_before(utc(self._clock) - self._options.quarantine, version)
        source = NetworkTables(self._tables, labels=self._settings.labels)
        older = source.older(NetworkVersions(self._tables).in_use(source.consistent()))
        if older.gone:  # they may name any tree
            return set()
        return free_ids((tree for tree in trees if long.get(tree.id) == tree.edges), older.sources)

    def _retired_before(self, time: dt.datetime, version: int) -> dict[int, Edges]:
        """Returns the trees, by id, that were retired in the newest version before ``time``."""
        first, after = 0, version + 1
        while first < after:
            between = (first + after) // 2
            committed = committed_at(self._tables, TREES, between)
            if committed is None or committed <= time:
                first = between + 1
            else:
                after = between
        if not first:
            return {}
        try:
            rows = self._tables.rows(TREES, first - 1)
        except StorageError as error:
            if not error.gone:
                raise
            return {}
        found = [tree_from_row(row) for row in rows]
        return {tree.id: tree.edges for tree in found if tree.state == "retired"}

    @staticmethod
    def _row(tree: VirtualTree, rows: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """With the columns that somebody may have added to the table, empty."""
        others = next(iter(rows.values()), {})
        return dict.fromkeys(others) | tree_to_row(tree)

    def _read(self) -> Deployment:
        return read_deployment(self._tables, self._settings, self._options.rules)
