"""Real-time mode: frames leave milliseconds after their records come, and less is promised.

Spark runs one long batch after another, whose tasks send from inside (`udfs.delivery.realtime`).
Plans reach them, and their reports come back, over a channel of our own
(`jobs.adapters.realtime.channel`).
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from contextlib import ExitStack
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from jobs.adapters.app import session
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import PREFIX, Settings, seconds_of
from jobs.adapters.checkpoint import positions as realtime_positions
from jobs.adapters.checkpoint import progress
from jobs.adapters.checkpoint.journal import Journal
from jobs.adapters.checkpoint.reports import Reports
from jobs.adapters.planning import formats
from jobs.adapters.realtime.channel import ChannelServer, Poll, Reply
from jobs.adapters.realtime.ledger import RealTimeLedger, VersionsInUse
from jobs.adapters.realtime.plans import RealTimePlans
from jobs.adapters.realtime.worker_channel import open_channel
from jobs.adapters.stream import checks
from jobs.adapters.stream.input import EventInput
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.stream.warm_up import warm_up
from jobs.adapters.stream.watch import StreamWatch
from jobs.adapters.tables.tables import Tables
from jobs.adapters.wire import open_sink, sink_options
from udfs.delivery.realtime import deliver_at_once
from udfs.errors import SettingsError, StreamError

log = logging.getLogger(__name__)

#: What Spark needs for it. One record a batch, and no buffer before Python: both would wait until
#: they are full.
SPARK = {
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.sql.execution.pandas.udf.buffer.size": "4",
}
LEAST_BATCH_SECONDS = 5.0
_TICK_SECONDS = 0.1
_WRITE_SECONDS = 1.0
#: How long a stop waits for the last reports.
_LAST_SECONDS = 10.0


def check(settings: Settings) -> None:
    """Refuse settings that do not go with real-time mode. Raises SettingsError BAD_VALUE."""
    if settings.latency != "realtime":
        return
    mode = f"{PREFIX}latency is 'realtime'"
    if settings.embedded:
        raise SettingsError(
            "BAD_VALUE",
            f"{mode}, which needs Kafka of your own: the embedded lab proves micro-batches; set "
            f"{PREFIX}kafka.bootstrap.servers, or leave out {PREFIX}latency",
        )
    if settings.format == "attributes" and settings.attributes_unknown == "register":
        raise SettingsError(
            "BAD_VALUE",
            f"{mode}, and {PREFIX}attributes.unknown is 'register': only between micro-batches "
            "can names be given ids; register them in table attributes",
        )
    if seconds_of(settings.realtime_batch) < LEAST_BATCH_SECONDS:
        raise SettingsError(
            "BAD_VALUE",
            f"{PREFIX}realtime.batch is {settings.realtime_batch!r}: Spark takes "
            f"{LEAST_BATCH_SECONDS:g} seconds or more",
        )


def run(settings: Settings, lifecycle: Lifecycle, name: str) -> int:
    """Deliver until asked to stop. Returns the exit code."""
    spark = session.start(name)
    lifecycle.hold_jvm(spark)
    topics = Topics(spark, settings)
    with ExitStack() as ending:
        watch = StreamWatch(spark, settings, topics)
        ending.callback(watch.close)
        watch.open()
        stream = RealTimeStream(spark, settings, lifecycle, topics, watch)
        ending.callback(stream.close)
        try:
            stream.run()
        except StreamError as error:
            raise checks.after_failure(spark, stream.looked_at, error) from error
    return 0


class RealTimeStream:
    """A running stream; `run` returns when it was asked to stop. Call `close` at the end.

    query: Spark's, of a session of its own.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        lifecycle: Lifecycle,
        topics: Topics,
        watch: StreamWatch,
    ) -> None:
        check(settings)
        self._spark = spark
        self._lifecycle = lifecycle
        self._stopping = False
        self._ending = ExitStack()
        warming = warm_up(spark)
        topics.wait(lifecycle.stopping.is_set)
        topics.ensure_dead_letters()
        topics.ensure(settings.realtime_ledger_topic, "the ledger")
        tables = Tables(spark, settings.tables)
        formats.specification_of(settings, tables)
        positions = realtime_positions.Positions(spark, settings)
        spans = topics.spans()
        _check_slots(spark, settings, len(spans))
        sent = positions.read()
        known = sent is not None
        if sent is None:
            end_micro_batches(spark, settings, tables)
            sent = realtime_positions.first_positions(spark, settings, spans)
        # Partitions that are new begin at their start.
        sent = {p: first for p, (first, _) in spans.items() if p not in sent} | sent
        starting = realtime_positions.starting_offsets(settings.topic, sent)
        #: The settings as they are for Spark: where this run begins.
        self.looked_at = dataclasses.replace(
            settings, checkpoint=realtime_positions.home(settings), starting_offsets=starting
        )
        checks.check_records(settings.topic, sent, spans, new=not known)
        checks.before_start(spark, self.looked_at, tables, topics)
        positions.write(sent)
        self._say(settings)
        self._ledger = RealTimeLedger(spark, settings, positions, sent, watch.metrics)
        self._ending.callback(self._ledger.close)
        self._plans = RealTimePlans(spark, settings, tables, watch.metrics)
        self._ending.callback(self._plans.close)
        self._plans.start(announce=not known)
        self._in_use = VersionsInUse(tables, settings.topic)
        self._noted = 0
        conf = spark.sparkContext.getConf()
        host = str(conf.get("spark.driver.host"))
        bind = str(conf.get("spark.driver.bindAddress", host))
        self._channel = ChannelServer(host, bind, self._answer)
        self._ending.callback(self._channel.close)
        warming.result()
        number = positions.number
        self._positions = positions
        self.query = self._start(settings, number)
        watch.attach(self.query)

    def run(self) -> None:
        """Wait until the query fails or a stop is asked for. Raises StreamError FAILED."""
        query, stopping = self.query, self._lifecycle.stopping
        wrote = time.monotonic()
        while query.isActive and not stopping.wait(_TICK_SECONDS):
            if time.monotonic() - wrote >= _WRITE_SECONDS:
                wrote = time.monotonic()
                self._ledger.write_positions()
                self._note_versions()
        if query.isActive:
            self._stop()
        else:
            # Raises its reason.
            self._lifecycle.run(query, finished=lambda: True)

    def close(self) -> None:
        """End what serves the stream."""
        self._ending.close()

    def _start(self, settings: Settings, number: int) -> StreamingQuery:
        # Small batches are for this stream alone: tables are read in large ones.
        live = self._spark.newSession()
        for key, value in SPARK.items():
            live.conf.set(key, value)
        records = Topics(live, self.looked_at).stream()
        records = EventInput(settings, Tables(live, settings.tables)).prepare(records)
        work = deliver_at_once(
            partial(open_channel, self._channel.address),
            settings.topic,
            partial(open_sink, sink_options(settings)),
            settings.dead_letter_samples,
        )
        return (
            records.mapInArrow(work, "nothing long")
            .writeStream.format("noop")
            .outputMode("update")
            .option(
                "checkpointLocation",
                realtime_positions.new_checkpoint(self._spark, settings, number),
            )
            .trigger(realTime=settings.realtime_batch)
            .start()
        )

    def _answer(self, poll: Poll) -> Reply:
        taken = 0
        for report in poll.reports:
            if not self._ledger.take(report, self._plans.reported(report.number)):
                break
            taken += 1
        served = self._plans.served
        stacks = None if poll.stacks == served.stacks_number else served.stacks
        return Reply(
            plan_number=served.number,
            plan=None if poll.plan == served.number else served.plan,
            stacks_number=served.stacks_number,
            stacks=stacks,
            taken=taken,
            sent=self._ledger.sent,
            stop=self._stopping,
        )

    def _note_versions(self) -> None:
        """Says which versions are in use: those of the oldest plan that a worker may send by."""
        oldest = self._channel.oldest_plan
        if oldest is None or oldest < self._noted:
            return
        plan = self._plans.reported(oldest)
        if plan is not None:
            self._noted = oldest
            self._in_use.put(self._positions.number, plan.versions)

    @property
    def _unfinished(self) -> int:
        return self._channel.active + self._ledger.waiting

    def _stop(self) -> None:
        """Tell all tasks to stop, take their last reports, and only then end the query."""
        log.info("asked to stop: waiting for the last reports")
        self._stopping = True
        deadline = time.monotonic() + _LAST_SECONDS
        # A task that was about to begin has been told, too, by then.
        time.sleep(3 * _TICK_SECONDS)
        while self._unfinished and time.monotonic() < deadline:
            time.sleep(_TICK_SECONDS / 2)
        if self._unfinished:
            log.warning("not all is in the ledger: what was sent last will be sent again")
        positions = self._ledger.write_positions()
        level = self._spark.sparkContext.getConf().get("spark.log.level", "WARN")
        # Tasks that are cut off are no errors here, and Spark says so at length.
        self._spark.sparkContext.setLogLevel("OFF")
        try:
            self.query.stop()
        finally:
            self._spark.sparkContext.setLogLevel(str(level))
        offsets = ", ".join(f"{p}: {o}" for p, o in sorted(positions.items()))
        log.info("ended; the next start goes on at offsets %s", offsets)

    def _say(self, settings: Settings) -> None:
        log.warning(
            "real-time mode: after a crash the last seconds are sent again, by the tables of then; "
            "the ledger is in topic %s; no delivery statistics, no re-requests, no rules with "
            "state (docs/operations.md, Real-time mode)",
            settings.realtime_ledger_topic,
        )


def end_micro_batches(spark: SparkSession, settings: Settings, tables: Tables) -> None:
    """Ends what a stream of micro-batches has left in this checkpoint.

    Its reports are written to the tables; a batch that was cut off is refused, as it must go out
    as it began.

    Raises StreamError BATCH_CUT_OFF, REPORT_UNREADABLE, CHECKPOINT_UNREADABLE.
    """
    stands = progress.position(spark, settings.checkpoint)
    if stands is None:
        return
    if stands.again:
        raise StreamError(
            "BATCH_CUT_OFF",
            f"batch {stands.batch} of {settings.checkpoint} was cut off, and only micro-batches "
            f"send it again with the numbers and versions of its first try: start once without "
            f"{PREFIX}latency=realtime, and stop that by SIGTERM",
        )
    journal = Journal(Reports(spark, settings.checkpoint), tables, 0.0)
    journal.recover()
    journal.close()


def _check_slots(spark: SparkSession, settings: Settings, partitions: int) -> None:
    slots = session.slots(spark, partitions + 1)
    if slots > partitions:
        return
    master = spark.sparkContext.master
    hint = f"local[{partitions + 1},4]" if re.match("local", master) else "more executor cores"
    raise SettingsError(
        "BAD_VALUE",
        f"spark.master is {master!r}, with {slots} slots: real-time mode takes one for each of the "
        f"{partitions} partitions of {settings.topic} all the time, and one more is needed to read "
        f"tables; set {hint}",
    )
