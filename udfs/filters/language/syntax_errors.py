"""Errors in the text of a rule: the fault, its place, and advice."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from stackcast.udfs.errors import MAX_NAME, SubscriptionError, excerpt, nearest
from stackcast.udfs.filters.language.habits import HIDDEN, habit_at
from stackcast.udfs.names import name_fault

__all__ = [
    "MAX_NAME",
    "check_names",
    "in_file",
    "nearest",
    "position_in",
    "subscription_error",
    "syntax_error",
]

_COMPARISON = "a comparison (== != < <= > >= in between)"
_WORDS: Mapping[str, str] = {
    "COMPARISON": _COMPARISON,
    "_IN": _COMPARISON,
    "_BETWEEN": _COMPARISON,
    "FIELD": "a field",
    "FUNCTION": "a function such as avg(price)",
    "CHANGE": "a function such as avg(price)",
    "NOT": "'not'",
    "LPAR": "'('",
    "WINDOW": "a window in microseconds",
    "RPAR": "')'",
    "LBRACE": "'{'",
    "_AND": "'and'",
    "_OR": "'or'",
    "BARE": "a constant",
    "ADDRESS": "a constant",
    "TIME": "a constant",
    "QUOTED": "a constant",
    "COLON": "': fwd(...)'",
    "_FWD": "'fwd(...)'",
    "NAME": "another action",
    "PORT": "a port number",
    "HOST": "a host name or port number",
    "_ARROW": "'<-'",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "RBRACE": "'}'",
    "$END": "the end of the rule",
}
_FOUND = re.compile(r"[\w.\-]+|\S", re.ASCII)
_INSIDE = re.compile(r"\b(?!(?:and|or|not)\b)([A-Za-z_]\w*)\s*\([^()]*$", re.IGNORECASE)
_FUNCTIONS = ("count", "sum", "avg", "min", "max")
_CHANGES = ("changed", "moved")
_CALLED = re.compile(r"([A-Za-z_]\w*)\s*\([^()]*\)$")
_PLACE = re.compile(r"line \d+, ")


def subscription_error(
    what: str, text: str, place: tuple[int, int], message: str, suggestion: str | None = None
) -> SubscriptionError:
    """Makes a ``SubscriptionError`` that points into ``text``.

    ``place`` is line and column, 1-based. The message reads ``line 1, column 7: ...``,
    then the suggestion, then the line with a caret under the place.
    """
    line, column = place
    hint = f"; did you mean '{suggestion}'?" if suggestion else ""
    return SubscriptionError(
        what,
        f"line {line}, column {column}: {message}{hint}\n{excerpt(text, line, column)}",
        line=line,
        column=column,
        suggestion=suggestion,
    )


def check_names(**names: str) -> None:
    """Checks names in a row of a table by the names of their columns.

    Raises SubscriptionError BAD_NAME. Empty names are for others to judge: some rows need none.
    """
    for column, name in names.items():
        fault = name_fault(name) if name else None
        if fault:
            message = (
                f"the {column} {fault}; write the row with another {column}, and delete this one"
            )
            raise SubscriptionError("BAD_NAME", message, line=1, column=1)


def in_file(error: SubscriptionError, first_line: int) -> SubscriptionError:
    """Moves the error of a rule to its file, in which it begins in line ``first_line``
    (1-based)."""
    line = error.fields["line"] + first_line - 1
    message = _PLACE.sub(f"line {line}, ", error.message, count=1)
    return SubscriptionError(error.what, message, **{**error.fields, "line": line})


def syntax_error(text: str, error: UnexpectedInput) -> SubscriptionError:
    """Words a parser's error: the text found and the texts expected there, as
    SUBSCRIPTION.SYNTAX."""
    if isinstance(error, UnexpectedCharacters):
        names, position = set(error.allowed or ()), error.pos_in_stream
    elif isinstance(error, UnexpectedToken):
        ended = error.token.type == "$END"
        names = set(error.accepts or error.expected)
        position = len(text.rstrip()) if ended else error.token.start_pos
    else:
        names, position = {"$END"}, len(text)
    position = min(position or 0, len(text))
    habit = habit_at(text, position)
    if habit is not None:
        return subscription_error("SYNTAX", text, position_in(text, habit.position), habit.message)
    # In the order of _WORDS: what one would most likely have meant stands first.
    hidden = {"NOT"} if "COMPARISON" in names else set()
    words = list(dict.fromkeys(_WORDS[name] for name in _WORDS if name in names - hidden))
    expected = ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else "".join(words)
    match = _FOUND.match(text, position)
    found = f"'{match.group()[:32]}'" if match else "the end"
    return subscription_error(
        "SYNTAX",
        text,
        position_in(text, position),
        f"expected {expected}, found {found}{_advice(text, position, names)}",
    )


def position_in(text: str, position: int) -> tuple[int, int]:
    """Returns line and column (1-based) of a position (0-based)."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _advice(text: str, position: int, names: set[str]) -> str:
    """Returns advice for the slips that people make."""
    here, before = text[position : position + 1], text[:position].rstrip()[-1:]
    called = _CALLED.search(text[:position].rstrip())
    if called and called[1] in _CHANGES and here in "=!<>≠≤≥":
        return f"; {called[1]}(...) is a condition by itself and cannot be compared"
    change = nearest(called[1], _CHANGES) if called and "COMPARISON" in names else None
    if change:
        return f"; did you mean '{change}'?"
    if "BARE" in names:
        if here == ">" and before == "<":
            return "; write '!=' for 'not equal'"
        if here in ("<", ">") and before == "=":
            return f"; write '{here}=' for 'or equal'"
        if here in ('"', "'"):
            return "; the closing quote is missing"
        if here == "=" and before == "=" and text[:position].rstrip().endswith("!="):
            return "; write '!=' for 'not equal'"
        if here == "=":
            return "; write '==' for 'equals'"
        if here in ("{", "["):
            return "; write in {a, b} for 'one of'"
    if "FIELD" in names and (here.isdigit() or here in ('"', "'")):
        return "; write the field on the left and the constant on the right, as in price > 50"
    if "_OR" in names and here == ",":
        return "; write 1000 for 1,000, and 'or' between alternatives"
    if "LBRACE" in names and here in ("(", "["):
        return "; enclose the members of a set in braces, as in {a, b}"
    if here == ")" and "COLON" in names:
        return "; this ')' has no matching '('"
    inside = _INSIDE.search(text, 0, position)
    if "RPAR" in names and "FIELD" not in names and inside and inside[1] != "fwd":
        if nearest(inside[1], _FUNCTIONS):
            if "COMMA" in names and here.isdigit():
                return "; write a comma before the window, as in avg(price, 100)"
            return "; close the macro with ')', as in avg(price)"
        return "; separate arguments by commas, and close them with ')'"
    opened = _open_parenthesis(text, position) if here in ("", ":", ";") else None
    if "RPAR" in names and opened is not None:
        word = _FOUND.search(text, opened + 1)
        return f"; the '(' before '{word.group()[:MAX_NAME] if word else ''}' is not closed"
    if "COMMA" in names and "RPAR" in names and here and "WINDOW" not in names:
        return "; separate hosts by commas, as in fwd(h1, h2)"
    if "_ARROW" in names and here in ("<", "=", "≤"):
        return "; write '<-' to update a variable"
    if "_ARROW" in names:
        return "; enclose hosts in parentheses, as in fwd(h1, h2)"
    if "WINDOW" in names and "FIELD" not in names:
        return "; a window must be a whole number of microseconds, as in avg(price, 100)"
    return ""


def _open_parenthesis(text: str, position: int) -> int | None:
    """Returns the position of the last parenthesis that is open before ``position``."""
    opened = []
    for found in re.finditer(r"[()]", HIDDEN.sub(lambda m: " " * len(m[0]), text[:position])):
        if found[0] == "(":
            opened.append(found.start())
        elif opened:
            opened.pop()
    return opened[-1] if opened else None
