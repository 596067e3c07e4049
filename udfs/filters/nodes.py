"""The syntax tree of a rule, with fields resolved and constants raw.

Source: CAMUS 2, Fig. 1. docs/reference/rule-semantics.md defines its meaning, and the modules
``evaluate`` (without state) and ``interpreter`` (with state) implement it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from stackcast.udfs.messages.specification import Counter, Field

Comparison = Literal["==", "!=", "<", "<=", ">", ">="]
Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
Function = Literal["count", "sum", "avg", "min", "max", "moved"]

Span = tuple[int, int]
"""First and last of consecutive raw values."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A field compared with constants (an atomic predicate, CAMUS 2).

    ``constants`` are spans of raw unsigned values as they stand in the message, so that
    ``price > 50.25`` with four decimals holds ``((502500, 502500),)``. Comparisons have one
    constant of one value; ``in`` and ``not in`` have one or more spans: the members of ``in {..}``,
    a prefix, or ``between a and b``. ``text`` is the predicate as it was written, ``line`` and
    ``column`` (1-based) its place.
    """

    field: Field
    operator: Operator
    constants: tuple[Span, ...]
    text: str
    line: int
    column: int

    @property
    def value(self) -> int:
        """The one constant of a comparison."""
        return self.constants[0][0]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A macro in a condition, ``avg(price)``: over a tumbling window in microseconds.

    ``field`` is None for ``count()`` only. ``moved(price, 0.5)`` is 1 or 0, and its ``window`` a
    span of raw values: the dead band. That of ``changed(price)`` is 1.
    """

    function: Function
    field: Field | None
    window: int


@dataclass(frozen=True, slots=True)
class StatePredicate:
    """A state variable, or a macro, compared with a raw constant."""

    subject: Aggregate | Counter
    operator: Comparison
    value: int
    text: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class And:
    """A conjunction, true if all of ``children`` are: two or more, or none, which is ``all``."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """A disjunction, true if any of ``children`` (two or more) is."""

    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """A negation, true if ``child`` is false; unknown if ``child`` is unknown."""

    child: Node


Node = Predicate | StatePredicate | And | Or | Not


@dataclass(frozen=True, slots=True)
class Forward:
    """The action ``fwd(a, b)``: host names, or port numbers as decimal text."""

    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """A named action for the switch, ``answerDNS(10.0.0.97)``; arguments as written."""

    name: str
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """The action ``variable <- function(field)``."""

    variable: Counter
    function: Function
    field: Field | None


Action = Forward | Call | Update


@dataclass(frozen=True, slots=True)
class RuleWarning:
    """A remark on a rule that is right: ``what`` is the code, ``line`` and ``column`` the place."""

    what: str
    line: int
    column: int
    message: str
    suggestion: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a condition, and actions if it holds; none if the rule names none.

    ``places``: line and column of each of ``receivers``. ``warnings``: of its words; they are no
    part of what the rule is.
    """

    condition: Node
    actions: tuple[Action, ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    warnings: tuple[RuleWarning, ...] = field(default=(), compare=False, repr=False)

    @property
    def receivers(self) -> tuple[str, ...]:
        """All that ``fwd`` names, without repeats, in order of first mention."""
        names = [
            t for action in self.actions if isinstance(action, Forward) for t in action.targets
        ]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class CellUpdate:
    """One update of a cell of state by an event (see ``stackcast.udfs.filters.meaning.state``)."""

    cell: str
    function: Function
    field: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a leaf: all that happens to its events.

    ``receivers`` are sorted, port numbers by value before host names by letter; ``calls`` are
    sorted; each stands once, however many rules ask for it.
    """

    receivers: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    updates: tuple[CellUpdate, ...] = ()
