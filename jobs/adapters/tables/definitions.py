"""The definitions of our tables in ``schemas/tables/*.sql``, read without Spark."""

from __future__ import annotations

import functools
import json
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stackcast import schemas

#: All tables, beginning with those that people edit.
NAMES = (
    "subscriptions",
    "subscription_seniority",
    "live_subscriptions",
    "rejected_subscriptions",
    "subscription_warnings",
    "advertisements",
    "grants",
    "attributes",
    "matches",
    "switches",
    "hosts",
    "links",
    "ingresses",
    "filter_entries",
    "filter_leaves",
    "virtual_trees",
    "header_stacks",
    "switch_entries",
    "switch_status",
    "switch_drops",
    "network_versions",
    "delivery_statistics",
    "publication_statistics",
    "egress_ledger",
    "rerequest_statistics",
    "writers",
    "state_filters",
    "vnfs",
    "states",
    "state_publishers",
    "state_subscriptions",
    "state_positions",
    "state_recoveries",
)

#: Layout of all tables, in their property ``stackcast.layout``. A change of columns, or of their
#: meaning, increments the number. Layout 3 added ids, generations and leader epochs of topics to
#: `egress_ledger`, layout 4 `subscription_seniority`, and subscribers to `rejected_subscriptions`.
#: Layout 5 renamed columns of `switch_status`, `state_subscriptions` and `rerequest_statistics`.
#: Layout 6 added `ingresses`, and the ingress to partitions of `egress_ledger`.
LAYOUT = 6

_TOKEN = re.compile(r"\s*('(?:[^'\\]|\\.)*'|\w+|[^\s\w])", re.DOTALL)
#: Types of SQL without parameters, and their names in Spark's JSON.
_TYPES = {
    "STRING": "string",
    "INT": "integer",
    "BIGINT": "long",
    "DOUBLE": "double",
    "BOOLEAN": "boolean",
    "TIMESTAMP": "timestamp",
    "BINARY": "binary",
}
#: Types in Spark's JSON without parameters, and those of Arrow.
_ARROW_TYPES = {
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
}


@dataclass(frozen=True)
class TableDefinition:
    """Definition of a table.

    Attributes:
        schema: the columns in Spark's JSON.
        comment: description of the table.
        properties: properties of the table, such as its constraints.
    """

    schema: str
    comment: str
    properties: Mapping[str, str]

    @functools.cached_property
    def columns(self) -> pa.Schema:
        """The columns as a schema of Arrow."""
        return pa.schema(_arrow_fields(json.loads(self.schema)))


def _arrow_fields(struct: Mapping[str, Any]) -> list[pa.Field]:
    return [
        pa.field(field["name"], _arrow_type(field["type"]), field["nullable"], field["metadata"])
        for field in struct["fields"]
    ]


def _arrow_type(kind: Any) -> pa.DataType:
    """Return the type of Arrow for a type in Spark's JSON."""
    if isinstance(kind, str):
        decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW_TYPES[kind]
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _arrow_type(kind["elementType"])))
    if kind["type"] == "map":
        return pa.map_(_arrow_type(kind["keyType"]), _arrow_type(kind["valueType"]))
    return pa.struct(_arrow_fields(kind))


def statement(name: str, target: str) -> str:
    """Return the SQL statement that creates a table if it does not exist.

    Args:
        name: the table, one of `NAMES`.
        target: its name in the statement.
    """
    text = string.Template(schemas.read_text(f"tables/{name}.sql"))
    return text.substitute(table=target, layout=LAYOUT)


@functools.cache
def definition(name: str) -> TableDefinition:
    """Return the definition of a table, one of `NAMES`."""
    tokens = _Tokens(statement(name, name))
    for word in ("CREATE", "TABLE", "IF", "NOT", "EXISTS", name, "("):
        tokens.take(word)
    fields = [_field(tokens)]
    while tokens.skip(","):
        fields.append(_field(tokens))
    for word in (")", "USING", "delta", "COMMENT"):
        tokens.take(word)
    comment = tokens.text()
    tokens.take("TBLPROPERTIES")
    tokens.take("(")
    properties = dict([_property(tokens)])
    while tokens.skip(","):
        properties |= [_property(tokens)]
    tokens.take(")")
    tokens.end()
    return TableDefinition(json.dumps({"type": "struct", "fields": fields}), comment, properties)


def _field(tokens: _Tokens, colon: bool = False) -> dict[str, Any]:
    """Read a column, or with a colon after its name the field of a struct."""
    name = tokens.next()
    if colon:
        tokens.take(":")
    kind = _type(tokens)
    nullable = not tokens.skip("NOT")
    if not nullable:
        tokens.take("NULL")
    metadata = {"comment": tokens.text()} if tokens.skip("COMMENT") else {}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def _type(tokens: _Tokens) -> Any:
    word = tokens.next()
    if word == "DECIMAL":
        tokens.take("(")
        precision = tokens.next()
        tokens.take(",")
        scale = tokens.next()
        tokens.take(")")
        return f"decimal({precision},{scale})"
    if word not in ("ARRAY", "MAP", "STRUCT"):
        return _TYPES[word]
    tokens.take("<")
    kind: dict[str, Any] = {"type": word.lower()}
    if word == "ARRAY":
        kind |= {"elementType": _type(tokens), "containsNull": True}
    elif word == "MAP":
        kind["keyType"] = _type(tokens)
        tokens.take(",")
        kind |= {"valueType": _type(tokens), "valueContainsNull": True}
    else:
        kind["fields"] = [_field(tokens, colon=True)]
        while tokens.skip(","):
            kind["fields"].append(_field(tokens, colon=True))
    tokens.take(">")
    return kind


def _property(tokens: _Tokens) -> tuple[str, str]:
    key = tokens.text()
    tokens.take("=")
    return key, tokens.text()


class _Tokens:
    """The tokens of a statement. An unexpected token in one of our files is a ValueError."""

    def __init__(self, statement: str) -> None:
        self._tokens = [match[1] for match in _TOKEN.finditer(statement)]
        self._tokens.reverse()

    def next(self) -> str:
        if not self._tokens:
            raise ValueError("the statement is incomplete")
        return self._tokens.pop()

    def skip(self, token: str) -> bool:
        """Remove a token if it is the next one, and return True if it was."""
        if self._tokens and self._tokens[-1] == token:
            self._tokens.pop()
            return True
        return False

    def take(self, token: str) -> None:
        if (following := self.next()) != token:
            raise ValueError(f"expected {token}, but found {following}")

    def text(self) -> str:
        """Remove a string literal and return its text."""
        literal = self.next()
        if literal[0] != "'":
            raise ValueError(f"expected a string literal, but found {literal}")
        return re.sub(r"\\(.)", r"\1", literal[1:-1])

    def end(self) -> None:
        if self._tokens:
            raise ValueError(f"expected the end of the statement, but found {self._tokens[-1]}")
