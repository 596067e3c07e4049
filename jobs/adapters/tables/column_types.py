"""Types of the columns of a schema in Spark's JSON, as text."""

from __future__ import annotations

import json
from typing import Any


def column_types(schema: str) -> dict[str, str]:
    """Returns the types by column, as text, of a schema in Spark's JSON."""
    return {field["name"]: _text(field["type"]) for field in json.loads(schema)["fields"]}


def _text(kind: Any) -> str:
    """Returns a type of Spark's JSON as text, without what may be null."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_text(kind['keyType'])}, {_text(kind['valueType'])}>"
    fields = (f"{field['name']}: {_text(field['type'])}" for field in kind["fields"])
    return f"struct<{', '.join(fields)}>"
