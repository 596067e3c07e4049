"""Errors of Spark and Delta as `StorageError`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delta import exceptions as delta
from py4j.protocol import Py4JError

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, gone_for_good
from stackcast.jobs.adapters.app.storage_errors import StorageError

#: Errors of Delta for a write that lost a race; these classes have no common base of their own.
_CONFLICTS = (
    delta.ConcurrentAppendException,
    delta.ConcurrentDeleteDeleteException,
    delta.ConcurrentDeleteReadException,
    delta.ConcurrentTransactionException,
    delta.ConcurrentWriteException,
    delta.DeltaConcurrentModificationException,
    delta.MetadataChangedException,
    delta.ProtocolChangedException,
)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Convert errors of Spark in a block to `StorageError`."""
    try:
        yield
    except SQL_ERRORS as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            one_line(error), conflict=_is_conflict(error), gone=gone_for_good(error)
        ) from error


def _is_conflict(error: BaseException) -> bool:
    if isinstance(error, _CONFLICTS):
        return True
    java = getattr(error, "java_exception", None) if isinstance(error, Py4JError) else None
    return java is not None and "Concurrent" in java.getClass().getSimpleName()
