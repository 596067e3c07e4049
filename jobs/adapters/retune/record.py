"""Record of what was published, for retuning: read from the statistics, added up before it comes
here."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, functions

from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.jobs.adapters.tables.tables import DELIVERIES, PUBLICATIONS
from stackcast.udfs.trees.publications import Publication


@dataclass(frozen=True)
class RecordedPublications:
    """Publications on record, and what to know of them.

    batches: in the window. covered: share of the bytes that ``publications`` stand for, as only
    the heaviest are taken. first, last: when the batches ended.
    """

    publications: list[Publication]
    batches: int = 0
    covered: float = 1.0
    first: dt.datetime | None = None
    last: dt.datetime | None = None


def read_record(
    tables: SparkTables,
    most: int,
    window: dt.timedelta | None = None,
    as_of: int | None = None,
) -> RecordedPublications:
    """Returns the ``most`` heaviest publications of a window, or of all that is on record.

    window: so long before the last batch on record. as_of: a version of `delivery_statistics`; all
    that came later is left out.
    Raises TableError MISSING.
    """
    # A stream goes on writing: all that is asked of a table is asked of one version.
    deliveries = tables.read(DELIVERIES, tables.version(DELIVERIES) if as_of is None else as_of)
    last = deliveries.agg(functions.max("recorded_at").alias("last")).toArrow().to_pylist()
    ended = last[0]["last"]
    if ended is None:
        return RecordedPublications([])
    if window is not None:
        deliveries = deliveries.where(functions.col("recorded_at") > functions.lit(ended - window))
    # Not by publisher: the two tables name another where all enters by an ingress.
    keys = ["batch_id", "recorded_at"]
    sent = deliveries.select(*keys).distinct()
    span = deliveries.agg(
        functions.min("recorded_at").alias("first"),
        functions.countDistinct("batch_id", "recorded_at").alias("batches"),
    )
    about = span.toArrow().to_pylist()[0]
    rows = tables.read(PUBLICATIONS, tables.version(PUBLICATIONS)).join(sent, keys, "left_semi")
    publications, covered = _heaviest(rows, most)
    return RecordedPublications(publications, about["batches"], covered, about["first"], ended)


def _heaviest(rows: DataFrame, most: int) -> tuple[list[Publication], float]:
    weight = functions.col("datagram_bytes") * functions.size("receivers")
    added = (
        rows.groupBy("publisher", functions.array_sort("receivers").alias("receivers"))
        .agg(
            functions.sum("notifications").alias("notifications"),
            functions.sum("datagram_bytes").alias("datagram_bytes"),
        )
        .withColumn("weight", weight)
    )
    total = added.agg(
        functions.sum("weight").alias("weight"),
    )
    whole = total.toArrow().to_pylist()[0]
    found = added.orderBy(functions.desc("weight"), "publisher", "receivers").limit(most)
    taken: list[dict[str, Any]] = found.toArrow().to_pylist()
    publications = [
        Publication(
            row["publisher"],
            frozenset(row["receivers"]),
            row["notifications"],
            row["datagram_bytes"],
        )
        for row in taken
    ]
    share = sum(row["weight"] for row in taken) / whole["weight"] if whole["weight"] else 1.0
    return publications, share
