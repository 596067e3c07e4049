"""The table `writers`: who may write alone, by fencing.

Each claim of a role has an epoch, one more than that of the claim before. Whoever sends or commits
asserts that no epoch is above its own: by a look at the version of the table, and where it commits
by a transaction number of Delta's in the same commit, so that nothing comes in between.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import StackcastError, TableError

log = logging.getLogger(__name__)

TABLE = "writers"
#: How old a look at a table on other storage may be, seconds.
FRESH = 1.0
#: Between two looks whether the holder before has ended, seconds.
_PAUSE = 0.2


#: Beginning of the role of a stream; the name of its topic follows.
STREAM = "stream of "


def running_streams(tables: Tables) -> list[dict[str, Any]]:
    """Returns the newest claim of each stream that has not ended, as far as it is known.

    A stream on this machine whose process no longer exists has ended. One that died on another
    machine is still returned.
    """
    newest: dict[str, dict[str, Any]] = {}
    for row in tables.rows(TABLE):
        order = (row["epoch"], bool(row["ended_at"]))
        known = newest.get(row["role"])
        if known is None or order > (known["epoch"], bool(known["ended_at"])):
            newest[row["role"]] = row
    return [
        row
        for role, row in sorted(newest.items())
        if role.startswith(STREAM) and not row["ended_at"] and not _has_died(row)
    ]


class Fence:
    """Lets one alone write for a role, as ``stream of itch.raw``. For several threads.

    sealed: tables that take no commit of an earlier epoch once a claim has returned.
    """

    def __init__(
        self,
        tables: Tables,
        role: str,
        sealed: Sequence[str] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tables = tables
        self._role = role
        self._sealed = sealed
        self._clock = clock
        self._row: dict[str, Any] | None = None
        self._lock = threading.Lock()
        self._seen, self._seen_at = -1, 0.0
        #: Whether another owner had the place before.
        self.succeeds_other = False
        #: The newest claim above ours.
        self._winner: dict[str, Any] | None = None

    def claim(
        self,
        owner: str,
        application: str,
        checkpoint: str | None = None,
        *,
        take_over: bool = False,
        patience: float = 0.0,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Takes the place, where it is free or this owner's, or with ``take_over`` in any case.

        A holder that is replaced has ``patience`` seconds to end. Raises TableError
        WRITER_ACTIVE.
        """
        while self._row is None:
            # Looked up first, or a claim that comes between the two would go unseen, and be passed.
            counted = self._tables.last_transaction(TABLE, self._role) or 0
            before = self._newest()
            if before and before["owner"] != owner and not before["ended_at"] and not take_over:
                raise TableError(
                    "WRITER_ACTIVE",
                    f"the {self._role} already has a writer ({_who(before)}), and two writers "
                    "would send everything twice: stop that writer. If it is dead or should be "
                    "replaced, start this one once with --take-over",
                )
            row: dict[str, Any] = {
                "role": self._role,
                "epoch": max(counted, before["epoch"] if before else 0) + 1,
                "owner": owner,
                "checkpoint": checkpoint,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "application": application,
                "since": utc(self._clock),
                "ended_at": None,
            }
            self._tables.append(TABLE, [row], (self._role, row["epoch"]))
            self._tables.make_durable(TABLE)
            # Of two that claim the same epoch one has the row.
            if row in self._rows(row["epoch"]):
                self._row = row
        self.succeeds_other = before is not None and before["owner"] != owner
        if before and before["owner"] != owner and not before["ended_at"]:
            log.warning("took over the %s from %s", self._role, _who(before))
            self._await_end(before, self._clock.monotonic() + patience, stopping)
        for name in self._sealed:
            self._tables.append(name, [], epoch=self._epoch)

    def lost(self) -> bool:
        """Tells whether somebody else has claimed the place since.

        On a local path it looks at the table's log (20 us), elsewhere at most once in `FRESH`
        seconds.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._row and (self._tables.local or now - self._seen_at > FRESH):
                version = self._tables.version(TABLE)
                if version != self._seen:
                    newest = self._newest(self._row["epoch"])
                    if newest and newest["epoch"] > self._row["epoch"]:
                        self._winner = newest
                self._seen, self._seen_at = version, now
            return self._winner is not None

    def check(self) -> None:
        """Returns where the place is still ours. Raises TableError FENCED."""
        if self.lost():
            raise self._fenced()

    def check_owner(self) -> None:
        """Returns where nobody else writes what our owner keeps, as its checkpoint: who lost the
        place to another owner may still record what it has done. Raises TableError FENCED."""
        if self.lost() and self._row and (self._winner or {}).get("owner") == self._row["owner"]:
            raise self._fenced()

    def append(self, name: str, rows: pa.Table, transaction: tuple[str, int]) -> None:
        """Appends as `Tables.append`, and durably, unless a later claim has sealed the table.

        Raises TableError FENCED: nothing was committed; OSError.
        """
        if not self._tables.append(name, rows, transaction, self._epoch):
            self._seen, self._seen_at = -1, 0.0
            self.lost()
            raise self._fenced()
        self._tables.make_durable(name)

    def last_transaction(self, name: str, writer: str) -> int | None:
        """As `Tables.last_transaction`."""
        return self._tables.last_transaction(name, writer)

    def release(self) -> None:
        """Says that we have ended, if we had the place; somebody may wait for that."""
        row, self._row = self._row, None
        if row is None:
            return
        try:
            self._tables.append(TABLE, [row | {"ended_at": utc(self._clock)}])
        except (StorageError, StackcastError, OSError) as error:
            log.warning(
                "%s: another checkpoint needs --take-over, because the end of this writer could "
                "not be recorded: %s",
                self._role,
                error,
            )

    @property
    def _epoch(self) -> tuple[str, int] | None:
        return None if self._row is None else (self._role, int(self._row["epoch"]))

    def _fenced(self) -> TableError:
        who = _who(self._winner) if self._winner else "it deleted the row of this one"
        return TableError(
            "FENCED",
            f"another writer took over the {self._role} ({who}): nothing more was sent or written "
            "here. To continue here, stop that writer, and start this one with --take-over",
        )

    def _newest(self, since: int = 0) -> dict[str, Any] | None:
        """The claim of the highest epoch, and since when it has ended, if so."""
        rows = self._rows(since)
        return max(rows, key=lambda row: (row["epoch"], bool(row["ended_at"])), default=None)

    def _rows(self, since: int) -> list[dict[str, Any]]:
        rows = self._tables.rows(TABLE, since={"epoch": since})
        return [row for row in rows if row["role"] == self._role]

    def _await_end(
        self, before: dict[str, Any], deadline: float, stopping: Callable[[], bool]
    ) -> None:
        while self._clock.monotonic() < deadline and not stopping():
            if any(r["ended_at"] for r in self._rows(before["epoch"]) if _same(r, before)):
                return
            if _has_died(before):
                return
            self._clock.sleep(_PAUSE)


def _has_died(row: dict[str, Any]) -> bool:
    """Returns whether the process of a claim is known to have ended; only this machine's are."""
    here = row["host"] == socket.gethostname()
    return here and not Path(f"/proc/{row['pid']}").exists()


def _same(row: dict[str, Any], claim: dict[str, Any]) -> bool:
    return bool(row["epoch"] == claim["epoch"])


def _who(row: dict[str, Any]) -> str:
    of = f" of checkpoint {row['checkpoint']}" if row["checkpoint"] else ""
    return (
        f"process {row['pid']} on {row['host']}, application {row['application']}{of}, since "
        f"{row['since']:%Y-%m-%d %H:%M:%S} UTC"
    )
