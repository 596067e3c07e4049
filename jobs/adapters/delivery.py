"""One micro-batch of the main job: pin versions, plan, deliver, record.

The frames leave inside the one ``mapInArrow`` pass of `udfs.columns.deliver`; this module decides
with which tables, and writes down what happened.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from jobs.adapters import formats
from jobs.adapters.batch_report import BatchReport
from jobs.adapters.batch_versions import BatchVersions
from jobs.adapters.event_input import EventInput
from jobs.adapters.header_stacks import StackJobs
from jobs.adapters.kafka import Topics
from jobs.adapters.logs import named
from jobs.adapters.matches import match_rows
from jobs.adapters.metrics import StreamMetrics
from jobs.adapters.pins import Pins
from jobs.adapters.plans import Plans
from jobs.adapters.settings import Settings
from jobs.adapters.sql_errors import SQL_ERRORS, one_line
from jobs.adapters.state import CarriedState
from jobs.adapters.tables import Tables
from jobs.adapters.wire import SinkOptions, open_sink
from jobs.adapters.wire.options import Kind
from jobs.adapters.wire.udp import parse_endpoint
from udfs.columns import REPORT, deliver
from udfs.errors import SettingsError, SinkError, StackcastError
from udfs.filters.subscriptions import Subscription
from udfs.plan import Compilation
from udfs.trees.network import Network

log = logging.getLogger(__name__)

PUBLICATIONS = "publication_statistics"
MATCHES = "matches"


class Delivery:
    """The state of a running stream: current plan, and where it writes.

    ``process`` is the function for ``foreachBatch``. ``processed`` holds, by partition, the offset
    after the last record whose frames were handed over. Call `close` at the end: it waits for what
    is still being written beside the stream.
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
        self._no_matches = False
        self._plans = Plans(settings, tables)
        self._input = EventInput(settings, tables)
        self._open_sink = partial(open_sink, sink_options(settings))
        self._compilation: Compilation | None = None
        self._broadcast: Any = None
        # Tables that explain a plan are written beside the stream, in order: by one thread.
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan-tables")
        self._stacks = StackJobs(spark, tables, settings.publisher)
        self._ledger = ThreadPoolExecutor(max_workers=3, thread_name_prefix="ledger")
        self._refused: dict[str, int] | None = None
        self.processed: dict[int, int] = {}
        #: What ends with the delivery, whatever else does.
        self.ending = ExitStack()

    def process(self, records: DataFrame, batch_id: int) -> None:
        """Deliver one micro-batch: columns partition, offset, value, and perhaps timestamp.

        Where rules keep state and Spark has cut a partition in two, this is found (StreamError
        PARTITION_SPLIT) when the tasks report, after their frames have left, and each further try
        sends again. It cannot be told before: no task knows of another, offsets of a partition may
        have gaps, and the number of tasks says nothing where some partitions are idle. No setting
        leads there: only options of the source do, and `Topics.stream` sets none of these.
        """
        try:
            with self._metrics.batch(batch_id):
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
        records = self._input.prepare(records)
        compilation = self._with_known(self._plan_for(batch_id, records))
        state = compilation.plan.state
        with stage("state"):
            carried = {} if state is None else self._state.before(batch_id)
        run = deliver(
            self._broadcast,
            self._stacks.handle(compilation),
            self._settings.topic,
            self._open_sink,
            self._settings.dead_letter_samples,
            carried,
            dict(self.processed),
        )
        with stage("deliver"):
            rows = records.mapInArrow(run, REPORT).toArrow().to_pylist()
        with stage("report"):
            report = BatchReport(rows, compilation.reached)
            self._metrics.delivered(report, compilation.versions)
        if state is not None:
            with stage("state"):
                self._state.after(batch_id, carried, report.states, state.identities)
        seconds = time.monotonic() - clock
        with stage("dead_letters"):
            self._bury(batch_id, compilation, report)
        with stage("record"):
            self._record(batch_id, compilation, report, started, seconds)
        for p in report.partitions:
            self.processed[p["partition"]] = p["until_offset"]
        self._metrics.processed(self.processed)
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

    def prepare(self) -> None:
        """Make a plan now, so that the first batch does not wait.

        Where the current tables cannot be used, that of the last batch on record stays live.
        """
        # Deployments from before it had one are told now, and not by their first batch.
        self._tables.version(PUBLICATIONS)
        last = self._pins.newest()
        versions = self._versions.current()
        # Before its first batch, nobody knows of the stream.
        announced = None if last else self._ledger.submit(self._versions.announce, versions)
        try:
            self._plan_at(versions)
        except StackcastError as error:
            if last is None:
                raise
            self._plan_at(last)
            self._refuse(versions, error)
        if announced is not None:
            announced.result()

    def close(self) -> None:
        """Wait for tables that are still being written."""
        with self.ending:
            self._stacks.close()
            self._beside.shutdown(wait=True)
            self._ledger.shutdown(wait=True)

    def _plan_for(self, batch_id: int, records: DataFrame) -> Compilation:
        """The plan of a batch: of its earlier try if there was one, else of the current tables."""
        pinned = self._pins.get(batch_id) if self._first_of_run() else None
        if pinned is not None:
            log.warning(
                "batch %d runs again, with the versions of its first try: %s",
                batch_id,
                named(pinned),
            )
            self._metrics.ran_again()
            with self._metrics.stage("plan"):
                return self._plan_at(pinned)
        with self._metrics.stage("input"):
            self._input.register_new(records)
        with self._metrics.stage("versions"):
            versions = self._versions.current()
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
        with self._metrics.stage("pin"):
            self._pins.put(batch_id, dict(compilation.versions))
        return compilation

    def _refuse(self, versions: dict[str, int], error: StackcastError) -> None:
        """The last good version stays live (design, section 5); the bad one is not tried again."""
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

    def _first_of_run(self) -> bool:
        return not self.processed

    def _plan_at(self, versions: Mapping[str, int]) -> Compilation:
        if self._compilation is not None and self._compilation.versions == versions:
            return self._compilation
        clock = time.monotonic()
        compilation, subscriptions, network = self._plans.at(versions)
        self._use(compilation)
        seconds = time.monotonic() - clock
        self._metrics.planned(compilation, seconds)
        for rejection in compilation.rejections:
            log.warning(
                "subscriptions@%d: rule %s is not live: %s %s",
                versions["subscriptions"],
                rejection.id,
                rejection.code,
                rejection.message,
            )
        log.info(
            "plan of %s: %d rules, %d rejected, %d entries, %d leaves, "
            "%d receiver sets to work out, in %.2f s",
            named(versions),
            len(compilation.rules),
            len(compilation.rejections),
            len(compilation.compiled.entries),
            len(compilation.receivers),
            len(compilation.receiver_sets) - compilation.shipped,
            seconds,
        )
        self._stacks.submit(compilation)
        self._beside.submit(self._write_plan, compilation)
        self._beside.submit(self._write_matches, compilation, subscriptions, network)
        return compilation

    def _use(self, compilation: Compilation) -> None:
        previous = self._broadcast
        self._broadcast = self._spark.sparkContext.broadcast(compilation.plan)
        self._compilation = compilation
        if previous is not None:
            previous.unpersist()

    def _with_known(self, compilation: Compilation) -> Compilation:
        """The plan with the stacks that were worked out since it was made, if that is worth it.

        It is sent anew when all are known, and on the way there as often as they have doubled.
        """
        shipped, sets = compilation.shipped, len(compilation.receiver_sets)
        if shipped == sets:
            self._metrics.stacks_unknown(0)
            return compilation
        known = sets - len(compilation.unknown())
        self._metrics.stacks_unknown(sets - known)
        if known < sets and known < 2 * shipped:
            return compilation
        compilation = compilation.with_known()
        self._use(compilation)
        return compilation

    def _write_plan(self, compilation: Compilation) -> None:
        entries, leaves = compilation.filter_rows()
        for name, rows in (
            ("rejected_subscriptions", compilation.rejection_rows()),
            ("filter_entries", entries),
            ("filter_leaves", leaves),
        ):
            try:
                self._tables.overwrite(name, rows)
            except SQL_ERRORS as error:
                # They explain a plan and do not make it: the next plan writes them anew.
                log.error(
                    "table %s could not be written for the plan of %s: %s",
                    name,
                    named(compilation.versions),
                    one_line(error),
                )

    def _write_matches(
        self, compilation: Compilation, subscriptions: Sequence[Subscription], network: Network
    ) -> None:
        """How subscribers stand to what is advertised; nothing of the stream depends on it."""
        if not compilation.announced and self._no_matches:
            return
        try:
            rows = match_rows(compilation, subscriptions, network, self._settings.publisher)
            if rows or self._tables.rows(MATCHES):
                self._tables.overwrite(MATCHES, rows)
            self._no_matches = not rows
        except (*SQL_ERRORS, StackcastError) as error:
            log.error(
                "table %s could not be written for the plan of %s: %s",
                MATCHES,
                named(compilation.versions),
                one_line(error),
            )
            return
        lost = [row["subscriber"] for row in rows if row["match"] == "none"]
        if lost:
            log.warning(
                "with %s, %d hosts subscribe to nothing that %s advertises, the first: %s",
                named(compilation.versions),
                len(lost),
                self._settings.publisher,
                ", ".join(lost[:10]),
            )

    def _bury(self, batch_id: int, compilation: Compilation, report: BatchReport) -> None:
        if not report.dead_letters:
            return
        log.warning(
            "batch %d: dead letters by reason: %s; %s",
            batch_id,
            dict(report.reasons),
            named(compilation.versions),
        )
        try:
            self._topics.bury(report.letters)
        except SQL_ERRORS as error:
            # Counted in ledger and log all the same; the stream must not stand still for samples.
            log.error(
                "batch %d: %d samples could not be written to topic %s: %s",
                batch_id,
                len(report.letters),
                self._settings.dead_letter_topic,
                one_line(error),
            )

    def _record(
        self,
        batch_id: int,
        compilation: Compilation,
        report: BatchReport,
        started: dt.datetime,
        seconds: float,
    ) -> None:
        """Write ledger and statistics, side by side; both are done when this returns."""
        # The id of a query is kept in its checkpoint, so a new checkpoint counts batches anew.
        query = self._spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        transaction = (f"stackcast-{query}", batch_id)
        ended = dt.datetime.now(dt.UTC)
        ledger = {
            "batch_id": batch_id,
            "topic": self._settings.topic,
            "partitions": report.partitions,
            "versions": dict(compilation.versions),
            "packets": report.total("packets"),
            "messages": report.total("messages"),
            "matched": report.total("matched"),
            "frames": report.total("frames"),
            "bytes": report.total("bytes"),
            "dead_letters": report.dead_letters,
            "started_at": started,
            "seconds": seconds,
        }
        of_batch = {
            "batch_id": batch_id,
            "publisher": self._settings.publisher,
            "recorded_at": ended,
        }
        rows_of = {
            "delivery_statistics": [
                {"subscriber": subscriber, **of_batch, **counts}
                for subscriber, counts in report.by_subscriber().items()
            ],
            PUBLICATIONS: [of_batch | row for row in report.publications()],
            "egress_ledger": [ledger],
        }
        written = [
            self._ledger.submit(self._tables.append, name, rows, transaction)
            for name, rows in rows_of.items()
        ]
        for future in written:
            future.result()


def sink_options(settings: Settings) -> SinkOptions:
    """The sink of the settings. Raises SettingsError BAD_VALUE where what it needs is missing."""
    needed = {
        "udp": ("sink.udp.endpoint", settings.udp_endpoint),
        "af_packet": ("sink.af_packet.interface", settings.interface),
        "pcap": ("sink.pcap.path", settings.pcap_path),
    }
    key, value = needed[settings.sink]
    if not value:
        raise SettingsError(
            "BAD_VALUE", f"spark.stackcast.{key} is empty, but the sink {settings.sink} needs it"
        )
    if settings.sink == "udp":
        try:
            parse_endpoint(value)
        except SinkError as error:
            raise SettingsError("BAD_VALUE", f"spark.stackcast.{key}: {error.message}") from error
    return SinkOptions(
        kind=cast(Kind, settings.sink),
        endpoint=settings.udp_endpoint,
        window=settings.udp_window,
        interface=settings.interface,
        path=settings.pcap_path,
    )
