"""The log of a Delta table in any storage, read by the Java classes of Delta.

Delta's Python and SQL interfaces provide neither the newest version, nor the transaction numbers,
nor a commit with two such numbers, see `SparkLog.append`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from delta.exceptions import ConcurrentTransactionException
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from stackcast.jobs.adapters.tables.log import parse_commit
from stackcast.jobs.adapters.tables.tables import Action, Number


class Snapshot:
    """A version of a table.

    Args:
        snapshot: Delta's Java object.
    """

    def __init__(self, snapshot: Any) -> None:
        self._snapshot = snapshot

    @property
    def version(self) -> int:
        """The number of the version."""
        return int(self._snapshot.version())

    @property
    def id(self) -> str:
        """The id of the table."""
        return str(self._snapshot.metadata().id())

    def property(self, key: str) -> str | None:
        """Return a property of the table."""
        value = self._snapshot.metadata().configuration().get(key)
        return str(value.get()) if value.isDefined() else None

    def last_number(self, writer: str) -> int | None:
        """Return the highest transaction number of a writer."""
        number = self._snapshot.transactions().get(writer)
        return int(number.get()) if number.isDefined() else None


class SparkLog:
    """The log of a table. Each call asks the storage.

    Args:
        spark: the session.
        table: path, or identifier of Spark's Java classes.
    """

    def __init__(self, spark: SparkSession, table: Any) -> None:
        self._jvm: Any = spark._jvm
        self._session: Any = spark._jsparkSession
        self._table = table

    def snapshot(self) -> Snapshot | None:
        """Return the newest version, or None if there is no table."""
        none = self._jvm.scala.Option.empty
        try:
            snapshot = Snapshot(self._delta_log().update(False, none(), none()))
        except AnalysisException:
            return None
        return snapshot if snapshot.version >= 0 else None

    def commit(self, version: int) -> Sequence[Action]:
        """Return the actions of a commit; empty if it does not exist or is damaged."""
        try:
            folder = self._delta_log().logPath()
            path = self._jvm.org.apache.hadoop.fs.Path(folder, f"{version:020d}.json")
            hadoop = self._session.sessionState().newHadoopConf()
            stream = path.getFileSystem(hadoop).open(path)
            try:
                text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
        except (Py4JError, AnalysisException):
            return ()
        return parse_commit(str(text))

    def append(self, frame: DataFrame, transaction: Number | None, epoch: Number) -> bool:
        """Append a frame in one commit with one or two numbers; see `Tables.append`.

        Delta's DataFrame writer (``txnAppId``, ``txnVersion``) accepts one number, and so do the
        properties of the session for SQL statements. A fenced write needs two in the same commit:
        that of the writer, and that of the role.
        """
        jvm, none = self._jvm, self._jvm.scala.Option.empty
        numbers = dict([epoch] if transaction is None else [epoch, transaction])
        operation = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$StreamingUpdate")(
            jvm.org.apache.spark.sql.streaming.OutputMode.Append(), *(transaction or epoch), none()
        )
        while True:
            commit = self._delta_log().startTransaction()
            # Delta refuses the commit if another one with one of these numbers comes first.
            newest = {writer: int(commit.txnVersion(writer)) for writer in numbers}
            if newest[epoch[0]] > epoch[1]:
                return False
            if transaction is not None and newest[transaction[0]] >= transaction[1]:
                return True
            actions = self._numbered(commit.writeFiles(frame._jdf), numbers)
            with contextlib.suppress(ConcurrentTransactionException):
                commit.commit(actions, operation)
                return True

    def _numbered(self, actions: Any, numbers: Mapping[str, int]) -> Any:
        """Return the actions of a commit with transaction numbers."""
        none = self._jvm.scala.Option.empty
        kind = self._jvm.org.apache.spark.sql.delta.actions.SetTransaction
        for writer, number in numbers.items():
            actions = actions.appended(kind(writer, number, none()))
        return actions

    def _delta_log(self) -> Any:
        return self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._session, self._table)
