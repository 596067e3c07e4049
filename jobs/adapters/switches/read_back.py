"""Reads switches back in the background, to find entries that changed without the refresher.

A refresh reads a whole switch, but it only runs after an edit, a lost connection or an error. A
switch may lose entries without any of these: its agent restarts a table, an operator deletes a
rule, memory fails. So each switch is also read a part of its tables at a time. Where it differs
from its last refresh, the next refresh repairs it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from jobs.adapters.switches.metrics import SwitchMetrics
from jobs.adapters.switches.results import PartRead
from jobs.adapters.switches.sessions import SwitchSessions

log = logging.getLogger(__name__)

#: Number of parts into which a pass divides the tables of each switch.
PARTS = 20
#: Most entries that all looks together read per second. It bounds the load of large networks: a
#: pass takes longer than configured if it must read more.
ENTRIES_PER_SECOND = 20_000
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
    """Compares each switch with its last refresh, part by part. Not thread-safe, except `suspect`.

    Args:
        sessions: the sessions of the refresher.
        metrics: counts the entries that differ.
        seconds: time of a pass over all tables of all switches; 0 reads nothing back.
    """

    def __init__(self, sessions: SwitchSessions, metrics: SwitchMetrics, seconds: float) -> None:
        self._sessions = sessions
        self._metrics = metrics
        self._seconds = seconds
        # A switch that hangs delays only the looks.
        self._pool = ThreadPoolExecutor(1, "switch-read-back")
        self._look: Future[Mapping[str, PartRead]] | None = None
        self._part = 0
        self._next_look = 0.0
        self._lock = threading.Lock()
        self._suspects: set[str] = set()
        #: When a suspect was last read completely.
        self._read_completely: dict[str, float] = {}

    def follow(self) -> None:
        """Start a look, or process the result of the last; never wait for a switch."""
        now = time.monotonic()
        if self._look is None:
            if self._seconds and (self._suspects or now >= self._next_look):
                whole = self._take_suspects(now)
                self._look = self._pool.submit(self._sessions.read_back, self._part, PARTS, whole)
        elif self._look.done():
            look, self._look = self._look, None
            self._part = (self._part + 1) % PARTS
            entries = self._report(look.result())
            self._next_look = now + max(self._seconds / PARTS, entries / ENTRIES_PER_SECOND)

    def suspect(self, dropped: Iterable[tuple[str, str]]) -> None:
        """Read switches completely in the next look, because they dropped packets.

        A switch may drop packets although it misses no entry. So it is read completely at most once
        per pass for this reason.

        Args:
            dropped: switches and reasons whose counters have risen.
        """
        with self._lock:
            self._suspects |= {
                switch for switch, reason in dropped if reason in MISSING_ENTRY_REASONS
            }

    def close(self) -> None:
        """Start no further look."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take_suspects(self, now: float) -> set[str]:
        with self._lock:
            suspects, self._suspects = self._suspects, set()
        due = {
            switch
            for switch in suspects
            if now - self._read_completely.get(switch, -self._seconds) >= self._seconds
        }
        self._read_completely |= dict.fromkeys(due, now)
        return due

    def _report(self, reads: Mapping[str, PartRead]) -> int:
        """Log and count differences; return the number of entries that were read."""
        for switch, read in reads.items():
            change = read.repair
            if change:
                log.warning(
                    "switch %s has changed since its last refresh: %d entries are missing, %d "
                    "differ, %d are not ours; it is refreshed now",
                    switch,
                    len(change.insert),
                    len(change.modify),
                    len(change.delete),
                )
                self._metrics.differed(
                    switch, len(change.insert) + len(change.modify) + len(change.delete)
                )
        return sum(read.entries for read in reads.values())
