"""Resolution of words: fields, variables and functions looked up, constants read as raw values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import cast, get_args

from lark import Token

from stackcast.udfs.errors import SpecificationError, SubscriptionError
from stackcast.udfs.filters.intervals import comparison
from stackcast.udfs.filters.language.habits import begins_with
from stackcast.udfs.filters.language.syntax import Act, Change, Macro, Test, Tree, place
from stackcast.udfs.filters.language.syntax_errors import MAX_NAME, nearest, subscription_error
from stackcast.udfs.filters.nodes import (
    Action,
    Aggregate,
    And,
    Call,
    Comparison,
    Forward,
    Function,
    Node,
    Not,
    Operator,
    Or,
    Predicate,
    RuleWarning,
    Span,
    StatePredicate,
    Update,
)
from stackcast.udfs.messages.attributes.attribute_field import AttributeField
from stackcast.udfs.messages.attributes.ordered_fields import FloatField
from stackcast.udfs.messages.attributes.times import seconds_of
from stackcast.udfs.messages.fields import MAX_CONSTANT, MAX_VALUE_BITS, Field
from stackcast.udfs.messages.specification import MAX_TIME, Counter, Specification

MAX_PORT = (1 << 32) - 1
"""The largest port number that a switch can be told."""
MAX_WINDOW_DIGITS = 15

NO_VALUE = frozenset(("null", "none", "nil", "nan", "undefined"))
"""Words of other languages for no value, in small letters."""

_SPELLINGS = {"=": "==", "≠": "!=", "≤": "<=", "≥": ">="}
_PATTERN = re.compile(r"[*?%]|^[~^/]|\$$|\.\*")
_WINDOW = re.compile(r"([0-9.]+)(\D*)")
_MICROSECONDS = {
    "": 1,
    "us": 1,
    "µs": 1,
    "μs": 1,
    "ms": 1000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
}
_FUNCTIONS = tuple(name for name in get_args(Function) if name != "moved")
_BAND = re.compile(r"[0-9]+(\.[0-9]+)?|\.[0-9]+")
_NO_PORT = re.compile(r"[0-9]+\.[0-9]*|0[xX][0-9A-Fa-f]*")
_LIKE_FORWARD = ("fwd", "fw", "forward", "forwards", "send")


class Resolver:
    """Looks names up and reads constants, left to right, so that the first fault is reported."""

    def __init__(self, text: str, specification: Specification, framing: bool) -> None:
        self._text = text
        self._specification = specification
        self._framing = frozenset() if framing else specification.framing
        self.warnings: dict[RuleWarning, None] = {}
        """What is right, and most likely not meant."""

    def node(self, tree: Tree, negated: bool = False) -> Node:
        """Resolves a condition; ``negated``: it stands below an odd number of negations.

        Raises SubscriptionError with all codes but those of the syntax.
        """
        if tree.test is not None:
            return self._test(tree.test, negated)
        below = negated != (tree.kind == "not")
        children = tuple(self.node(child, below) for child in tree.children)
        if tree.kind == "not":
            return Not(children[0])
        if len(children) == 1:
            return children[0]
        return And(children) if tree.kind == "and" else Or(children)

    def action(self, act: Act) -> Action:
        """Resolves one action."""
        if act.name is None:
            return Forward(tuple(self._target(token) for token in act.arguments))
        if act.macro is not None:
            return self._update(act.name, act.macro)
        if _is_like_forward(act.name.lower()):
            message = f"expected 'fwd(...)', found '{act.name}'"
            raise self._error("SYNTAX", act.name, message, "fwd")
        known = (self._specification.default_action or "").partition("(")[0].strip()
        if act.name != known:
            message = (
                f"action '{act.name[:MAX_NAME]}' is unknown: the stream can only forward "
                "events, and a switch performs the action only if its P4 program was "
                "generated with it"
            )
            self._warn("UNKNOWN_ACTION", act.name, message)
        return Call(str(act.name), tuple(map(self._argument, act.arguments)))

    def places(self, acts: Iterable[Act]) -> tuple[tuple[int, int], ...]:
        """Returns the places where each receiver is named first."""
        found: dict[str, tuple[int, int]] = {}
        for act in acts:
            for token in act.arguments if act.name is None else ():
                found.setdefault(self._target(token), place(token))
        return tuple(found.values())

    def _test(self, test: Test, negated: bool) -> Node:
        if isinstance(test.subject, Change):
            change = self._change(test.subject)
            return StatePredicate(change, "==", 1, self._text_of(test), *place(test.start))
        subject = self._subject(test.subject)
        if not isinstance(subject, tuple):
            return self._state_test(test, subject)
        if len(subject) == 1:
            return self._field_test(test, subject[0], self._text_of(test))
        # A message has one of the fields, and a comparison of the others is unknown. Below a
        # negation an 'and' has the same meaning, as it is false where that comparison is.
        rest = self._text[test.start.end_pos : test.end]
        each = (self._field_test(test, field, field.qualified + rest) for field in subject)
        return And(tuple(each)) if negated else Or(tuple(each))

    def _field_test(self, test: Test, subject: Field, shown: str) -> Predicate:
        spans = [self._span(subject, token) for token in test.constants]
        if test.operator == "between":
            spans = [self._between(test, spans)]
        operator = _SPELLINGS.get(test.operator, test.operator)
        if operator in ("in", "between"):
            operator = "not in" if test.negated else "in"
        elif spans[0][0] != spans[0][1]:
            if operator not in ("==", "!="):
                raise self._prefix_order(test.constants[0])
            operator = "in" if operator == "==" else "not in"
        line, column = place(test.start)
        self._remark_values(test, subject, operator, spans)
        return Predicate(subject, cast(Operator, operator), tuple(spans), shown, line, column)

    def _state_test(self, test: Test, subject: Aggregate | Counter) -> Node:
        unit = _unit(subject)
        spans = [self._span(unit, token) for token in test.constants]
        line, column = place(test.start)
        shown = self._text_of(test)

        def compare(operator: str, value: int) -> StatePredicate:
            return StatePredicate(subject, cast(Comparison, operator), value, shown, line, column)

        if test.operator == "between":
            low, high = self._between(test, spans)
            if test.negated:
                return Or((compare("<", low), compare(">", high)))
            return And((compare(">=", low), compare("<=", high)))
        if test.operator == "in":
            equal = "!=" if test.negated else "=="
            members = tuple(compare(equal, low) for low, _ in spans)
            if len(members) == 1:
                return members[0]
            return And(members) if test.negated else Or(members)
        return compare(_SPELLINGS.get(test.operator, test.operator), spans[0][0])

    def _subject(self, subject: Token | Macro) -> tuple[Field, ...] | Counter | Aggregate:
        if not isinstance(subject, Macro):
            return self._specification.counter(str(subject)) or self._fields(subject)
        function, field = self._function(subject)
        if subject.window is not None:
            window = _microseconds(subject.window)
            most = min(10**MAX_WINDOW_DIGITS - 1, MAX_TIME // self._specification.clock_units)
            if not 0 < window <= most:
                message = f"a window must be a whole number of microseconds from 1 to {most}"
                raise self._error("BAD_AGGREGATE", subject.window, message)
        elif self._specification.counters:
            window = self._specification.counters[0].window
        else:
            example = f"{function}({field.name + ', ' if field else ''}100)"
            raise self._error(
                "NO_WINDOW",
                subject.function,
                f"the window is missing, and {self._specification.name} does not declare a "
                f"default with @query_counter: write a window in microseconds, as in {example}",
            )
        return Aggregate(function, field, window)

    def _change(self, change: Change) -> Aggregate:
        name, band = change.function, change.band
        if isinstance(change.field, Macro):
            message = f"{name} requires a field of the event, not the result of a function"
            raise self._error("BAD_AGGREGATE", change.field.function, message)
        if change.field is None:
            example = "changed(price)" if name == "changed" else "moved(price, 0.5)"
            raise self._error("BAD_AGGREGATE", name, f"{name} requires a field, as in {example}")
        if self._specification.counter(str(change.field)) is not None:
            message = f"{name} requires a field of the event, but '{change.field}' is a variable"
            raise self._error("BAD_AGGREGATE", change.field, message)
        field = self._field(change.field)
        if field.bits > MAX_VALUE_BITS:
            message = (
                f"field '{field.qualified}' is wider than {MAX_VALUE_BITS} bits, the maximum for "
                "stored values"
            )
            raise self._error("BAD_AGGREGATE", change.field, message)
        shown = f"changed({change.field})"
        if name == "changed":
            if band is not None:
                message = (
                    f"{shown} matches every change and has no second argument; use moved to "
                    "specify a distance"
                )
                raise self._error("BAD_AGGREGATE", band, message)
            return Aggregate("moved", field, 1)
        if field.kind == "string":
            message = (
                f"field '{field.qualified}' contains text, and moved compares only numbers; write "
                f"{shown}"
            )
            raise self._error("BAD_AGGREGATE", change.field, message)
        if isinstance(field, FloatField):
            message = (
                f"field '{field.name}' is a float, whose values are not evenly spaced, so "
                f"moved cannot measure a distance; write {shown}, or use an attribute of type "
                "decimal"
            )
            raise self._error("BAD_AGGREGATE", change.field, message)
        if band is None:
            message = (
                f"the distance is missing: write moved({change.field}, 0.5), or {shown} to match "
                "every change"
            )
            raise self._error("BAD_AGGREGATE", name, message)
        return Aggregate("moved", field, self._band(band, field))

    def _band(self, band: Token, field: Field) -> int:
        """Returns a dead band in raw values."""
        wanted = (
            "the second argument of moved must be a number above 0, in units of "
            f"'{field.qualified}'"
        )
        if not _BAND.fullmatch(band) or len(band) > MAX_CONSTANT or not Fraction(band):
            raise self._error("BAD_AGGREGATE", band, wanted)
        raw = Fraction(band) / Fraction(field.unit)
        if raw.denominator > 1:
            why = (
                f"values of '{field.qualified}' are {field.unit:f} apart, and the second argument "
                "of moved"
            )
            raise self._error("BAD_AGGREGATE", band, f"{why} must be a multiple of that")
        most = min((1 << field.bits) - 1, MAX_TIME)
        if raw > most:
            message = f"two values of '{field.qualified}' can never be that far apart"
            raise self._error("BAD_AGGREGATE", band, message)
        return int(raw)

    def _function(self, macro: Macro) -> tuple[Function, Field | None]:
        name = macro.function
        if name in ("changed", "moved"):
            message = f"{name}(...) is a condition, and cannot be assigned to a variable"
            raise self._error("BAD_AGGREGATE", name, message)
        if name not in _FUNCTIONS:
            raise self._error(
                "BAD_AGGREGATE",
                name,
                f"unknown function '{name[:MAX_NAME]}'; the functions are {', '.join(_FUNCTIONS)}",
                nearest(name, _FUNCTIONS),
            )
        function = cast(Function, str(name))
        if function == "count":
            if macro.field is not None:
                raise self._error(
                    "BAD_AGGREGATE",
                    macro.field,
                    "count() counts events and takes no field; write count()",
                )
            return function, None
        if macro.field is None:
            raise self._error(
                "BAD_AGGREGATE", name, f"{name} requires a field, as in {name}(price)"
            )
        field = self._field(macro.field)
        if field.kind == "string" or field.bits > MAX_VALUE_BITS:
            what = (
                "contains text"
                if field.kind == "string"
                else f"is wider than {MAX_VALUE_BITS} bits"
            )
            message = f"{name} requires a numeric field, but '{field.qualified}' {what}"
            raise self._error("BAD_AGGREGATE", macro.field, message)
        if function in ("avg", "sum") and isinstance(field, FloatField):
            message = (
                f"{function} adds raw values, and field '{field.name}' is a float, whose raw "
                "values are not evenly spaced; use min or max, or an attribute of type decimal"
            )
            raise self._error("BAD_AGGREGATE", macro.field, message)
        if function == "sum" and isinstance(field, AttributeField) and field.of.offset:
            message = (
                f"sum adds raw values, but the raw values of '{field.name}' are relative to "
                f"its offset {field.of.offset}, so their sum is not the sum of the values; "
                f"use avg({field.name}), or an attribute whose offset is 0"
            )
            raise self._error("BAD_AGGREGATE", macro.field, message)
        return function, field

    def _update(self, name: Token, macro: Macro) -> Update:
        variable = self._specification.counter(str(name))
        if variable is None:
            names = [counter.name for counter in self._specification.counters]
            raise self._error(
                "UNKNOWN_VARIABLE",
                name,
                f"{self._specification.name} has no variable '{name[:MAX_NAME]}'; declare it with "
                "@query_counter(name, window)",
                nearest(name, names),
            )
        function, field = self._function(macro)
        if macro.window is not None:
            message = f"the specification defines the window of variable '{name}'; remove it here"
            raise self._error("BAD_AGGREGATE", macro.window, message)
        return Update(variable, function, field)

    def _target(self, token: Token) -> str:
        if _NO_PORT.fullmatch(token):
            message = (
                f"'{token[:MAX_NAME]}' is not a port number; write a whole number, as in fwd(12)"
            )
            raise self._error("BAD_PORT", token, message)
        if not token.isdigit():
            return str(token)
        if len(token) > 12 or int(token) > MAX_PORT:
            raise self._error("BAD_PORT", token, f"port numbers go up to {MAX_PORT}")
        return str(int(token))

    def _argument(self, token: Token) -> str:
        text, _ = _unquoted(token)
        if any(character < " " or character == "\x7f" for character in text):
            message = "the argument contains a non-printable character"
            raise self._error("BAD_CONSTANT", token, message)
        return text

    def _fields(self, name: Token) -> tuple[Field, ...]:
        """Returns the field of a name, or one a message if a name is shared among messages."""
        every = name.startswith("*.")
        short = name.removeprefix("*.")
        shared = self._specification.in_messages(short)
        if every and not shared:
            raise self._error(
                "UNKNOWN_FIELD",
                name,
                f"no message type of {self._specification.name} has a field named "
                f"'{short[:MAX_NAME]}'",
                nearest(short, self._names(False)),
            )
        if every or (len(shared) > 1 and self._is_shared(short)):
            return shared
        return (self._field(name),)

    def _is_shared(self, name: str) -> bool:
        """Returns True if a name is that of no one field, and not of a header without a type."""
        try:
            self._specification.field(name)
        except SpecificationError:
            headers = self._specification.headers
            return not any(
                field.name == name
                for header in headers
                if header.message_type is None and header.name not in self._framing
                for field in header.fields
            )
        return False

    def _field(self, name: Token) -> Field:
        try:
            field = self._specification.field(str(name))
        except SpecificationError as error:
            shown = str(name)[:MAX_NAME]
            if error.what == "AMBIGUOUS_FIELD":
                choices = self._qualified(str(name))
                message = f"several headers have a field '{shown}'; write one of {choices}"
                raise self._error("AMBIGUOUS_FIELD", name, message) from None
            message = f"{self._specification.name} has no field '{shown}'"
            hint = self._specification.hint(str(name))
            if hint is not None:
                raise self._error("UNKNOWN_FIELD", name, f"{message}: {hint}") from None
            near = nearest(str(name), self._names("." in name))
            raise self._error("UNKNOWN_FIELD", name, message, near) from None
        if field.header in self._framing:
            raise self._error(
                "NOT_IN_MESSAGES",
                name,
                f"field '{field.qualified}' belongs to the packet framing, not to a message, so "
                "rules cannot use it",
            )
        return field

    def _span(self, field: Field, token: Token) -> Span:
        text, quoted = _unquoted(token)
        try:
            span = field.parse(text, quoted)
        except SpecificationError as error:
            message = error.message if quoted else self._no_constant(text) or error.message
            raise self._error("BAD_CONSTANT", token, message) from None
        if field.kind == "string" or field.takes_text:
            self._remark_text(field, token, text, quoted)
        return span

    def _remark_text(self, field: Field, token: Token, text: str, quoted: bool) -> None:
        """Warns of a text that is compared as it stands, and most likely meant as something
        else."""
        name, shown = field.name, text[:MAX_NAME]
        if not text:
            message = (
                f"this matches only a {name} that consists of padding; to match every value, "
                "remove the comparison"
            )
            self._warn("EMPTY_CONSTANT", token, message)
        elif _PATTERN.search(text) and not text.isdigit():
            message = (
                f"'{shown}' is compared literally, because patterns are not supported; to "
                f"match values that begin with GOO, write {begins_with(name, 'GOO')}"
            )
            self._warn("PATTERN_CONSTANT", token, message)
        elif not quoted and text.lower() in NO_VALUE:
            message = (
                f"'{shown}' is compared as a string, because there is no null value; "
                "comparisons never match an event in which the field is missing"
            )
            self._warn("NULL_CONSTANT", token, message)
        elif not quoted and text in self._specification.words:
            message = (
                f"'{shown}' is compared as a string, although a field has this name, because "
                "two fields cannot be compared; quote it if you mean the string"
            )
            self._warn("FIELD_CONSTANT", token, message)
        elif field.kind == "string" and seconds_of(text) is not None:
            message = (
                f"'{shown}' is compared as a string, because '{name}' is a text field: the "
                "same time in another notation or time zone compares incorrectly. Give the "
                "field a time type, or write all times in the same form"
            )
            self._warn("TIME_AS_TEXT", token, message)

    def _remark_values(
        self, test: Test, field: Field, operator: str, spans: Sequence[Span]
    ) -> None:
        """Warns of a comparison that all values meet, or none."""
        top = (1 << field.bits) - 1
        if field.kind == "string" and operator in ("==", "!="):
            return
        allowed = comparison(cast(Operator, operator), tuple(spans), top)
        if not allowed:
            message = f"no value of '{field.qualified}' can satisfy this comparison"
            self._warn("NEVER_TRUE", test.start, message)
        elif allowed == ((0, top),):
            message = (
                f"every value of '{field.qualified}' satisfies this comparison: remove it, "
                "unless you want only events that contain the field"
            )
            self._warn("ALWAYS_TRUE", test.start, message)

    def _warn(self, what: str, token: Token, message: str) -> None:
        self.warnings[RuleWarning(what, *place(token), message)] = None

    def _no_constant(self, word: str) -> str | None:
        """Returns words for a constant that is meant as something else."""
        if word in self._specification.words:
            return (
                f"'{word[:MAX_NAME]}' is a field: the right side of a comparison must be a "
                "constant, as in price > 50, because two values of an event cannot be compared"
            )
        if word.lower() in NO_VALUE:
            return (
                f"{word} is not supported, because comparisons never match an event in which "
                "the field is missing; remove this test, or, to test for presence, write a "
                "comparison that every value satisfies, such as price >= 0"
            )
        return None

    def _between(self, test: Test, spans: list[Span]) -> Span:
        for token, (low, high) in zip(test.constants, spans, strict=True):
            if low != high:
                raise self._prefix_order(token)
        first, last = spans[0][0], spans[1][0]
        if first > last:
            smaller, larger = test.constants
            message = f"the range from {smaller[:MAX_NAME]} to {larger[:MAX_NAME]} is empty"
            raise self._error("BAD_CONSTANT", larger, message + "; write the smaller value first")
        return first, last

    def _prefix_order(self, token: Token) -> SubscriptionError:
        message = f"'{token}' is a prefix: prefixes are allowed only after == and !=, and in sets"
        return self._error("PREFIX_ORDER", token, message)

    def _text_of(self, test: Test) -> str:
        return self._text[test.start.start_pos : test.end]

    def _error(
        self, what: str, token: Token, message: str, suggestion: str | None = None
    ) -> SubscriptionError:
        return subscription_error(what, self._text, place(token), message, suggestion)

    def _names(self, qualified: bool) -> Iterable[str]:
        for header in self._specification.headers:
            for field in header.fields:
                yield field.qualified if qualified else field.name
        if not qualified:
            yield from (counter.name for counter in self._specification.counters)

    def _qualified(self, name: str) -> str:
        found = [
            field.qualified
            for header in self._specification.headers
            for field in header.fields
            if field.name == name
        ]
        more = f" or {len(found) - 4} more" if len(found) > 4 else ""
        return ", ".join(found[:4]) + more


def _microseconds(window: str) -> int:
    """Returns a window in microseconds, 0 if it is not a whole number of them, or too long."""
    found = _WINDOW.fullmatch(window)
    if found is None or len(window) > MAX_WINDOW_DIGITS + 4:
        return 0
    exact = Decimal(found[1]) * _MICROSECONDS[found[2]]
    return int(exact) if exact == int(exact) else 0


def _is_like_forward(name: str) -> bool:
    """Returns True if a name, in small letters, is a slip for ``fwd``: letters swapped, left out,
    added."""
    if name in _LIKE_FORWARD or sorted(name) == sorted("fwd"):
        return True
    if len(name) == 3 and name.startswith("fw") and name.isalpha():
        return True
    near = difflib.get_close_matches(name[:MAX_NAME], ("fwd", "forward"), n=1, cutoff=0.8)
    return bool(near) and name.isalpha()


def _unquoted(token: Token) -> tuple[str, bool]:
    return (token[1:-1], True) if token.type == "QUOTED" else (str(token), False)


def _unit(subject: Aggregate | Counter) -> Field:
    """Returns a field that reads constants as the subject has them: numbers, scaled as its
    field."""
    if isinstance(subject, Counter) or subject.field is None:
        name = subject.name if isinstance(subject, Counter) else "count"
        return Field("state", name, MAX_VALUE_BITS, 0, "decimal")
    bits = MAX_VALUE_BITS if subject.function == "sum" else subject.field.bits
    return replace(subject.field, bits=bits, kind="decimal")
