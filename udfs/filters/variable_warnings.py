"""Warnings of rules that read a variable which stays 0, because no rule of its owner updates it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.rule import parse_rule, subscription_error
from stackcast.udfs.filters.nodes import Node, Not, Predicate, StatePredicate, Update
from stackcast.udfs.messages.specification import Counter, Specification


class _Variables(NamedTuple):
    """Variables of a rule: the first comparison of each that it reads, and those it updates."""

    reads: dict[str, StatePredicate]
    updates: frozenset[str]


class VariableWarnings:
    """Finds variables that no rule of their owner updates, version after version.

    Only texts with the name of a variable are parsed, and each only once.

    Args:
        specification: declares the variables.
        framing: as for ``parse_rule``.
    """

    def __init__(self, specification: Specification, *, framing: bool = False) -> None:
        self._specification = specification
        self._framing = framing
        names = "|".join(re.escape(counter.name) for counter in specification.counters)
        self._names = re.compile(rf"\b(?:{names})\b") if names else None
        self._texts: dict[str, _Variables] = {}

    def may_name(self, text: str) -> bool:
        """Returns False if a text certainly names no variable."""
        return self._names is not None and self._names.search(text) is not None

    def of(self, rules: Sequence[tuple[str, str]]) -> Iterator[tuple[int, SubscriptionError]]:
        """Yields the index of a rule and a warning, worded like an error, by index and place.

        Args:
            rules: owner and text of each rule that is live; an empty owner for rules without one.
        """
        texts = {text for _, text in rules if self.may_name(text)}
        self._texts = {
            text: self._texts.get(text) or self._variables_of(text) for text in sorted(texts)
        }
        updates: dict[str, set[str]] = {}
        for owner, text in rules:
            if text in self._texts:
                updates.setdefault(owner, set()).update(self._texts[text].updates)
        for index, (owner, text) in enumerate(rules):
            if text not in self._texts:
                continue
            for name, node in self._texts[text].reads.items():
                if name not in updates[owner]:
                    yield index, _warning(text, node, name, owner)

    def _variables_of(self, text: str) -> _Variables:
        try:
            rule = parse_rule(text, self._specification, framing=self._framing)
        except SubscriptionError:
            return _Variables({}, frozenset())
        reads: dict[str, StatePredicate] = {}
        for name, node in _comparisons(rule.condition):
            first = reads.setdefault(name, node)
            if (node.line, node.column) < (first.line, first.column):
                reads[name] = node
        updates = (action for action in rule.actions if isinstance(action, Update))
        return _Variables(reads, frozenset(action.variable.name for action in updates))


def _comparisons(node: Node) -> Iterator[tuple[str, StatePredicate]]:
    """Yields the comparisons of variables in a condition, with the names of the variables."""
    if isinstance(node, StatePredicate):
        if isinstance(node.subject, Counter):
            yield node.subject.name, node
    elif isinstance(node, Not):
        yield from _comparisons(node.child)
    elif not isinstance(node, Predicate):
        for child in node.children:
            yield from _comparisons(child)


def _warning(text: str, node: StatePredicate, name: str, owner: str) -> SubscriptionError:
    rules = f"rule of subscriber '{owner}'" if owner else "rule"
    message = (
        f"no {rules} updates variable '{name}', so it is always 0 here; each subscriber has "
        f"its own variables: add the action {name} <- count() to a rule of this subscriber"
    )
    return subscription_error("NEVER_UPDATED", text, (node.line, node.column), message)
