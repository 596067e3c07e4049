"""Many rules at once: texts that differ in constants and actions only are parsed once.

``parse_rule`` says what a rule means; here its answer for one text is used for all texts of the
same *shape*. A shape is the text with the constants of its comparisons, and its action, cut out
as the lexer would cut them, so that all texts of a shape have the same tokens but for these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.intervals import comparison
from stackcast.udfs.filters.language.rule import MAX_LENGTH, parse_rule
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE, is_message_type
from stackcast.udfs.filters.meaning.terms import TermBlock
from stackcast.udfs.filters.nodes import Action, And, Call, Node, Predicate, Rule
from stackcast.udfs.messages.attributes.attribute_field import AttributeField
from stackcast.udfs.messages.specification import Field, Specification

_FEW = 8
"""Texts of one shape below which it is cheaper to parse each."""
_PART = 512
"""Texts matched at a time: so few matches live at once that no garbage collection starts."""

_LONGEST = 24
"""Characters of a numeral that is read here."""
_DIGITS = 19
"""10**19 - 1 is the longest row of nines that 64 bits hold."""

_CONSTANT = r"""(?:[^\s()"'=<>≠≤≥!¬&|^∧∨:;,#{}\[\]]++|"[^"\n]*+"|'[^'\n]*+')"""
_PREDICATE = re.compile(rf"([A-Za-z_][\w.]*\s*(?:==|=|<=|≤|<|>=|≥|>)\s*)({_CONSTANT})")
_ACTION = re.compile(r"([\s)]*:)(.*)", re.DOTALL)
_CUT = re.compile(rf"[=<>≤≥]\s*{_CONSTANT}|:.*", re.DOTALL)


@dataclass(frozen=True)
class RuleTable:
    """Holds the results of ``parse_rule`` for n texts, most of them as columns.

    blocks: terms of rules that are plain conjunctions; a rule is in one block at most.
    rules: index and syntax tree of the other rules that are right, ascending.
    errors: index and error of the texts that are wrong, ascending.
    outcome: int32[n], index into ``outcomes``; -1 where the text is wrong.
    outcomes: distinct lists of actions.
    suspects: ascending int64, texts beside ``rules`` and ``errors`` that may have a warning: all
    that have one are among them.

    A text in none of the first three is a rule that nothing can satisfy.
    """

    blocks: list[TermBlock]
    rules: list[tuple[int, Rule]]
    errors: list[tuple[int, SubscriptionError]]
    outcome: NDArray[np.int32]
    outcomes: list[tuple[Action, ...]]
    suspects: NDArray[np.int64]


def read_table(texts: Sequence[str], specification: Specification) -> RuleTable:
    """Reads many rules: each text as ``parse_rule`` reads it, errors included.

    A rule that is one comparison, or an ``and`` of comparisons, each with one interval on a
    field of at most 64 bits, becomes a term of a block: that of its normal form in which every
    field that the rule compares is named, also if it may have any value, as it must be there.
    Never raises for what a user wrote.
    """
    reader = _Reader(texts, specification)
    reader.read()
    return reader.table()


@dataclass(frozen=True)
class _Shape:
    """The parts that texts of one shape share. ``pattern`` has a group a predicate, last the
    action.

    condition: of the text that was parsed. before: that text up to its action. apart: more than
    the colon is between the two.
    """

    pattern: re.Pattern[str]
    predicates: tuple[Predicate, ...]
    heads: tuple[str, ...]
    condition: Node
    before: str
    has_action: bool
    apart: bool


@dataclass(frozen=True)
class _Spans:
    """Holds the interval that each text of a shape allows a field; ``doubtful``: parse the text;
    ``suspect``: it may have a warning."""

    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    never: NDArray[np.bool_]
    doubtful: NDArray[np.bool_]
    suspect: NDArray[np.bool_]


class _Reader:
    def __init__(self, texts: Sequence[str], specification: Specification) -> None:
        self._texts = texts
        self._specification = specification
        self._blocks: list[TermBlock] = []
        self._rules: list[tuple[int, Rule]] = []
        self._errors: list[tuple[int, SubscriptionError]] = []
        self._outcome = np.full(len(texts), -1, np.int32)
        self._outcomes: dict[tuple[Action, ...], int] = {}
        self._actions: dict[str, int] = {}
        self._parsed: dict[str, Rule | SubscriptionError] = {}
        self._suspects: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]

    def table(self) -> RuleTable:
        return RuleTable(
            self._blocks,
            sorted(self._rules, key=lambda pair: pair[0]),
            sorted(self._errors, key=lambda pair: pair[0]),
            self._outcome,
            list(self._outcomes),
            np.sort(np.concatenate(self._suspects)),
        )

    def read(self) -> None:
        texts = self._texts
        left = [at for at, text in enumerate(texts) if len(text) <= MAX_LENGTH]
        if len(left) < len(texts):
            self._one_by_one(at for at, text in enumerate(texts) if len(text) > MAX_LENGTH)
        # Most tables have one shape: sorting texts by shape costs more than trying the first's.
        left = self._read_alike(left)
        groups: dict[str, list[int]] = {}
        for at in left:
            groups.setdefault(_CUT.sub("?", texts[at]), []).append(at)
        for group in groups.values():
            self._one_by_one(self._read_alike(group))

    def _read_alike(self, group: list[int]) -> list[int]:
        """Reads those of the texts that have the shape of the first; returns the others."""
        if len(group) < _FEW:
            return group
        rule = self._parse(self._texts[group[0]])
        shape = None if isinstance(rule, SubscriptionError) else _shape(self._texts[group[0]], rule)
        if shape is None:
            return group
        fullmatch, texts = shape.pattern.fullmatch, self._texts
        alike: list[int] = []
        others: list[int] = []
        columns: list[list[str]] = [[] for _ in range(shape.pattern.groups)]
        for start in range(0, len(group), _PART):
            part = group[start : start + _PART]
            matches = [fullmatch(texts[at]) for at in part]
            alike += [at for at, match in zip(part, matches, strict=True) if match]
            others += [at for at, match in zip(part, matches, strict=True) if not match]
            found = zip(*(match.groups() for match in matches if match), strict=True)
            for column, constants in zip(columns, found, strict=False):
                column.extend(constants)
        self._read_shape(shape, np.array(alike, np.int64), columns)
        return others

    def _read_shape(
        self, shape: _Shape, at: NDArray[np.int64], columns: Sequence[Sequence[str]]
    ) -> None:
        never, doubtful, suspect = np.zeros((3, at.size), np.bool_)
        allowed: dict[str, tuple[NDArray[np.uint64], NDArray[np.uint64]]] = {}
        for name, spans in self._spans(shape, columns):
            low, high = allowed.get(name, (spans.low, spans.high))
            allowed[name] = np.maximum(low, spans.low), np.minimum(high, spans.high)
            never |= spans.never
            doubtful |= spans.doubtful
            suspect |= spans.suspect
        if shape.has_action:
            outcome = self._read_actions(shape, columns[-1])
        else:
            outcome = np.full(at.size, self._outcome_of(()), np.int32)
        doubtful |= outcome < 0
        for low, high in allowed.values():
            never |= low > high
        calling = [
            number
            for actions, number in self._outcomes.items()
            if any(isinstance(action, Call) for action in actions)
        ]
        if calling:
            suspect |= np.isin(outcome, calling)
        self._suspects.append(at[(suspect | never) & ~doubtful])
        self._outcome[at[~doubtful]] = outcome[~doubtful]
        self._add_block(allowed, at, ~(never | doubtful))
        self._one_by_one(at[doubtful].tolist())

    def _spans(
        self, shape: _Shape, columns: Sequence[Sequence[str]]
    ) -> Iterable[tuple[str, _Spans]]:
        for predicate, head, column in zip(shape.predicates, shape.heads, columns, strict=False):
            field = predicate.field
            kind = self._types[field.header]
            of_type = is_message_type(field, kind)
            yield (
                MESSAGE_TYPE if of_type else field.qualified,
                self._read_column(field, head, column),
            )
            if kind is not None:
                yield MESSAGE_TYPE, _only(kind, len(column))

    def _read_column(self, field: Field, head: str, column: Sequence[str]) -> _Spans:
        """Reads the values that ``field operator constant`` allows, for a column of constants."""
        count = len(column)
        maximum = (1 << field.bits) - 1
        low, high = np.zeros(count, np.uint64), np.full(count, maximum, np.uint64)
        never, doubtful, suspect = np.zeros((3, count), np.bool_)
        unread: NDArray[np.int64] = np.arange(count)
        if field.kind != "string":
            values, sure = _numbers(column, field, maximum)
            sure &= self._agrees(field, head, column, values, sure)
            low, high, never = _compare(_operator(head), values, maximum)
            never &= sure
            unread = np.flatnonzero(~sure)
        # Few distinct constants stand in many rules.
        constants = [column[i] for i in unread.tolist()]
        number = {text: i for i, text in enumerate(dict.fromkeys(constants))}
        spans = [self._span(field, head, text) for text in number]
        code = np.fromiter(map(number.__getitem__, constants), np.int64, len(constants))
        bounds = [span if span else (0, 0) for span in spans]
        low[unread] = np.array([first for first, _ in bounds], np.uint64)[code]
        high[unread] = np.array([last for _, last in bounds], np.uint64)[code]
        never[unread] = np.array([span == () for span in spans], np.bool_)[code]
        doubtful[unread] = np.array([span is None for span in spans], np.bool_)[code]
        suspect[unread] = np.array([self._warns(head + text) for text in number], np.bool_)[code]
        suspect |= (low == 0) & (high == maximum)
        return _Spans(low, high, never, doubtful, suspect)

    def _warns(self, text: str) -> bool:
        rule = self._parse(text)
        return isinstance(rule, Rule) and bool(rule.warnings)

    def _agrees(
        self,
        field: Field,
        head: str,
        column: Sequence[str],
        values: NDArray[np.uint64],
        sure: NDArray[np.bool_],
    ) -> bool:
        """Returns True if the first number is as the parser reads it, which decides."""
        if not sure.any():
            return True
        first = int(sure.argmax())
        span = comparison(
            _operator(head), ((int(values[first]), int(values[first])),), (1 << field.bits) - 1
        )
        return self._span(field, head, column[first]) == (span[0] if span else ())

    def _span(self, field: Field, head: str, constant: str) -> tuple[int, int] | tuple[()] | None:
        """Returns the one allowed interval, () if none is, None if the text has to be parsed."""
        rule = self._parse(head + constant)
        if isinstance(rule, SubscriptionError) or not isinstance(rule.condition, Predicate):
            return None
        found = rule.condition
        if found.field != field or rule.actions:
            return None
        allowed = comparison(found.operator, found.constants, (1 << field.bits) - 1)
        if len(allowed) > 1:
            return None
        return allowed[0] if allowed else ()

    def _read_actions(self, shape: _Shape, column: Sequence[str]) -> NDArray[np.int32]:
        numbers: dict[str, int] = {}
        for text in dict.fromkeys(column):
            # What follows a colon may make an address of it: ``stock == 0:5::6`` has no action.
            # Where a blank keeps them apart, actions mean the same behind any condition.
            apart = shape.apart or text[:1].isspace()
            if apart and text in self._actions:
                numbers[text] = self._actions[text]
                continue
            rule = self._parse(shape.before + text)
            if isinstance(rule, SubscriptionError) or rule.condition != shape.condition:
                numbers[text] = -1
                continue
            numbers[text] = self._outcome_of(rule.actions)
            if apart:
                self._actions[text] = numbers[text]
        return np.fromiter(map(numbers.__getitem__, column), np.int32, len(column))

    def _outcome_of(self, actions: tuple[Action, ...]) -> int:
        return self._outcomes.setdefault(actions, len(self._outcomes))

    def _add_block(
        self,
        allowed: Mapping[str, tuple[NDArray[np.uint64], NDArray[np.uint64]]],
        at: NDArray[np.int64],
        live: NDArray[np.bool_],
    ) -> None:
        if live.any():
            names = tuple(sorted(allowed))
            lows = [allowed[name][0][live] for name in names]
            highs = [allowed[name][1][live] for name in names]
            self._blocks.append(TermBlock(names, lows, highs, at[live].astype(np.int32)))

    @cached_property
    def _types(self) -> dict[str, int | None]:
        return {header.name: header.message_type for header in self._specification.headers}

    def _one_by_one(self, indexes: Iterable[int]) -> None:
        for at in indexes:
            rule = self._parse(self._texts[at])
            if isinstance(rule, SubscriptionError):
                self._errors.append((at, rule))
            else:
                self._rules.append((at, rule))
                self._outcome[at] = self._outcome_of(rule.actions)

    def _parse(self, text: str) -> Rule | SubscriptionError:
        found = self._parsed.get(text)
        if found is None:
            try:
                found = parse_rule(text, self._specification)
            except SubscriptionError as error:
                found = error.with_traceback(None)
            self._parsed[text] = found
        return found


def _shape(text: str, rule: Rule) -> _Shape | None:
    """Returns the shape of a text that was parsed, or None if it is not a plain conjunction."""
    predicates = _conjuncts(rule.condition)
    if not predicates or len(predicates) > 60:
        return None
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    pattern, end, heads = "", 0, []
    for predicate in predicates:
        start = starts[predicate.line - 1] + predicate.column - 1
        written = _PREDICATE.fullmatch(predicate.text)
        if not written or text[start : start + len(predicate.text)] != predicate.text:
            return None
        heads.append(written[1])
        pattern += re.escape(text[end : start + written.end(1)]) + f"({_CONSTANT})"
        end = start + len(predicate.text)
    action = _ACTION.fullmatch(text, end)
    if rule.actions and not action:
        # A comment is before them.
        return None
    if action:
        pattern += re.escape(action[1]) + "(.*)"
        end = action.end(1)
    else:
        pattern += re.escape(text[end:])
    compiled = re.compile(pattern, re.DOTALL)
    before = text[:end]
    return _Shape(
        compiled,
        predicates,
        tuple(heads),
        rule.condition,
        before,
        has_action=action is not None,
        apart=action is not None and action[1] != ":",
    )


def _conjuncts(node: Node) -> tuple[Predicate, ...]:
    """Returns the comparisons of a conjunction in the text's order; none if it is not plain."""
    if isinstance(node, Predicate):
        return (node,) if node.field.bits <= 64 else ()
    if not isinstance(node, And):
        return ()
    parts = [_conjuncts(child) for child in node.children]
    return tuple(part for group in parts for part in group) if all(parts) else ()


def _numbers(
    column: Sequence[str], field: Field, maximum: int
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Reads numerals as ``read_numerals`` does, in the units of the field."""
    if not isinstance(field, AttributeField):
        return read_numerals(column, field.decimals, maximum)
    read = field.numerals()
    if read is None or read[1] > maximum:
        return np.zeros(len(column), np.uint64), np.zeros(len(column), np.bool_)
    decimals, zero = read
    values, sure = read_numerals(column, decimals, maximum - zero)
    if zero < 0:
        return values - np.uint64(-zero), sure & (values >= np.uint64(-zero))
    return values + np.uint64(zero), sure


def _operator(head: str) -> str:
    written = re.sub(r"[^=<>≤≥]", "", head)
    return {"=": "==", "≤": "<=", "≥": ">="}.get(written, written)


def _compare(
    operator: str, values: NDArray[np.uint64], maximum: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns the first and last value that satisfies ``x operator value``, and True for none."""
    never = np.zeros(values.size, np.bool_)
    zero, last = np.zeros_like(values), np.full_like(values, maximum)
    one = np.uint64(1)
    if operator == "==":
        return values.copy(), values.copy(), never
    if operator == "<=":
        return zero, values.copy(), never
    if operator == ">=":
        return values.copy(), last, never
    if operator == "<":
        never = values == 0
        return zero, np.where(never, zero, values - one), never
    never = values >= np.uint64(maximum)
    return np.where(never, zero, values + one), last, never


def _only(value: int, count: int) -> _Spans:
    values = np.full(count, value, np.uint64)
    nowhere = np.zeros(count, np.bool_)
    return _Spans(values, values, nowhere, nowhere, nowhere)


def read_numerals(
    texts: Sequence[str], decimals: int, maximum: int
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Reads numbers in units of ``10**-decimals`` as uint64[n], and bool[n], True for sure ones.

    Sure are numerals of digits with at most one point that are whole in that unit without
    dropping a digit, and neither above ``maximum`` nor so long that 64 bits might not hold them
    on the way. Where it is not sure the value means nothing: whoever asks must read the text
    in another way, which may well accept it.
    """
    count = len(texts)
    values, sure = np.zeros(count, np.uint64), np.zeros(count, np.bool_)
    if not count:
        return values, sure
    characters = np.array(texts, dtype=f"U{_LONGEST + 1}").view(np.uint32)
    characters = np.ascontiguousarray(characters.reshape(count, _LONGEST + 1).T)
    width = int(characters.any(axis=1).sum())
    lengths = np.zeros(count, np.int64)
    points, places = lengths.copy(), lengths.copy()
    sure[:] = True
    for row in characters[:width]:
        digit = row - np.uint32(48)
        is_digit, is_point, ended = digit < 10, row == 46, row == 0
        sure &= is_digit | is_point | ended
        values = np.where(is_digit, values * np.uint64(10) + digit, values)
        points += is_point
        places += is_digit & (points > 0)
        lengths += is_digit
    shift = decimals - places
    sure &= (lengths > 0) & (points <= 1) & (shift >= 0) & (lengths + shift <= _DIGITS)
    # "5." is no numeral, while ".5" is.
    sure &= (points == 0) | (places > 0)
    # Neither a tail that was cut off nor NUL characters at the end, which numpy drops.
    sure &= lengths + points == np.fromiter(map(len, texts), np.int64, count)
    values *= np.uint64(10) ** np.where(sure, shift, 0).astype(np.uint64)
    return values, sure & (values <= np.uint64(maximum))
