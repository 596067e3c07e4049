"""The two files of a program as text: P4Info and BMv2 JSON, and where they cannot be read.

``name`` is what an error calls the text by: its file. All raise SwitchError ``WRONG_PROGRAM``.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import text_format

from stackcast.schemas.p4runtime import p4info_pb2
from stackcast.udfs.errors import SwitchError

# A P4Info parser quotes the whole line, and compact JSON is one line.
_LONGEST_REASON = 80


def parse_p4info(text: str, name: str) -> p4info_pb2.P4Info:
    """Reads a P4Info in text format."""
    p4info = p4info_pb2.P4Info()
    try:
        text_format.Parse(text, p4info)
    except text_format.ParseError as error:
        line, column = error.GetLine() or 1, error.GetColumn() or 1
        reason = str(error).removeprefix(f"{line}:{column} : ")
        hint = ""
        if text.lstrip().startswith("{"):
            hint = "; it starts with '{' like JSON: use the P4Info file of the program"
        raise _unreadable(name, line, column, "not a P4Info in text format", reason, hint) from None
    return p4info


def parse_json(text: bytes, name: str) -> Any:
    """Reads a JSON document, of any form."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _unreadable(name, error.lineno, error.colno, "not valid JSON", error.msg) from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, 1, 1, "not valid JSON", str(error)) from None


def _unreadable(
    name: str, line: int, column: int, what: str, reason: str, hint: str = ""
) -> SwitchError:
    reason = " ".join(reason.split())
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[: _LONGEST_REASON - 3]}..."
    return SwitchError("WRONG_PROGRAM", f"{name}:{line}:{column}: {what}: {reason}{hint}")
