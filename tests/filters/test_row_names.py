"""Ids, names and texts that cannot be shown safely are refused from every source."""

from __future__ import annotations

import unicodedata
from unittest.mock import Mock

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StructField, StructType
from typer.testing import CliRunner

from stackcast import schemas
from stackcast.cli.main import app
from stackcast.jobs.adapters.states.row_states import StateFilters
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import MessageError, SubscriptionError
from stackcast.udfs.filters.advertisements import Advertisement, check_advertisements
from stackcast.udfs.filters.grants import Grant, Grants
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.row_matcher import RowMatcher
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.messages.summaries import read_request, request
from stackcast.udfs.names import MOST_NAME, name_fault

pytestmark = pytest.mark.unit

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
HOSTS = {"h1", "h2", "feed1"}
#: NUL, an escape, one of eight bits, directions of text, an end of a line, half a pair, no letter.
SIGNS = "\x00\x1b\x9b\u202e\u2067\u200f\u2028\n\ud800\ufdd0"
LONG = "x" * (MOST_NAME + 1)


def hostile_names() -> st.SearchStrategy[str]:
    """Names with a character that does not print, or with too many bytes."""
    parts = st.text(st.characters(codec="utf-8"), max_size=5)
    signs = st.sampled_from(SIGNS) | st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])
    return st.builds("".join, st.tuples(parts, signs, parts)) | st.just("é" * 128)


def is_unsafe(character: str) -> bool:
    """By Unicode's own tables: a control, a surrogate, a separator or a direction."""
    category = unicodedata.category(character)
    directions = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    marks = {"LEFT-TO-RIGHT MARK", "RIGHT-TO-LEFT MARK", "ARABIC LETTER MARK"}
    return (
        (category == "Cc" and character not in "\t\n\r")
        or category in ("Cs", "Zl", "Zp")
        or unicodedata.bidirectional(character) in directions
        or unicodedata.name(character, "") in marks
    )


@pytest.mark.integration
@pytest.mark.parametrize("others", [3, 1_500], ids=["few rows", "many rows"])
@examples(60)
@given(st.lists(hostile_names(), min_size=1, max_size=3, unique=True), st.booleans())
@example(["x" * 60_000, LONG], True)
@example(list(SIGNS), False)
def test_a_row_with_a_bad_id_or_host_is_rejected_and_all_others_are_live(
    others: int, names: list[str], forwards: bool
):
    action = " : fwd(h2)" if forwards else ""
    texts = [f"price > {number}{action}" for number in range(others)]
    good = [Subscription(f"rule {n}", "h1", text) for n, text in enumerate(texts)]
    by_id = [Subscription(name, "h1", f"shares > 7{action}") for name in names]
    by_host = [
        Subscription(f"host {n}", name, f"shares > 8{action}") for n, name in enumerate(names)
    ]
    rules, rejections = check([*by_id, *good, *by_host], ITCH, HOSTS, "feed1")
    assert [rule.id for rule in rules] == [row.id for row in good]
    assert [rejection.id for rejection in rejections] == [row.id for row in (*by_id, *by_host)]
    for rejection in rejections:
        assert rejection.code == "SUBSCRIPTION.BAD_NAME"
        assert rejection.message.isprintable() and len(rejection.message) < 300


@pytest.mark.parametrize(
    "name", ["h1", "rule 7, of Zoë", "правило", "規則", "قاعدة", "</b>", "a'; DROP TABLE hosts"]
)
def test_names_that_print_are_names_in_any_script(name: str):
    assert name_fault(name) is None
    rules, rejections = check([Subscription(name, "h1", "price > 1")], ITCH, HOSTS, "feed1")
    assert len(rules) == 1 and not rejections


def test_a_name_has_as_many_bytes_as_a_request_can_carry():
    for name in ("x" * MOST_NAME, "é" * (MOST_NAME // 2)):
        assert name_fault(name) is None
        assert read_request(request(b"8ZY63T0000", 1, 1, name)).name == name
    assert name_fault(LONG) and name_fault(" ") and name_fault("")


@examples(60)
@given(st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Co", "Cn"]))
def test_a_request_in_a_name_that_does_not_print_is_refused(character: str):
    with pytest.raises(MessageError, match="BAD_REQUEST"):
        read_request(request(b"8ZY63T0000", 1, 1, f"h1{character}"))


@examples(200)
@given(st.characters() | st.sampled_from(SIGNS), st.integers(0, 9))
def test_a_comment_may_contain_all_characters_except_unsafe_ones(character: str, before: int):
    text = f"price > 5\n#{'-' * before}{character}"
    if not is_unsafe(character):
        parse_rule(text, ITCH)
        return
    with pytest.raises(SubscriptionError) as caught:
        parse_rule(text, ITCH)
    assert caught.value.code == "SUBSCRIPTION.BAD_CHARACTER"
    assert (caught.value.line, caught.value.column) == (2, before + 2)
    assert all(c.isprintable() or c == "\n" for c in caught.value.message)
    # Many rules of one shape are read as columns.
    rules = [f"price > {number} # none" for number in range(40)]
    table = read_table([*rules, f"price > 41 # {character}"], ITCH)
    assert [(at, error.code) for at, error in table.errors] == [(40, caught.value.code)]


@pytest.mark.parametrize("sign", [sign for sign in SIGNS if sign not in "\n\ufdd0\ud800"])
def test_a_file_of_rules_is_judged_as_the_table_is(sign: str, tmp_path):
    path = tmp_path / "rules"
    path.write_text(f"price > 5\nshares > 3 and {sign}price < 9\n", encoding="utf-8")
    command = ["filters", "check", "--format", "itch", "--rules", str(path)]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 1
    assert f"{path}:2:16: SUBSCRIPTION.BAD_CHARACTER" in ended.output
    assert "rules:1" not in ended.output


@examples(60)
@given(hostile_names(), st.booleans())
@example("x" * 60_000, True)
def test_rules_over_rows_of_tables_go_by_the_same_rule(name: str, is_id: bool):
    schema = pa.schema([("price", pa.int64())])
    fine = Subscription("fine", "h1", "price > 1")
    odd = Subscription(name if is_id else "odd", "h1" if is_id else name, "price > 2")
    with pytest.raises(SubscriptionError) as caught:
        RowMatcher(schema, [fine, odd])
    assert caught.value.code == "SUBSCRIPTION.BAD_NAME" and caught.value.fields["id"] == odd.id
    assert caught.value.message.isprintable() and len(caught.value.message) < 500


@pytest.mark.parametrize("name", [*(f"a{sign}" for sign in SIGNS), LONG])
def test_a_filter_of_states_with_a_bad_name_is_left_out_and_logged(
    caplog: pytest.LogCaptureFixture, name: str
):
    row = {"source": "prices", "filter": "price > 1", "enabled": True}
    tables = Mock(spec=Tables)
    tables.version.return_value = 1
    tables.rows.return_value = [row | {"name": name}, row | {"name": "fine"}]
    filters = StateFilters(tables, "prices")
    filters.refresh(StructType([StructField("price", LongType())]))
    assert [rule.id for rule in filters.valid] == ["fine"]
    (record,) = caplog.records
    assert "SUBSCRIPTION.BAD_NAME" in record.getMessage()
    assert record.getMessage().isprintable()


def test_grants_and_advertisements_go_by_the_same_rule():
    rows = [Grant("fine", "h1", "price > 1"), Grant("g\x1b", "h1", "all"), Grant("h", "\0", "all")]
    grants = Grants(rows, ITCH)
    assert [(name, error.code) for name, error in grants.errors] == [
        ("g\x1b", "SUBSCRIPTION.BAD_NAME"),
        ("h", "SUBSCRIPTION.BAD_NAME"),
    ]
    fine, rejections = check_advertisements(
        [Advertisement("feed1", "all", "a\u202e"), Advertisement("feed1", "all", "b")], ITCH, HOSTS
    )
    assert [row.id for row in fine] == ["b"]
    assert [row.code for row in rejections] == ["SUBSCRIPTION.BAD_NAME"]
