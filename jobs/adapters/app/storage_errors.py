"""The error of a storage, for code that does not import Spark."""

from __future__ import annotations


class StorageError(Exception):
    """Spark, Delta or the storage could not read or write a table.

    The error of Spark is its cause.

    Args:
        message: the error of Spark on one line.
        conflict: True if nothing was written only because another program committed first.
        gone: True if the version or its files were deleted, so that no later attempt can succeed.
    """

    def __init__(self, message: str, *, conflict: bool = False, gone: bool = False) -> None:
        super().__init__(message)
        self.conflict = conflict
        self.gone = gone
