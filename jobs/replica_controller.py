"""Run the replica controller: number programs and states, and keep updates to repair losses.

    spark-submit [--properties-file conf/X.conf] jobs/replica_controller.py

The job is the replica controller of the network of states, which keeps its facts and its backlog in
two Kafka topics. It also runs a stream that merges the facts into the tables `vnfs`, `states`,
`state_publishers`, `state_subscriptions`, `state_positions` and `state_recoveries` within seconds.
If spark.stackcast.states.address is not set, the job only runs this stream, for a controller that
runs elsewhere (`stackcast states controller`). The job runs until SIGTERM, and the next one
continues from its facts.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Callable
from contextlib import ExitStack

from stackcast.jobs.command_lines.replica_controller import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.options import fetch_options, reader_options
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.states.credentials import StateCredentials
from stackcast.jobs.adapters.states.fact_tables import FactTables
from stackcast.jobs.adapters.states.links import open_link
from stackcast.jobs.adapters.states.metrics import ControllerMetrics
from stackcast.jobs.adapters.states.service import ControllerService, serving
from stackcast.jobs.adapters.states.store import KafkaStore, topics_of
from stackcast.jobs.adapters.stream.last_batch import LastBatch
from stackcast.jobs.adapters.stream.spark_stream import await_executors
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.wire.udp import parse_endpoint

log = logging.getLogger("stackcast.replica_controller")

#: How often the tables follow; without it, a hundred times a second.
TRIGGER = "1 second"


def control(settings: Settings, lifecycle: Lifecycle) -> int:
    settings.require_broker()
    spark = session.start("stackcast replica_controller")
    lifecycle.hold_jvm(spark)
    await_executors(spark, settings, lifecycle)
    client = dict(fetch_options(settings.kafka).client)
    facts, backlog = topics_of(settings.states_topics)
    # Makes the topics, also where the controller is another program.
    with ExitStack() as ending:
        store = KafkaStore(client.pop("bootstrap_servers"), facts, backlog, client)
        ending.callback(store.close)
        ended: Callable[[], bool] = bool
        metrics = ControllerMetrics()
        if settings.states_address:
            link = open_link(settings.states_address, settings.states_link)
            service = ControllerService(
                link,
                parse_endpoint(settings.states_listen),
                store,
                metrics.recorded,
                StateCredentials.from_settings(settings),
            )
            running = ending.enter_context(serving(service))
            ended = running.done
            metrics.watch(service)
            log.info("the replica controller listens at %s:%d", *service.address)
        ending.enter_context(serve(settings, metrics.registry, metrics.health))
        query = follow(spark, settings, facts, lifecycle, metrics)
        topics = Topics(spark, dataclasses.replace(settings, topic=facts))
        lifecycle.run(query, ended, LastBatch(spark, topics).check)
    return 0


def follow(
    spark: SparkSession,
    settings: Settings,
    topic: str,
    lifecycle: Lifecycle,
    metrics: ControllerMetrics,
) -> StreamingQuery:
    """Starts the stream from the topic of facts into the tables; returns its query."""
    fact_tables = FactTables(open_tables(spark, settings.tables))

    def take(records: DataFrame, batch: int) -> None:
        lifecycle.boundary()
        facts = fact_tables.take(records, batch)
        metrics.merged(facts)
        log.debug("batch %d: %d facts", batch, facts)

    reader = spark.readStream.format("kafka").option("subscribe", topic)
    # What was compacted away is no loss: a later record of its key is there.
    reader = reader.option("startingOffsets", "earliest").option("failOnDataLoss", "false")
    return (
        reader.options(**reader_options(settings.kafka))
        .load()
        .select("key", "value", "offset", "timestamp")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", f"{settings.states_checkpoint}/{topic}")
        .trigger(processingTime=TRIGGER)
        .start()
    )


def main(arguments: list[str]) -> int:
    parser(__doc__).parse_args(arguments)
    return application.run(control)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
