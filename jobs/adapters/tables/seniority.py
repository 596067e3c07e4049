"""The table `subscription_seniority`: in which order rules came into `subscriptions`.

Two rules may compete for an id or for the last place in a quota, and the senior one wins. Columns
of `subscriptions` cannot decide this, because editors write them. The order of commits can, but
Delta keeps old versions only for a while. So the programs that plan by `subscriptions` write down
since which version each pair of id and subscriber has been in it, before they use a version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.tables.changes import only_added, rows_added
from stackcast.jobs.adapters.tables.conflicts import retried
from stackcast.jobs.adapters.tables.tables import SENIORITY, SUBSCRIPTIONS, Tables
from stackcast.udfs.errors import TableError

_Pair = tuple[str, str]
_KEYS = ("id", "subscriber")


class Seniority:
    """Keeps `subscription_seniority` in step with `subscriptions`.

    Several programs may do so at the same time. An instance is for one thread.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        #: Versions of both tables that were returned last.
        self._in_sync: tuple[int, int] | None = None
        #: Versions of both tables that have the same pairs; None if the last one was unusable.
        self._complete: tuple[int, int] | None = None
        #: A version of the table, and its rows.
        self._cached: tuple[int, Mapping[_Pair, int]] = -1, {}

    def versions(self) -> dict[str, int]:
        """Returns the newest version of `subscriptions`, and one of the table that is in step.

        If there is none, it is written first. Commits that come during that are left to the next
        call, so that a fast editor delays nobody. A version of `subscriptions` that cannot be used
        comes with any version of the table.

        Raises:
            TableError: MISSING, OLDER_LAYOUT, NEWER_LAYOUT.
            StorageError: a table could not be read or written.
        """
        while True:
            # In this order, the rows that the table was written from are not newer than those that
            # it is compared with: nothing is removed from it that is still to come.
            ordered = self._tables.version(SENIORITY)
            version = self._tables.version(SUBSCRIPTIONS)
            if self._in_sync == (version, ordered):
                return {SUBSCRIPTIONS: version, SENIORITY: ordered}
            in_sync = retried(partial(self._bring_in_sync, version, ordered))
            if in_sync is not None:
                self._in_sync = version, in_sync
                return {SUBSCRIPTIONS: version, SENIORITY: in_sync}

    def _bring_in_sync(self, version: int, ordered: int) -> int | None:
        """Returns a version of the table with the pairs of a version of `subscriptions`.

        Args:
            version: the version of `subscriptions`.
            ordered: the newest version of the table. If it has other pairs, the next one is
                written.

        Returns:
            None if another program has written the table in the meantime.
        """
        if self._cached[0] != ordered:
            rows = self._tables.rows(SENIORITY, ordered)
            self._cached = ordered, {_pair(row): row["since_version"] for row in rows}
        since_versions = self._cached[1]
        # Most edits only add rows, and then only these are read.
        added_rows = None
        if self._complete is not None and self._complete[1] == ordered:
            added_rows = rows_added(self._tables, SUBSCRIPTIONS, self._complete[0], version)
        pairs: set[_Pair] | None
        if added_rows is None:
            pairs = self._pairs_at(version)
        else:
            pairs = since_versions.keys() | _pairs(added_rows)
        if pairs is None:
            # No plan can be made of this version, so that it decides nothing.
            self._complete = None
            return ordered
        new_pairs, removed_pairs = pairs - since_versions.keys(), since_versions.keys() - pairs
        if not new_pairs and not removed_pairs:
            self._complete = version, ordered
            return ordered
        before = -1 if self._complete is None else self._complete[0]
        first_versions = self._first_versions(new_pairs, before, version)
        # In a copy of the tables versions may begin at 0 again, and new pairs are still younger.
        newest = max(since_versions.values(), default=0)
        shift = max(0, newest + 1 - min(first_versions.values(), default=version))
        changed = [_row(pair, since + shift) for pair, since in first_versions.items()]
        removed = [_row(pair, since_versions[pair]) for pair in removed_pairs]
        if not self._tables.merge(SENIORITY, changed, removed, _KEYS, ordered):
            return None
        if self._tables.version(SENIORITY) != ordered + 1:
            return None
        remaining = {pair: since for pair, since in since_versions.items() if pair in pairs}
        added = {_pair(row): row["since_version"] for row in changed}
        self._cached = ordered + 1, remaining | added
        self._complete = version, ordered + 1
        return ordered + 1

    def _first_versions(self, pairs: set[_Pair], before: int, version: int) -> dict[_Pair, int]:
        """Returns since which version each pair is there, or a later one if that decides nothing.

        Args:
            pairs: pairs that ``version`` has.
            before: a version that has none of them, -1 if none is known.
        """
        first_versions: dict[_Pair, int] = {}
        while len(pairs) > 1 and version - before > 1:
            middle = version - 1
            if only_added(self._tables, SUBSCRIPTIONS, before, version):
                # None of the pairs was removed in between, so that a bisection finds them.
                middle = (before + version) // 2
            later = pairs - (self._pairs_at(middle) or set())
            first_versions |= self._first_versions(later, middle, version)
            pairs, version = pairs - later, middle
        return first_versions | dict.fromkeys(pairs, version)

    def _pairs_at(self, version: int) -> set[_Pair] | None:
        """Returns the pairs of a version, None if it cannot be used: Delta no longer has it, or it
        has other columns."""
        try:
            return _pairs(self._tables.rows(SUBSCRIPTIONS, version, columns=_KEYS))
        except TableError as error:
            if error.what != "WRONG_COLUMNS":
                raise
        except StorageError as error:
            if not error.gone:
                raise
        return None


def _row(pair: _Pair, since: int) -> dict[str, Any]:
    return {"id": pair[0], "subscriber": pair[1], "since_version": since}


def _pair(row: Mapping[str, str]) -> _Pair:
    return row["id"], row["subscriber"]


def _pairs(rows: Iterable[Mapping[str, Any]]) -> set[_Pair]:
    """Returns the pairs of rows; a row without an id or a subscriber has none."""
    return {_pair(row) for row in rows if row["id"] is not None and row["subscriber"] is not None}
