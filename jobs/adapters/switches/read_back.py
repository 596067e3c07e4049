"""Reads switches back in the background, to find entries that changed without the refresher.

A refresh reads a whole switch, but it only runs after an edit, a lost connection or an error. A
switch may lose entries without any of these: its agent restarts a table, an operator deletes a
rule, memory fails. So each switch is also read a part of its tables at a time. Where it differs
from its last refresh, the next refresh repairs it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.jobs.adapters.switches.background import Background
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.jobs.adapters.switches.sessions import SwitchSessions
from stackcast.udfs.switches.entry import Difference

log = logging.getLogger(__name__)

#: Number of parts into which a pass divides the tables of each switch.
PARTS = 20
#: Most entries that all looks together read per second. It bounds the load of large networks: a
#: pass takes longer than configured if it must read more.
ENTRIES_PER_SECOND = 20_000
#: Pause in seconds after a switch differed, before it is read back again.
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 600.0
#: Reasons for which programs drop packets when an entry is missing.
MISSING_ENTRY_REASONS = frozenset(
    {
        "FORGED_ADDRESS",
        "NO_LABEL_LEFT",
        "NO_PORT",
        "NO_PUBLISHER",
        "NO_ROUTE",
        "NOT_ON_TREE",
        "UNKNOWN_LABELS",
        "UNKNOWN_PORT",
    }
)


class ReadBack:
    """Compares each switch with its last refresh, part by part. Not thread-safe.

    Args:
        sessions: the sessions of the refresher.
        metrics: counts the entries that differ.
        seconds: time of a pass over all tables of all switches; 0 reads nothing back.
        threads: threads of the driver.
    """

    def __init__(
        self,
        sessions: SwitchSessions,
        metrics: SwitchMetrics,
        seconds: float,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._clock = threads.clock
        self._sessions = sessions
        self._metrics = metrics
        self._seconds = seconds
        self._reads: Background[Difference | None] = Background("switch-read-back", threads)
        self._part = 0
        #: When `ENTRIES_PER_SECOND` permits the next look.
        self._next_look = 0.0
        self._next_part = 0.0
        #: In the order in which they are read; the values have no meaning.
        self._suspects: dict[str, None] = {}
        #: When a suspect was last read completely.
        self._read_completely: dict[str, float] = {}
        #: Switches that differed: the time until which they are not read, and the pause.
        self._pauses: dict[str, tuple[float, float]] = {}

    def follow(self) -> None:
        """Report differences that were found, and start a look; never wait for a switch."""
        now = self._clock.monotonic()
        self._report(self._reads.collect(), now)
        if not self._seconds or now < self._next_look:
            return
        suspects = self._take_suspects(now)
        entries = float(self._entry_count(suspects))
        calls = self._sessions.read_backs(suspects)
        if now >= self._next_part:
            names = self._sessions.names
            entries += self._entry_count(names) / PARTS
            calls = self._sessions.read_backs(names, self._part, PARTS) | calls
            self._part = (self._part + 1) % PARTS
            self._next_part = now + self._seconds / PARTS
        self._next_look = now + entries / ENTRIES_PER_SECOND
        self._reads.start(
            {name: call for name, call in calls.items() if self._pause_has_ended(name, now)}
        )

    def suspect(self, dropped: Iterable[tuple[str, str]]) -> None:
        """Read switches completely as soon as possible, because they dropped packets.

        A switch may drop packets although it misses no entry. So it is read completely at most once
        per pass for this reason. Many suspects are read in several looks, each of about
        `ENTRIES_PER_SECOND` entries.

        Args:
            dropped: switches and reasons whose counters have risen.
        """
        self._suspects |= dict.fromkeys(
            switch for switch, reason in dropped if reason in MISSING_ENTRY_REASONS
        )

    def close(self) -> None:
        """Start no further look."""
        self._reads.close()

    def _pause_has_ended(self, name: str, now: float) -> bool:
        return now >= self._pauses.get(name, (0.0, 0.0))[0]

    def _take_suspects(self, now: float) -> set[str]:
        """Remove the suspects of the next look, and return those that are read completely."""
        due: set[str] = set()
        entries = 0
        while self._suspects and entries < ENTRIES_PER_SECOND:
            switch = next(iter(self._suspects))
            del self._suspects[switch]
            if now - self._read_completely.get(switch, -self._seconds) >= self._seconds:
                due.add(switch)
                entries += self._entry_count([switch])
        self._read_completely |= dict.fromkeys(due, now)
        return due

    def _entry_count(self, switches: Iterable[str]) -> int:
        return sum(map(self._sessions.entry_count, switches))

    def _report(self, reads: Mapping[str, Difference | None], now: float) -> None:
        """Log and count differences.

        A switch that differs is not read back for a while. The pause doubles each time, because a
        switch that answers differently to each kind of read would be refreshed without end.
        """
        for switch, change in reads.items():
            if change is None:
                continue
            if change:
                log.warning(
                    "switch %s has changed since its last refresh, so it is refreshed now: at "
                    "least %d entries are missing, %d differ, %d were written by another client",
                    switch,
                    len(change.insert),
                    len(change.modify),
                    len(change.delete),
                )
                self._metrics.differed(
                    switch, len(change.insert) + len(change.modify) + len(change.delete)
                )
                last_pause = self._pauses.get(switch, (0.0, FIRST_PAUSE / 2))[1]
                pause = min(2 * last_pause, LONGEST_PAUSE)
                self._pauses[switch] = now + pause, pause
            elif now > self._pauses.get(switch, (0.0, 0.0))[0] + self._seconds:
                self._pauses.pop(switch, None)
