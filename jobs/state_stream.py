"""Publish the rows of a Delta table, or the records of a topic, as replicated states.

    spark-submit [--properties-file conf/X.conf] jobs/state_stream.py table:NAME [--by COLUMN,...]
    spark-submit [--properties-file conf/X.conf] jobs/state_stream.py topic:NAME [--columns DDL] ...

The job brings changes of a table into the memory of programs on hosts: a replica of the state NAME
has all rows of the table, as a JSON array, within seconds of each commit. With --by there is a
state NAME/VALUE for each value of these columns, with only the rows of this value. The table may be
one of Stackcast, one of a catalog, or a folder, and must have a change data feed. For a topic, each
record is published unchanged as an update.

A row of table `state_filters` with this source defines a state NAME?FILTER with the rows or records
that match the filter. The job sends updates to the middleware of this host
(spark.stackcast.states.middleware). A batch ends when the replica controller has received its
updates. The job runs until SIGTERM.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import re
import sys
from functools import partial

from stackcast.jobs.command_lines.state_stream import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from pyspark.sql import DataFrame

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.states.client import StatesClient
from stackcast.jobs.adapters.states.credentials import StateCredentials
from stackcast.jobs.adapters.states.metrics import PublisherMetrics
from stackcast.jobs.adapters.states.row_sources import SafePublisher, TableSource, TopicSource
from stackcast.jobs.adapters.states.row_states import StateFilters, StateNames
from stackcast.jobs.adapters.stream.last_batch import LastBatch
from stackcast.jobs.adapters.stream.spark_stream import await_executors
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.udfs.errors import SettingsError

log = logging.getLogger("stackcast.state_stream")

TRIGGER = "500 milliseconds"
#: Records of a topic in a batch, at most: each is an update that a middleware takes by itself.
MOST_RECORDS = 10_000


def main(arguments: list[str]) -> int:
    return application.run(partial(publish, parser(__doc__).parse_args(arguments)))


def publish(asked: argparse.Namespace, settings: Settings, lifecycle: Lifecycle) -> int:
    kind, _, name = asked.source.partition(":")
    if kind not in ("table", "topic") or not name or (asked.columns and kind == "table"):
        raise SettingsError(
            "BAD_VALUE",
            f"{asked.source!r}: a source must be table:NAME or topic:NAME, and only a topic has "
            "--columns",
        )
    last = re.split(r"[/.]", name.rstrip("/"))[-1] if kind == "table" else name
    base = asked.state or last
    names = StateNames(base, tuple(filter(None, asked.by.split(","))))
    if kind == "topic":
        settings.require_broker()
    spark = session.start(f"stackcast state_stream {base}")
    lifecycle.hold_jvm(spark)
    await_executors(spark, settings, lifecycle)
    tables = open_tables(spark, settings.tables)
    filters = StateFilters(tables, base)
    program = f"state_stream {base}"
    metrics = PublisherMetrics()
    middleware = parse_endpoint(settings.states_middleware)
    with (
        StatesClient(program, middleware, StateCredentials.from_settings(settings)) as client,
        serve(settings, metrics.registry, metrics.health),
    ):
        publisher = SafePublisher(client, metrics, lifecycle.stopping.is_set)
        source: TableSource | TopicSource
        if kind == "table":
            source = TableSource(spark, name, names, filters, publisher, tables)
        else:
            most = min(MOST_RECORDS, settings.max_offsets_per_trigger)
            source = TopicSource(
                spark, name, names, filters, publisher, asked.columns, settings.kafka, most
            )

        def take(rows: DataFrame, _batch: int) -> None:
            lifecycle.boundary()
            source.take(rows)

        def look() -> bool:
            source.look()
            return False  # nothing but a stop ends it

        source.begin(program)
        place = re.sub(r"\W+", "_", f"{asked.source} {base}")
        query = (
            source.stream()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", f"{settings.states_checkpoint}/{place}")
            .trigger(processingTime=TRIGGER)
            .start()
        )
        log.info("%s is published as state %s", asked.source, base)
        topics = Topics(spark, dataclasses.replace(settings, topic=name))
        last_batch = LastBatch(spark, topics if kind == "topic" else None)
        lifecycle.run(query, look, last_batch.check)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
