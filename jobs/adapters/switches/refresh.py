"""Keep `switch_entries` in step with the tables, the switches with `switch_entries`, and say so.

Idempotent: a switch is read, the difference to the table is written, and it is read again. So it
does not matter what the switch held before, or whether an earlier refresh was cut off. What may
be used and what may go, and when, decides `udfs.switches.rollout`.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.adapters.app.error_texts import SQL_ERRORS, gone_for_good, one_line
from jobs.adapters.app.logs import named
from jobs.adapters.app.settings import Settings
from jobs.adapters.switches.credentials import Credentials
from jobs.adapters.switches.filters import REGISTRY, NetworkMatch, check_pipelines
from jobs.adapters.switches.filters import SOURCE as SUBSCRIPTIONS
from jobs.adapters.switches.metrics import SwitchMetrics
from jobs.adapters.switches.session import RefreshResult, SwitchSession
from jobs.adapters.switches.sessions import OpenSession, SwitchSessions
from jobs.adapters.tables.network_tables import NetworkTables
from jobs.adapters.tables.network_versions import SOURCES, TABLE, NetworkVersions, waited
from jobs.adapters.tables.tables import LEDGER, Tables
from udfs.errors import AttributeTableError, FilterError, NetworkError, SwitchError
from udfs.switches import capacity, rollout
from udfs.switches.derivation import Memo, derive
from udfs.switches.entry import Difference, SwitchEntry, entry_from_row, entry_to_row
from udfs.switches.rollout import Source, Union, Versions

log = logging.getLogger(__name__)

ENTRIES = "switch_entries"
#: How often the ledger is looked at while something waits for it, and most seconds between.
DRAIN_SECONDS = 1.0
LONGEST_DRAIN_SECONDS = 30.0
#: What `Refresher.derive` raises for what people wrote into the tables.
UNUSABLE = (NetworkError, AttributeTableError, FilterError, SwitchError)


@dataclass(frozen=True)
class _Derived:
    """What `Refresher.derive` came to: ``versions`` of the sources, what they say, and the
    ``version`` of `switch_entries` that came of it. complete: every switch has room for it."""

    versions: Versions
    source: Source
    version: int
    complete: bool


@dataclass(frozen=True)
class _Wanted:
    """What a source asks of switches; no_room: those of them that cannot hold it, and why."""

    source: Source
    union: Union
    no_room: dict[str, SwitchError]


class Refresher:
    """Refreshes the switches of one deployment. A context manager; `close` ends its connections.

    Where the switches match (``spark.stackcast.match``), subscriptions are a source, too, and so
    are attributes where events are of these.

    Not for several threads at once. derived_from: versions of the sources that `derive` last read,
    whether they could be used or not. version: of `switch_entries`, as `derive` last left it; None
    before. election_id: that of the settings by default.
    """

    def __init__(
        self,
        tables: Tables,
        settings: Settings,
        given_up: Callable[[], bool] = lambda: False,
        election_id: int | None = None,
        open_session: OpenSession | None = None,
    ) -> None:
        self._tables = tables
        self._match = NetworkMatch(settings) if settings.match == "network" else None
        sources = SOURCES if self._match is None else (*SOURCES, *self._match.sources)
        self._network = NetworkTables(tables, sources, settings.labels)
        self._versions = NetworkVersions(tables)
        self._patience = float(settings.wait_seconds)
        own = settings.election_id if election_id is None else election_id
        credentials = Credentials(settings.tls_ca, settings.tls_certificate, settings.tls_key)
        self.metrics = SwitchMetrics()
        self._sessions = SwitchSessions(
            settings.p4_folder,
            open_session
            or (
                lambda target: SwitchSession(
                    target, credentials, own, given_up, self._versions.superseded
                )
            ),
        )
        self.derived_from: Versions = {}
        self.version: int | None = None
        self._derived: _Derived | None = None
        self._settled = False
        self._memo: Memo = {}
        self._in_use: list[Versions] = []
        #: What `switch_entries` holds at ``version``, and the switches that were read to hold it.
        self._wanted: list[dict[str, Any]] = []
        self._in_step: set[str] = set()
        self._no_room: dict[str, SwitchError] = {}
        #: Switches that another client writes; whether we have begun a term and led since.
        self._foreign: set[str] = set()
        self._leading = False
        self._looked_at: tuple[int, int] = (-1, -1)
        self._look_at = self._pause = 0.0

    def __enter__(self) -> Refresher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections; a second at most."""
        self._sessions.close()

    def leads(self, connect: bool = True) -> bool:
        """Whether no other refresher goes before us.

        One that does not lead must write neither tables nor switches. A client that writes single
        switches is no reason to leave the others alone: to begin with, most of those that answer
        must be ours, and from then on one must, as long as nobody else has begun a term.

        Without ``connect`` only switches that there is a connection to are asked, so that none is
        waited for.
        """
        if connect:
            self._follow_switches()
        answers = self._sessions.leads(connect)
        self._foreign = {name for name, ours in answers.items() if not ours}
        self._in_step -= self._foreign
        own = len(answers) - len(self._foreign)
        if not self._foreign:
            return True
        if self._leading and not self.superseded():
            self._leading = own > 0
        else:
            self._leading = False
            return own > len(self._foreign)
        return self._leading

    def written_by_others(self) -> str:
        """Of switches that another client writes, who and where, by what `leads` last found."""
        foreign = sorted(self._foreign & self._sessions.names)
        return "; ".join(self._sessions.rival(name) for name in foreign)

    def begin_term(self) -> None:
        """Call when we have come to lead: nobody that led before says any more what is ready.

        What we knew of tables and switches may be old; `derive` and `refresh` come next.
        """
        self._versions.begin_term()
        if self._match is not None:
            self._match.forget()
        self._derived, self.derived_from = None, {}
        self._in_step.clear()
        self._leading = True

    def superseded(self) -> bool:
        """Whether another refresher has led since `begin_term`."""
        return self._versions.superseded()

    def disturbed(self) -> set[str]:
        """Switches that may hold something else than they were read to hold. Never waits."""
        return self._sessions.disturbed()

    def behind(self) -> set[str]:
        """Switches that are not known to hold what they should."""
        return self._sessions.names - self._in_step

    def without_room(self) -> set[str]:
        """Switches that cannot hold what is newest, and stay as they were."""
        return set(self._no_room)

    def stale(self) -> bool:
        """Whether `derive` may come to something else by now.

        A source has changed; somebody else wrote `switch_entries`; or streams went on, and
        something waits for them.
        """
        if self._network.current() != self.derived_from:
            return True
        if self._tables.version(ENTRIES) != self.version:
            return True
        # What could not be used is not tried again until somebody edits it.
        return self._derived is not None and self._drained(self._derived)

    def derive(self) -> int:
        """Work out `switch_entries` from network and trees; returns the table's version.

        What stacks of versions in use may name stays. Where the sources do not fit together or
        give an id another meaning, this raises NetworkError, and the entries are those of the
        versions in use. So it is where switches match, with FilterError if they cannot hold the
        subscriptions, with AttributeTableError if the rows of `attributes` are no registry. Raises
        TableError MISSING.
        """
        with self.metrics.deriving():
            return self._derive()

    def _derive(self) -> int:
        began = time.monotonic()
        current = self._network.consistent()
        self._derived, self.derived_from, self._settled = None, {}, False
        self._looked_at = self._drain_versions()
        before = self._tables.version(ENTRIES)
        self._network.prefetch([*current.items(), (ENTRIES, before)])
        try:
            wanted = self._union(current, current)
        except UNUSABLE as error:
            self._fall_back(before, current, error)
            self.derived_from = current  # not tried again until somebody edits the tables
            raise
        version = self._write(before, wanted)
        if self._match is not None:
            self._match.write_rejections(self._tables)
        complete = not wanted.no_room
        self._derived = _Derived(current, wanted.source, version, complete)
        self.derived_from = current
        kept = {item for versions in (current, *self._in_use) for item in versions.items()}
        self._network.forget(kept | {(ENTRIES, version)})
        self.metrics.derived(version, (tree.state for tree in wanted.source.trees))
        log.info(
            "switch_entries@%d derived in %.2f s from %s: %d entries",
            version,
            time.monotonic() - began,
            named(current),
            len(self._wanted),
        )
        return version

    def _fall_back(self, before: int, current: Versions, why: Exception) -> None:
        """Have switches hold what the last ready versions say, or else what they should so far.

        ``why``: the current versions cannot be used, which the caller is going to raise.
        """
        last = self._versions.newest(current)
        try:
            if last is not None:
                self._write(before, self._union(last, current))
                return
        except (NetworkError, AttributeTableError, FilterError) as error:
            log.error("the last ready versions %s cannot be used: %s", named(last or {}), error)
        except SQL_ERRORS as error:
            log.error(
                "the tables cannot be used, the switches stay as they are: %s; %s",
                why,
                named(current),
            )
            if not gone_for_good(error):
                raise
            log.error("nor can the last ready versions be read: %s", one_line(error))
        rows = self._network.rows(ENTRIES, before)
        if rows:  # with none, nobody has ever said what switches should hold
            self._hold(before, rows)

    def _write(self, before: int, wanted: _Wanted) -> int:
        """Make `switch_entries`, which is at version ``before``, hold the union.

        Raises SwitchError ``NOT_PRIMARY`` if another has led since `begin_term`.
        """
        if self.superseded():
            raise SwitchError(
                "NOT_PRIMARY", "another refresher has led since this was worked out: not written"
            )
        union = wanted.union
        for switch, error in wanted.no_room.items():
            if str(error) != str(self._no_room.get(switch)):
                log.error("%s", error)
        self._no_room = wanted.no_room
        for entry in union.taken_back:
            log.warning(
                "switch %s: what %s stands for has changed while stacks may name it; frames of "
                "batches that still do so go another way, or are lost there",
                entry.switch,
                entry.key,
            )
        rows = [entry_to_row(entry) for entry in union.entries]
        while True:
            held = self._network.rows(ENTRIES, before)
            self._tables.replace_changed(ENTRIES, rows, ("switch", "entry_key"), held)
            version = self._tables.version(ENTRIES)
            if version <= before + 1:
                break
            before = version  # somebody else wrote in between
        self._hold(version, rows)
        return version

    def _hold(self, version: int, rows: list[dict[str, Any]]) -> None:
        """From now on switches should hold the rows of this version of `switch_entries`."""
        # What switches hold is what we last wrote there, whatever others wrote into the table.
        self._in_step -= _changed(self._wanted, rows)
        self._wanted = rows
        self._network.know(ENTRIES, version, rows)
        self.version = version

    def refresh(
        self, version: int, only: Collection[str] | None = None, wait: bool = True
    ) -> list[dict[str, Any]]:
        """Write the switches (all, or ``only`` those) as of a version; returns the status rows.

        Switches are refreshed in parallel. One that does not answer is tried again for
        ``waitSeconds`` (not without ``wait``). Whatever fails for one switch, its row says so,
        and the others stand as written. Where another refresher leads, no table is written.

        Once all switches hold what `derive` last came to, its versions are ready, and
        `network_versions` says so.
        """
        self._follow_switches()
        names = self._sessions.names if only is None else self._sessions.names.intersection(only)
        desired: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for row in self._network.rows(ENTRIES, version):
            if row["switch"] in desired:
                desired[row["switch"]].append(row)
        results = self._sessions.refresh(desired, self._patience if wait else 0.0)
        self.metrics.refreshed(results, self._no_room)
        now = dt.datetime.now(dt.UTC)
        statuses = [
            {
                "switch": name,
                "entries_version": version,
                "desired": len(desired[name]),
                "held": result.held,
                "in_step": result.in_step and name not in self._no_room,
                "errors": [*self._room_errors(name, result), *result.errors],
                "seconds": result.seconds,
                "checked_at": now,
            }
            for name, result in results.items()
        ]
        in_step = {name for name, result in results.items() if result.in_step}
        for name in sorted(results.keys() - in_step):
            log.error(
                "switch %s is not in step with switch_entries@%d: %s",
                name,
                version,
                "; ".join(results[name].errors),
            )
        log.info(
            "switch_entries@%d: %d of %d switches in step, %d entries",
            version,
            len(in_step),
            len(results),
            sum(result.held or 0 for result in results.values()),
        )
        self._in_step -= results.keys()
        ours = all(result.primary for result in results.values())
        if ours or (not self.superseded() and self.leads(connect=False)):
            self._tables.append("switch_status", statuses)
            if self.version == version:
                self._in_step |= in_step
            self.settle()
        return statuses

    def settle(self) -> None:
        """Say that the derived versions are ready, if all switches hold them; move trees on.

        Does nothing where that is done. Call it after `derive`, as that may change no switch.
        """
        derived = self._derived
        if derived is None or self._settled or not derived.complete:
            return
        if self.behind() or self.disturbed():
            return
        ready = self._versions.newest(derived.versions)
        if ready is None or rollout.age(ready) < rollout.age(derived.versions):
            self._publish(derived, ready)
        if self._network.current() == derived.versions:
            self._move_trees(derived)
        self._settled = True

    def compare(self) -> dict[str, Difference | SwitchError]:
        """What a refresh would change on each switch, now, or why nothing, as it has no room.

        Only reads, tables and switches alike.

        Raises as `derive`.
        """
        self._follow_switches()
        current = self._network.consistent()
        wanted = self._union(current, current)
        desired: dict[str, list[SwitchEntry]] = defaultdict(list)
        for entry in wanted.union.entries:
            desired[entry.switch].append(entry)
        return {**self._sessions.compare(desired), **wanted.no_room}

    def looked(self, leads: bool) -> None:
        """Tell the metrics how things stand, after a look around that ended in this."""
        self.metrics.looked(leads)
        self.metrics.behind(self.behind() if leads else (), self._sessions.names)

    def _follow_switches(self) -> None:
        rows = self._network.rows("switches", self._tables.version("switches"))
        self._in_step -= self._sessions.follow(rows)
        self._in_step &= self._sessions.names

    def _room_errors(self, name: str, result: RefreshResult) -> list[str]:
        error = self._no_room.get(name)
        return [] if error is None or not result.in_step else [str(error)]

    def _union(self, versions: Versions, current: Versions) -> _Wanted:
        """What ``versions`` say, and what switches should hold for them and for those in use."""
        source = self._network.source(versions)
        self._in_use = self._find_in_use(current)
        # The newest first: where two contradict each other, that stands.
        others = [other for other in reversed(self._in_use) if other != versions]
        older = self._network.older(others)
        rollout.check_meaning(source, older.sources)
        held = self._network.rows(ENTRIES, self._tables.version(ENTRIES))
        unread = [entry_from_row(row) for row in held] if older.gone else []
        rows = self._network.rows("switches", versions["switches"])
        pipelines = {row["switch"]: row["pipeline"] for row in rows}
        tables = {name: self._sessions.tables_of(name) for name in set(pipelines.values())}
        filters: list[SwitchEntry] = []
        if self._match is None:
            check_pipelines(pipelines, source.network.labels)
        else:
            subscriptions, attributes = (
                self._network.rows(name, versions[name]) if name in versions else []
                for name in (SUBSCRIPTIONS, REGISTRY)
            )
            filters = self._match.entries(
                source.network, versions, subscriptions, held, pipelines, attributes
            )
        union = derive(source, older.sources, pipelines, tables, filters, unread, self._memo)
        limits = {
            row["switch"]: capacity.Limits(
                self._sessions.sizes_of(row["pipeline"]), row["max_rules"], row["max_groups"]
            )
            for row in rows
        }
        beyond = capacity.crowded(union.entries, limits)
        if not beyond:
            return _Wanted(source, union, {})
        newest = derive(source, [], pipelines, tables, filters).entries
        no_room = {
            switch: capacity.no_room(switch, limits_hit, newest, union.entries)
            for switch, limits_hit in beyond.items()
        }
        stays = capacity.stay(union, beyond.keys(), [entry_from_row(row) for row in held])
        return _Wanted(source, stays, no_room)

    def _find_in_use(self, current: Versions) -> list[Versions]:
        ready = self._versions.ready()
        return rollout.in_use(ready, self._versions.used() if ready else [], current)

    def _publish(self, derived: _Derived, before: Versions | None) -> None:
        committed_at = self._committed_at(derived.versions, before)
        ready_at = dt.datetime.now(dt.UTC)
        self._versions.publish(derived.versions, derived.version, committed_at, ready_at)
        changed = derived.versions.items() - (before or {}).items()
        after = ""
        if committed_at is not None and before is not None:
            seconds = waited(committed_at, ready_at)
            self.metrics.ready(seconds)
            after = f", {seconds:.2f} s after the edit's commit"
        log.info(
            "all switches are ready for %s%s",
            ", ".join(f"{name}@{version}" for name, version in sorted(changed)),
            after,
        )

    def _committed_at(self, versions: Versions, before: Versions | None) -> dt.datetime | None:
        """When the oldest edit that ``versions`` bring was committed; without any before them, the
        newest."""
        if before is None:
            times = [self._tables.committed_at(name, v) for name, v in versions.items()]
            return max((time for time in times if time), default=None)
        times = [
            self._tables.committed_at(name, before[name] + 1)
            for name, version in versions.items()
            if version > before[name]
        ]
        return min((time for time in times if time), default=None)

    def _move_trees(self, derived: _Derived) -> None:
        """Trees that all switches hold become active; those that nobody names are retired."""
        due = {tree.id: tree.state for tree in derived.source.trees}
        if not {"installing", "retiring"} & set(due.values()):
            return
        using = self._network.older(self._find_in_use(derived.versions))
        moved = rollout.next_states(
            derived.source.trees, [source.trees for source in using.sources]
        )
        if using.gone:  # they may name any tree
            moved = {tree: state for tree, state in moved.items() if state != "retired"}
        if not moved:
            return
        moves = {tree: (due[tree], state) for tree, state in moved.items()}
        self._tables.move("virtual_trees", "tree_id", "state", moves)
        for tree, state in sorted(moved.items()):
            log.info("virtual tree %d is %s; %s", tree, state, named(derived.versions))

    def _drained(self, derived: _Derived) -> bool:
        """Whether streams went on so far that something may go now."""
        waits = any(versions != derived.versions for versions in self._in_use)
        waits = waits or any(tree.state == "retiring" for tree in derived.source.trees)
        now = time.monotonic()
        if not waits or now < self._look_at:
            return False
        seen, self._looked_at = self._looked_at, self._drain_versions()
        if self._looked_at == seen:
            return False
        moved = self._find_in_use(derived.versions) != self._in_use
        # A stream that stays behind for long is not asked every second.
        self._pause = DRAIN_SECONDS if moved else min(2 * self._pause, LONGEST_DRAIN_SECONDS)
        self._pause = max(self._pause, DRAIN_SECONDS)
        self._look_at = now + self._pause
        return moved

    def _drain_versions(self) -> tuple[int, int]:
        return self._tables.version(LEDGER), self._tables.version(TABLE)


def _changed(held: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Switches whose rows differ."""
    before = {(row["switch"], row["entry_key"]): row for row in held}
    after = {(row["switch"], row["entry_key"]): row for row in rows}
    return {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
