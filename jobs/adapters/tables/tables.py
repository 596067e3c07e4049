"""The Delta tables of a deployment, as a protocol.

`FolderTables` and `SparkTables` implement it, and `open_tables` chooses between them. The modules
`changes` and `edits` contain everything that can be expressed by this protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

TREES = "virtual_trees"
SUBSCRIPTIONS = "subscriptions"
SENIORITY = "subscription_seniority"
LIVE = "live_subscriptions"
REJECTED = "rejected_subscriptions"
GRANTS = "grants"
INGRESSES = "ingresses"
DELIVERIES = "delivery_statistics"
DROPS = "switch_drops"
REREQUESTS = "rerequest_statistics"
PUBLICATIONS = "publication_statistics"
LEDGER = "egress_ledger"

Row = dict[str, Any]
"""A row by column. Maps are dictionaries, and times are datetimes in UTC."""

Action = Mapping[str, Any]
"""An action of Delta's log, such as ``{"add": {"path": ..., "dataChange": True}}``."""

Number = tuple[str, int]
"""A number that a commit carries for a writer or a role, as Delta's action ``txn``."""


class Tables(Protocol):
    """The tables of one deployment, for several threads.

    Reads name a version, so that a batch can be computed again. An instance raises `TableError`
    with code ``MISSING`` if a table does not exist, with ``OLDER_LAYOUT`` or ``NEWER_LAYOUT`` if
    another version of Stackcast wrote it, and `StorageError` if Delta or the storage fails.
    """

    @property
    def location(self) -> str:
        """Path of the tables, or name of their schema in a catalog."""

    @property
    def local(self) -> bool:
        """True if looking for a new version takes microseconds, because it is a look at a file."""

    def create(self, *names: str) -> None:
        """Create the tables that do not exist; all tables by default."""

    def version(self, name: str) -> int:
        """Return the newest version of a table."""

    def head(self, name: str) -> tuple[str, int]:
        """Return the id and the newest version. A table that was created again has another id."""

    def commit(self, name: str, version: int) -> Sequence[Action]:
        """Return the actions of a commit; empty if the log does not contain it."""

    def arrow(
        self,
        name: str,
        version: int | None = None,
        since: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> pa.Table:
        """Return the rows of a version as an Arrow table; see `rows`."""

    def rows(
        self,
        name: str,
        version: int | None = None,
        since: Mapping[str, Any] | None = None,
        columns: Sequence[str] = (),
    ) -> list[Row]:
        """Return the rows of a version.

        Args:
            name: name of the table.
            version: the newest by default.
            since: lower bounds of columns. Files without such rows are not opened.
            columns: columns to read; all by default.

        Raises:
            TableError: WRONG_COLUMNS if people edit the table and its columns have changed,
                DUPLICATE_KEY if two of its rows have the same key (`edited.KEYS`).
            StorageError: the version, or one of its files, no longer exists.
        """

    def rows_of_files(self, name: str, files: Sequence[str]) -> list[Row]:
        """Return the rows of data files, whose paths are relative to the folder of the table."""

    def last_rows(
        self, name: str, key: str, order: str, column: str, since: Mapping[Any, Any]
    ) -> list[Row]:
        """Return the last row by ``order`` for each value of ``key``, with ``column``.

        Args:
            name: name of the table.
            key: column whose values are distinguished.
            order: column whose highest value is last.
            column: another column of the result.
            since: lower bounds of ``order`` for some keys. Earlier rows of these keys are ignored.
        """

    def append(
        self,
        name: str,
        rows: Sequence[Row] | pa.Table,
        transaction: Number | None = None,
        epoch: Number | None = None,
    ) -> bool:
        """Append rows in one commit.

        Args:
            name: name of the table.
            rows: an Arrow table may have fewer columns, which are null, or more, which are ignored.
            transaction: writer and number. The rows of a writer's number are appended only once,
                and not after those of a higher number.
            epoch: role and number. Nothing is written after a commit with a higher number of the
                role. An append with an epoch is a commit even if it has no rows.

        Returns:
            False if nothing was written because of a higher epoch.
        """

    def overwrite(self, name: str, rows: Sequence[Row] | pa.Table) -> None:
        """Replace all rows in one commit. Replacing no rows by none may make no version."""

    def merge(
        self,
        name: str,
        changed: Sequence[Row],
        gone: Sequence[Row],
        keys: Sequence[str],
        onto: int | None = None,
        unique: Sequence[str] = (),
    ) -> bool:
        """Insert or update rows and delete others by their keys, in one commit.

        Args:
            name: name of the table.
            changed: rows to insert or update.
            gone: rows to delete. Their keys are sufficient.
            keys: columns that identify a row.
            onto: version on which the edit is based. Nothing is written if it is not the newest.
                In a folder of this machine this is exact. Elsewhere, another program may commit
                between the comparison and the write; rows that it has changed stay as they are.
            unique: other columns whose values must be new, too. With them, no row is updated: a row
                whose key or value exists is not written.

        Returns:
            True if this made a new version.
        """

    def last_transaction(self, name: str, writer: str) -> int | None:
        """Return the highest number of a writer or a role (`append`), or None without any."""

    def make_durable(self, name: str, version: int | None = None) -> None:
        """Return as soon as a version (the newest by default) survives a power failure.

        Raises:
            OSError: a file could not be written.
        """

    def prepare_overwrite(self, name: str) -> None:
        """Do in advance what shortens the next `overwrite`, if there is anything to do."""
