"""Rules over many fields: what sets cost to compile, to hold and to match, and to edit.

A part of ``bench match``. Rules and events are drawn; fields have 32 bits, rules 64 hosts in turn.
"""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.support.measuring import Reporter
from stackcast.udfs.delivery.receiver_sets import IndexDelivery, ReceiverSets
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.grouped import Grouped, GroupedCompiler
from stackcast.udfs.filters.live_rules import LiveRules
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.terms import TermBlock
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.specification import Specification, parse_specification

HOSTS = 64
TOP = (1 << 32) - 1
EVENTS = 100_000
BRUTE_EVENTS = 100
SLOW = 3
EDITS = 20

Bounds = tuple[int, int, int]
"""A field, and the first and the last of its values that satisfy a predicate."""


@dataclass(frozen=True)
class Form:
    """How rules are drawn. ``predicates``: of each, "==", ">" or "span" (two limits).

    values: constants are one of so many; 0: any of 32 bits. share: of the values that a range lets
    through. keyed: the first predicate is always on field 0.
    """

    name: str
    predicates: tuple[str, ...]
    values: int = 0
    share: float = 0.05
    keyed: bool = False

    def top(self) -> int:
        """Returns the largest value that events have."""
        return self.values - 1 if self.values else TOP

    def draw(self, draw: random.Random, fields: int) -> list[Bounds]:
        """Returns the predicates of one rule."""
        chosen = draw.sample(range(fields), len(self.predicates))
        if self.keyed:
            others = [each for each in chosen if each]
            chosen = [0, *others[: len(self.predicates) - 1]]
        top, found = self.top(), []
        for field, kind in zip(chosen, self.predicates, strict=True):
            at = draw.randint(0, top)
            if kind == "==":
                found.append((field, at, at))
            elif kind == ">":
                found.append((field, min(at + 1, top), TOP))
            else:
                low = int(at * (1 - self.share))
                found.append((field, low, low + int(top * self.share)))
        return sorted(found)


EQUAL = Form("f == c", ("==",))
ABOVE = Form("f > c", (">",))
PAIR = Form("f == a and g == b", ("==", "=="))
KEYED = Form("f0 == key and f > c", ("==", ">"), keyed=True)
PAIR_OF_FEW = Form("f == a and g == b, of 1,000 values", ("==", "=="), values=1000)
SPANS = Form("a < f < b and c < g < d, 5 % each", ("span", "span"))

GROWTH: Sequence[tuple[Form, int, Sequence[int]]] = [
    *(
        (form, fields, (40, 1_000, 10_000, 100_000))
        for form in (EQUAL, ABOVE, KEYED)
        for fields in (3, 11, 50)
    ),
    *((PAIR, fields, (40, 1_000, 10_000, 100_000)) for fields in (3, 6, 11, 50)),
    (EQUAL, 1, (10_000, 100_000)),
    (PAIR, 3, (1_000_000,)),
]
FLOORS: Sequence[tuple[Form, int, int, float]] = [
    (PAIR_OF_FEW, 11, 10_000, 10e6),
    (SPANS, 11, 10_000, 4e6),
    (PAIR_OF_FEW, 50, 100_000, 1.5e6),
]
EDIT_SECONDS = 0.050


def measure(quick: bool) -> None:
    """Prints all measurements, and then what they should at least be."""
    for form, fields, counts in GROWTH:
        for count in counts:
            if not quick or count <= 1_000:
                Rules.drawn(form, fields, count).measure()
    floors(quick)
    peers(Rules.drawn(PAIR_OF_FEW, 11, 500 if quick else 10_000))
    edits(1_000 if quick else 100_000)


def floors(quick: bool) -> None:
    for form, fields, full, least in FLOORS:
        count = full // 100 if quick else full
        seen = Rules.drawn(form, fields, count).measure()
        floor(f"{count:,} x {form.name}, {fields} fields, M events/s", seen / 1e6, least / 1e6)


def floor(name: str, seen: float, wanted: float, at_most: bool = False) -> None:
    holds = seen <= wanted if at_most else seen >= wanted
    line = {
        "limit": name,
        "at_most" if at_most else "at_least": wanted,
        "seen": float(f"{seen:.4g}"),
    }
    print(json.dumps(line | {"holds": holds}), flush=True)


@dataclass(frozen=True)
class Rules:
    """Drawn rules, ``rules[i]`` for host i % 64, and events: uint64[fields, m]."""

    form: Form
    specification: Specification
    rules: Sequence[Sequence[Bounds]]
    values: NDArray[np.uint64]

    @classmethod
    def drawn(cls, form: Form, fields: int, count: int) -> Rules:
        draw = random.Random(f"{form.name} {fields} {count}")
        rules = [form.draw(draw, fields) for _ in range(count)]
        values = np.random.default_rng(1).integers(0, form.top(), (fields, EVENTS), np.uint64, True)
        return cls(form, specification(fields), rules, values)

    def table(self) -> TermTable:
        """Returns the rules as terms, without their text."""
        by_fields: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for at, rule in enumerate(self.rules):
            by_fields[tuple(field for field, _, _ in rule)].append(at)
        blocks = []
        for fields, members in by_fields.items():
            names = [f"e.f{field}" for field in fields]
            order = sorted(range(len(names)), key=names.__getitem__)
            bounds = np.array([self.rules[at] for at in members], np.uint64)
            blocks.append(
                TermBlock(
                    tuple(names[each] for each in order),
                    [np.ascontiguousarray(bounds[:, each, 1]) for each in order],
                    [np.ascontiguousarray(bounds[:, each, 2]) for each in order],
                    np.array(members, np.int32),
                )
            )
        outcome = np.arange(len(self.rules), dtype=np.int32) % HOSTS
        return TermTable(blocks, outcome, outcomes={(f"h{at}",): at for at in range(HOSTS)})

    def measure(self) -> float:
        """Prints what the set costs; returns the events a second."""
        table = self.table()
        named = range(len(self.rules)), table
        began = time.thread_time()
        compiled = GroupedCompiler(self.specification).update_table(*named, (), lambda: named)
        seconds = time.thread_time() - began
        delivered = Delivered(compiled)
        assert delivered.hosts(self.values[:, :BRUTE_EVENTS]) == brute_force(
            self.rules, self.values[:, :BRUTE_EVENTS]
        )
        say = Reporter()
        name = f"{len(self.rules):,} x {self.form.name}, {len(self.values)} fields"
        index = compiled.index
        events = say(
            name,
            lambda: delivered.deliveries(self.values),
            EVENTS,
            runs=5,
            rows=len(compiled.diagram.entries),
            terms=index.terms if index else 0,
            compile_seconds=round(seconds, 4),
            bytes=Matcher(compiled.diagram).nbytes + (index.nbytes if index else 0),
        )
        return EVENTS / events


class Delivered:
    """Finds the delivery of each event, as the stream does: both parts, then the union."""

    def __init__(self, compiled: Grouped) -> None:
        self._matcher = Matcher(compiled.diagram)
        found = list(dict.fromkeys(self._matcher.receivers))
        self._number = np.array([found.index(each) for each in self._matcher.receivers], np.int32)
        self._sets = ReceiverSets(found)
        self._index = None
        if compiled.index is not None:
            places = [int(name.removeprefix("e.f")) for name in compiled.index.fields]
            self._index = IndexDelivery(self._sets, compiled.index, places)
        self._places = [int(name.removeprefix("e.f")) for name in self._matcher.fields]

    def deliveries(self, values: NDArray[np.uint64]) -> NDArray[np.int32]:
        count = values.shape[1]
        none = np.zeros(count, np.uint8)
        delivery = self._number[self._matcher.match(none, values[self._places])]
        if self._index is None:
            return delivery
        events = SimpleNamespace(
            message_type=none, values=values, present=None, message_reason=none
        )
        return self._index.unite(delivery, events)

    def hosts(self, values: NDArray[np.uint64]) -> list[set[str]]:
        return [set(self._sets[at]) for at in self.deliveries(values).tolist()]


def specification(fields: int) -> Specification:
    names = [f"f{at}" for at in range(fields)]
    text = f"header_type e_t {{ fields {{ {' '.join(f'{name}: 32;' for name in names)} }} }} "
    asked = " ".join(f"@query_field(e.{name})" for name in names)
    return parse_specification(f"{text} header e_t e; {asked}", "fields")


def brute_force(rules: Sequence[Sequence[Bounds]], values: NDArray[np.uint64]) -> list[set[str]]:
    """Tries every rule on every event."""
    found: list[set[str]] = [set() for _ in range(values.shape[1])]
    for at, rule in enumerate(rules):
        true = np.ones(values.shape[1], np.bool_)
        for field, low, high in rule:
            true &= (values[field] >= np.uint64(low)) & (values[field] <= np.uint64(high))
        for event in np.flatnonzero(true).tolist():
            found[event].add(f"h{at % HOSTS}")
    return found


def peers(drawn: Rules) -> None:
    """Other ways over rules of two equalities, checked against ours."""
    say = Reporter(rules=len(drawn.rules), fields=len(drawn.values), events=EVENTS)
    table = drawn.table()
    named = range(len(drawn.rules)), table
    compiler = GroupedCompiler(drawn.specification)
    delivered = Delivered(compiler.update_table(*named, (), lambda: named))
    ours, few = "match, any fields", drawn.values[:, :10_000]
    expected = delivered.hosts(few)
    say(ours, lambda: delivered.deliveries(drawn.values), EVENTS)
    ways: list[tuple[str, Callable[[], Any]]] = [
        ("counting, numpy", counting(drawn.rules, few)),
        ("polars, join and count", polars_counting(drawn.rules, few)),
        ("duckdb, join and count", duckdb_counting(drawn.rules, few)),
    ]
    for name, work in ways:
        found: list[set[str]] = [set() for _ in range(few.shape[1])]
        for event, rule in zip(*(each.tolist() for each in work()), strict=True):
            found[event].add(f"h{rule % HOSTS}")
        assert found == expected, f"{name} disagrees"
        say(name, work, few.shape[1], ours, SLOW, time.process_time, events=few.shape[1])
    tried = drawn.values[:, :BRUTE_EVENTS]
    assert brute_force(drawn.rules, tried) == expected[:BRUTE_EVENTS]
    brute = "every rule for every event, numpy"
    say(brute, lambda: brute_force(drawn.rules, tried), BRUTE_EVENTS, ours, SLOW)


Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Events and the rules that match them."""


def counting(rules: Sequence[Sequence[Bounds]], values: NDArray[np.uint64]) -> Callable[[], Pairs]:
    """The counting algorithm (Yan and Garcia-Molina): a rule matches if both its predicates do."""
    flat = [(field, low, at) for at, rule in enumerate(rules) for field, low, _ in rule]
    field, low, rule = (np.array(column, np.int64) for column in zip(*flat, strict=True))
    sizes = np.bincount(rule)
    lists = []
    for each in range(len(values)):
        mine = np.flatnonzero(field == each)
        mine = mine[np.argsort(low[mine], kind="stable")]
        lists.append((low[mine].astype(np.uint64), rule[mine]))

    def work() -> Pairs:
        hits = []
        for column, (constants, of) in zip(values, lists, strict=True):
            first = np.searchsorted(constants, column)
            counts = np.searchsorted(constants, column, side="right") - first
            ends = np.cumsum(counts)
            place = np.repeat(first - (ends - counts), counts) + np.arange(counts.sum())
            hits.append(np.repeat(np.arange(len(column)), counts) * len(rules) + of[place])
        pair, times = np.unique(np.concatenate(hits), return_counts=True)
        pair = pair[times == sizes[pair % len(rules)]]
        return pair // len(rules), pair % len(rules)

    return work


def long_form(values: NDArray[np.uint64]) -> dict[str, Any]:
    fields, count = values.shape
    return {
        "event": np.tile(np.arange(count), fields),
        "field": np.repeat(np.arange(fields), count),
        "value": values.reshape(-1).astype(np.int64),
    }


def predicates(rules: Sequence[Sequence[Bounds]]) -> dict[str, Any]:
    flat = [(at, field, low) for at, rule in enumerate(rules) for field, low, _ in rule]
    columns = zip(*flat, strict=True)
    return dict(zip(("rule", "field", "value"), map(list, columns), strict=True))


def polars_counting(rules: Sequence[Sequence[Bounds]], values: NDArray[np.uint64]) -> Any:
    asked, events = polars.DataFrame(predicates(rules)), polars.DataFrame(long_form(values))

    def work() -> Pairs:
        hits = events.join(asked, on=["field", "value"]).group_by("event", "rule").len()
        found = hits.filter(polars.col("len") == 2)
        return found["event"].to_numpy(), found["rule"].to_numpy()

    return work


def duckdb_counting(rules: Sequence[Sequence[Bounds]], values: NDArray[np.uint64]) -> Any:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, columns in (("asked", predicates(rules)), ("events", long_form(values))):
        connection.register(f"{name}_in", pa.table(columns))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_in")
    query = """SELECT event, rule FROM events JOIN asked USING (field, value)
        GROUP BY event, rule HAVING count(*) = 2"""

    def work() -> Pairs:
        found = connection.execute(query).fetchnumpy()
        return found["event"], found["rule"]

    return work


def edits(count: int) -> None:
    """One subscription changed at a time, from its text to the filter."""
    draw = random.Random("edits")
    form, fields = PAIR_OF_FEW, 11

    def row(at: int) -> Subscription:
        first, second = form.draw(draw, fields)
        text = f"f{first[0]} == {first[1]} and f{second[0]} == {second[1]}"
        return Subscription(str(at), f"h{at % HOSTS}", text)

    rows = [row(at) for at in range(count)]
    live, hosts = LiveRules(specification(fields), "feed"), {f"h{at}" for at in range(HOSTS)}
    began = time.thread_time()
    live.update(rows, hosts)
    seconds = [time.thread_time() - began]
    for _ in range(EDITS):
        rows = list(rows)
        at = draw.randrange(count)
        rows[at] = row(at)
        began = time.thread_time()
        live.update(rows, hosts)
        seconds.append(time.thread_time() - began)
    line = {"name": f"{count:,} texts to a filter", "seconds": round(seconds[0], 3)}
    print(json.dumps(line), flush=True)
    typical, worst = float(np.median(seconds[1:])), max(seconds[1:])
    floor(f"an edit at {count:,} rules, ms", typical * 1e3, EDIT_SECONDS * 1e3, at_most=True)
    print(json.dumps({"name": "the slowest edit", "seconds": round(worst, 4)}), flush=True)
