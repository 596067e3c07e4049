"""Edits of a table at the same time: one of two commits can fail, and is tried again."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TypeVar

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger(__name__)

Result = TypeVar("Result")

#: Time for which a write is tried, and the longest pause between two tries, in seconds. A write
#: that reads the table, such as an UPDATE, fails whenever another editor commits while it runs.
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.5


def retried(write: Callable[[], Result], clock: Clock = SYSTEM_CLOCK) -> Result:
    """Return the result of a write, which is tried again after a conflict.

    Args:
        write: reads the table, if it needs to, and writes it in one commit.
        clock: clock of the program.

    Raises:
        StorageError: the last conflict after `PATIENCE_SECONDS`, or another error of the write.
    """
    deadline = clock.monotonic() + PATIENCE_SECONDS
    attempt = 0
    while True:
        attempt += 1
        try:
            return write()
        except StorageError as error:
            if not error.conflict or clock.monotonic() > deadline:
                raise
            log.info(
                "attempt %d: another writer changed the table first, retrying the write", attempt
            )
        clock.sleep(random.uniform(0, PAUSE_SECONDS))
