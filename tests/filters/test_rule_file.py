"""Files of rules: each rule is found, with its line, however it is laid out."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language import rule_file
from stackcast.udfs.filters.language.rule import in_file, parse_rule
from stackcast.udfs.filters.language.rule_file import split_rules
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

SPEC = parse_specification(
    """
    header_type order_t { fields { stock: 64; @decimals(4) price: 32; shares: 32; } }
    header order_t order;
    @query_counter(seen, 100)
    """,
    "market",
)

LAYOUTS = [
    ("stock == A", [("stock == A", 1)]),
    (
        "stock == A : fwd(1);\nstock == B : fwd(2);\n",
        [("stock == A : fwd(1)", 1), ("stock == B : fwd(2)", 2)],
    ),
    ("stock == A; stock == B;", [("stock == A", 1), (" " * 11 + " stock == B", 1)]),
    ("# a title\n\nstock == A # why\n", [("stock == A", 3)]),
    (
        "stock == A\n  and price > 5\n  : fwd(1)\nshares > 1",
        [("stock == A\n  and price > 5\n  : fwd(1)", 1), ("shares > 1", 4)],
    ),
    ("stock == A and\n# why\nprice > 5", [("stock == A and\n\nprice > 5", 1)]),
    ("(stock == A\nor stock == B)", [("(stock == A\nor stock == B)", 1)]),
    ("stock in {A,\nB}\nshares > 1", [("stock in {A,\nB}", 1), ("shares > 1", 3)]),
    (
        "shares > 1 : {\n  fwd(1);\n  seen <- count();\n}\nshares > 2",
        [("shares > 1 : {\n  fwd(1);\n  seen <- count();\n}", 1), ("shares > 2", 5)],
    ),
    ("stock == AND\nprice > 5", [("stock == AND", 1), ("price > 5", 2)]),
    (
        "price > 5\nnot price > 7\n!price > 8",
        [("price > 5", 1), ("not price > 7", 2), ("!price > 8", 3)],
    ),
    ("price\n!= 5", [("price\n!= 5", 1)]),
    ("price\nnot in {1}", [("price\nnot in {1}", 1)]),
    ('stock == "a;b#c" : fwd(1)', [('stock == "a;b#c" : fwd(1)', 1)]),
    ("(price > 5\n\nshares > 1", [("(price > 5", 1), ("shares > 1", 3)]),
    ("(price > 5;shares > 1", [("(price > 5", 1), ("           shares > 1", 1)]),
    ("(price > 5\nshares > 1", [("(price > 5", 1), ("shares > 1", 2)]),
    ("(price > 5 : fwd(1)\n(shares > 1)", [("(price > 5 : fwd(1)", 1), ("(shares > 1)", 2)]),
    ("stock in {A, B\nshares > 1", [("stock in {A, B", 1), ("shares > 1", 2)]),
    ("stock in {A; shares > 1", [("stock in {A", 1), (" " * 12 + " shares > 1", 1)]),
    (
        "shares > 1 : { fwd(1);\nshares > 2 : fwd(2)",
        [("shares > 1 : { fwd(1);", 1), ("shares > 2 : fwd(2)", 2)],
    ),
    ("(avg\n(price, 7\n) > 2\n)", [("(avg\n(price, 7\n) > 2\n)", 1)]),
    ("price > 5\r\nshares > 1\r\n", [("price > 5", 1), ("shares > 1", 2)]),
    ("", []),
    (" ;\n;; # nothing\n", []),
]


@pytest.mark.parametrize(("text", "rules"), LAYOUTS)
def test_rules_end_where_the_manual_says(text: str, rules: list[tuple[str, int]]):
    assert split_rules(text) == rules


PARTS = (
    "stock == A",
    "price > 5",
    "not shares < 3",
    "stock in {A, B}",
    "shares between 1 and 9",
    "(price > 1 or stock == ';')",
    'stock == "#"',
    "avg(price, 7) > 2",
)
ACTIONS = ("", " : fwd(1)", " : fwd(1, 2)", ": 1, 2", " : { fwd(1); seen <- count() }", ": a(b)")


@st.composite
def rules(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4))
    joint = st.sampled_from([" and ", "\nor ", " &&\n", " ^ # why\n  "])
    text = parts[0]
    for part in parts[1:]:
        text += draw(joint) + part
    return text + draw(st.sampled_from(ACTIONS))


@examples(150)
@given(
    st.lists(
        st.tuples(rules(), st.sampled_from(["\n", ";\n", "; ", " # so\n", "\n\n", ";\n# no\n"])),
        max_size=8,
    )
)
def test_rules_joined_to_a_file_are_given_back(parts: list[tuple[str, str]]):
    text = "".join(rule + end for rule, end in parts)
    found = split_rules(text)
    assert len(found) == len(parts)
    lines = text.split("\n")
    for (rule, _), (part, line) in zip(parts, found, strict=True):
        assert parse_rule(part, SPEC).actions == parse_rule(rule, SPEC).actions
        assert shape(part) == shape(rule)
        # Where a rule says it stands, it stands, to the column.
        begins = len(part) - len(part.lstrip())
        assert lines[line - 1][begins:].startswith(part.lstrip().split("\n")[0])


@examples(150)
@given(rules(), st.data())
def test_a_rule_may_go_on_in_the_next_line_at_any_blank(rule: str, data: st.DataObject):
    rule = " ".join(rule.replace("# why", "").split())
    quoted = {at for found in rule_file._HIDDEN.finditer(rule) for at in range(*found.span())}
    blanks = [at for at, sign in enumerate(rule) if sign == " " and at not in quoted]
    chosen = data.draw(st.sets(st.sampled_from(blanks))) if blanks else set()
    text = "".join("\n" if at in chosen else sign for at, sign in enumerate(rule))
    found = [" ".join(part.split()) for part, _ in split_rules(text + "\nshares > 77")]
    assert found == [rule, "shares > 77"]


def test_a_brace_left_out_costs_no_rule_that_begins_with_a_macro():
    text = "stock == A : { fwd(1); seen <- count();\navg(price, 7) > 2;\nshares > 5"
    assert [line for _, line in split_rules(text)] == [1, 2, 3]


@examples(300)
@given(
    st.lists(rules().map(lambda rule: " ".join(rule.replace("# why", "").split())), min_size=2),
    st.sampled_from(["", ";"]),
    st.data(),
)
def test_a_bracket_left_out_costs_its_own_rule_and_no_other(
    given_rules: list[str], end: str, data: st.DataObject
):
    at = data.draw(st.integers(0, len(given_rules) - 1))
    rule = given_rules[at]
    brackets = [i for i, sign in enumerate(rule) if sign in "(){}"]
    if not brackets:
        rule, brackets = f"({rule}", [len(rule) + 1]
    lost = data.draw(st.sampled_from(brackets))
    lines = [*given_rules]
    lines[at] = rule[:lost] + rule[lost + 1 :]
    found = {line: text for text, line in split_rules("\n".join(line + end for line in lines))}
    for number, whole in enumerate(given_rules):
        if number != at:
            assert found[number + 1].strip() == whole.strip()


def shape(rule: str) -> list[str]:
    found: list[str] = []

    def walk(node) -> None:
        found.append(type(node).__name__ + getattr(node, "text", ""))
        for child in getattr(node, "children", None) or [getattr(node, "child", None)]:
            if child is not None:
                walk(child)

    walk(parse_rule(rule, SPEC).condition)
    return found


soup = st.lists(
    st.sampled_from(
        [*"(){};:,#'\"\n\n\n ^&!=<-", "and", "not", "in", "A", " ", "fwd(1)", "\r", "\f"]
    )
).map("".join)


@examples(500)
@given(soup | st.text(max_size=30))
@example(")(\n(")
def test_any_text_is_split_and_the_quick_way_gives_the_same(text: str):
    found = split_rules(text)
    lines = text.split("\n")
    shown = [line.rstrip() for line in rule_file._shown(text).split("\n")]
    assert found == rule_file._split(lines, shown)
    assert all(rule.strip() and 1 <= line <= len(lines) for rule, line in found)
    assert [line for _, line in found] == sorted(line for _, line in found)


def test_the_errors_of_a_rule_tell_the_line_of_the_file():
    text = "# rules\nprice > 5\nstock == A and\n  prise > 7 : fwd(1)\n"
    rule, line = split_rules(text)[1]
    with pytest.raises(SubscriptionError) as caught:
        parse_rule(rule, SPEC)
    error = in_file(caught.value, line)
    assert (error.code, error.line, error.column) == ("SUBSCRIPTION.UNKNOWN_FIELD", 4, 3)
    assert error.message.startswith("line 4, column 3: ")
    assert error.message.endswith("prise > 7 : fwd(1)\n    ^") and error.suggestion == "price"


def test_a_file_of_plain_rules_is_a_rule_a_line():
    text = "".join(f"stock == S{i % 10} and price > {i} : fwd(h{i});\n" for i in range(2000))
    found = split_rules(text)
    assert [line for _, line in found] == list(range(1, 2001))
    assert found[7][0] == "stock == S7 and price > 7 : fwd(h7)"
