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
from typing import NamedTuple

from pyspark import SparkFiles, TaskContext

from jobs.adapters.fetch.client import Range, Reached, client_of
from jobs.adapters.fetch.options import FetchOptions
from udfs.messages.buffers import Batch


class Turn(NamedTuple):
    """What the tasks of a job do, one a range, for so many ``seconds``.

    run: names the stream, since it was started. number: counts its jobs. since: by partition,
    where the next summaries begin. most: records a task, where it is told by the job before where
    to begin; else None, and the ranges say that.
    """

    run: str
    number: int
    ranges: Sequence[Range]
    seconds: float
    since: dict[int, int]
    most: int | None = None


@dataclass
class Read(Reached):
    """What a task has read, from ``first`` on; None where nobody told it where that is. lost: an
    earlier try of the task may have known, and have sent more."""

    offset: int = -1
    first: int | None = None
    lost: bool = False


class Place(NamedTuple):
    """Where the next task begins, and its summaries, if that is known."""

    offset: int
    since: int | None


def follow(options: FetchOptions, turn: Turn, task: int, read: Read) -> Iterator[Batch]:
    """Yields what comes of the range of a task; tells ``read``, and ``turn`` of its summaries.

    Raises KafkaError as `jobs.adapters.fetch.client.Fetcher.follow`.
    """
    wanted = turn.ranges[task]
    partition, since = wanted.partition, turn.since
    context = TaskContext.get()
    again = context is not None and context.attemptNumber() > 0
    if turn.most is not None:
        begin = _told(turn, partition, turn.number - 1)
        if begin is None:
            read.lost = again
            return
        until = min(wanted.until, begin.offset + turn.most)
        wanted = wanted._replace(first=begin.offset, until=until)
        if begin.since is not None:
            since[partition] = begin.since
    if again and (ended := _told(turn, partition, turn.number)) is not None:
        # Whoever comes next has begun there.
        wanted = wanted._replace(until=ended.offset)
    read.first = read.offset = wanted.first
    last = since.get(partition)
    with _reading(turn, partition) as file:
        for batch in client_of(options).follow(wanted, turn.seconds, again, read):
            yield batch
            last = int(batch.offset[-1]) + 1
        os.write(file, json.dumps(Place(read.offset, last)).encode())


def _told(turn: Turn, partition: int, number: int) -> Place | None:
    """Returns where the task of a turn has stopped, once it has; None if none was here, or it died
    before."""
    try:
        with _path(turn, partition, number).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            content = file.read()
    except FileNotFoundError:
        return None
    return Place(*json.loads(content)) if content else None


@contextmanager
def _reading(turn: Turn, partition: int) -> Iterator[int]:
    """Holds the lock of a file, which is there with it."""
    path = _path(turn, partition, turn.number)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with new.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        new.rename(path)
        # The job before that one has ended.
        _path(turn, partition, turn.number - 2).unlink(missing_ok=True)
        yield file.fileno()


def _path(turn: Turn, partition: int, number: int) -> Path:
    return Path(SparkFiles.getRootDirectory(), f"stackcast-{turn.run}-{partition}-{number}")
