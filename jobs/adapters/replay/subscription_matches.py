"""SQL's answer to "what has each subscription matched?", for a session: a view over the topic."""

from __future__ import annotations

from pyspark.sql import SparkSession, functions

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.planning.plans import Plans
from stackcast.jobs.adapters.planning.versions import BatchVersions
from stackcast.jobs.adapters.replay.live_offsets import LiveOffsets
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.jobs.adapters.tables.tables import LIVE
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.replay.match_counts import SCHEMA, MatchCounts

VIEW = "subscription_matches"


def define(spark: SparkSession, tables: SparkTables, settings: Settings) -> None:
    """Makes the view ``subscription_matches`` in this session: of each live subscription its id,
    subscriber, filter, since_version and since, as in `live_subscriptions`, and messages: how many
    messages of the records that batches have read since it is live it matched. NULL for a rule with
    state.

    Asking it reads these records again, as many as Kafka still has; those that the stream would not
    send, by their publisher, do not count. Raises SettingsError NO_BROKER, and what `Plans.at`
    raises.
    """
    settings.require_broker()
    live = tables.rows(LIVE)
    topics = Topics(spark, settings)
    _, topic_id = topics.ask(topics.identity)
    offsets = LiveOffsets.of_ledger(tables, Topic(settings.topic, topic_id))
    since = offsets.since([row["since_version"] for row in live])
    spans = {
        partition: (int(begins.min(initial=offsets.end[partition])), offsets.end[partition])
        for partition, begins in since.items()
    }
    versions = BatchVersions(tables, settings.topic, formats.sources(settings)).poll()
    form = formats.format_of(settings, tables, versions)
    senders = Plans(settings, tables).at(versions).compilation.plan.senders
    counts = MatchCounts(form, [row["filter"] for row in live], senders)
    found = (
        topics.read_spans(spans)
        .mapInArrow(counts.run(since), SCHEMA)
        .groupBy("rule")
        .agg(functions.sum("messages").alias("messages"))
    )
    rules = [
        (at, row["id"], row["subscriber"], row["filter"], row["since_version"], row["since"], known)
        for at, (row, known) in enumerate(zip(live, counts.counted.tolist(), strict=True))
    ]
    columns = (
        "rule int, id string, subscriber string, filter string, since_version bigint, "
        "since timestamp, counted boolean"
    )
    matched = functions.coalesce("messages", functions.lit(0))
    spark.createDataFrame(rules, columns).join(found, "rule", "left").select(
        "id",
        "subscriber",
        "filter",
        "since_version",
        "since",
        functions.when(functions.col("counted"), matched).alias("messages"),
    ).createOrReplaceTempView(VIEW)
