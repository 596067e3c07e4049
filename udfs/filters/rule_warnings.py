"""Warnings: rules that are right, and most likely not what their author means.

A constant or an action is remarked where it is read (``stackcast.udfs.filters.language.resolver``);
here is what the whole condition shows: that no event meets it, that every one does, that it asks
for two messages in one event, or for a change of what it holds fast. What other rules show is in
`stackcast.udfs.filters.variable_warnings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.rule import parse_rule, subscription_error
from stackcast.udfs.filters.language.shapes import RuleTable, read_table
from stackcast.udfs.filters.meaning.normal_form import (
    MESSAGE_TYPE,
    Term,
    is_message_type,
    normal_form,
)
from stackcast.udfs.filters.meaning.state import alternatives
from stackcast.udfs.filters.nodes import (
    Aggregate,
    And,
    Node,
    Not,
    Predicate,
    Rule,
    RuleWarning,
    StatePredicate,
)
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.filters.variable_warnings import VariableWarnings
from stackcast.udfs.messages.specification import Field, Specification

_FEW = 1000
"""Texts below which it is cheaper to read each."""
_MOST_TERMS = 16
"""Of more terms it is not tried whether they leave nothing out, which may take long."""


@dataclass(frozen=True)
class SubscriptionWarning:
    """One remark on a subscription that is live; fields as of ``Rejection``."""

    id: str
    code: str
    line: int
    column: int
    message: str


class SubscriptionWarnings:
    """Finds the warnings of subscriptions, version after version: reads each text once."""

    def __init__(self) -> None:
        self._specification: Specification | None = None
        self._found: dict[str, list[SubscriptionError]] = {}
        self._variables: VariableWarnings | None = None

    def of(
        self, rows: Iterable[Subscription], specification: Specification
    ) -> list[SubscriptionWarning]:
        """Returns the warnings of live rows, in their order."""
        if specification is not self._specification or self._variables is None:
            self._specification, self._found = specification, {}
            self._variables = VariableWarnings(specification)
        rows = list(rows)
        texts = dict.fromkeys(row.filter for row in rows)
        found = {text: self._found[text] for text in texts if text in self._found}
        new = [text for text in texts if text not in found]
        found |= {text: [] for text in new}
        for at, warning in warnings_of(new, specification):
            found[new[at]].append(warning)
        self._found = found
        of_variables: dict[int, list[SubscriptionError]] = {}
        for at, warning in self._variables.of([(row.subscriber, row.filter) for row in rows]):
            of_variables.setdefault(at, []).append(warning)
        return [
            SubscriptionWarning(
                row.id, error.code, error.fields["line"], error.fields["column"], error.message
            )
            for at, row in enumerate(rows)
            for error in (*found[row.filter], *of_variables.get(at, ()))
        ]


def warnings_of(
    texts: Sequence[str], specification: Specification, *, framing: bool = False
) -> Iterator[tuple[int, SubscriptionError]]:
    """Yields the index of a text and a warning, worded as an error is, by index and place.

    Texts that are wrong have errors and no warnings. ``framing``: as of ``parse_rule``. Many texts
    are looked through as columns, and only those that may have a warning are read by themselves.
    """
    if framing or len(texts) < _FEW:
        yield from _warnings(range(len(texts)), {}, texts, specification, framing)
    else:
        yield from warnings_of_table(read_table(texts, specification), texts, specification)


def warnings_of_table(
    table: RuleTable, texts: Sequence[str], specification: Specification
) -> Iterator[tuple[int, SubscriptionError]]:
    """Yields the same warnings as ``warnings_of`` for texts that ``read_table`` has read."""
    read = dict(table.rules)
    chosen = sorted({*read, *table.suspects.tolist()})
    yield from _warnings(chosen, read, texts, specification, framing=False)


def _warnings(
    chosen: Iterable[int],
    read: Mapping[int, Rule],
    texts: Sequence[str],
    specification: Specification,
    framing: bool,
) -> Iterator[tuple[int, SubscriptionError]]:
    for at in chosen:
        try:
            rule = read.get(at) or parse_rule(texts[at], specification, framing=framing)
            remarks = {*rule.warnings, *_remarks(rule, specification)}
        except SubscriptionError:
            continue
        for remark in sorted(remarks, key=lambda remark: (remark.line, remark.column)):
            place = remark.line, remark.column
            yield (
                at,
                subscription_error(
                    remark.what, texts[at], place, remark.message, remark.suggestion
                ),
            )


def _remarks(rule: Rule, specification: Specification) -> Iterator[RuleWarning]:
    """Yields the warnings that the condition as a whole gives."""
    types = _Types(specification)
    types.of(rule.condition, negated=False)
    yield from types.conflicts
    terms = normal_form(rule.condition, specification, optional=False)
    known = {warning.what for warning in (*rule.warnings, *types.conflicts)}
    line, column = types.first or (1, 1)
    if not terms and known.isdisjoint(("NEVER_TRUE", "TWO_MESSAGES")):
        why = "no event can match this rule; join alternatives by 'or', as in a == 1 or a == 2"
        yield RuleWarning("NEVER_TRUE", line, column, why)
    if types.changes:
        yield from _fixed(rule, types.changes, specification)
    if types.plain and "ALWAYS_TRUE" not in known:
        by_type: dict[Term, list[Term]] = {}
        for term in terms:
            kind = tuple(literal for literal in term if literal[0] == MESSAGE_TYPE)
            rest = tuple(literal for literal in term if literal[0] != MESSAGE_TYPE)
            by_type.setdefault(kind, []).append(rest)
        if any(_always(those, specification) for those in by_type.values()):
            why = (
                "this rule matches every event that contains the fields; to match every event, "
                "write all"
            )
            yield RuleWarning("ALWAYS_TRUE", line, column, why)


def _fixed(
    rule: Rule, changes: Sequence[StatePredicate], specification: Specification
) -> Iterator[RuleWarning]:
    """Yields changes of a field to which the rest of their alternative leaves no other value."""
    found = {
        (cell.field, cell.window)
        for alternative in alternatives(rule.condition, specification, optional=False)
        for cell, _ in alternative.macros
        if cell.function == "moved"
        and (spans := dict(alternative.rest).get(cell.field or ""))
        and spans[-1][1] - spans[0][0] < cell.window
    }
    for node in changes:
        field = _changing(node)
        if field is not None and (field.qualified, node.subject.window) in found:
            why = (
                f"the rest of this rule allows '{field.qualified}' only one value, so it "
                "changes once, at the first event, because only events that satisfy the rest "
                "of the rule are compared"
            )
            yield RuleWarning("NO_CHANGE", node.line, node.column, why)


def _changing(node: Predicate | StatePredicate) -> Field | None:
    """Returns the field that a predicate on change asks for."""
    subject = node.subject if isinstance(node, StatePredicate) else None
    change = isinstance(subject, Aggregate) and subject.function == "moved"
    return subject.field if change and isinstance(subject, Aggregate) else None


def _always(terms: Sequence[Term], specification: Specification) -> bool:
    """Returns whether any values meet one of the terms at least; of many it may say no wrongly."""
    if not all(terms):
        return True
    if not terms or len(terms) > _MOST_TERMS or terms[0][0][0] not in specification.fields:
        return False
    name = terms[0][0][0]
    last = (1 << specification.fields[name].bits) - 1
    parted = [
        (dict(term).get(name, ((0, last),)), tuple(each for each in term if each[0] != name))
        for term in terms
    ]
    spans = [span for allowed, _ in parted for span in allowed]
    # Between these values no term changes.
    values = {0, *(low for low, _ in spans), *(high + 1 for _, high in spans if high < last)}
    return all(
        _always([t for allowed, t in parted if any(a <= v <= b for a, b in allowed)], specification)
        for v in values
    )


class _Types:
    """The message types of which the parts of a condition can be true.

    conflicts: of parts that ask for two. first: the place of the first predicate. changes: the
    predicates on change. plain: neither ``all`` nor a message type is asked for, so that some value
    of a field should decide.
    """

    def __init__(self, specification: Specification) -> None:
        self._of = {header.name: header.message_type for header in specification.headers}
        self.conflicts: list[RuleWarning] = []
        self.first: tuple[int, int] | None = None
        self.plain = True
        self.changes: list[StatePredicate] = []

    def of(self, node: Node, negated: bool) -> frozenset[int] | None:
        """Returns the types, or None if an event of any type may meet the node."""
        if isinstance(node, Predicate | StatePredicate):
            self.first = self.first or (node.line, node.column)
        if isinstance(node, StatePredicate):
            field = _changing(node)
            if field is None:
                return None
            self.changes.append(node)
            kind = self._of[field.header]
            return None if kind is None else frozenset((kind,))
        if isinstance(node, Predicate):
            kind = self._of[node.field.header]
            self.plain = self.plain and not is_message_type(node.field, kind)
            return None if kind is None else frozenset((kind,))
        if isinstance(node, Not):
            return self.of(node.child, not negated)
        self.plain = self.plain and bool(node.children)
        found = [(self.of(child, negated), child) for child in node.children]
        if isinstance(node, And) is negated:
            sets = [types for types, _ in found if types is not None]
            return frozenset().union(*sets) if len(sets) == len(found) else None
        common: frozenset[int] | None = None
        for types, child in found:
            if types is None:
                continue
            both = types if common is None else common & types
            if common and types and not both:
                self._conflict(child)
            common = both
        return common

    def _conflict(self, node: Node) -> None:
        while not isinstance(node, Predicate | StatePredicate):
            node = node.child if isinstance(node, Not) else node.children[0]
        field = node.field if isinstance(node, Predicate) else _changing(node)
        if field is None:
            return
        why = (
            f"'{field.qualified}' and the fields compared before it belong to different "
            "message types, and an event is one message, so no event satisfies both "
            "comparisons; write 'or', or two rules"
        )
        self.conflicts.append(RuleWarning("TWO_MESSAGES", node.line, node.column, why))
