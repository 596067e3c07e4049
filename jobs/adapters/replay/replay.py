"""Notifications computed again, from Kafka's offsets and the tables as the ledger names them.

The work is the stream's own: the plan of the same versions, the same state, the same code on the
executors. What it takes is read again, and may be gone: then ReplayError says which of it.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from stackcast.jobs.adapters.app.error_texts import gone_for_good
from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
from stackcast.jobs.adapters.checkpoint.identity import SPECIFICATION, specification_digest
from stackcast.jobs.adapters.checkpoint.state import CarriedState
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning.plans import Planned, Plans
from stackcast.jobs.adapters.replay.ledger import SentLedger
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.delivery.partition_states import needs_arrival
from stackcast.udfs.errors import ReplayError, StackcastError, StreamError
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.network.ingresses import NO_INGRESSES, Ingresses
from stackcast.udfs.replay.notifications import SCHEMA, Notifications, Records, collect, recompute
from stackcast.udfs.replay.sent_ranges import OffsetRange, SentRange
from stackcast.udfs.trees.header_stacks import HeaderStacks

log = logging.getLogger(__name__)

#: Offsets that are computed in one go, at most, where no state makes a batch one piece.
MOST_OFFSETS = 32_768
#: Plans that are kept, and settings for which parts of plans are.
_MOST_PLANS = 8
_MOST_SETTINGS = 2


@dataclass(frozen=True)
class Prepared:
    """Things that batches of one origin are computed with. plan, header_stacks: broadcast."""

    settings: Settings
    planned: Planned
    plan: Any
    header_stacks: Any
    timestamps: bool

    @property
    def stateful(self) -> bool:
        """True where rules keep state, so that a batch is computed from its first record on."""
        return self.planned.compilation.plan.state is not None


@dataclass(frozen=True)
class Run:
    """One offset range that is ready to be computed. topic: whose sessions it has. begin: the
    offset to read from. read: the furthest offset up to which batches have read the partition, and
    the epoch of the leader from which they did. changed: by partition that Kafka has truncated, the
    offset from which on its log has changed; gets those that are found."""

    span: OffsetRange
    topic: Topic
    begin: int
    prepared: Prepared
    carried: Mapping[int, bytes]
    read: tuple[int, int]
    changed: dict[int, int]


class Replay:
    """Computes offset ranges of what one stream has sent. All but `run` is for one thread.

    by_ingress: whether whole frames are asked for, which begin where they entered the network.
    """

    def __init__(
        self, spark: SparkSession, settings: Settings, tables: Tables, by_ingress: bool = False
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._tables = tables
        self._engine = SparkEngine(spark)
        self._topics = Topics(spark, settings)
        self._state = CarriedState(open_folder(spark, settings.checkpoint))
        self._plans: list[tuple[tuple[Settings, str], Plans]] = []
        self._stacks: list[tuple[HeaderStacks, Any]] = []
        self._prepared: OrderedDict[tuple[Any, ...], Prepared] = OrderedDict()
        #: Tag of the Spark jobs of its runs.
        self._tag = f"replay-{uuid.uuid4().hex}"
        self._topic: Topic | None = None
        self._earliest: dict[int, int] = {}
        #: By partition that Kafka has truncated, the offset from which on its log has changed.
        self._changed: dict[int, int] = {}
        self.ledger = SentLedger(tables, settings.topic, by_ingress)

    def prepare(self, partition: int, offset: int) -> Run:
        """Make ready to compute an offset that a batch read, and what stands around it.

        Raises ReplayError VERSIONS_GONE, STATE_GONE, RECORDS_GONE, LOG_TRUNCATED,
        OTHER_SPECIFICATION, with field ``until``, the offset up to which that holds; and what
        `Plans.at` raises.
        """
        ranges = self.ledger.ranges
        found = ranges.at(partition, offset)
        assert isinstance(found, SentRange)
        if self._topic != self.ledger.topic:
            self._topic, self._earliest, self._changed = self.ledger.topic, {}, {}
        topic = self.ledger.origins[found.origin].topic
        read = self.ledger.read[partition]
        changed = self._changed.get(partition, read[0])
        if changed <= offset < read[0]:
            raise self._log_truncated(partition, changed, read[0])
        try:
            prepared = self._prepare(found.origin)
        except ReplayError as error:
            error.fields["until"] = ranges.range_at(partition, offset, 1, True).until
            raise
        span = ranges.range_at(partition, offset, MOST_OFFSETS, prepared.stateful)
        if offset < changed:
            span = span._replace(until=min(span.until, changed))
        earliest = self._earliest.get(partition, 0)
        if not prepared.stateful:
            begin = max(span.from_, min(earliest, offset))
            return Run(span._replace(from_=begin), topic, begin, prepared, {}, read, self._changed)
        begin = span.ranges[0].begin
        if begin < earliest:
            there = self._topics.spans().get(partition, (earliest, earliest))
            until = span.ranges[0].until
            raise records_gone(self._settings.topic, partition, begin, until, there)
        carried = self._carried(span)
        return Run(span, topic, begin, prepared, carried, read, self._changed)

    def run(
        self,
        run: Run,
        hosts: frozenset[str] | None,
        only: tuple[int, int] | None = None,
        whole: bool = False,
    ) -> Notifications:
        """Computes an offset range for some hosts, None: for all. For several threads.

        only: offsets that are asked for, of the range. whole: frames in place of datagrams.
        Raises ReplayError RECORDS_GONE or LOG_TRUNCATED with ``until``, Spark's errors.
        """
        self._spark.sparkContext.addJobTag(self._tag)
        span, prepared = run.span, run.prepared
        offsets = only or (span.from_, span.until)
        if span.silent:
            return Notifications.none(*offsets)
        begin, until = run.begin, span.until
        if only and not prepared.stateful:
            begin, until = only
        compilation = prepared.planned.compilation
        task = recompute(
            prepared.plan,
            prepared.header_stacks,
            run.topic,
            run.carried,
            hosts,
            offsets,
            whole,
        )
        rows = self.records(prepared, span.partition, begin, until).mapInArrow(task, SCHEMA)
        found, seen = collect(rows.toArrow(), compilation.receiver_sets, offsets, hosts)
        # After the read, so that nothing can change in between.
        ends = self._topics.truncated({span.partition: run.read})
        if (end := ends.get(span.partition, until)) < until:
            run.changed[span.partition] = end
            if offsets[0] >= end:
                raise self._log_truncated(span.partition, end, run.read[0])
            left = dataclasses.replace(run, span=span._replace(until=end))
            return self.run(left, hosts, only and (only[0], min(only[1], end)), whole)
        self._check(run, begin, until, seen)
        return found

    def cancel(self) -> None:
        """Ends the runs of other threads, with Spark's error."""
        self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def records(self, prepared: Prepared, partition: int, begin: int, until: int) -> DataFrame:
        """The records of these offsets, as the stream's tasks took them."""
        return self._topics.read_offsets(partition, begin, until, prepared.timestamps)

    def trim(self) -> None:
        """Forgets plans beyond the last few, files of their broadcasts included.

        Not while a `run` is under way.
        """
        while len(self._prepared) > _MOST_PLANS:
            self._prepared.popitem(last=False)[1].plan.destroy()
        used = [prepared.header_stacks for prepared in self._prepared.values()]
        for _, handle in [each for each in self._stacks if each[1] not in used]:
            handle.destroy()
        self._stacks = [each for each in self._stacks if each[1] in used]

    def _prepare(self, number: int) -> Prepared:
        origin = self.ledger.origins[number]
        settings_key = tuple(sorted(origin.settings.items()))
        key = tuple(origin.versions.items()), settings_key, origin.ingress
        if key in self._prepared:
            self._prepared.move_to_end(key)
            return self._prepared[key]
        settings = settings_then(self._settings, origin.settings)
        try:
            planned = self._plans_of(settings, origin.ingress).at(origin.versions)
        except Exception as error:
            if not gone_for_good(error):
                raise
            raise ReplayError(
                "VERSIONS_GONE",
                f"the tables of {named(origin.versions)} can no longer be read: "
                f"{error.message if isinstance(error, StackcastError) else error}. Keep old "
                "versions longer: VACUUM with a longer RETAIN, and a longer "
                "delta.logRetentionDuration",
            ) from error
        compilation = planned.compilation
        prepared = Prepared(
            settings,
            planned,
            self._engine.broadcast(compilation.plan),
            self._stacks_of(compilation.header_stacks),
            needs_arrival(compilation.plan.specification),
        )
        self._prepared[key] = prepared
        log.info(
            "plan of %s: %d rules%s",
            named(origin.versions),
            len(compilation.rules),
            ", with state" if prepared.stateful else "",
        )
        return prepared

    def _plans_of(self, settings: Settings, ingress: str) -> Plans:
        key = settings, ingress
        for known, plans in self._plans:
            if known == key:
                return plans
        # The ledger names the ingress of a partition; the table only has those of all places.
        ingresses = Ingresses.at_host(ingress) if ingress else NO_INGRESSES
        plans = Plans(settings, self._tables, ingresses=ingresses)
        self._plans = [*self._plans[1 - _MOST_SETTINGS :], (key, plans)]
        return plans

    def _stacks_of(self, header_stacks: HeaderStacks) -> Any:
        """They are sent once for a network and its trees."""
        for known, handle in self._stacks:
            if known is header_stacks:
                return handle
        handle = self._engine.broadcast(header_stacks)
        self._stacks.append((header_stacks, handle))
        return handle

    def _carried(self, span: OffsetRange) -> Mapping[int, bytes]:
        """The state before an offset range, or ReplayError STATE_GONE."""
        first = span.ranges[0]
        newest = self.ledger.ranges.newest(first.batch)
        carried: Mapping[int, bytes] = {}
        fault = ""
        if newest is None or newest[0] != first.started:
            fault = "a new checkpoint was created after the batch"
        else:
            try:
                carried = self._state.before(first.batch)
            except StreamError as error:
                fault = str(error)
        if not fault and not carried and not self._began_without(first.batch):
            fault = "the checkpoint keeps the state of the last batches only"
        if fault:
            raise ReplayError(
                "STATE_GONE",
                f"batch {first.batch} had rules with state, and the state before it is not "
                f"available: {fault}",
                until=first.until,
            )
        return carried

    def _began_without(self, batch: int) -> bool:
        """Tells whether the rules of the batch before kept no state, so that no file has any."""
        if batch == 0:
            return True
        before = self.ledger.ranges.newest(batch - 1)
        if before is None:
            return False
        try:
            return not self._prepare(before[1]).stateful
        except ReplayError:
            return False

    def _check(self, run: Run, begin: int, until: int, seen: Records) -> None:
        """Checks that all records were there that the batches on record had read.

        If rules keep state, each record counts. Else the first and the last one are compared, so
        that what compaction has left of a topic can still be sent again.
        """
        span = run.span
        expected = span.records(begin, until) if run.prepared.stateful else None
        first = {r.begin: r.begin for r in span.ranges}.get(begin)
        last = {r.end: r.end - 1 for r in span.ranges}.get(until)
        fits = (seen.first, seen.last) == (first, last)
        if seen.number and fits and expected in (None, seen.number):
            return
        there = self._topics.spans().get(span.partition, (until, until))
        earliest, end = there
        self._earliest[span.partition] = earliest
        topic, partition = self._settings.topic, span.partition
        if begin < earliest:
            raise records_gone(topic, partition, begin, min(earliest, until), there)
        if expected is not None and expected != seen.number:
            counts = seen.number, expected
            raise records_gone(topic, partition, begin, until, there, counts)
        fits = first in (None, seen.first) and last in (None, seen.last)
        if end < until or (seen.number and not fits) or (first is not None and not seen.number):
            raise records_gone(topic, partition, begin, until, there)

    def _log_truncated(self, partition: int, end: int, read: int) -> ReplayError:
        """Returns the error for a log that has changed from ``end`` on, and was read before up to
        ``read``."""
        return ReplayError(
            "LOG_TRUNCATED",
            f"Kafka truncated partition {partition} of topic {self._settings.topic} to offset "
            f"{end}, but records up to offset {read - 1} were sent: records from offset {end} on "
            "no longer exist",
            until=read,
        )


def records_gone(
    topic: str,
    partition: int,
    begin: int,
    until: int,
    there: tuple[int, int],
    counts: tuple[int, int] | None = None,
) -> ReplayError:
    """Returns the error for records that are gone.

    Args:
        topic: name of the topic.
        partition: partition of the topic.
        begin: first offset that is needed.
        until: offset up to which nothing can be computed.
        there: first offset that the topic has now, and its end.
        counts: number of records that are left of these offsets, and that there were, if rules
            that keep state need all of them.
    """
    why = (
        f", and rules with state need all of them ({counts[0]} of {counts[1]} are left)"
        if counts
        else ""
    )
    return ReplayError(
        "RECORDS_GONE",
        f"records {begin} to {until - 1} of partition {partition} of topic {topic} no longer "
        f"exist or have been replaced{why}; the topic now has offsets {there[0]} to "
        f"{there[1] - 1}. Keep records longer with retention.ms, retention.bytes and "
        "cleanup.policy=delete",
        until=max(until, begin + 1),
    )


def settings_then(settings: Settings, recorded: Mapping[str, str]) -> Settings:
    """The settings of a batch, by what its row of the ledger says; without summaries.

    Raises ReplayError OTHER_SPECIFICATION where the format's specification has changed since.
    """
    values: dict[str, Any] = {"summary_port": 0}
    for field in fields(Settings):
        text = recorded.get(field.metadata.get("key", "")) if field.metadata else None
        if text is not None:
            values[field.name] = int(text) if isinstance(field.default, int) else text
    made = dataclasses.replace(settings, **values)
    then = recorded.get(SPECIFICATION)
    if then is not None and then != specification_digest(made):
        raise ReplayError(
            "OTHER_SPECIFICATION",
            f"messages/{made.format}.spec has changed since the batch was sent: restore the "
            "specification to compute the batch again",
        )
    return made
