"""What Spark and Delta say when a statement fails, in one line for people."""

from __future__ import annotations

import logging
import re
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

#: Everything that a statement, a read or a write can raise; Delta's own reach Python unconverted.
SQL_ERRORS = (PySparkException, Py4JError)

_CONTEXT = re.compile(r"(;\s*$)|(^== )|(^['+:]? *['+]- )|(^JVM stacktrace)|(^\s*at )")


def one_line(error: BaseException) -> str:
    """The error's own words on one line: no query plan, no stack of Java calls."""
    java: Any = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    lines = []
    for line in text.splitlines():
        found = _CONTEXT.search(line)
        lines.append(line[: found.start()] if found else line)
        if found:
            break
    return " ".join(" ".join(lines).split()) or type(error).__name__


def quiet(spark: SparkSession) -> None:
    """Keep Spark from logging what a statement does wrong; its error says it."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    log4j: Any = spark._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setAllLevels("", log4j.Level.OFF)
