"""Writes the entries of `switch_entries` to the switches, and reads them back."""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.switches.derive import Derived
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.jobs.adapters.switches.results import RefreshResult
from stackcast.jobs.adapters.switches.sessions import SwitchSessions
from stackcast.jobs.adapters.tables.tables import Tables

log = logging.getLogger(__name__)

#: Pause in seconds before a switch that is not in step is refreshed again. It doubles up to the
#: longest pause, which is longer for a full switch: only an edit or an operator can help there.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 10.0
LONGEST_RETRY_OF_FULL_SECONDS = 300.0
#: Seconds to wait for refreshes that were just started. The results of those that take longer are
#: recorded by a later call.
WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Applied:
    """The state of all switches after :meth:`Applier.apply`.

    Attributes:
        behind: reason for each switch that is not known to hold its desired entries.
        ready: whether no switch is behind, and no switch may have changed since it was read.
    """

    behind: Mapping[str, str]
    ready: bool


class Applier:
    """Brings the switches in step with the derived entries. It is not thread-safe.

    A refresh is idempotent: it reads the switch, writes the difference to the table, and reads the
    switch again. It works regardless of what the switch held before, and of earlier refreshes that
    were interrupted.

    Args:
        tables: the Delta tables; results are appended to `switch_status`.
        sessions: the sessions with the switches.
        metrics: counts refreshes.
        still_leads: returns whether this refresher still leads; never waits for a switch.
        clock: clock of the driver.
    """

    def __init__(
        self,
        tables: Tables,
        sessions: SwitchSessions,
        metrics: SwitchMetrics,
        still_leads: Callable[[], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tables = tables
        self._sessions = sessions
        self._metrics = metrics
        self._still_leads = still_leads
        self._clock = clock
        self._derived: Derived | None = None
        #: Switches that hold their desired entries, as they were last read.
        self._in_sync: set[str] = set()
        #: Errors of the last refresh, by switch that is not in step.
        self._errors: dict[str, str] = {}
        #: When the last refresh ended and the pause after it, by switch that is not in step.
        self._pauses: dict[str, tuple[float, float]] = {}
        #: The entries that a refresh in progress writes, by switch.
        self._in_progress: dict[str, Derived] = {}

    def apply(self, derived: Derived, patience: float | None = None) -> Applied:
        """Refresh the switches that are due, in parallel, and return the state of all switches.

        A switch is due if it may hold other entries than it should, unless its pause has not ended.
        Errors of one switch do not affect the others; its row of `switch_status` reports them. No
        row is written if another refresher leads meanwhile.

        Args:
            derived: the desired entries. If they have no version, no switch is refreshed.
            patience: seconds for which a switch that does not answer is tried again; the call waits
                for all due switches. With None, such a switch is tried once and the call waits at
                most `WAIT_SECONDS`: switches that take longer are behind until their refresh ends.
        """
        self._set_desired(derived)
        due = self._due_switches() if derived.version is not None else set()
        self._start(due, derived, patience or 0.0)
        results = self._sessions.ended(due, WAIT_SECONDS if patience is None else None)
        # Refreshes that took long may have started with entries that were derived earlier.
        for applied in {id(source): source for source in self._in_progress.values()}.values():
            names = [name for name in results if self._in_progress[name] is applied]
            if names:
                self._record({name: results[name] for name in names}, applied, derived)
        self._in_progress = {
            name: applied for name, applied in self._in_progress.items() if name not in results
        }
        behind = self._sessions.names - self._in_sync
        why = {
            name: self._errors.get(name, "it has not been read back yet") for name in sorted(behind)
        }
        return Applied(why, not behind and not self._sessions.disturbed())

    def _set_desired(self, derived: Derived) -> None:
        """Set the entries that switches should hold from now on, and the switches there are."""
        before, self._derived = self._derived, derived
        if before is None or before.term != derived.term:
            self._in_sync.clear()
            self._pauses.clear()
        if before is not derived:
            # Compared with the entries that were applied last, and not with an earlier version of
            # the table, because others may have written into the table.
            self._in_sync -= _changed_switches(before, derived)
            self._in_sync -= self._sessions.follow(derived.switches)
            # Tables that were refused are derived again and again without an edit. That must not
            # end the pauses.
            if derived.refused is None:
                self._pauses.clear()
        # Forget refreshes that the sessions have ended, because a switch was removed or has moved,
        # or a new term has begun.
        self._in_progress = {name: self._in_progress[name] for name in self._sessions.running}
        self._in_sync &= self._sessions.names - self._sessions.foreign

    def _due_switches(self) -> set[str]:
        disturbed = self._sessions.disturbed()
        wrong = (self._sessions.names - self._in_sync) | disturbed
        return {
            name
            for name in wrong - self._sessions.running
            if self._pause_has_ended(name, name in disturbed)
        }

    def _pause_has_ended(self, name: str, disturbed: bool) -> bool:
        ended, pause = self._pauses.get(name, (0.0, 0.0))
        # A full switch that was disturbed may have restarted, and be empty.
        return self._clock.monotonic() >= ended + (
            min(pause, LONGEST_RETRY_SECONDS) if disturbed else pause
        )

    def _start(self, due: set[str], derived: Derived, patience: float) -> None:
        rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in due}
        for row in derived.rows:
            if row["switch"] in rows:
                rows[row["switch"]].append(row)
        self._in_sync -= due
        self._in_progress |= dict.fromkeys(due, derived)
        self._sessions.start(rows, patience)

    def _record(
        self, results: Mapping[str, RefreshResult], applied: Derived, newest: Derived
    ) -> None:
        """Record the results of refreshes in metrics, log, `switch_status` and this object.

        Args:
            results: results by switch.
            applied: the entries that these refreshes wrote.
            newest: the entries that switches should hold now.
        """
        self._metrics.refreshed(results, applied.over_capacity)
        in_sync = {name for name, result in results.items() if result.in_sync}
        for name in sorted(results.keys() - in_sync):
            self._errors[name] = "; ".join(results[name].errors)
            log.error(
                "switch %s is out of sync with switch_entries@%d: %s",
                name,
                applied.version,
                self._errors[name],
            )
        log.info(
            "switch_entries@%d: %d of %d switches in sync, %d entries",
            applied.version,
            len(in_sync),
            len(results),
            sum(result.installed or 0 for result in results.values()),
        )
        self._schedule(results)
        # The clock is read before the lead is checked, so that rows of a refresher that takes over
        # have later times.
        checked_at = utc(self._clock)
        if all(result.primary for result in results.values()) or self._still_leads():
            counts = Counter(row["switch"] for row in applied.rows)
            self._tables.append(
                "switch_status",
                [
                    _status_row(name, counts[name], result, applied, checked_at)
                    for name, result in results.items()
                ],
            )
            # Switches whose desired entries have changed meanwhile are due again.
            outdated = set() if applied is newest else _changed_switches(applied, newest)
            self._in_sync |= in_sync - outdated

    def _schedule(self, results: Mapping[str, RefreshResult]) -> None:
        """Set the pauses of the switches that are not in step. Each is twice the one before."""
        ended = self._clock.monotonic()
        for name, result in results.items():
            if result.in_sync:
                self._pauses.pop(name, None)
                self._errors.pop(name, None)
            else:
                before = self._pauses.get(name, (0.0, RETRY_SECONDS / 2))[1]
                longest = LONGEST_RETRY_OF_FULL_SECONDS if result.full else LONGEST_RETRY_SECONDS
                self._pauses[name] = ended, min(2 * before, longest)


def _status_row(
    name: str, desired: int, result: RefreshResult, derived: Derived, checked_at: dt.datetime
) -> dict[str, Any]:
    """Return the row of `switch_status` for a refreshed switch.

    Args:
        name: name of the switch.
        desired: number of entries that the switch should hold.
        result: result of the refresh.
        derived: the entries that the refresh wrote.
        checked_at: value of that column.
    """
    over = derived.over_capacity.get(name)
    errors = [str(over)] if over is not None and result.in_sync else []
    return {
        "switch": name,
        "entries_version": derived.version,
        "desired": desired,
        "installed": result.installed,
        "in_sync": result.in_sync and over is None,
        "errors": [*errors, *result.errors],
        "seconds": result.seconds,
        "checked_at": checked_at,
    }


def _changed_switches(before: Derived | None, derived: Derived) -> set[str]:
    """Return the switches whose entries differ, or that are over capacity in one case only."""
    if before is None:
        return {row["switch"] for row in derived.switches}
    old_rows, new_rows = (
        {(row["switch"], row["entry_key"]): row for row in source.rows}
        for source in (before, derived)
    )
    keys = old_rows.keys() | new_rows.keys()
    changed = {key[0] for key in keys if old_rows.get(key) != new_rows.get(key)}
    return changed | (before.over_capacity.keys() ^ derived.over_capacity.keys())
