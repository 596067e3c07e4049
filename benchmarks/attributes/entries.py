"""Entries of the one generic table against tables of one field each, for the same subscriptions.

The generic table is KUNDEL's (III-C), made in both of its ways; the tables of one field each
are those that the CAMUS compiler makes, ranges as the fewest prefixes, so that both count rows of a
TCAM. What switches hold is rows of the generic table where these add up, and bit vectors of ranges
where they multiply. Subscriptions are on what the lab's sensors report, in families from those that
the generic table likes best to the lab's own, which has some that suit switches and others that do
not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from benchmarks.compile import say
from benchmarks.support.plot import Curve, Panel, svg
from stackcast.lab.traffic.sensors import registry, subscriptions
from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.compile import compile_rules
from stackcast.udfs.filters.compiler.tables import ABSENT, DEFAULT
from stackcast.udfs.filters.prefixes import cover
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.generic.boxes import Box, boxes_of
from stackcast.udfs.network_match.generic.entries import event_entries
from stackcast.udfs.network_match.generic.passes import Limits, passes_of
from stackcast.udfs.network_match.generic.table import (
    MAX_ROWS,
    GenericTable,
    refused,
    table_of_boxes,
)

COUNTS = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "attribute_entries.svg"
HOSTS = [f"h{number}" for number in range(1, 5)]
PATIENCE = 5.0
"""Seconds of making a generic table, on one core."""
FIELDS = "tables of one field"
HELD = "switches hold"


def _threshold(random: Random) -> str:
    return f"temperature > {random.randint(-150, 300) / 10}"


def _band(random: Random) -> str:
    low = random.randint(-150, 280)
    station = random.choice((101, 201, 301, 401)) + random.randrange(6)
    return f"station == {station} and temperature between {low / 10} and {(low + 20) / 10}"


def _both(random: Random) -> str:
    """As the text's example, temp < 30 and hum > 15, in whole units."""
    return f"temperature < {random.randint(-15, 30)} and humidity > {random.randint(20, 100)}"


def _drawn(form: Callable[[Random], str], count: int) -> list[str]:
    random = Random(1)
    return [form(random) for _ in range(count)]


def _of_stations(count: int) -> list[str]:
    rows = subscriptions(HOSTS, 4 * COUNTS[-1])
    return [row["filter"] for row in rows if row["filter"].startswith("station ==")][:count]


def _of_the_lab(count: int, coarse: bool) -> list[str]:
    return [row["filter"] for row in subscriptions(HOSTS, count, coarse=coarse)]


FAMILIES: Mapping[str, Callable[[int], list[str]]] = {
    "one threshold": lambda count: _drawn(_threshold, count),
    "a station, one range": lambda count: _drawn(_band, count),
    "two thresholds": lambda count: _drawn(_both, count),
    "the lab's, each of a station": _of_stations,
    "the lab's, for switches": lambda count: _of_the_lab(count, coarse=True),
    "the lab's, for the stream": lambda count: _of_the_lab(count, coarse=False),
}


def rules_of(texts: list[str], known: Registry) -> list[CheckedRule]:
    """Checked rules, spread evenly over the hosts."""
    rows = [
        Subscription(f"s{number}", HOSTS[number % len(HOSTS)], text)
        for number, text in enumerate(texts)
    ]
    rules, rejected = check(rows, known.specification(), set(HOSTS), "feed1")
    assert not rejected
    assert not refused(rules, known)
    return rules


def entries(limit: int = MAX_ROWS) -> dict[str, dict[str, Curve]]:
    """Returns entries against rules by family, and by what holds them; prints each.

    A family's generic table is left out beyond the first number of rules that takes more than
    ``limit`` entries or `PATIENCE` seconds.
    """
    known = registry()
    curves: dict[str, dict[str, Curve]] = {}
    for family, texts in FAMILIES.items():
        generic: list[tuple[float, float]] = []
        fields: list[tuple[float, float]] = []
        held: list[tuple[float, float]] = []
        enough = False
        for count in COUNTS:
            rules = rules_of(texts(count), known)
            began = time.thread_time()
            table = None if enough else _table(rules, known, limit)
            seconds = time.thread_time() - began
            in_fields = entries_of_per_field_tables(rules, known.specification())
            fields.append((count, in_fields))
            line = {"family": family, "rules": count, "tables_of_one_field": in_fields}
            found = passes_of(_to_ports(boxes_of(rules, known)), Limits())
            assert not found.refused
            in_switch = len(event_entries("s1", found.passes, ()))
            held.append((count, in_switch))
            line |= {"switches_hold": in_switch, "passes": len(found.passes)}
            if table is None:
                why = "left out" if enough else f"more than {limit}"
                say("entries", **line, generic_table=why)
                enough = True
                continue
            enough = seconds > PATIENCE
            generic.append((count, len(table.rows)))
            say(
                "entries",
                **line,
                generic_table=len(table.rows),
                way=table.method,
                by_priorities=table.by_priorities,
                with_holes=table.holes,
                seconds=seconds,
                to="tables_of_one_field",
                ratio=len(table.rows) / in_fields,
            )
        curves[family] = {FIELDS: fields, "generic table": generic, HELD: held}
    return curves


def _to_ports(boxes: Sequence[Box]) -> list[Box]:
    """The boxes with a port for each host."""
    return [
        Box(box.spans, tuple(host.removeprefix("h") for host in box.receivers)) for box in boxes
    ]


def _table(rules: list[CheckedRule], known: Registry, limit: int) -> GenericTable | None:
    try:
        return table_of_boxes(boxes_of(rules, known), max_rows=limit)
    except FilterError:
        return None


def draw(curves: Mapping[str, Mapping[str, Curve]]) -> None:
    """Draw docs/pictures/attribute_entries.svg."""
    panels = [
        Panel(
            family,
            "subscriptions",
            "entries",
            {name: curve for name, curve in found.items() if curve},
            log=True,
            names="top left",
        )
        for family, found in curves.items()
    ]
    PICTURE.write_text(
        svg(
            "Entries of the generic table and of tables of one field by number of subscriptions",
            "Each panel is a family of subscriptions. If rules compare one attribute, or first "
            "select one value of another, both designs need about as many entries. If rules "
            "compare several attributes, rows of the generic table multiply; switches hold such "
            "rules as bit vectors, which add up.",
            panels,
            columns=2,
        ),
        "utf-8",
    )
    say("picture", path=f"docs/pictures/{PICTURE.name}")


def entries_of_per_field_tables(rules: Sequence[CheckedRule], specification: Specification) -> int:
    """Counts the entries of rules in tables of one field each, as prefixes (CAMUS 3.2).

    A state of a table takes the fewest prefixes, its default row among them, and one more where
    events that lack the field go elsewhere. A leaf with receivers takes one.
    Errors: as ``compile_rules``.
    """
    compiled = compile_rules(rules, specification, order="auto")
    count = sum(bool(outcome.receivers) for outcome in compiled.outcomes.values())
    states: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for field, state, low, high, kind, following in compiled.entries.tolist():
        states.setdefault((field, state), []).append((low, high, kind, following))
    for (field, _), rows in states.items():
        bits = 8 if field == 0 else compiled.definitions[field - 1].bits
        default = next((row[3] for row in rows if row[2] == DEFAULT), -1)
        asked = sorted((row[0], row[1], row[3]) for row in rows if row[2] not in (DEFAULT, ABSENT))
        prefixes = cover(list(_whole(asked, default, bits)), bits, prefer=default)
        count += len(prefixes)
        if field and specification.is_optional(compiled.definitions[field - 1]):
            # What is absent is in the prefix of all values, like it or not.
            absent = next((row[3] for row in rows if row[2] == ABSENT), default)
            count += absent != prefixes[-1][2]
    return count


def _whole(
    rows: Sequence[tuple[int, int, int]], default: int, bits: int
) -> Iterator[tuple[int, int, int]]:
    """Yields the rows, with the default in their gaps."""
    start = 0
    for low, high, following in rows:
        if low > start:
            yield start, low - 1, default
        yield low, high, following
        start = high + 1
    if start < 1 << bits:
        yield start, (1 << bits) - 1, default
