"""The syntax tree of a rule: what a subscriber wrote, with fields resolved and constants raw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from udfs.messages.specification import Field

Operator = Literal["==", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Predicate:
    """A comparison of one field with one constant (an atomic predicate, CAMUS 2).

    ``value`` is the raw unsigned value as it stands in the message, so
    ``price > 50.25`` with four decimals holds 502500. ``text`` is the predicate as
    it was written; ``line`` and ``column`` (1-based) say where.
    """

    field: Field
    operator: Operator
    value: int
    text: str
    line: int
    column: int


@dataclass(frozen=True)
class And:
    """True if all of ``children`` (two or more) are."""

    children: tuple[Node, ...]


@dataclass(frozen=True)
class Or:
    """True if any of ``children`` (two or more) is."""

    children: tuple[Node, ...]


@dataclass(frozen=True)
class Not:
    """True if ``child`` is false; unknown if ``child`` is unknown."""

    child: Node


Node = Predicate | And | Or | Not


@dataclass(frozen=True)
class Rule:
    """A condition and whom to forward to.

    ``receivers`` are the hosts of ``fwd(...)`` as written, without repeats; empty if
    the rule has no action. ``places`` gives line and column of each of them.
    """

    condition: Node
    receivers: tuple[str, ...]
    places: tuple[tuple[int, int], ...] = ()
