"""Batches of attribute/value events: to headers and frames, to JSON and text, faults told of."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

import numpy as np
import typer
from numpy.typing import NDArray

from stackcast.cli.attributes.files import LONGEST, RecordBatch
from stackcast.udfs.messages.attributes import frames
from stackcast.udfs.messages.attributes.encodings import ENCODINGS
from stackcast.udfs.messages.attributes.events import REASONS, Events
from stackcast.udfs.messages.attributes.json_events import JsonReader
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.specification import Field

KEY = 18
"""Bytes of the key behind a header that we published: session, and a number, as in MoldUDP64."""

_SESSION = KEY - 8
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Faults:
    """Tells of records that are no events, one line each, and counts them by reason."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._counts: Counter[str] = Counter()
        self._others = 0

    def tell(self, place: int, reason: str) -> None:
        self._counts[reason] += 1
        typer.echo(f"{self._what} {place}: {reason}", err=True)

    def of(self, batch: RecordBatch, reason: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Tells of the faults of a batch, in their order; returns the indexes of its events."""
        found = [(batch.places[at], REASONS[int(reason[at])]) for at in np.flatnonzero(reason)]
        for place, name in sorted([*batch.faults, *found]):
            self.tell(place, name)
        return np.flatnonzero(reason == 0)

    def pass_over(self, count: int) -> None:
        """Counts what is no fault, and no event either."""
        self._others += count

    def end(self, done: str) -> None:
        """Sums up on standard error. Exit code 1 if anything was faulty."""
        told = "".join(f", {count:,} {reason}" for reason, count in self._counts.most_common())
        others = f", {self._others:,} other {self._what}s passed over" if self._others else ""
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

    def encode(self, batch: RecordBatch, faults: Faults) -> Encoded:
        """Encodes the events of a batch; faulty lines are told of and left out."""
        read = self._reader.read(*batch.columns())
        good = faults.of(batch, read.reason)
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
        return render(read, faults.of(batch, read.reason), registry)
    which, read = frames.events_of_frames(offsets, data, registry.known, LONGEST, registry.widths)
    faults.pass_over(len(batch.records) - len(which))
    ours = RecordBatch([batch.places[at] for at in which.tolist()], [], batch.faults)
    return render(read, faults.of(ours, read.reason), registry)


def mac_address(text: str) -> int:
    """Returns ``02:00:00:00:00:01`` as a number. Raises typer.BadParameter."""
    if not re.fullmatch(r"[0-9A-Fa-f]{2}([:-][0-9A-Fa-f]{2}){5}", text):
        raise typer.BadParameter(f"{text!r} is no MAC address, as in 02:00:00:00:00:01")
    return int(text.replace(":", "").replace("-", ""), 16)


def render(events: Events, chosen: NDArray[np.intp], registry: Registry) -> list[str]:
    """Returns the chosen events as JSON, attributes by ascending id, values in their units."""
    parts: list[list[str]] = [[] for _ in chosen]
    mask = events.mask[chosen]
    for number, field in _fields(registry).items():
        there = np.flatnonzero(mask >> np.uint64(number) & np.uint64(1))
        values, places = np.unique(events.values[number, chosen[there]], return_inverse=True)
        texts = [f"{json.dumps(field.name)}: {_json(field, raw)}" for raw in values.tolist()]
        for at, place in zip(there.tolist(), places.tolist(), strict=True):
            parts[at].append(texts[place])
    return ["{" + ", ".join(part) + "}" for part in parts]


def texts_of(values: Mapping[int, int], registry: Registry) -> dict[str, str]:
    """Returns names and values in their units of one event's raw values by id; ``id 9`` if it has
    none.
    """
    fields = _fields(registry)
    return {
        fields[number].name if number in fields else f"id {number}": (
            fields[number].render(raw) if number in fields else str(raw)
        )
        for number, raw in values.items()
    }


def _fields(registry: Registry) -> dict[int, Field]:
    """The field of each id, ids ascending."""
    fields = [header.fields[0] for header in registry.specification().headers]
    return dict(sorted(zip(registry.ids_of(fields), fields, strict=True), key=itemgetter(0)))


def _json(field: Field, raw: int) -> str:
    """A rendered value: a number as one, whatever its digits, else text."""
    text = field.render(raw)
    is_number = field.kind != "string" and _NUMBER.fullmatch(text)
    return text if is_number else json.dumps(text)
