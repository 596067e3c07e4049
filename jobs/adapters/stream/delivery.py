"""One batch of the main job: pin versions, plan, deliver, record.

The frames leave inside the one pass of `stackcast.udfs.delivery.deliver`; this module decides
with which tables, and writes down what happened. Micro-batches take its steps by
`BatchDelivery.process`, real time takes them by `stackcast.jobs.adapters.stream.slices`.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from stackcast.jobs.adapters.app.error_texts import one_line
from stackcast.jobs.adapters.app.key_files import signing_key
from stackcast.jobs.adapters.app.lifecycle import StopAsked
from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.app.settings import INGRESSES, Settings, seconds_of
from stackcast.jobs.adapters.checkpoint.identity import changed, shaping
from stackcast.jobs.adapters.checkpoint.journal import Journal
from stackcast.jobs.adapters.checkpoint.leader_epochs import recorded_epochs, recorded_partitions
from stackcast.jobs.adapters.checkpoint.pins import Pin, Pins
from stackcast.jobs.adapters.checkpoint.progress import Progress, position
from stackcast.jobs.adapters.checkpoint.reports import Report, Reports, Rows, writer_of
from stackcast.jobs.adapters.checkpoint.state import CarriedState
from stackcast.jobs.adapters.checkpoint.summary_progress import SummaryProgressStore
from stackcast.jobs.adapters.kafka.broker_source import BrokerSource
from stackcast.jobs.adapters.kafka.options import fetch_of
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning.plans import Plans, sources, switch_sources
from stackcast.jobs.adapters.planning.stream_plan import StreamPlan
from stackcast.jobs.adapters.planning.versions import FRESH, LINK_STATES, BatchVersions
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.stream.admission import Admission, RunningQuery
from stackcast.jobs.adapters.stream.dead_letters import DeadLetters
from stackcast.jobs.adapters.stream.input import Records, WithoutRecords
from stackcast.jobs.adapters.stream.last_batch import LastBatch
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.new_attributes import NewAttributes
from stackcast.jobs.adapters.stream.report import BatchReport, Reach
from stackcast.jobs.adapters.stream.spark_input import records_of
from stackcast.jobs.adapters.stream.summary_schedule import SummarySchedule
from stackcast.jobs.adapters.stream.truncation import Leaders
from stackcast.jobs.adapters.tables.tables import DELIVERIES, LEDGER, PUBLICATIONS, Tables
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.jobs.adapters.wire import Opener, open_sink, sink_options
from stackcast.udfs.delivery.deliver import REPORT, Source, Work, deliver
from stackcast.udfs.delivery.plan import Compilation, Plan
from stackcast.udfs.delivery.summary_progress import SummaryAssignment, SummaryProgress
from stackcast.udfs.errors import StackcastError, TableError
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.trees.header_stacks import HeaderStacks

log = logging.getLogger(__name__)

#: Between two looks at the tables beside batches, where a look takes microseconds.
FOLLOW_SECONDS = 0.1
#: On other storage a look is some requests to it.
FOLLOW_SECONDS_ELSEWHERE = 0.5


class LivePlan(NamedTuple):
    """A plan, and how workers come by it and its header stacks."""

    compilation: Compilation
    plan: Broadcast[Plan]
    stacks: Broadcast[HeaderStacks]


class Delivered(NamedTuple):
    """A batch whose frames have left, and what is not on record yet: the report of its tasks, and
    the state that rules keep after it, if any do."""

    batch_id: int
    compilation: Compilation
    report: BatchReport
    kept: dict[int, bytes] | None
    started: dt.datetime
    seconds: float


class BatchDelivery:
    """The state of a running stream: current plan, and where it writes.

    ``process`` is the function for ``foreachBatch``. ``admission`` bounds the next batch.
    ``processed`` holds, by partition, the offset after the last record whose frames were handed
    over. Call `close` at the end: it waits for what is still being written beside the stream.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        tables: Tables,
        topics: Topics,
        fence: Fence,
        topic: Topic,
        metrics: StreamMetrics | None = None,
    ) -> None:
        self._spark = spark
        #: The topic, with the generation that its sessions have.
        self.topic = topic
        self._settings = settings
        self._tables = tables
        self._topics = topics
        self.fence = fence
        self.metrics = metrics or StreamMetrics()
        self._dead_letters = DeadLetters(settings, topics, self.metrics)
        decide = sources(settings), switch_sources(settings)
        self._versions = BatchVersions(tables, settings.topic, *decide)
        self.pins = Pins(spark, settings.checkpoint)
        self.state = CarriedState(spark, settings.checkpoint)
        self._progress = Progress(spark, settings.checkpoint, settings.topic)
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="offsets")
        self._reports = Reports(spark, settings.checkpoint)
        self.journal = Journal(
            self._reports,
            fence,
            seconds_of(settings.ledger_interval),
            self.metrics.journal,
        )
        self.shaping = shaping(settings)
        plans = Plans(settings, tables, signing_key(settings))
        rejections = settings.match != "network"
        self._plans = StreamPlan(
            SparkEngine(spark),
            spark.sparkContext.defaultParallelism,
            tables,
            settings.publisher,
            plans,
            self.metrics,
            rejections,
        )
        self._new_attributes = NewAttributes(settings, tables)
        found = fetch_of(settings)
        self.engine = SparkEngine(spark)
        self.fetch = None if isinstance(found, str) else found
        self.source = None if isinstance(found, str) else BrokerSource(found)
        if isinstance(found, str):
            log.info("%s", found)
        most = settings.max_offsets_per_trigger, settings.max_bytes_per_trigger
        self.admission = Admission(*most, topics.usual_record())
        self._open_sink = Opener(sink_options(settings), open_sink)
        self._running: RunningQuery | None = None
        #: The newest plan, as workers take it; and the one before it.
        self.live: LivePlan | None = None
        self._replaced: LivePlan | None = None
        #: The plan of the slice that runs; None in micro-batches.
        self.taken: LivePlan | None = None
        self._reach: tuple[Compilation, Reach] | None = None
        self._refused: dict[str, int] | None = None
        self.processed: dict[int, int] = {}
        self.leaders = Leaders(topics, topic.name)
        #: By partition, how far hosts were told by summaries; None before the first batch.
        self.told: dict[int, SummaryProgress] | None = None
        self.turns = SummarySchedule(seconds_of(settings.summary_interval))
        self._told_hosts = SummaryProgressStore(spark, settings.checkpoint)
        #: The id of the query, which is kept in its checkpoint: a new one counts batches anew.
        self.query = ""
        #: Stops the stream, before anything else ends.
        self.stop: Callable[[], None] = lambda: None
        #: Whether Ctrl-C cuts off the batch in progress.
        self.interrupted: Callable[[], bool] = lambda: False
        #: The batch in progress once the stream was asked to stop.
        self.last_batch = LastBatch(spark, topics)
        #: What ends with the delivery, whatever else does.
        self.ending = ExitStack()
        self._looks = BatchVersions(tables, settings.topic, *decide)
        # Plans are made by one at a time: by a batch, or between two.
        self._turn = threading.Lock()
        #: The last batch that is on record.
        self._last: int | None = None
        self._closing = threading.Event()
        self._following = threading.Thread(target=self._follow, name="plans", daemon=True)

    def process(self, batch: DataFrame, batch_id: int) -> None:
        """Deliver one micro-batch: columns partition, offset, value, and perhaps timestamp.

        Where rules keep state and Spark has cut a partition in two, this is found (StreamError
        PARTITION_SPLIT) when the tasks report, after their frames have left, and each further try
        sends again. It cannot be told before: no task knows of another, offsets of a partition may
        have gaps, and the number of tasks says nothing where some partitions are idle. No setting
        leads there: only options of the source do, and `Topics.stream` sets none of these.
        """
        try:
            with self.metrics.batch(batch_id), self._turn:
                self._process(batch, batch_id)
        except Exception as error:
            if self.interrupted():
                raise StopAsked from None
            used = self.live
            versions = "no plan" if used is None else named(used.compilation.versions)
            log.error("batch %d with %s failed: %s", batch_id, versions, one_line(error))
            raise

    def _process(self, batch: DataFrame, batch_id: int) -> None:
        started, clock = dt.datetime.now(dt.UTC), time.monotonic()
        stage = self.metrics.stage
        with stage("room"):
            self.journal.wait_for_capacity()
        if self.told is None:
            self.leaders.epochs = self.epochs_before()
        # Spark has not made durable what it planned; it is by the time that frames leave.
        planned = self._beside.submit(self._planned, batch_id)
        records = records_of(batch, self.engine, self.source)
        pin = self._pinned(batch_id, records, planned)
        records.planned(pin.epochs)
        live = self.with_known()
        with stage("state"):
            carried = self.carried(live, batch_id)
        with stage("deliver"):
            rows = self.deliver(live, carried, records, pin.everyone)
        epochs = records.epochs
        with stage("report"):
            done = self.delivered(batch_id, live, carried, rows, started, clock, epochs)
        self.leaders.check(_ends(done.report.partitions), pin.epochs, epochs)
        self.record(done)
        self._tell_spark(done.report.total("packets"), done.report.total("read_bytes"))

    def _planned(self, batch_id: int) -> None:
        """Makes durable where a batch ends, and looks up from which leaders it will be read.

        Raises:
            StreamError: LOG_TRUNCATED if Kafka has truncated the log since the batch before.
        """
        self._progress.sync(batch_id)
        self.leaders.look_up(self.processed)

    @property
    def _writer(self) -> str:
        return writer_of(self.query)

    def recorded(self, batch_id: int) -> bool:
        """Tells whether a batch of this query is on record, with all that came of it."""
        return self.journal.recorded(self._writer, batch_id)

    def carried(self, live: LivePlan, batch_id: int) -> dict[int, bytes]:
        """Returns the state that a batch begins with, by the record of the one before."""
        return {} if live.compilation.plan.state is None else self.state.before(batch_id)

    def task(
        self,
        live: LivePlan,
        carried: Mapping[int, bytes],
        assignment: SummaryAssignment,
        source: Source,
        flush_each_batch: bool = False,
    ) -> Work:
        """Returns the work of a task, see `stackcast.udfs.delivery.deliver.deliver`.

        Raises TableError FENCED where another stream has taken the place.
        """
        self.fence.check()
        return deliver(
            live.plan,
            live.stacks,
            self.topic,
            self._open_sink,
            self._settings.dead_letter_samples,
            carried,
            assignment,
            source,
            flush_each_batch=flush_each_batch,
            freeze=True,
        )

    def slice_work(
        self, live: LivePlan, carried: Mapping[int, bytes], assignment: SummaryAssignment
    ) -> Callable[[Source], Work]:
        """Return the work of the tasks of a slice, given the source of their records.

        Raises:
            TableError: FENCED.
        """
        self.fence.check()
        return partial(
            deliver,
            live.plan,
            live.stacks,
            self.topic,
            self._open_sink,
            self._settings.dead_letter_samples,
            carried,
            assignment,
            flush_each_batch=True,
            freeze=True,
        )

    def deliver(
        self, live: LivePlan, carried: Mapping[int, bytes], records: Records, everyone: bool
    ) -> pa.Table:
        """Has tasks deliver records, and tell ``everyone`` by summaries, or whom something was for;
        returns the rows of their reports."""
        assignment = SummaryAssignment(self.told or {}, everyone)
        return records.through(partial(self.task, live, carried, assignment), REPORT)

    def flush_summaries(self) -> None:
        """Tells all hosts how far partitions went that they were not told of: nothing was for them.

        For when no batch runs, or will. It need not be on record, as who is told again is told the
        same; and where it fails they ask.
        """
        told = self.told or {}
        rest = sorted(partition for partition, each in told.items() if not each.is_complete)
        if self.live is None or not rest:
            return
        try:
            task = partial(self.task, self.live, {}, SummaryAssignment(told))
            rows = WithoutRecords(self.engine, rest).through(task, REPORT)
            self.told = told | BatchReport(rows, ()).told
            self.turns.mark_sent()
            if self._last is not None:
                self._told_hosts.mark_complete(self._last)
        except Exception as error:
            log.warning("the last summaries could not be sent: %s", one_line(error))

    def delivered(
        self,
        batch_id: int,
        live: LivePlan,
        carried: Mapping[int, bytes],
        rows: pa.Table,
        started: dt.datetime,
        clock: float,
        epochs: Mapping[int, int],
    ) -> Delivered:
        """Reads what tasks have reported of a batch that began at ``clock``, monotonic; the next
        one begins where it ended. epochs: by partition, the epoch of the leader it was read
        from."""
        compilation = live.compilation
        report = BatchReport(rows, self._reach_of(compilation))
        state, kept = compilation.plan.state, None
        if state is not None:
            kept = self.state.merged(carried, report.states, state.identities)
        self.leaders.took(epochs)
        for row in report.partitions:
            row["leader_epoch"] = self.leaders.epochs.get(row["partition"])
        ends = {p: SummaryProgress.complete(end) for p, end in _ends(report.partitions).items()}
        self.told = (self.told or {}) | ends | report.told
        seconds = time.monotonic() - clock
        return Delivered(batch_id, compilation, report, kept, started, seconds)

    def record(self, done: Delivered) -> None:
        """Makes durable what came of a batch: its state, its dead letters, its report; then it is
        done. Raises TableError FENCED where another process goes on with the checkpoint."""
        self.fence.check_owner()
        stage, report, batch_id = self.metrics.stage, done.report, done.batch_id
        if done.kept is not None:
            with stage("state"):
                self.state.put(batch_id, done.kept)
        with stage("dead_letters"):
            self._dead_letters.put(batch_id, done.compilation, report)
        self._told_hosts.put(batch_id, report.told)
        with stage("journal"):
            self.journal.put(self._report(done))
        self._last = batch_id
        self.metrics.delivered(report, done.compilation.versions)
        self._plans.used(done.compilation, report.new_routes())
        self.processed |= _ends(report.partitions)
        self.metrics.processed(self.processed)
        log.info(
            "batch %d: %d packets, %d messages, %d matched, %d frames, %d dead letters "
            "in %.2f s; %s; offsets %s",
            batch_id,
            report.total("packets"),
            report.total("messages"),
            report.total("matched"),
            report.total("frames"),
            report.dead_letters,
            done.seconds,
            named(done.compilation.versions),
            ", ".join(
                f"{p['partition']}: {p['from_offset']} to {p['until_offset']}"
                for p in report.partitions
            ),
        )

    def record_resumption(
        self, batch_id: int, begins: Mapping[int, int], versions: Mapping[str, int]
    ) -> None:
        """Records a batch that has read nothing, at which a new generation of the topic begins.

        Args:
            batch_id: number of the batch.
            begins: by partition, the offset at which the generation begins.
            versions: versions of the tables.
        """
        self.state.put(batch_id, self.state.before(batch_id))
        # A try that was cut off sent its summaries in the sessions before.
        self._told_hosts.mark_complete(batch_id)
        epochs = self.leaders.epochs
        none = dict.fromkeys(("first_sequence", "last_sequence"))
        partitions = [
            {"partition": p, "from_offset": at, "until_offset": at, "records": 0, **none}
            | {"leader_epoch": epochs.get(p)}
            for p, at in sorted(begins.items())
        ]
        counts = ("packets", "messages", "matched", "frames", "bytes", "dead_letters")
        row = self._ledger_row(versions) | dict.fromkeys(counts, 0)
        row |= {
            "batch_id": batch_id,
            "started_at": dt.datetime.now(dt.UTC),
            "seconds": 0.0,
            "settings": self.shaping,
        }
        rows = {LEDGER: Rows(1, row, {"partitions": [partitions]})}
        self.journal.put(Report(self._writer, batch_id, rows))

    def _ledger_row(self, versions: Mapping[str, int]) -> dict[str, Any]:
        """Returns what rows of the ledger say of topic and tables."""
        return {
            "topic": self.topic.name,
            "topic_id": self.topic.id,
            "generation": self.topic.generation,
            "versions": dict(versions),
        }

    def _tell_spark(self, records: int, size: int) -> None:
        """Tells what only the tasks know of a batch, which bounds the next; size: bytes."""
        if self._running is None:
            self._running = RunningQuery(self._spark, self.query)
        if self.fetch is not None:
            self._running.count(records)
        if self.admission.seen(records, size):
            self._running.limit_next(self.admission.records)

    def prepare(self, patience: float, given_up: Callable[[], bool]) -> None:
        """Make a plan for the first batch, with header stacks known after ``patience`` seconds.

        Where the current tables cannot be used, that of the last batch on record stays live.
        """
        self.journal.recover()
        last = self.pins.newest()
        versions = self._versions.current()
        # Before its first batch, nobody knows of the stream.
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="announce") as beside:
            announced = None if last else beside.submit(self._versions.announce, versions)
            try:
                self._plan_at(versions)
            except StackcastError as error:
                if last is None:
                    raise
                self._plan_at(last[1].versions)
                self._refuse(versions, error)
            if announced is not None:
                announced.result()
        self._plans.await_stacks(patience, given_up)
        self.with_known()

    def follow(self) -> None:
        """Takes up edits between batches too from now on, so that they answer while nothing
        flows."""
        self._following.start()

    def _follow(self) -> None:
        said = ""
        usual = FOLLOW_SECONDS if self._tables.local else FOLLOW_SECONDS_ELSEWHERE
        while not self._closing.wait(FRESH if said else usual):
            try:
                self._look()
                said = ""
            except Exception as error:
                # The next batch meets it too, and fails of it.
                if said != (said := one_line(error)):
                    log.warning("edits could not be loaded between batches: %s", said)
            self._tell_idle()

    def _tell_idle(self) -> None:
        """Tells all hosts where no batch has done it in time; slices do so by themselves."""
        if self.taken is not None or not self.turns.is_overdue(self.told or {}):
            return
        if self._turn.acquire(blocking=False):
            try:
                self.flush_summaries()
            finally:
                self._turn.release()

    def _look(self) -> None:
        """Notes since when newer tables wait, and takes them up unless a batch runs, which takes up
        edits as it begins. Beside slices it does so once the last plan has its slice."""
        versions = self._looks.poll()
        if self._known(versions):
            self.metrics.pending(None)
            if self.taken is not None and self.taken is self.live:
                self.with_known()
            return
        self.metrics.pending(time.monotonic())
        if self.taken is not None and self.taken is not self.live:
            return
        if self._turn.acquire(blocking=False):
            try:
                # A batch may have ended since that took up newer ones.
                versions = self._looks.poll()
                if not self._known(versions):
                    self._take_up(versions)
            finally:
                self._turn.release()
            self.metrics.pending(None)

    def _known(self, versions: dict[str, int]) -> bool:
        """Tells whether these versions are in use, or cannot be used."""
        used = None if self.live is None else self.live.compilation.versions
        return versions in (used, self._refused)

    def close(self) -> None:
        """Stop the stream and wait for tables that are still being written."""
        with suppress(Py4JError, OSError):  # a JVM that has ended has no stream
            self.stop()
        self._closing.set()
        if self._following.is_alive():
            self._following.join()
        with self.ending:
            self._beside.shutdown(wait=True)
            self.journal.close()
            self._versions.close()
            self._plans.close()
            if self._replaced is not None:
                self._replaced.plan.destroy()

    def _pinned(self, batch_id: int, records: Records, planned: Future[None]) -> Pin:
        """Makes the plan of a batch: of its earlier try if there was one, else of the current
        tables.

        Args:
            batch_id: number of the batch.
            records: records of the batch.
            planned: ends when it is durable where the batch ends.

        Returns:
            The pin of the batch, which is on record.
        """
        pinned = self.pins.get(batch_id) if self.told is None else None
        if pinned is not None:
            self.plan_again(batch_id, pinned)
            planned.result()
            stands = position(self._spark, self._settings.checkpoint)
            if stands is not None and stands.planned is not None:
                self.leaders.check(stands.planned, pinned.epochs, {})
            return pinned
        with self.metrics.stage("input"):
            self._new_attributes.register(records, batch_id)
        with self.metrics.stage("versions"):
            versions = self._versions.current()
        live = self._take_up(versions)
        with self.metrics.stage("pin"):
            if self.told is None:
                self.told = self.told_before()
            versions, everyone = dict(live.compilation.versions), self.turns.take_turn()
            planned.result()
            epochs = dict(self.leaders.epochs)
            pin = Pin(versions, self.shaping, self.told, {}, everyone, epochs=epochs)
            self.pins.put(batch_id, pin)
        return pin

    def plan_again(self, batch_id: int, pinned: Pin) -> None:
        """Makes the plan of a batch that ran before. Raises as `Pins.useless` says."""
        self.told = self.begins(batch_id, pinned)
        log.warning(
            "batch %d is repeated with the versions of its first attempt: %s",
            batch_id,
            named(pinned.versions),
        )
        self.metrics.ran_again()
        other = changed(pinned.settings, self.shaping)
        if other:
            log.warning(
                "the first attempt of batch %d had other settings (%s), so the repeated batch "
                "may differ from frames that were already sent; %s",
                batch_id,
                ", ".join(f"{key} {value}" for key, value in sorted(other.items())),
                named(pinned.versions),
            )
        with self.metrics.stage("plan"):
            try:
                self._plan_at(pinned.versions)
            except TableError as error:
                raise self.pins.useless(batch_id, error) from error

    def take_up_newest(self) -> LivePlan:
        """Returns the plan of the current tables, or the last good one where they cannot be
        used."""
        return self._take_up(self._versions.current())

    def _take_up(self, versions: dict[str, int]) -> LivePlan:
        """Returns the plan of these versions, or the last good one where they cannot be used."""
        live = self.live
        if live is None or versions != self._refused:
            try:
                with self.metrics.stage("plan"):
                    live = self._plan_at(versions)
                self.metrics.refused(None)
            except StackcastError as error:
                if live is None:
                    raise
                self._refuse(versions, error)
        return live

    def told_before(self) -> dict[int, SummaryProgress]:
        """By partition, how far hosts were told before the first batch of this run.

        Offsets may have gaps there, by transactions and compaction: the ranges that hosts are told
        go on without a hole all the same.
        """
        last = self.pins.newest()
        return {} if last is None else self.begins(*last) | self._told_by(last[0])

    def epochs_before(self) -> dict[int, int]:
        """Returns by partition the epoch of the last leader from which batches before this run
        have read, as far as it is on record."""
        return recorded_epochs(self.pins, self._reports, self._tables, self.topic)

    def begins(self, batch_id: int, pin: Pin) -> dict[int, SummaryProgress]:
        """By partition, how far hosts were told before a batch; its pin is on record, and so is the
        batch before it."""
        return pin.since | self._told_by(batch_id - 1) if pin.ahead else pin.since

    def _told_by(self, number: int) -> dict[int, SummaryProgress]:
        """By partition, how far hosts were told by a batch on record, of those that it read."""
        read = recorded_partitions(self._reports, self._tables, self.topic, number)
        return self._told_hosts.after(number, _ends(read))

    def _refuse(self, versions: dict[str, int], error: StackcastError) -> None:
        """The last good version stays live; the bad one is not tried again."""
        used = {} if self.live is None else self.live.compilation.versions
        changed = {name: v for name, v in versions.items() if used.get(name) != v}
        log.error(
            "the changed tables %s cannot be used, so %s remain live: %s",
            named(changed),
            named(used),
            error,
        )
        self._refused = versions
        self.metrics.refused(versions)

    def _plan_at(self, versions: Mapping[str, int]) -> LivePlan:
        if self.live is not None and self.live.compilation.versions == versions:
            return self.live
        compilation = self._plans.make(versions)
        for name, version in versions.items():
            # Else a power failure could leave a pin of a version that then becomes another.
            self._tables.make_durable("links" if name == LINK_STATES else name, version)
        return self._use(compilation)

    def with_known(self) -> LivePlan:
        """Returns the plan, shipped anew as its header stacks get known."""
        assert self.live is not None
        known = self._plans.with_known(self.live.compilation)
        return self.live if known is self.live.compilation else self._use(known)

    def _use(self, compilation: Compilation) -> LivePlan:
        # Tasks may still use the plan before this one, and none the one before that: unpersist
        # alone would leave its file.
        replaced, self._replaced = self._replaced, self.live
        plan = self.engine.broadcast(compilation.plan)
        self.live = LivePlan(compilation, plan, self._plans.stacks(compilation))
        if replaced is not None:
            replaced.plan.destroy()
        return self.live

    def _reach_of(self, compilation: Compilation) -> Reach:
        if self._reach is None or self._reach[0] is not compilation:
            publishers, sets = compilation.plan.publishers, compilation.receiver_sets
            self._reach = compilation, Reach(compilation.reached, publishers, sets)
        return self._reach[1]

    def _report(self, done: Delivered) -> Report:
        """Makes the rows that ledger and statistics get of a batch."""
        report = done.report
        ledger = self._ledger_row(done.compilation.versions) | {
            "packets": report.total("packets"),
            "messages": report.total("messages"),
            "matched": report.total("matched"),
            "frames": report.total("frames"),
            "bytes": report.total("bytes"),
            "dead_letters": report.dead_letters,
            "started_at": done.started,
            "seconds": done.seconds,
            "settings": self.shaping | _entered(report.ingresses),
        }
        sent: dict[str, Any] = {
            "publisher": self._settings.publisher,
            "recorded_at": dt.datetime.now(dt.UTC),
        }
        batch = {"batch_id": done.batch_id}
        if done.compilation.plan.publishers is not None:
            del sent["publisher"]  # a column
        subscribers, publications = report.subscriber_columns, report.publication_columns
        tables = {
            DELIVERIES: Rows(len(subscribers["subscriber"]), batch | sent, subscribers),
            PUBLICATIONS: Rows(len(publications["receivers"]), batch | sent, publications),
            LEDGER: Rows(1, batch | ledger, {"partitions": [report.partitions]}),
        }
        return Report(self._writer, done.batch_id, tables)


def _entered(ingresses: Mapping[int, str]) -> dict[str, str]:
    """By whose links partitions entered the network, as the ledger has it among the settings."""
    pairs = ",".join(f"{partition}={host}" for partition, host in sorted(ingresses.items()))
    return {INGRESSES: pairs} if pairs else {}


def _ends(partitions: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """By partition, the offset after the last record that a batch read."""
    return {p["partition"]: p["until_offset"] for p in partitions}
