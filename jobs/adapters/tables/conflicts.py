"""Edits of a table at the same time: one of two commits can fail, and is tried again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from delta import exceptions as delta
from deltalake.exceptions import CommitFailedError
from py4j.protocol import Py4JError

log = logging.getLogger(__name__)

Result = TypeVar("Result")

#: What Delta raises in Python; these classes have no common base of their own.
_CONFLICTS = (
    delta.ConcurrentAppendException,
    delta.ConcurrentDeleteDeleteException,
    delta.ConcurrentDeleteReadException,
    delta.ConcurrentTransactionException,
    delta.ConcurrentWriteException,
    delta.DeltaConcurrentModificationException,
    delta.MetadataChangedException,
    delta.ProtocolChangedException,
    CommitFailedError,
)
#: Time for which a write is tried, and the longest pause between two tries, in seconds. A write
#: that reads the table, such as an UPDATE, fails whenever another editor commits while it runs.
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.5


def is_conflict(error: BaseException) -> bool:
    """Returns whether a write failed only because another editor committed in the meantime.

    Nothing of such a write is in the table.
    """
    if isinstance(error, _CONFLICTS):
        return True
    java = getattr(error, "java_exception", None) if isinstance(error, Py4JError) else None
    return java is not None and "Concurrent" in java.getClass().getSimpleName()


def retried(write: Callable[[], Result]) -> Result:
    """Returns what a write returns, and tries it again after a conflict.

    Args:
        write: reads the table, if it needs to, and writes it in one commit.

    Raises:
        Exception: the last conflict after `PATIENCE_SECONDS`, or any other error of the write.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    number = 0
    while True:
        number += 1
        try:
            return write()
        except Exception as error:
            if not is_conflict(error) or time.monotonic() > deadline:
                raise
            log.info(
                "attempt %d: another writer changed the table first, retrying the write", number
            )
        time.sleep(random.uniform(0, PAUSE_SECONDS))
