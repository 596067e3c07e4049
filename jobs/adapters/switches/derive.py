"""Derives: the tables become `switch_entries`, what each switch should hold."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, gone_for_good
from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.switches.filters import NetworkMatch
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.jobs.adapters.switches.wanted import Rows, Wanted, WantedEntries
from stackcast.jobs.adapters.tables.edits import replace_changed
from stackcast.jobs.adapters.tables.network_tables import NetworkTables
from stackcast.jobs.adapters.tables.network_versions import TABLE, NetworkVersions
from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.errors import (
    AttributeTableError,
    FilterError,
    NetworkError,
    StackcastError,
    SwitchError,
)
from stackcast.udfs.switches.entry import entry_to_row
from stackcast.udfs.switches.rollout import NetworkVersion, Versions

log = logging.getLogger(__name__)

#: How often the ledger is polled while something waits for it, and most seconds between.
DRAIN_SECONDS = 1.0
LONGEST_DRAIN_SECONDS = 30.0

#: What makes tables unusable.
UNUSABLE = (NetworkError, AttributeTableError, FilterError, SwitchError)


@dataclass(frozen=True)
class Derived:
    """Holds what switches should hold: ``rows`` of a ``version`` of `switch_entries`.

    term: the one in which this was derived. versions: of the sources, that were current. refused:
    why those cannot be used; the rows are then what the last ready versions say, or what switches
    should hold so far, and ``version`` is None if nobody has ever said that. source: what
    ``versions`` say; None if refused. switches: rows of the switches that there are by the versions
    that ``rows`` are of; none where nobody knows these. over_capacity: those that cannot hold what
    is newest, and why: they keep what they have.
    """

    term: int
    versions: Versions
    source: NetworkVersion | None
    version: int | None
    rows: Rows
    switches: Rows
    over_capacity: Mapping[str, SwitchError]
    refused: StackcastError | None = None


class Deriver:
    """Keeps `switch_entries` in step with the tables. Not for several threads at once.

    network: the tables that decide. match: as for ``wanted``.
    """

    def __init__(
        self,
        tables: Tables,
        network: NetworkTables,
        versions: NetworkVersions,
        match: NetworkMatch | None,
        wanted: WantedEntries,
        metrics: SwitchMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tables = tables
        self._network = network
        self._versions = versions
        self._match = match
        self._wanted = wanted
        self._metrics = metrics
        self._clock = clock
        self._derived: Derived | None = None
        #: Versions of the sources that were last derived from, usable or not; none: to be anew.
        self._derived_from: Versions = {}
        #: Version of `switch_entries` that was last read or written.
        self._entries_version = -1
        self._over_capacity: Mapping[str, SwitchError] = {}
        self._drain = _Drain(tables, versions, clock)
        #: When that which was refused is tried again, and the pause before that.
        self._again = self._pause = 0.0

    def switches(self) -> Rows:
        """Returns rows of the switches that there are, before anything is derived.

        They are of the newest tables, or of the last ready versions where those make no network and
        Delta still has these.
        """
        current = self._network.current()
        ready = self._versions.newest(current) or current
        rows: Rows = self._network.rows("switches", current["switches"])
        try:
            self._network.source(current)
        except NetworkError:
            try:
                rows = self._network.rows("switches", ready["switches"])
            except SQL_ERRORS as error:
                if not gone_for_good(error):
                    raise
        self._network.forget({*current.items(), *ready.items()})
        return rows

    def derive(self, term: int) -> Derived:
        """Returns what switches should hold now: the same object until that may have changed.

        It may once a source has changed, somebody else wrote `switch_entries`, or streams went on
        that something waited for. In another ``term`` than before nothing is taken as known, as
        others may have written meanwhile.

        The result is ``refused`` where the sources do not fit together or give an id another
        meaning (NetworkError), where switches cannot hold the subscriptions (FilterError), or where
        the rows of `attributes` are no registry (AttributeTableError). It is tried again when
        somebody edits them, and less and less often without: streams may have gone on, or the
        folder of programs may have been mended.

        Raises SwitchError ``NOT_PRIMARY`` if another has led since the term began (nothing is
        written then), TableError ``MISSING``, and the errors of Spark.
        """
        known = self._derived
        if known is None or known.term != term:
            self._derived_from = {}
            if self._match is not None:
                self._match.forget()
        if known is None or self._stale(known):
            self._derived_from = {}
            with self._metrics.deriving():
                self._derived = known = self._derive(term)
        return known

    def _stale(self, known: Derived) -> bool:
        if self._network.current() != self._derived_from:
            return True
        if self._tables.version("switch_entries") != self._entries_version:
            return True
        if known.refused is not None:
            return self._clock.monotonic() >= self._again
        return self._drain.moved(known)

    def _derive(self, term: int) -> Derived:
        began = self._clock.monotonic()
        current = self._network.consistent()
        self._drain.begin()
        self._entries_version = before = self._tables.version("switch_entries")
        self._network.prefetch([*current.items(), ("switch_entries", before)])
        try:
            wanted = self._wanted.at(current, current)
        except UNUSABLE as error:
            known = self._derived
            told = known is not None and (known.versions, str(known.refused)) == (
                current,
                str(error),
            )
            if not told:
                log.error(
                    "the tables cannot be used, so the switches remain unchanged: %s; %s",
                    error,
                    named(current),
                )
            derived = self._fall_back(term, before, current, error)
            if not told:
                self._metrics.refused(error)
            self._derived_from = current
            self._pause = min(2 * self._pause, LONGEST_DRAIN_SECONDS) if told else DRAIN_SECONDS
            self._again = self._clock.monotonic() + self._pause
            return derived
        version, rows = self._write(before, wanted)
        if self._match is not None:
            self._match.write_rejections(self._tables)
        self._derived_from = current
        self._drain.in_use = wanted.in_use
        kept = {item for versions in (current, *wanted.in_use) for item in versions.items()}
        self._network.forget(kept | {("switch_entries", version)})
        self._metrics.derived(version, (tree.state for tree in wanted.source.trees))
        log.info(
            "switch_entries@%d derived in %.2f s from %s: %d entries",
            version,
            self._clock.monotonic() - began,
            named(current),
            len(rows),
        )
        return Derived(
            term, current, wanted.source, version, rows, wanted.switches, wanted.over_capacity
        )

    def _fall_back(self, term: int, before: int, current: Versions, why: StackcastError) -> Derived:
        """Has switches hold what the last ready versions say, or else what they should so far."""
        version, rows = self._last_said(before)
        last, known = self._versions.newest(current), self._derived
        switches = known.switches if known is not None and known.term == term else ()
        wanted = None
        try:
            if last is not None:
                switches = switches or self._network.rows("switches", last["switches"])
                wanted = self._wanted.at(last, current)
        except UNUSABLE as error:
            log.error(
                "the last ready versions %s cannot be used either: %s", named(last or {}), error
            )
        except SQL_ERRORS as error:
            if not gone_for_good(error):
                raise
            log.error("the last ready versions cannot be read either: %s", one_line(error))
        if wanted is not None:
            version, rows = self._write(before, wanted)
            switches = wanted.switches
        return Derived(term, current, None, version, rows, switches, self._over_capacity, why)

    def _last_said(self, version: int) -> tuple[int | None, Rows]:
        """Returns what switches should hold so far, by `switch_entries` at this version.

        An empty table says nothing: what was said before stands, if anything was.
        """
        rows = self._network.rows("switch_entries", version)
        if rows:
            return version, rows
        known = self._derived
        return (None, ()) if known is None else (known.version, known.rows)

    def _write(self, before: int, wanted: Wanted) -> tuple[int, Rows]:
        """Makes `switch_entries`, which is at version ``before``, hold what is wanted.

        Returns its version then, and its rows. Raises SwitchError ``NOT_PRIMARY`` if another has
        led since the term began.
        """
        for switch, error in wanted.over_capacity.items():
            if str(error) != str(self._over_capacity.get(switch)):
                log.error("%s", error)
        self._over_capacity = wanted.over_capacity
        for entry in wanted.entries.taken_back:
            log.warning(
                "switch %s: the meaning of %s changed while header stacks may still contain it; "
                "frames of earlier batches that contain it take another path or are lost there",
                entry.switch,
                entry.key,
            )
        rows = [entry_to_row(entry) for entry in wanted.entries.entries]
        keys = ("switch", "entry_key")
        while True:
            held = self._network.rows("switch_entries", before)
            # What another who has come to lead writes between this and the commit, the commit finds
            # out; if there was nothing to write, ours is taken back.
            if self._versions.superseded():
                raise SwitchError(
                    "NOT_PRIMARY",
                    "another refresher became primary while these entries were computed, so they "
                    "were not written",
                )
            wrote = replace_changed(self._tables, "switch_entries", rows, keys, held, before)
            version = self._tables.version("switch_entries")
            if version == before + wrote:
                break
            before = version  # somebody else wrote in between
        self._entries_version = version
        self._network.know("switch_entries", version, rows)
        return version, rows


class _Drain:
    """Tells when streams went on so far that something may leave the switches.

    in_use: versions that stacks may name, as last derived from.
    """

    def __init__(self, tables: Tables, versions: NetworkVersions, clock: Clock) -> None:
        self._tables = tables
        self._versions = versions
        self._clock = clock
        self._seen = (-1, -1)
        self._due = self._pause = 0.0
        self.in_use: Sequence[Versions] = ()

    def begin(self) -> None:
        """Takes up how far streams are, before what they use is read."""
        self._seen = self._now()

    def moved(self, derived: Derived) -> bool:
        """Tells whether other versions are in use than when this was derived."""
        waits = any(versions != derived.versions for versions in self.in_use)
        trees = () if derived.source is None else derived.source.trees
        waits = waits or any(tree.state == "retiring" for tree in trees)
        now = self._clock.monotonic()
        if not waits or now < self._due:
            return False
        seen, self._seen = self._seen, self._now()
        if self._seen == seen:
            return False
        moved = self._versions.in_use(derived.versions) != self.in_use
        # A stream that stays behind for long is not asked every second.
        pause = DRAIN_SECONDS if moved else min(2 * self._pause, LONGEST_DRAIN_SECONDS)
        self._pause = max(pause, DRAIN_SECONDS)
        self._due = now + self._pause
        return moved

    def _now(self) -> tuple[int, int]:
        return self._tables.version(LEDGER), self._tables.version(TABLE)
