"""The stream of the main jobs: topic, tables and sink wired together, in micro-batches or in real
time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle, RunningStream, stop_query
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.checkpoint.progress import Progress, position
from stackcast.jobs.adapters.kafka.options import fetch_of
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.stream import checks
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.resumption import resume
from stackcast.jobs.adapters.stream.slices import Slices, cut_off
from stackcast.jobs.adapters.stream.truncation import OPTION
from stackcast.jobs.adapters.stream.warm_up import load_plan, warm_up
from stackcast.jobs.adapters.stream.watch import StreamWatch
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import LEDGER, SUBSCRIPTIONS
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.udfs.delivery.partition_states import needs_arrival
from stackcast.udfs.errors import SettingsError, StreamError
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES

log = logging.getLogger(__name__)

#: How long a start waits for header stacks that no earlier run has written, seconds.
STACKS_SECONDS = 20.0
#: Line of the log from which on records are delivered without a delay.
READY = "stream ready: workers have loaded the plan and its header stacks"


class Consent(NamedTuple):
    """What a stream may do that it does only if it is asked to.

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
        consent: what the stream may do beyond its work.

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
        raise checks.after_failure(spark, settings, error) from error
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
        consent: what the stream may do beyond its work.

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
    watch = StreamWatch(spark, settings, topics, lambda: lifecycle.stood_still)
    ending.callback(watch.close)
    watch.open()
    await_executors(spark, settings, lifecycle)
    topics.wait(lifecycle.stopping.is_set)
    tables = open_tables(spark, settings.tables)
    tables.head(SUBSCRIPTIONS)
    # Broker and tables come first: Spark logs each task that is cut off by an error of theirs.
    warming = warm_up(spark)
    topics.ensure_dead_letters()
    real_time = in_real_time(spark, settings, len(topics.end_offsets()))
    timestamps = needs_arrival(specification_of(settings, tables))
    check = partial(
        checks.before_start,
        *(spark, settings, tables, topics),
        accept_truncation=consent.accept_truncation,
    )
    beginning = check()
    fence = Fence(tables, f"stream of {settings.topic}", (LEDGER,))
    ending.callback(fence.release)
    progress = Progress(spark, settings.checkpoint, settings.topic)
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
    delivery = BatchDelivery(
        spark, settings, tables, topics, fence, beginning.identity.read_topic, watch.metrics
    )
    delivery.query = query_id
    delivery.leaders.given_up = lifecycle.stopping.is_set
    delivery.interrupted = lambda: lifecycle.interrupted
    delivery.ending.push(ending.pop_all())
    ending.callback(delivery.close)
    delivery.prepare(STACKS_SECONDS, lifecycle.stopping.is_set)
    if beginning.truncation is not None:
        resume(spark, settings, delivery, beginning)
    elif consent.accept_truncation:
        log.info("%s is not needed, because topic %s is not truncated", OPTION, settings.topic)
    warming.result()
    if delivery.live is not None:
        load_plan(spark, delivery.live.plan, delivery.live.stacks, delivery.topic)
    if real_time:
        slices = Slices(spark, settings, topics, delivery, lifecycle.stopping.is_set)
        delivery.stop = slices.stop
        slices.start()
        watch.attach(slices)
        log.info("%s", READY)
        return slices, delivery
    stands = position(spark, settings.checkpoint)
    if stands is not None and stands.goes_back and delivery.recorded(stands.batch):
        # A new generation has begun, and Spark would not read backwards.
        progress.done(stands.batch)
        stands = position(spark, settings.checkpoint)
    if cut_off(delivery, stands):
        if delivery.fetch is None:
            raise SettingsError(
                "NOT_REALTIME",
                f"a real-time batch of {settings.checkpoint} was interrupted, and only tasks "
                "that fetch records themselves can send it again: start the stream once with "
                "its previous settings",
            )
        Slices(spark, settings, topics, delivery).recover()
        delivery.told = None
        stands = position(spark, settings.checkpoint)
    delivery.processed = {} if stands is None else dict(stands.offsets)

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

    def stop() -> None:
        # A query that was stopped before may still wait for a broker.
        if query.isActive:
            stop_query(query)

    delivery.stop = stop
    watch.attach(query)
    delivery.follow()
    log.info("%s", READY)
    return query, delivery


def await_executors(spark: SparkSession, settings: Settings, lifecycle: Lifecycle) -> None:
    """Returns when there is an executor: without one, Spark would wait for ever, and say nothing of
    a stop. Raises StreamError NO_EXECUTORS after ``waitSeconds``."""
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
    """Tells whether a stream of so many partitions is to run in real time; logs why not, where it
    is left to the stream. Raises SettingsError NOT_REALTIME where it must and cannot."""
    if settings.latency == "microbatch":
        return False
    why = why_not(spark, settings, partitions)
    if why and settings.latency == "realtime":
        raise SettingsError(
            "NOT_REALTIME",
            f"{PREFIX}latency is 'realtime', but {why}: change this, or set {PREFIX}latency to "
            "microbatch",
        )
    if not why and settings.latency == "auto" and "trigger" in settings.given:
        why = f"{PREFIX}trigger is set"
    log.info("delivering in micro-batches: %s" if why else "delivering in real time%s", why)
    return not why


def why_not(spark: SparkSession, settings: Settings, partitions: int) -> str:
    """Returns why a stream of so many partitions cannot run in real time; empty where it can."""
    found = fetch_of(settings)
    if isinstance(found, str):
        return found
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
