"""Events as JSON objects to raw columns: ``{"add_order.price": 1, "stock": "GOOGL"}``.

Values are raw: integers as in the message, text without padding, nothing scaled; but attributes
are in their units, as in JSON records. A field that is left out, or null, is absent. Names may be
short where that is unique.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import EventError, SpecificationError
from stackcast.udfs.filters.meaning.state import clock_of
from stackcast.udfs.messages.attributes.attribute_field import AttributeField
from stackcast.udfs.messages.specification import Field, Specification

TIME = "time_us"
"""Key for the time of an event, microseconds, where no field is the clock."""
NO_TYPE = 255
"""Stands for the message type of an event that has none: no type is outside ASCII."""
MAX_TEXTS = 100_000

_MAX_TIME = (1 << 63) - 1


class Event(NamedTuple):
    """One event: raw values by qualified name, its type (None if it has none), ``time_us``."""

    values: dict[str, int]
    message_type: int | None
    time_us: int


@dataclass(frozen=True)
class EventColumns:
    """Holds m events as columns.

    events: those that could be read, in order. positions: int64[m], their places among the lines.
    faults: position and error of the other lines. message_type: uint8[m], ``NO_TYPE`` for none.
    columns: uint64[m] by qualified name, lanes of wide fields among them. present: bool[m] by
    qualified name. time: int64[m], in units of the format's clock.
    """

    events: list[Event]
    positions: NDArray[np.int64]
    faults: list[tuple[int, EventError]]
    message_type: NDArray[np.uint8]
    columns: dict[str, NDArray[np.uint64]]
    present: dict[str, NDArray[np.bool_]]
    time: NDArray[np.int64]

    def stacked(self, names: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Returns ``values`` and ``present`` as ``Matcher.match`` takes them."""
        count = len(self.events)
        values = np.zeros((len(names), count), np.uint64)
        present = np.zeros((len(names), count), np.bool_)
        for at, name in enumerate(names):
            values[at] = self.columns[name]
            present[at] = self.present[name]
        return values, present


@dataclass
class _Known:
    """A field that was looked up. limit: integers below it are raw values as they are."""

    field: Field
    limit: int
    header_type: int | None
    is_type: bool
    texts: dict[str, int] = member(default_factory=dict)


class EventReader:
    """Reads events of one format. ``wanted``: the fields or lanes to make columns of."""

    def __init__(self, specification: Specification, wanted: Collection[str] = ()) -> None:
        self._specification = specification
        self._clock = clock_of(specification)
        self._known: dict[str, _Known] = {}
        self._types = {
            h.message_type: h.fields[0].qualified
            for h in specification.headers
            if h.message_type is not None
        }
        self._lanes = {
            lane.qualified: whole
            for whole in specification.fields.values()
            for lane in whole.lanes()
        }
        self._wanted = {
            self._lanes[n].qualified if n in self._lanes else n: None for n in sorted(wanted)
        }

    def read_object(self, found: object) -> Event:
        """Reads one event as JSON has it.

        Raises EventError NOT_OBJECT, UNKNOWN_FIELD, AMBIGUOUS_FIELD, REPEATED_FIELD, BAD_VALUE,
        TWO_TYPES, BAD_TIME.
        """
        if not isinstance(found, dict):
            raise EventError(
                "NOT_OBJECT", "an event must be a JSON object whose keys are field names"
            )
        values: dict[str, int] = {}
        message_type: int | None = None
        time = 0
        for name, value in found.items():
            if value is None:
                self._look_up(name)
                continue
            known = self._known.get(name) or self._look_up(name)
            if known is None:
                time = _time(value)
                continue
            raw = value if type(value) is int and 0 <= value < known.limit else _raw(known, value)
            qualified = known.field.qualified
            if qualified in values:
                raise EventError("REPEATED_FIELD", f"the event contains field {qualified} twice")
            values[qualified] = raw
            if known.header_type is not None:
                if message_type is None:
                    message_type = known.header_type
                elif message_type != known.header_type:
                    raise EventError(
                        "TWO_TYPES",
                        "the event contains fields of both "
                        f"{self._types[message_type].split('.')[0]} and {known.field.header}, but "
                        "an event is a message of one type",
                    )
                if known.is_type and raw != message_type:
                    raise EventError(
                        "TWO_TYPES",
                        f"the event has {qualified} = {chr(raw)!r}, but its fields belong to "
                        f"message type {chr(message_type)!r}",
                    )
        if message_type is not None:
            values[self._types[message_type]] = message_type
        return Event(values, message_type, time)

    def read_line(self, line: str) -> Event:
        """Reads one event of a file; EventError NOT_JSON, or as ``read_object``.

        REPEATED_FIELD, too, if an object has a name twice.
        """
        try:
            found = _JSON.decode(line)
        except (ValueError, RecursionError) as error:
            what = "it is nested too deeply"
            if isinstance(error, json.JSONDecodeError):
                what = str(error).splitlines()[0]
            elif isinstance(error, ValueError):
                # Python converts at most 4,300 digits.
                what = "a number has too many digits"
            raise EventError("NOT_JSON", f"the line is not valid JSON: {what}") from None
        return self.read_object(found)

    def read(self, lines: Sequence[str | EventError]) -> EventColumns:
        """Reads lines to columns. A line that could not be read at all comes as its error."""
        events: list[Event] = []
        positions: list[int] = []
        faults: list[tuple[int, EventError]] = []
        times: list[int] = []
        for at, line in enumerate(lines):
            try:
                if isinstance(line, EventError):
                    raise line
                event = self.read_line(line)
                times.append(self.time_of(event))
            except EventError as error:
                faults.append((at, error))
            else:
                events.append(event)
                positions.append(at)
        columns: dict[str, NDArray[np.uint64]] = {}
        present: dict[str, NDArray[np.bool_]] = {}
        for name in self._wanted:
            found = [event.values.get(name) for event in events]
            has = np.array([raw is not None for raw in found], np.bool_)
            for lane in self._specification.fields[name].lanes():
                columns[lane.qualified] = _column(self._specification.fields[name], lane, found)
                present[lane.qualified] = has
            present[name] = has
        types = [NO_TYPE if e.message_type is None else e.message_type for e in events]
        return EventColumns(
            events,
            np.array(positions, np.int64),
            faults,
            np.array(types, np.uint8),
            columns,
            present,
            np.array(times, np.int64),
        )

    def time_of(self, event: Event) -> int:
        """Returns the time in units of the format's clock. Raises EventError BAD_TIME beyond 63
        bits."""
        time = self._clock.time(event.values, event.time_us)
        if not -_MAX_TIME <= time <= _MAX_TIME:
            raise EventError("BAD_TIME", "the time of the event does not fit in 63 bits")
        return time

    def _look_up(self, name: str) -> _Known | None:
        """Looks a name up; None for ``TIME``, unless the format has such a field."""
        try:
            found = self._specification.field(name)
        except SpecificationError as error:
            if name == TIME:
                return None
            # Names of any length come from outside; nothing of them is kept.
            if error.what == "UNKNOWN_FIELD" and len(name) > 64:
                raise EventError(
                    "UNKNOWN_FIELD", f"the format has no field '{name[:61]}...'"
                ) from None
            if error.what == "AMBIGUOUS_FIELD":
                raise EventError("AMBIGUOUS_FIELD", error.message) from None
            raise EventError("UNKNOWN_FIELD", error.message) from None
        header = next(h for h in self._specification.headers if h.name == found.header)
        known = _Known(
            found,
            0 if isinstance(found, AttributeField) else 1 << found.bits,
            header.message_type,
            header.message_type is not None and header.fields[0] == found,
        )
        self._known[name] = known
        return known


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        shown = twice if len(twice) <= 64 else f"{twice[:61]}..."
        raise EventError("REPEATED_FIELD", f"the event contains field {shown} twice")
    return found


_JSON = json.JSONDecoder(object_pairs_hook=_object)


def _raw(known: _Known, value: Any) -> int:
    if isinstance(value, str) and value in known.texts:
        return known.texts[value]
    of_attribute = isinstance(known.field, AttributeField) and type(value) is float
    if type(value) not in (int, str) and not of_attribute:
        shown = json.dumps(value)[:40]
        name = known.field.qualified
        raise EventError(
            "BAD_VALUE", f"{shown} is not a raw value of {name}: write an integer or a string"
        )
    if isinstance(value, str) and not value.isascii():
        shown = json.dumps(value[:40], ensure_ascii=False)
        raise EventError(
            "BAD_VALUE",
            f"the value {shown} of {known.field.qualified} contains non-ASCII characters",
        )
    try:
        raw = known.field.from_raw(value)
    except SpecificationError as error:
        raise EventError("BAD_VALUE", error.message) from None
    if isinstance(value, str):
        if len(known.texts) >= MAX_TEXTS:
            known.texts.clear()
        known.texts[value] = raw
    return raw


def _time(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_TIME:
        raise EventError(
            "BAD_TIME", f"{TIME} must be an integer number of microseconds of at most 63 bits"
        )
    return value


def _column(whole: Field, lane: Field, found: Sequence[int | None]) -> NDArray[np.uint64]:
    if lane is whole:
        return np.array([raw or 0 for raw in found], np.uint64)
    shift = whole.bits - (lane.bit_offset - whole.bit_offset) - lane.bits
    mask = (1 << lane.bits) - 1
    return np.array([((raw or 0) >> shift) & mask for raw in found], np.uint64)
