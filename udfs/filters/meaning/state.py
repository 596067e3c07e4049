"""State: the cells behind macros and variables, and the terms that read and update them.

docs/reference/rule-language.md, section "State", defines it. A cell holds (start, count, value) of
one tumbling window: a switch can keep that in three registers, and decide with one comparison.
Source: CAMUS 2 ("tumbling window") and 3.1 (registers and update functions).
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from operator import is_
from typing import NamedTuple

from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.intervals import Intervals
from stackcast.udfs.filters.meaning.normal_form import (
    MESSAGE_TYPE,
    STATE_MAXIMUM,
    Term,
    conjunction,
    lane_terms,
    normal_form,
    presence,
    short_name,
    subject_name,
)
from stackcast.udfs.filters.nodes import (
    Aggregate,
    CellUpdate,
    Function,
    Node,
    Not,
    Predicate,
    Rule,
    StatePredicate,
    Update,
)
from stackcast.udfs.messages.specification import Counter, Field, Specification

CellState = tuple[int, int, int]
"""Start of the window (time of its first update), number of updates, and value: the sum for sum
and avg, the extreme for min and max, 0 for count. For moved they are the time of its last firing,
1, and the value then. Without updates it is ``EMPTY``."""

EMPTY: CellState = (0, 0, 0)

_PLAIN = re.compile(r"[A-Za-z0-9_.\-]+")


@dataclass(frozen=True, slots=True)
class Cell:
    """One piece of state, of one source of events.

    ``name``: the variable and its owner, or a macro with the condition under which it is updated:
    ``avg(add_order.price) per 100 us where add_order.stock == GOOGL``. Equal conditions give equal
    names, different ones different names. ``field``: that which a macro aggregates, qualified.
    ``window``: microseconds, of moved the dead band in raw values. ``variable``: True for the cell
    of a variable.
    """

    name: str
    function: Function
    field: str | None
    window: int
    variable: bool = False

    def length(self, units: int) -> int:
        """Returns the window in units of a clock that has so many in a microsecond; of moved, in
        raw values."""
        return self.window if self.function == "moved" else self.window * units

    def initial(self, event: Container[str]) -> int | None:
        """Returns the value that an event with these fields finds while the window is empty."""
        if self.function == "moved":
            return 1 if self.field in event else None
        return 0 if self.function in ("count", "sum") else None

    @property
    def identity(self) -> str:
        """The key of its state in other versions of the rules.

        It is the name, and for a variable the function: under another one it starts empty.
        """
        return f"{self.name} <- {self.function}()" if self.variable else self.name

    @property
    def number(self) -> int:
        """A number of 64 bits, never 0, that stands for the identity."""
        return int.from_bytes(blake2b(self.identity.encode(), digest_size=8).digest()) or 1


@dataclass(frozen=True, slots=True)
class Clock:
    """Reads the time of events from their @clock fields; ``units`` are a microsecond."""

    fields: tuple[Field, ...]
    units: int

    def time(self, event: Mapping[str, int], given: int) -> int:
        """Returns the time of an event in units: its first @clock field, else ``given``
        (microseconds)."""
        for field in self.fields:
            raw = event.get(field.qualified)
            if raw is not None:
                return raw * (self.units // field.clock)
        return given * self.units


def clock_of(specification: Specification) -> Clock:
    """Returns the clock of a specification: its @clock fields as declared, in their common unit."""
    fields = tuple(field for field in specification.fields.values() if field.clock)
    return Clock(fields, specification.clock_units)


def current(function: Function, state: CellState, window: int, time: int, raw: int) -> CellState:
    """Returns the cell as an event at ``time`` with a raw value finds it: empty once the window is
    over.

    ``window``: as of ``Cell.length``; ``time`` is in the clock's units. An event that is older than
    the start, by less than a window, finds the open window; one that is older by more has another
    clock. The window of moved is over for a value that is as far from the one that opened it.
    """
    start, count, value = state
    away = abs(raw - value) if function == "moved" else abs(time - start)
    return EMPTY if count and away >= window else state


def updated(function: Function, state: CellState, window: int, time: int, raw: int) -> CellState:
    """Returns the cell after an update at ``time`` with a raw value (not used by count)."""
    start, count, value = current(function, state, window, time, raw)
    if not count:
        return time, 1, 0 if function == "count" else raw
    if function == "moved":
        return state
    if function in ("sum", "avg"):
        value = min(value + raw, STATE_MAXIMUM)
    elif function == "min":
        value = min(value, raw)
    elif function == "max":
        value = max(value, raw)
    return start, count + 1, value


def reading(
    function: Function, state: CellState, window: int, time: int, raw: int | None = None
) -> int | None:
    """Returns the value that an event at ``time`` finds in the cell; None if it has none.

    ``raw``: the event's value of the field, which moved compares: it has none without.
    """
    if function == "moved" and raw is None:
        return None
    _, count, value = current(function, state, window, time, raw or 0)
    if function == "moved":
        return 0 if count else 1
    if function == "count":
        return count
    if function == "sum":
        return value
    if not count:
        return None
    return value // count if function == "avg" else value


@dataclass(frozen=True, slots=True)
class Alternative:
    """One term of a condition with its macros apart.

    ``rest`` is the term without macros; an event on which it is true updates the cell of each
    macro. The alternative is true if the rest is, and each cell has an allowed value.
    """

    rest: Term
    macros: tuple[tuple[Cell, Intervals], ...]


class StatefulTerm(NamedTuple):
    """One term to compile: its updates, and ``acts``, True if the actions of its rule are taken."""

    term: Term
    updates: tuple[CellUpdate, ...]
    acts: bool


@dataclass(frozen=True, slots=True)
class Split:
    """One rule as terms over fields and cells, and all cells that they read or update, by name."""

    terms: tuple[StatefulTerm, ...]
    cells: tuple[Cell, ...]


def alternatives(
    condition: Node, specification: Specification, optional: bool | None = None
) -> tuple[Alternative, ...]:
    """Returns the terms of the normal form, each with its macros apart. Errors: as
    ``normal_form``."""
    macros = {subject_name(s): s for s in subjects(condition) if isinstance(s, Aggregate)}
    parted = []
    for term in normal_form(condition, specification, optional):
        rest = tuple(literal for literal in term if literal[0] not in macros)
        where = describe(rest, specification) if len(rest) < len(term) else ""
        parted.append(
            Alternative(
                rest,
                tuple(
                    (_macro_cell(macros[name], where), allowed)
                    for name, allowed in term
                    if name in macros
                ),
            )
        )
    return tuple(parted)


def split(
    condition: Node,
    specification: Specification,
    updates: Sequence[Update] = (),
    functions: Mapping[str, Function] | None = None,
    optional: bool | None = None,
) -> Split:
    """Splits a rule into terms without macros: ``rest : update`` and ``rest and cell op c :
    actions``.

    ``updates``: those among the rule's actions. Their terms demand the field whose value they take,
    so that an update never lacks it. ``functions``: the function of each variable
    (``resolve_variables``). ``optional``: as in ``normal_form``. Terms are over whole fields: see
    ``normal_form.lane_terms``. Without state there is just the normal form, and no cells.
    """
    read = subjects(condition)
    if not read and not updates:
        terms = normal_form(condition, specification, optional)
        return Split(tuple(StatefulTerm(term, (), True) for term in terms), ())
    variables = [s for s in read if isinstance(s, Counter)] + [u.variable for u in updates]
    used = (variable_cell(variable, functions or {}) for variable in variables)
    cells = {cell.name: cell for cell in used}
    gathered: dict[Term, tuple[dict[CellUpdate, None], bool]] = {}
    own = [(cell_update(update), update.field) for update in updates]
    for alternative in alternatives(condition, specification, optional):
        cells |= {cell.name: cell for cell, _ in alternative.macros}
        acting: Term | None = alternative.rest
        wanted: list[tuple[Term, CellUpdate, Field | None]] = []
        for cell, allowed in alternative.macros:
            field = specification.fields[cell.field] if cell.field is not None else None
            wanted.append((alternative.rest, macro_update(cell), field))
            asked: Term = ((cell.name, allowed),)
            if cell.function == "moved" and field is not None:
                asked += presence(field, specification, optional)
            acting = None if acting is None else conjunction(acting, asked)
        if acting is not None:
            gathered[acting] = (gathered.get(acting, ({}, True))[0], True)
            wanted += [(acting, update, field) for update, field in own]
        for base, update, field in wanted:
            demanded = presence(field, specification, optional) if field is not None else ()
            term = conjunction(base, demanded)
            if term is not None:
                gathered.setdefault(term, ({}, False))[0][update] = None
    return Split(
        tuple(
            StatefulTerm(term, tuple(sorted(found, key=update_order)), acts)
            for term, (found, acts) in gathered.items()
        ),
        tuple(cells[name] for name in sorted(cells)),
    )


def resolve_variables(rules: Iterable[Iterable[Update]]) -> dict[str, Function]:
    """Returns the function of each variable that a rule set updates, by ``subject_name``.

    ``rules``: updates of each rule.

    Errors: ``SubscriptionError`` MIXED_UPDATES for the first rule that differs from an earlier one.
    """
    functions: dict[str, Function] = {}
    for updates in rules:
        add_updates(functions, updates)
    return functions


def add_updates(functions: dict[str, Function], updates: Iterable[Update]) -> None:
    """Adds the updates of one more rule to ``functions``, or raises and changes nothing.

    Errors: ``SubscriptionError`` MIXED_UPDATES if a variable is updated by another function.
    """
    added: dict[str, Function] = {}
    for update in updates:
        name = subject_name(update.variable)
        before = added.setdefault(name, functions.get(name, update.function))
        if before != update.function:
            raise SubscriptionError(
                "MIXED_UPDATES",
                f"line 1, column 1: another rule updates '{update.variable.name}' by {before}(), "
                f"so this rule cannot update it by {update.function}(); use another variable",
                line=1,
                column=1,
                suggestion=None,
            )
    functions.update(added)


def variable_cell(counter: Counter, functions: Mapping[str, Function]) -> Cell:
    """Returns the cell of a variable. One that nobody updates counts nothing, so it reads as 0.

    ``functions``: as of ``resolve_variables``.
    """
    name = subject_name(counter)
    return Cell(name, functions.get(name, "count"), None, counter.window, variable=True)


def owned(rule: Rule, owner: str) -> Rule:
    """Returns a rule whose variables are those of ``owner``; the rule itself if it has none."""
    actions = tuple(
        replace(action, variable=replace(action.variable, owner=owner))
        if isinstance(action, Update)
        else action
        for action in rule.actions
    )
    condition = _owned(rule.condition, owner)
    if condition is rule.condition and actions == rule.actions:
        return rule
    return replace(rule, condition=condition, actions=actions)


def _owned(node: Node, owner: str) -> Node:
    if isinstance(node, StatePredicate):
        if not isinstance(node.subject, Counter):
            return node
        return replace(node, subject=replace(node.subject, owner=owner))
    if isinstance(node, Predicate):
        return node
    if isinstance(node, Not):
        child = _owned(node.child, owner)
        return node if child is node.child else Not(child)
    children = tuple(_owned(child, owner) for child in node.children)
    if all(map(is_, children, node.children)):
        return node
    return replace(node, children=children)


def cell_update(update: Update) -> CellUpdate:
    """Returns a rule's update as an update of the variable's cell."""
    field = update.field.qualified if update.field is not None else None
    return CellUpdate(subject_name(update.variable), update.function, field)


def macro_update(cell: Cell) -> CellUpdate:
    """Returns the update of a macro's cell by an event."""
    return CellUpdate(cell.name, cell.function, cell.field)


def update_order(update: CellUpdate) -> tuple[str, str, str]:
    """Returns a key to sort updates by. Their order has no effect: all functions are
    commutative."""
    return update.cell, update.function, update.field or ""


def field_terms(condition: Node, specification: Specification) -> list[Term]:
    """Returns terms over lanes whose disjunction holds for all events that may meet the condition.

    State is not known beforehand: what is asked of it is left out. Errors: of ``normal_form`` and
    ``lane_terms``.
    """
    state = {subject_name(subject) for subject in subjects(condition)}
    terms = dict.fromkeys(
        tuple(literal for literal in term if literal[0] not in state)
        for term in normal_form(condition, specification)
    )
    return [lane for term in terms for lane in lane_terms(term, specification)]


def subjects(condition: Node) -> list[Aggregate | Counter]:
    """Returns each variable and macro that the condition reads, once, in order of first mention."""
    found: dict[Aggregate | Counter, None] = {}
    pending = [condition]
    while pending:
        node = pending.pop()
        if isinstance(node, StatePredicate):
            found[node.subject] = None
        elif isinstance(node, Not):
            pending.append(node.child)
        elif not isinstance(node, Predicate):
            pending.extend(reversed(node.children))
    return list(found)


def describe(term: Term, specification: Specification) -> str:
    """Writes a term as people do, ``add_order.price >= 50.2500 and add_order.stock == GOOGL``.

    Different terms of one specification give different texts; the term that is always true
    gives ``""``. The message type is left out where a field of its header is there to say it.
    """
    return " and ".join(_literals(term, specification))


def _literals(term: Term, specification: Specification) -> Iterator[str]:
    fields = [specification.fields.get(name) for name, _ in term]
    typed = {header.name for header in specification.headers if header.message_type is not None}
    said = any(field is not None and field.header in typed for field in fields)
    for (name, allowed), field in zip(term, fields, strict=True):
        if field is None and name.startswith(("changed(", "moved(")):
            low, high = allowed[0][0], allowed[-1][1]
            yield f"{name} or not" if low < high else name if low else f"not {name}"
            continue
        if name == MESSAGE_TYPE and field is None:
            if not said:
                yield f"{name} == {_byte(allowed[0][0])}"
            continue
        maximum = STATE_MAXIMUM if field is None else (1 << field.bits) - 1
        shown = [tuple(_shown(raw, field) for raw in interval) for interval in allowed]
        if allowed == ((0, maximum),):
            yield f"{name} present"
        elif len(allowed) > 1:
            members = (low if low == high else f"{low} to {high}" for low, high in shown)
            yield f"{name} in {{{', '.join(members)}}}"
        elif shown[0][0] == shown[0][1]:
            yield f"{name} == {shown[0][0]}"
        elif allowed[0][0] == 0:
            yield f"{name} <= {shown[0][1]}"
        elif allowed[0][1] == maximum:
            yield f"{name} >= {shown[0][0]}"
        else:
            yield f"{name} in {{{shown[0][0]} to {shown[0][1]}}}"


def _byte(raw: int) -> str:
    return chr(raw) if _PLAIN.fullmatch(chr(raw)) else f"#{raw:x}"


def _shown(raw: int, field: Field | None) -> str:
    """Writes a raw value: as text only where no other value of the field is written so."""
    if field is None:
        return str(raw)
    if field.kind == "string":
        text = field.render(raw)
        return text if _PLAIN.fullmatch(text) and field.encode(text) == raw else f"#{raw:x}"
    return field.show(raw)


def _macro_cell(macro: Aggregate, where: str) -> Cell:
    name = subject_name(macro) + (f" where {where}" if where else "")
    field = macro.field.qualified if macro.field is not None else None
    return Cell(short_name(name), macro.function, field, macro.window)
