"""Entries of the generated program: run table by table, they do what the rules say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from examples import examples
from filter_cases import lanes_of
from hypothesis import given
from hypothesis import strategies as st
from p4_tables import Switch, by_table, divide

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.compile import compile_rules, compile_texts
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network_match.cell_tags import HeldCells
from stackcast.udfs.network_match.entries import Match, ProgramEntries, program_entries
from stackcast.udfs.network_match.layout import NamedAction, ProgramOptions, program_layout
from stackcast.udfs.switches.entry import entry_to_row

pytestmark = pytest.mark.unit

FRAMES = parse_specification(
    """
    header_type a_t { fields { one: 8; code: 4; rest: 4; } }
    header_type b_t { fields { net: 32; wide: 128; } }
    header a_t a;
    header b_t b;
    @query_field(b.wide)
    @query_field(a.one)
    @query_field_exact(a.code)
    @query_field_lpm(b.net)
    """,
    "frames",
)
TYPED = parse_specification(
    """
    header_type add_t { fields { kind: 8; size: 8; price: 16; } }
    @message_type("A") header add_t add;
    header_type end_t { fields { kind: 8; why: 8; rest: 8; } }
    @message_type("E") header end_t end;
    @query_field(add.price)
    @query_field_exact(add.size)
    @query_field(end.why)
    """,
    "typed",
)
STATE = parse_specification(
    """
    header_type q_t { fields { stock: 8; price: 32; } }
    header q_t q;
    @query_field_exact(q.stock)
    @query_field(q.price)
    @query_counter(seen, 10, 64)
    @query_counter(spent, 100)
    @query_default_action(drop)
    """,
    "state",
)
EDGES = {
    "a.one": [0, 1, 2, 3, 100, 127, 128, 254, 255],
    "a.code": [0, 1, 7, 14, 15],
    "b.net": [0, 1, 0x0A000000, 0x0A0000FF, 0x0A000100, 0x0AFFFFFF, 0x0B000000, 0xFFFFFFFF],
    "b.wide": [0, 1, (1 << 64) - 1, 1 << 64, (1 << 64) + 1, 5 << 64, (1 << 128) - 1],
    "end.why": [0, 1, 3, 255],
    "add.price": [0, 1, 2, 50, 51, 65535],
    "add.size": [0, 1, 200, 255],
}
PORTS = {"h1": 1, "h2": 2, "h3": 3, "twin": 3}


@st.composite
def conditions(draw, names: tuple[str, ...], exact: tuple[str, ...] = ()) -> str:
    """A condition in the language; fields in ``exact`` are only compared for equality."""

    def predicate() -> str:
        name = draw(st.sampled_from(names))
        value = draw(st.sampled_from(EDGES[name]))
        if name == "b.net" and draw(st.booleans()):
            bits = draw(st.integers(1, 32))
            text = ".".join(map(str, (value >> (32 - bits) << (32 - bits)).to_bytes(4, "big")))
            return f"{name} {draw(st.sampled_from(['==', '!=']))} {text}/{bits}"
        operators = ["==", "!="] if name in exact else ["==", "!=", "<", "<=", ">", ">="]
        return f"{name} {draw(st.sampled_from(operators))} {value}"

    def node(depth: int) -> str:
        if depth == 0 or draw(st.booleans()):
            return predicate()
        kind = draw(st.sampled_from(["and", "or", "not"]))
        if kind == "not":
            return f"not ({node(depth - 1)})"
        return f"({node(depth - 1)}) {kind} ({node(depth - 1)})"

    return node(2)


def switch_of(texts, specification, options=None) -> Switch:
    compiled = compile_texts(texts, specification)
    held = program_entries(compiled, specification, PORTS, options=options)
    return Switch(program_layout(specification, options), held)


def expected_ports(texts, specification, event, message_type=0):
    """By brute force on the syntax trees."""
    ports: set[int] = set()
    for text in texts:
        rule = parse_rule(text, specification)
        if matches(rule.condition, event):
            ports |= {PORTS.get(name) or int(name) for name in rule.receivers}
    return tuple(sorted(ports))


receivers = st.sampled_from(["h1", "h2", "h1, h3", "h3, twin", "7", "h2, 9"])


@examples(30)
@given(
    st.lists(
        st.tuples(conditions(("a.one", "a.code", "b.net", "b.wide"), ("a.code",)), receivers),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([{}, {"a.one": 5}, {"b.wide": 4}]),
    st.data(),
)
def test_entries_run_in_their_tables_deliver_what_the_rules_say(rules, resolution, data):
    """Exact, range and lpm tables, lanes of 64 bits, a smaller domain, headers that are absent."""
    texts = [f"{condition} : fwd({to})" for condition, to in rules]
    switch = switch_of(texts, FRAMES, ProgramOptions(resolution=resolution))
    for _ in range(12):
        event = {name: data.draw(st.sampled_from(EDGES[name])) for name in ("a.one", "a.code")}
        if data.draw(st.booleans()):
            event |= {name: data.draw(st.sampled_from(EDGES[name])) for name in ("b.net", "b.wide")}
        ports, _ = switch.event(lanes_of(FRAMES, event))
        assert ports == expected_ports(texts, FRAMES, event)


@examples(30)
@given(
    st.lists(
        st.tuples(conditions(("end.why", "add.price", "add.size"), ("add.size",)), receivers),
        min_size=1,
        max_size=5,
    ),
    st.data(),
)
def test_messages_of_several_types_are_told_apart_before_anything_else(rules, data):
    texts = [f"{condition} : fwd({to})" for condition, to in rules]
    switch = switch_of(texts, TYPED)
    for _ in range(10):
        kind = data.draw(st.sampled_from("AEX"))
        names = {"A": ("add.price", "add.size"), "E": ("end.why",), "X": ()}[kind]
        event = {name: data.draw(st.sampled_from(EDGES[name])) for name in names}
        ports, _ = switch.event(event, ord(kind))
        assert ports == expected_ports(texts, TYPED, event)


MACROS = st.sampled_from(
    ["count()", "sum(price)", "avg(price)", "min(price)", "max(price)", "avg(price, 100)"]
)


@st.composite
def stateful_rules(draw) -> list[str]:
    functions = draw(st.sampled_from(["count()", "sum(price)", "max(price)", "avg(price)"]))
    texts = []
    for _ in range(draw(st.integers(1, 3))):
        parts = []
        if draw(st.booleans()):
            parts.append(f"stock == {draw(st.integers(1, 2))}")
        if draw(st.booleans()):
            parts.append(f"price > {draw(st.sampled_from([0, 5]))}")
        for subject in draw(st.lists(st.just("seen") | MACROS, max_size=1)):
            operator = draw(st.sampled_from([">", "<=", "==", "!="]))
            parts.append(f"{subject} {operator} {draw(st.sampled_from([0, 1, 2, 5, 7]))}")
        condition = " and ".join(parts) or "price >= 0"
        if draw(st.booleans()):
            condition = f"not ({condition})"
        action = draw(receivers.map(lambda to: f"fwd({to})"))
        if draw(st.booleans()):
            action = f"{{ {action}; seen <- {functions} }}"
        texts.append(f"{condition} : {action}")
    return texts


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 5, 6, 9, 2**32 - 1]), st.integers(-12, 12)),
    min_size=1,
    max_size=25,
)


@examples(30)
@given(stateful_rules(), STEPS)
def test_registers_and_state_tables_keep_what_the_interpreter_keeps(texts, steps):
    specification = parse_specification(
        """
        header_type q_t { fields { stock: 8; price: 32; } }
        header q_t q;
        @query_field_exact(q.stock)
        @query_field(q.price)
        @query_counter(seen, 10, 64)
        @query_counter(spent, 100, 64)
        """,
        "state",
    )
    reference = Interpreter([parse_rule(t, specification) for t in texts], specification)
    try:
        switch = switch_of(texts, specification, ProgramOptions(variables=8, updates=8))
    except FilterError as error:
        assert error.what in ("TOO_MANY_VARIABLES", "TOO_MANY_UPDATES")
        return
    check_steps(switch, reference, steps)


def check_steps(
    switch: Switch, reference: Interpreter, steps: Sequence[tuple[int, int, int]]
) -> None:
    """Fail if a switch and the interpreter send an event of the steps to different ports."""
    time = 150
    for stock, price, later in steps:
        time = max(0, time + later)
        event = {"q.stock": stock, "q.price": price}
        names = reference.step(event, time).receivers
        ports = tuple(sorted({PORTS.get(name) or int(name) for name in names}))
        assert switch.event(event, time=time)[0] == ports


COUNTING = """
    header_type q_t {{ fields {{ stock: 8; price: 32; }} }}
    header q_t q;
    @query_field_exact(q.stock)
    @query_field(q.price)
    {}
    @query_counter(spent, 100, 64)
    """


def owned_rules(
    texts: Mapping[str, Sequence[str]], specification: Specification
) -> Sequence[CheckedRule]:
    rows = [
        Subscription(f"{owner}{number}", owner, text)
        for owner, own in texts.items()
        for number, text in enumerate(own)
    ]
    rules, rejections = check(rows, specification, {*PORTS, "7", "9"}, "feed1")
    assert not rejections
    return rules


@examples(30)
@given(stateful_rules(), stateful_rules(), STEPS)
def test_variables_of_two_subscribers_have_registers_of_their_own(first, second, steps):
    texts = {"h1": first, "h2": second}
    specification = parse_specification(COUNTING.format("@query_counter(seen, 10, 64)"), "state")
    # The reference knows no owners: each has a variable of another name.
    renamed = parse_specification(
        COUNTING.format("@query_counter(seen_h1, 10) @query_counter(seen_h2, 10)"), "renamed"
    )
    plain = [text.replace("seen", f"seen_{owner}") for owner in texts for text in texts[owner]]
    reference = Interpreter([parse_rule(text, renamed) for text in plain], renamed)
    options = ProgramOptions(variables=8, updates=8)
    compiled = compile_rules(owned_rules(texts, specification), specification)
    try:
        held = program_entries(compiled, specification, PORTS, options=options)
    except FilterError as error:
        assert error.what in ("TOO_MANY_VARIABLES", "TOO_MANY_UPDATES")
        return
    switch = Switch(program_layout(specification, options), held)
    check_steps(switch, reference, steps)


def test_a_variable_without_a_free_register_is_named_with_its_owner():
    rules = ["price > 0 : { fwd(7); seen <- count() }", "seen > 1"]
    texts = {"h1": rules, "h2": rules}
    specification = parse_specification(COUNTING.format("@query_counter(seen, 10)"), "state")
    with pytest.raises(FilterError, match="no register is free for seen of h2") as caught:
        compiled = compile_rules(owned_rules(texts, specification), specification)
        program_entries(compiled, specification, PORTS)
    assert caught.value.code == "FILTER.NO_SLOT"


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1))
def test_the_division_of_an_average_is_exact(value, count):
    assert divide(value, count) == value // count


@given(
    st.sampled_from(["exact", "range", "ternary", "lpm"]),
    st.binary(min_size=1, max_size=9),
    st.binary(min_size=1, max_size=9),
    st.integers(0, 128),
)
def test_a_match_is_one_value_in_a_table_and_the_same_match_again(kind, value, other, length):
    from stackcast.udfs.switches.match import canonical  # noqa: PLC0415

    own, more = (canonical(int.from_bytes(b, "big")) for b in (value, other))
    match = {
        "exact": Match("f", kind, own),
        "lpm": Match("f", kind, own, prefix_length=length),
    }.get(kind, Match("f", kind, own, more))
    assert Match.parted("f", kind, match.joined()) == match


def refused(texts, specification=STATE, options=None) -> FilterError:
    with pytest.raises(FilterError) as caught:
        switch_of(texts, specification, options)
    return caught.value


def test_what_the_program_has_no_room_for_is_said_before_a_switch_refuses_it():
    two = ["count() > 1 and sum(price) > 5 : fwd(1)"]
    assert refused(two, options=ProgramOptions(variables=1)).code == "FILTER.TOO_MANY_VARIABLES"
    assert refused(two, options=ProgramOptions(updates=1)).code == "FILTER.TOO_MANY_UPDATES"
    assert refused(["avg(price, 100) > 5 : fwd(1)"]).code == "FILTER.NO_SLOT"
    assert refused(["price > 1 : fwd(nowhere)"]).code == "FILTER.UNKNOWN_PORT"
    assert refused(["price > 1 : fwd(65)"]).code == "FILTER.UNKNOWN_PORT"
    assert refused(["price > 1 : fwd(0)"]).code == "FILTER.UNKNOWN_PORT"
    assert refused(["price > 1 : tell(1)"]).code == "FILTER.UNKNOWN_ACTION"
    tell = ProgramOptions(actions=(NamedAction("tell", (32,)), NamedAction("b"), NamedAction("c")))
    assert refused(["price > 1 : tell(1, 2)"], options=tell).code == "FILTER.BAD_ACTION"
    assert refused(["price > 1 : tell(five)"], options=tell).code == "FILTER.BAD_ACTION"
    many = ["price > 1 : tell(1)", "price > 0 : b()", "price > 2 : c()"]
    assert refused(many, options=tell).code == "FILTER.TOO_MANY_CALLS"
    assert refused(["end.kind == E and rest == 3 : fwd(1)"], TYPED).code == "FILTER.NO_TABLE"


def test_named_actions_of_all_rules_that_match_are_called_with_their_arguments():
    tell = ProgramOptions(actions=(NamedAction("answerDNS", (32,)), NamedAction("mark", (8, 48))))
    texts = [
        "price > 1 : answerDNS(10.0.0.97)",
        "price > 5 : { fwd(h1); mark(0x1f, 00:00:00:00:01:02) }",
    ]
    switch = switch_of(texts, STATE, tell)
    assert switch.event({"q.stock": 0, "q.price": 1}) == ((), set())
    assert switch.event({"q.stock": 0, "q.price": 2}) == ((), {("answerDNS", 0x0A000061)})
    both = {("answerDNS", 0x0A000061), ("mark", 0x1F, 0x0102)}
    assert switch.event({"q.stock": 0, "q.price": 6}) == ((1,), both)


def test_cells_stay_in_their_registers_when_rules_come_and_go():
    first = program_entries(
        compile_texts(["stock == 2 and count() > 1 : fwd(1)"], STATE), STATE, PORTS
    )
    texts = ["stock == 1 and count() > 1 : fwd(1)", "stock == 2 and count() > 1 : fwd(1)"]
    held = HeldCells.of(first.entries, 5)
    second = program_entries(compile_texts(texts, STATE), STATE, PORTS, held=held)
    before, after = places_of(first), places_of(second)
    assert len(before) == 1 and before < after
    assert len({(block, slot) for _, block, slot in after}) == 2


def places_of(made: ProgramEntries) -> set[tuple[bytes, ...]]:
    """Tag, block and slot of each cell that entries load."""
    loads = (dict(entry.params) for entry in made.entries if ".cells.load_" in entry.table)
    return {(load["tag"], load["block"], load["slot"]) for load in loads}


def test_a_leaf_has_its_ports_as_a_mask_whoever_is_behind_them():
    texts = ["stock == 1 : fwd(h1, h3)", "stock == 2 : fwd(h1, twin)", "stock == 3 : fwd(h3, twin)"]
    held = program_entries(compile_texts(texts, STATE), STATE, PORTS)
    leaves = by_table(held)["ingress.subscriptions.delivery.leaf"]
    assert {leaf.action.split(".")[-1] for leaf in leaves} == {"deliver"}
    masks = sorted(value for leaf in leaves for _, value in leaf.params)
    assert masks == [b"\x04", b"\x05", b"\x05"]
    highest = program_entries(compile_texts(["stock == 1 : fwd(64)"], STATE), STATE, PORTS)
    (leaf,) = by_table(highest)["ingress.subscriptions.delivery.leaf"]
    assert leaf.params == (("ports", b"\x80" + bytes(7)),)
    assert (held.ports, highest.ports) == ((1, 3), (64,))


def test_a_smaller_domain_that_the_rules_outgrow_names_the_bits_that_it_takes():
    texts = [f"a.one > {n} : fwd({n})" for n in range(5)]
    with pytest.raises(FilterError, match="resolution to 3 bits") as caught:
        switch_of(texts, FRAMES, ProgramOptions(resolution={"a.one": 2}))
    assert caught.value.code == "FILTER.TOO_MANY_CODES"


def test_rows_are_those_of_the_table_of_switch_entries():
    held = program_entries(compile_texts(["q.price > 9 : fwd(h1)"], STATE), STATE, PORTS)
    rows = {row["entry_key"]: row for row in (entry_to_row(e.on("s1")) for e in held.entries)}
    assert len(rows) == len(held.entries)
    row = next(r for r in rows.values() if r["table_name"].endswith("q_price.otherwise"))
    assert row["switch"] == "s1"
    assert row["match"][0] == {"field": "state", "kind": "exact", "value": b"\0"}
    spans = [m["value"] for r in rows.values() for m in r["match"] if m["kind"] == "range"]
    assert all(len(span) % 2 == 0 for span in spans) and spans
