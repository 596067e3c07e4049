"""Checks before a stream starts.

Without them, Spark would report most of these problems in the middle of a batch with a stack of
Java calls, and would not notice the others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.checkpoint.files import Folder
from stackcast.jobs.adapters.checkpoint.identity import (
    Identity,
    IdentityFile,
    other_tables,
    other_topic,
)
from stackcast.jobs.adapters.checkpoint.leader_epochs import recorded_epochs
from stackcast.jobs.adapters.checkpoint.pins import Pins
from stackcast.jobs.adapters.checkpoint.progress import Position, Progress, mend, position
from stackcast.jobs.adapters.checkpoint.reports import Reports, writer_of
from stackcast.jobs.adapters.kafka.ranges import NO_EPOCH
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.jobs.adapters.stream.recovery import beginnings
from stackcast.jobs.adapters.stream.truncation import Beginning, Leaders, Truncation
from stackcast.jobs.adapters.tables.definitions import NAMES
from stackcast.jobs.adapters.tables.recorded_topics import ReadBefore, read_before
from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.errors import SettingsError, StackcastError, StreamError
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.sequence import MAX_OFFSET, Topic

log = logging.getLogger(__name__)

Spans = Mapping[int, tuple[int, int]]

Explain = Callable[[OSError], StackcastError]
"""Returns the error for a checkpoint that cannot be written."""


def beside_switches(settings: Settings) -> None:
    """Check that a stream has work if switches match: it sends summaries to hosts.

    Raises:
        SettingsError: MATCHED_IN_NETWORK, SEVERAL_PUBLISHERS.
    """
    if settings.match != "network":
        return
    if settings.publisher_by.startswith("field:"):
        # A packet enters by one port, and its messages may name several publishers.
        settings.require_one_publisher(f"match=network with publisher.by={settings.publisher_by}")
    if not settings.summary_port:
        raise SettingsError(
            "MATCHED_IN_NETWORK",
            f"with {PREFIX}match=network the switches match, and with {PREFIX}summary.port=0 the "
            "stream sends no summaries, so it has nothing to do: set a summary port, or run "
            "only jobs/refresh_switches.py with the same settings",
        )
    if settings.format == ATTRIBUTES and settings.attributes_input != "json":
        raise SettingsError(
            "MATCHED_IN_NETWORK",
            f"with {PREFIX}match=network the frame of an event contains the key of its record in "
            f"the topic and nothing else: write events as JSON ({PREFIX}attributes.input=json)",
        )


def before_start(
    settings: Settings,
    checkpoint: Folder,
    tables: Tables,
    topics: TopicLog,
    explain: Explain,
    *,
    accept_truncation: bool = False,
) -> Beginning:
    """Return where a stream begins.

    It refuses a checkpoint of another stream, and records that no longer exist. A new checkpoint
    gets the identity of the stream.

    Args:
        settings: settings of the stream.
        checkpoint: folder of its checkpoint.
        tables: tables of the stream.
        topics: log of its topic.
        explain: returns the error for a checkpoint that cannot be written.
        accept_truncation: return a truncation in place of an error.

    Raises:
        StreamError: a code of `Identity.check`, RECORDS_GONE, LOG_TRUNCATED, OFFSETS_EXHAUSTED,
            CHECKPOINT_UNREADABLE, CHECKPOINT_NOT_WRITTEN, DISK_FULL.
        KafkaError: the broker does not answer, or refuses.
        TableError: a table is missing or has another layout.
    """
    # A missing table is reported first, whatever the checkpoint contains.
    cluster, topic_id = topics.ask(topics.identity)
    current = Identity.current(settings, tables, (cluster, topic_id))
    mend(checkpoint)
    file, reached = IdentityFile(checkpoint), position(checkpoint)
    recorded = file.read()
    if recorded is not None:
        recorded.check(current, way_to_continue(reached))
    elif reached is not None and reached.topic != settings.topic:
        raise other_topic(reached.topic, settings.topic)
    _check_versions(checkpoint, tables, reached)
    spans = topics.ask(topics.spans)
    check_offsets(settings.topic, spans)
    earlier = ReadBefore(0, {})
    if recorded is None or reached is None:
        earlier = read_before(tables, settings.topic, topic_id)
    identity = recorded or replace(current, generation=earlier.generation)
    if reached is None:
        check_records(settings.topic, _starting_offsets(settings), spans, new=True)
        truncation = _truncated_before(settings.topic, topics, earlier, spans)
        if truncation is not None:
            reached = Position(0, None, settings.topic, beginnings(settings, spans))
    else:
        topic = identity.read_topic
        truncation = find_truncation(checkpoint, tables, topics, topic, reached, spans)
        needed = reached.offsets if truncation is None else truncation.begins(reached.offsets)
        check_records(settings.topic, needed, spans, new=False)
    # If switches match, publishers must know new sessions before these are of use.
    needs_consent = truncation is not None and (truncation.certain or settings.match == "network")
    if truncation is not None and needs_consent and not accept_truncation:
        raise truncation.error()
    if recorded is None:
        try:
            file.write(identity)
        except OSError as error:
            raise explain(error) from error
    return Beginning(identity, reached, truncation)


def find_truncation(
    checkpoint: Folder,
    tables: Tables,
    topics: TopicLog,
    topic: Topic,
    reached: Position,
    spans: Spans,
) -> Truncation | None:
    """Return the partitions whose log differs from the records that were read, or ends earlier.

    Args:
        checkpoint: folder of the checkpoint.
        tables: tables of the stream.
        topics: log of its topic.
        topic: topic and generation of the checkpoint.
        reached: position of the checkpoint.
        spans: by partition, the first offset that Kafka still has, and the end.
    """
    pins, reports = Pins(checkpoint), Reports(checkpoint)
    writer = writer_of(Progress(checkpoint, topic.name).identify())
    last = tables.last_transaction(LEDGER, writer)

    def is_recorded(batch: int) -> bool:
        return (last is not None and batch <= last) or reports.partitions(batch) is not None

    planned = reached.planned or {}
    # Only the commit of a recorded batch may be missing.
    read = reached.offsets | (planned if is_recorded(reached.batch) else {})
    # An interrupted batch may have sent all records of its plan.
    ends = read | {p: end for p, end in planned.items() if _end(spans, p) < end}
    truncated = {p: _end(spans, p) for p, end in ends.items() if _end(spans, p) < end}
    if not is_recorded(reached.batch):
        # An earlier start was interrupted while it began a new generation.
        truncated |= {p: end for p, end in planned.items() if end < reached.offsets.get(p, 0)}
    epochs = recorded_epochs(pins, reports, tables, topic)
    leaders = Leaders(topics, topic.name)
    current = leaders.current_epochs()
    if different := leaders.find(read, epochs, current):
        truncated |= {p: min(end, _end(spans, p)) for p, end in different.ends.items()}
    if truncated:
        return Truncation(topic.name, ends, truncated)
    newest = pins.newest()
    if newest is None or all(map(is_recorded, range(reached.batch, newest[0] + 1))):
        return None
    # It is unknown how far an interrupted slice has read.
    possible = leaders.find(newest[1].until or planned, epochs, current)
    return possible and replace(possible, certain=not newest[1].until)


def _truncated_before(
    topic: str, topics: TopicLog, earlier: ReadBefore, spans: Spans
) -> Truncation | None:
    """Return the partitions whose log differs from the records of earlier checkpoints.

    Sequence numbers continue where these ended.
    """
    ends = {p: end for p, (end, _) in earlier.read.items()}
    truncated = {p: _end(spans, p) for p, end in ends.items() if _end(spans, p) < end}
    epochs = {p: NO_EPOCH if epoch is None else epoch for p, (_, epoch) in earlier.read.items()}
    leaders = Leaders(topics, topic)
    if different := leaders.find(ends, epochs, leaders.current_epochs()):
        truncated |= {p: min(end, _end(spans, p)) for p, end in different.ends.items()}
    return Truncation(topic, ends, truncated) if truncated else None


def _end(spans: Spans, partition: int) -> int:
    return spans.get(partition, (0, 0))[1]


def check_generation(tables: Tables, identity: Identity) -> None:
    """Refuse the checkpoint of an old generation, after a stream with another checkpoint has run.

    Raises:
        StreamError: OLDER_GENERATION.
    """
    newest = read_before(tables, identity.topic, identity.topic_id).generation
    if identity.generation < newest:
        raise StreamError(
            "OLDER_GENERATION",
            f"the checkpoint is for generation {identity.generation} of topic {identity.topic}, "
            f"but another checkpoint has begun generation {newest} because Kafka truncated the "
            f"log: use that checkpoint, or set {PREFIX}checkpoint to a new folder and "
            f"{PREFIX}startingOffsets to the offsets at which egress_ledger ends",
        )


def check_records(topic: str, offsets: Mapping[int, int], spans: Spans, *, new: bool) -> None:
    """Check that the topic still has the records that a stream reads next.

    Args:
        topic: name of the topic.
        offsets: by partition, the next offset to read; -2 and -1 mean the start and the end of a
            partition. Other partitions begin at 0.
        spans: by partition, the first offset that Kafka still has, and the end.
        new: whether the checkpoint is new.

    Raises:
        StreamError: RECORDS_GONE.
    """
    numbers = {p: offset for p, offset in offsets.items() if offset >= 0}
    if not new:
        numbers |= {p: 0 for p in spans.keys() - offsets.keys()}
    firsts = {p: first for p, (first, _) in spans.items()}
    deleted = {p: firsts[p] - o for p, o in sorted(numbers.items()) if firsts.get(p, 0) > o}
    if not deleted:
        return
    ranges = "; ".join(
        f"partition {p}: {count} (offsets {firsts[p] - count} to {firsts[p] - 1})"
        for p, count in deleted.items()
    )
    available = {p: firsts[p] if p in deleted else o for p, o in (dict(offsets) | numbers).items()}
    where = _offsets_text(topic, available)
    raise StreamError(
        "RECORDS_GONE",
        f"topic {topic} no longer has {sum(deleted.values())} records that the stream has not "
        f"read: {ranges}. Kafka deleted them according to the retention of the topic, so they "
        "cannot be recovered. To continue without them, set "
        + ("" if new else f"{PREFIX}checkpoint to a new folder and ")
        + f"{PREFIX}startingOffsets to {where}",
    )


def check_offsets(topic: str, spans: Spans) -> None:
    """Check that sequence numbers support the offsets of a topic, and warn long before they end.

    Raises:
        StreamError: OFFSETS_EXHAUSTED.
    """
    p, end = max(((p, end) for p, (_, end) in spans.items()), key=lambda x: x[1], default=(0, 0))
    if end > MAX_OFFSET + 1:
        raise StreamError(
            "OFFSETS_EXHAUSTED",
            f"partition {p} of topic {topic} has offsets up to {end - 1}, but sequence numbers "
            f"support offsets up to {MAX_OFFSET}: publish to a topic with another name, and "
            f"change {PREFIX}topic and {PREFIX}checkpoint",
        )
    if end > MAX_OFFSET // 2:
        log.warning(
            "partition %d of topic %s has used %d %% of the offsets that sequence numbers "
            "support: publish to a topic with another name before they are exhausted",
            *(p, topic, 100 * end // MAX_OFFSET),
        )


def _check_versions(checkpoint: Folder, tables: Tables, reached: Position | None) -> None:
    """Check that the tables are those of the last batch.

    Versions only grow. If one was higher, the table was created again, or restored from a copy.
    """
    newest = Pins(checkpoint).newest()
    for name, version in (newest[1].versions if newest is not None else {}).items():
        if name in NAMES and tables.version(name) < version:
            raise other_tables(
                f"{name} is at version {tables.version(name)}, but the last batch used version "
                f"{version}",
                way_to_continue(reached),
            )


def way_to_continue(reached: Position | None) -> str:
    """Return how to continue with a new checkpoint from the position of the old one."""
    text = f"set {PREFIX}checkpoint to a new folder"
    if reached is None:
        return text
    where = _offsets_text(reached.topic, reached.offsets)
    return f"{text} and {PREFIX}startingOffsets to {where}, where this checkpoint ends"


def _offsets_text(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps(
        {topic: {str(p): o for p, o in sorted(offsets.items())}}, separators=(",", ":")
    )


def _starting_offsets(settings: Settings) -> dict[int, int]:
    """Return the offsets of ``startingOffsets`` by partition; empty if it contains no numbers."""
    if not settings.starting_offsets.startswith("{"):
        return {}
    offsets = json.loads(settings.starting_offsets).get(settings.topic, {})
    return {int(p): int(offset) for p, offset in offsets.items()}
