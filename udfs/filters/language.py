"""Text to syntax tree: the subscription language of CAMUS (Fig. 1) with our spellings.

Nothing that a user writes is evaluated as anything but this grammar, and nothing
but ``SubscriptionError`` comes out for any text, with the line, the column and an
excerpt with a caret. docs/subscriptions.md describes the language and every code.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from udfs.errors import SpecificationError, SubscriptionError
from udfs.filters.nodes import And, Forward, Node, Not, Operator, Or, Predicate, Rule
from udfs.messages.specification import Field, Specification

__all__ = ["And", "Node", "Not", "Or", "Predicate", "Rule", "parse_rule", "subscription_error"]

MAX_LENGTH = 8192
"""Characters of one rule."""
MAX_NESTING = 64
"""Parentheses and negations around one predicate."""
MAX_CONSTANT = 64
"""Characters of one constant; more than any field of 64 bits can need."""
MAX_FIELD_BITS = 64
"""Bits of a field that can be compared: what a lane of the matcher holds."""

_EXCERPT = 72

_WORDS: Mapping[str, str] = {
    "FIELD": "a field",
    "NOT": "'not'",
    "LPAR": "'('",
    "RPAR": "')'",
    "_AND": "'and'",
    "_OR": "'or'",
    "COMPARISON": "a comparison (== != < <= > >=)",
    "BARE": "a constant",
    "QUOTED": "a constant",
    "COLON": "': fwd(...)'",
    "_FWD": "'fwd(...)'",
    "HOST": "a host name",
    "COMMA": "','",
    "SEMICOLON": "';'",
    "$END": "the end of the rule",
}

_INTEGER = re.compile(r"[+-]?[0-9]+")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
_DECIMAL = re.compile(r"[+-]?[0-9]*\.[0-9]+")
_FOUND = re.compile(r"[\w.\-]+|\S", re.ASCII)


def subscription_error(
    what: str, text: str, place: tuple[int, int], message: str, suggestion: str | None = None
) -> SubscriptionError:
    """A ``SubscriptionError`` that points into ``text``.

    ``place`` is line and column, 1-based. The message reads ``line 1, column 7: ...``,
    then the suggestion, then the line with a caret under the place.
    """
    line, column = place
    lines = text.split("\n")
    content = lines[line - 1] if 0 < line <= len(lines) else ""
    start = max(0, min(column - 1, len(content)) - _EXCERPT // 2)
    # One character stays one column, whatever it is, so that the caret stands right.
    shown = "".join(c if c.isprintable() else " " for c in content[start : start + _EXCERPT])
    caret = " " * (column - 1 - start) + "^"
    hint = f"; did you mean '{suggestion}'?" if suggestion else ""
    return SubscriptionError(
        what,
        f"line {line}, column {column}: {message}{hint}\n  {shown}\n  {caret}",
        line=line,
        column=column,
        suggestion=suggestion,
    )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most like ``name``, or None if none is near."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(names, reverse=True)}
    found = difflib.get_close_matches(name.lower()[:MAX_CONSTANT], by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def parse_rule(text: str, specification: Specification) -> Rule:
    """Read one rule: a condition and, after a colon, ``fwd(host, ...)``.

    Errors: ``SubscriptionError`` with codes EMPTY, TOO_LONG, SYNTAX, TOO_DEEP,
    UNKNOWN_FIELD, AMBIGUOUS_FIELD, NOT_IN_MESSAGES, FIELD_TOO_WIDE, BAD_CONSTANT; fields ``line``,
    ``column`` (1-based) and ``suggestion``. Source: CAMUS 2, Fig. 1.
    """
    if len(text) > MAX_LENGTH:
        raise SubscriptionError(
            "TOO_LONG",
            f"line 1, column 1: the rule has {len(text)} characters, the limit is {MAX_LENGTH}; "
            "split it into several subscriptions at its 'or'",
            line=1,
            column=1,
            suggestion=None,
        )
    if not re.sub(r"#[^\n]*", "", text).strip():
        raise subscription_error(
            "EMPTY", text, (1, 1), "the rule is empty; write a condition such as stock == GOOGL"
        )
    try:
        raw, hosts = cast("tuple[_Raw, tuple[Token, ...]]", _parser().parse(text))
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    if raw.depth > MAX_NESTING:
        raise _too_deep(text, raw)
    condition = _Resolver(text, specification).node(raw)
    places = {str(host): _place(host) for host in reversed(hosts)}
    receivers = tuple(dict.fromkeys(str(host) for host in hosts))
    actions = (Forward(receivers),) if receivers else ()
    return Rule(condition, actions, tuple(places[receiver] for receiver in receivers))


@dataclass(frozen=True)
class _Raw:
    """A node before fields are looked up; ``depth`` counts parentheses and negations below."""

    kind: str
    children: tuple[_Raw, ...]
    tokens: tuple[Token, ...]
    depth: int


class _Shape(Transformer[Token, Any]):
    """Builds ``_Raw`` while lark parses, bottom up, so that depth costs no Python stack."""

    def rule(self, parts: list[Any]) -> tuple[_Raw, tuple[Token, ...]]:
        return parts[0], parts[1] if len(parts) > 1 else ()

    def condition(self, parts: list[_Raw]) -> _Raw:
        return _many("or", parts)

    def conjunction(self, parts: list[_Raw]) -> _Raw:
        return _many("and", parts)

    def inversion(self, parts: list[Any]) -> _Raw:
        return _Raw("not", (parts[1],), (parts[0],), parts[1].depth + 1)

    def group(self, parts: list[_Raw]) -> _Raw:
        return _Raw("group", (parts[0],), (), parts[0].depth + 1)

    def predicate(self, parts: list[Any]) -> _Raw:
        return _Raw("predicate", (), tuple(parts), 0)

    def constant(self, parts: list[Token]) -> Token:
        return parts[0]

    def action(self, parts: list[Token]) -> tuple[Token, ...]:
        return tuple(parts)


def _many(kind: str, parts: list[_Raw]) -> _Raw:
    if len(parts) == 1:
        return parts[0]
    return _Raw(kind, tuple(parts), (), max(part.depth for part in parts))


@cache
def _parser() -> Lark:
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, start="rule", parser="lalr", lexer="contextual", transformer=_Shape())


def _place(token: Token) -> tuple[int, int]:
    return token.line or 1, token.column or 1


def _too_deep(text: str, raw: _Raw) -> SubscriptionError:
    while raw.children:
        raw = max(raw.children, key=lambda child: child.depth)
    return subscription_error(
        "TOO_DEEP",
        text,
        _place(raw.tokens[0]),
        f"this stands in more than {MAX_NESTING} parentheses and negations; take some away",
    )


def _syntax_error(text: str, error: UnexpectedInput) -> SubscriptionError:
    if isinstance(error, UnexpectedCharacters):
        names, position = set(error.allowed or ()), error.pos_in_stream
    elif isinstance(error, UnexpectedToken):
        ended = error.token.type == "$END"
        names = set(error.accepts or error.expected)
        position = len(text.rstrip()) if ended else error.token.start_pos
    else:
        names, position = {"$END"}, len(text)
    position = min(position or 0, len(text))
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    # In the order of _WORDS: what one would most likely have meant stands first.
    words = list(dict.fromkeys(_WORDS[name] for name in _WORDS if name in names))
    expected = ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else "".join(words)
    match = _FOUND.match(text, position)
    found = f"'{match.group()[:32]}'" if match else "the end"
    return subscription_error(
        "SYNTAX",
        text,
        (line, column),
        f"expected {expected}, found {found}{_advice(text, position, names)}",
    )


def _advice(text: str, position: int, names: set[str]) -> str:
    """What to write instead, for the slips that people make."""
    here, before = text[position : position + 1], text[:position].rstrip()[-1:]
    if "BARE" in names:
        if here == ">" and before == "<":
            return "; write '!=' for 'differs from'"
        if here in ("<", ">") and before == "=":
            return f"; write '{here}=' for 'or equal'"
        if here in ('"', "'"):
            return "; the quotes are not closed"
        if here == "=":
            return "; write '==' for 'equals'"
    if "FIELD" in names and here.isdigit():
        return "; the field stands on the left and the constant on the right, as in price > 50"
    if "_AND" in names and here == ",":
        return "; write 1000 for 1,000, and 'or' between alternatives"
    if "COMMA" in names and "RPAR" in names and here:
        return "; hosts are parted by commas, as in fwd(h1, h2)"
    return ""


class _Resolver:
    """Looks up fields and reads constants, left to right, so that the first fault is reported."""

    def __init__(self, text: str, specification: Specification) -> None:
        self._text = text
        self._specification = specification
        # Beside headers with a message type, one without is framing, which messages lack.
        untyped = {header.name for header in specification.headers if header.message_type is None}
        self._framing = untyped if len(untyped) < len(specification.headers) else set()

    def node(self, raw: _Raw) -> Node:
        if raw.kind == "predicate":
            return self._predicate(*raw.tokens)
        children = tuple(self.node(child) for child in raw.children)
        if raw.kind == "not":
            return Not(children[0])
        if len(children) == 1:
            return children[0]
        return And(children) if raw.kind == "and" else Or(children)

    def _predicate(self, name: Token, operator: Token, constant: Token) -> Predicate:
        field = self._field(name)
        line, column = _place(name)
        spelled = "==" if operator == "=" else str(operator)
        value = self._value(field, constant)
        return Predicate(
            field=field,
            operator=cast(Operator, spelled),
            constants=((value, value),),
            text=self._text[name.start_pos : constant.end_pos],
            line=line,
            column=column,
        )

    def _field(self, name: Token) -> Field:
        place = _place(name)
        try:
            field = self._specification.field(str(name))
        except SpecificationError as error:
            shown = str(name)[:MAX_CONSTANT]
            if error.what == "AMBIGUOUS_FIELD":
                choices = self._qualified(str(name))
                message = f"field '{shown}' is in several headers; write one of {choices}"
                raise subscription_error("AMBIGUOUS_FIELD", self._text, place, message) from None
            raise subscription_error(
                "UNKNOWN_FIELD",
                self._text,
                place,
                f"{self._specification.name} has no field '{shown}'",
                nearest(str(name), self._names("." in name)),
            ) from None
        if field.header in self._framing:
            raise subscription_error(
                "NOT_IN_MESSAGES",
                self._text,
                place,
                f"field '{field.qualified}' belongs to the framing of packets, not to a message",
            )
        if field.bits > MAX_FIELD_BITS:
            raise subscription_error(
                "FIELD_TOO_WIDE",
                self._text,
                place,
                f"field '{field.qualified}' has {field.bits} bits; "
                f"fields of up to {MAX_FIELD_BITS} bits can be compared",
            )
        return field

    def _value(self, field: Field, token: Token) -> int:
        try:
            return field.encode(_constant(field, token))
        except (SpecificationError, _ConstantError) as error:
            message = error.message if isinstance(error, SpecificationError) else str(error)
            place = _place(token)
            raise subscription_error("BAD_CONSTANT", self._text, place, message) from None

    def _names(self, qualified: bool) -> Iterable[str]:
        for header in self._specification.headers:
            for field in header.fields:
                yield field.qualified if qualified else field.name

    def _qualified(self, name: str) -> str:
        found = [
            field.qualified
            for header in self._specification.headers
            for field in header.fields
            if field.name == name
        ]
        more = f" or {len(found) - 4} more" if len(found) > 4 else ""
        return ", ".join(found[:4]) + more


class _ConstantError(Exception):
    pass


def _constant(field: Field, token: Token) -> str | int | Decimal:
    text = str(token)
    if token.type == "QUOTED":
        text = text[1:-1]
    if len(text) > MAX_CONSTANT:
        raise _ConstantError(f"the constant has {len(text)} characters, over {MAX_CONSTANT}")
    if not text.isascii():
        raise _ConstantError(f"'{text}' is not ASCII, and no message holds anything else")
    if field.kind == "string":
        return text
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    example = "50.25" if field.kind == "decimal" else "50"
    raise _ConstantError(
        f"'{text}' is not a number, and '{field.qualified}' compares with one, such as {example}"
    )
