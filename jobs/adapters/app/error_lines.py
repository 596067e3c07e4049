"""Errors of any library as one line, without an import of Spark."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

#: An error of Stackcast in a text of Spark, such as the traceback of a task.
_OWN = re.compile(r"Error: ([A-Z][A-Z0-9]+\.[A-Z0-9_]+: .*)")
#: Start of what follows the message of an error: a query plan or a Java stack.
_CONTEXT = re.compile(r"(;\s*$)|(^== )|(^['+:]? *['+]- )|(^JVM stacktrace)|(^\s*at )")
#: Maximum number of causes that are examined.
_CAUSES = 10


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line, without query plans and Java stacks.

    The message of its first cause, such as a full disk, is added if it says something else.
    """
    java: Any = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    lines = []
    for line in text.splitlines():
        context = _CONTEXT.search(line)
        lines.append(line[: context.start()] if context else line)
        if context:
            break
    message = " ".join(" ".join(lines).split()) or type(error).__name__
    causes = java_causes(error)
    first = causes[-1].partition("\n")[0].strip() if causes else ""
    cause_message = first.partition(": ")[2]
    return message if cause_message in text else f"{message} (caused by: {first})"


def own_error(text: str) -> str:
    """Return the last error of Stackcast in a text, as ``CODE: message``; empty if there is none.

    Python prints a cause before the error that it led to, so the last one is the outermost.
    """
    errors = _OWN.findall(text)
    return errors[-1] if errors else ""


def java_causes(error: BaseException) -> list[str]:
    """Return the Java exception behind an error and its causes, as ``class: message`` each.

    The list is shorter if the JVM, which has these exceptions, has ended.
    """
    texts: list[str] = []
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    # The errors of a connection to a JVM are classes of py4j, which is not imported here.
    with suppress(Exception):
        while cause is not None and len(texts) < _CAUSES:
            texts.append(str(cause.toString()))
            cause = cause.getCause()
    return texts
