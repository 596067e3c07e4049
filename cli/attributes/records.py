"""Batches of attribute/value events: to headers and frames, to JSON and text, faults told of."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import typer
from numpy.typing import NDArray

from stackcast.cli.attributes.event_lines import fields_by_id, json_value
from stackcast.cli.attributes.files import LONGEST, RecordBatch
from stackcast.cli.attributes.rounding import RoundedValues
from stackcast.udfs.messages.attributes import frames
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP, ENCODINGS
from stackcast.udfs.messages.attributes.events import REASONS, Events
from stackcast.udfs.messages.attributes.faults import header_fault, json_fault
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import Registry

KEY = 18
"""Bytes of the key behind a header that we published: session, and a number, as in MoldUDP64."""

_SESSION = KEY - 8
_ETHERNET, _ADDRESS = 14, 6


Fault = Callable[[bytes, str], str]
"""Returns the attribute because of which a record has a reason; empty if there is none."""


class Faults:
    """Tells of records that are no events, one line each, and counts them by reason."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._counts: Counter[str] = Counter()
        self._others = 0

    def tell(self, place: int, reason: str, field: str = "") -> None:
        self._counts[reason] += 1
        text = f"{reason}: {field}" if field else reason
        typer.echo(f"{self.what} {place}: {text}", err=True)

    def of(self, batch: RecordBatch, reason: NDArray[np.uint8], fault: Fault) -> NDArray[np.intp]:
        """Report the faults of a batch in the order of its records, and return the indexes of its
        events.

        Args:
            batch: the records.
            reason: reasons of the records, uint8[n].
            fault: finds the attribute at fault.
        """
        reports = [(place, name, "") for place, name in batch.faults]
        for at in np.flatnonzero(reason).tolist():
            name = REASONS[int(reason[at])]
            reports.append((batch.places[at], name, fault(batch.records[at], name)))
        for place, name, field in sorted(reports):
            self.tell(place, name, field)
        return np.flatnonzero(reason == 0)

    def pass_over(self, count: int) -> None:
        """Counts what is no fault, and no event either."""
        self._others += count

    def end(self, done: str, rounded: RoundedValues | None = None) -> None:
        """Sums up on standard error. Exit code 1 if anything was faulty.

        Args:
            done: result of the command, as the start of the last line.
            rounded: values that were rounded, which a line of its own reports.
        """
        if rounded is not None and rounded.count:
            typer.echo(str(rounded), err=True)
        told = "".join(f", {count:,} {reason}" for reason, count in self._counts.most_common())
        others = f", {self._others:,} other {self.what}s passed over" if self._others else ""
        typer.echo(f"{done}{told}{others}", err=True)
        if self._counts:
            raise typer.Exit(1)


@dataclass(frozen=True)
class Encoded:
    """Records ``data[offsets[i]:offsets[i + 1]]``: offsets int64[n + 1], data uint8[]."""

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def records(self) -> list[bytes]:
        content = self.data.tobytes()
        borders = self.offsets.tolist()
        return [content[a:b] for a, b in pairwise(borders)]


class RecordEncoder:
    """Lines of JSON to headers, or to whole frames from address ``source``.

    ``session``: ten bytes that, with a number counted up, go behind each header, or none.
    """

    def __init__(
        self, encoding: str, registry: Registry, source: str = "", session: bytes = b""
    ) -> None:
        self._encoding, self._widths = encoding, registry.widths
        self._reader = JsonReader(registry, LONGEST)
        self._source = mac_address(source) if source else None
        self._session = session
        self.count = 0
        self.rounded = RoundedValues(registry)

    def encode(self, batch: RecordBatch, faults: Faults) -> Encoded:
        """Encodes the events of a batch; faulty lines are told of and left out."""
        read = self._reader.read(*batch.columns())
        good = self._report(batch, read.reason, faults)
        self.rounded.look_at(batch, good, faults.what)
        payload = self._payloads(len(good))
        events = Events(
            read.mask[good],
            np.ascontiguousarray(read.values[:, good]),
            read.reason[good],
            payload.offsets[:-1],
            payload.offsets[1:],
        )
        encoding = ENCODINGS[self._encoding].of(self._widths)
        offsets, data = encoding.encode(events, payload.data)
        self.count += len(good)
        if self._source is None:
            return Encoded(offsets, data)
        return Encoded(*frames.frames(offsets, data, self._encoding, self._source))

    def encode_one(self, line: bytes) -> bytes:
        """Return the header of one event.

        Raises:
            typer.BadParameter: it is no event; the message has reason and attribute.
        """
        batch = RecordBatch([1], [line])
        reason = REASONS.get(int(self._reader.read(*batch.columns()).reason[0]))
        if reason is not None:
            field = json_fault(line, reason, self._reader)
            text = f"{reason}: {field}" if field else reason
            raise typer.BadParameter(f"{line.decode('utf-8', 'replace')!r} is no event: {text}")
        return self.encode(batch, Faults("line")).records()[0]

    def check(self, batch: RecordBatch, faults: Faults) -> RecordBatch:
        """Report the lines of a batch that are no events, and return the whole batch."""
        self._report(batch, self._reader.read(*batch.columns()).reason, faults)
        return batch

    def _report(
        self, batch: RecordBatch, reason: NDArray[np.uint8], faults: Faults
    ) -> NDArray[np.intp]:
        return faults.of(batch, reason, lambda line, name: json_fault(line, name, self._reader))

    def _payloads(self, count: int) -> Encoded:
        """Session and number of the next events, 18 bytes each, as MoldUDP64 writes them."""
        if not self._session:
            return Encoded(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8))
        keys = np.empty((count, KEY), np.uint8)
        keys[:, :_SESSION] = np.frombuffer(self._session, np.uint8)
        numbers = np.arange(self.count + 1, self.count + count + 1, dtype=">u8")
        keys[:, _SESSION:] = numbers.view(np.uint8).reshape(count, 8)
        return Encoded(KEY * np.arange(count + 1), keys.reshape(-1))


def as_they_are(batch: RecordBatch) -> Encoded:
    """Returns the records of a batch, good or bad."""
    return Encoded(*batch.columns())


def json_lines(
    batch: RecordBatch, encoding: str | None, registry: Registry, faults: Faults
) -> list[str]:
    """Returns the events of a batch as JSON; faulty records are told of and left out.

    Without an encoding the records are frames, and those that carry no event are passed over.
    """
    offsets, data = batch.columns()
    if encoding is not None:
        read = (
            ENCODINGS[encoding].of(registry.widths).decode(offsets, data, registry.known, LONGEST)
        )

        def fault(record: bytes, reason: str) -> str:
            return header_fault(record, reason, encoding, registry)

        return render(read, faults.of(batch, read.reason, fault), registry)
    which, read = frames.events_of_frames(offsets, data, registry.known, LONGEST, registry.widths)
    faults.pass_over(len(batch.records) - len(which))
    chosen = which.tolist()
    ours = RecordBatch(
        [batch.places[at] for at in chosen], [batch.records[at] for at in chosen], batch.faults
    )

    def fault_of_frame(frame: bytes, reason: str) -> str:
        group = int.from_bytes(frame[:_ADDRESS])
        form = "bitmask" if group == BITMASK_GROUP else "id_pairs"
        return header_fault(frame[_ETHERNET:], reason, form, registry)

    return render(read, faults.of(ours, read.reason, fault_of_frame), registry)


def mac_address(text: str) -> int:
    """Returns ``02:00:00:00:00:01`` as a number. Raises typer.BadParameter."""
    if not re.fullmatch(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}", text):
        raise typer.BadParameter(f"{text!r} is no MAC address, as in 02:00:00:00:00:01")
    return int(text.replace(":", "").replace("-", ""), 16)


def render(events: Events, chosen: NDArray[np.intp], registry: Registry) -> list[str]:
    """Returns the chosen events as JSON, attributes by ascending id, values in their units."""
    parts: list[list[str]] = [[] for _ in chosen]
    mask = events.mask[chosen]
    for number, field in fields_by_id(registry).items():
        there = np.flatnonzero(mask >> np.uint64(number) & np.uint64(1))
        values, places = np.unique(events.values[number, chosen[there]], return_inverse=True)
        texts = [f"{json.dumps(field.name)}: {json_value(field, raw)}" for raw in values.tolist()]
        for at, place in zip(there.tolist(), places.tolist(), strict=True):
            parts[at].append(texts[place])
    return ["{" + ", ".join(part) + "}" for part in parts]
