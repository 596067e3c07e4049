"""The dynamic step for a switch: entries of the generated program from compiled rows.

Source: CAMUS 3.2, Fig. 4; values, masks and priorities as P4Runtime 1.4 has them (9.1.1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.tables import KINDS, CompiledFilter
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE
from stackcast.udfs.filters.meaning.state import Cell
from stackcast.udfs.filters.nodes import Call, CellUpdate, Outcome
from stackcast.udfs.filters.prefixes import split
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.bit_vectors import BitVectors, FieldVectors
from stackcast.udfs.network_match.cell_tags import HeldCells
from stackcast.udfs.network_match.conjunctions import Conjunctions
from stackcast.udfs.network_match.layout import (
    FUNCTIONS,
    MASK_BITS,
    PREFIX,
    NamedAction,
    ProgramLayout,
    ProgramOptions,
    Stage,
    key_table,
    program_layout,
    take,
)
from stackcast.udfs.network_match.port_terms import ports_in
from stackcast.udfs.network_match.values import ProgramEntries, TableEntry, argument_value
from stackcast.udfs.switches.match import Match, canonical

__all__ = ["Match", "ProgramEntries", "TableEntry", "program_entries"]

_NONE = HeldCells()
_CELLS = f"{PREFIX}.cells"
_DELIVERY = f"{PREFIX}.delivery"
_CALL = f"{PREFIX}.call"

_Place = tuple[int, int]
"""Block and slot of the registers of a cell."""

_Row = tuple[int, int, int, str, int]
"""state, low, high, kind, next; for a state of bit vectors, the terms that are left."""


def program_entries(
    compiled: CompiledFilter,
    specification: Specification,
    ports: Mapping[str, int],
    *,
    options: ProgramOptions | None = None,
    held: HeldCells = _NONE,
    vectors: Sequence[BitVectors] = (),
    conjunctions: Sequence[Sequence[Conjunctions]] = (),
) -> ProgramEntries:
    """Makes entries of the program that ``p4_program`` generates from the same specification.

    ``ports``: host name to port; numeric receivers are ports themselves. A leaf names its ports as
    a mask, so an edit of rules never touches a multicast group (``stackcast.udfs.switches.ports``).
    ``held``: cells that stay where they are. ``vectors``: groups of rules that an event meets after
    those of ``compiled``, a pass each. ``conjunctions``: by table of keys, what it holds in each
    pass, beside what else the pass has.

    Raises FilterError: NO_TABLE (a field or kind of match that the program has no table for),
    WRONG_ORDER (tables in another order than the program's), TOO_MANY_CODES (more intervals than
    the resolution of a field), TOO_MANY_VARIABLES, TOO_MANY_UPDATES, TOO_MANY_CALLS, NO_SLOT,
    UNKNOWN_PORT, UNKNOWN_ACTION, BAD_ACTION.
    """
    program = program_layout(specification, options)
    return _Entries(compiled, program, ports, held, vectors, conjunctions).make()


class _Entries:
    def __init__(
        self,
        compiled: CompiledFilter,
        program: ProgramLayout,
        ports: Mapping[str, int],
        held: HeldCells,
        vectors: Sequence[BitVectors],
        conjunctions: Sequence[Sequence[Conjunctions]],
    ) -> None:
        self._compiled = compiled
        self._program = program
        self._ports = ports
        self._rows: dict[str, list[_Row]] = {name: [] for name in compiled.fields}
        for index, state, low, high, kind, following in compiled.entries.tolist():
            self._rows[compiled.fields[index]].append((state, low, high, KINDS[kind], following))
        definitions = zip(compiled.fields[1:], compiled.definitions, strict=True)
        self._cell_fields = [name for name, field in definitions if not field.header]
        self._cell = {cell.name: cell for cell in compiled.cells}
        self._held = held
        self._places = self._allocate() if compiled.cells else {}
        default, arguments = program.default
        self._sent = {int(arguments[0])} if default == "fwd" else set()
        taken = (compiled.entries["state"], compiled.entries["next"], [compiled.root], [0])
        first = 1 + max(int(max(states, default=0)) for states in (*taken, compiled.outcomes))
        self._vectors = dict(enumerate(vectors, first))
        self._conjunctions = conjunctions
        roots = [*self._vectors]
        if not roots or compiled.outcomes.get(compiled.root) != Outcome():
            roots.insert(0, compiled.root)
        passes = max(map(len, conjunctions), default=0)
        fresh = range(first + len(vectors), first + len(vectors) + passes - len(roots))
        self._roots = [*roots, *fresh]
        for state, group in self._vectors.items():
            for name, field in group.fields.items():
                self._rows.setdefault(name, []).extend(_vector_rows(state, field))

    def make(self) -> ProgramEntries:
        self._check_order()
        roots = self._roots
        start = (Match("feed", "exact", canonical(1)),)
        result = [TableEntry(f"{PREFIX}.start", start, f"{PREFIX}.set_state", _next(roots[0]))]
        for number, held in enumerate(self._conjunctions, 1):
            result += self._keys(number, held)
        for stage in self._program.stages:
            result += self._stage(stage)
        result += self._cells()
        result += self._updates()
        result += self._leaves()
        result += [
            TableEntry(f"{PREFIX}.next", (_state(root),), f"{PREFIX}.set_next", _next(following))
            for root, following in pairwise(roots)
        ]
        result += self._calls()
        return ProgramEntries(tuple(result), tuple(sorted(self._sent)))

    # Keys.

    def _keys(self, number: int, held: Sequence[Conjunctions]) -> Iterator[TableEntry]:
        """Makes the entries of one table: for each pass the fields that it asks, then its keys."""
        stages = {stage.field: stage for stage in self._program.stages}
        names = [f"value_{place + 1}" for place in range(self._program.options.key_fields)]
        for root, group in zip(self._roots, held, strict=False):
            for place, field in enumerate(group.fields, 1):
                table, action = f"field_{place}", take(stages[field], place)
                yield TableEntry(
                    key_table(number, table), (_state(root),), key_table(number, action), ()
                )
        table, action = key_table(number, "keys"), key_table(number, "deliver")
        for root, group in zip(self._roots, held, strict=False):
            state, count = _state(root), len(group.fields)
            unused = tuple(Match(name, "exact", canonical(0)) for name in names[count:])
            for key, ports in group.ports.items():
                self._sent.update(ports_in(ports))
                values = (
                    Match(name, "exact", canonical(value))
                    for name, value in zip(names, key, strict=False)
                )
                params = (("ports", canonical(ports)),)
                yield TableEntry(table, (state, *values, *unused), action, params)

    # Fields.

    def _check_order(self) -> None:
        places = {stage.field: place for place, stage in enumerate(self._program.stages)}
        fields = [name for name, rows in self._rows.items() if rows]
        fields = [name for name in fields if name not in self._cell_fields]
        for name in fields:
            if name not in places:
                raise FilterError(
                    "NO_TABLE",
                    f"the P4 program of the switches has no table for {name}: annotate the field "
                    "with @query_field and generate the program again",
                    field=name,
                )
        asked = [name for name in self._compiled.fields if name in fields]
        if asked != sorted(asked, key=places.__getitem__):
            raise FilterError(
                "WRONG_ORDER",
                f"the rules were compiled with the field order {', '.join(asked)}, but the tables "
                f"of the P4 program have the order {', '.join(places)}: compile in the order of "
                "the specification",
            )

    def _stage(self, stage: Stage) -> Iterator[TableEntry]:
        rows = self._rows.get(stage.field, [])
        starts: list[int] = []
        if stage.code_bits and rows:
            starts = self._code_starts(stage, rows)
            yield from self._map(stage, starts)
        by_kind: dict[str, list[TableEntry]] = {kind: [] for kind in (*stage.kinds, "otherwise")}
        absent = {state: following for state, _, _, kind, following in rows if kind == "absent"}
        for state, low, high, kind, following in rows:
            if kind == "absent":
                continue
            if kind == "default":
                by_kind["otherwise"] += self._otherwise(stage, state, following, absent)
                continue
            ends = (low, high)
            if starts:
                ends = (bisect_left(starts, low), bisect_left(starts, high + 1) - 1)
            for match, table in self._matches(stage, *ends, len(by_kind.get("exact", ()))):
                by_kind[table].append(
                    TableEntry(
                        stage.table(table),
                        (_state(state), match),
                        *self._action(stage, state, following),
                        1 if table == "range" else 0,
                    )
                )
        for found in by_kind.values():
            yield from found

    def _matches(self, stage: Stage, low: int, high: int, used: int) -> Iterator[tuple[Match, str]]:
        """Yields the matches of a row, and the table of each; ``used``: rows of the exact one."""
        room = self._program.options.rows
        if "lpm" in stage.kinds:
            for first, last in split(low, high, stage.bits):
                length = stage.bits - (last - first + 1).bit_length() + 1
                yield Match("value", "lpm", canonical(first), prefix_length=length), "lpm"
        elif low == high:
            yield Match("value", "exact", canonical(low)), "exact"
        elif "range" in stage.kinds:
            yield Match("value", "range", canonical(low), canonical(high)), "range"
        elif stage.field == MESSAGE_TYPE or used + high - low < room:
            for value in range(low, high + 1):
                yield Match("value", "exact", canonical(value)), "exact"
        else:
            raise FilterError(
                "NO_TABLE",
                f"the P4 program of the switches matches {stage.field} exactly, but a rule "
                f"compares it with the range {low}..{high}: annotate the field with @query_field "
                "instead of @query_field_exact",
                field=stage.field,
                needed=used + high - low + 1,
                room=room,
            )

    def _otherwise(
        self, stage: Stage, state: int, following: int, absent: Mapping[int, int]
    ) -> Iterator[TableEntry]:
        table = stage.table("otherwise")
        if not stage.optional:
            yield TableEntry(table, (_state(state),), *self._action(stage, state, following))
            return
        for present, after in ((1, following), (0, absent.get(state, following))):
            match = (_state(state), Match("present", "exact", canonical(present)))
            yield TableEntry(table, match, *self._action(stage, state, after))

    def _action(
        self, stage: Stage, state: int, then: int
    ) -> tuple[str, tuple[tuple[str, bytes], ...]]:
        if state in self._vectors:
            return stage.require, (("terms", canonical(then)),)
        return stage.set_state, _next(then)

    def _code_starts(self, stage: Stage, rows: Sequence[_Row]) -> list[int]:
        """Returns the first value of each code: all values of one are alike to all rules."""
        asked = [row for row in rows if row[3] not in ("default", "absent")]
        starts = {0} | {low for _, low, _, _, _ in asked} | {high + 1 for _, _, high, _, _ in asked}
        starts.discard(1 << stage.bits)
        if len(starts) > 1 << stage.code_bits:
            raise FilterError(
                "TOO_MANY_CODES",
                f"the rules divide {stage.field} into {len(starts)} intervals, more than "
                f"{stage.code_bits} bits can represent: set its resolution to "
                f"{(len(starts) - 1).bit_length()} bits",
                field=stage.field,
                needed=len(starts),
                room=1 << stage.code_bits,
            )
        return sorted(starts)

    def _map(self, stage: Stage, starts: Sequence[int]) -> Iterator[TableEntry]:
        # The first interval needs no row: a value that misses has code 0.
        ends = [*starts[1:], 1 << stage.bits]
        action = f"{PREFIX}.{stage.name}.set_code"
        for code, (low, end) in enumerate(zip(starts, ends, strict=True)):
            if code:
                match = Match("value", "range", canonical(low), canonical(end - 1))
                yield TableEntry(stage.table("map"), (match,), action, _next(code), 1)

    # State.

    def _allocate(self) -> dict[str, _Place]:
        found: dict[str, _Place] = {}
        new = []
        for cell in sorted(self._compiled.cells, key=lambda cell: (not cell.variable, cell.name)):
            held = self._held.place(cell)
            place = (held["block"], held["slot"]) if held else None
            if place is not None and place in self._fitting(cell):
                found[cell.name] = place
            else:
                new.append(cell)
        used = set(found.values())
        # Variables first: only they fit the first slot of a block.
        for cell in new:
            place = next((place for place in self._fitting(cell) if place not in used), None)
            if place is None:
                window = f" with a window of {cell.window} microseconds"
                raise FilterError(
                    "NO_SLOT",
                    f"no register is free for {cell.name}: increase the slots of a "
                    f"@query_counter{'' if cell.function == 'moved' else window}",
                    cell=cell.name,
                )
            used.add(place)
            found[cell.name] = place
        return found

    def _fitting(self, cell: Cell) -> list[_Place]:
        """Returns all places that a cell may have, in the order in which they are taken.

        The first slot of a block is for variables, so that macros cannot use up all of them.
        """
        variable, _, _ = cell.name.partition(" of ")
        places = [
            (slot > 0, block.counter != variable, slot, block.number)
            for block in self._program.blocks
            if cell.function == "moved" or block.microseconds == cell.window
            for slot in range(0 if cell.variable else 1, block.slots)
        ]
        if cell.variable:
            places.sort()
        return [(number, slot) for _, _, slot, number in places]

    def _cells(self) -> list[TableEntry]:
        """Makes the entries of cells: each state is in the table of its depth, behind those that
        lead to it."""
        depth: dict[int, int] = {}
        cell_of = {row[0]: name for name in self._cell_fields for row in self._rows[name]}
        for name in self._cell_fields:
            for state, _, _, _, following in self._rows[name]:
                own = depth.setdefault(state, 1)
                if following in cell_of:
                    depth[following] = max(depth.get(following, 1), own + 1)
        limit = self._program.options.variables if self._program.blocks else 0
        for state, place in depth.items():
            if place > limit:
                raise FilterError(
                    "TOO_MANY_VARIABLES",
                    f"{cell_of[state]} is variable {place} on a path through the tables, but the "
                    f"P4 program of the switches reads at most {limit} per event",
                    cell=cell_of[state],
                )
        tables: dict[tuple[int, str], list[TableEntry]] = {}
        for name in self._cell_fields:
            absent = {row[0]: row[4] for row in self._rows[name] if row[3] == "absent"}
            for state, low, high, kind, following in self._rows[name]:
                place = depth[state]
                for table, entry in self._cell_entries(
                    place, state, low, high, kind, following, absent
                ):
                    tables.setdefault((place, table), []).append(entry)
                if kind == "default":
                    moved = self._cell[name].function == "moved"
                    load = self._load(name, self._cell[name].field if moved else None)
                    entry = TableEntry(f"{_CELLS}.load_{place}", (_state(state),), *load)
                    tables.setdefault((place, "load"), []).append(entry)
        kinds = ("load", "exact", "range", "otherwise")
        return [
            entry
            for place in range(1, limit + 1)
            for kind in kinds
            for entry in tables.get((place, kind), ())
        ]

    def _cell_entries(
        self,
        place: int,
        state: int,
        low: int,
        high: int,
        kind: str,
        following: int,
        absent: Mapping[int, int],
    ) -> Iterator[tuple[str, TableEntry]]:
        action = f"{_CELLS}.set_state"
        if kind == "default":
            for known, after in ((1, following), (0, absent.get(state, following))):
                match = (_state(state), Match("known", "exact", canonical(known)))
                table = f"{_CELLS}.otherwise_{place}"
                yield "otherwise", TableEntry(table, match, action, _next(after))
        elif kind != "absent":
            table = "exact" if low == high else "range"
            other = b"" if low == high else canonical(high)
            match = (_state(state), Match("value", table, canonical(low), other))
            priority = 0 if low == high else 1
            yield (
                table,
                TableEntry(f"{_CELLS}.{table}_{place}", match, action, _next(following), priority),
            )

    def _load(self, name: str, field: str | None) -> tuple[str, tuple[tuple[str, bytes], ...]]:
        """Returns the action that loads a cell, and the value of a field to compare or to update it
        with, and its arguments."""
        actions = {operand.field: operand.action for operand in self._program.operands}
        action = "load" if field is None else actions.get(field)
        if action is None:
            raise FilterError(
                "NO_TABLE",
                f"the P4 program of the switches does not read {field}, so it cannot store "
                f"{name}: annotate the field with @query_field",
                field=field,
            )
        cell, (block, slot) = self._cell[name], self._places[name]
        values = {
            "block": block,
            "slot": slot,
            "function": FUNCTIONS.index(cell.function),
            "window": cell.length(self._program.clock_units),
            "tag": self._held.tag(cell),
        }
        return f"{_CELLS}.{action}", tuple((n, canonical(value)) for n, value in values.items())

    def _updates(self) -> list[TableEntry]:
        limit = self._program.options.updates if self._program.blocks else 0
        tables: list[list[TableEntry]] = [[] for _ in range(limit)]
        for state, outcome in self._outcomes:
            updates: Sequence[CellUpdate] = outcome.updates
            if len(updates) > limit:
                raise FilterError(
                    "TOO_MANY_UPDATES",
                    (
                        f"an event in state {state} updates {len(updates)} variables, but the P4 "
                        f"program of the switches updates at most {limit}: "
                    )
                    + ", ".join(update.cell for update in updates[: limit + 1]),
                    state=state,
                )
            for place, update in enumerate(updates):
                load = self._load(update.cell, update.field)
                table = f"{_CELLS}.update_{place + 1}"
                tables[place].append(TableEntry(table, (_state(state),), *load))
        return [entry for table in tables for entry in table]

    # Leaves.

    @cached_property
    def _outcomes(self) -> Sequence[tuple[int, Outcome]]:
        return sorted(self._compiled.outcomes.items())

    def _leaves(self) -> Iterator[TableEntry]:
        for state, outcome in self._outcomes:
            ports = 0
            for name in outcome.receivers:
                port = port_of(name, self._ports)
                self._sent.add(port)
                ports |= 1 << (port - 1)
            if ports:
                params = (("ports", canonical(ports)),)
                yield TableEntry(
                    f"{_DELIVERY}.leaf", (_state(state),), f"{_DELIVERY}.deliver", params
                )
            elif outcome.calls:
                # Else the default action would be taken too, which is for what nobody asks for.
                yield TableEntry(f"{_DELIVERY}.leaf", (_state(state),), f"{_DELIVERY}.drop", ())
        for state, group in self._vectors.items():
            self._sent.update((bit - 1) % MASK_BITS + 1 for bit in ports_in(group.terms))
            terms = (("terms", canonical(group.terms)),)
            yield TableEntry(
                f"{_DELIVERY}.leaf", (_state(state),), f"{_DELIVERY}.deliver_terms", terms
            )

    def _calls(self) -> list[TableEntry]:
        limit = self._program.options.calls if self._program.actions else 0
        actions = {action.name: action for action in self._program.actions}
        tables: list[list[TableEntry]] = [[] for _ in range(limit)]
        for state, outcome in self._outcomes:
            for call in outcome.calls:
                if call.name not in actions:
                    raise FilterError(
                        "UNKNOWN_ACTION",
                        f"the P4 program of the switches has no action {call.name!r}"
                        + (f"; its actions are {', '.join(sorted(actions))}" if actions else ""),
                        action=call.name,
                    )
            if len(outcome.calls) > limit:
                raise FilterError(
                    "TOO_MANY_CALLS",
                    f"an event in state {state} triggers {len(outcome.calls)} named actions, but "
                    f"the P4 program of the switches performs at most {limit}",
                    state=state,
                )
            for place, call in enumerate(outcome.calls):
                tables[place].append(
                    TableEntry(
                        f"{_CALL}.call_{place + 1}",
                        (_state(state),),
                        f"{_CALL}.{call.name}",
                        _arguments(call, actions[call.name]),
                    )
                )
        return [entry for table in tables for entry in table]


def _arguments(call: Call, action: NamedAction) -> tuple[tuple[str, bytes], ...]:
    if len(call.args) != len(action.widths):
        raise FilterError(
            "BAD_ACTION",
            f"action {call.name} takes {len(action.widths)} arguments, but the rule passes "
            f"{len(call.args)}",
            action=call.name,
        )
    values = zip(call.args, action.widths, strict=True)
    return tuple(
        (f"a{place}", canonical(argument_value(text, bits)))
        for place, (text, bits) in enumerate(values, 1)
    )


def _vector_rows(state: int, field: FieldVectors) -> Iterator[_Row]:
    """Yields rows of a state that stays; in place of the next one they have the terms left."""
    for low, high, terms in field.rows:
        yield state, low, high, "exact" if low == high else "range", terms
    yield state, 0, 0, "default", field.otherwise
    yield state, 0, 0, "absent", field.absent


def _state(state: int) -> Match:
    return Match("state", "exact", canonical(state))


def _next(state: int) -> tuple[tuple[str, bytes], ...]:
    return (("next", canonical(state)),)


def port_of(receiver: str, ports: Mapping[str, int]) -> int:
    """Returns the port that leads to a receiver, or that is one. Raises FilterError
    UNKNOWN_PORT."""
    port = ports.get(receiver)
    if port is None and receiver.isdecimal() and len(receiver) < 6:
        port = int(receiver)
    if port is None or not 1 <= port <= MASK_BITS:
        raise FilterError(
            "UNKNOWN_PORT",
            f"no port of the switch leads to {receiver!r}"
            if port is None
            else f"{receiver!r} is not a switch port: ports are 1 to {MASK_BITS}",
            receiver=receiver,
        )
    return port
