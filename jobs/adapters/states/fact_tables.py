"""The Delta tables of replicated states: a stream's batches of the controller's facts, merged in.

The topic of facts is compacted, so it tells the last of each fact for ever: a stream that begins
anew makes the tables what they should be, and one that goes on applies what came since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, functions
from pyspark.sql.functions import col, lit, when

from stackcast.jobs.adapters.tables.edits import replace_changed
from stackcast.jobs.adapters.tables.tables import Tables

Row = dict[str, Any]

#: Fields of all kinds of facts (`stackcast.udfs.states.controller`).
_FIELDS = (
    "name string, address bigint, alive boolean, replaced boolean, owner int, segments bigint, "
    "first int, newest int, wanted boolean, live boolean, update int, segment int, "
    "recovery bigint, publisher int, state int, count int"
)


@dataclass(frozen=True)
class _Kind:
    """What becomes of facts of a kind: rows of a table. ``numbers``: what those of its key are;
    ``fields``: its columns, by field."""

    table: str
    numbers: tuple[str, ...]
    keys: tuple[str, ...]
    fields: dict[str, str]
    #: Rows stay when facts are gone: the topic keeps the newest of them only.
    is_history: bool = False


KINDS = {
    "vnf": _Kind(
        "vnfs",
        ("vnf",),
        ("vnf",),
        {"name": "name", "host": "host", "alive": "alive", "replaced": "replaced"},
    ),
    "state": _Kind(
        "states",
        ("state",),
        ("state",),
        {"name": "name", "owner": "owner", "segments": "segments"},
    ),
    "publisher": _Kind(
        "state_publishers",
        ("vnf", "state"),
        ("vnf", "state"),
        {"first_update": "first", "newest_update": "newest"},
    ),
    "subscription": _Kind(
        "state_subscriptions",
        ("vnf", "state"),
        ("vnf", "state"),
        {"subscribed": "wanted", "live_since": "live_since"},
    ),
    "position": _Kind(
        "state_positions",
        ("vnf", "state", "publisher"),
        ("vnf", "state", "publisher"),
        {"update_number": "update", "segment": "segment"},
    ),
    "recovery": _Kind(
        "state_recoveries",
        (),
        ("recovery",),
        {
            "recovery": "recovery",
            "host": "host",
            "state": "state",
            "publisher": "publisher",
            "update_number": "update",
            "first_segment": "segment",
            "segments": "count",
        },
        is_history=True,
    ),
}


class FactTables:
    """Keeps the tables at what the facts say."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def take(self, records: DataFrame, batch: int) -> int:
        """Merges a batch of Kafka's records into the tables: key, value, offset, timestamp.

        Returns how many facts it had. Batch 0 of a stream has all there are, and what the tables
        have besides goes. A batch may come again.
        """
        facts = _last(records).toArrow().to_pylist()
        by_kind: dict[str, list[Row]] = {kind: [] for kind in KINDS}
        for fact in facts:
            by_kind[fact["kind"]].append(fact)
        for name, kind in KINDS.items():
            self._merge(kind, by_kind[name], whole=batch == 0 and not kind.is_history)
        return len(facts)

    def _merge(self, kind: _Kind, facts: list[Row], *, whole: bool) -> None:
        changed = [_row(kind, fact) for fact in facts if not fact["ended"]]
        if whole:
            replace_changed(self._tables, kind.table, changed, kind.keys)
            return
        ended = [fact for fact in facts if fact["ended"] and not kind.is_history]
        gone = [dict(zip(kind.keys, _numbers(fact), strict=False)) for fact in ended]
        self._tables.merge(kind.table, changed, gone, kind.keys)


def _last(records: DataFrame) -> DataFrame:
    """The last record of each key, read."""
    newest = functions.max_by(functions.struct("value", "timestamp"), "offset").alias("newest")
    parts = functions.split(col("key").cast("string"), "/")
    address = col("said.address")
    octets = [functions.shiftright(address, n).bitwiseAND(255) for n in (24, 16, 8, 0)]
    return (
        records.groupBy("key")
        .agg(newest)
        .select(
            parts[0].alias("kind"),
            *(functions.get(parts, lit(n)).cast("int").alias(f"number_{n}") for n in (1, 2, 3)),
            functions.from_json(col("newest.value").cast("string"), _FIELDS).alias("said"),
            col("newest.timestamp").alias("at"),
            col("newest.value").isNull().alias("ended"),
        )
        .where(col("kind").isin(*KINDS))
        .select(
            *("kind", "number_1", "number_2", "number_3", "at", "ended"),
            functions.concat_ws(".", *octets).alias("host"),
            when(col("said.live"), col("at")).alias("live_since"),
            *(col(f"said.{field.split()[0]}") for field in _FIELDS.split(", ")),
        )
    )


def _numbers(fact: Row) -> tuple[int, ...]:
    return fact["number_1"], fact["number_2"], fact["number_3"]


def _row(kind: _Kind, fact: Row) -> Row:
    times = "recovered_at" if kind.is_history else "updated_at"
    return {
        **dict(zip(kind.numbers, _numbers(fact), strict=False)),
        **{column: fact[field] for column, field in kind.fields.items()},
        times: fact["at"],
    }
