"""Errors of Spark and Delta under codes of Stackcast."""

from __future__ import annotations

import logging
import re
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_lines import java_causes, one_line, own_error
from stackcast.jobs.adapters.app.storage_errors import StorageError
from stackcast.udfs.errors import TableError

__all__ = [
    "SQL_ERRORS",
    "gone_for_good",
    "one_line",
    "own_error",
    "quiet",
    "table_error",
]

#: Everything that a statement, a read or a write can raise; Delta's own reach Python unconverted.
SQL_ERRORS = (PySparkException, Py4JError, StorageError)

#: The log has no such version (any more), or a data file of it was removed.
_GONE = re.compile(
    r"DELTA_VERSION_NOT_FOUND|DELTA_NO_RECREATABLE_HISTORY_FOUND|DELTA_TRUNCATED_TRANSACTION_LOG"
    r"|BEYOND_DELETED_FILE_RETENTION|DELTA_FILE_NOT_FOUND|FILE_NOT_EXIST"
    r"|FileNotFoundException(?!.*_delta_log)"
)
#: Codes of ours, the conditions of Spark and Delta that they stand for, and what to do.
_CODES = (
    (
        "MISSING",
        re.compile(r"(PATH|TABLE_OR_VIEW|DELTA_TABLE)_NOT_FOUND|DELTA_MISSING_DELTA_TABLE"),
        "SHOW TABLES lists the existing tables; jobs/create_tables.py creates missing ones",
    ),
    (
        "NOT_WRITABLE",
        re.compile(r"DELTA_CANNOT_CREATE_LOG_PATH"),
        "grant this user write access, or set spark.stackcast.tables to another location",
    ),
)
#: What Py4J says of a call that brought no answer at all, not even a Java exception.
_NO_ANSWER = re.compile(r"An error occurred while calling [\w.:$]+")
_CONDITION = re.compile(r"^\[([A-Z0-9_]+)(?:\.[A-Z0-9_]+)*\] ")
_STATE = re.compile(r"[.;]? SQLSTATE: \w{5}")


def table_error(error: BaseException, doing: str = "") -> TableError:
    """Returns the error under a code of ours, with Spark's words in place of its code.

    doing: what failed, as a statement; the message begins with it.
    """
    told = one_line(error)
    cause = error.__cause__ if isinstance(error, StorageError) else error
    if isinstance(cause, Py4JError) and _NO_ANSWER.fullmatch(told):
        text = "the job's JVM does not respond: it has exited or was killed"
        return TableError("NO_ANSWER", f"{doing}: {text}" if doing else text)
    condition = _CONDITION.match(told)
    words = _STATE.sub("", told[condition.end() :] if condition else told)
    before = f"{doing}: " if doing else ""
    for what, conditions, remedy in _CODES:
        if condition and conditions.fullmatch(condition[1]):
            return TableError(what, f"{before}{words.partition('. ')[0].rstrip('.')}: {remedy}")
    return TableError("REFUSED", before + words)


def gone_for_good(error: BaseException) -> bool:
    """Tells whether a read failed as Delta lacks that version, or files of it: no later try can
    succeed.

    False for anything else, as storage that does not answer.
    """
    if isinstance(error, TableError) and error.what == "VERSION_GONE":
        return True
    if isinstance(error, StorageError):
        return error.gone
    return any(_GONE.search(text) for text in (str(error), *java_causes(error)))


def quiet(spark: SparkSession) -> None:
    """Keep Spark from logging what a statement does wrong; its error says it."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    log4j: Any = spark._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setAllLevels("", log4j.Level.OFF)
