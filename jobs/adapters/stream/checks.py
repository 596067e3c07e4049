"""Checks before a stream starts, and after it has failed, to say plainly what is wrong.

Spark would find most of it too, by a stack of Java calls in the middle of a batch, or not at all.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.places import qualified
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
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
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream.recovery import beginnings
from stackcast.jobs.adapters.stream.truncation import Beginning, Leaders, Truncation
from stackcast.jobs.adapters.tables.definitions import NAMES
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.recorded_topics import ReadBefore, read_before
from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.errors import KafkaError, SettingsError, StackcastError, StreamError
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.sequence import MAX_OFFSET, Topic

log = logging.getLogger(__name__)

Spans = Mapping[int, tuple[int, int]]

#: The reason that a stream tells has a code of its own.
_OURS = re.compile(r"ended: [A-Z][A-Z0-9]+\.[A-Z0-9_]+: ")
#: The check of offsets says these more clearly.
_GONE = ("KAFKA.OFFSET_GONE", ".LOG_TRUNCATED", "STREAM.TASK_LOST")
#: Spark's words for a time that does not fit.
_OVERFLOW = "long overflow"
#: With less than this nothing can be written that is worth a name.
LEAST_BYTES = 1 << 20
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded|not enough space", re.I)


def beside_switches(settings: Settings) -> None:
    """Checks that a stream has something to do where switches match: to tell hosts by summaries
    what they should have, of packets or events as publishers send them.

    Raises SettingsError MATCHED_IN_NETWORK, SEVERAL_PUBLISHERS.
    """
    if settings.match != "network":
        return
    if settings.publisher_by.startswith("field:"):
        # A packet comes in by one port, whatever its messages say.
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
    spark: SparkSession,
    settings: Settings,
    tables: Tables,
    topics: Topics,
    *,
    accept_truncation: bool = False,
) -> Beginning:
    """Refuse a checkpoint that is for something else, or whose records are gone; write down what a
    new one is for.

    Args:
        spark: session of the stream.
        settings: settings of the stream.
        tables: tables of the stream.
        topics: topics of the stream.
        accept_truncation: return a truncation in place of an error.

    Returns:
        Where the stream begins.

    Raises:
        StreamError: a code of `Identity.check`, RECORDS_GONE, LOG_TRUNCATED, OFFSETS_EXHAUSTED,
            CHECKPOINT_UNREADABLE, CHECKPOINT_NOT_WRITTEN, NO_ROOM.
        KafkaError: the broker does not answer, or refuses.
        TableError: a table is missing or has another layout.
    """
    # First what needs no checkpoint: a table that is missing is told whatever lies there.
    cluster, topic_id = topics.ask(topics.identity)
    now = Identity.now(settings, tables, (cluster, topic_id))
    checkpoint = open_folder(spark, settings.checkpoint)
    mend(checkpoint)
    stands = position(checkpoint)
    file = IdentityFile(checkpoint)
    held = file.read()
    if held is None and stands is not None and stands.topic != settings.topic:
        raise other_topic(stands.topic, settings.topic)
    if held is not None:
        held.check(now, _onward(stands))
    pinned = Pins(checkpoint).newest()
    _check_versions({} if pinned is None else pinned[1].versions, tables, stands)
    spans = topics.ask(topics.spans)
    check_offsets(settings.topic, spans)
    before = ReadBefore(0, {})
    if held is None or stands is None:
        before = read_before(tables, settings.topic, topic_id)
    if held is None:
        now = replace(now, generation=before.generation)
    identity = held or now
    if stands is None:
        check_records(settings.topic, _starting(settings), spans, new=True)
        truncation = _truncated_before(settings.topic, topics, before, spans)
        if truncation is not None:
            stands = Position(0, None, settings.topic, beginnings(settings, spans))
    else:
        truncation = _truncation(
            spark, settings, tables, topics, identity.read_topic, stands, spans
        )
        wanted = stands.offsets if truncation is None else truncation.begins(stands.offsets)
        check_records(settings.topic, wanted, spans, new=False)
    # In a network that matches, new sessions are of no use before publishers have them.
    consent = accept_truncation or (
        truncation is not None and not truncation.certain and settings.match != "network"
    )
    if truncation is not None and not consent:
        raise truncation.error()
    if held is None:
        try:
            file.write(now)
        except OSError as error:
            words = one_line(error)
            if _NO_ROOM.search(words):
                raise no_room(_located(spark, settings), words, _spill(spark)) from error
            raise StreamError(
                "CHECKPOINT_NOT_WRITTEN",
                f"cannot write to {settings.checkpoint}: {words}; check its permissions, or "
                f"change {PREFIX}checkpoint",
            ) from error
    return Beginning(identity, stands, truncation)


def _truncation(
    spark: SparkSession,
    settings: Settings,
    tables: Tables,
    topics: Topics,
    topic: Topic,
    stands: Position,
    spans: Spans,
) -> Truncation | None:
    """Returns the partitions whose log differs from what was read, or ends before it."""
    checkpoint = open_folder(spark, settings.checkpoint)
    pins, reports = Pins(checkpoint), Reports(checkpoint)
    writer = writer_of(Progress(checkpoint, topic.name).identify())
    last = tables.last_transaction(LEDGER, writer)

    def recorded(batch: int) -> bool:
        return (last is not None and batch <= last) or reports.partitions(batch) is not None

    planned = stands.planned or {}
    # The commit of a batch on record alone may be missing.
    read = stands.offsets | (planned if recorded(stands.batch) else {})
    # A batch that was cut off may have sent what it was planned to read.
    ends = read | {p: end for p, end in planned.items() if _end(spans, p) < end}
    found = {p: _end(spans, p) for p, end in ends.items() if _end(spans, p) < end}
    if not recorded(stands.batch):
        # A stream has died while it began a new generation.
        found |= {p: end for p, end in planned.items() if end < stands.offsets.get(p, 0)}
    epochs = recorded_epochs(pins, reports, tables, topic)
    leaders = Leaders(topics, topic.name)
    now = leaders.now()
    if differs := leaders.find(read, epochs, now):
        found |= {p: min(end, _end(spans, p)) for p, end in differs.ends.items()}
    if found:
        return Truncation(topic.name, ends, found)
    newest = pins.newest()
    if newest is None or all(map(recorded, range(stands.batch, newest[0] + 1))):
        return None
    # How far a slice has read is known afterwards only.
    within = leaders.find(newest[1].until or planned, epochs, now)
    return within and replace(within, certain=not newest[1].until)


def _truncated_before(
    topic: str, topics: Topics, before: ReadBefore, spans: Spans
) -> Truncation | None:
    """Returns the partitions whose log differs from what earlier checkpoints have read of it.

    Sequence numbers continue where these ended.
    """
    ends = {p: end for p, (end, _) in before.read.items()}
    found = {p: _end(spans, p) for p, end in ends.items() if _end(spans, p) < end}
    epochs = {p: NO_EPOCH if epoch is None else epoch for p, (_, epoch) in before.read.items()}
    leaders = Leaders(topics, topic)
    if differs := leaders.find(ends, epochs, leaders.now()):
        found |= {p: min(end, _end(spans, p)) for p, end in differs.ends.items()}
    return Truncation(topic, ends, found) if found else None


def _end(spans: Spans, partition: int) -> int:
    return spans.get(partition, (0, 0))[1]


def check_generation(tables: Tables, identity: Identity) -> None:
    """Refuses a checkpoint of a generation that has ended, after another checkpoint has had its
    place.

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


def after_failure(spark: SparkSession, settings: Settings, error: StreamError) -> StackcastError:
    """A clearer error than that of a stream that has ended by itself, if there is one to be found:
    no room, records that are gone, a topic or tables made anew, no broker."""
    if error.what != "FAILED":
        return error
    if _NO_ROOM.search(str(error)):
        return no_room(_located(spark, settings), str(error), _spill(spark))
    if _OURS.search(str(error)) and not any(code in str(error) for code in _GONE):
        return error
    tables, topics = open_tables(spark, settings.tables), Topics(spark, settings)
    try:
        checkpoint = open_folder(spark, settings.checkpoint)
        held = IdentityFile(checkpoint).read()
        stands = position(checkpoint)
        if held is not None:
            held.check(Identity.now(settings, tables, topics.identity()), _onward(stands))
            if stands is not None:
                spans, topic = topics.spans(), held.read_topic
                found = _truncation(spark, settings, tables, topics, topic, stands, spans)
                if found is not None and found.certain:
                    return found.error()
                check_records(settings.topic, stands.offsets, spans, new=False)
        if _OVERFLOW in str(error) and (places := topics.unreadable_times()):
            return unreadable_time(settings.topic, places)
    except StackcastError as clearer:
        return clearer
    except SQL_ERRORS as other:
        log.warning(
            "the reason for the end of the stream could not be determined: %s", one_line(other)
        )
    finally:
        topics.close()
    return error


def unreadable_time(topic: str, places: Mapping[int, int]) -> KafkaError:
    """Returns the error for records whose time Spark's connector cannot read.

    Args:
        topic: name of the topic.
        places: by partition, the offset of the first such record.
    """
    where = "; ".join(f"partition {p}, offset {offset}" for p, offset in sorted(places.items()))
    return KafkaError(
        "TIME_OUT_OF_RANGE",
        f"topic {topic} has a record with a timestamp that is too large for Spark's Kafka "
        f"connector: {where}. Some producers write nanoseconds instead of milliseconds. Remove "
        f"{PREFIX}fetch=connector, or the option that requires the connector: tasks that fetch "
        "records themselves use the largest valid timestamp instead",
    )


def check_records(topic: str, wanted: Mapping[int, int], spans: Spans, *, new: bool) -> None:
    """Refuse where the topic lacks records that are wanted.

    wanted: by partition the next offset to read, -2 and -1 for a partition's start and end; one
    that is missing begins at its start, 0. spans: what the topic has, first and end. new: for a
    checkpoint that is yet to begin. Raises StreamError RECORDS_GONE.
    """
    known = {p: offset for p, offset in wanted.items() if offset >= 0}
    if not new:
        known |= {p: 0 for p in spans.keys() - wanted.keys()}
    gone = {p: spans[p][0] - o for p, o in sorted(known.items()) if p in spans and spans[p][0] > o}
    if not gone:
        return
    lost = "; ".join(
        f"partition {p}: {count} (offsets {spans[p][0] - count} to {spans[p][0] - 1})"
        for p, count in gone.items()
    )
    onward = {p: spans[p][0] if p in gone else o for p, o in (dict(wanted) | known).items()}
    where = _offsets_text(topic, onward)
    raise StreamError(
        "RECORDS_GONE",
        f"topic {topic} no longer has {sum(gone.values())} records that the stream has not read: "
        f"{lost}. Kafka deleted them according to the retention of the topic, so they cannot be "
        "recovered. To continue without them, set "
        + ("" if new else f"{PREFIX}checkpoint to a new folder and ")
        + f"{PREFIX}startingOffsets to {where}",
    )


def check_offsets(topic: str, spans: Spans) -> None:
    """Refuses a topic with offsets that sequence numbers do not hold; warns long before.

    Raises StreamError OFFSETS_EXHAUSTED.
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


def no_room(settings: Settings, words: str, spill: str) -> StreamError:
    """The error of a write that found no room.

    words: what failed, for where no place is full by now. spill: where Spark puts its own files.
    """
    places = {
        "the checkpoint": settings.checkpoint,
        "the tables": settings.tables,
        **({"the pcap sink": settings.pcap_path} if settings.sink == "pcap" else {}),
        "Spark's own files": spill,
    }
    found = full_places(places)
    where = ", ".join(found) if found else f"of a folder that has free space again ({words[:300]})"
    return StreamError(
        "DISK_FULL",
        f"no space left on the disk of {where}: free some space and start the stream again; it "
        "then repeats the batch in progress with the same sequence numbers",
    )


def full_places(places: Mapping[str, str]) -> list[str]:
    """Returns the ``places`` (what they are for -> path) without free space, in words.

    Only folders of this machine are looked at; one that is not there yet counts as its parent.
    """
    return [
        f"{name} ({path}, {left} bytes free)"
        for name, path in places.items()
        if (left := _left(path)) is not None and left < LEAST_BYTES
    ]


def _left(path: str) -> int | None:
    path = path.removeprefix("file://").removeprefix("file:")
    if "://" in path or "/" not in path:
        return None  # elsewhere, or the name of a schema
    folder = Path(path)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _located(spark: SparkSession, settings: Settings) -> Settings:
    """Returns the settings with places that say on which file system they are."""
    return replace(
        settings,
        checkpoint=qualified(spark, settings.checkpoint),
        tables=qualified(spark, settings.tables),
    )


def _spill(spark: SparkSession) -> str:
    configured = spark.sparkContext.getConf().get("spark.local.dir", "/tmp") or "/tmp"
    return os.environ.get("SPARK_LOCAL_DIRS", configured).split(",")[0]


def _check_versions(pinned: Mapping[str, int], tables: Tables, stands: Position | None) -> None:
    """Versions only grow: where one was higher, the table was made anew, or an old copy is back."""
    for name, version in pinned.items():
        if name in NAMES and tables.version(name) < version:
            raise other_tables(
                f"{name} is at version {tables.version(name)}, but the last batch used version "
                f"{version}",
                _onward(stands),
            )


def _onward(stands: Position | None) -> str:
    """Says how to go on with a new checkpoint where this one stands."""
    text = f"set {PREFIX}checkpoint to a new folder"
    if stands is None:
        return text
    where = _offsets_text(stands.topic, stands.offsets)
    return f"{text} and {PREFIX}startingOffsets to {where}, where this checkpoint ends"


def _offsets_text(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps(
        {topic: {str(p): o for p, o in sorted(offsets.items())}}, separators=(",", ":")
    )


def _starting(settings: Settings) -> dict[int, int]:
    """Offsets that a new checkpoint is to begin at; empty where they are no numbers."""
    if not settings.starting_offsets.startswith("{"):
        return {}
    named = json.loads(settings.starting_offsets).get(settings.topic, {})
    return {int(p): int(offset) for p, offset in named.items()}
