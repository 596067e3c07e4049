"""Whether the refresher that leads is alive, by what it writes into tables.

Switches cannot tell: one keeps the stream of a process that stands still, or of a machine that lost
its power, for hours.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.tables.network_versions import NetworkVersions
from stackcast.jobs.adapters.tables.tables import Tables

#: So long who leads may show nothing until it is asked, and so long it has to answer.
QUIET_SECONDS = 30.0
#: One that answers and still leaves something undone, as an edit that it refuses, is asked again
#: after twice as long each time, and then so often.
LONGEST_PAUSE = 3600.0


class LeaderWatch:
    """Watches who leads in our place. Not for several threads at once.

    It is asked by a term that we begin in table `network_versions`: whoever lives and leads answers
    with another at once, and reads all switches again, so it is asked only with a reason.
    """

    def __init__(
        self, tables: Tables, versions: NetworkVersions, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._clock = clock
        self._tables = tables
        self._versions = versions
        #: Versions of the tables that who leads writes, and since when they are that.
        self._seen: tuple[int, int] | None = None
        self._seen_at = 0.0
        #: What made us doubt, when we ask for it, the pause after that, and when we asked.
        self._why: tuple[bool, Hashable] = False, None
        self._ask_at = math.inf
        self._pause = 2 * QUIET_SECONDS
        self._asked_at: float | None = None

    def quiet(self) -> bool:
        """Tells whether no other refresher shows that it leads, and has not for a while."""
        if not self._versions.led_by_another():
            return True
        now = self._clock.monotonic()
        seen = self._tables.version("switch_status"), self._tables.version("network_versions")
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        return now - self._seen_at >= QUIET_SECONDS

    def is_gone(self, twin: bool, undone: Hashable) -> bool:
        """Tells whether who leads has let a question go unanswered; asks it where that is due.

        twin: it has our election id, so it may be but what switches keep of our own past, and is
        asked for that alone. undone: names what it would have done by now if it were alive and
        able; None if there is nothing.
        """
        now = self._clock.monotonic()
        if (twin, undone) != self._why:
            doubted = math.inf if undone is None else now + QUIET_SECONDS
            self._ask_at = now if twin and not self._why[0] else doubted
            self._why, self._pause = (twin, undone), 2 * QUIET_SECONDS
        if self._asked_at is None:
            if now >= self._ask_at and (twin or self.quiet()):
                self._asked_at = now
                self._versions.begin_term()
            return False
        if not self._versions.superseded():
            return now - self._asked_at >= QUIET_SECONDS
        self._asked_at = None
        self._ask_at = math.inf if undone is None else now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return False
