"""The tables of the generated P4 program, run from their entries as P4 says: for tests.

Knows the program's structure (stages, kinds of tables, registers) and the entries' bytes, and
nothing of how they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from stackcast.udfs.filters.compiler.compile import compile_texts, table_of_texts
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.bit_vectors import bit_vectors, merged
from stackcast.udfs.network_match.cell_tags import HeldCells
from stackcast.udfs.network_match.conjunctions import KeySets
from stackcast.udfs.network_match.entries import port_of, program_entries
from stackcast.udfs.network_match.groups import Groups
from stackcast.udfs.network_match.layout import (
    FUNCTIONS,
    PREFIX,
    ProgramLayout,
    ProgramOptions,
    Stage,
    key_table,
    program_layout,
    take,
)
from stackcast.udfs.network_match.port_terms import PortTerm, port_terms
from stackcast.udfs.network_match.values import ProgramEntries, TableEntry
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.match import Match


def by_table(held: ProgramEntries) -> dict[str, list[TableEntry]]:
    """Entries by table."""
    found: dict[str, list[TableEntry]] = {}
    for entry in held.entries:
        found.setdefault(entry.table, []).append(entry)
    return found


def grouped(
    texts: Sequence[str],
    specification: Specification,
    options: ProgramOptions | None = None,
    ports: Mapping[str, int] = MappingProxyType({}),
    *,
    apart: Sequence[str] = (),
    keyed: Sequence[str] = (),
) -> Groups:
    """Rules in a diagram, those ``apart`` as bit vectors, and those ``keyed`` as keys if they can
    be some."""
    program = program_layout(specification, options)
    passes = program.options.passes
    keys, rest = KeySets(_terms(keyed, specification, ports), program).placed(passes)
    terms = merged([*_terms(apart, specification, ports), *rest])
    vectors, refused = bit_vectors(terms, passes, program)
    assert not refused
    return Groups(compile_texts(texts, specification), vectors, keys)


def entries_of(
    texts: Sequence[str],
    specification: Specification,
    options: ProgramOptions | None = None,
    ports: Mapping[str, int] = MappingProxyType({}),
    held: HeldCells | None = None,
    **others: Sequence[str],
) -> ProgramEntries:
    """Entries of rules that are ``grouped`` like that."""
    found = grouped(texts, specification, options, ports, **others)
    return program_entries(
        found.diagram,
        specification,
        ports,
        options=options,
        vectors=found.vectors,
        conjunctions=found.conjunctions,
        held=held or HeldCells(),
    )


def _terms(
    texts: Sequence[str], specification: Specification, ports: Mapping[str, int]
) -> list[PortTerm]:
    read = read_table(texts, specification)
    assert not read.errors
    table = table_of_texts(texts, read, specification)
    return port_terms(table, lambda receiver: port_of(receiver, ports))


def by_brute_force(
    texts: Sequence[str],
    specification: Specification,
    ports: Mapping[str, int] = MappingProxyType({}),
) -> Callable[[Mapping[str, int]], tuple[int, ...]]:
    """The ports of an event, by each of the rules alone."""
    read = [parse_rule(text, specification) for text in texts]

    def of_event(event: Mapping[str, int]) -> tuple[int, ...]:
        sent = {name for rule in read if matches(rule.condition, event) for name in rule.receivers}
        return tuple(sorted({port_of(name, ports) for name in sent}))

    return of_event


def read_back(entries: Iterable[SwitchEntry]) -> ProgramEntries:
    """What a switch holds, as entries of the program."""
    rows = [
        TableEntry(
            entry.table,
            tuple(Match.parted(*field) for field in entry.match),
            entry.action,
            entry.params,
            entry.priority,
        )
        for entry in entries
    ]
    return ProgramEntries(tuple(rows))


class Switch:
    """One switch with its entries and registers."""

    def __init__(self, program: ProgramLayout, held: ProgramEntries) -> None:
        self.program = program
        self.rows: dict[tuple[str, int], list[TableEntry]] = {}
        for entry in held.entries:
            first = entry.match[0]
            number = _number(first.value) if first.name == "state" else -1
            self.rows.setdefault((entry.table, number), []).append(entry)
        self.registers = {
            (block.number, slot): (0, 0, 0, 0)
            for block in program.blocks
            for slot in range(block.slots)
        }
        keys = [entry.key for entry in held.entries]
        assert len(keys) == len(set(keys))

    def event(self, fields: Mapping[str, int], message_type: int = 0, time: int = 0):
        """Ports and calls of one event; ``fields`` by ``Stage.field``, those absent left out."""
        (following,) = self.rows[f"{PREFIX}.start", -1]
        ports: set[int] = set()
        calls: set[tuple[str | int, ...]] = set()
        self.passes = 0
        while following is not None:
            self.passes += 1
            root = state = _params(following)["next"]
            self.terms = (1 << 64 * self.program.options.words) - 1
            values = {
                stage: message_type if not stage.header else fields.get(stage.field)
                for stage in self.program.stages
            }
            for number in range(1, self.program.options.conjunctions + 1):
                ports |= self._keys(number, root, values)
            for stage, value in values.items():
                state = self._stage(stage, state, value)
            if self.program.blocks:
                state = self._read(state, fields, time)
                self._update(state, fields, time)
            leaf = self._hit(f"{PREFIX}.delivery.leaf", state)
            if leaf is not None:
                params = _params(leaf)
                mask = params.get("ports", 0) | self.terms & params.get("terms", 0)
                ports |= _ports(mask)
            for place in range(1, self.program.options.calls + 1):
                row = self._hit(f"{PREFIX}.call.call_{place}", state)
                if row is not None:
                    calls.add((row.action.split(".")[-1], *_params(row).values()))
            following = self._hit(f"{PREFIX}.next", root)
        return tuple(sorted(ports)), calls

    def _keys(self, number: int, root: int, values: Mapping[Stage, int | None]) -> set[int]:
        """Ports of the key that a table of keys holds of the event's values, if any."""
        keys = dict.fromkeys((f"value_{n + 1}" for n in range(self.program.options.key_fields)), 0)
        for place, name in enumerate(keys, 1):
            row = self._hit(key_table(number, f"field_{place}"), root)
            if row is None:
                if place == 1:
                    return set()
                continue
            (stage,) = (s for s in values if row.action == key_table(number, take(s, place)))
            value = values[stage]
            if value is None:
                return set()
            keys[name] = value
        row = self._hit(key_table(number, "keys"), root, **keys)
        return set() if row is None else _ports(_params(row)["ports"])

    def _then(self, row: TableEntry, state: int) -> int:
        params = _params(row)
        self.terms &= params.get("terms", self.terms)
        return params.get("next", state)

    def _stage(self, stage: Stage, state: int, value: int | None) -> int:
        if value is not None:
            assert not value >> stage.bits
            if stage.code_bits:
                row = self._hit(stage.table("map"), -1, value=value)
                value = 0 if row is None else _params(row)["next"]
            for kind in stage.kinds:
                row = self._hit(stage.table(kind), state, bits=stage.key_bits, value=value)
                if row is not None:
                    return self._then(row, state)
        more = {"present": int(value is not None)} if stage.optional else {}
        row = self._hit(stage.table("otherwise"), state, **more)
        return state if row is None else self._then(row, state)

    def _read(self, state: int, fields: Mapping[str, int], time: int) -> int:
        cells = f"{PREFIX}.cells"
        for place in range(1, self.program.options.variables + 1):
            load = self._hit(f"{cells}.load_{place}", state)
            if load is None:
                continue
            where = _params(load)
            operand = self._operand(load, fields)
            _, count, value = self._held(where, operand or 0, time)
            function, known = FUNCTIONS[where["function"]], 1
            if function == "moved":
                value = int(not count)
            elif not count:
                value, known = 0, int(function in ("count", "sum"))
            elif function == "count":
                value = count
            elif function == "avg":
                value = divide(value, count)
            row = None
            if known:
                for kind in ("exact", "range"):
                    row = row or self._hit(f"{cells}.{kind}_{place}", state, value=value)
            row = row or self._hit(f"{cells}.otherwise_{place}", state, known=known)
            state = state if row is None else _params(row)["next"]
        return state

    def _update(self, state: int, fields: Mapping[str, int], time: int) -> None:
        for place in range(1, self.program.options.updates + 1):
            row = self._hit(f"{PREFIX}.cells.update_{place}", state)
            if row is None:
                continue
            where, operand = _params(row), self._operand(row, fields)
            if operand is None:
                continue
            start, count, value = self._held(where, operand, time)
            function = FUNCTIONS[where["function"]]
            if not count:
                start, count, value = time, 1, operand
            elif function != "moved":
                count = min(count + 1, (1 << 32) - 1)
                if function in ("sum", "avg"):
                    value = min(value + operand, (1 << 64) - 1)
                elif function == "min":
                    value = min(value, operand)
                elif function == "max":
                    value = max(value, operand)
            assert not start >> self.program.start_bits
            self.registers[where["block"], where["slot"]] = where["tag"], start, count, value

    def _operand(self, row: TableEntry, fields: Mapping[str, int]) -> int | None:
        """The value that an action loads beside a cell, None if the event lacks it."""
        operands = {operand.action: operand.field for operand in self.program.operands}
        action = row.action.split(".")[-1]
        return 0 if action == "load" else fields.get(operands[action])

    def _held(self, where: Mapping[str, int], operand: int, time: int) -> tuple[int, int, int]:
        """A cell: empty if time, around the clock, or value are a window or more away, or the
        registers are another's."""
        owner, start, count, value = self.registers[where["block"], where["slot"]]
        mask = (1 << self.program.start_bits) - 1
        away = min((time - start) & mask, (start - time) & mask)
        if FUNCTIONS[where["function"]] == "moved":
            away = abs(operand - value)
        over = away >= where["window"] or owner != where["tag"]
        return start, 0 if over else count, value

    def _hit(self, table: str, state: int, bits: int = 64, **keys: int) -> TableEntry | None:
        """The entry that a table finds: by longest prefix, or largest priority."""
        found = []
        for entry in self.rows.get((table, state), ()):
            matches = [m for m in entry.match if m.name != "state"]
            assert {m.name for m in matches} == set(keys)
            if all(_holds(m, keys[m.name], bits) for m in matches):
                rank = entry.priority, max([m.prefix_length for m in matches], default=0)
                found.append((rank, entry))
            needs = any(m.kind in ("range", "ternary") for m in matches)
            assert (entry.priority > 0) == needs
        found.sort(key=lambda pair: pair[0])
        assert len({rank for rank, _ in found}) == len(found), "a target may choose either"
        return found[-1][1] if found else None


def divide(value: int, count: int) -> int:
    """Restoring division, step by step as the program has it."""
    divisor, work, mask = count << 64, value, (1 << 128) - 1
    for _ in range(64):
        work = work << 1 & mask
        if work >= divisor:
            work = work - (divisor - 1)
    return work & ((1 << 64) - 1)


def _holds(match: Match, value: int, bits: int) -> bool:
    own = _number(match.value)
    if match.kind == "exact":
        return own == value
    if match.kind == "range":
        return own <= value <= _number(match.other)
    assert match.kind == "lpm" and 0 < match.prefix_length <= bits
    shift = bits - match.prefix_length
    assert own >> shift << shift == own
    return own >> shift == value >> shift


def _ports(mask: int) -> set[int]:
    return {bit % 64 + 1 for bit in range(mask.bit_length()) if mask >> bit & 1}


def _params(entry: TableEntry) -> dict[str, int]:
    return {name: _number(value) for name, value in entry.params}


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")
