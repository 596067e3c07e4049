"""The parser of rules: the subscription language of CAMUS (Fig. 1) with our spellings.

Nothing that a user writes is evaluated as anything but this grammar, and nothing
but ``SubscriptionError`` comes out for any text, with the line, the column and an
excerpt with a caret. docs/reference/rule-language.md describes the language and every code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stackcast.udfs.errors import SubscriptionError, printable
from stackcast.udfs.filters.language.resolver import Resolver
from stackcast.udfs.filters.language.syntax import Test, Tree, place, read
from stackcast.udfs.filters.language.syntax_errors import (
    in_file,
    nearest,
    position_in,
    subscription_error,
)
from stackcast.udfs.filters.nodes import And, Node, Not, Or, Predicate, Rule
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.names import unsafe_character

__all__ = [
    "MAX_CONSTANTS",
    "MAX_LENGTH",
    "MAX_NESTING",
    "And",
    "Node",
    "Not",
    "Or",
    "Predicate",
    "Rule",
    "in_file",
    "nearest",
    "parse_rule",
    "subscription_error",
]

MAX_LENGTH = 8192
"""Characters of one rule."""
MAX_NESTING = 64
"""Parentheses and negations around one predicate."""
MAX_CONSTANTS = 1024
"""Constants of one rule's condition."""

_COMMENT = re.compile(r"#[^\n]*")


def parse_rule(text: str, specification: Specification, *, framing: bool = False) -> Rule:
    """Reads one rule: a condition and, after a colon, actions.

    Beside headers that have a message type, fields of the others are not for a rule on messages:
    ``framing`` allows them.

    Errors: ``SubscriptionError`` with codes EMPTY, TOO_LONG, BAD_CHARACTER, SYNTAX, TOO_DEEP,
    TOO_MANY_CONSTANTS, UNKNOWN_FIELD, AMBIGUOUS_FIELD, NOT_IN_MESSAGES, BAD_CONSTANT,
    PREFIX_ORDER, BAD_AGGREGATE, NO_WINDOW, UNKNOWN_VARIABLE, BAD_PORT; fields ``line``, ``column``
    (1-based) and ``suggestion``.
    Source: CAMUS 2, Fig. 1.
    """
    if len(text) > MAX_LENGTH:
        raise subscription_error(
            "TOO_LONG",
            text,
            (1, 1),
            f"the rule has {len(text)} characters, but the limit is {MAX_LENGTH}; split it at an "
            "'or' into several subscriptions",
        )
    unsafe = unsafe_character(text)
    if unsafe is not None:
        raise subscription_error(
            "BAD_CHARACTER",
            text,
            position_in(text, unsafe),
            f"the rule contains '{printable(text[unsafe])}', which is not printable or changes "
            "the direction of the text; remove it, also from comments",
        )
    if not _COMMENT.sub("", text).strip():
        raise subscription_error(
            "EMPTY", text, (1, 1), "the rule is empty; write a condition such as stock == GOOGL"
        )
    tree, acts = read(text)
    if tree.depth > MAX_NESTING:
        raise _too_deep(text, tree)
    _count_constants(text, tree)
    resolver = Resolver(text, specification, framing)
    condition = resolver.node(tree)
    actions = tuple(map(resolver.action, acts))
    return Rule(condition, actions, resolver.places(acts), tuple(resolver.warnings))


def _too_deep(text: str, tree: Tree) -> SubscriptionError:
    while tree.test is None:
        tree = max(tree.children, key=lambda child: child.depth)
    return subscription_error(
        "TOO_DEEP",
        text,
        place(tree.test.start),
        f"this comparison is nested in more than {MAX_NESTING} parentheses and negations; "
        "simplify the rule",
    )


def _count_constants(text: str, tree: Tree) -> None:
    count = 0
    for test in _tests(tree):
        count += len(test.constants)
        if count > MAX_CONSTANTS:
            raise subscription_error(
                "TOO_MANY_CONSTANTS",
                text,
                place(test.constants[MAX_CONSTANTS - count]),
                f"the rule has more than {MAX_CONSTANTS} constants, and this is constant "
                f"{MAX_CONSTANTS + 1}; split the rule at an 'or', or split its set, into several "
                "subscriptions",
            )


def _tests(tree: Tree) -> Iterator[Test]:
    stack = [tree]
    while stack:
        tree = stack.pop()
        if tree.test is not None:
            yield tree.test
        stack.extend(reversed(tree.children))
