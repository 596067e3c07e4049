"""The time that rules over the rows of a DataFrame take: `match` compared with UDFs.

    ./spark-submit.sh bench dataframes [--quick]

All of them match the same cached rows against the same rules, in a Spark with one task at a time.
Each round runs all of them in turn. ``seconds`` is the median of the rounds in wall time, and
``ratio`` is the median of the ratios to `match` in the same round. ``load`` is the machine's load
of the last minute before the first round.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import expr, pandas_udf, struct
from pyspark.sql.pandas.types import to_arrow_schema

from stackcast import Subscription, match, matching
from stackcast.udfs.columns import MATCHED
from stackcast.udfs.filters.row_matcher import RowMatcher

ROWS, RULES, STOCKS = 1_000_000, 1_000, 100
ROUNDS = 7
#: Columns that no rule names.
UNUSED = 20
FIELDS = ("stock", "price")


def main() -> None:
    rows = ROWS // 100 if "--quick" in sys.argv[1:] else ROWS
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("stackcast bench dataframes")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for unused in (0, UNUSED):
        table = trades(spark, rows, unused)
        frames = ways(table, drawn_rules())
        measure(frames, rows=rows, rules=RULES, columns=len(table.columns))
        table.unpersist()
    spark.stop()


def drawn_rules() -> list[Subscription]:
    """Return the rules: ten for each stock, of which a price satisfies five on average."""
    return [
        Subscription(str(n), f"h{n % 64}", f"stock == S{n % STOCKS} and price > {n * 9973 % 1000}")
        for n in range(RULES)
    ]


def trades(spark: SparkSession, rows: int, unused: int) -> DataFrame:
    """Return cached rows with a stock, a price and columns that no rule names."""
    table = spark.range(0, rows, 1, 1).select(
        expr(f"concat('S', id * 7919 % {STOCKS})").alias("stock"),
        expr("CAST(id * 7907 % 100000 AS DOUBLE) / 100").alias("price"),
        *(expr(f"id * {number + 3}").alias(f"unused{number}") for number in range(unused)),
    )
    table.cache().count()
    return table


def ways(table: DataFrame, rules: Sequence[Subscription]) -> Mapping[str, DataFrame]:
    """Return the same two columns, computed in several ways, `match` first."""
    udf = matching(rules, table.select(*FIELDS).schema)
    by_pandas = pandas_matching(table.select(*FIELDS), rules)

    def with_udf(result: Column) -> DataFrame:
        matched = table.withColumn("matched", result)
        return matched.select("*", "matched.rules", "matched.receivers").drop("matched")

    frames = {
        "match": match(table, rules),
        "matching(struct(*))": with_udf(matching(rules, table.schema)(struct("*"))),
        "matching(struct(stock, price))": with_udf(udf(struct(*FIELDS))),
        "a pandas UDF of stock and price": with_udf(by_pandas(struct(*FIELDS))),
    }
    hashes = {
        name: frame.selectExpr("sum(hash(stock, price, rules, receivers))").head()
        for name, frame in frames.items()
    }
    assert len({*hashes.values()}) == 1, hashes
    return frames


def pandas_matching(fields: DataFrame, rules: Sequence[Subscription]) -> Any:
    """Return what `matching` returns, as a pandas UDF."""
    schema = to_arrow_schema(fields.schema, timezone="UTC")
    matcher = RowMatcher(schema, rules)

    def matched(rows: pd.DataFrame) -> pd.DataFrame:
        columns = matcher.match(pa.RecordBatch.from_pandas(rows, schema, preserve_index=False))
        lists = (column.to_pandas() for column in columns)
        return pd.DataFrame(dict(zip(MATCHED.names, lists, strict=True)))

    return pandas_udf(matched, MATCHED)


def measure(frames: Mapping[str, DataFrame], **batch: int) -> None:
    print(json.dumps({"batch": batch, "load": round(os.getloadavg()[0], 2)}), flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in frames}
    for _ in range(ROUNDS):
        for name, frame in frames.items():
            began = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            seconds[name].append(time.perf_counter() - began)
    first = next(iter(seconds.values()))
    for name, times in seconds.items():
        line = {
            "name": name,
            "seconds": round(statistics.median(times), 3),
            "rows_per_second": round(batch["rows"] / statistics.median(times)),
            "to": "match",
            "ratio": round(statistics.median(t / f for t, f in zip(times, first, strict=True)), 2),
            "ratios": [round(t / f, 2) for t, f in zip(times, first, strict=True)],
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
