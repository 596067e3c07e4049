"""The records of a batch on their way to the workers: fetched by tasks or by Spark's connector.

Spark parses those that are JSON, and names that no attribute has yet are registered on the way,
where settings say so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.settings import PREFIX, Settings
from jobs.adapters.fetch.client import Range, client_of
from jobs.adapters.fetch.options import FetchOptions, fetch_options
from jobs.adapters.planning import formats
from jobs.adapters.tables.attribute_registry import register
from jobs.adapters.tables.tables import Tables
from udfs.columns import Source
from udfs.errors import KafkaError, StackcastError
from udfs.messages.attributes.events import LONGEST_JSON
from udfs.messages.attributes.pairs import FLAT_IN_JAVA, NUMBER
from udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from udfs.messages.attributes.registry import Registry, Type, attribute, is_name

log = logging.getLogger(__name__)

REGISTRANT = "stream"
MOST_NAMES = 1000
"""New names of a batch that are looked at: a registry has room for 32."""

_NUMBERS: tuple[Type, ...] = ("decimal", "signed", "unsigned")
#: ISO 8601 as a timestamp takes it, or near enough: times.py has the last word.
_TIME = (
    r'\A"[0-9]{4}-[0-9]{2}-[0-9]{2}'
    r'([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?"\z'
)

_OPTIONS = {"allowNonNumericNumbers": "true", "allowSingleQuotes": "false", "mode": "PERMISSIVE"}
#: Most names that one line of the log shows.
_SHOWN = 10


def fetch_of(settings: Settings) -> FetchOptions | None:
    """Returns the options by which tasks fetch records themselves; None where Spark's connector
    does, and a line of the log says why."""
    why = f"{PREFIX}fetch says so"
    if settings.fetch == "tasks":
        try:
            if _json(settings):
                why = "Spark parses JSON"
            else:
                return fetch_options(settings.kafka)
        except KafkaError as error:
            why = error.message
    log.info("records are read by Spark's Kafka connector: %s", why)
    return None


def fetched(records: DataFrame, options: FetchOptions | None) -> tuple[DataFrame, Source]:
    """Returns what tasks are given for a micro-batch of Spark's Kafka source, and the function by
    which each makes the records of that.

    Without options these are the records themselves. Else Spark only plans: a task is given the
    number of a range of offsets, and fetches it.
    """
    if options is None:
        return records, iter
    ranges = _planned(records)
    count = max(1, len(ranges))

    def source(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                if number < len(ranges):
                    yield from client_of(options).batches(ranges[number])

    return records.sparkSession.range(0, count, 1, count), source


def _planned(records: DataFrame) -> list[Range]:
    """Returns the ranges of a micro-batch, a task's work each.

    Spark gives them to no public name: they are in the partitions of the records that it has
    planned already, and planning them once more would cost ten milliseconds.
    """
    partitions = records._jdf.queryExecution().logical().rdd().partitions()
    found = []
    for number in range(len(partitions)):
        span = partitions[number].inputPartition().get().offsetRange()
        place = span.topicPartition()
        found.append(Range(place.topic(), place.partition(), span.fromOffset(), span.untilOffset()))
    return found


def _json(settings: Settings) -> bool:
    return settings.format == ATTRIBUTES and settings.attributes_input == "json"


class EventInput:
    """Prepares records of JSON; of other formats it changes nothing."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        self._tables = tables
        self._widths = settings.widths
        self._json = _json(settings)
        self._registers = self._json and settings.attributes_unknown == "register"

    def prepare(self, records: DataFrame) -> DataFrame:
        """The records, with what Spark parses of them."""
        return with_pairs(records, LONGEST_JSON) if self._json else records

    def register_new(self, records: DataFrame, batch_id: int) -> None:
        """Give ids to the names that a batch has and the table lacks, where settings say so.

        Before the batch is planned, so that its events go out with them, in their order.
        """
        if not self._registers:
            return
        try:
            registry = formats.registry_of(self._tables, self._widths)
            names = unknown_names(records, registry)
            if not names:
                return
            _, new = registry.with_new(names)
            if new:
                # Another stream may have been faster: then the names have the ids that it gave.
                registry = register(self._tables, new, REGISTRANT, self._widths)
        except (StackcastError, *SQL_ERRORS) as error:
            # Events of names without an id are dead letters, and the others go on.
            log.error(
                "batch %d: new attributes could not be registered: %s", batch_id, one_line(error)
            )
            return
        found = registry.by_name
        for name in sorted(names.keys() & found.keys()):
            log.info(
                "batch %d: attribute %s is registered with id %d", batch_id, name, found[name].id
            )
        left = sorted(names.keys() - found.keys())
        if left:
            shown = ", ".join(left[:_SHOWN])
            log.warning("batch %d: %d names are not registered: %s", batch_id, len(left), shown)


def with_pairs(records: DataFrame, longest: int) -> DataFrame:
    """Records (column ``value``, binary) with a column ``pairs``, map<string, string>.

    Pairs are the names and the JSON texts of the values of one flat object, as
    `udfs.messages.attributes.pairs` reads them: text keeps its quotes, a name that is there twice
    stays so. They are null where a record has more than ``longest`` bytes or is anything else.
    """
    value = functions.col("value")
    text = value.cast("string")
    # Spark's reader takes much that is no object, as what follows one: it is asked only where the
    # record is right by its grammar. The conditions are apart, so that the cheap ones come first.
    parsed = functions.from_json(text, "map<string, variant>", _OPTIONS)
    pairs = functions.transform_values(parsed, lambda _, each: functions.to_json(each))
    flat = functions.when(text.rlike(FLAT_IN_JAVA), pairs)
    valid = functions.when(functions.is_valid_utf8(text), flat)
    return records.withColumn(
        "pairs", functions.when(functions.octet_length(value) <= longest, valid)
    )


def unknown_names(records: DataFrame, registry: Registry) -> dict[str, Type]:
    """Names in column ``pairs`` that the registry lacks and that could be registered, by type.

    Only those that have a number, or a time as text, at least once: no attribute can hold anything
    else, and an id is given for good. The type is timestamp where most are times; else decimal, or
    signed, or unsigned, the first that most of the numbers fit. Of more than `MOST_NAMES` some are
    left out; where all ids are in use it is none, without a look at the records.
    """
    if not registry.free:
        return {}
    col = functions.col
    names = records.select(functions.explode("pairs").alias("name", "text"))
    known = sorted(registry.by_name)
    if known:
        names = names.where(~col("name").isin(known))
    # RLIKE, not `is_name`, so that names that are no words do not use up the limit.
    names = names.where(col("name").rlike(r"\A[A-Za-z_][A-Za-z0-9_]{0,62}\z"))
    number = functions.when(col("text").rlike(rf"\A{NUMBER}\z"), col("text").cast("double"))
    time = col("text").rlike(_TIME)
    found = (
        names.where(number.isNotNull() | time)
        .groupBy("name")
        .agg(
            functions.count("*").alias("all"),
            functions.count_if(time).alias("timestamp"),
            *(functions.count_if(number.between(*_span(kind))).alias(kind) for kind in _NUMBERS),
        )
        .limit(MOST_NAMES)
        .toArrow()
        .to_pylist()
    )
    types = {row["name"]: _type(row) for row in found if is_name(row["name"])}
    without = sorted(name for name, kind in types.items() if kind is None)
    if without:
        log.warning("no type of attribute holds most values of: %s", ", ".join(without[:_SHOWN]))
    return {name: kind for name, kind in sorted(types.items()) if kind is not None}


def _span(kind: Type) -> tuple[float, float]:
    """The least and the greatest value of a type as it is registered."""
    usual = attribute(0, "any", kind)
    return float(usual.offset), float(usual.offset + usual.scale * ((1 << 32) - 1))


def _type(row: Mapping[str, Any]) -> Type | None:
    """The first type that most values fit; None where there is none."""
    kinds: tuple[Type, ...] = ("timestamp", *_NUMBERS)
    return next((kind for kind in kinds if 2 * row[kind] > row["all"]), None)
