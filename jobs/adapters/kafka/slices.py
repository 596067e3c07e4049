"""A partition read by tasks one after the other, each for a while from where the last one stopped.

On one machine a task tells the next where that is by a file, whose lock it holds as it reads: so
the next one wakes at once, or when the reader has died.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pyspark import SparkFiles

from stackcast.jobs.adapters.kafka.client import Range, Reached, client_of, runs_again
from stackcast.jobs.adapters.kafka.options import FetchOptions
from stackcast.udfs.delivery.told import Telling, Told
from stackcast.udfs.errors import KafkaError
from stackcast.udfs.messages.buffers import Batch


class Turn(NamedTuple):
    """What the tasks of a job do, one a range, for so many ``seconds``.

    run: names the stream, since it was started. number: counts its jobs. most: records a task,
    where it is told by the job before where to begin; else None, and the ranges say that.
    """

    run: str
    number: int
    ranges: Sequence[Range]
    seconds: float
    most: int | None = None


@dataclass
class Read(Reached):
    """Progress of a task of a slice.

    Attributes:
        first: offset at which the task began; None if it never began.
        truncated: offset to which Kafka has truncated what was read before; None if it has not.
    """

    offset: int = -1
    first: int | None = None
    truncated: int | None = None


class Place(NamedTuple):
    """Offset at which the next task begins, epoch of the leader from which all before it was read,
    and how far hosts were told by then, if that is known."""

    offset: int
    epoch: int
    told: Told | None


def follow(
    options: FetchOptions, turn: Turn, task: int, read: Read, telling: Telling
) -> Iterator[Batch]:
    """Yields what comes of the range of a task; tells ``read``, and what shares ``telling``.

    If Kafka has truncated the log, ``read`` says so: Spark would run a task that fails again, and
    from its begin on the log may look sound. Raises KafkaError as
    `stackcast.jobs.adapters.kafka.client.Fetcher.follow`.
    """
    wanted = turn.ranges[task]
    partition, told = wanted.partition, None
    again = runs_again()
    if turn.most is not None:
        begin = _told(turn, partition, turn.number - 1)
        if begin is None:
            read.lost = again
            return
        until = min(wanted.until, begin.offset + turn.most)
        wanted = wanted._replace(first=begin.offset, until=until, epoch=begin.epoch)
        told = begin.told
    if again and (ended := _told(turn, partition, turn.number)) is not None:
        # Whoever comes next has begun there.
        wanted = wanted._replace(until=ended.offset)
    read.first = read.offset = wanted.first
    read.epoch = wanted.epoch
    telling.reads(partition, told)
    with _reading(turn, partition) as file:
        try:
            yield from client_of(options).follow(wanted, turn.seconds, again, read)
        except KafkaError as error:
            if error.what != "LOG_TRUNCATED":
                raise
            read.truncated = error.fields["end"]
        file.write(_packed(Place(read.offset, read.epoch, telling.after(partition))))


def _told(turn: Turn, partition: int, number: int) -> Place | None:
    """Returns where the task of a turn has stopped, once it has; None if none was here, or it died
    before."""
    try:
        with _path(turn, partition, number).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            content = file.read()
    except FileNotFoundError:
        return None
    return _unpacked(content) if content else None


def _packed(place: Place) -> bytes:
    told = None if place.told is None else place.told.packed()
    return json.dumps([place.offset, place.epoch, told]).encode()


def _unpacked(content: bytes) -> Place:
    offset, epoch, told = json.loads(content)
    return Place(offset, epoch, None if told is None else Told.unpacked(told))


@contextmanager
def _reading(turn: Turn, partition: int) -> Iterator[BinaryIO]:
    """Holds the lock of a file, which is there with it."""
    path = _path(turn, partition, turn.number)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with new.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        new.rename(path)
        # The job before that one has ended.
        _path(turn, partition, turn.number - 2).unlink(missing_ok=True)
        yield file


def _path(turn: Turn, partition: int, number: int) -> Path:
    return Path(SparkFiles.getRootDirectory(), f"stackcast-{turn.run}-{partition}-{number}")
