"""Texts of SQL are parted into statements as Spark reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.tables.statements import Statement, split

pytestmark = pytest.mark.unit

#: Parts of a statement that may have a semicolon inside.
PARTS = (
    "SELECT 1",
    "'a;b'",
    "'it''s; here'",
    r"'a\';b'",
    '"a;b"',
    r"r'\'",
    "`a;``b`",
    "-- a; b'\n",
    "/* a; /* b; */ ' */",
    "\n",
    "x = 5",
)


@given(st.lists(st.lists(st.sampled_from(PARTS), min_size=1), max_size=4))
def test_only_semicolons_outside_of_texts_names_and_comments_end_statements(
    statements: list[list[str]],
) -> None:
    texts = [" ".join(["SELECT", *parts]) for parts in statements]
    found, remainder = split("".join(f"{text} ;" for text in texts))
    assert [statement.text for statement in found] == [text.strip() for text in texts]
    assert remainder.text == ""


@pytest.mark.parametrize(
    "text", ["SELECT 'a;", 'SELECT "a;', "SELECT `a;", "SELECT /* a;", "SELECT 1", "/* a;"]
)
def test_a_statement_without_an_end_remains(text: str) -> None:
    assert split(f"SELECT 1;\n{text}") == ([Statement("SELECT 1", 1)], Statement(text, 2))


def test_statements_know_their_lines_and_comments_alone_are_none() -> None:
    text = "-- all rules;\n\nSELECT 1\n; ;\n/* more */\nSELECT\n2; -- end\n"
    assert split(text) == ([Statement("SELECT 1", 3), Statement("SELECT\n2", 6)], Statement("", 7))


def test_a_script_is_one_statement() -> None:
    script = """BEGIN
      DECLARE n INT DEFAULT CASE WHEN true THEN 1 END;
      IF n = 1 THEN SELECT 1; END IF;
      CASE n WHEN 1 THEN SELECT 2; END CASE;
      BEGIN SELECT 3; END;
    END"""
    assert split(f"{script}; SELECT 4;") == (
        [Statement(script, 1), Statement("SELECT 4", 6)],
        Statement("", 6),
    )
    # Not a script, although it has the words.
    assert len(split("SELECT CASE WHEN a THEN b; SELECT begin;")[0]) == 2


def test_words_are_those_that_name_something() -> None:
    statement = Statement("UPDATE `Subscriptions` /* hosts */ SET filter = 'links' -- x\n", 1)
    assert statement.words == ["update", "subscriptions", "set", "filter"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("INSERT INTO hosts SELECT * FROM links", ["insert", "into", "hosts", "select"]),
        ("WITH x AS (SELECT 1) INSERT INTO hosts SELECT 2", ["insert", "into", "hosts", "select"]),
        ("WITH x AS (SELECT 1) SELECT * FROM x", []),
        ("SELECT 'insert'", []),
        ("", []),
    ],
)
def test_statements_that_write_name_their_target_after_the_word_that_writes(
    text: str, words: list[str]
) -> None:
    assert Statement(text, 1).writing_words[:4] == words
