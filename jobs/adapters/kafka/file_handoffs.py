"""Handoffs by files, whose locks the tasks of one machine hold while they read."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkFiles

from stackcast.jobs.adapters.kafka.handoffs import Handoff, HandoffKey
from stackcast.udfs.delivery.summary_progress import SummaryProgress


@dataclass(frozen=True)
class FileHandoffs:
    """Handoffs in a folder of the machine. The operating system wakes a reader at once.

    Attributes:
        folder: returns the folder; by default that of Spark's files in this process.
    """

    folder: Callable[[], str] = SparkFiles.getRootDirectory

    def read(self, key: HandoffKey) -> Handoff | None:
        try:
            with self._path(key).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                content = file.read()
        except FileNotFoundError:
            return None
        return _unpacked(content) if content else None

    @contextmanager
    def hold(self, key: HandoffKey) -> Iterator[Callable[[Handoff], None]]:
        path = self._path(key)
        # The file appears under its name only when it is locked.
        new = path.with_name(f"{path.name}.{os.getpid()}")
        with new.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            new.rename(path)
            self._path(key.earlier(2)).unlink(missing_ok=True)

            def write(handoff: Handoff) -> None:
                file.write(_packed(handoff))

            yield write

    def _path(self, key: HandoffKey) -> Path:
        return Path(self.folder(), f"stackcast-{key.run}-{key.partition}-{key.slice_number}")


def _packed(handoff: Handoff) -> bytes:
    progress = None if handoff.progress is None else handoff.progress.packed()
    return json.dumps([handoff.offset, handoff.epoch, progress]).encode()


def _unpacked(content: bytes) -> Handoff:
    offset, epoch, progress = json.loads(content)
    return Handoff(offset, epoch, None if progress is None else SummaryProgress.unpacked(progress))
