"""One subscription over the past of the topic: delivered the ordinary way, from records on."""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.planning.plans import Planned, Plans
from stackcast.jobs.adapters.planning.versions import BatchVersions
from stackcast.jobs.adapters.replay.ledger import SentLedger
from stackcast.jobs.adapters.replay.live_offsets import LiveOffsets
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.stream.report import BatchReport
from stackcast.jobs.adapters.stream.spark_input import ByConnector
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.jobs.adapters.tables.tables import INGRESSES, LIVE, SENIORITY, SUBSCRIPTIONS
from stackcast.jobs.adapters.wire import Opener, SinkOptions, sink_options
from stackcast.udfs.delivery.deliver import REPORT, deliver
from stackcast.udfs.delivery.partition_states import needs_arrival
from stackcast.udfs.errors import ReplayError
from stackcast.udfs.filters.subscriptions import Rejection, Subscription, live_rows
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.stop_request import StopRequest

log = logging.getLogger(__name__)

Bound = int | dt.datetime | None
"""An offset of every partition, or a time of records in Kafka."""

_COUNTED = ("packets", "messages", "matched", "frames")


class LiveSince(NamedTuple):
    """Since when the stream delivers by a rule.

    Attributes:
        version: version of table ``subscriptions``.
        offsets: first offset that was delivered by the rule, by partition.
    """

    version: int = 0
    offsets: Mapping[int, int] = {}


class History:
    """Delivers what one subscription matches in records that are in the topic already.

    name: its id. Its rule, the network and the trees are as they are now. Sequence numbers follow
    from offsets, so they are those of then. A rule with state begins without any.
    """

    def __init__(
        self, spark: SparkSession, settings: Settings, tables: SparkTables, name: str
    ) -> None:
        # Summaries tell what a host should have of the stream, and this is beside it.
        self._settings = dataclasses.replace(settings, summary_port=0)
        self._engine = SparkEngine(spark)
        self._tables = tables
        self._name = name
        self._topics = Topics(spark, settings)
        sources = (*formats.sources(settings), INGRESSES)
        self._versions = BatchVersions(tables, settings.topic, sources)
        _, topic_id = self._topics.ask(self._topics.identity)
        ledger = SentLedger(tables, settings.topic)
        ledger.refresh()
        self._topic = Topic(settings.topic, topic_id)
        self._ledger: SentLedger | None = None
        if ledger.topic is not None and ledger.topic.id == topic_id:
            self._topic, self._ledger = ledger.topic, ledger
        self._sink = sink_options(settings)
        self._plans = _Alone(self._settings, tables, name, self._sink)
        self._live = LiveSince()

    def spans(self, begin: Bound, until: Bound) -> dict[int, tuple[int, int]]:
        """Returns by partition the offsets to deliver, where there are any.

        begin: None for all that is there. until: None for where the running stream took the
        subscription up, or, where no batch on record did, the end of the topic: some of that the
        stream may deliver, too.
        Raises ReplayError RECORDS_GONE, LOG_TRUNCATED, and as `Topics.end_offsets`.
        """
        self._check_log()
        there = self._topics.spans()
        first = {p: start for p, (start, _) in there.items()}
        end = {p: end for p, (_, end) in there.items()}
        begins = first | self._offsets(begin)
        for partition, start in first.items():
            if begins[partition] < start:
                raise ReplayError(
                    "RECORDS_GONE",
                    f"partition {partition} of topic {self._settings.topic} no longer contains "
                    f"offset {begins[partition]}; its first offset is {start}: begin there, and "
                    "keep records longer with retention.ms and retention.bytes",
                )
        self._live = self._live_since() if until is None else LiveSince()
        stop = self._live.offsets if until is None else self._offsets(until)
        return {
            p: (begins[p], min(stop.get(p, end[p]), end[p]))
            for p in sorted(there)
            if begins[p] < min(stop.get(p, end[p]), end[p])
        }

    def why_nothing(self) -> str:
        """Return a sentence on why the last call of `spans` has returned no offsets."""
        if not self._live.offsets:
            topic = self._settings.topic
            return f"nothing to deliver: topic {topic} has no records in this range"
        places = ", ".join(
            f"partition {partition} from offset {offset}"
            for partition, offset in sorted(self._live.offsets.items())
        )
        return (
            f"nothing to deliver: subscription {self._name} has been live since version "
            f"{self._live.version} of subscriptions, and the stream has delivered its matches "
            f"since then ({places}); to deliver these records again, set --until OFFSET|TIME"
        )

    def deliver(self, spans: Mapping[int, tuple[int, int]], stopping: StopRequest) -> Counter[str]:
        """Sends what the subscription matches in these offsets, in their order, to the sink.

        Returns how many packets, messages, matched messages, frames and dead letters there were.
        Ends early where ``stopping`` is set. Raises ReplayError NO_SUBSCRIPTION, NOT_LIVE; what
        `Plans.at` raises; Spark's errors.
        """
        sums: Counter[str] = Counter()
        carried: dict[int, bytes] = {}
        versions = self._versions.poll()
        pinned = {name: versions[name] for name in (SUBSCRIPTIONS, SENIORITY)}
        planned = self._planned(versions)
        used: dict[str, int] = {}
        left = dict(spans)
        while left and not stopping.is_set():
            # Stacks name what switches hold now.
            versions = self._versions.poll() | pinned
            if versions != used:
                used, planned = versions, self._planned(versions)
                plan = self._engine.broadcast(planned.compilation.plan)
                stacks = self._engine.broadcast(planned.compilation.header_stacks)
                timestamps = needs_arrival(planned.compilation.plan.specification)
            self._check_log()
            topic, some = self._next(left)
            records = ByConnector(self._topics.read_spans(some, timestamps))
            sink = Opener(self._sink)
            task = partial(deliver, plan, stacks, topic, sink, 0, carried, None, freeze=True)
            report = BatchReport(records.through(task, REPORT), planned.compilation.reached)
            carried |= {row["partition"]: row["cells"] for row in report.states}
            sums.update({name: report.total(name) for name in _COUNTED})
            sums["dead_letters"] += report.dead_letters
            done = {p: end for p, (_, end) in some.items()}
            left = {p: (done.get(p, start), end) for p, (start, end) in left.items()}
            left = {p: span for p, span in left.items() if span[0] < span[1]}
            log.info(
                "subscription %s, offsets %s: %s",
                self._name,
                ", ".join(f"{p}: {start} to {end}" for p, (start, end) in some.items()),
                ", ".join(f"{count} {name}" for name, count in sums.items()),
            )
        return sums

    def _check_log(self) -> None:
        """Raises ReplayError LOG_TRUNCATED if the log differs from what batches have read."""
        read = {} if self._ledger is None else self._ledger.read
        if truncated := self._topics.truncated(read):
            where = ", ".join(f"partition {p} at offset {end}" for p, end in truncated.items())
            raise ReplayError(
                "LOG_TRUNCATED",
                f"Kafka truncated topic {self._settings.topic} ({where}), so the same offsets "
                "may be other records: start the stream first, and follow its error message",
            )

    def _next(
        self, left: Mapping[int, tuple[int, int]]
    ) -> tuple[Topic, dict[int, tuple[int, int]]]:
        """Returns the first offsets of those that are left, and the generation that sent them."""
        most = max(1, self._settings.max_offsets_per_trigger // len(left))
        found: dict[Topic, dict[int, tuple[int, int]]] = {}
        for partition, (start, end) in left.items():
            topic, until = self._topic, None
            if self._ledger is not None:
                topic, until = self._ledger.generation_at(partition, start)
            last = min(start + most, end if until is None else min(until, end))
            found.setdefault(topic, {})[partition] = start, last
        first = min(found, key=lambda topic: topic.generation)
        return first, found[first]

    def _planned(self, versions: Mapping[str, int]) -> Planned:
        planned = self._plans.at(versions)
        rejections = planned.compilation.rejections
        if live_rows(planned.subscriptions, rejections):
            return planned
        for rejection in rejections:
            if rejection.id == self._name and rejection.subscriber is not None:
                raise ReplayError(
                    "NOT_LIVE",
                    f"subscription {self._name} is not live: {rejection.code}: {rejection.message}",
                )
        raise ReplayError(
            "NO_SUBSCRIPTION",
            f"there is no enabled subscription {self._name!r} of format {self._settings.format} "
            f"in {named({'subscriptions': versions['subscriptions']})}",
        )

    def _offsets(self, bound: Bound) -> dict[int, int]:
        if isinstance(bound, dt.datetime):
            return self._topics.offsets_at(bound)
        return {} if bound is None else dict.fromkeys(self._topics.end_offsets(), bound)

    def _live_since(self) -> LiveSince:
        """Returns since when the stream itself delivers by the rule, if that is on record."""
        rows = self._tables.rows("subscriptions")
        asked = {(r["subscriber"], r["filter"]) for r in rows if r["id"] == self._name}
        for row in self._tables.rows(LIVE):
            if row["id"] == self._name and (row["subscriber"], row["filter"]) in asked:
                version = row["since_version"]
                offsets = LiveOffsets.of_ledger(self._tables, self._topic)
                since = offsets.since([version])
                first = {p: int(at[0]) for p, at in since.items() if at[0] < offsets.end[p]}
                return LiveSince(version, first)
        return LiveSince()


class _Alone(Plans):
    """Plans of one subscription."""

    def __init__(
        self, settings: Settings, tables: SparkTables, name: str, sink: SinkOptions
    ) -> None:
        super().__init__(settings, tables, sink=sink)
        self._name = name

    def _subscriptions(
        self, versions: Mapping[str, int]
    ) -> tuple[list[Subscription], list[Rejection]]:
        rows, rejected = super()._subscriptions(versions)
        return [row for row in rows if row.id == self._name], [
            rejection for rejection in rejected if rejection.id == self._name
        ]
