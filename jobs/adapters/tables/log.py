"""The log of a Delta table: its version, which table it is, and what its commits say."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from delta.exceptions import ConcurrentTransactionException
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

#: Length of a commit's name: a number of 20 digits and ``.json``.
_NAME = 25


class LocalLog:
    """The log of a table in a folder of this machine; no Spark is asked. For several threads.

    The first look lists the log; further ones go on from the last known commit, whatever the log's
    length. The table may be deleted and made anew at any time, and old commits cleaned away.
    """

    def __init__(self, table: Path) -> None:
        self._folder = table / "_delta_log"
        self._lock = threading.Lock()
        self._version: int | None = None
        self._mark: tuple[int, ...] | None = None
        self._id: str | None = None

    def version(self) -> int | None:
        """Number of the newest commit; None without a table."""
        with self._lock:
            return self._look()

    def id(self) -> str | None:
        """Delta's id of the table, as its first commit says it; None where that is gone."""
        with self._lock:
            if self._look() is not None and self._id is None:
                for action in actions(self.commit(0) or ""):
                    self._id = action.get("metaData", {}).get("id", self._id)
            return self._id

    def commit(self, version: int) -> str | None:
        """The text of a commit; None where it is gone or was never made."""
        try:
            return self._path(version).read_text()
        except (OSError, ValueError):
            return None

    def _look(self) -> int | None:
        known = self._version
        # A commit is written once: if it is the same file, it is the same table.
        if known is None or self._mark_of(known) != self._mark:
            self._id = None
            known = self._listed()
        while known is not None and self._path(known + 1).exists():
            known += 1
        self._version = known
        self._mark = None if known is None else self._mark_of(known)
        return known

    def _listed(self) -> int | None:
        try:
            names = [path.name for path in self._folder.iterdir() if path.suffix == ".json"]
        except (FileNotFoundError, NotADirectoryError):
            return None
        numbers = (n.removesuffix(".json") for n in names if len(n) == _NAME)
        return max((int(n) for n in numbers if n.isdigit()), default=None)

    def _mark_of(self, version: int) -> tuple[int, ...] | None:
        try:
            status = self._path(version).stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:020d}.json"


class SparkLog:
    """The log of a table anywhere, as Delta's Java classes see it: each look asks the storage.

    where: a path, or an identifier of Spark's Java classes.
    """

    def __init__(self, spark: SparkSession, where: Any) -> None:
        self._jvm: Any = spark._jvm
        self._session: Any = spark._jsparkSession
        self._where = where

    def version(self) -> int | None:
        """Number of the newest commit; None without a table."""
        snapshot = self.snapshot()
        return None if snapshot is None else int(snapshot.version())

    def head(self) -> tuple[str, int] | None:
        """Delta's id of the table, and the version; None without a table."""
        snapshot = self.snapshot()
        return snapshot and (str(snapshot.metadata().id()), int(snapshot.version()))

    def commit(self, version: int) -> str | None:
        """The text of a commit; None where it is gone or was never made."""
        try:
            folder = self._delta_log().logPath()
            path = self._jvm.org.apache.hadoop.fs.Path(folder, f"{version:020d}.json")
            hadoop = self._session.sessionState().newHadoopConf()
            stream = path.getFileSystem(hadoop).open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except (Py4JError, AnalysisException):
            return None

    def snapshot(self) -> Any:
        """Delta's newest snapshot; None without a table."""
        none = self._jvm.scala.Option.empty
        try:
            snapshot = self._delta_log().update(False, none(), none())
        except AnalysisException:
            return None
        return snapshot if int(snapshot.version()) >= 0 else None

    def append(
        self, frame: DataFrame, transaction: tuple[str, int] | None, epoch: tuple[str, int]
    ) -> bool:
        """Appends a frame with the table's columns, in one commit with both numbers.

        As `Tables.append`, which Spark's own writer does not do, as it has room for one number.
        """
        given = [epoch] if transaction is None else [epoch, transaction]
        none = self._jvm.scala.Option.empty
        write = getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")
        how = write(self._jvm.org.apache.spark.sql.SaveMode.Append, *[none() for _ in range(8)])
        while True:
            under_way = self._delta_log().startTransaction()
            # Where another commit of one of these comes in between, Delta refuses this one.
            counted = {writer: int(under_way.txnVersion(writer)) for writer, _ in given}
            if counted[epoch[0]] > epoch[1]:
                return False
            if transaction is not None and counted[transaction[0]] >= transaction[1]:
                return True
            actions = self._numbered(under_way.writeFiles(frame._jdf), given)
            with contextlib.suppress(ConcurrentTransactionException):
                under_way.commit(actions, how)
                return True

    def _numbered(self, actions: Any, given: Sequence[tuple[str, int]]) -> Any:
        """Returns the actions of a commit with the numbers of those who write."""
        none = self._jvm.scala.Option.empty
        kind = self._jvm.org.apache.spark.sql.delta.actions.SetTransaction
        for writer, number in given:
            actions = actions.appended(kind(writer, number, none()))
        return actions

    def _delta_log(self) -> Any:
        return self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._session, self._where)


def actions(commit: str) -> Iterable[dict[str, Any]]:
    """The actions of a commit, from its text; none where the text is damaged."""
    try:
        return [json.loads(line) for line in commit.splitlines() if line]
    except ValueError:
        return []


def only_adds(commit: str | None) -> bool:
    """Tells whether all rows that were there before a commit are there after it."""
    found = actions(commit or "")
    return bool(found) and not any(
        action["remove"].get("dataChange", True) for action in found if "remove" in action
    )


def added_files(commit: str | None) -> list[str] | None:
    """The files of new rows in a commit, as paths from the table's folder on; None where files
    alone do not say which rows are new."""
    found = actions(commit or "")
    added = [action["add"] for action in found if "add" in action]
    new = [each for each in added if each.get("dataChange", True)]
    if not found or any(each.get("deletionVector") or each.get("partitionValues") for each in new):
        return None
    return [unquote(each["path"]) for each in new]
