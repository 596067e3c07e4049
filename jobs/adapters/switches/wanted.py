"""Entries that one set of versions of the tables asks of the switches.

Switches hold what those versions say, and what stacks of versions in use may name:
`stackcast.udfs.switches.rollout` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stackcast.jobs.adapters.switches.filters import NetworkMatch, check_pipelines
from stackcast.jobs.adapters.switches.program import Programs
from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions
from stackcast.jobs.adapters.tables.tables import GRANTS, SENIORITY, Tables
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches import capacity, rollout
from stackcast.udfs.switches.derivation import Memo, derive
from stackcast.udfs.switches.entry import SwitchEntry, entry_from_row
from stackcast.udfs.switches.rollout import DesiredEntries, NetworkVersion, Versions

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Wanted:
    """Holds what switches should hold for some versions.

    source: what the versions say. switches: rows of that table. entries: those of all switches.
    over_capacity: switches that cannot hold theirs, and why: they keep what they have. in_use: the
    versions that stacks may name.
    """

    source: NetworkVersion
    switches: Rows
    entries: DesiredEntries
    over_capacity: Mapping[str, SwitchError]
    in_use: Sequence[Versions]


class WantedEntries:
    """Works out entries from tables; only reads, tables and programs alike.

    network: the tables that decide. match: what makes filters where the switches match; None where
    the stream does.
    """

    def __init__(
        self,
        tables: Tables,
        network: NetworkTables,
        versions: NetworkVersions,
        match: NetworkMatch | None,
        programs: Programs,
    ) -> None:
        self._tables = tables
        self._network = network
        self._versions = versions
        self._match = match
        self._programs = programs
        self._memo: Memo = {}

    def at(self, versions: Versions, current: Versions) -> Wanted:
        """Returns what ``versions`` ask of switches, while the tables are at ``current`` ones.

        Raises NetworkError, FilterError, AttributeTableError, SwitchError: they cannot be used.
        """
        source = self._network.source(versions)
        in_use = self._versions.in_use(current)
        # The newest first: where two contradict each other, that stands.
        older = self._network.older([other for other in reversed(in_use) if other != versions])
        rollout.check_meaning(source, older.sources)
        held = self._network.rows("switch_entries", self._tables.version("switch_entries"))
        unread = [entry_from_row(row) for row in held] if older.gone else []
        switches = self._network.rows("switches", versions["switches"])
        pipelines = {row["switch"]: row["pipeline"] for row in switches}
        tables = {name: self._programs.tables(name) for name in set(pipelines.values())}
        filters = self._filters(source, versions, pipelines, held)
        entries = derive(source, older.sources, pipelines, tables, filters, unread, self._memo)
        limits = {
            row["switch"]: capacity.Limits(
                self._programs.sizes(row["pipeline"]), row["max_rules"], row["max_groups"]
            )
            for row in switches
        }
        beyond = capacity.over_capacity(entries.entries, limits)
        if not beyond:
            return Wanted(source, switches, entries, {}, in_use)
        newest = derive(source, [], pipelines, tables, filters).entries
        errors = {
            switch: capacity.capacity_error(switch, limits_hit, newest, entries.entries)
            for switch, limits_hit in beyond.items()
        }
        standing = [entry_from_row(row) for row in held]
        kept = capacity.keep_standing(entries, beyond.keys(), standing)
        return Wanted(source, switches, kept, errors, in_use)

    def _filters(
        self, source: NetworkVersion, versions: Versions, pipelines: Mapping[str, str], held: Rows
    ) -> list[SwitchEntry]:
        """Returns the entries that match events; none where the stream does that."""
        if self._match is None:
            check_pipelines(pipelines, source.network.labels)
            return []
        subscriptions, attributes, grants = (
            self._network.rows(name, versions[name]) if name in versions else []
            for name in ("subscriptions", "attributes", GRANTS)
        )
        seniority = partial(self._network.rows, SENIORITY, versions[SENIORITY])
        return self._match.entries(
            *(source.network, versions, subscriptions, held, pipelines, attributes, grants),
            seniority,
        )
