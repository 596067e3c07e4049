"""State: windows, what an event finds and what it leaves, macros and their cells, variables."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.interpreter import EventResult, Interpreter
from stackcast.udfs.filters.meaning.state import (
    EMPTY,
    Cell,
    add_updates,
    clock_of,
    describe,
    reading,
    resolve_variables,
    split,
    updated,
)
from stackcast.udfs.filters.nodes import (
    Aggregate,
    And,
    Call,
    Forward,
    Not,
    Or,
    Predicate,
    Rule,
    StatePredicate,
    Update,
)
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

FUNCTIONS = ("count", "sum", "avg", "min", "max")
CAMUS = """
    header_type itch_add_order_t { fields { stock_locate: 16; shares: 32; stock: 64; price: 32; } }
    header itch_add_order_t add_order;
    @query_field(add_order.shares)
    @query_field(add_order.price)
    @query_field_exact(add_order.stock)
    @query_counter(my_counter, 100, 1024)
    @query_counter(other, 50)
"""
SPEC = parse_specification(CAMUS, "camus")
STOCK, PRICE, SHARES = (SPEC.fields[f"add_order.{n}"] for n in ("stock", "price", "shares"))
COUNTER, OTHER = SPEC.counters
GOOGL, MSFT = (int.from_bytes(name.ljust(8).encode(), "big") for name in ("GOOGL", "MSFT"))

TYPED = parse_specification(
    """
    header_type add_t { fields { message_type: 8; @clock(1000) time: 48; stock: 8; price: 8; } }
    @message_type("A") header add_t add;
    header_type cancel_t { fields { message_type: 8; @clock(1000) time: 48; shares: 8; } }
    @message_type("X") header cancel_t cancel;
    @query_counter(seen, 2)
    """,
    "typed",
)
(SEEN,) = TYPED.counters


def compare(subject, operator, value: int) -> StatePredicate:
    return StatePredicate(subject, operator, value, "", 1, 1)


def field(one, operator, *values: int) -> Predicate:
    return Predicate(one, operator, tuple((v, v) for v in values), "", 1, 1)


def macro(function, one=None, window: int = 100) -> Aggregate:
    return Aggregate(function, one, window)


def moved(one, band: int = 1) -> StatePredicate:
    """``changed(one)``, or ``moved`` by so many raw values."""
    return compare(Aggregate("moved", one, band), "==", 1)


def order(stock: int, price: int, shares: int = 1) -> dict[str, int]:
    return {"add_order.stock": stock, "add_order.price": price, "add_order.shares": shares}


def macro_cells(interpreter: Interpreter) -> list[Cell]:
    variables = {counter.name for counter in SPEC.counters}
    return [cell for cell in interpreter.cells if cell.name not in variables]


def matching(interpreter: Interpreter, *timeline: tuple[int, dict[str, int]]) -> list[bool]:
    return [bool(interpreter.step(event, time).rules) for time, event in timeline]


@given(
    st.sampled_from(FUNCTIONS),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, (1 << 64) - 1) | st.integers(0, 5))),
    st.integers(0, 90),
)
def test_three_numbers_say_what_the_updates_of_the_open_window_say(function, window, updates, at):
    state = EMPTY
    start, values = None, []
    for time, raw in updates:
        state = updated(function, state, window, time, raw)
        if start is None or not start - window < time < start + window:
            start, values = time, []
        values.append(raw)
    if start is not None and not start - window < at < start + window:
        values = []
    total = min(sum(values), (1 << 64) - 1)
    wanted = {
        "count": len(values),
        "sum": total,
        "avg": total // len(values) if values else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
    }
    assert reading(function, state, window, at) == wanted[function]


@pytest.mark.parametrize(
    ("function", "found"),
    [
        ("count", [0, 1, 2, 3, 0]),
        ("sum", [0, 10, 15, 45, 0]),
        ("avg", [None, 10, 7, 15, None]),
        ("min", [None, 10, 5, 5, None]),
        ("max", [None, 10, 10, 30, None]),
    ],
)
def test_each_function_over_one_window(function, found):
    """Prices 10, 5, 30 at times 1000, 1040, 1099; then the window [1000, 1100) is over."""
    interpreter = Interpreter([Rule(compare(macro(function, PRICE), ">=", 0))], SPEC)
    (cell,) = macro_cells(interpreter)
    seen = []
    for time, price in [(1000, 10), (1040, 5), (1099, 30), (1099, 0), (1100, 7)]:
        seen.append(interpreter.finds(cell.name, time))
        if price:
            interpreter.step(order(GOOGL, price), time)
    assert seen == found


def test_the_papers_rule_from_text_to_receivers():
    """stock == GOOGL and avg(price) > 50, with a window of 100 us: event by event."""
    rule = parse_rule("stock == GOOGL ^ avg(price) > 50 : fwd(1)", SPEC)
    interpreter = Interpreter([rule], SPEC)
    (cell,) = macro_cells(interpreter)
    assert cell == Cell(
        "avg(add_order.price) per 100 us where add_order.stock == GOOGL",
        "avg",
        "add_order.price",
        100,
    )
    timeline = [
        # time, stock, price, average that the event finds, whether it is forwarded
        (0, GOOGL, 60, None, False),
        (10, GOOGL, 20, 60, True),
        (20, MSFT, 999, 40, False),
        (30, GOOGL, 90, 40, False),
        (40, GOOGL, 70, 56, True),
        (99, GOOGL, 80, 60, True),
        (100, GOOGL, 80, None, False),
        (90, GOOGL, 40, 80, True),
        (150, GOOGL, 10, 60, True),
        (0, GOOGL, 70, None, False),
    ]
    for time, stock, price, average, forwarded in timeline:
        assert interpreter.finds(cell.name, time) == average
        wanted = EventResult((0,), ("1",), ()) if forwarded else EventResult((), (), ())
        assert interpreter.step(order(stock, price), time) == wanted


def test_a_window_lasts_from_its_first_update_to_just_before_its_length_is_over():
    often = Interpreter([Rule(compare(macro("count"), ">=", 1))], SPEC)
    event = order(GOOGL, 1)
    assert matching(often, (1000, event), (1099, event)) == [False, True]
    # The event at 1100 finds nothing and opens [1100, 1200); no grid of times is behind it.
    assert matching(often, (1100, event), (1199, event), (1200, event)) == [False, True, False]


def test_an_event_older_than_the_window_by_less_than_one_counts_in_it():
    often = Interpreter([Rule(compare(macro("count"), ">=", 1))], SPEC)
    event = order(GOOGL, 1)
    assert matching(often, (1000, event), (901, event), (1099, event), (1100, event)) == [
        False,
        True,
        True,
        False,
    ]
    assert often.finds("count() per 100 us", 1001) == 1


def test_a_clock_that_starts_anew_finds_empty_cells():
    """As that of a feed which counts from midnight, or of a source after its restart."""
    often = Interpreter([Rule(compare(macro("count"), ">=", 1))], SPEC)
    event = order(GOOGL, 1)
    assert matching(often, (1000, event), (900, event), (999, event), (1000, event)) == [
        False,
        False,
        True,
        False,
    ]


def test_an_event_meets_the_state_before_its_own_update():
    """Every rule sees what the event found, in whatever order the rules stand."""
    update = Rule(field(PRICE, ">", 0), (Update(COUNTER, "count", None),))
    reader = Rule(compare(COUNTER, "==", 0), (Forward(("1",)),))
    for rules in [(update, reader), (reader, update)]:
        interpreter = Interpreter(rules, SPEC)
        first, second = (interpreter.step(order(GOOGL, 1), time) for time in (5, 6))
        assert (first.receivers, second.receivers) == (("1",), ())


def test_equal_actions_of_several_rules_take_effect_once():
    update, call = Update(COUNTER, "sum", PRICE), Call("mirror", ("7",))
    rules = [
        Rule(field(PRICE, ">", bound), (Forward(("h2", "10", "9")), update, call))
        for bound in (0, 1, 2)
    ]
    rules.append(Rule(field(PRICE, ">", 0), (Update(COUNTER, "sum", SHARES),)))
    interpreter = Interpreter(rules, SPEC)
    step = interpreter.step(order(GOOGL, 5, shares=100), 0)
    assert step == EventResult((0, 1, 2, 3), ("9", "10", "h2"), (call,))
    # 5 once, though three rules add it; the shares are another update.
    assert interpreter.finds("my_counter", 1) == 105


def test_a_macro_counts_what_the_rest_of_its_alternative_is_true_of():
    googl, cheap = field(STOCK, "==", GOOGL), field(PRICE, "<", 10)
    often = compare(macro("count"), ">=", 1)
    one = Interpreter([Rule(And((googl, cheap, often)))], SPEC)
    events = [(0, order(GOOGL, 50)), (1, order(MSFT, 5)), (2, order(GOOGL, 5))]
    assert matching(one, *events, (3, order(GOOGL, 6)), (4, order(GOOGL, 50))) == [
        *[False] * 3,
        True,
        False,
    ]
    # Two alternatives, two cells: what one counts is nothing to the other.
    other = Interpreter([Rule(Or((And((googl, often)), And((cheap, often)))))], SPEC)
    assert len(macro_cells(other)) == 2
    assert matching(other, (0, order(GOOGL, 50)), (1, order(MSFT, 5)), (2, order(MSFT, 6))) == [
        False,
        False,
        True,
    ]


def test_values_of_one_field_are_one_alternative_and_have_one_cell():
    often = compare(macro("count"), ">=", 1)
    either = Or((field(STOCK, "==", GOOGL), field(STOCK, "==", MSFT)))
    interpreter = Interpreter([Rule(And((either, often)))], SPEC)
    assert matching(interpreter, (0, order(GOOGL, 1)), (1, order(MSFT, 1))) == [False, True]
    assert [cell.name for cell in macro_cells(interpreter)] == [
        "count() per 100 us where add_order.stock in {GOOGL, MSFT}"
    ]


def test_rules_with_the_same_rest_share_a_cell_and_others_do_not():
    googl = field(STOCK, "==", GOOGL)
    rules = [
        Rule(And((googl, compare(macro("avg", PRICE), ">", 50)))),
        Rule(And((compare(macro("avg", PRICE), "<", 20), googl))),
        Rule(And((googl, compare(macro("avg", PRICE, 7), ">", 50)))),
        Rule(And((googl, compare(macro("max", PRICE), ">", 50)))),
        Rule(And((googl, compare(macro("avg", SHARES), ">", 50)))),
        Rule(And((field(STOCK, "==", MSFT), compare(macro("avg", PRICE), ">", 50)))),
    ]
    assert len(macro_cells(Interpreter(rules, SPEC))) == 5


def test_several_macros_of_one_alternative_do_not_wait_for_each_other():
    """The rest is the term without any macro, so neither gates the other's updates."""
    condition = And(
        (
            field(STOCK, "==", GOOGL),
            compare(macro("avg", PRICE), ">", 50),
            compare(macro("count"), ">=", 2),
        )
    )
    events = [(time, order(GOOGL, 60)) for time in range(4)]
    assert matching(Interpreter([Rule(condition)], SPEC), *events) == [False, False, True, True]


def test_variables_belong_to_the_rest_of_a_macro():
    rules = [
        Rule(field(STOCK, "==", MSFT), (Update(COUNTER, "count", None),)),
        Rule(And((compare(COUNTER, ">=", 1), compare(macro("count"), ">=", 1)))),
    ]
    interpreter = Interpreter(rules, SPEC)
    events = [GOOGL, MSFT, GOOGL, GOOGL]
    found = [interpreter.step(order(s, 1), time).rules for time, s in enumerate(events)]
    # The first two events find no MSFT counted, the third is the first that the macro counts.
    assert found == [(), (0,), (), (1,)]


@pytest.mark.parametrize("function", ["avg", "min", "max"])
def test_an_empty_window_has_no_average_and_no_extremes_in_either_polarity(function):
    high = compare(macro(function, PRICE), ">", 50)
    for condition in (high, Not(high), Or((high, Not(high)))):
        assert matching(Interpreter([Rule(condition)], SPEC), (0, order(GOOGL, 9))) == [False]
    other = Or((Not(high), field(PRICE, "==", 9)))
    assert matching(Interpreter([Rule(other)], SPEC), (0, order(GOOGL, 9))) == [True]


def test_an_empty_window_has_counted_and_summed_nothing():
    for subject in (macro("count"), macro("sum", PRICE), COUNTER):
        condition = And((compare(subject, "==", 0), Not(compare(subject, ">", 0))))
        assert matching(Interpreter([Rule(condition)], SPEC), (0, order(GOOGL, 9))) == [True]


@examples(300)
@given(
    st.sampled_from([PRICE, SHARES]),
    st.integers(1, 3),
    st.lists(st.deferred(lambda: st.sampled_from(PREDICATES)), max_size=2, unique_by=id),
    st.deferred(lambda: st.lists(events, max_size=20)),
    st.lists(st.integers(0, 20), max_size=2),
)
def test_a_change_is_one_from_the_value_of_the_last_change(one, band, rest, timeline, restarts):
    """Of the events that have the field and meet all else that the rule asks for."""
    change = moved(one, band)
    rules = [Rule(And((*rest, each)) if rest else each) for each in (change, Not(change))]
    interpreter, last = Interpreter(rules, SPEC), None
    for at, (time, event) in enumerate(timeline):
        if at in restarts:
            # As with an edit of other rules: another version takes the cells over.
            before, interpreter = interpreter, Interpreter([*rules, Rule(PREDICATES[0])], SPEC)
            interpreter.carry(before)
        raw, asked = event.get(one.qualified), (each.field.qualified for each in rest)
        wanted = ()
        if raw is not None and all(matches(each, event) for each in rest):
            assert all(name in event for name in asked)
            wanted = (0,) if last is None or abs(raw - last) >= band else (1,)
            last = raw if wanted == (0,) else last
        found = interpreter.step(event, time).rules
        assert tuple(index for index in found if index < 2) == wanted


def test_a_variable_that_nobody_updates_reads_as_zero_for_ever():
    interpreter = Interpreter([Rule(compare(OTHER, "==", 0))], SPEC)
    assert matching(interpreter, *((time, order(GOOGL, 1)) for time in range(3))) == [True] * 3


def test_an_event_without_the_field_updates_nothing():
    rules = [
        Rule(compare(macro("sum", PRICE), ">=", 0)),
        Rule(field(SHARES, ">", 0), (Update(OTHER, "min", PRICE),)),
    ]
    interpreter = Interpreter(rules, SPEC)
    names = [macro_cells(interpreter)[0].name, "other"]
    interpreter.step({"add_order.shares": 5}, 0)
    assert [interpreter.finds(name, 1) for name in names] == [0, None]
    # Nor does it open a window: this one lasts from 10.
    interpreter.step(order(GOOGL, 3), 10)
    assert [interpreter.finds(name, 59) for name in names] == [3, 3]
    assert interpreter.finds("other", 60) is None


def test_the_clock_of_the_event_goes_before_the_time_that_is_given():
    assert clock_of(TYPED).units == 1000
    rules = [
        Rule(field(TYPED.fields["add.price"], ">", 0), (Update(SEEN, "count", None),)),
        Rule(compare(SEEN, ">=", 1)),
    ]
    interpreter = Interpreter(rules, TYPED)
    add = {"add.message_type": 65, "add.stock": 1, "add.price": 1}
    cancel = {"cancel.message_type": 88, "cancel.shares": 1}
    steps = [
        interpreter.step({**add, "add.time": 5_000_000}, 77),
        interpreter.step({**cancel, "cancel.time": 5_001_999}, 99_999_999),
        interpreter.step({**cancel, "cancel.time": 5_002_000}, 0),
    ]
    assert [step.rules for step in steps] == [(0,), (1,), ()]


def test_a_variable_has_one_function_in_a_set_of_rules():
    count, total = Update(COUNTER, "count", None), Update(COUNTER, "sum", PRICE)
    more = Update(COUNTER, "sum", SHARES)
    assert resolve_variables([[total], [], [more]]) == {"my_counter": "sum"}
    functions = resolve_variables([[count]])
    with pytest.raises(SubscriptionError) as caught:
        add_updates(functions, [Update(OTHER, "max", PRICE), total])
    assert caught.value.code == "SUBSCRIPTION.MIXED_UPDATES"
    assert functions == {"my_counter": "count"}
    with pytest.raises(SubscriptionError):
        Interpreter([Rule(field(PRICE, ">", 0), (count, total))], SPEC)


def test_a_stateful_rule_is_an_update_and_a_test_of_the_cell():
    googl = field(STOCK, "==", GOOGL)
    condition = And((googl, compare(macro("avg", PRICE), ">", 50)))
    rest = ("add_order.stock", ((GOOGL, GOOGL),))
    name = "avg(add_order.price) per 100 us where add_order.stock == GOOGL"
    update, act = sorted(split(condition, SPEC, optional=True).terms, key=lambda term: term.acts)
    # The update takes a price, so it asks that there is one.
    assert update.term == (("add_order.price", ((0, (1 << 32) - 1),)), rest)
    assert [(u.cell, u.function, u.field) for u in update.updates] == [
        (name, "avg", "add_order.price")
    ]
    assert act == ((rest, (name, ((51, (1 << 64) - 1),))), (), True)
    assert split(googl, SPEC, optional=True).terms == (((rest,), (), True),)


PREDICATES = [
    field(one, operator, value)
    for one, values in [(STOCK, (GOOGL, MSFT)), (PRICE, (2, 3)), (SHARES, (2,))]
    for operator in ("==", "!=", "<", ">=")
    for value in values
]
STATE_PREDICATES = [
    compare(subject, operator, value)
    for subject in (
        COUNTER,
        OTHER,
        macro("count", None, 4),
        *(macro(function, PRICE, 6) for function in FUNCTIONS[1:]),
    )
    for operator in ("==", "!=", "<", ">=")
    for value in (1, 2, 3)
]
CHANGES = [moved(one, band) for one in (PRICE, SHARES) for band in (1, 2, 3)] + [moved(STOCK)]


def _wider(children):
    several = st.lists(children, min_size=2, max_size=3).map(tuple)
    return several.map(And) | several.map(Or) | children.map(Not)


conditions = st.recursive(
    st.sampled_from(PREDICATES) | st.sampled_from(STATE_PREDICATES) | st.sampled_from(CHANGES),
    _wider,
    max_leaves=6,
)
updates = st.lists(
    st.sampled_from(
        [
            Update(COUNTER, "sum", PRICE),
            Update(COUNTER, "sum", SHARES),
            Update(OTHER, "count", None),
        ]
    ),
    max_size=2,
    unique=True,
)
rule_sets = st.lists(
    st.builds(lambda node, actions: Rule(node, tuple(actions)), conditions, updates),
    min_size=1,
    max_size=4,
)
events = st.tuples(
    st.integers(0, 12),
    st.fixed_dictionaries(
        {},
        optional={
            "add_order.stock": st.sampled_from([GOOGL, MSFT, 7]),
            "add_order.price": st.integers(0, 5),
            "add_order.shares": st.integers(0, 5),
        },
    ),
)


def run_terms(rules, timeline, spec=SPEC) -> list[tuple[int, ...]]:
    """The rules as ``split`` parts them: terms over fields and cells, and nothing else."""
    functions = resolve_variables([a for a in r.actions if isinstance(a, Update)] for r in rules)
    parted = [
        split(
            rule.condition,
            spec,
            [a for a in rule.actions if isinstance(a, Update)],
            functions,
            optional=True,
        )
        for rule in rules
    ]
    cells = {cell.name: cell for one in parted for cell in one.cells}
    states = dict.fromkeys(cells, EMPTY)
    clock = clock_of(spec)
    windows = {name: cell.length(clock.units) for name, cell in cells.items()}
    result = []
    for given_time, event in timeline:
        time = clock.time(event, given_time)
        values = dict(event) | {
            name: reading(
                cell.function, states[name], windows[name], time, event.get(cell.field or "")
            )
            for name, cell in cells.items()
        }
        wanted, matched = set(), []
        for index, one in enumerate(parted):
            true = [
                part
                for part in one.terms
                if all(
                    (value := values.get(name)) is not None
                    and any(low <= value <= high for low, high in allowed)
                    for name, allowed in part.term
                )
            ]
            wanted.update(update for part in true for update in part.updates)
            if any(part.acts for part in true):
                matched.append(index)
        for update in wanted:
            cell = cells[update.cell]
            raw = 0 if update.field is None else event[update.field]
            before = states[cell.name]
            states[cell.name] = updated(cell.function, before, windows[cell.name], time, raw)
        result.append(tuple(matched))
    return result


@examples(500)
@given(rule_sets, st.lists(events, max_size=12))
def test_terms_over_cells_do_what_the_rules_say(rules, timeline):
    timeline = [(time + 2 * at, event) for at, (time, event) in enumerate(timeline)]
    interpreter = Interpreter(rules, SPEC)
    wanted = [interpreter.step(event, time).rules for time, event in timeline]
    assert run_terms(rules, timeline) == wanted


ADD_PRICE, ADD_STOCK, LESS = (TYPED.fields[n] for n in ("add.price", "add.stock", "cancel.shares"))
# Some are true of any value: terms lose those, and their cells must not become others by it.
TYPED_PREDICATES = [
    *(field(one, ">=", value) for one in (ADD_PRICE, ADD_STOCK, LESS) for value in (0, 2)),
    *(field(one, "==", value) for one in (ADD_PRICE, ADD_STOCK, LESS) for value in (1, 2)),
    field(TYPED.fields["add.message_type"], "==", ord("A")),
    *(compare(TYPED.counters[0], operator, 2) for operator in ("<", ">=")),
    *(compare(macro("count", None, 4), operator, 2) for operator in ("<", ">=")),
    *(compare(macro("avg", ADD_PRICE, 4), operator, 1) for operator in ("<=", ">")),
    *(moved(one, band) for one in (ADD_PRICE, LESS) for band in (1, 2)),
]
typed_rules = st.lists(
    st.builds(
        lambda node, one: Rule(node, (Update(SEEN, "sum", one),) if one else ()),
        st.recursive(st.sampled_from(TYPED_PREDICATES), _wider, max_leaves=6),
        st.sampled_from([None, ADD_PRICE, LESS]),
    ),
    min_size=1,
    max_size=3,
)
small = st.integers(0, 3)
typed_events = st.one_of(
    st.builds(
        lambda at, stock, price: {
            "message_type": 65,
            "add.message_type": 65,
            "add.time": at * 500,
            "add.stock": stock,
            "add.price": price,
        },
        *(st.integers(0, 12), small, small),
    ),
    st.builds(
        lambda at, shares: {
            "message_type": 88,
            "cancel.message_type": 88,
            "cancel.time": at * 500,
            "cancel.shares": shares,
        },
        *(st.integers(0, 12), small),
    ),
    st.just({"message_type": 90}),
)


@examples(500)
@given(typed_rules, st.lists(typed_events, max_size=12))
def test_terms_over_cells_do_what_the_rules_say_of_typed_messages(rules, events):
    interpreter = Interpreter(rules, TYPED)
    wanted = [interpreter.step(event, at).rules for at, event in enumerate(events)]
    assert run_terms(rules, list(enumerate(events)), TYPED) == wanted


@given(st.lists(conditions, min_size=1, max_size=4))
def test_a_name_says_all_about_a_cell(nodes):
    """Cells of one name are one; terms with different texts are different, and the reverse."""
    known: dict[str, Cell] = {}
    texts: dict[str, object] = {}
    for node in nodes:
        for cell in split(node, SPEC, optional=True).cells:
            assert known.setdefault(cell.name, cell) == cell
        for part in split(node, SPEC, optional=True).terms:
            assert texts.setdefault(describe(part.term, SPEC), part.term) == part.term


def test_names_tell_values_apart_that_people_would_write_alike():
    spec = parse_specification(
        "header_type t { fields { @string a: 16; b: 64; @decimals(2) c: 16; } } header t h;", "t"
    )
    one, two, three = spec.fields.values()
    raws = [0, 1, ord("A"), 0x4120, 0x2041, 0x4100, 0x2341, 0x3431, 0x2020]
    for f in (one, two, three):
        terms = [((f.qualified, ((raw, raw),)),) for raw in raws]
        terms += [((f.qualified, ((0, raw),)),) for raw in raws]
        terms += [((f.qualified, ((1, 1), (5, raw))),) for raw in raws[2:]]
        terms = list(dict.fromkeys(terms))
        assert len({describe(term, spec) for term in terms}) == len(terms)
    assert describe((("h.a", ((0x4120, 0x4120),)), ("h.c", ((150, 999),))), spec) == (
        "h.a == A and h.c in {1.50 to 9.99}"
    )


def test_a_long_condition_gives_a_name_of_bearable_length_that_is_still_its_own():
    names = set()
    for last in (10_001, 10_002):
        members = field(PRICE, "in", *range(0, 10_000, 2), last)
        (cell,) = split(And((members, compare(macro("count"), ">", 1))), SPEC).cells
        assert len(cell.name) <= 200
        names.add(cell.name)
    assert len(names) == 2


def test_a_message_type_is_named_only_where_no_field_implies_it():
    price = field(TYPED.fields["add.price"], ">", 5)
    kind = field(TYPED.fields["add.message_type"], "==", 65)
    often = compare(macro("count"), ">", 1)
    named = [split(And((node, often)), TYPED).cells[0].name for node in (price, kind)]
    assert named == [
        "count() per 100 us where add.price >= 6",
        "count() per 100 us where message_type == A",
    ]
