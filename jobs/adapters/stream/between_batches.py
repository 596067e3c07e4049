"""Work between batches: newer tables become live, and hosts get overdue summaries."""

from __future__ import annotations

import logging
from collections.abc import Callable

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.planning.versions import FRESH
from stackcast.jobs.adapters.runtime.threads import Threads
from stackcast.jobs.adapters.stream.plan_keeper import PlanKeeper

log = logging.getLogger(__name__)

#: Seconds between two looks at the tables on this machine, where a look takes microseconds.
LOOK_SECONDS = 0.1
#: Elsewhere, a look takes some requests to the storage.
REMOTE_LOOK_SECONDS = 0.5


class BetweenBatches:
    """Looks at the tables in the background.

    Args:
        plans: plans of the stream.
        threads: threads of the driver.
        local: whether the tables are on this machine.
        idle: called after each look.
    """

    def __init__(
        self,
        plans: PlanKeeper,
        threads: Threads,
        local: bool,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        self._plans = plans
        self._seconds = LOOK_SECONDS if local else REMOTE_LOOK_SECONDS
        self._idle = idle
        self._logged = ""
        self._poll = threads.poll("plans", self._look, self._seconds)

    def close(self) -> None:
        """End the looks."""
        self._poll.close()

    def _look(self) -> float:
        try:
            self._plans.look()
            self._logged = ""
        except Exception as error:
            # The next batch fails with the same error.
            if self._logged != (text := one_line(error)):
                log.warning("edits could not be loaded between batches: %s", text)
            self._logged = text
        self._idle()
        return FRESH if self._logged else self._seconds
