"""The stream of the main jobs: topic, tables and sink wired together."""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.adapters.app import session
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.checkpoint import positions
from jobs.adapters.planning import formats
from jobs.adapters.stream import checks
from jobs.adapters.stream.delivery import BatchDelivery
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.stream.warm_up import warm_up
from jobs.adapters.stream.watch import StreamWatch
from jobs.adapters.tables.tables import Tables
from udfs.delivery.partition_states import needs_arrival
from udfs.errors import StreamError


def run(settings: Settings, lifecycle: Lifecycle, name: str) -> int:
    """Deliver until asked to stop. Returns the exit code."""
    spark = session.start(name)
    lifecycle.hold_jvm(spark)
    query, delivery = start(spark, settings, lifecycle)
    try:
        lifecycle.run(query, finished=lambda: False)
    except StreamError as error:
        raise checks.after_failure(spark, settings, error) from error
    finally:
        delivery.close()
    return 0


def start(
    spark: SparkSession, settings: Settings, lifecycle: Lifecycle
) -> tuple[StreamingQuery, BatchDelivery]:
    """Wire topic, tables and sink together; the stream is running when this returns.

    Metrics and health are served from here on until the delivery is closed. Raises SettingsError
    PORT_TAKEN, BAD_HOST where they cannot be.
    """
    topics = Topics(spark, settings)
    watch = StreamWatch(spark, settings, topics)
    with ExitStack() as failing:
        failing.callback(watch.close)
        watch.open()
        query, delivery = _start(spark, settings, lifecycle, topics, watch)
        delivery.ending.callback(watch.close)
        failing.pop_all()
    return query, delivery


def _start(
    spark: SparkSession,
    settings: Settings,
    lifecycle: Lifecycle,
    topics: Topics,
    watch: StreamWatch,
) -> tuple[StreamingQuery, BatchDelivery]:
    warming = warm_up(spark)
    topics.wait(lifecycle.stopping.is_set)
    topics.ensure_dead_letters()
    tables = Tables(spark, settings.tables)
    timestamps = needs_arrival(formats.specification_of(settings, tables))
    positions.refuse_after_real_time(spark, settings)
    checks.before_start(spark, settings, tables, topics)
    delivery = BatchDelivery(spark, settings, tables, topics, watch.metrics)
    delivery.prepare()
    warming.result()

    def process(records: DataFrame, batch_id: int) -> None:
        lifecycle.boundary()
        delivery.process(records, batch_id)

    query = (
        topics.stream(timestamps, delivery.admission.records)
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=settings.trigger)
        .start()
    )
    watch.attach(query)
    delivery.follow()
    return query, delivery
