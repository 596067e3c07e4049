"""Progress of a stream, in the files of its checkpoint that Spark's own streams keep it in.

``sources/0/0`` is written once, where the stream began; ``offsets/<batch>`` says where a batch
ends, ``commits/<batch>`` that it is done. Real time writes the same, so that either mode goes on
where the other ended.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.files import BatchFiles, Folder
from stackcast.udfs.errors import StreamError

log = logging.getLogger(__name__)

#: Of how many batches Spark keeps these files, where nothing else is said.
_KEPT = 100
_BEGINNING = "sources/0"
_DONE = b'v1\n{"nextBatchWatermarkMs":0}'


class Position(NamedTuple):
    """``batch`` is the next one, ``planned`` where it ends by partition if it ran before and was
    cut off, else None; ``offsets``: by partition of ``topic`` the next record that is to be
    read."""

    batch: int
    planned: dict[int, int] | None
    topic: str
    offsets: dict[int, int]

    @property
    def goes_back(self) -> bool:
        """True if the planned batch ends before it begins, as at the begin of a new generation."""
        planned = self.planned or {}
        return any(end < self.offsets.get(p, 0) for p, end in planned.items())


def position(checkpoint: Folder) -> Position | None:
    """The position of a checkpoint; None where no batch was ever begun in it.

    Raises StreamError CHECKPOINT_UNREADABLE.
    """
    offsets = BatchFiles(checkpoint.folder("offsets"))
    beginning = BatchFiles(checkpoint.folder(_BEGINNING))
    begun = offsets.newest()
    committed = BatchFiles(checkpoint.folder("commits")).newest()
    done = begun
    if begun is not None and (committed is None or committed < begun):
        done = begun - 1
    files, number = (beginning, 0) if done is None or done < 0 else (offsets, done)
    content = files.read(number)
    if content is None:
        if begun is None:
            return None
        raise _unreadable(files.path(number), "the file is missing")
    topic, start = _offsets(content, files.path(number))
    # Spark reads that of the batch before, too.
    before = offsets.read(number - 1) if begun is not None and begun == done else None
    if before is not None:
        _offsets(before, offsets.path(number - 1))
    batch = 0 if done is None else done + 1
    planned = None
    if begun is not None and begun != done:
        planned = _offsets(offsets.read(begun) or b"", offsets.path(begun))[1]
    return Position(batch, planned, topic, start)


def mend(checkpoint: Folder) -> None:
    """Writes anew, where it is damaged, that the last batch is done: the file's name alone says it.

    Neither Spark nor real time waits for it to be durable.
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
    commits.remove(last)
    commits.write(last, _DONE)


class Progress:
    """Writes the progress of a stream of one topic. Raises StreamError PROGRESS_NOT_WRITTEN."""

    def __init__(self, checkpoint: Folder, topic: str) -> None:
        self._topic = topic
        self._home = checkpoint
        self._beginning = BatchFiles(checkpoint.folder(_BEGINNING), retained=None)
        self._offsets = BatchFiles(checkpoint.folder("offsets"), retained=_KEPT)
        self._commits = BatchFiles(checkpoint.folder("commits"), retained=_KEPT)

    def identify(self) -> str:
        """Returns the id of the query, which is kept in its checkpoint: a new one counts batches
        anew. Raises StreamError CHECKPOINT_UNREADABLE."""
        held = self._home.read("metadata")
        if held is None:
            held = json.dumps({"id": str(uuid.uuid4())}).encode()
            self._home.write("metadata", held)
        try:
            return str(json.loads(held)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise StreamError(
                "CHECKPOINT_UNREADABLE",
                f"{self._home.path('metadata')} cannot be read ({error!r}): restore the file, or "
                'write {"id": "OWNER"} into it, where OWNER is the newest owner of this '
                "checkpoint in table writers",
            ) from error

    def begin(self, offsets: Mapping[int, int]) -> None:
        """Records where the stream begins."""
        # Spark's reader leaves out the first byte.
        self._write(self._beginning, 0, b"\0v1\n" + self._text(offsets))

    def plan(self, batch: int, offsets: Mapping[int, int]) -> None:
        """Records where a batch ends; it runs again as long as it is not `done`."""
        now = {"batchWatermarkMs": 0, "batchTimestampMs": round(time.time() * 1000), "conf": {}}
        self._write(self._offsets, batch, f"v1\n{json.dumps(now)}\n".encode() + self._text(offsets))

    def forget(self, batch: int) -> None:
        """Forgets where a batch that is not `done` ends."""
        self._offsets.remove(batch)

    def done(self, batch: int) -> None:
        """Records that a batch is done."""
        self._write(self._commits, batch, _DONE)

    def sync(self, batch: int) -> None:
        """Makes durable where a batch ends, and where the first began, as Spark has written it."""
        with _not_written(self._offsets.path(batch)):
            if batch == 0:
                self._beginning.sync(0)
            self._offsets.sync(batch)

    def _text(self, offsets: Mapping[int, int]) -> bytes:
        held = {self._topic: {str(p): at for p, at in sorted(offsets.items())}}
        return json.dumps(held, separators=(",", ":")).encode()

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
    """Topic and offsets of a file of Spark's: lines, of which the last is of the one source."""
    lines = content.decode(errors="replace").split()
    try:
        ((topic, partitions),) = json.loads(lines[-1]).items()
        return str(topic), {int(p): int(offset) for p, offset in partitions.items()}
    except (ValueError, IndexError, AttributeError) as error:
        raise _unreadable(
            name, f"it does not end with the offsets of one topic ({error})"
        ) from error


def _unreadable(name: str, why: str) -> StreamError:
    return StreamError(
        "CHECKPOINT_UNREADABLE",
        f"{name} cannot be used: {why}; restore the checkpoint, or set "
        "spark.stackcast.checkpoint to a new folder and spark.stackcast.startingOffsets to the "
        "offsets at which egress_ledger ends",
    )
