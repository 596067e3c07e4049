"""The main job: raw ITCH packets from Kafka to exactly the hosts that subscribed.

    spark-submit [--properties-file conf/X.conf] jobs/itch_stream.py

Runs until SIGTERM, which ends it after the batch in progress. Where no broker is configured it
brings up the embedded lab, delivers one trading session, proves the outcome and ends; with
`spark.stackcast.match=network` the lab's switches match, and no stream runs.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import schemas
from jobs import embedded, embedded_network
from jobs.adapters import application, session
from jobs.adapters.delivery import Delivery
from jobs.adapters.kafka import Topics
from jobs.adapters.lifecycle import Lifecycle
from jobs.adapters.settings import Settings
from jobs.adapters.tables import Tables
from jobs.adapters.warm_up import warm_up
from udfs.errors import SettingsError
from udfs.messages.specification import parse_specification
from udfs.sources import needs_arrival


def deliver(settings: Settings, lifecycle: Lifecycle) -> int:
    if settings.match == "network":
        if not settings.embedded:
            raise SettingsError(
                "MATCHED_IN_NETWORK",
                "with spark.stackcast.match=network the switches match, and no stream does: run "
                "jobs/refresh_switches.py with the same settings, and send the feed itself, plain "
                "UDP, to the publisher's switch",
            )
        return embedded_network.run(settings, lifecycle)
    if settings.embedded:
        return embedded.run(settings, lifecycle, start)
    spark = session.start("stackcast itch_stream")
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
    specification = parse_specification(
        schemas.read_text(f"messages/{settings.format}.spec"), settings.format
    )
    delivery = Delivery(spark, settings, specification, Tables(spark, settings.tables), topics)
    delivery.prepare()
    warming.result()

    def process(records: DataFrame, batch_id: int) -> None:
        lifecycle.boundary()
        delivery.process(records, batch_id)

    query = (
        topics.stream(timestamps=needs_arrival(specification))
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=settings.trigger)
        .start()
    )
    return query, delivery


if __name__ == "__main__":
    sys.exit(application.run(deliver))
