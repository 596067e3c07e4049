"""Log lines of the jobs: time, level, where, what; and output that no terminal obeys.

Names, ids and texts of messages come from others. What does not print in them is written out, as
``\\x1b``, in every line of a log and in all that commands and jobs write as text.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Mapping
from typing import Any

from stackcast.udfs.errors import printable
from stackcast.udfs.stop_request import StopAsked

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class OneLine(logging.Formatter):
    """Formats a record as one line, whatever its message has in it; behind it a traceback's."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        return _printable_lines(super().formatException(ei))


class PrintableStream(io.TextIOWrapper):
    """A text stream that writes out what does not print, but for ends of lines and tabs."""

    def write(self, text: str, /) -> int:
        super().write(_printable_lines(text))
        return len(text)


def guard_streams() -> None:
    """Has standard output and error write nothing that a terminal would obey."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            encoding, lines = stream.encoding, stream.line_buffering or name == "stderr"
            guarded = PrintableStream(stream.detach(), encoding, "backslashreplace", None, lines)
            setattr(sys, name, guarded)


def _printable_lines(text: str) -> str:
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in "\n\t" else printable(c) for c in text)


def set_up() -> None:
    """Send the log to standard error; libraries speak from WARNING on."""
    guard_streams()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(_FORMAT))
    hide_stops(handler)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("stackcast").setLevel(logging.INFO)
    # It logs each failed connection as an error, which its caller reports or repeats.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)


def hide_stops(handler: logging.Handler) -> None:
    """Make a handler ignore Py4J's tracebacks of a requested stop, which the job itself reports."""
    handler.addFilter(lambda record: not _is_stop(record))


def _is_stop(record: logging.LogRecord) -> bool:
    """Whether a record has the traceback of a requested stop, or of an error that it has caused."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if isinstance(error, KeyboardInterrupt | StopAsked):
            return True
        error = error.__context__
    return False


def named(versions: Mapping[str, int]) -> str:
    """Versions of tables as a log line has them: ``links@3, subscriptions@17``."""
    return ", ".join(f"{name}@{version}" for name, version in versions.items())
