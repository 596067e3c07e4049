"""Pins: the versions and settings from which a batch is computed, recorded before it sends frames.

A batch without a pin has sent nothing, so it may run with the current tables. A batch with a pin
may have sent frames before a crash. It then runs again with the versions, settings and summary
progress of its pin, and sends the same frames with the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.files import BatchFiles, Folder
from stackcast.udfs.delivery.summary_progress import SummaryProgress
from stackcast.udfs.errors import StackcastError, StreamError, TableError


class Pin(NamedTuple):
    """Everything that determines the frames of a batch.

    Attributes:
        versions: versions of the tables.
        settings: settings that shape bytes; see
            `stackcast.jobs.adapters.checkpoint.identity.shaping`.
        since: by partition, the summary progress before the batch.
        until: by partition, the maximum offset up to which a slice may read; empty for a
            micro-batch, whose end is planned.
        everyone: whether the batch sends summaries to all hosts.
        ahead: whether the pin was written while the previous batch ran. ``since`` is then the
            progress before the previous batch.
        epochs: by partition, the epoch of the leader when the batch was planned, or of an earlier
            leader that had all records of the previous batches.
    """

    versions: dict[str, int]
    settings: dict[str, str]
    since: dict[int, SummaryProgress]
    until: dict[int, int]
    everyone: bool = True
    ahead: bool = False
    epochs: Mapping[int, int] = MappingProxyType({})


class Pins:
    """The pins of a checkpoint, one JSON file per batch in ``<checkpoint>/stackcast-pins``."""

    def __init__(self, checkpoint: Folder) -> None:
        self._files = BatchFiles(checkpoint.folder("stackcast-pins"), ".json")

    def get(self, batch_id: int) -> Pin | None:
        """Return the pin of an earlier attempt of a batch, or None.

        Raises:
            StreamError: PIN_UNREADABLE.
        """
        text = self._files.read(batch_id)
        if text is None:
            return None
        try:
            values = json.loads(text)
            return Pin(
                versions={str(name): int(version) for name, version in values["versions"].items()},
                settings=dict(values["settings"]),
                since={int(p): SummaryProgress.unpacked(s) for p, s in values["since"].items()},
                until={int(p): int(offset) for p, offset in values["until"].items()},
                everyone=bool(values["everyone"]),
                ahead=bool(values["ahead"]),
                epochs={int(p): int(epoch) for p, epoch in values["epochs"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamError(
                "PIN_UNREADABLE",
                f"{self._files.path(batch_id)} does not contain the versions and settings of "
                f"batch {batch_id} ({error!r}), as can happen after a power failure: restore the "
                "file or remove it. Without it, the batch is sent with the current tables; if "
                "it had already sent frames, hosts may get other bytes under sequence numbers "
                "that they have seen, and should keep the first",
            ) from error

    def newest(self) -> tuple[int, Pin] | None:
        """Return the last batch that has a pin, and the pin; None if there is none.

        Raises:
            StreamError: PIN_UNREADABLE.
        """
        batch = self._files.newest()
        pin = None if batch is None else self.get(batch)
        return None if batch is None or pin is None else (batch, pin)

    def remove(self, batch_id: int) -> None:
        """Remove the pin of a batch that has sent nothing."""
        self._files.remove(batch_id)

    def remove_stale(self, batch_ids: Sequence[int]) -> None:
        """Remove the pins of batches that are sent as part of an earlier one.

        Unlike those of `remove`, these removals survive a power failure.
        """
        for batch_id in batch_ids:
            self._files.remove(batch_id)
        newest = self._files.newest() if batch_ids else None
        if newest is not None:
            # This also writes the folder to disk.
            self._files.sync(newest)

    def put(self, batch_id: int, pin: Pin) -> None:
        """Record the pin of a batch before it starts, and remove an old one.

        Raises:
            TableError: PIN_NOT_WRITTEN. The batch must not send anything then. A pin that exists is
                never replaced, because its batch may have sent frames.
        """
        name = self._files.path(batch_id)
        if self._files.read(batch_id) is not None:
            raise TableError(
                "PIN_NOT_WRITTEN",
                f"the versions of batch {batch_id} are already recorded in {name}",
            )
        since = {p: progress.packed() for p, progress in pin.since.items()}
        values = pin._asdict() | {"since": since, "epochs": dict(pin.epochs)}
        try:
            written = self._files.write(batch_id, json.dumps(values).encode())
        except OSError as error:
            raise TableError(
                "PIN_NOT_WRITTEN", f"{name} could not be written: {one_line(error)}"
            ) from error
        if not written:
            raise TableError(
                "PIN_NOT_WRITTEN",
                f"{name} could not be written: a file with this name already exists",
            )

    def useless(self, batch_id: int, error: TableError) -> StackcastError:
        """Return the error of a batch that cannot be computed with its pin.

        Args:
            batch_id: number of the batch.
            error: error of its tables.
        """
        if error.what != "VERSION_GONE":
            return error
        return StreamError(
            "PIN_GONE",
            f"batch {batch_id} was interrupted and cannot be computed again with the same "
            f"tables: {error.message}. To send it with the current tables, remove "
            f"{self._files.path(batch_id)}: hosts may then get other bytes under sequence "
            "numbers that they have seen, and should keep the first",
        )
