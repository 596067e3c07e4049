"""Batches of attribute/value events, converted to headers and frames or to JSON lines."""

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
from stackcast.cli.attributes.files import MAX_EVENT_BYTES, RecordBatch
from stackcast.cli.attributes.rounding import RoundedValues
from stackcast.udfs.messages.attributes import frames
from stackcast.udfs.messages.attributes.encodings import BITMASK_GROUP, ENCODINGS
from stackcast.udfs.messages.attributes.events import REASONS, Events
from stackcast.udfs.messages.attributes.faults import header_fault, json_fault
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import Registry

#: Size of the key after the header in a published frame: session and number, as in MoldUDP64.
KEY = 18
#: Sizes in bytes of the session in a key, of an Ethernet header, and of an address in it.
_SESSION, _ETHERNET, _ADDRESS = KEY - 8, 14, 6


#: Returns the attribute at fault, given a record and the reason; empty if there is none.
Fault = Callable[[bytes, str], str]


class Faults:
    """Reports records that are not events, one line each, and counts them by reason.

    Args:
        noun: word for a record, such as ``line``.
    """

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._counts: Counter[str] = Counter()
        self._skipped = 0

    def report(self, place: int, reason: str, field: str = "") -> None:
        """Print and count a fault.

        Args:
            place: number of the record, from 1.
            reason: the reason.
            field: attribute at fault, if there is one.
        """
        self._counts[reason] += 1
        text = f"{reason}: {field}" if field else reason
        typer.echo(f"{self.noun} {place}: {text}", err=True)

    def report_batch(
        self, batch: RecordBatch, reason: NDArray[np.uint8], fault: Fault
    ) -> NDArray[np.intp]:
        """Report the faults of a batch in order, and return the indexes of its events.

        Args:
            batch: the records.
            reason: reasons of the records, uint8[n].
            fault: finds the attribute at fault.
        """
        reports = [(place, name, "") for place, name in batch.faults]
        for index in np.flatnonzero(reason).tolist():
            name = REASONS[int(reason[index])]
            reports.append((batch.places[index], name, fault(batch.records[index], name)))
        for place, name, field in sorted(reports):
            self.report(place, name, field)
        return np.flatnonzero(reason == 0)

    def skip(self, count: int) -> None:
        """Count records that are neither events nor faults."""
        self._skipped += count

    def end(self, done: str, rounded: RoundedValues | None = None) -> None:
        """Print a summary on standard error.

        Args:
            done: result of the command, the start of the last line.
            rounded: values that were rounded, which a separate line reports.

        Raises:
            typer.Exit: there were faults; the exit code is 1.
        """
        if rounded is not None and rounded.count:
            typer.echo(str(rounded), err=True)
        counts = "".join(f", {count:,} {reason}" for reason, count in self._counts.most_common())
        skipped = f", {self._skipped:,} other {self.noun}s skipped" if self._skipped else ""
        typer.echo(f"{done}{counts}{skipped}", err=True)
        if self._counts:
            raise typer.Exit(1)


@dataclass(frozen=True)
class Encoded:
    """Encoded records, ``data[offsets[i]:offsets[i + 1]]``.

    Attributes:
        offsets: int64[n + 1].
        data: uint8[].
    """

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def records(self) -> list[bytes]:
        content = self.data.tobytes()
        return [content[start:end] for start, end in pairwise(self.offsets.tolist())]


class RecordEncoder:
    """Converts lines of JSON to headers or to whole frames.

    Args:
        encoding: encoding of the headers.
        registry: attributes of the events.
        source: source MAC address of the frames; empty to encode headers without frames.
        session: ten bytes that follow each header, together with a sequence number; empty to omit
            both.
    """

    def __init__(
        self, encoding: str, registry: Registry, source: str = "", session: bytes = b""
    ) -> None:
        self._encoding, self._widths = encoding, registry.widths
        self._reader = JsonReader(registry, MAX_EVENT_BYTES)
        self._source = mac_address(source) if source else None
        self._session = session
        self.count = 0
        self.rounded = RoundedValues(registry)

    def encode(self, batch: RecordBatch, faults: Faults) -> Encoded:
        """Encode the events of a batch. Report the other lines, and leave them out."""
        read = self._reader.read(*batch.columns())
        valid = self._report(batch, read.reason, faults)
        self.rounded.look_at(batch, valid, faults.noun)
        payload = self._payloads(len(valid))
        events = Events(
            read.mask[valid],
            np.ascontiguousarray(read.values[:, valid]),
            read.reason[valid],
            payload.offsets[:-1],
            payload.offsets[1:],
        )
        encoding = ENCODINGS[self._encoding].of(self._widths)
        offsets, data = encoding.encode(events, payload.data)
        self.count += len(valid)
        if self._source is None:
            return Encoded(offsets, data)
        return Encoded(*frames.frames(offsets, data, self._encoding, self._source))

    def encode_one(self, line: bytes) -> bytes:
        """Return the header of one event.

        Raises:
            typer.BadParameter: the line is not an event; the message has reason and attribute.
        """
        batch = RecordBatch([1], [line])
        reason = REASONS.get(int(self._reader.read(*batch.columns()).reason[0]))
        if reason is not None:
            field = json_fault(line, reason, self._reader)
            text = f"{reason}: {field}" if field else reason
            raise typer.BadParameter(f"{line.decode('utf-8', 'replace')!r} is not an event: {text}")
        return self.encode(batch, Faults("line")).records()[0]

    def check(self, batch: RecordBatch, faults: Faults) -> RecordBatch:
        """Report the lines of a batch that are not events, and return the whole batch."""
        self._report(batch, self._reader.read(*batch.columns()).reason, faults)
        return batch

    def _report(
        self, batch: RecordBatch, reason: NDArray[np.uint8], faults: Faults
    ) -> NDArray[np.intp]:
        return faults.report_batch(
            batch, reason, lambda line, name: json_fault(line, name, self._reader)
        )

    def _payloads(self, count: int) -> Encoded:
        """Return session and number of the next events, 18 bytes each, as in MoldUDP64."""
        if not self._session:
            return Encoded(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8))
        keys = np.empty((count, KEY), np.uint8)
        keys[:, :_SESSION] = np.frombuffer(self._session, np.uint8)
        numbers = np.arange(self.count + 1, self.count + count + 1, dtype=">u8")
        keys[:, _SESSION:] = numbers.view(np.uint8).reshape(count, 8)
        return Encoded(KEY * np.arange(count + 1), keys.reshape(-1))


def unchanged(batch: RecordBatch) -> Encoded:
    """Return all records of a batch, valid or not."""
    return Encoded(*batch.columns())


def json_lines(
    batch: RecordBatch, encoding: str | None, registry: Registry, faults: Faults
) -> list[str]:
    """Return the events of a batch as JSON. Report the other records, and leave them out.

    Args:
        batch: the records.
        encoding: encoding of the headers; None if the records are frames, of which those without
            an event are skipped.
        registry: attributes of the events.
        faults: reports and counts the faults.
    """
    offsets, data = batch.columns()
    if encoding is not None:
        read = (
            ENCODINGS[encoding]
            .of(registry.widths)
            .decode(offsets, data, registry.known, MAX_EVENT_BYTES)
        )

        def fault(record: bytes, reason: str) -> str:
            return header_fault(record, reason, encoding, registry)

        return render(read, faults.report_batch(batch, read.reason, fault), registry)
    indexes, read = frames.events_of_frames(
        offsets, data, registry.known, MAX_EVENT_BYTES, registry.widths
    )
    faults.skip(len(batch.records) - len(indexes))
    chosen = indexes.tolist()
    event_frames = RecordBatch(
        [batch.places[index] for index in chosen],
        [batch.records[index] for index in chosen],
        batch.faults,
    )

    def fault_of_frame(frame: bytes, reason: str) -> str:
        group = int.from_bytes(frame[:_ADDRESS])
        name = "bitmask" if group == BITMASK_GROUP else "id_pairs"
        return header_fault(frame[_ETHERNET:], reason, name, registry)

    valid = faults.report_batch(event_frames, read.reason, fault_of_frame)
    return render(read, valid, registry)


def mac_address(text: str) -> int:
    """Return the MAC address in ``--source`` as a number. Raises typer.BadParameter."""
    if not re.fullmatch(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}", text):
        raise typer.BadParameter(
            f"--source {text!r} is not a MAC address such as 02:00:00:00:00:01"
        )
    return int(text.replace(":", "").replace("-", ""), 16)


def render(events: Events, chosen: NDArray[np.intp], registry: Registry) -> list[str]:
    """Return events as JSON, with attributes by ascending id and values in their units.

    Args:
        events: the events.
        chosen: indexes of the events to return, int[n].
        registry: attributes of the events.
    """
    parts: list[list[str]] = [[] for _ in chosen]
    mask = events.mask[chosen]
    for number, field in fields_by_id(registry).items():
        rows = np.flatnonzero(mask >> np.uint64(number) & np.uint64(1))
        values, inverse = np.unique(events.values[number, chosen[rows]], return_inverse=True)
        texts = [f"{json.dumps(field.name)}: {json_value(field, raw)}" for raw in values.tolist()]
        for row, value in zip(rows.tolist(), inverse.tolist(), strict=True):
            parts[row].append(texts[value])
    return ["{" + ", ".join(part) + "}" for part in parts]
