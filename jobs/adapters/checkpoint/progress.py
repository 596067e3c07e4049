"""Progress of a stream, in the same files in which Spark's streams record theirs.

    sources/0/0         offsets at which the stream began, written once
    offsets/<batch>     offsets at which the batch ends, written before it runs (the plan)
    commits/<batch>     the batch is complete

Real time writes the same files, so each mode continues where the other one ended. After a crash,
a batch with a plan and without a commit runs again.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.files import BatchFiles, Folder
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.errors import StreamError

log = logging.getLogger(__name__)

#: Number of batches whose files are retained, as in Spark.
_RETAINED = 100
_BEGINNING = "sources/0"
_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


class Position(NamedTuple):
    """The batch at which a checkpoint continues.

    Attributes:
        batch: number of the next batch, the first one without a commit.
        planned: by partition, the offset at which this batch ends, if it was planned and
            interrupted; None otherwise.
        topic: name of the topic.
        offsets: by partition, the offset at which the batch begins.
    """

    batch: int
    planned: dict[int, int] | None
    topic: str
    offsets: dict[int, int]

    @property
    def goes_back(self) -> bool:
        """True if the planned batch ends before it begins, as at the start of a new generation."""
        planned = self.planned or {}
        return any(end < self.offsets.get(p, 0) for p, end in planned.items())


def position(checkpoint: Folder) -> Position | None:
    """Return the position of a checkpoint; None if no batch was ever planned in it.

    Raises:
        StreamError: CHECKPOINT_UNREADABLE.
    """
    beginning = BatchFiles(checkpoint.folder(_BEGINNING))
    plans = BatchFiles(checkpoint.folder("offsets"))
    last_plan = plans.newest()
    if last_plan is None:
        content = beginning.read(0)
        if content is None:
            return None
        return Position(0, None, *_offsets(content, beginning.path(0)))
    last_commit = BatchFiles(checkpoint.folder("commits")).newest()
    is_interrupted = last_commit is None or last_commit < last_plan
    complete = last_plan - 1 if is_interrupted else last_plan
    files, number = (plans, complete) if complete >= 0 else (beginning, 0)
    content = files.read(number)
    if content is None:
        raise _unreadable(files.path(number), "the file is missing")
    topic, offsets = _offsets(content, files.path(number))
    if not is_interrupted:
        # Spark also reads the plan of the previous batch.
        previous = plans.read(complete - 1)
        if previous is not None:
            _offsets(previous, plans.path(complete - 1))
        return Position(complete + 1, None, topic, offsets)
    _, planned = _offsets(plans.read(last_plan) or b"", plans.path(last_plan))
    return Position(complete + 1, planned, topic, offsets)


def mend(checkpoint: Folder) -> None:
    """Write the last commit again if it is damaged. The name of the file is its only information.

    A power failure can damage it, because neither Spark nor real time waits until it is on the
    disk.
    """
    commits = BatchFiles(checkpoint.folder("commits"))
    last = commits.newest()
    if last is None:
        return
    with suppress(StreamError, ValueError, IndexError):
        lines = (commits.read(last) or b"").decode().splitlines()
        if lines[0].startswith("v") and isinstance(json.loads(lines[1]), dict):
            return
    log.warning(
        "%s was damaged and is written again: batch %d is complete", commits.path(last), last
    )
    commits.replace(last, _COMMIT)


class Progress:
    """Writes the progress of a stream.

    Args:
        checkpoint: folder of the checkpoint.
        topic: name of the topic.
        clock: clock for the times in plans.

    Raises:
        StreamError: PROGRESS_NOT_WRITTEN, by all methods that write.
    """

    def __init__(self, checkpoint: Folder, topic: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._topic = topic
        self._clock = clock
        self._checkpoint = checkpoint
        self._beginning = BatchFiles(checkpoint.folder(_BEGINNING), retained=None)
        self._plans = BatchFiles(checkpoint.folder("offsets"), retained=_RETAINED)
        self._commits = BatchFiles(checkpoint.folder("commits"), retained=_RETAINED)

    def identify(self) -> str:
        """Return the id of the query. A new checkpoint gets a new one, and counts batches from 0.

        Raises:
            StreamError: CHECKPOINT_UNREADABLE.
        """
        content = self._checkpoint.read("metadata")
        if content is None:
            content = json.dumps({"id": str(uuid.uuid4())}).encode()
            self._checkpoint.write("metadata", content)
        try:
            return str(json.loads(content)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise StreamError(
                "CHECKPOINT_UNREADABLE",
                f"{self._checkpoint.path('metadata')} cannot be read ({error!r}): restore the "
                'file, or write {"id": "OWNER"} into it, where OWNER is the newest owner of this '
                "checkpoint in table writers",
            ) from error

    def begin(self, offsets: Mapping[int, int]) -> None:
        """Record the offset at which the stream begins in each partition."""
        # Spark skips the first byte.
        self._write(self._beginning, 0, b"\0v1\n" + self._text(offsets))

    def plan(self, batch: int, offsets: Mapping[int, int]) -> None:
        """Record the offset at which a batch ends in each partition. It runs until it is `done`."""
        milliseconds = round(self._clock.wall_time() * 1000)
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": milliseconds, "conf": {}}
        content = f"v1\n{json.dumps(metadata)}\n".encode() + self._text(offsets)
        self._write(self._plans, batch, content)

    def forget(self, batch: int) -> None:
        """Remove the plan of a batch that is not complete."""
        self._plans.remove(batch)

    def done(self, batch: int) -> None:
        """Record that a batch is complete."""
        self._write(self._commits, batch, _COMMIT)

    def sync(self, batch: int) -> None:
        """Make the plan of a batch, which Spark has written, survive a power failure.

        With the first batch, the beginning of the stream is made durable, too.
        """
        with _not_written(self._plans.path(batch)):
            if batch == 0:
                self._beginning.sync(0)
            self._plans.sync(batch)

    def _text(self, offsets: Mapping[int, int]) -> bytes:
        by_partition = {str(partition): offset for partition, offset in sorted(offsets.items())}
        return json.dumps({self._topic: by_partition}, separators=(",", ":")).encode()

    def _write(self, files: BatchFiles, number: int, content: bytes) -> None:
        with _not_written(files.path(number)):
            if not files.write(number, content):
                raise FileExistsError("a file with this name already exists")


@contextmanager
def _not_written(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StreamError(
            "PROGRESS_NOT_WRITTEN", f"{name} could not be written: {one_line(error)}"
        ) from error


def _offsets(content: bytes, name: str) -> tuple[str, dict[int, int]]:
    """Return topic and offsets of a plan or a beginning, which are in the last line of the file.

    Args:
        content: content of the file.
        name: path of the file, for the error.
    """
    lines = content.decode(errors="replace").split()
    try:
        ((topic, partitions),) = json.loads(lines[-1]).items()
        return str(topic), {int(p): int(offset) for p, offset in partitions.items()}
    except (ValueError, IndexError, AttributeError) as error:
        raise _unreadable(
            name, f"it does not end with the offsets of one topic ({error})"
        ) from error


def _unreadable(name: str, reason: str) -> StreamError:
    return StreamError(
        "CHECKPOINT_UNREADABLE",
        f"{name} cannot be used: {reason}; restore the checkpoint, or set "
        "spark.stackcast.checkpoint to a new folder and spark.stackcast.startingOffsets to the "
        "offsets at which egress_ledger ends",
    )
