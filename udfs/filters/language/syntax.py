"""The words of a rule in their order, as the grammar reads them, before names are looked up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedInput

from stackcast.udfs.filters.language.syntax_errors import syntax_error


@dataclass(frozen=True)
class Macro:
    """A macro, ``function(field, window)``."""

    function: Token
    field: Token | None
    window: Token | None


@dataclass(frozen=True)
class Change:
    """A predicate on change, ``moved(field, band)``."""

    function: Token
    field: Token | Macro | None
    band: Token | None


@dataclass(frozen=True)
class Test:
    """A field, variable or macro compared with constants, or a predicate on change; ``end``: last
    position of its text."""

    subject: Token | Macro | Change
    operator: str
    negated: bool
    constants: tuple[Token, ...]
    end: int

    @property
    def start(self) -> Token:
        """The first word of the text."""
        return self.subject if isinstance(self.subject, Token) else self.subject.function


@dataclass(frozen=True)
class Tree:
    """One node: ``kind`` is test, group, not, and, or; ``depth`` counts groups and negations
    below. An ``and`` of nothing is ``all``."""

    kind: str
    children: tuple[Tree, ...]
    depth: int
    test: Test | None = None


@dataclass(frozen=True)
class Act:
    """An action: ``name`` is None for ``fwd``; ``macro`` only if it updates the variable."""

    name: Token | None
    arguments: tuple[Token, ...] = ()
    macro: Macro | None = None


def read(text: str) -> tuple[Tree, tuple[Act, ...]]:
    """Reads the condition and the actions of a rule.

    Raises SubscriptionError SYNTAX.
    """
    try:
        return cast("tuple[Tree, tuple[Act, ...]]", _parser().parse(text))
    except UnexpectedInput as error:
        raise syntax_error(text, error) from None


def place(token: Token) -> tuple[int, int]:
    """Returns line and column of a word."""
    return token.line or 1, token.column or 1


@cache
def _parser() -> Lark:
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, start="rule", parser="lalr", lexer="contextual", transformer=_Shape())


class _Shape(Transformer[Token, Any]):
    """Builds trees while lark parses, bottom up, so that depth costs no Python stack."""

    def rule(self, parts: list[Any]) -> tuple[Tree, tuple[Act, ...]]:
        return parts[0], parts[1] or ()

    def condition(self, parts: list[Tree]) -> Tree:
        return _many("or", parts)

    def conjunction(self, parts: list[Tree]) -> Tree:
        return _many("and", parts)

    def inversion(self, parts: list[Any]) -> Tree:
        return Tree("not", (parts[1],), parts[1].depth + 1)

    def group(self, parts: list[Tree]) -> Tree:
        return Tree("group", (parts[0],), parts[0].depth + 1)

    def everything(self, parts: list[Any]) -> Tree:
        return Tree("and", (), 0)

    def comparison(self, parts: list[Any]) -> Tree:
        subject, operator, constant = parts
        return _leaf(Test(subject, str(operator), False, (constant,), constant.end_pos))

    def member(self, parts: list[Any]) -> Tree:
        constants = tuple(part for part in parts[1:] if part.type in _CONSTANTS)
        return _leaf(Test(parts[0], "in", _negated(parts), constants, parts[-1].end_pos))

    def between(self, parts: list[Any]) -> Tree:
        constants = tuple(parts[-2:])
        return _leaf(Test(parts[0], "between", _negated(parts), constants, parts[-1].end_pos))

    def change(self, parts: list[Any]) -> Tree:
        function, *given, end = parts
        field, band = given or (None, None)
        return _leaf(Test(Change(function, field, band), "", False, (), end.end_pos))

    def field(self, parts: list[Token]) -> Token:
        return parts[0]

    def macro(self, parts: list[Token]) -> Macro:
        kinds = {part.type: part for part in parts[1:]}
        return Macro(parts[0], kinds.get("FIELD"), kinds.get("WINDOW"))

    def actions(self, parts: list[Any]) -> tuple[Act, ...]:
        return tuple(part for part in parts if isinstance(part, Act))

    def ports(self, parts: list[Token]) -> tuple[Act, ...]:
        return (Act(None, tuple(parts)),)

    def forward(self, parts: list[Token]) -> Act:
        return Act(None, tuple(parts))

    def call(self, parts: list[Any]) -> Act:
        return Act(parts[0], tuple(part for part in parts[1:] if part is not None))

    def update(self, parts: list[Any]) -> Act:
        return Act(parts[0], macro=parts[1])


_CONSTANTS = ("ADDRESS", "TIME", "BARE", "QUOTED")


def _negated(parts: list[Any]) -> bool:
    return bool(parts[1].type == "NOT")


def _leaf(test: Test) -> Tree:
    return Tree("test", (), 0, test)


def _many(kind: str, parts: list[Tree]) -> Tree:
    if len(parts) == 1:
        return parts[0]
    return Tree(kind, tuple(parts), max(part.depth for part in parts))
