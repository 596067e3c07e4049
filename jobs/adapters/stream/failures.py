"""Clearer errors for a stream that cannot start or has failed."""

from __future__ import annotations

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
from stackcast.jobs.adapters.checkpoint.identity import Identity, IdentityFile
from stackcast.jobs.adapters.checkpoint.progress import position
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream import checks
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.udfs.errors import KafkaError, StackcastError, StreamError

log = logging.getLogger(__name__)

#: A reason with a code of Stackcast.
_OWN_CODE = re.compile(r"ended: [A-Z][A-Z0-9]+\.[A-Z0-9_]+: ")
#: Codes for which the checks before a start have a clearer error.
_GONE = ("KAFKA.OFFSET_GONE", ".LOG_TRUNCATED", "STREAM.TASK_LOST")
#: The message of Spark for a time that does not fit.
_OVERFLOW = "long overflow"
#: A disk with less free space counts as full.
LEAST_BYTES = 1 << 20
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|not enough space", re.I)


def after_failure(spark: SparkSession, settings: Settings, error: StreamError) -> StackcastError:
    """Return a clearer error for a stream that has failed, or the error itself.

    The cause may be a full disk, deleted records, a topic or tables that were created again, or a
    broker that does not answer.

    Args:
        spark: session of the stream.
        settings: settings of the stream.
        error: error with which the stream has ended.
    """
    if error.what != "FAILED":
        return error
    if _NO_SPACE.search(str(error)):
        return _disk_full(spark, settings, str(error))
    if _OWN_CODE.search(str(error)) and not any(code in str(error) for code in _GONE):
        return error
    tables, topics = open_tables(spark, settings.tables), Topics(spark, settings)
    try:
        checkpoint = open_folder(spark, settings.checkpoint)
        identity = IdentityFile(checkpoint).read()
        reached = position(checkpoint)
        if identity is not None:
            current = Identity.current(settings, tables, topics.identity())
            identity.check(current, checks.way_to_continue(reached))
        if identity is not None and reached is not None:
            spans, topic = topics.spans(), identity.read_topic
            truncation = checks.find_truncation(checkpoint, tables, topics, topic, reached, spans)
            if truncation is not None and truncation.certain:
                return truncation.error()
            checks.check_records(settings.topic, reached.offsets, spans, new=False)
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
    """Return the error for records whose time Spark's connector cannot read.

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


def checkpoint_not_written(
    spark: SparkSession, settings: Settings, error: OSError
) -> StackcastError:
    """Return the error for a checkpoint that cannot be written.

    Args:
        spark: session of the stream.
        settings: settings of the stream.
        error: error of the file system.
    """
    reason = one_line(error)
    if _NO_SPACE.search(reason):
        return _disk_full(spark, settings, reason)
    return StreamError(
        "CHECKPOINT_NOT_WRITTEN",
        f"cannot write to {settings.checkpoint}: {reason}; check its permissions, or change "
        f"{PREFIX}checkpoint",
    )


def disk_full(settings: Settings, reason: str, spill: str) -> StreamError:
    """Return the error for a write without free space.

    Args:
        settings: settings of the stream.
        reason: error of the write, which is quoted if no disk is full any more.
        spill: folder in which Spark keeps its own files.
    """
    places = {
        "the checkpoint": settings.checkpoint,
        "the tables": settings.tables,
        **({"the pcap sink": settings.pcap_path} if settings.sink == "pcap" else {}),
        "Spark's own files": spill,
    }
    full = ", ".join(full_places(places))
    where = full or f"of a folder that has free space again ({reason[:300]})"
    return StreamError(
        "DISK_FULL",
        f"no space left on the disk of {where}: free some space and start the stream again; it "
        "then repeats the batch in progress with the same sequence numbers",
    )


def full_places(places: Mapping[str, str]) -> list[str]:
    """Return descriptions of the places whose disk is full.

    Args:
        places: by name, paths. Only folders of this machine are examined. For a folder that does
            not exist, its parent is examined.
    """
    return [
        f"{name} ({path}, {free} bytes free)"
        for name, path in places.items()
        if (free := _free_bytes(path)) is not None and free < LEAST_BYTES
    ]


def _free_bytes(path: str) -> int | None:
    path = path.removeprefix("file://").removeprefix("file:")
    if "://" in path or "/" not in path:
        return None  # on other storage, or the name of a schema
    folder = Path(path)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _disk_full(spark: SparkSession, settings: Settings, reason: str) -> StreamError:
    located = replace(
        settings,
        checkpoint=qualified(spark, settings.checkpoint),
        tables=qualified(spark, settings.tables),
    )
    local = spark.sparkContext.getConf().get("spark.local.dir", "/tmp") or "/tmp"
    spill = os.environ.get("SPARK_LOCAL_DIRS", local).split(",")[0]
    return disk_full(located, reason, spill)
