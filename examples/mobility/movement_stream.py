"""Movements in the whole city by Structured Streaming, from reports in Kafka to a Delta table.

This program has all reports in one place, while the trackers at the edges only have replicas of
their neighbours' sightings. Both must find the same movements where both can see them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.streaming import StreamingQuery

from movements import Scanner
from stackcast.jobs.adapters.kafka.options import reader_options

log = logging.getLogger(__name__)

TOPIC = "mobility.reports"
TRIGGER = "1 second"
_REPORT = "scanner STRING, number INT, devices ARRAY<ARRAY<STRING>>"


class MovementStream:
    """A running query that writes the Delta tables ``sightings`` and ``movements``.

    Args:
        spark: session of the query.
        servers: addresses of the Kafka brokers.
        folder: folder of the tables.
        scanners: scanners of the city.

    Attributes:
        reports: number of reports that are in the tables.
    """

    def __init__(
        self, spark: SparkSession, servers: str, folder: Path, scanners: Iterable[Scanner]
    ) -> None:
        self._spark = spark
        self._sightings, self._movements = str(folder / "sightings"), str(folder / "movements")
        self._places = spark.createDataFrame(
            [(place.name, place.edge, place.x, place.y) for place in scanners],
            "scanner STRING, edge STRING, x DOUBLE, y DOUBLE",
        ).cache()
        self.reports = 0
        source = (
            spark.readStream.format("kafka")
            .options(**reader_options({"bootstrap.servers": servers}))
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .load()
        )
        report = f.from_json(f.col("value").cast("string"), _REPORT).alias("report")
        self.query: StreamingQuery = (
            source.select(report)
            .select("report.*")
            .writeStream.foreachBatch(self._add)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def _add(self, batch: DataFrame, number: int) -> None:
        """Append the sightings of a batch exactly once, and compute the movements again."""
        reports = batch.cache()
        try:
            count = reports.count()
            sightings = reports.select("scanner", f.explode("devices").alias("seen")).select(
                f.col("seen")[0].alias("device"),
                f.col("seen")[1].cast("bigint").alias("at"),
                "scanner",
            )
            (
                sightings.write.format("delta")
                .option("txnAppId", "movements")
                .option("txnVersion", number)
                .mode("append")
                .save(self._sightings)
            )
            self._compute_movements().write.format("delta").mode("overwrite").save(self._movements)
            self.reports += count
        finally:
            reports.unpersist()

    def _compute_movements(self) -> DataFrame:
        """Return the movements between edges in all sightings."""
        seen = self._spark.read.format("delta").load(self._sightings)
        places = f.broadcast(self._places)
        by_time = Window.partitionBy("device").orderBy("at", "scanner")
        after = seen.join(places, "scanner").select(
            "device",
            "at",
            f.struct("scanner", "edge", "x", "y", "at").alias("there"),
            f.lag(f.struct("scanner", "edge", "x", "y", "at")).over(by_time).alias("here"),
        )
        east = f.col("there.x") - f.col("here.x")
        north = f.col("there.y") - f.col("here.y")
        milliseconds = f.col("there.at") - f.col("here.at")
        return after.where("here.edge <> there.edge and here.at < there.at").select(
            "device",
            "at",
            f.col("here.scanner").alias("origin"),
            f.col("there.scanner").alias("target"),
            (f.hypot(east, north) * 1000 / milliseconds).alias("speed"),
            f.pmod(f.degrees(f.atan2(east, north)), f.lit(360.0)).alias("bearing"),
        )

    def movements(self) -> list[dict[str, object]]:
        """Return the rows of ``movements``."""
        rows = self._spark.read.format("delta").load(self._movements).collect()
        return [row.asDict() for row in rows]
