"""The meaning of a rule set with state, event by event: the reference for stream and switch.

Conditions are read from the syntax tree (``evaluate``); only the rest of a macro's term, for which
its cell stands, is taken from the normal form, and then tried value by value. Slow on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stackcast.udfs.filters.intervals import Intervals
from stackcast.udfs.filters.meaning.evaluate import Subject, matches
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE, Term, subject_name
from stackcast.udfs.filters.meaning.state import (
    EMPTY,
    Alternative,
    Cell,
    CellState,
    alternatives,
    cell_update,
    clock_of,
    macro_update,
    reading,
    resolve_variables,
    subjects,
    updated,
    variable_cell,
)
from stackcast.udfs.filters.nodes import Aggregate, Call, CellUpdate, Rule, Update
from stackcast.udfs.messages.specification import Counter, Specification


class EventResult(NamedTuple):
    """The result of one event: indexes of the rules that match, and their actions, each once.

    ``receivers`` are sorted, port numbers by value before host names by letter.
    """

    rules: tuple[int, ...]
    receivers: tuple[str, ...]
    calls: tuple[Call, ...]


class Interpreter:
    """Runs rules over the events of one source, in their order, and keeps their state.

    ``optional``: as in ``normal_form``; it says how cells are named, and nothing else.

    Errors: ``SubscriptionError`` MIXED_UPDATES, TOO_COMPLEX.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        specification: Specification,
        optional: bool | None = True,
    ) -> None:
        self._rules = rules
        self._specification = specification
        self._clock = clock_of(specification)
        self._updates = [[a for a in rule.actions if isinstance(a, Update)] for rule in rules]
        functions = resolve_variables(self._updates)
        read = [s for r in rules for s in subjects(r.condition) if isinstance(s, Counter)]
        written = [update.variable for updates in self._updates for update in updates]
        self._variables = {
            counter: variable_cell(counter, functions)
            for counter in (*specification.counters, *read, *written)
        }
        # By the rule's index, for the rules with macros alone. Each field that a term names is
        # looked for in the event: nothing is taken to be there because its header is.
        self._alternatives: dict[int, tuple[Alternative, ...]] = {
            index: alternatives(rule.condition, specification, optional)
            for index, rule in enumerate(rules)
            if any(isinstance(subject, Aggregate) for subject in subjects(rule.condition))
        }
        macros = (a.macros for several in self._alternatives.values() for a in several)
        self._cells = {cell.name: cell for cell in self._variables.values()}
        self._cells |= {cell.name: cell for literals in macros for cell, _ in literals}
        self._states: dict[str, CellState] = {}
        used = {subject_name(variable) for variable in (*read, *written)}
        self._used = [c for name, c in self._cells.items() if name in used or not c.variable]

    def step(self, event: Mapping[str, int], time: int = 0) -> EventResult:
        """Lets one event pass.

        ``event``: qualified field names to raw values, without absent fields. ``time``:
        microseconds, for formats without a @clock. All conditions see the state as the event
        finds it; then all updates take effect, equal ones once.
        """
        now = self._clock.time(event, time)
        event = self._with_types(event)
        state: dict[Subject, int | None] = {
            counter: self._read(cell, now, event) for counter, cell in self._variables.items()
        }
        values = {**event, **{subject_name(counter): state[counter] for counter in self._variables}}
        matching: list[int] = []
        updates: set[CellUpdate] = set()
        for index, rule in enumerate(self._rules):
            if index in self._alternatives:
                holds = False
                for alternative in self._alternatives[index]:
                    if _true(alternative.rest, values):
                        updates.update(macro_update(cell) for cell, _ in alternative.macros)
                        holds = holds or all(
                            _among(self._read(cell, now, event), allowed)
                            for cell, allowed in alternative.macros
                        )
            else:
                holds = matches(rule.condition, event, state)
            if holds:
                matching.append(index)
                updates.update(cell_update(update) for update in self._updates[index])
        for update in updates:
            self._update(update, event, now)
        actions = {action for index in matching for action in self._rules[index].actions}
        names = {name for index in matching for name in self._rules[index].receivers}
        return EventResult(
            tuple(matching),
            tuple(sorted(names, key=_receiver_order)),
            tuple(sorted(action for action in actions if isinstance(action, Call))),
        )

    def finds(self, name: str, time: int, event: Mapping[str, int] | None = None) -> int | None:
        """Returns the value that an event at ``time``, in the clock's units, would find in a
        cell."""
        return self._read(self._cells[name], time, event or {})

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All variables and macro cells, by name."""
        return tuple(self._cells[name] for name in sorted(self._cells))

    def carry(self, earlier: Interpreter) -> None:
        """Begins with the state that an earlier version of the rules has left.

        A cell that both versions name stays; the rules of this one know nothing of the others.
        """
        before = {cell.identity: earlier._states.get(cell.name) for cell in earlier._used}
        found = ((cell.name, before.get(cell.identity)) for cell in self._used)
        self._states = {name: state for name, state in found if state is not None}

    def _read(self, cell: Cell, now: int, event: Mapping[str, int]) -> int | None:
        state = self._states.get(cell.name, EMPTY)
        raw = event.get(cell.field) if cell.field is not None else None
        return reading(cell.function, state, cell.length(self._clock.units), now, raw)

    def _update(self, update: CellUpdate, event: Mapping[str, int], now: int) -> None:
        cell = self._cells[update.cell]
        raw = 0 if update.field is None else event.get(update.field)
        if raw is None:
            return
        state = self._states.get(cell.name, EMPTY)
        window = cell.length(self._clock.units)
        self._states[cell.name] = updated(cell.function, state, window, now, raw)

    def _with_types(self, event: Mapping[str, int]) -> dict[str, int]:
        """Returns the event with the type byte that its header implies, under both its names."""
        full = dict(event)
        for header in self._specification.headers:
            if header.message_type is not None:
                names = [field.qualified for field in header.fields]
                if any(name in event for name in names):
                    full[names[0]] = full[MESSAGE_TYPE] = header.message_type
        return full


def _among(value: int | None, allowed: Intervals) -> bool:
    return value is not None and any(low <= value <= high for low, high in allowed)


def _true(term: Term, values: Mapping[str, int | None]) -> bool:
    return all(_among(values.get(name), allowed) for name, allowed in term)


def _receiver_order(name: str) -> tuple[bool, int, str]:
    number = name.isascii() and name.isdigit()
    return not number, int(name) if number else 0, name
