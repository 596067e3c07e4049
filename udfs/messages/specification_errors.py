"""Errors in the text of a specification: the fault, its place, and advice."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from stackcast.udfs.errors import SpecificationError, excerpt, nearest

FIELD_ANNOTATIONS = ("string", "decimals", "clock", "resolution", "time_of_day")
HEADER_ANNOTATIONS = ("message_type",)
_QUERIES = (
    "query_field",
    "query_field_exact",
    "query_field_range",
    "query_field_lpm",
    "query_counter",
    "query_default_action",
)
_KNOWN = frozenset((*FIELD_ANNOTATIONS, *HEADER_ANNOTATIONS, *_QUERIES, "pragma"))
_MAX_WHY = 300

_WORDS: Mapping[str, str] = {
    "_HEADER_TYPE": "'header_type'",
    "_HEADER": "'header'",
    "_FIELDS": "'fields'",
    "_BIT": "'bit<...>'",
    "QUERY": "'query_field'",
    "DEFAULT": "'query_default_action'",
    "AT": "an annotation such as @query_field",
    "PATH": "header.field",
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "text in quotes",
    "ACTION": "an action",
    "COLON": "':'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "$END": "the end",
}
_FOUND = re.compile(r"\w+|\S", re.ASCII)
_MARKS = re.compile(
    r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|#(?!pragma\b)[^\n]*|[@#]pragma[^\S\n]+(\w+)|@\s*(\w+)',
    re.DOTALL | re.ASCII,
)


def specification_error(
    what: str,
    text: str,
    source: str,
    place: tuple[int, int],
    why: str,
    suggestion: str | None = None,
) -> SpecificationError:
    """Makes a ``SpecificationError`` that points into ``text``, which is that of ``source``.

    ``place`` is line and column, 1-based. Below the message stands the line with a caret.
    """
    line, column = place
    # A name has no greatest length; a message has.
    why = why if len(why) <= _MAX_WHY else why[: _MAX_WHY - 3] + "..."
    hint = f"; did you mean '{suggestion}'?" if suggestion else ""
    return SpecificationError(
        what,
        f"{source}, line {line}, column {column}: {why}{hint}\n{excerpt(text, line, column)}",
        line=line,
        column=column,
        suggestion=suggestion,
    )


def syntax_error(text: str, source: str, error: UnexpectedInput) -> SpecificationError:
    """Words a parser's error: the text found and the texts expected there, as SYNTAX, or as
    BAD_ANNOTATION for an annotation that there is not."""
    if isinstance(error, UnexpectedCharacters):
        names, position = set(error.allowed or ()), error.pos_in_stream or 0
    elif isinstance(error, UnexpectedToken):
        names = set(error.accepts or error.expected)
        ended = error.token.type == "$END"
        position = len(text.rstrip()) if ended else error.token.start_pos or 0
    else:
        names, position = {"$END"}, len(text.rstrip())
    # An annotation that there is not is read as one of a header, and only what follows it as wrong.
    for mark in _MARKS.finditer(text):
        if mark.start() > position:
            break
        group = 1 if mark[1] else 2
        if mark[group] and mark[group] not in _KNOWN:
            return specification_error(
                "BAD_ANNOTATION",
                text,
                source,
                _place(text, mark.start(group)),
                f"unknown annotation @{mark[group]}",
                nearest(mark[group], _QUERIES if group == 1 else _KNOWN - {"pragma"}),
            )
    words = list(dict.fromkeys(word for name, word in _WORDS.items() if name in names))
    expected = ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else "".join(words)
    match = _FOUND.match(text, position)
    found = match.group()[:32] if match else ""
    return specification_error(
        "SYNTAX",
        text,
        source,
        _place(text, position),
        f"expected {expected}, found " + (f"'{found}'" if found else "the end"),
        _meant(found, names),
    )


def _meant(found: str, names: set[str]) -> str | None:
    if not found[:1].isalpha():
        return None
    if "AT" in names and found in _KNOWN:
        return f"@{found}"
    keywords = [
        _WORDS[name].strip("'") for name in names if name.startswith("_") and name in _WORDS
    ]
    near = nearest(found, keywords)
    return near if near != found else None


def _place(text: str, position: int) -> tuple[int, int]:
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
