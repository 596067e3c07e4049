"""Rules on attributes: constants, explanations and tables are in the units of each attribute."""

from __future__ import annotations

import operator
import random
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from attribute_records import read_records
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import EventError, SpecificationError, SubscriptionError
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.filters.explanation.events import EventReader
from stackcast.udfs.filters.explanation.explain import shown_value
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import RuleTable, read_table
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.normal_form import normal_form
from stackcast.udfs.filters.meaning.state import describe
from stackcast.udfs.filters.nodes import Aggregate, Predicate, StatePredicate
from stackcast.udfs.messages.attributes.registry import AttributeField, Registry, attribute

pytestmark = pytest.mark.unit

REGISTRY = Registry(
    (
        attribute(0, "ts", "timestamp"),
        attribute(1, "temp", "decimal"),
        attribute(2, "hum", "unsigned"),
        attribute(3, "depth", "signed"),
        attribute(4, "odd", "decimal", "0.25", "-3.1"),
        attribute(5, "thirds", "decimal", "0.3", "1"),
        attribute(6, "high", "unsigned", "1", "1000"),
        attribute(7, "fine", "decimal", "0.000001", "-1"),
        attribute(8, "coarse", "unsigned", "100", "0"),
        attribute(9, "ms", "timestamp", "0.001", "1767225600"),
        attribute(10, "above", "unsigned", "1", "5000000000"),
        attribute(11, "below", "signed", "1", "-5000000000"),
    )
)
FORMAT = REGISTRY.specification()
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def field(name: str) -> AttributeField:
    found = FORMAT.field(name)
    assert isinstance(found, AttributeField)
    return found


def refusal(text: str) -> tuple[str, str]:
    with pytest.raises(SubscriptionError) as caught:
        parse_rule(text, FORMAT)
    return caught.value.code, caught.value.message


def constants(text: str) -> tuple[tuple[int, int], ...]:
    condition = parse_rule(text, FORMAT).condition
    assert isinstance(condition, Predicate)
    return condition.constants


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("temp < 30", (1 << 31) + 3000),
        ("temp >= -5.5", (1 << 31) - 550),
        ("temp == '30.00'", (1 << 31) + 3000),
        ("temp == 21474836.47", (1 << 32) - 1),
        ("depth > -2147483648", 0),
        ("hum == 0x10", 16),
        ("coarse == 4000", 40),
        ("high <= 1000", 0),
        ("odd == -3.1", 0),
        ("odd == -2.85", 1),
        ("thirds == 1.9", 3),
        ('ts > "2026-01-01T00:00:00Z"', 1767225600),
        ("ts > '2026-01-01 01:00+01:00'", 1767225600),
        ("ts > 2026-01-01", 1767225600),
        ("ts > 1767225600", 1767225600),
        ("ms == '2026-01-01T00:00:01.25Z'", 1250),
    ],
)
def test_a_constant_is_in_units_of_its_attribute(text: str, raw: int) -> None:
    assert constants(text) == ((raw, raw),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temp == 1.555", "0.01 apart; the nearest values are 1.55 and 1.56"),
        ("hum < 1.5", "1 apart; the nearest values are 1 and 2"),
        ("ts < '2026-01-01T00:00:00.5Z'", "nearest values are 2026-01-01T00:00:00Z and"),
        ("hum < -1", "less than 0, the minimum of 'hum'"),
        ("high < 999", "less than 1000, the minimum"),
        ("temp > 21474836.48", "greater than 21474836.47, the maximum"),
        ("ts > '2200-01-01'", "greater than 2106-02-07T06:28:15Z, the maximum"),
        ("hum == warm", "not a number: compare 'hum' with a number, such as 50"),
        ("hum == '2026-01-01'", "not a number"),
        ("ts == '2026-02-30'", "or with a quoted time, such as"),
        ("hum == 10.0.0.1", "not a number"),
        ("hum == 10/8", "not a number"),
        ("hum == 1e3", "not a number"),
    ],
)
def test_a_constant_that_no_value_is_is_refused_with_the_reason(text: str, words: str) -> None:
    code, message = refusal(text)
    assert code == "SUBSCRIPTION.BAD_CONSTANT"
    assert words in message


def test_codes_of_constants_are_those_of_other_fields() -> None:
    for name, constant, what in (
        ("temp", "0.001", "TOO_FINE"),
        ("temp", Decimal("1e-999999"), "TOO_FINE"),
        ("temp", Decimal("1e999999"), "TOO_WIDE"),
        ("temp", Decimal("-1e999999"), "NEGATIVE"),
        ("hum", 1 << 32, "TOO_WIDE"),
        ("hum", "NaN", "NOT_NUMBER"),
        ("hum", "x", "NOT_NUMBER"),
    ):
        with pytest.raises(SpecificationError) as caught:
            field(name).encode(constant)
        assert caught.value.what == f"CONSTANT_{what}", (name, constant)


def test_an_unknown_attribute_is_named_with_one_that_is_meant() -> None:
    code, message = refusal("tmep < 30")
    assert code == "SUBSCRIPTION.UNKNOWN_FIELD"
    assert "attributes has no field 'tmep'" in message


def test_aggregates_compare_in_units_and_sums_need_an_offset_of_0() -> None:
    code, message = refusal("sum(temp, 100) > 5")
    assert code == "SUBSCRIPTION.BAD_AGGREGATE"
    assert "offset" in message and "avg(temp)" in message

    def value(text: str) -> int:
        condition = parse_rule(text, FORMAT).condition
        assert isinstance(condition, StatePredicate)
        return condition.value

    for function in ("avg", "min", "max"):
        assert value(f"{function}(temp, 100) > -5.5") == (1 << 31) - 550
    assert value("sum(hum, 100) > 99999999999") == 99_999_999_999
    assert value("sum(coarse, 100) > 99999999900") == 999_999_999
    assert value("count(100) > 5") == 5


def test_a_dead_band_is_in_units_whatever_the_offset() -> None:
    def band(text: str) -> int:
        condition = parse_rule(text, FORMAT).condition
        assert isinstance(condition, StatePredicate) and isinstance(condition.subject, Aggregate)
        return condition.subject.window

    bands = ["temp, 0.5", "odd, 1.5", "thirds, .6", "coarse, 300", "ms, 1", "above, 7"]
    assert [band(f"moved({text})") for text in bands] == [50, 6, 2, 3, 1000, 7]
    assert band("changed(odd)") == 1
    code, message = refusal("moved(odd, 0.3)")
    assert code == "SUBSCRIPTION.BAD_AGGREGATE" and "are 0.25 apart" in message


def test_a_field_stays_an_attribute_when_it_is_changed() -> None:
    wider = replace(field("hum"), bits=64, kind="decimal")
    assert wider.parse("4294967296") == (1 << 32, 1 << 32)
    assert wider.render(1 << 40) == str(1 << 40)
    assert field("temp").lanes() == (field("temp"),)


@given(
    st.sampled_from([one.name for one in REGISTRY.attributes]),
    st.integers(0, (1 << 32) - 1),
    st.sampled_from(list(COMPARE)),
    st.lists(st.integers(-2, 2), min_size=1),
    st.integers(0, (1 << 32) - 1),
)
def test_a_comparison_holds_where_it_holds_of_the_values_in_units(
    name: str, raw: int, compare: str, steps: list[int], other: int
) -> None:
    one = REGISTRY.by_name[name]

    def value(at: int) -> Fraction:
        return Fraction(one.offset) + at * Fraction(one.scale)

    rule = parse_rule(f'{name} {compare} "{field(name).show(raw)}"', FORMAT)
    near = [raw + step for step in steps if 0 <= raw + step < 1 << 32]
    for event in [*near, other]:
        assert matches(rule.condition, {name: event}) == COMPARE[compare](value(event), value(raw))
    assert not matches(rule.condition, {})


def one_by_one(texts: list[str]) -> tuple[dict[int, object], dict[int, str]]:
    """Terms and errors by number."""
    terms: dict[int, object] = {}
    errors: dict[int, str] = {}
    for at, text in enumerate(texts):
        try:
            condition = parse_rule(text, FORMAT).condition
            found = tuple(normal_form(condition, FORMAT))
        except SubscriptionError as error:
            errors[at] = str(error)
        else:
            if found:
                terms[at] = found
    return terms, errors


def terms_of(table: RuleTable) -> dict[int, object]:
    found: dict[int, object] = {
        rule: (term,) for block in table.blocks for term, rule in block.terms()
    }
    for at, rule in table.rules:
        if terms := tuple(normal_form(rule.condition, FORMAT)):
            found[at] = terms
    return found


@pytest.mark.integration
def test_many_rules_at_once_are_read_as_each_by_itself() -> None:
    draw = random.Random(7)
    edges = ["0", "0.0", "1", "-1", "4294967295", "4294967296", "21474836.47", "21474836.48", ".5"]
    edges += ["1000", "999", "4294968295", "4294968296", "5000000000", "9294967295", "9294967296"]
    edges += ["-5000000000", "'1'", "1.", "1e3", "warm", "0x1F", "9" * 19, "9" * 20, "0.000001"]

    def constant(name: str) -> str:
        if draw.random() < 0.1:
            return draw.choice(edges)
        if draw.random() < 0.6:
            shown = field(name).show(draw.randrange(1 << draw.choice([8, 20, 32])))
            return f"'{shown}'" if ":" in shown else shown.rstrip("0") + "0"
        places = draw.choice([0, 0, 1, 2, 2, 3, 6, 7])
        return f"{draw.uniform(-5, 5000):.{places}f}"

    texts = []
    for at in range(2400):
        one = REGISTRY.attributes[at % len(REGISTRY.attributes)].name
        compare = ["<", ">", "<=", ">=", "=="][at // len(REGISTRY.attributes) % 5]
        # The first of a shape decides how the others are read: 0 says least of a scale.
        written = "0" if at < 60 else constant(one)
        more = "" if at < 60 or at % 7 else f" and hum > {constant('hum')}"
        texts.append(f"{one} {compare} {written}{more}: fwd(h{at % 7})")
    table = read_table(texts, FORMAT)
    terms, errors = one_by_one(texts)
    assert len(terms) > 500 and len(errors) > 500
    assert {at: str(error) for at, error in table.errors} == errors
    assert terms_of(table) == terms
    assert sum(map(len, table.blocks)) > 300


def test_numerals_are_read_as_columns_where_units_are_decimal() -> None:
    assert field("hum").numerals() == (0, 0)
    assert field("temp").numerals() == (2, 1 << 31)
    assert field("high").numerals() == (0, -1000)
    assert field("ms").numerals() == (3, -1_767_225_600_000)
    for name in ("odd", "thirds", "coarse"):
        assert field(name).numerals() is None


def test_tables_and_explanations_say_units() -> None:
    rules = [
        "temp < 30 and hum > 15 : fwd(h1)",
        "temp >= 30 : fwd(h2)",
        "ts >= 2026-01-01 : fwd(h3)",
    ]
    compiled = compile_texts(rules, FORMAT)
    texts = {row["text"] for row in compiled.entry_rows()}
    assert {"temp >= 30.00", "hum >= 16", "ts >= 2026-01-01T00:00:00Z"} <= texts
    described = describe(normal_form(parse_rule(rules[0], FORMAT).condition, FORMAT)[0], FORMAT)
    assert described == "hum >= 16 and temp <= 29.99"
    assert shown_value("temp", (1 << 31) + 2550, FORMAT) == "25.50"
    assert shown_value("ts", 1_767_225_600, FORMAT) == "2026-01-01T00:00:00Z"


def test_events_of_explanations_are_read_as_those_of_the_stream() -> None:
    reader = EventReader(FORMAT)
    lines = [
        '{"temp": 25.5, "hum": 30}',
        '{"temp": -0.005, "hum": 0.5}',
        '{"ts": "2026-01-01T00:00:00.5Z", "depth": -7}',
        '{"ts": 1767225600, "odd": -3, "hum": null}',
        '{"thirds": 1.9, "fine": 0.1234567}',
    ]
    events = read_records((line.encode() for line in lines), REGISTRY)
    assert not events.reason.any()
    for at, line in enumerate(lines):
        streamed = {
            one.name: int(events.values[one.id, at])
            for one in REGISTRY.attributes
            if events.mask[at] >> one.id & 1
        }
        assert reader.read_line(line).values == streamed
    for line in (
        '{"hum": -1}',
        '{"hum": 4294967296}',
        '{"hum": "30"}',
        '{"hum": NaN}',
        '{"hum": 1e400}',
        '{"hum": true}',
        '{"ts": "yesterday"}',
        '{"hum": [1]}',
        f'{{"hum": {10**400}}}',
    ):
        with pytest.raises(EventError) as caught:
            reader.read_line(line)
        assert caught.value.code == "EVENT.BAD_VALUE", line


def test_a_time_is_shown_as_the_standard_library_shows_it() -> None:
    for raw in (0, 86_399, 951_782_400, 1_767_225_600, (1 << 32) - 1):
        shown = field("ts").render(raw)
        assert shown == datetime.fromtimestamp(raw, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert field("ms").render(1_250) == "2026-01-01T00:00:01.250Z"
