"""One meaning, six ways: syntax tree, columns, normal form, rows, compiled loops and vectors."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from plain_matcher import PlainMatcher

from stackcast import schemas
from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.compiler.compile import CheckedRule, compile_rules
from stackcast.udfs.filters.compiler.tables import DEFAULT, ENTRY, KINDS, RANGE, CompiledFilter
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.matching import kernels
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.evaluate import fields_of, matches, matches_columns
from stackcast.udfs.filters.meaning.normal_form import normal_form
from stackcast.udfs.filters.nodes import And, Node, Not, Or, Outcome, Predicate
from stackcast.udfs.messages.moldudp64 import decode
from stackcast.udfs.messages.reference import build_packet, read_message
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit


SPEC = parse_specification(
    """
    header_type frame_t { fields { kind: 4; rest: 4; } }
    header frame_t frame;
    header_type order_t { fields {
        message_type: 8; @string stock: 64; price: 32; side: 2; rest: 6;
    } }
    @message_type("A") header order_t order;
    header_type trade_t { fields { message_type: 8; price: 32; flag: 1; rest: 7; } }
    @message_type("P") header trade_t trade;
    @query_field_exact(order.stock)
    @query_field(order.price)
    @query_field_exact(order.side)
    @query_field_exact(trade.flag)
    """,
    "three",
)
FIELDS = {f.qualified: f for h in SPEC.headers for f in h.fields if f.name != "rest"}
ALWAYS = SPEC.headers[0]
TYPED = {chr(h.message_type): h for h in SPEC.headers if h.message_type is not None}
HOSTS = ("h1", "h2", "h3")

# Few constants for each field, the ends of its domain among them, so that they collide.
CONSTANTS = {
    name: sorted({0, 1, 2, 65, 80, 1000, (1 << f.bits) - 2, (1 << f.bits) - 1} & {*range(1 << 7)})
    if f.bits <= 8
    else [0, 1, 2, 1000, 1001, (1 << f.bits) - 2, (1 << f.bits) - 1]
    for name, f in FIELDS.items()
}
CONSTANTS = {n: [v for v in vs if v < 1 << FIELDS[n].bits] for n, vs in CONSTANTS.items()}


@st.composite
def predicates(draw) -> Predicate:
    name = draw(st.sampled_from(sorted(FIELDS)))
    operator = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    value = draw(st.sampled_from(CONSTANTS[name]))
    return Predicate(FIELDS[name], operator, ((value, value),), f"{name} {operator} {value}", 1, 1)


def _wider(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    return several.map(And) | several.map(Or) | children.map(Not)


conditions = st.recursive(predicates(), _wider, max_leaves=8)
rules = st.lists(
    st.builds(
        CheckedRule,
        st.just("r"),
        conditions,
        st.lists(st.sampled_from(HOSTS), min_size=1, max_size=2, unique=True).map(tuple),
    ),
    max_size=8,
)


@st.composite
def events(draw) -> tuple[int, dict[str, int]]:
    """(message type, raw values of the headers that are there); Z is a type without header."""
    kind = draw(st.sampled_from("APZ"))
    headers = [ALWAYS, *([TYPED[kind]] if kind in TYPED else [])]
    event = {}
    for part in headers:
        for f in part.fields:
            if f.qualified not in FIELDS:
                continue
            near = [v + d for v in CONSTANTS[f.qualified] for d in (-1, 0, 1)]
            allowed = [v for v in near if 0 <= v < 1 << f.bits]
            event[f.qualified] = draw(st.sampled_from(allowed))
    if kind in TYPED:
        event[f"{TYPED[kind].name}.message_type"] = ord(kind)
    return ord(kind), event


def walk_rows(compiled: CompiledFilter, message_type: int | None, event: Mapping[str, int]):
    """An interpreter of the tables as people read them: field by field, row by row."""
    state = compiled.root
    rows = list(compiled.entry_rows())
    for name in compiled.fields:
        value = message_type if name == "message_type" else event.get(name)
        mine = [row for row in rows if row["field"] == name and row["state"] == state]
        if not mine:
            continue
        if value is None:
            kinds = {row["kind"]: row["next"] for row in mine}
            state = kinds["absent"] if "absent" in kinds else kinds["default"]
            continue
        fitting = [
            (high - low, row["next"])
            for row in mine
            if row["kind"] not in ("default", "absent")
            for low, high in [(int.from_bytes(row["low"]), int.from_bytes(row["high"]))]
            if low <= value <= high
        ]
        assert len(fitting) <= 1 or any(row["kind"] == "lpm" for row in mine), "rows overlap"
        default = [row["next"] for row in mine if row["kind"] == "default"]
        state = min(fitting)[1] if fitting else default[0]
    return compiled.leaves[state]


def normal_form_matches(node: Node, message_type: int, event: Mapping[str, int]) -> bool:
    values = {**event, "message_type": message_type}
    return any(
        all(
            any(low <= values[name] <= high for low, high in allowed)
            for name, allowed in term
            if name == "message_type" or name in values
        )
        and all(name in values for name, _ in term)
        for term in normal_form(node, SPEC)
    )


def columns_of(batch: list[tuple[int, dict[str, int]]], names) -> np.ndarray:
    rows = [[event.get(name, 0) for _, event in batch] for name in names]
    return np.array(rows, np.uint64).reshape(len(rows), len(batch))


@examples(250)
@given(rules, st.lists(events(), min_size=1, max_size=12))
def test_everybody_agrees_on_who_gets_an_event(checked, batch):
    try:
        compiled = compile_rules(checked, SPEC)
    except SubscriptionError as error:
        assert error.what == "TOO_COMPLEX"
        return
    matcher = pickle.loads(pickle.dumps(Matcher(compiled)))
    types = np.array([kind for kind, _ in batch], np.uint8)
    leaves = matcher.match(types, columns_of(batch, matcher.fields))
    assert leaves.dtype == np.int32
    by_vectors = PlainMatcher(compiled).match(types, columns_of(batch, matcher.fields))
    assert (by_vectors == leaves).all()

    present = {
        h.name: np.array([h.message_type in (None, kind) for kind, _ in batch])
        for h in SPEC.headers
    }
    columns = dict(zip(FIELDS, columns_of(batch, FIELDS), strict=True))
    by_column = [matches_columns(rule.condition, columns, present) for rule in checked]

    for position, (kind, event) in enumerate(batch):
        hits = [matches(rule.condition, event) for rule in checked]
        expected = tuple(
            sorted({h for r, hit in zip(checked, hits, strict=True) if hit for h in r.receivers})
        )
        assert [bool(column[position]) for column in by_column] == hits
        assert [normal_form_matches(r.condition, kind, event) for r in checked] == hits
        assert walk_rows(compiled, kind, event) == expected
        assert matcher.receivers[leaves[position]] == expected
        assert (leaves[position] == 0) == (expected == ())


# Rows as no compiler need make them: every kind, whole domains of 64 bits, crowds of constants.
NUMBERS = parse_specification(
    """
    header_type wide_t { fields { a: 64; b: 8; c: 64; } }
    header wide_t wide;
    @query_field_lpm(wide.a) @query_field(wide.b) @query_field_exact(wide.c)
    """,
    "numbers",
)
WIDTHS = {1: 64, 2: 8, 3: 64}


@st.composite
def row_sets(draw, field: int) -> list[tuple[int, int, str]]:
    """Rows (low, high, kind) of one state but its default and absent rows."""
    bits = WIDTHS[field]
    top = (1 << bits) - 1
    edges = [0, 1, 2, 3, top - 1, top, 1 << bits - 1, (1 << bits - 1) - 1]
    values = st.sampled_from(edges) | st.integers(0, top)
    if bits == 64:
        values |= st.integers(0, 100).map(lambda n: 0x4141202020202020 + (n << 40))
    if field == 1 and draw(st.booleans()):
        prefixes = set()
        for value in draw(st.lists(values, max_size=30)):
            height = draw(st.integers(0, bits))
            low = value >> height << height
            prefixes.add((low, low + (1 << height) - 1, "lpm"))
        return sorted(prefixes)
    if draw(st.booleans()):
        return [(v, v, "exact") for v in sorted(set(draw(st.lists(values, max_size=60))))]
    points = sorted(set(draw(st.lists(values, max_size=40))))
    pairs = zip(points[::2], points[1::2], strict=False)
    return [(low, high, "exact" if low == high else "range") for low, high in pairs]


@st.composite
def compiled_forms(draw) -> CompiledFilter:
    counts = [draw(st.integers(1, 3)) for _ in WIDTHS]
    leaf = 1 + sum(counts)
    leaves = {leaf + n: Outcome((f"h{n}",) if n else ()) for n in range(4)}
    entries = [(0, 0, 65, 65, "exact", 1)]
    states = [(0, 0)]
    for field, count in zip(WIDTHS, counts, strict=True):
        states += [(field, len(states) + n) for n in range(count)]
    for field, state in states:
        later = [other for level, other in states if level > field] + list(leaves)
        following = st.sampled_from(later)
        top = (1 << WIDTHS.get(field, 8)) - 1
        if field:
            for low, high, kind in draw(row_sets(field)):
                entries.append((field, state, low, high, kind, draw(following)))
        entries.append((field, state, 0, top, "default", draw(following)))
        if draw(st.booleans()):
            entries.append((field, state, 0, 0, "absent", draw(following)))
    rows = [(*row[:4], KINDS.index(row[4]), row[5]) for row in entries]
    return CompiledFilter(
        fields=("message_type", "wide.a", "wide.b", "wide.c"),
        definitions=tuple(NUMBERS.headers[0].fields),
        entries=np.array(rows, ENTRY),
        outcomes=leaves,
        root=0,
    )


@st.composite
def partial_events(draw, compiled: CompiledFilter) -> tuple[int | None, dict[str, int]]:
    """Values at and beside the constants of the rows; fields may be absent."""
    event = {}
    for field, bits in WIDTHS.items():
        ends = compiled.entries[compiled.entries["field"] == field]
        near = [int(v) for v in (*ends["low"], *ends["high"])]
        value = draw(st.sampled_from(near)) + draw(st.integers(-1, 1))
        if draw(st.integers(0, 5)):
            event[compiled.fields[field]] = min(max(value, 0), (1 << bits) - 1)
    return draw(st.sampled_from([65, 66, None])), event


@examples(150)
@given(st.data())
def test_rows_of_every_kind_are_taken_as_people_read_them(data):
    compiled = data.draw(compiled_forms())
    batch = data.draw(st.lists(partial_events(compiled), min_size=1, max_size=30))
    for matching in (Matcher, PlainMatcher):
        matcher = matching(compiled)
        present = np.array([[n in event for _, event in batch] for n in matcher.fields])
        values = columns_of(batch, matcher.fields)
        types = np.array([kind or 0 for kind, _ in batch], np.uint8)
        untyped = matcher.match(None, values, present)
        typed = matcher.match(types, values, present)
        complete = matcher.match(types, values)
        for at, (kind, event) in enumerate(batch):
            leaf = untyped[at] if kind is None else typed[at]
            assert matcher.receivers[leaf] == walk_rows(compiled, kind, event)
            full = dict(zip(matcher.fields, values[:, at].tolist(), strict=True))
            expected = walk_rows(compiled, kind or 0, full)
            assert matcher.receivers[complete[at]] == expected


def test_constants_that_crowd_are_found_all_the_same():
    """One far constant, and thousands where buckets for all of them would be one."""
    top = (1 << 64) - 1
    points = [*range(7, 40007, 2), top - 5]
    rows = [(1, 1, p, p + 1 - p % 2, RANGE, 2 + n % 2) for n, p in enumerate(points)]
    entries = [(0, 0, 0, 255, DEFAULT, 1), *rows, (1, 1, 0, top, DEFAULT, 4)]
    compiled = CompiledFilter(
        ("message_type", "wide.a"),
        tuple(NUMBERS.headers[0].fields[:1]),
        np.array(entries, ENTRY),
        {2: Outcome(("h2",)), 3: Outcome(("h3",)), 4: Outcome()},
        0,
    )
    values = np.array([[0, 6, *range(7, 40010), top - 6, top - 5, top - 4, top]], np.uint64)
    lows = np.array([row[2] for row in rows], np.uint64)
    at = np.searchsorted(lows, values[0], side="right").astype(int) - 1
    held = [
        n >= 0 and v <= rows[n][3] for n, v in zip(at.tolist(), values[0].tolist(), strict=True)
    ]
    expected = [(f"h{2 + n % 2}",) if h else () for n, h in zip(at.tolist(), held, strict=True)]
    for matching in (Matcher, PlainMatcher):
        matcher = matching(compiled)
        leaves = matcher.match(np.zeros(values.shape[1], np.uint8), values)
        assert [matcher.receivers[leaf] for leaf in leaves] == expected


def test_one_compiled_loop_serves_every_layout_of_the_columns():
    compiled = compile_rules([CheckedRule("r", price(">", 5), ("h1",))], SPEC)
    matcher = Matcher(compiled)
    values = np.arange(12, dtype=np.uint64).reshape(12, 1).T
    types = np.full(12, ord("A"), np.uint8)
    expected = matcher.match(types, np.ascontiguousarray(values)).tolist()
    before = len(kernels.walk.signatures)
    fixed, wider = values.copy(), np.zeros((2, 24), np.uint64)
    fixed.flags.writeable = False
    wider[:1, ::2] = values
    for columns in (fixed, wider[:1, ::2], np.asfortranarray(values)):
        assert matcher.match(types, columns).tolist() == expected
    everywhere = np.ones((1, 12), bool)
    everywhere.flags.writeable = False
    assert matcher.match(types, values, everywhere).tolist() == expected
    assert len(kernels.walk.signatures) == before == 1


def price(operator: str, value: int) -> Predicate:
    return Predicate(FIELDS["order.price"], operator, ((value, value),), "", 1, 1)


@pytest.mark.parametrize(
    ("condition", "order", "other"),
    [
        (price(">=", 0), True, False),
        (Not(price(">=", 0)), False, False),
        (Not(price("==", 5)), True, False),
        (Or((price("<", 5), Not(price("<", 5)))), True, False),
        (And((price("<", 5), price(">", 5))), False, False),
        (Not(And((price("<", 5), price(">", 5)))), True, False),
        (price(">", (1 << 32) - 1), False, False),
        (price("<", 0), False, False),
    ],
)
def test_a_message_without_the_header_never_matches_not_even_a_negation(condition, order, other):
    matcher = Matcher(compile_rules([CheckedRule("r", condition, ("h1",))], SPEC))
    types = np.frombuffer(b"AP", np.uint8)  # read-only, as Arrow buffers are
    values = np.full((len(matcher.fields), 2), 7, np.uint64)
    assert (matcher.match(types, values) > 0).tolist() == [order, other]
    assert matches(condition, {"order.price": 7}) is order
    assert matches(condition, {"trade.price": 7}) is other


def test_the_matcher_asks_only_for_fields_that_decide():
    vain = And((price(">", 5), price("<", 5)))
    side = Predicate(FIELDS["order.side"], "==", ((1, 1),), "", 1, 1)
    matcher = Matcher(compile_rules([CheckedRule("r", Or((vain, side)), ("h1",))], SPEC))
    assert matcher.fields == ("order.side",)
    assert matcher.receivers == [(), ("h1",)]


ITCH = parse_specification(
    (Path(schemas.__file__).parent / "messages" / "itch.spec").read_text("utf-8"), "itch"
)


def itch_message(name: str, **values: str | int | Decimal) -> bytes:
    """A message of the real format with the given fields, all others zero."""
    part = next(h for h in ITCH.headers if h.name == name)
    raw = {f.name: f.encode(values[f.name]) if f.name in values else 0 for f in part.fields}
    raw["message_type"] = part.message_type
    whole = 0
    for f in part.fields:
        whole = whole << f.bits | raw[f.name]
    return whole.to_bytes(part.length, "big")


REAL = [
    itch_message("add_order", stock="GOOGL", price=60, shares=100, buy_sell="B"),
    itch_message("add_order", stock="AAPL", price=Decimal("150.5001"), shares=5000),
    itch_message("order_executed", executed_shares=101),
    itch_message("system_event", event_code="O"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price > 50", [1, 1, 0, 0]),
        ("not price > 50", [0, 0, 0, 0]),
        ("price > 50 or not price > 50", [1, 1, 0, 0]),
        ("price > 50 or order_executed.executed_shares > 100", [1, 1, 1, 0]),
        ("price > 50 and order_executed.executed_shares > 100", [0, 0, 0, 0]),
        ("stock == GOOGL", [1, 0, 0, 0]),
        ("stock != GOOGL", [0, 1, 0, 0]),
        ("stock == AAPL or stock == MSFT or stock == GOOGL", [1, 1, 0, 0]),
        ("stock == AAPL and (price > 150.5 or shares >= 5001)", [0, 1, 0, 0]),
        ("price >= 50 and price <= 60 and buy_sell == B", [1, 0, 0, 0]),
        ("system_event.message_type == S", [0, 0, 0, 1]),
        ("not system_event.message_type == S", [0, 0, 0, 0]),
    ],
)
def test_the_examples_of_the_manual_from_packet_to_leaf(text: str, expected: list[int]):
    condition = parse_rule(text, ITCH).condition
    matcher = Matcher(compile_rules([CheckedRule("r", condition, ("h1",))], ITCH))
    damaged = [b"A" + REAL[0], b"?", b"", b"P"]
    packet = np.frombuffer(build_packet(b"SESSION   ", 1, REAL + damaged), np.uint8)
    columns = [ITCH.field(name) for name in matcher.fields]
    batch = decode(ITCH, np.array([0, packet.size], np.int32), packet, columns)
    leaves = matcher.match(batch.message_type, batch.values)
    assert (leaves > 0).astype(int).tolist() == expected + [0] * len(damaged)
    assert [int(matches(condition, read_message(ITCH, real))) for real in REAL] == expected


def test_values_of_another_shape_are_refused():
    matcher = Matcher(compile_rules([CheckedRule("r", price(">", 5), ("h1",))], SPEC))
    with pytest.raises(ValueError, match=r"\(1, 2\) is expected"):
        matcher.match(np.zeros(2, np.uint8), np.zeros((2, 2), np.uint64))
    with pytest.raises(ValueError, match="present has shape"):
        matcher.match(None, np.zeros((1, 2), np.uint64), np.ones((1, 3), bool))
    assert matcher.match(np.zeros(0, np.uint8), np.zeros((1, 0), np.uint64)).shape == (0,)


def test_fields_of_a_condition_are_named_once():
    assert fields_of(Not(Or((price(">", 5), price("<", 9))))) == ("order.price",)


def test_many_fields_are_no_deeper_than_few():
    fields = "".join(f"f{i}: 8; " for i in range(1500))
    spec = parse_specification(
        f"header_type wide_t {{ fields {{ {fields} }} }} header wide_t wide;", "wide"
    )
    condition = And(tuple(Predicate(f, "==", ((1, 1),), "", 1, 1) for f in spec.headers[0].fields))
    matcher = Matcher(compile_rules([CheckedRule("r", condition, ("h1",))], spec))
    values = np.ones((1500, 2), np.uint64)
    values[1499, 1] = 2
    assert matcher.match(np.zeros(2, np.uint8), values).tolist() == [1, 0]
