"""Publishes versions that all switches hold, so that streams use them, and moves trees on."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence

from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.switches.derive import Derived
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.jobs.adapters.tables.changes import committed_at
from stackcast.jobs.adapters.tables.edits import change_tree_states
from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions, waited
from stackcast.jobs.adapters.tables.tables import TREES, Tables
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches import rollout
from stackcast.udfs.switches.rollout import Versions

log = logging.getLogger(__name__)


class Publisher:
    """Says in `network_versions` what is ready, and in `virtual_trees` what became of trees."""

    def __init__(
        self,
        tables: Tables,
        network: NetworkTables,
        versions: NetworkVersions,
        metrics: SwitchMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._tables = tables
        self._network = network
        self._versions = versions
        self._metrics = metrics
        self._published: Derived | None = None

    def publish(self, derived: Derived) -> None:
        """Says that the versions of ``derived`` are ready, as all switches hold its rows.

        Does nothing where that is done, where those versions were refused, and where a switch
        cannot hold all of it.
        """
        if derived is self._published or derived.source is None or derived.over_capacity:
            return
        ready = self._versions.newest(derived.versions)
        if ready is None or rollout.age(ready) < rollout.age(derived.versions):
            self._say_ready(derived, ready)
        if self._network.current() == derived.versions:
            self._move_trees(derived.versions, derived.source.trees)
        self._published = derived

    def _say_ready(self, derived: Derived, before: Versions | None) -> None:
        assert derived.version is not None
        committed_at = self._committed_at(derived.versions, before)
        ready_at = utc(self._clock)
        self._versions.publish(derived.versions, derived.version, committed_at, ready_at)
        changed = derived.versions.items() - (before or {}).items()
        after = ""
        if committed_at is not None and before is not None:
            seconds = waited(committed_at, ready_at)
            self._metrics.ready(seconds)
            after = f", {seconds:.2f} s after the commit of the edit"
        log.info(
            "all switches are ready for %s%s",
            ", ".join(f"{name}@{version}" for name, version in sorted(changed)),
            after,
        )

    def _committed_at(self, versions: Versions, before: Versions | None) -> dt.datetime | None:
        """Returns when the oldest edit that ``versions`` bring was committed; without any before
        them, the newest."""
        if before is None:
            times = [committed_at(self._tables, name, v) for name, v in versions.items()]
            return max((time for time in times if time), default=None)
        times = [
            committed_at(self._tables, name, before[name] + 1)
            for name, version in versions.items()
            if version > before[name]
        ]
        return min((time for time in times if time), default=None)

    def _move_trees(self, versions: Versions, trees: Sequence[VirtualTree]) -> None:
        """Trees that all switches hold become active; those that nobody names are retired."""
        due = {tree.id: tree.state for tree in trees}
        if not {"installing", "retiring"} & set(due.values()):
            return
        using = self._network.older(self._versions.in_use(versions))
        moved = rollout.next_states(trees, [source.trees for source in using.sources])
        if using.gone:  # they may name any tree
            moved = {tree: state for tree, state in moved.items() if state != "retired"}
        if not moved:
            return
        moves = {tree: (due[tree], state) for tree, state in moved.items()}
        if not change_tree_states(self._tables, moves, versions[TREES]):
            return  # somebody edits them: what was derived from is old
        for tree, state in sorted(moved.items()):
            log.info("virtual tree %d is %s; %s", tree, state, named(versions))
