"""The stream of the main jobs: topic, tables and sink wired together."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.adapters import formats, session
from jobs.adapters.delivery import Delivery
from jobs.adapters.kafka import Topics
from jobs.adapters.lifecycle import Lifecycle
from jobs.adapters.settings import Settings
from jobs.adapters.tables import Tables
from jobs.adapters.warm_up import warm_up
from udfs.sources import needs_arrival


def run(settings: Settings, lifecycle: Lifecycle, name: str) -> int:
    """Deliver until asked to stop. Returns the exit code."""
    spark = session.start(name)
    lifecycle.hold_jvm(spark)
    query, delivery = start(spark, settings, lifecycle)
    try:
        lifecycle.run(query, finished=lambda: False)
    finally:
        delivery.close()
    return 0


def start(
    spark: SparkSession, settings: Settings, lifecycle: Lifecycle
) -> tuple[StreamingQuery, Delivery]:
    """Wire topic, tables and sink together; the stream is running when this returns."""
    warming = warm_up(spark)
    topics = Topics(spark, settings)
    topics.wait(lifecycle.stopping.is_set)
    topics.ensure_dead_letters()
    tables = Tables(spark, settings.tables)
    timestamps = needs_arrival(formats.specification_of(settings, tables))
    delivery = Delivery(spark, settings, tables, topics)
    delivery.prepare()
    warming.result()

    def process(records: DataFrame, batch_id: int) -> None:
        lifecycle.boundary()
        delivery.process(records, batch_id)

    query = (
        topics.stream(timestamps=timestamps)
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=settings.trigger)
        .start()
    )
    return query, delivery
