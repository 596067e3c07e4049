"""Whatever is read, only our errors come out, with their places, and before long."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from examples import examples
from filter_cases import cases, rules
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stackcast.udfs.errors import FilterError, SpecificationError, StackcastError, SubscriptionError
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.filters.explanation.events import EventError, EventReader
from stackcast.udfs.filters.language.rule import MAX_LENGTH, in_file, parse_rule
from stackcast.udfs.filters.language.rule_file import split_rules
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.matching.carried import unpack, unpack_sources
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network_match.entries import program_entries
from stackcast.udfs.network_match.layout import program_layout
from stackcast.udfs.p4_program.program import generate

pytestmark = pytest.mark.unit

patient = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

FORMAT = """
header_type ethernet_t { fields { dst: 48; src: 48; type: 16; } }
header_type ip_t { fields { ttl: 4; tos: 4; dst: 32; } }
header_type ip6_t { fields { dst: 128; } }
header_type order_t { fields {
    @clock(1000) at: 48; @resolution(4) shares: 32; @string stock: 64; @decimals(4) price: 32;
    @string(zero) id: 80;
} }
header ethernet_t eth;
header ip_t ip;
header ip6_t ip6;
header order_t order; // a comment
@query_field(order.shares)
@query_field_range(order.price, 32)
@pragma query_field_exact(order.stock)
@query_field_lpm(ip.dst) /* another */
@query_counter(seen, 100, 4)
@query_default_action(answerDNS(10.0.0.97))
"""
MESSAGES = """
header_type frame_t { fields { length: 16; } }
header frame_t frame;
header_type add_t { fields { @string kind: 8; @string stock: 64; @decimals(18) price: 64; } }
@message_type("A") header add_t add;
header_type end_t { fields { kind: 8; @clock(2) at: 32; wide: 2048; } }
@message_type("E") header end_t end;
"""
RULES = [
    "stock == GOOGL : fwd(1,2,3)",
    'stock = "GOOGL" : 1, 2;',
    "ip.dst == 192.168.0.1 : fwd(1)",
    "stock == GOOGL ^ avg(price) > 50 : fwd(1)",
    "shares > 100 ∧ (price ≤ 50.25 ∨ !stock == MSFT) : { fwd(h1, h2); seen <- count() }",
    "ip6.dst == 2001:db8::/32 and ip6.dst != ::1 : answerDNS(10.0.0.97)",
    "eth.dst == 00:11:22:33:44:55 or ip.dst in {10.0.0.0/8, 1.2.3.4} # why\n and ip.ttl < 0xf",
    "shares not between 5 and 7 && seen >= 3 || count(50) in {1, 2} : fwd(4294967295)",
    "not (id == 'a;b' and not (sum(shares, 10) != 3)) : mirror(x, \"y\")",
    "add.price > 0.000000000000000001 : fwd(h1)",
    "end.wide == 5/7 and end.at < 3;",
]
EVENTS = [
    '{"order.shares": 5, "stock": "GOOGL", "order.price": 502500, "time_us": 3}',
    '{"ip.dst": "10.0.0.1", "ip6.dst": "::1", "eth.dst": "00:11:22:33:44:55"}',
    '{"id": "\\u0000", "ip.ttl": null, "order.at": 281474976710655}',
    '{"add.stock": "A", "add.price": 18446744073709551615}',
    '{"end.wide": 0, "end.at": 7, "time_us": 9223372036854775807}',
    "{}",
]
SPECS = {name: parse_specification(t, name) for name, t in (("loose", FORMAT), ("typed", MESSAGES))}
specifications = st.sampled_from(sorted(SPECS)).map(SPECS.__getitem__)

NOISE = [
    "", " ", "\n", "\t", "\r", "\f", "\0", "\x1c", "\x85", "\u2028", "\ud800", "\ufeff", "é", "漢",
    "٣", "²", "ſ", "İ", "'", '"', "#", "(", ")", "{", "}", "[", "]", ";", ":", "::", ",", "/", "\\",
    "==", "=", "!=", "≠", "<", ">=", "<-", "←", "^", "∧", "||", "!", "¬", "-", "+", ".", "..", "@",
    "and", "or", "not", "in", "between", "AND", "fwd(", "fwd()", "count()", "avg(", "sum(stock)",
    "seen", "price", "stock", "ip.dst", "ip6.dst[63:0]", "message_type", "kind", "add.kind",
    "0", "-1", "1e9", "1e999999999", "0x", "0x" + "f" * 80, "9" * 30, "9" * 5000, "0." + "1" * 40,
    "10.0.0.0/8", "10.0.0.0/33", "1/0", "0/99999", "::/0", "::1%eth0", "1:2:3", "nan", "inf",
    "true", "null", "1.5", "1e5", "NaN", "Infinity", "{}", '{"a":', "time_us", "\\u0000", "\\ud800",
    "header", "header_type t {", "fields", "@string", "@decimals(19)", "@clock(1)", "@pragma",
    "@resolution(3)", "@query_field(", "query_counter", "/*", "*/", "//", "t: 8;", "w: 99999;",
    "z: 0;", "²: 8;",
]  # fmt: skip
noise = st.sampled_from(NOISE) | st.text(max_size=6)


@st.composite
def mangled(draw: st.DrawFn, real: Sequence[str]) -> str:
    """Something real: cut, doubled, joined with another, with noise put in; or only noise."""
    if draw(st.integers(0, 4)) == 0:
        joint = draw(st.sampled_from(["", " ", "\n"]))
        return joint.join(draw(st.lists(noise, max_size=30)))
    text = draw(st.sampled_from(real))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        to = draw(st.integers(at, min(len(text), at + 20)))
        how = draw(st.sampled_from(["cut", "end", "twice", "put", "put", "join", "many", "word"]))
        if how == "cut":
            text = text[:at] + text[to:]
        elif how == "end":
            text = text[:at]
        elif how == "twice":
            text = text[:to] + text[at:]
        elif how == "put":
            text = text[:at] + draw(noise) + text[to:]
        elif how == "join":
            text = text[:at] + draw(st.sampled_from(real))[draw(st.integers(0, 40)) :]
        elif how == "many":
            text = text[:at] + text[at:to] * draw(st.integers(2, 400)) + text[to:]
        else:
            words = re.split(r"(\W+)", text)
            words[draw(st.integers(0, len(words) - 1))] = draw(noise)
            text = "".join(words)
    return text


def place_is_right(error: StackcastError, text: str) -> None:
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(text) + 1
    assert len(error.message) < 2000


@examples(400, patient)
@given(mangled(RULES), specifications, st.booleans())
@example("stock == " + "(" * 8000, SPECS["loose"], False)
@example("shares == " + "9" * 8000, SPECS["loose"], False)
@example("shares == 0x" + "f" * 8000, SPECS["loose"], False)
@example("price == 1e999999999", SPECS["loose"], False)
def test_a_rule_is_read_or_refused_with_its_place(
    text: str, specification: Specification, framing: bool
):
    try:
        parse_rule(text, specification, framing=framing)
    except SubscriptionError as error:
        if error.what != "TOO_LONG":
            place_is_right(error, text)


@examples(200, patient)
@given(mangled(["\n".join(RULES), ";".join(RULES), *RULES]), specifications)
def test_a_file_of_rules_is_read_rule_by_rule(text: str, specification: Specification):
    for rule, line in split_rules(text):
        try:
            parse_rule(rule, specification)
        except SubscriptionError as error:
            assert error.what != "EMPTY"
            assert 1 <= in_file(error, line).line <= text.count("\n") + 1


@examples(100, patient)
@given(st.lists(mangled(RULES), max_size=6), st.integers(1, 12), specifications)
def test_a_table_of_texts_refuses_what_each_alone_is_refused_for(
    texts: list[str], times: int, specification: Specification
):
    texts = texts * times
    found = {at: error for at, error in read_table(texts, specification).errors}
    for at, text in enumerate(texts):
        try:
            parse_rule(text, specification)
        except SubscriptionError as error:
            assert str(found.pop(at)) == str(error)
    assert not found


@examples(120, patient)
@given(st.lists(mangled(RULES), max_size=4), specifications)
def test_rules_that_can_be_read_compile_or_are_refused(
    texts: list[str], specification: Specification
):
    kept = []
    for text in texts:
        try:
            parse_rule(text, specification)
        except SubscriptionError:
            continue
        kept.append(text)
    try:
        compiled = compile_texts(kept, specification, 5000)
        Matcher(compiled)
        program_entries(compiled, specification, {"h1": 1, "h2": 2})
    except StackcastError as error:
        assert isinstance(error, SubscriptionError | FilterError)


@examples(120, patient)
@given(
    st.lists(st.tuples(mangled(["h1", "s1"]), mangled(["h1", "feed1"]), mangled(RULES)), max_size=5)
)
def test_rows_of_subscriptions_are_live_or_rejected(rows: list[tuple[str, str, str]]):
    given_rows = [Subscription(*row) for row in rows]
    checked, rejections = check(given_rows, SPECS["typed"], {"h1", "h2"}, "feed1")
    assert len(checked) + len(rejections) == len(rows)
    for rejection in rejections:
        assert len(rejection.message) < 3000


@examples(250, patient)
@given(mangled([FORMAT, MESSAGES]))
@example("header_type t { fields { a: 8; } } header t h; @query_default_action(fwd(1, 2))")
@example("header_type t { fields { a: 8; } } header t h; @query_default_action(d(x))")
def test_a_format_is_read_and_used_or_refused(text: str):
    try:
        specification = parse_specification(text, "fuzz")
    except SpecificationError as error:
        place_is_right(error, text)
        return
    try:
        generate(specification)
        program_layout(specification)
    except StackcastError as error:
        assert isinstance(error, FilterError)
    for field in list(specification.fields.values())[:3]:
        for constant in ("1", "A", "0.5"):
            try:
                texts = [f"{field.qualified} == {constant} : fwd(1)"]
                Matcher(compile_texts(texts, specification))
            except SubscriptionError:
                continue


@examples(300, patient)
@given(st.lists(mangled(EVENTS), max_size=6), specifications)
@example(["[" * 100_000], SPECS["loose"])
@example(['{"a":' * 50_000], SPECS["loose"])
@example(['{"order.shares": ' + "9" * 5000 + "}"], SPECS["loose"])
@example(['{"stock": "\\ud800"}', '{"\\ud800": 1}', '{"ip.dst": "٣"}'], SPECS["loose"])
@example(['{"order.shares": 1e400}', '{"order.shares": true}', '{"time_us": -1}'], SPECS["loose"])
def test_events_are_read_or_refused_line_by_line(lines: list[str], specification: Specification):
    reader = EventReader(specification, list(specification.fields))
    read = reader.read(lines)
    assert sorted([*read.positions.tolist(), *(at for at, _ in read.faults)]) == [
        *range(len(lines))
    ]
    for _, error in read.faults:
        assert isinstance(error, EventError)
        assert len(error.message) < 1000
    for event in read.events:
        for name, raw in event.values.items():
            assert 0 <= raw < 1 << specification.fields[name].bits


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
names = st.sampled_from(
    ["order.shares", "shares", "stock", "ip.dst", "ip6.dst", "id", "dst", "time_us", "add.kind"]
)


@examples(200, patient)
@given(json_values | st.dictionaries(names, json_values, max_size=4), specifications)
def test_any_json_is_an_event_or_is_refused(found: Any, specification: Specification):
    reader = EventReader(specification)
    try:
        event = reader.read_line(json.dumps(found))
        reader.time_of(event)
    except EventError as error:
        assert len(error.message) < 1000


@examples(100, patient)
@given(st.binary(max_size=60), st.sampled_from([b"", b"SCC1", b"SCS1"]))
def test_state_that_is_damaged_is_refused(found: bytes, mark: bytes):
    for read in (unpack, unpack_sources):
        try:
            read(mark + found)
        except StackcastError as error:
            assert error.what == "STATE_UNREADABLE"


@examples(60, patient)
@given(st.data())
def test_what_is_cut_out_of_rules_that_fit_is_read_or_refused(data: st.DataObject):
    case = data.draw(cases(most_bits=2048))
    texts = data.draw(rules(case, 3))
    for text in texts:
        parse_rule(text, case.specification)
        at = data.draw(st.integers(0, len(text)))
        cut = text[:at] + data.draw(noise) + text[at + data.draw(st.integers(0, 5)) :]
        try:
            parse_rule(cut, case.specification)
        except SubscriptionError as error:
            if error.what != "TOO_LONG":
                place_is_right(error, cut)


LOOSE = SPECS["loose"]
FILL = MAX_LENGTH
LONG_RULES = {
    "open parentheses": "(" * FILL,
    "parentheses": "(" * (FILL // 2 - 9) + "shares == 1" + ")" * (FILL // 2 - 9),
    "negations": "!" * (FILL - 20) + "shares == 1",
    "chain": " or ".join(f"shares == {n}" for n in range(400)),
    "ands of ors": " and ".join(f"(shares < {n} or price > {n})" for n in range(200)),
    "products": " and ".join(f"(shares=={n} or price=={n} or ip.ttl=={n % 9})" for n in range(99)),
    "unequal to much": " and ".join(f"shares != {2 * n}" for n in range(500)),
    "set": "shares in {" + ",".join(str(n) for n in range(1500)) + "}",
    "prefixes": "ip6.dst in {" + ",".join(f"{n:x}::/{n % 120}" for n in range(500)) + "}",
    "colons": "ip6.dst == " + "1:" * (FILL // 2 - 20),
    "double colons": "ip6.dst == " + "::" * (FILL // 2 - 20),
    "dots": "ip.dst == " + "1." * (FILL // 2 - 20),
    "digits": "shares == " + "9" * (FILL - 20),
    "fraction": "price == 0." + "0" * (FILL - 20),
    "quotes": "'\"" * (FILL // 2),
    "names": "a." * (FILL // 2 - 5) + "a == 1",
    "near names": "shar" * (FILL // 4 - 5) + " == 1",
    "blanks": " " * (FILL - 1) + "x",
    "comments": "#\n" * (FILL // 2 - 10) + "shares",
    "receivers": "shares == 1 : fwd(" + ",".join(f"h{n}" for n in range(1200)) + ")",
    "macros": " or ".join(f"avg(price, {n + 1}) > {n}" for n in range(200)),
}


def read_or_refused(run: Callable[[], object]) -> None:
    """Whatever comes out is ours, and short enough to be read."""
    try:
        run()
    except StackcastError as error:
        assert len(str(error)) < 4000


@pytest.mark.integration
@pytest.mark.parametrize("what", LONG_RULES)
def test_a_rule_of_the_greatest_length_is_read_or_refused(what: str):
    text = LONG_RULES[what][:FILL]
    read_or_refused(lambda: parse_rule(text, LOOSE))
    read_or_refused(lambda: compile_texts([text], LOOSE, 20_000))


LONG_FILES = {
    "empty rules": ";" * 300_000,
    "short rules": "1;" * 150_000,
    "lines": "\n" * 300_000,
    "parentheses": "(" * 300_000,
    "braces": "{;" * 150_000,
    "quotes": "\"'" * 150_000,
    "a quote a line": "\"\n'\n" * 75_000,
    "blanks": (" " * 300 + "\n") * 1000 + " " * 100_000 + "and" + " " * 100_000 + "x d",
    "continued": "and\n" * 75_000,
    "comments": "#" * 150_000 + "\n#" * 75_000,
}


@pytest.mark.integration
@pytest.mark.parametrize("what", LONG_FILES)
def test_a_long_file_is_split_into_no_more_than_it_holds(what: str):
    text = LONG_FILES[what]
    found = split_rules(text)
    assert sum(len(rule) for rule, _ in found) < 100 * len(text)


LONG_FORMATS = {
    "open comment": "/*" * 50_000,
    "comments": "/**/" * 25_000,
    "long comment": "/*" + "*" * 100_000 + "*/",
    "braces": "header_type t {" * 5000,
    "annotations": "@" * 50_000,
    "fields": "header_type t { fields {" + "".join(f"f{n}: 8;" for n in range(5000)) + "} } "
    "header t h;",
    "headers": "".join(
        f"header_type t{n} {{ fields {{ a: 8; }} }} header t{n} h{n};" for n in range(2000)
    ),
    "number": "header_type t { fields { a: " + "9" * 100_000 + "; } }",
    "name": "header_type " + "t" * 100_000 + " { fields { a: 7; } }",
}


@pytest.mark.integration
@pytest.mark.parametrize("what", LONG_FORMATS)
def test_a_long_format_is_read_or_refused(what: str):
    read_or_refused(lambda: parse_specification(LONG_FORMATS[what], "long"))
