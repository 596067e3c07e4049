"""Functions for columns and rows of Spark: rules on any DataFrame, and work on the executors.

The only module of `udfs` that imports pyspark.
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    StringType,
    StructField,
    StructType,
)

from stackcast.udfs.delivery import compiled_mark
from stackcast.udfs.delivery.frame_headers import StacksHandle
from stackcast.udfs.delivery.plan import PlanHandle
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.row_matcher import RowMatcher, read_rules
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.record_batches import next_offset, read_records
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.trees.header_stacks import warm_up

MATCHED = StructType(
    [StructField(name, ArrayType(StringType())) for name in ("rules", "receivers")]
)
"""Result of `matching`."""

_MATCHERS: dict[tuple[str, pa.Schema], RowMatcher] = {}
_MOST_MATCHERS = 8
_MOST_WARNINGS = 20
"""Warnings of rules that a call shows."""


Rules: TypeAlias = Iterable[Subscription | Mapping[str, Any] | Row] | DataFrame | pd.DataFrame
"""Rules as `match` and `matching` take them."""


def match(
    df: DataFrame,
    rules: Rules,
    *,
    rules_column: str = "rules",
    receivers_column: str = "receivers",
) -> DataFrame:
    """Return the DataFrame with two more columns: the rules that each row matches, and receivers.

    Rules compare columns by their names: text, whole numbers, decimals of up to 18 digits, doubles,
    dates, times and truth values. A null, or NaN, is an absent field. Other columns pass through
    unchanged, whatever their names. A rule without ``fwd(...)`` is for its subscriber. Rules are
    compiled here, once; workers then match batch by batch, in compiled loops. A rule that is
    probably not meant as it is written causes a `UserWarning`.

    Args:
        df: the rows.
        rules: subscriptions, or rows with the columns id, subscriber and filter: mappings, rows of
            Spark, or a whole DataFrame of Spark or pandas. Rows with a column ``enabled`` that is
            not true are left out.
        rules_column: name of the column for the ids of the rules, an array of strings.
        receivers_column: name of the column for the receivers, an array of strings.

    Raises:
        TypeError: ``df`` is no DataFrame of Spark.
        ValueError: there is a column of that name already.
        SubscriptionError: a rule is wrong.

    Example:
        >>> from pyspark.sql import SparkSession
        >>> spark = SparkSession.builder.getOrCreate()
        >>> trades = spark.sql("SELECT 'GOOGL' stock, 60 price UNION ALL SELECT 'MSFT', 40")
        >>> rules = [
        ...     Subscription("1", "h1", "stock == GOOGL"),
        ...     Subscription("2", "h2", "price > 9"),
        ... ]
        >>> match(trades, rules).orderBy("stock").show()
        +-----+-----+------+---------+
        |stock|price| rules|receivers|
        +-----+-----+------+---------+
        |GOOGL|   60|[1, 2]| [h1, h2]|
        | MSFT|   40|   [2]|     [h2]|
        +-----+-----+------+---------+
        <BLANKLINE>
    """
    names = [*df.columns, rules_column, receivers_column]
    _check_new_columns(df, [rules_column, receivers_column])
    matcher, warned = _compile(to_arrow_schema(df.schema, timezone="UTC"), _subscriptions(rules))
    for warning in warned:
        warnings.warn(warning, stacklevel=2)
    # mapInArrow finds columns by their names, and fails for names with a dot or a backtick and for
    # names that differ in case alone. So columns have numbers meanwhile.
    fields = [
        StructField(f"c{number}", field.dataType, field.nullable, field.metadata)
        for number, field in enumerate((*df.schema.fields, *MATCHED.fields))
    ]
    numbers = [field.name for field in fields]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            matched = matcher.match(batch)
            yield pa.RecordBatch.from_arrays([*batch.columns, *matched], names=numbers)

    numbered = df.toDF(*numbers[: -len(MATCHED)])
    return numbered.mapInArrow(run, StructType(fields)).toDF(*names)


def _check_new_columns(df: DataFrame, added: Sequence[str]) -> None:
    """Raise ValueError if Spark could not tell the new columns from each other or from others."""
    if not hasattr(df, "sparkSession"):
        kind = f"{type(df).__module__}.{type(df).__name__}"
        raise TypeError(
            f"match takes a Spark DataFrame, not {kind}: convert it with spark.createDataFrame(df)"
        )
    sensitive = df.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    names = [name if sensitive else name.lower() for name in (*df.columns, *added)]
    for name, compared in zip(reversed(added), reversed(names), strict=False):
        if names.count(compared) > 1:
            raise ValueError(
                f"the result would have two columns named {name!r}: rename the existing column, "
                "or set rules_column or receivers_column to another name"
            )


def _subscriptions(rules: Rules) -> list[Subscription]:
    """Return the rules as subscriptions. Raises SubscriptionError NOT_A_RULE."""
    if isinstance(rules, DataFrame):
        return read_rules(rules.collect())
    if isinstance(rules, pd.DataFrame):
        return read_rules(rules.to_dict("records"))
    return read_rules(rules)


def _compile(schema: pa.Schema, rules: Sequence[Subscription]) -> tuple[RowMatcher, list[str]]:
    """Return the matcher of rules, and texts for their warnings, the first few of many."""
    warned: list[SubscriptionError] = []
    matcher = RowMatcher(schema, rules, warned.append)
    texts = [str(warning) for warning in warned[:_MOST_WARNINGS]]
    if len(warned) > len(texts):
        texts.append(f"{len(warned) - len(texts)} more rule warnings are not shown")
    return matcher, texts


def matching(rules: Rules, schema: StructType | None = None) -> Any:
    """Return an Arrow UDF from a struct of fields to the rules that it matches.

    It is for `withColumn` and, once registered, for SQL. Like a pandas UDF it gets whole batches,
    but numbers and times keep their types. Over all columns, it takes 1.26 times as long as
    `match`. If there are many columns that no rule names, it takes about as long over a struct of
    the others, because `match` passes every column through Python (docs/results/overview.md).

    Args:
        rules: rules that compare fields of the struct by their names, as in `match`.
        schema: fields of the struct. With it, rules are compiled here, and errors and warnings
            appear here; without it, workers compile them when they get the first batch.

    Returns:
        A UDF with one argument, for example ``struct("*")``. Its result has the columns ``rules``
        (ids of the rules) and ``receivers``, arrays of strings.

    Raises:
        SubscriptionError: ``NOT_A_RULE``; others if a rule is wrong and ``schema`` is given.

    Example:
        >>> from pyspark.sql import SparkSession
        >>> from pyspark.sql.functions import struct
        >>> spark = SparkSession.builder.getOrCreate()
        >>> trades = spark.sql("SELECT 'GOOGL' stock, 60 price UNION ALL SELECT 'MSFT', 40")
        >>> rule = Subscription("1", "h1", "stock == GOOGL and price > 50")
        >>> matched = trades.withColumn("matched", matching([rule])(struct("*")))
        >>> matched.select("stock", "matched.*").orderBy("stock").show()
        +-----+-----+---------+
        |stock|rules|receivers|
        +-----+-----+---------+
        |GOOGL|  [1]|     [h1]|
        | MSFT|   []|       []|
        +-----+-----+---------+
        <BLANKLINE>
        >>> _ = spark.udf.register("matching", matching([rule]))
        >>> trades.createOrReplaceTempView("trades")
        >>> spark.sql("SELECT stock FROM trades WHERE size(matching(struct(*)).rules) > 0").show()
        +-----+
        |stock|
        +-----+
        |GOOGL|
        +-----+
        <BLANKLINE>
    """
    known = tuple(_subscriptions(rules))
    if schema is not None:
        for warning in _compile(to_arrow_schema(schema, timezone="UTC"), known)[1]:
            warnings.warn(warning, stacklevel=2)
    name = uuid.uuid4().hex

    def matched(events: pa.Array) -> pa.Array:
        fields = pa.schema(list(events.type))
        columns = pa.RecordBatch.from_arrays(events.flatten(), schema=fields)
        found = _matcher(name, fields, known).match(columns)
        return pa.StructArray.from_arrays(found, names=MATCHED.names)

    return arrow_udf(matched, MATCHED)


def _matcher(name: str, fields: pa.Schema, rules: Sequence[Subscription]) -> RowMatcher:
    """Return the matcher of a UDF, which a worker compiles once for all tasks."""
    if (name, fields) not in _MATCHERS:
        while len(_MATCHERS) >= _MOST_MATCHERS:
            _MATCHERS.pop(next(iter(_MATCHERS)))
        _MATCHERS[name, fields] = RowMatcher(fields, rules)
    return _MATCHERS[name, fields]


#: Columns of records, and those that some plans need.
_NO_RECORDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("publisher", pa.binary()),
    ]
)


def loaded(
    plan: PlanHandle, header_stacks: StacksHandle, topic: Topic
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns a function for ``mapInArrow`` that yields the same rows, once the worker has loaded a
    plan and the kernels that turn records into frames by it.

    It delivers no record, and sends nothing.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            task = Task(plan.value, header_stacks, topic, 0, {})
            task.add(pa.RecordBatch.from_pylist([], schema=_NO_RECORDS))
            task.summaries()
            # A broker's answer without a record, in memory that is not to be written.
            fetched = np.frombuffer(b"", np.uint8)
            read_records(fetched, 0, 1)
            next_offset(fetched, 0, 1)
            yield batch

    return run


def warmed_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the same rows (for ``mapInArrow``), once the worker has loaded the encoder's kernels.
    ``id`` numbers the workers, which share out what is to be compiled first."""
    for batch in batches:
        if batch.num_rows and not compiled_mark.is_set():
            # Its imports are the compiler's of rules, which no worker needs else.
            from stackcast.udfs.delivery import kernel_cache  # noqa: PLC0415

            kernel_cache.compile_from(batch.column("id")[0].as_py())
        warm_up()
        yield batch
