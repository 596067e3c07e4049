"""Pins of micro-batches: what a batch is made from, written before its first frame leaves.

Spark runs a batch again after a crash. With the pin on record it is computed from the same tables
and says the same ranges, so the same frames go out with the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.checkpoint.files import BatchFiles, Folder
from stackcast.udfs.delivery.summary_progress import SummaryProgress
from stackcast.udfs.errors import StackcastError, StreamError, TableError


class Pin(NamedTuple):
    """versions: of the tables. settings: those that shape bytes, as
    `stackcast.jobs.adapters.checkpoint.identity.shaping` has them. since: by partition, how far
    hosts were told, and so where the summaries of the batch begin. until: by partition, the offset
    that its tasks read up to at most, where they find out where it ends; empty where that was
    planned.
    everyone: its summaries are for all hosts. ahead: it was written while the batch before ran, and
    ``since`` is as that one began. epochs: by partition, the epoch of the leader when the batch was
    planned, or of an earlier one that had all records of the batches before."""

    versions: dict[str, int]
    settings: dict[str, str]
    since: dict[int, SummaryProgress]
    until: dict[int, int]
    everyone: bool = True
    ahead: bool = False
    epochs: Mapping[int, int] = MappingProxyType({})


class Pins:
    """One small JSON file a batch, in ``<checkpoint>/stackcast-pins``."""

    def __init__(self, checkpoint: Folder) -> None:
        self._files = BatchFiles(checkpoint.folder("stackcast-pins"), ".json")

    def get(self, batch_id: int) -> Pin | None:
        """Returns the pin of an earlier try of this batch, or None.

        Raises StreamError PIN_UNREADABLE.
        """
        text = self._files.read(batch_id)
        if text is None:
            return None
        try:
            held = json.loads(text)
            since = {int(p): SummaryProgress.unpacked(told) for p, told in held["since"].items()}
            until = {int(p): int(offset) for p, offset in held["until"].items()}
            versions = {str(name): int(v) for name, v in held["versions"].items()}
            flags = bool(held["everyone"]), bool(held["ahead"])
            epochs = {int(p): int(epoch) for p, epoch in held["epochs"].items()}
            return Pin(versions, dict(held["settings"]), since, until, *flags, epochs)
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
        """Returns the last batch on record and its pin, or None. Raises as `get`."""
        batch = self._files.newest()
        pin = None if batch is None else self.get(batch)
        return None if batch is None or pin is None else (batch, pin)

    def remove(self, batch_id: int) -> None:
        """Forgets a batch by whose pin nothing has left that is not on record otherwise."""
        self._files.remove(batch_id)

    def put(self, batch_id: int, pin: Pin) -> None:
        """Records a batch that is about to run; forgets one long done.

        Raises TableError PIN_NOT_WRITTEN: without a pin nothing of a batch may leave, and one that
        is there already stands, since its batch may have sent frames.
        """
        name = self._files.path(batch_id)
        if self._files.read(batch_id) is not None:
            raise TableError(
                "PIN_NOT_WRITTEN",
                f"the versions of batch {batch_id} are already recorded in {name}",
            )
        since = {p: told.packed() for p, told in pin.since.items()}
        held = pin._asdict() | {"since": since, "epochs": dict(pin.epochs)}
        try:
            written = self._files.write(batch_id, json.dumps(held).encode())
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
        """Returns the error to raise where a batch cannot be computed from what it is pinned to."""
        if error.what != "VERSION_GONE":
            return error
        return StreamError(
            "PIN_GONE",
            f"batch {batch_id} was interrupted and cannot be computed again with the same "
            f"tables: {error.message}. To send it with the current tables, remove "
            f"{self._files.path(batch_id)}: hosts may then get other bytes under sequence "
            "numbers that they have seen, and should keep the first",
        )
