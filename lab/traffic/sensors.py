"""Sensors for the lab: attributes, what stations measure, who wants to know, all from a seed.

Stations of four kinds report as JSON objects, each kind with attributes of its own; what they
measure wanders in whole steps, so that one seed gives the same events on any machine.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from stackcast.lab.traffic.subscriptions import DrawnSubscription
from stackcast.udfs.messages.attributes.registry import FORMAT, Registry, Type

START = 1_772_323_200
"""Seconds since 1970 of the first event, 2026-03-01T00:00:00Z."""

LATE = "carbon_dioxide"
"""Name of the attribute that the registry lacks; stations report it late, if they are told to."""

_EVENTS_A_SECOND = 4


@dataclass(frozen=True)
class _Quantity:
    """An attribute as the lab has it. ``lowest``, ``highest``, ``step``: in parts of 10^-places."""

    type: Type
    places: int
    offset: int
    lowest: int
    highest: int
    step: int

    def text(self, number: int) -> str:
        return str(Decimal(number).scaleb(-self.places))


#: In the order of their ids; the first three are those of KUNDEL, Table I.
_QUANTITIES: Mapping[str, _Quantity] = {
    "timestamp": _Quantity("timestamp", 0, 0, START, START + 86_400, 0),
    "temperature": _Quantity("decimal", 1, -100, -150, 300, 4),
    "air_pressure": _Quantity("decimal", 1, 0, 9_700, 10_400, 5),
    "humidity": _Quantity("decimal", 1, 0, 200, 1_000, 12),
    "wind_speed": _Quantity("decimal", 1, 0, 0, 320, 9),
    "wind_direction": _Quantity("unsigned", 0, 0, 0, 359, 15),
    "rainfall": _Quantity("decimal", 2, 0, 0, 2_500, 40),
    "battery": _Quantity("decimal", 3, 0, 3_000, 4_200, 10),
    "signal_strength": _Quantity("signed", 0, -200, -120, -40, 3),
    "station": _Quantity("unsigned", 0, 0, 101, 406, 0),
    "water_level": _Quantity("signed", 0, -(1 << 31), -900, 2_500, 20),
}
_LATE = _Quantity("unsigned", 0, 0, 400, 1_600, 25)


@dataclass(frozen=True)
class _Kind:
    """Six stations of one kind, numbered from ``first``. ``iso``: they tell time as text."""

    first: int
    attributes: tuple[str, ...]
    iso: bool = False

    @property
    def stations(self) -> range:
        return range(self.first, self.first + 6)


_KINDS = (
    _Kind(
        101,
        ("temperature", "humidity", "air_pressure", "wind_speed", "wind_direction", "rainfall"),
    ),
    _Kind(201, ("humidity", "temperature", "battery")),
    _Kind(301, ("temperature", "rainfall", "wind_speed", "battery", "signal_strength"), iso=True),
    _Kind(401, ("water_level", "temperature", "battery", "signal_strength"), iso=True),
)
_INDOOR = _KINDS[1]

_STRANGE_STATION = 9_001


def attribute_rows() -> list[dict[str, Any]]:
    """Returns rows of table ``attributes``, without the time of their registration."""
    return [
        {
            "id": number,
            "name": name,
            "type": one.type,
            "scale": Decimal(1).scaleb(-one.places),
            "offset": Decimal(one.offset),
            "registered_by": "lab",
        }
        for number, (name, one) in enumerate(_QUANTITIES.items())
    ]


def registry(late: bool = False) -> Registry:
    """Returns the registry of `attribute_rows`; ``late``: after `LATE` was registered by name."""
    known = Registry.from_rows(attribute_rows())
    return known.with_new({LATE: "decimal"})[0] if late else known


# --- events -------------------------------------------------------------------------------------


def events(count: int, seed: int = 1, faults: float = 0.0, late: bool = False) -> Iterator[bytes]:
    """Yields ``count`` records, each a JSON object without the end of its line.

    Parameters
    ----------
    faults: the part of them, 0 to 1, that are damaged: each kind of `FAULTS` in turn.
    late: from the middle on, indoor stations report `LATE` as well.

    The same arguments give the same records.
    """
    random = Random(seed)
    # Which records are damaged must not change what the others say.
    chance = Random(seed + 1)
    now: dict[tuple[int, str], int] = {}
    stations = [(kind, number) for kind in _KINDS for number in kind.stations]
    harmed = 0
    for index in range(count):
        kind, station = random.choice(stations)
        time = START + index // _EVENTS_A_SECOND
        event = {"timestamp": f'"{_iso(time)}"' if kind.iso else str(time)}
        event["station"] = str(station)
        for name in kind.attributes:
            one = _QUANTITIES[name]
            event[name] = one.text(_wander(random, now, (station, name), one))
        if late and kind is _INDOOR and index >= count // 2:
            event[LATE] = _LATE.text(_wander(random, now, (station, LATE), _LATE))
        if faults and chance.random() < faults:
            yield list(FAULTS.values())[harmed % len(FAULTS)](event)
            harmed += 1
        else:
            yield _object(event)


def _wander(
    random: Random, now: dict[tuple[int, str], int], key: tuple[int, str], one: _Quantity
) -> int:
    """The next value of what a station measures, within its limits."""
    value = now.get(key)
    if value is None:
        value = random.randint(one.lowest, one.highest)
    else:
        value += random.randint(-one.step, one.step)
    now[key] = min(max(value, one.lowest), one.highest)
    return now[key]


def _iso(time: int) -> str:
    return dt.datetime.fromtimestamp(time, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _object(event: Mapping[str, str]) -> bytes:
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in event.items()) + "}").encode()


def _twice(event: Mapping[str, str]) -> bytes:
    return _object(event)[:-1] + b', "temperature": 20.5}'


FAULTS: Mapping[str, Callable[[Mapping[str, str]], bytes]] = {
    "truncated": lambda event: _object(event)[:-7],
    "not a number": lambda event: _object({**event, "temperature": "NaN"}),
    "invalid name": lambda event: _object({**event, "soil moisture": "31"}),
    "text": lambda event: _object({**event, "temperature": '"warm"'}),
    "too cold": lambda event: _object({**event, "temperature": "-273.2"}),
    "beyond 32 bits": lambda event: _object({**event, "humidity": "1e12"}),
    "nested": lambda event: _object({**event, "temperature": '{"celsius": 20.5}'}),
    "repeated name": _twice,
    "empty": lambda _: b"{}",
    "not an object": lambda _: b"[21.5, 80]",
    "not UTF-8": lambda event: _object(event).replace(b"station", b"\xff\xfe"),
    "unannounced station": lambda event: _object({**event, "station": str(_STRANGE_STATION)}),
}
"""Faults of records by name, and functions that make one of an event's texts."""


# --- who wants what -----------------------------------------------------------------------------


def advertisements(publisher: str) -> list[dict[str, Any]]:
    """Returns rows of ``advertisements``: what each kind of station may report, without time."""
    return [
        {
            "id": f"stations-{kind.first}",
            "publisher": publisher,
            "format": FORMAT,
            "filter": f"station between {kind.stations[0]} and {kind.stations[-1]} "
            "and temperature >= -40 and temperature <= 60",
            "enabled": True,
        }
        for kind in _KINDS
    ]


def subscriptions(
    hosts: Sequence[str], count: int, seed: int = 1, late: bool = False, coarse: bool = False
) -> list[DrawnSubscription]:
    """Returns ``count`` rules over what stations report, spread evenly over ``hosts``.

    Most name a station; a few in a hundred can match no event. The same arguments give the same
    rows.

    Parameters
    ----------
    hosts: who subscribes, in turn.
    late: every twentieth rule asks for `LATE`, which the registry must have then.
    coarse: for filters of all rules together, which multiply ranges of rules that overlap
        (KUNDEL III-C): almost all name a station, and limits are of few prefixes.
    """
    draw = _Draw(Random(seed), coarse)
    rows: list[DrawnSubscription] = []
    for number in range(1, count + 1):
        kind = draw.random.choice(_KINDS)
        form = draw.random.choices(_FORMS, weights=_COARSE if coarse else _WEIGHTS)[0]
        text = form(draw, kind)
        if late and number % 20 == 0:
            text = f"{LATE} > {draw.random.randint(6, 15)}00"
        host = hosts[(number - 1) % len(hosts)]
        rows.append({"id": f"s{number:04d}", "subscriber": host, "filter": text})
    return rows


@dataclass(frozen=True)
class _Draw:
    """Draws the constants of rules. ``coarse``: raw values that end in many zeros."""

    random: Random
    coarse: bool

    def limit(self, name: str) -> str:
        """Returns a value that the attribute may come to."""
        one = _QUANTITIES[name]
        number = self.random.randint(one.lowest, one.highest)
        if self.coarse:
            raw = number - one.offset * 10**one.places
            number -= raw % (1 << ((one.highest - one.lowest) // _LIMITS).bit_length())
        return one.text(number)

    def time(self) -> int:
        time = START + self.random.randint(60, 3_600)
        return time - time % 64 if self.coarse else time

    def operator(self) -> str:
        return self.random.choice(("<", "<", "<", ">=") if self.coarse else ("<", ">", "<=", ">="))


_LIMITS = 16
"""Limits in the range of an attribute, where they are coarse: at least a half of so many."""


def _measured(draw: _Draw, kind: _Kind, operator: str = "") -> str:
    name = draw.random.choice(kind.attributes)
    return f"{name} {operator or draw.operator()} {draw.limit(name)}"


def _at(draw: _Draw, kind: _Kind) -> str:
    return f"station == {draw.random.choice(kind.stations)}"


def _station(draw: _Draw, kind: _Kind) -> str:
    return f"{_at(draw, kind)} and {_measured(draw, kind)}"


def _band(draw: _Draw, kind: _Kind) -> str:
    name = draw.random.choice(kind.attributes)
    low, high = sorted((draw.limit(name), draw.limit(name)), key=Decimal)
    if draw.coarse:
        return f"{_at(draw, kind)} and {name} >= {low} and not {name} >= {high}"
    return f"{_at(draw, kind)} and {name} between {low} and {high}"


def _not_here(draw: _Draw, kind: _Kind) -> str:
    either = f"{_measured(draw, kind, '<')} or {_measured(draw, kind, '>=')}"
    return f"{_at(draw, kind)} and not ({either})"


def _either(draw: _Draw, kind: _Kind) -> str:
    several = ", ".join(map(str, sorted(draw.random.sample(kind.stations, 2))))
    return f"station in {{{several}}} and ({_measured(draw, kind)} or {_measured(draw, kind)})"


def _since(draw: _Draw, kind: _Kind) -> str:
    time = draw.time()
    when = f"timestamp >= '{_iso(time)}'" if kind.iso else f"timestamp < {time}"
    return f"{_at(draw, kind)} and {when}"


def _damp(draw: _Draw, _: _Kind) -> str:
    random = draw.random
    damp = f"temperature < {random.randint(-8, 5)} and humidity > {random.randint(75, 95)}"
    return f"{_at(draw, _INDOOR)} and {damp}" if draw.coarse else damp


def _storm(draw: _Draw, _: _Kind) -> str:
    random = draw.random
    return f"wind_speed >= {random.randint(25, 30)}.5 or air_pressure < {random.randint(972, 980)}"


def _weak(draw: _Draw, _: _Kind) -> str:
    if draw.coarse:
        return "signal_strength < -112"
    low = f"not battery >= 3.0{draw.random.randint(10, 90)}"
    return f"{low} or signal_strength < -11{draw.random.randint(0, 8)}"


def _never(draw: _Draw, kind: _Kind) -> str:
    random = draw.random
    impossible = [
        f"{_at(draw, kind)} and temperature < -{random.randint(41, 60)}",
        f"station == {random.randint(500, 600)} and {_measured(draw, kind)}",
    ]
    if not draw.coarse:
        impossible.append(f"temperature > {random.randint(61, 90)}")
    return random.choice(impossible)


_Form = Callable[[_Draw, _Kind], str]
_FORMS: tuple[_Form, ...]
_FORMS, _WEIGHTS, _COARSE = zip(
    (_station, 36, 40),
    (_band, 20, 20),
    (_not_here, 10, 8),
    (_either, 10, 10),
    (_since, 6, 6),
    (_damp, 6, 6),
    (_storm, 4, 0),
    (_weak, 4, 3),
    (_never, 4, 4),
    strict=True,
)
