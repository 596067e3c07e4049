"""One micro-batch of the main job: pin versions, plan, deliver, record.

The frames leave inside the one ``mapInArrow`` pass of `udfs.columns.deliver`; this module decides
with which tables, and writes down what happened.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.logs import named
from jobs.adapters.app.settings import Settings, seconds_of
from jobs.adapters.checkpoint.identity import changed, shaping
from jobs.adapters.checkpoint.journal import Journal
from jobs.adapters.checkpoint.pins import Pin, Pins
from jobs.adapters.checkpoint.reports import Report, Reports, Rows
from jobs.adapters.checkpoint.state import CarriedState
from jobs.adapters.planning import formats
from jobs.adapters.planning.plans import Plans
from jobs.adapters.planning.stream_plan import StreamPlan
from jobs.adapters.planning.versions import FRESH, BatchVersions
from jobs.adapters.stream.admission import Admission, RunningQuery
from jobs.adapters.stream.input import EventInput, fetch_of, fetched
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.stream.metrics import StreamMetrics
from jobs.adapters.stream.report import BatchReport, Reach
from jobs.adapters.tables.tables import DELIVERIES, LEDGER, PUBLICATIONS, Tables
from jobs.adapters.wire import open_sink, sink_options
from udfs.columns import REPORT, deliver
from udfs.delivery.plan import Compilation
from udfs.errors import StackcastError, TableError

log = logging.getLogger(__name__)

#: Between two looks at the tables beside batches, where a look takes microseconds.
FOLLOW_SECONDS = 0.1
#: On other storage a look is some requests to it.
FOLLOW_SECONDS_ELSEWHERE = 0.5


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
        metrics: StreamMetrics | None = None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._tables = tables
        self._topics = topics
        self._metrics = metrics or StreamMetrics()
        self._versions = BatchVersions(tables, settings.topic, formats.sources(settings))
        self._pins = Pins(spark, settings.checkpoint)
        self._state = CarriedState(spark, settings.checkpoint)
        self._reports = Reports(spark, settings.checkpoint)
        self._journal = Journal(
            self._reports,
            tables,
            seconds_of(settings.ledger_interval),
            self._metrics.journal,
        )
        self._shaping = shaping(settings)
        self._live = StreamPlan(
            spark, tables, settings.publisher, Plans(settings, tables), self._metrics
        )
        self._input = EventInput(settings, tables)
        self._fetch = fetch_of(settings)
        most = settings.max_offsets_per_trigger, settings.max_bytes_per_trigger
        self.admission = Admission(*most, topics.usual_record())
        self._open_sink = partial(open_sink, sink_options(settings))
        self._running: RunningQuery | None = None
        self._compilation: Compilation | None = None
        self._broadcast: Any = None
        self._reach: tuple[Compilation, Reach] | None = None
        self._refused: dict[str, int] | None = None
        self.processed: dict[int, int] = {}
        #: By partition, the offset at which the next summaries begin; None before the first batch.
        self._since: dict[int, int] | None = None
        #: What ends with the delivery, whatever else does.
        self.ending = ExitStack()
        self._looks = BatchVersions(tables, settings.topic, formats.sources(settings))
        # Plans are made by one at a time: by a batch, or between two.
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._following = threading.Thread(target=self._follow, name="plans", daemon=True)

    def process(self, records: DataFrame, batch_id: int) -> None:
        """Deliver one micro-batch: columns partition, offset, value, and perhaps timestamp.

        Where rules keep state and Spark has cut a partition in two, this is found (StreamError
        PARTITION_SPLIT) when the tasks report, after their frames have left, and each further try
        sends again. It cannot be told before: no task knows of another, offsets of a partition may
        have gaps, and the number of tasks says nothing where some partitions are idle. No setting
        leads there: only options of the source do, and `Topics.stream` sets none of these.
        """
        try:
            with self._metrics.batch(batch_id), self._turn:
                self._process(records, batch_id)
        except Exception as error:
            used = self._compilation
            versions = "no plan" if used is None else named(used.versions)
            log.error("batch %d failed, with %s: %s", batch_id, versions, one_line(error))
            raise

    def _process(self, records: DataFrame, batch_id: int) -> None:
        started = dt.datetime.now(dt.UTC)
        clock = time.monotonic()
        stage = self._metrics.stage
        with stage("room"):
            self._journal.wait_for_capacity()
        records = self._input.prepare(records)
        compilation = self._with_known(self._plan_for(batch_id, records))
        state = compilation.plan.state
        with stage("state"):
            carried = {} if state is None else self._state.before(batch_id)
        records, source = fetched(records, self._fetch)
        run = deliver(
            self._broadcast,
            self._live.stacks(compilation),
            self._settings.topic,
            self._open_sink,
            self._settings.dead_letter_samples,
            carried,
            self._since,
            source,
        )
        with stage("deliver"):
            rows = records.mapInArrow(run, REPORT).toArrow()
        with stage("report"):
            report = BatchReport(rows, self._reach_of(compilation))
            self._metrics.delivered(report, compilation.versions)
        if state is not None:
            with stage("state"):
                self._state.after(batch_id, carried, report.states, state.identities)
        seconds = time.monotonic() - clock
        with stage("dead_letters"):
            self._write_dead_letters(batch_id, compilation, report)
        with stage("journal"):
            self._journal.put(self._report(batch_id, compilation, report, started, seconds))
        self.processed |= _ends(report.partitions)
        self._since = (self._since or {}) | _ends(report.partitions)
        self._metrics.processed(self.processed)
        self._tell_spark(report.total("packets"), report.total("read_bytes"))
        log.info(
            "batch %d: %d packets, %d messages, %d matched, %d frames, %d dead letters "
            "in %.2f s; %s; offsets %s",
            batch_id,
            report.total("packets"),
            report.total("messages"),
            report.total("matched"),
            report.total("frames"),
            report.dead_letters,
            seconds,
            named(compilation.versions),
            ", ".join(
                f"{p['partition']}: {p['from_offset']} to {p['until_offset']}"
                for p in report.partitions
            ),
        )

    def _tell_spark(self, records: int, size: int) -> None:
        """Tells what only the tasks know of a batch, which bounds the next; size: bytes."""
        if self._running is None:
            self._running = RunningQuery(self._spark, self._query)
        if self._fetch is not None:
            self._running.count(records)
        if self.admission.seen(records, size):
            self._running.limit_next(self.admission.records)

    def prepare(self) -> None:
        """Make a plan now, so that the first batch does not wait.

        Where the current tables cannot be used, that of the last batch on record stays live.
        """
        self._journal.recover()
        last = self._pins.newest()
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
                    log.warning("edits could not be taken up between batches: %s", said)

    def _look(self) -> None:
        """Notes since when newer tables wait, and takes them up unless a batch runs, which takes up
        edits as it begins."""
        versions = self._looks.poll()
        if self._known(versions):
            self._metrics.pending(None)
            return
        self._metrics.pending(time.monotonic())
        if self._turn.acquire(blocking=False):
            try:
                # A batch may have ended since that took up newer ones.
                versions = self._looks.poll()
                if not self._known(versions):
                    self._take_up(versions)
            finally:
                self._turn.release()
            self._metrics.pending(None)

    def _known(self, versions: dict[str, int]) -> bool:
        """Tells whether these versions are in use, or cannot be used."""
        used = None if self._compilation is None else self._compilation.versions
        return versions in (used, self._refused)

    def close(self) -> None:
        """Wait for tables that are still being written."""
        self._closing.set()
        if self._following.is_alive():
            self._following.join()
        with self.ending:
            self._journal.close()
            self._versions.close()
            self._live.close()

    def _plan_for(self, batch_id: int, records: DataFrame) -> Compilation:
        """The plan of a batch: of its earlier try if there was one, else of the current tables."""
        pinned = self._pins.get(batch_id) if self._since is None else None
        if pinned is not None:
            self._since = pinned.since
            log.warning(
                "batch %d runs again, with the versions of its first try: %s",
                batch_id,
                named(pinned.versions),
            )
            self._metrics.ran_again()
            other = changed(pinned.settings, self._shaping)
            if other:
                log.warning(
                    "batch %d ran with other settings the first time, %s: its bytes differ from "
                    "those that may have left then; %s",
                    batch_id,
                    ", ".join(f"{key} {value}" for key, value in sorted(other.items())),
                    named(pinned.versions),
                )
            with self._metrics.stage("plan"):
                try:
                    return self._plan_at(pinned.versions)
                except TableError as error:
                    raise self._pins.useless(batch_id, error) from error
        with self._metrics.stage("input"):
            self._input.register_new(records, batch_id)
        with self._metrics.stage("versions"):
            versions = self._versions.current()
        compilation = self._take_up(versions)
        with self._metrics.stage("pin"):
            if self._since is None:
                self._since = self._ends_before(batch_id)
            pin = Pin(dict(compilation.versions), self._shaping, self._since)
            self._pins.put(batch_id, pin)
        return compilation

    def _take_up(self, versions: dict[str, int]) -> Compilation:
        """Returns the plan of these versions, or the last good one where they cannot be used."""
        compilation = self._compilation
        if compilation is None or versions != self._refused:
            try:
                with self._metrics.stage("plan"):
                    compilation = self._plan_at(versions)
                self._metrics.refused(None)
            except StackcastError as error:
                if compilation is None:
                    raise
                self._refuse(versions, error)
        return compilation

    def _ends_before(self, batch_id: int) -> dict[int, int]:
        """By partition, where the last summaries before the first batch of this run ended.

        Offsets may have gaps there, by transactions and compaction: the ranges that hosts are told
        go on without a hole all the same.
        """
        last = self._pins.newest()
        if last is None:
            return {}
        number, pin = last
        partitions = self._reports.partitions(number)
        if partitions is None:
            rows = self._tables.rows(LEDGER, since={"batch_id": number})
            mine = [
                row
                for row in rows
                if row["batch_id"] == number and row["topic"] == self._settings.topic
            ]
            newest = max(mine, key=lambda row: row["started_at"], default=None)
            partitions = [] if newest is None else newest["partitions"]
        return pin.since | _ends(partitions)

    def _refuse(self, versions: dict[str, int], error: StackcastError) -> None:
        """The last good version stays live; the bad one is not tried again."""
        used = {} if self._compilation is None else self._compilation.versions
        changed = {name: v for name, v in versions.items() if used.get(name) != v}
        log.error(
            "the changed tables %s cannot be used, the last good ones stay live, %s: %s",
            named(changed),
            named(used),
            error,
        )
        self._refused = versions
        self._metrics.refused(versions)

    def _plan_at(self, versions: Mapping[str, int]) -> Compilation:
        if self._compilation is not None and self._compilation.versions == versions:
            return self._compilation
        compilation = self._live.make(versions)
        self._use(compilation)
        return compilation

    def _use(self, compilation: Compilation) -> None:
        previous = self._broadcast
        self._broadcast = self._spark.sparkContext.broadcast(compilation.plan)
        self._compilation = compilation
        if previous is not None:
            # No task of an earlier batch is left; unpersist alone would leave its file.
            previous.destroy()

    def _reach_of(self, compilation: Compilation) -> Reach:
        if self._reach is None or self._reach[0] is not compilation:
            self._reach = compilation, Reach(compilation.reached)
        return self._reach[1]

    def _with_known(self, compilation: Compilation) -> Compilation:
        known = self._live.with_known(compilation)
        if known is not compilation:
            self._use(known)
        return known

    def _write_dead_letters(
        self, batch_id: int, compilation: Compilation, report: BatchReport
    ) -> None:
        if not report.dead_letters:
            return
        log.warning(
            "batch %d: dead letters by reason: %s; %s",
            batch_id,
            dict(report.reasons),
            named(compilation.versions),
        )
        try:
            self._topics.write_dead_letters(report.letters)
        except SQL_ERRORS as error:
            # Counted in ledger and log all the same; the stream must not stand still for samples.
            log.error(
                "batch %d: %d samples could not be written to topic %s: %s",
                batch_id,
                len(report.letters),
                self._settings.dead_letter_topic,
                one_line(error),
            )

    def _report(
        self,
        batch_id: int,
        compilation: Compilation,
        report: BatchReport,
        started: dt.datetime,
        seconds: float,
    ) -> Report:
        """Makes the rows that ledger and statistics get of a batch."""
        ledger = {
            "topic": self._settings.topic,
            "versions": dict(compilation.versions),
            "packets": report.total("packets"),
            "messages": report.total("messages"),
            "matched": report.total("matched"),
            "frames": report.total("frames"),
            "bytes": report.total("bytes"),
            "dead_letters": report.dead_letters,
            "started_at": started,
            "seconds": seconds,
            "settings": self._shaping,
        }
        sent = {"publisher": self._settings.publisher, "recorded_at": dt.datetime.now(dt.UTC)}
        batch = {"batch_id": batch_id}
        subscribers, publications = report.subscriber_columns, report.publication_columns
        tables = {
            DELIVERIES: Rows(len(subscribers["subscriber"]), batch | sent, subscribers),
            PUBLICATIONS: Rows(len(publications["receivers"]), batch | sent, publications),
            LEDGER: Rows(1, batch | ledger, {"partitions": [report.partitions]}),
        }
        return Report(f"stackcast-{self._query}", batch_id, tables)

    @property
    def _query(self) -> str:
        """The id of the query, which is kept in its checkpoint: a new one counts batches anew."""
        return str(self._spark.sparkContext.getLocalProperty("sql.streaming.queryId"))


def _ends(partitions: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """By partition, the offset after the last record that a batch read."""
    return {p["partition"]: p["until_offset"] for p in partitions}
