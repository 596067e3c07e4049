"""With state, any slicing of a source gives what one event after the other gives."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from plain_matcher import PlainStatefulMatcher

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.compiler.compile import CheckedRule, compile_rules
from stackcast.udfs.filters.compiler.tables import CompiledFilter
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.matching.cells import Carried, StatefulMatcher
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.interpreter import EventResult, Interpreter
from stackcast.udfs.filters.meaning.state import Cell
from stackcast.udfs.filters.nodes import Call, Rule, Update
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

SPEC = parse_specification(
    """
    header_type order_t { fields { message_type: 8; stock: 16; price: 8; big: 64; } }
    @message_type("A") header order_t order;
    header_type trade_t { fields { message_type: 8; price: 8; } }
    @message_type("P") header trade_t trade;
    @query_field_exact(order.stock)
    @query_field(order.price)
    @query_counter(seen, 20)
    @query_counter(spent, 7, 4)
    """,
    "state",
)
TOP = (1 << 64) - 1
FIELDS = ("order.stock", "order.price", "order.big", "trade.price")
CONSTANTS = {"order.stock": [1, 2], "order.price": [10, 20, 30], "order.big": [0, 5, TOP]}

PLAIN = [f"{n} {o} {v}" for n, vs in CONSTANTS.items() for v in vs for o in ("==", ">")]
READ = [
    *(f"{name} {o} {v}" for name in ("seen", "spent") for o in (">", "==") for v in (0, 2, 40)),
    *(f"count(){o} {v}" for o in ("<", ">=") for v in (1, 3)),
    *(f"{f}({n}){o} {v}" for f in ("sum", "avg", "min", "max") for n in ("order.price", "order.big")
      for o in ("<=", ">") for v in (15, 25)),
    f"sum(order.big) == {TOP}",
    "avg(order.price, 5) > 15",
    "max(trade.price, 9) > 15",
    *(f"changed({name})" for name in FIELDS),
    *(f"moved({name}, {band})" for name in FIELDS[1:] for band in (1, 2, 10)),
    f"moved(order.big, {TOP // 2})",
]  # fmt: skip
UPDATES = ["seen <- count()", "spent <- sum(order.price)", "spent <- sum(order.big)"]


@st.composite
def texts(draw) -> str:
    parts = draw(st.lists(st.sampled_from(PLAIN) | st.sampled_from(READ), min_size=1, max_size=3))
    parts = [f"not ({part})" if draw(st.integers(0, 4)) == 0 else part for part in parts]
    joined = parts[0]
    for part in parts[1:]:
        joined = f"({joined}) {draw(st.sampled_from(['and', 'and', 'or']))} {part}"
    actions = draw(
        st.lists(
            st.sampled_from(["fwd(h1)", "fwd(h2, h3)", "fwd(2, 10)", "mark(7)", *UPDATES]),
            min_size=1,
            max_size=3,
        )
    )
    return f"{joined} : {{ {'; '.join(actions)} }}"


@st.composite
def events(draw) -> tuple[int, dict[str, int], int]:
    """(message type, raw values, time); time mostly advances, and sometimes goes back."""
    step = draw(st.integers(-3, 9) | st.sampled_from([-40, -20, -7, 30]))
    kind = draw(st.sampled_from("AAAPZ"))
    if kind == "A":
        event = {
            "order.stock": draw(st.integers(1, 2)),
            "order.price": draw(st.sampled_from([9, 10, 11, 20, 30, 31])),
            "order.big": draw(st.sampled_from([0, 1, 5, TOP - 3, TOP])),
        }
    else:
        event = {"trade.price": draw(st.integers(10, 20))} if kind == "P" else {}
    return ord(kind), event, step


def compiled_of(rules: Sequence[Rule]) -> CompiledFilter:
    checked = [
        CheckedRule(
            str(number),
            rule.condition,
            rule.receivers,
            tuple(a for a in rule.actions if isinstance(a, Call)),
            tuple(a for a in rule.actions if isinstance(a, Update)),
        )
        for number, rule in enumerate(rules)
    ]
    return compile_rules(checked, SPEC)


class Source:
    """One source, taken slice by slice."""

    def __init__(self, compiled: CompiledFilter, kind: type[StatefulMatcher]) -> None:
        self.matcher = pickle.loads(pickle.dumps(kind(compiled)))
        self.carried: Carried | None = None

    def take(self, batch, times) -> list[tuple[tuple[str, ...], tuple[Call, ...]]]:
        walker = self.matcher.matcher
        rows = [[event.get(name, 0) for _, event, _ in batch] for name in walker.fields]
        values = np.array(rows, np.uint64).reshape(len(rows), len(batch))
        types = np.array([kind for kind, _, _ in batch], np.uint8)
        # Tasks walk parts of the slice, in whatever order.
        parts = [slice(at, at + 3) for at in range(0, len(batch), 3)]
        codes = np.empty(len(batch), np.int32)
        for part in reversed(parts):
            codes[part] = walker.walk(types[part], values[:, part])
        leaves, self.carried = self.matcher.run(
            codes, values, np.array(times, np.int64), self.carried
        )
        outcomes = [walker.outcomes[leaf] for leaf in leaves]
        return [(o.receivers, o.calls) for o in outcomes]


def stepped(reference: Interpreter, batch, times) -> list[tuple[tuple[str, ...], tuple[Call, ...]]]:
    steps: list[EventResult] = [
        reference.step(event, time) for (_, event, _), time in zip(batch, times, strict=True)
    ]
    return [(step.receivers, step.calls) for step in steps]


@examples(100)
@given(
    st.lists(texts(), min_size=1, max_size=5),
    st.lists(events(), min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
)
def test_any_slicing_of_a_source_is_the_interpreter_on_the_whole(written, batch, cuts):
    rules = [parse_rule(text, SPEC) for text in written]
    try:
        compiled = compiled_of(rules)
    except SubscriptionError as error:
        assert error.what == "TOO_COMPLEX"
        return
    times = (1000 + np.cumsum([step for _, _, step in batch])).tolist()
    expected = stepped(Interpreter(rules, SPEC), batch, times)
    edges = sorted({0, *(cut for cut in cuts if cut < len(batch)), len(batch)})
    for kind in (StatefulMatcher, PlainStatefulMatcher):
        whole, sliced = Source(compiled, kind), Source(compiled, kind)
        assert whole.take(batch, times) == expected
        found = []
        for begin, end in pairwise(edges):
            found += sliced.take(batch[begin:end], times[begin:end])
        assert found == expected
        assert sliced.carried is not None and whole.carried is not None
        assert sliced.carried.cells.tolist() == whole.carried.cells.tolist()


def test_rules_without_state_are_matched_at_once():
    compiled = compiled_of([parse_rule("order.price > 10 : fwd(h1)", SPEC)])
    assert not Matcher(compiled).stateful
    source = Source(compiled, StatefulMatcher)
    assert source.take([(65, {"order.price": 11}, 0)], [0]) == [(("h1",), ())]


@pytest.mark.parametrize(
    "text", ["seen > 1 : fwd(h1)", "order.price > 10 : seen <- count()", "count(9) > 1 : fwd(h1)"]
)
def test_rules_with_state_are_not_matched_without_it(text):
    matcher = Matcher(compiled_of([parse_rule(text, SPEC)]))
    assert matcher.stateful
    with pytest.raises(ValueError, match="StatefulMatcher"):
        matcher.match(np.zeros(1, np.uint8), np.zeros((len(matcher.fields), 1), np.uint64))


def test_cells_go_with_their_names_into_another_version_of_the_rules():
    counting = "order.price > 0 : seen <- count()"
    before = [counting, "seen > 1 : fwd(h1)", "order.stock == 2 and avg(order.price) > 1 : fwd(h9)"]
    after = [counting, "seen > 1 : fwd(h2)", "order.stock == 1 and avg(order.price) > 1 : fwd(h8)"]
    source = Source(compiled_of([parse_rule(text, SPEC) for text in before]), StatefulMatcher)
    order = (65, {"order.stock": 2, "order.price": 9}, 0)
    assert [r for r, _ in source.take([order] * 3, [0, 1, 2])] == [(), ("h9",), ("h1", "h9")]
    other = Source(compiled_of([parse_rule(text, SPEC) for text in after]), PlainStatefulMatcher)
    other.carried = source.carried
    one = (65, {"order.stock": 1, "order.price": 9}, 0)
    assert [r for r, _ in other.take([one] * 2, [3, 4])] == [("h2",), ("h2", "h8")]
    assert source.carried is not None and len(source.carried.names) == 2


def test_a_variable_that_another_function_updates_starts_empty():
    source = Source(
        compiled_of([parse_rule("order.price > 0 : seen <- count()", SPEC)]), StatefulMatcher
    )
    source.take([(65, {"order.price": 9}, 0)] * 3, [0, 1, 2])
    texts = ["order.price > 0 : seen <- avg(order.price)", "seen >= 0 : fwd(h1)"]
    other = Source(compiled_of([parse_rule(text, SPEC) for text in texts]), StatefulMatcher)
    other.carried = source.carried
    assert other.take([(65, {"order.price": 9}, 0)] * 2, [3, 4]) == [((), ()), (("h1",), ())]


def test_windows_are_compared_in_the_unit_of_the_clock():
    compiled = compiled_of([parse_rule("count(2) > 0 : fwd(h1)", SPEC)])
    order = np.zeros((0, 4), np.uint64)
    for kind in (StatefulMatcher, PlainStatefulMatcher):
        matcher = kind(compiled, units=1000)
        codes = matcher.matcher.walk(np.full(4, 65, np.uint8), order)
        times = np.array([10**18, 10**18 + 1999, 10**18 + 2000, 10**18 + 2001])
        leaves, _ = matcher.run(codes, order, times)
        owed = [matcher.matcher.receivers[leaf] for leaf in leaves]
        assert owed == [(), ("h1",), (), ("h1",)]


def test_what_came_before_is_not_changed():
    compiled = compiled_of([parse_rule("count(2) > 0 : fwd(h1)", SPEC)])
    matcher = StatefulMatcher(compiled)
    nothing = np.zeros((0, 1), np.uint64)
    codes = matcher.matcher.walk(np.full(1, 65, np.uint8), nothing)
    _, first = matcher.run(codes, nothing, np.array([5]))
    kept = first.cells.copy()
    matcher.run(codes, nothing, np.array([6]), first)
    assert first.cells.tolist() == kept.tolist() == [(5, 1, 0)]
    assert matcher.cells == (Cell(first.names[0], "count", None, 2),)
    with pytest.raises(ValueError, match="times"):
        matcher.run(codes, nothing, np.array([5, 6]))
