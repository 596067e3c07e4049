"""Start of a stream on a Spark session, in micro-batches or in real time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle, stop_query
from stackcast.jobs.adapters.app.running_stream import RunningStream
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
from stackcast.jobs.adapters.checkpoint.progress import Progress, position
from stackcast.jobs.adapters.kafka.broker_source import BrokerSource
from stackcast.jobs.adapters.kafka.file_handoffs import FileHandoffs
from stackcast.jobs.adapters.kafka.options import fetch_of
from stackcast.jobs.adapters.kafka.record_source import RecordSource
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.stream import assembly, checks, failures
from stackcast.jobs.adapters.stream.admission import Admission
from stackcast.jobs.adapters.stream.between_batches import BetweenBatches
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.last_batch import LastBatch
from stackcast.jobs.adapters.stream.micro_batches import MicroBatches
from stackcast.jobs.adapters.stream.new_attributes import NewAttributes
from stackcast.jobs.adapters.stream.recovery import Recovery, interrupted_slice
from stackcast.jobs.adapters.stream.running_query import RunningQuery
from stackcast.jobs.adapters.stream.spark_input import records_of
from stackcast.jobs.adapters.stream.spark_listeners import reports_to_spark
from stackcast.jobs.adapters.stream.spark_watch import watch_stream
from stackcast.jobs.adapters.stream.truncation import OPTION
from stackcast.jobs.adapters.stream.warm_up import load_plan, warm_up
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import LEDGER, SUBSCRIPTIONS
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.jobs.adapters.wire import Opener, open_sink, sink_options
from stackcast.udfs.delivery.partition_states import needs_arrival
from stackcast.udfs.errors import SettingsError, StreamError
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES

log = logging.getLogger(__name__)

#: Line of the log after which records are delivered without a delay.
READY = "stream ready: workers have loaded the plan and its header stacks"


class Consent(NamedTuple):
    """Actions of a start that require the consent of an operator.

    Attributes:
        take_over: take over from a stream with another checkpoint, which has
            ``spark.stackcast.waitSeconds`` to end its batch.
        accept_truncation: continue from where Kafka has truncated the log.
    """

    take_over: bool = False
    accept_truncation: bool = False


NO_CONSENT = Consent()


def run(settings: Settings, lifecycle: Lifecycle, name: str, consent: Consent = NO_CONSENT) -> int:
    """Deliver records until the job is asked to stop.

    Args:
        settings: settings of the stream.
        lifecycle: lifecycle of the job.
        name: name of the Spark application.
        consent: actions that the operator permits.

    Returns:
        The exit code.

    Raises:
        TableError: FENCED, or an error of `start`.
        StackcastError: an error of `start`, or the reason of a stream that has failed.
    """
    spark = session.start(name)
    lifecycle.hold_jvm(spark)
    serve(spark, settings, lifecycle, consent)
    session.end_workers(spark)
    return 0


def serve(
    spark: SparkSession,
    settings: Settings,
    lifecycle: Lifecycle,
    consent: Consent = NO_CONSENT,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Start a stream in a session, and deliver until the job is asked to stop.

    Args:
        spark, settings, lifecycle, consent: see `start`.
        started: called once the stream is ready.

    Raises:
        TableError: FENCED, or an error of `start`.
        StackcastError: an error of `start`, or the reason of a stream that has failed.
    """
    query, delivery = start(spark, settings, lifecycle, consent)
    try:
        started()
        lifecycle.run(query, delivery.fence.lost, delivery.last_batch.check)
        delivery.fence.check()
        delivery.flush_summaries()
    except StreamError as error:
        delivery.fence.check()
        raise failures.after_failure(spark, settings, error) from error
    finally:
        delivery.close()


def start(
    spark: SparkSession, settings: Settings, lifecycle: Lifecycle, consent: Consent = NO_CONSENT
) -> tuple[RunningStream, BatchDelivery]:
    """Connect topic, tables and sink, and start the stream.

    Metrics and health are served from here on until the delivery is closed, or an error is raised.

    Args:
        spark: session whose executors run the tasks.
        settings: settings of the stream.
        lifecycle: lifecycle of the job; ends waits when the job is asked to stop.
        consent: actions that the operator permits.

    Returns:
        The stream, which runs, and its delivery, which the caller must close.

    Raises:
        SettingsError: PORT_TAKEN or BAD_HOST if metrics cannot be served, NOT_REALTIME if real time
            is required and not possible.
        StreamError: NO_EXECUTORS.
        TableError: WRITER_ACTIVE.
    """
    with ExitStack() as ending:
        query, delivery = _start(spark, settings, lifecycle, ending, consent)
        ending.pop_all()
    return query, delivery


def _start(
    spark: SparkSession,
    settings: Settings,
    lifecycle: Lifecycle,
    ending: ExitStack,
    consent: Consent,
) -> tuple[RunningStream, BatchDelivery]:
    """Start the stream; see `start`.

    Args:
        spark, settings, lifecycle, consent: see `start`.
        ending: gets what must end if the start fails.
    """
    topics = Topics(spark, settings)
    ending.callback(topics.close)
    watch = watch_stream(spark, settings, topics, lambda: lifecycle.stood_still)
    ending.callback(watch.close)
    watch.open()
    await_executors(spark, settings, lifecycle)
    topics.wait(lifecycle.stopping.is_set)
    tables = open_tables(spark, settings.tables)
    tables.head(SUBSCRIPTIONS)
    # Broker and tables come first: Spark logs each task that is cut off by an error of theirs.
    warming = warm_up(spark)
    topics.ensure_dead_letters()
    is_real_time = in_real_time(spark, settings, len(topics.end_offsets()))
    checkpoint = open_folder(spark, settings.checkpoint)
    check = partial(
        checks.before_start,
        *(settings, checkpoint, tables, topics),
        partial(failures.checkpoint_not_written, spark, settings),
        accept_truncation=consent.accept_truncation,
    )
    beginning = check()
    fence = Fence(tables, f"stream of {settings.topic}", (LEDGER,))
    ending.callback(fence.release)
    progress = Progress(checkpoint, settings.topic)
    query_id = progress.identify()
    fence.claim(
        query_id,
        str(spark.sparkContext.applicationId),
        settings.checkpoint,
        take_over=consent.take_over,
        patience=settings.wait_seconds,
        stopping=lifecycle.stopping.is_set,
    )
    if fence.succeeds_other:
        checks.check_generation(tables, beginning.identity)
    if beginning.truncation is not None:
        # The stream that had the place before may have recorded more since.
        beginning = check()
    elif consent.accept_truncation:
        log.info("%s is not needed, because topic %s is not truncated", OPTION, settings.topic)
    systems = assembly.Systems(
        engine=SparkEngine(spark),
        slots=spark.sparkContext.defaultParallelism,
        tables=tables,
        checkpoint=checkpoint,
        topics=topics,
        letters=topics,
        open_sink=Opener(sink_options(settings), open_sink),
        last_batch=LastBatch(spark, topics),
        stopping=lifecycle.stopping.is_set,
    )
    delivery = assembly.assemble(
        settings, systems, beginning, fence, query_id, watch.metrics, ending
    )
    plan = delivery.plans.current_plan
    warming.result()
    if plan is not None:
        load_plan(spark, plan.plan, plan.stacks, delivery.topic)
    fetch = fetch_of(settings)
    if isinstance(fetch, str):
        log.info("%s", fetch)
    source = None if isinstance(fetch, str) else BrokerSource(fetch)
    if is_real_time:
        assert source is not None and not isinstance(fetch, str)
        slices = assembly.real_time(
            *(settings, systems, delivery, source, fetch.patience, FileHandoffs()),
            reports_to_spark(spark, query_id, settings),
        )
        delivery.before_close(slices.stop)
        slices.start()
        watch.attach(slices, partial(session.slots, spark))
        log.info("%s", READY)
        return slices, delivery
    query = _start_micro_batches(spark, settings, lifecycle, topics, systems, delivery, source)
    watch.attach(query)
    log.info("%s", READY)
    return query, delivery


def _start_micro_batches(
    spark: SparkSession,
    settings: Settings,
    lifecycle: Lifecycle,
    topics: Topics,
    systems: assembly.Systems,
    delivery: BatchDelivery,
    source: RecordSource | None,
) -> RunningStream:
    """Start the query that delivers in micro-batches.

    Args:
        spark, settings, lifecycle: see `start`.
        topics: topics of the stream.
        systems: systems that it uses.
        delivery: its parts.
        source: source of its records; None if Spark's connector reads them.
    """
    progress = Progress(systems.checkpoint, settings.topic)
    read_position = partial(position, systems.checkpoint)
    reached = read_position()
    if reached is not None and reached.goes_back and delivery.recorder.is_recorded(reached.batch):
        # A new generation has begun, and Spark would not read backwards.
        progress.done(reached.batch)
        reached = read_position()
    if interrupted_slice(delivery, reached):
        if source is None:
            raise SettingsError(
                "NOT_REALTIME",
                f"a real-time batch of {settings.checkpoint} was interrupted, and only tasks "
                "that fetch records themselves can send it again: start the stream once with "
                "its previous settings",
            )
        Recovery(settings, topics, delivery, progress, source).run(reached)
        reached = read_position()
    delivery.recorder.start_from({} if reached is None else reached.offsets)
    limits = settings.max_offsets_per_trigger, settings.max_bytes_per_trigger
    admission = Admission(*limits, topics.usual_record())
    batches = MicroBatches(
        *(delivery, progress, NewAttributes(settings, systems.tables), admission),
        read_position,
        lambda: RunningQuery(spark, progress.identify(), source is not None),
        lambda: lifecycle.interrupted,
    )
    delivery.before_close(batches.close)

    def process(records: DataFrame, batch_id: int) -> None:
        lifecycle.boundary()
        batches.process(partial(records_of, records, systems.engine, source), batch_id)

    timestamps = needs_arrival(specification_of(settings, systems.tables))
    query: RunningStream = (
        topics.stream(timestamps, admission.records)
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", settings.checkpoint)
        .trigger(processingTime=settings.trigger)
        .start()
    )
    looks = BetweenBatches(
        *(delivery.plans, systems.engine, systems.tables.local, batches.flush_overdue_summaries)
    )
    delivery.before_close(looks.close)

    def stop() -> None:
        # A JVM that has ended has no stream. A query that was stopped may wait for a broker.
        with suppress(Py4JError, OSError):
            if query.isActive:
                stop_query(query)

    delivery.before_close(stop)
    return query


def await_executors(spark: SparkSession, settings: Settings, lifecycle: Lifecycle) -> None:
    """Wait for an executor. Without one, Spark would wait forever, even after a stop request.

    Raises:
        StreamError: NO_EXECUTORS, after ``waitSeconds``.
    """
    given_up, patience = lifecycle.stopping.is_set, float(settings.wait_seconds)
    if not session.slots(spark, 1, patience, given_up=given_up):
        raise StreamError(
            "NO_EXECUTORS",
            f"{spark.sparkContext.master} has not assigned an executor to this stream yet: other "
            "applications use the cores or memory of its workers (limit each with "
            "spark.cores.max), or no worker has as much as spark.executor.cores and "
            "spark.executor.memory request",
        )


def in_real_time(spark: SparkSession, settings: Settings, partitions: int) -> bool:
    """Return True if a stream runs in real time, and log the reason if it does not.

    Args:
        spark: session whose executors run the tasks.
        settings: settings of the stream.
        partitions: number of partitions of the topic.

    Raises:
        SettingsError: NOT_REALTIME, if real time is required and not possible.
    """
    if settings.latency == "microbatch":
        return False
    reason = obstacle(spark, settings, partitions)
    if reason and settings.latency == "realtime":
        raise SettingsError(
            "NOT_REALTIME",
            f"{PREFIX}latency is 'realtime', but {reason}: change this, or set {PREFIX}latency to "
            "microbatch",
        )
    if not reason and settings.latency == "auto" and "trigger" in settings.given:
        reason = f"{PREFIX}trigger is set"
    mode = "delivering in micro-batches: %s" if reason else "delivering in real time%s"
    log.info(mode, reason)
    return not reason


def obstacle(spark: SparkSession, settings: Settings, partitions: int) -> str:
    """Return the reason why a stream cannot run in real time, or an empty text."""
    fetch = fetch_of(settings)
    if isinstance(fetch, str):
        return fetch
    if settings.format == ATTRIBUTES and settings.attributes_unknown == "register":
        return f"{PREFIX}attributes.unknown is register, which happens between micro-batches"
    slots = session.slots(spark, partitions, float(settings.wait_seconds))
    if slots >= partitions:
        return ""
    master = spark.sparkContext.master
    local = session.runs_in_driver(master)
    hint = f"set local[{partitions},4]" if local else "use more executor cores"
    return (
        f"each of the {partitions} partitions of {settings.topic} needs its own slot, and "
        f"spark.master {master!r} provides {slots} ({hint})"
    )
