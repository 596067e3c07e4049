"""Applies: entries of `switch_entries` are written to the switches, and read back."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.adapters.switches.derive import Derived
from jobs.adapters.switches.metrics import SwitchMetrics
from jobs.adapters.switches.session import RefreshResult
from jobs.adapters.switches.sessions import SwitchSessions
from jobs.adapters.tables.tables import Tables

log = logging.getLogger(__name__)

#: Pause before a switch that is not in step is tried again: the first and the longest.
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 10.0
#: How long refreshes that were just begun are waited for; what takes longer is told later.
WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class Applied:
    """Tells how switches stand to what they should hold.

    behind: switches that are not known to hold it, and why. ready: none is behind, and none may
    hold something else by now than it was read to hold.
    """

    behind: Mapping[str, str]
    ready: bool


class Applier:
    """Brings the switches in step with what was derived. Not for several threads at once.

    Idempotent: a switch is read, the difference to the table is written, and it is read again. So
    it does not matter what it held before, or whether an earlier refresh was cut off.

    still_leads: asked whether no other refresher leads by now; never waits for a switch.
    """

    def __init__(
        self,
        tables: Tables,
        sessions: SwitchSessions,
        metrics: SwitchMetrics,
        still_leads: Callable[[], bool],
    ) -> None:
        self._tables = tables
        self._sessions = sessions
        self._metrics = metrics
        self._still_leads = still_leads
        self._derived: Derived | None = None
        #: Switches that were read to hold what they should; of the others, the last errors.
        self._in_step: set[str] = set()
        self._errors: dict[str, str] = {}
        #: Of switches that are not in step: when they are tried again, and the pause after that.
        self._again: dict[str, tuple[float, float]] = {}
        #: Of switches that are being refreshed: with what.
        self._begun: dict[str, Derived] = {}

    def apply(self, derived: Derived, patience: float | None = None) -> Applied:
        """Refreshes, side by side, the switches that are due; returns how all stand.

        Due is what may hold something else than it should, unless it was tried a moment ago. All
        are waited for with ``patience``: so many seconds one that does not answer is tried again.
        Without, one that takes long holds up no other: it is behind until it is done. Whatever
        fails for one switch, its row of `switch_status` says so, and the others stand as written.
        Where another refresher leads, no table is written.
        """
        self._take(derived)
        due = self._due() if derived.version is not None else set()
        self._begin(due, derived, patience or 0.0)
        results = self._sessions.ended(due, WAIT_SECONDS if patience is None else None)
        for begun in {id(each): each for each in self._begun.values()}.values():
            names = [name for name in results if self._begun[name] is begun]
            if names:
                self._note({name: results[name] for name in names}, begun, derived)
        self._begun = {name: begun for name, begun in self._begun.items() if name not in results}
        behind = self._sessions.names - self._in_step
        why = {name: self._errors.get(name, "it was not read back yet") for name in sorted(behind)}
        return Applied(why, not behind and not self._sessions.disturbed())

    def _take(self, derived: Derived) -> None:
        """Takes up what switches should hold from now on."""
        before, self._derived = self._derived, derived
        if before is None or before.term != derived.term:
            self._in_step.clear()
            self._again.clear()
        if before is not derived:
            # What switches hold is what we last wrote there, whatever others wrote into the table.
            self._in_step -= _changed(before, derived)
            self._in_step -= self._sessions.follow(derived.switches)
            if derived.refused is None:
                self._again.clear()
        self._begun = {name: self._begun[name] for name in self._sessions.running}
        self._in_step &= self._sessions.names - self._sessions.foreign

    def _due(self) -> set[str]:
        now = time.monotonic()
        wrong = (self._sessions.names - self._in_step) | self._sessions.disturbed()
        wrong -= self._sessions.running
        return {name for name in wrong if self._again.get(name, (now, 0.0))[0] <= now}

    def _begin(self, due: set[str], derived: Derived, patience: float) -> None:
        rows: dict[str, list[Mapping[str, Any]]] = {name: [] for name in due}
        for row in derived.rows:
            if row["switch"] in rows:
                rows[row["switch"]].append(row)
        self._in_step -= due
        self._begun |= dict.fromkeys(due, derived)
        self._sessions.start(rows, patience)

    def _note(self, results: Mapping[str, RefreshResult], begun: Derived, derived: Derived) -> None:
        """Takes up how refreshes ended that were ``begun`` with what was derived then."""
        self._metrics.refreshed(results, begun.over_capacity)
        in_step = {name for name, result in results.items() if result.in_step}
        for name in sorted(results.keys() - in_step):
            self._errors[name] = "; ".join(results[name].errors)
            log.error(
                "switch %s is not in step with switch_entries@%d: %s",
                name,
                begun.version,
                self._errors[name],
            )
        log.info(
            "switch_entries@%d: %d of %d switches in step, %d entries",
            begun.version,
            len(in_step),
            len(results),
            sum(result.held or 0 for result in results.values()),
        )
        self._schedule(results)
        # Before we look: rows of who leads after us are the newer ones.
        now = dt.datetime.now(dt.UTC)
        if all(result.primary for result in results.values()) or self._still_leads():
            desired = Counter(row["switch"] for row in begun.rows)
            self._tables.append(
                "switch_status",
                [
                    _status(name, desired[name], result, begun, now)
                    for name, result in results.items()
                ],
            )
            # What changed meanwhile is due again.
            later = set() if begun is derived else _changed(begun, derived)
            self._in_step |= in_step - later

    def _schedule(self, results: Mapping[str, RefreshResult]) -> None:
        """Sets when those that are not in step are tried again: less and less often."""
        now = time.monotonic()
        for name, result in results.items():
            if result.in_step:
                self._again.pop(name, None)
                self._errors.pop(name, None)
            else:
                pause = self._again.get(name, (0.0, RETRY_SECONDS))[1]
                self._again[name] = now + pause, min(2 * pause, LONGEST_RETRY_SECONDS)


def _status(
    name: str, desired: int, result: RefreshResult, derived: Derived, now: dt.datetime
) -> dict[str, Any]:
    """Makes the row of `switch_status` of a switch that was refreshed."""
    over = derived.over_capacity.get(name)
    errors = [str(over)] if over is not None and result.in_step else []
    return {
        "switch": name,
        "entries_version": derived.version,
        "desired": desired,
        "held": result.held,
        "in_step": result.in_step and over is None,
        "errors": [*errors, *result.errors],
        "seconds": result.seconds,
        "checked_at": now,
    }


def _changed(before: Derived | None, derived: Derived) -> set[str]:
    """Returns the switches that should hold something else, or whose capacity allows it or not."""
    if before is None:
        return {row["switch"] for row in derived.switches}
    held, rows = (
        {(row["switch"], row["entry_key"]): row for row in each.rows} for each in (before, derived)
    )
    changed = {key[0] for key in held.keys() | rows.keys() if held.get(key) != rows.get(key)}
    return changed | (before.over_capacity.keys() ^ derived.over_capacity.keys())
