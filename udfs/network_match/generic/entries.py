"""Passes as entries of ``attribute_value.p4``.

An attribute that a row does not ask for is in none of its match fields, and one that no term of a
pass asks for has no entry there. So entries say the same however many attributes there are, and a
new one leaves all as they are (KUNDEL V).

An edit that changes the rows of one pass and nothing else writes them where they are, in an order
in which each event has its old or its new outcome. Any other gives new numbers to what it changes:
that is written beside the old, the entry of pass 0 moves all events over, and then the old goes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

from stackcast.udfs.filters.meaning.normal_form import STATE_MAXIMUM
from stackcast.udfs.filters.meaning.state import Cell
from stackcast.udfs.messages.attributes.registry import BITS
from stackcast.udfs.network.programs import EVENT, PASSES, STATES, VALUES
from stackcast.udfs.network_match.bit_vectors import BitVectors
from stackcast.udfs.network_match.cell_tags import HeldCells
from stackcast.udfs.network_match.generic.cells import CellTerms, ValueRow
from stackcast.udfs.network_match.generic.passes import Pass
from stackcast.udfs.network_match.generic.table import GenericRow
from stackcast.udfs.network_match.layout import FUNCTIONS
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.match import Match, canonical
from stackcast.udfs.switches.ports import NARROW_PORTS, port_mask

SEND = "ingress.subscriptions.send_to_ports"
REQUIRE = "ingress.subscriptions.require"
TAKE = "ingress.subscriptions.take"
ASK = "ingress.subscriptions.ask"
SEND_BY_STATE = "ingress.subscriptions.cells.send_to_ports"

CELLS = 1024
"""Registers of a switch, one of each kind a cell."""
_NO_OPERAND = (1 << 32) - 1

_ALL = (1 << BITS) - 1
_MOST = (1 << 32) - 1
"""Numbers of rows, vectors and passes are 1 to this; 0: none, of passes the first."""

Numbered = tuple[int, list[SwitchEntry]]
_NONE: Numbered = (0, [])


def event_entries(
    switch: str, passes: Sequence[Pass], held: Iterable[SwitchEntry], edit: int = 0
) -> list[SwitchEntry]:
    """Returns the entries of passes whose receivers are port numbers as text.

    held: entries that the switch should hold so far, of any table. What is as it was keeps its
    number there. Other numbers follow from what they stand for, so a switch that was away for some
    versions meets none that stands for something else. edit: as of ``HeldCells``.

    Raises NetworkError TOO_MANY_PORTS.
    """
    if not passes:
        return []
    held = list(held)
    numbers = _Numbers(held)
    vectors = [
        numbers.of("vectors", one.vectors, lambda n, found: _vector_entries(switch, n, found))
        if one.vectors
        else _NONE
        for one in passes
    ]
    rows = _rows(switch, passes, [number for number, _ in vectors], numbers)
    states = [
        numbers.of("states", one.cell.rows, lambda n, found: _state_entries(switch, n, found))
        if one.cell
        else _NONE
        for one in passes
    ]
    cells = _cells([one.cell.cell for one in passes if one.cell], HeldCells.of(held, edit))
    made = [entry for _, entries in (*rows, *vectors, *states) for entry in entries]
    following = 0
    for at in reversed(range(len(passes))):
        terms = 0 if (found := passes[at].vectors) is None else found.terms
        content: dict[str, int] = {
            "rows": rows[at][0],
            "vectors": vectors[at][0],
            "terms": terms,
            "subset": passes[at].subset,
            "next": following,
            "timed": int(at == 0 and bool(cells)),
        }
        if (cell := passes[at].cell) is not None:
            content |= _asked(cell, states[at][0], *cells[cell.cell])
        if at:
            following, entries = numbers.of(
                "pass", content, lambda n, taken: [_pass_entry(switch, n, taken)]
            )
            made += entries
        else:
            made.append(_pass_entry(switch, 0, content))
    return made


def _asked(cell: CellTerms, states: int, tag: int, slot: int) -> dict[str, int]:
    """Returns the further parameters of a pass that asks a cell."""
    return {
        "states": states,
        "tag": tag,
        "slot": slot,
        "function": FUNCTIONS.index(cell.cell.function),
        "window": cell.cell.window,
        "operand": _NO_OPERAND if cell.operand is None else cell.operand,
    }


def _cells(cells: Iterable[Cell], held: HeldCells) -> dict[Cell, tuple[int, int]]:
    """Returns tag and registers of each cell: what it had, or others that are free."""
    found: dict[Cell, tuple[int, int]] = {}
    taken = {params["slot"] for params in held.params.values()}
    for cell in sorted(cells, key=lambda cell: cell.name):
        slot = held.place(cell).get("slot")
        if slot is None:
            slot = cell.number % CELLS
            while slot in taken and len(taken) < CELLS:
                slot = (slot + 1) % CELLS
        taken.add(slot)
        found[cell] = held.tag(cell), slot
    return found


def _rows(
    switch: str, passes: Sequence[Pass], vectors: Sequence[int], numbers: _Numbers
) -> list[Numbered]:
    """Numbers the rows of each pass: as they were, if no more than one of them has changed."""
    chain = numbers.chain()
    before = [number for number, _ in chain] + [0] * (len(passes) - len(chain))
    there = [
        (number, _row_entries(switch, number, one.rows)) if number and one.rows else _NONE
        for number, one in zip(before, passes, strict=False)
    ]
    same = [numbers.holds("rows", *one) for one in there]
    alike = [bool(number) for number, _ in chain] == [bool(one.rows) for one in passes]
    if alike and vectors == [number for _, number in chain] and sum(same) + 1 >= len(same):
        return there
    return [
        there[at]
        if not one.rows or (there[at][0] and same[at])
        else numbers.of("rows", one.rows, lambda n, found: _row_entries(switch, n, found))
        for at, one in enumerate(passes)
    ]


class _Numbers:
    """The numbers of what a switch should hold so far, and of what it should hold next."""

    def __init__(self, held: Iterable[SwitchEntry]) -> None:
        found: dict[tuple[str, int], set[SwitchEntry]] = defaultdict(set)
        for entry in held:
            if entry.table in (EVENT, PASSES, STATES) or entry.table.startswith(VALUES):
                name, _, value = entry.match[0]
                found[name, int.from_bytes(value, "big")].add(entry)
        self._held = dict(found)
        self._taken: dict[tuple[str, int], object] = {}

    def holds(self, what: str, number: int, entries: Iterable[SwitchEntry]) -> bool:
        """Returns True if the number stands for just these entries; 0 for none."""
        return not number or self._held.get((what, number)) == set(entries)

    def chain(self) -> list[tuple[int, int]]:
        """Returns the numbers of rows and vectors, pass by pass."""
        found: list[tuple[int, int]] = []
        number, seen = 0, set[int]()
        while (entries := self._held.get(("pass", number))) and number not in seen:
            seen.add(number)
            (entry,) = entries
            values = {name: int.from_bytes(value, "big") for name, value in entry.params}
            found.append((values["rows"], values["vectors"]))
            number = values["next"]
            if not number:
                break
        return found

    def of(
        self, what: str, content: Any, made: Callable[[int, Any], list[SwitchEntry]]
    ) -> Numbered:
        """Numbers what is in ``content``: as it follows from it, or the next one that is free."""
        number = crc32(repr(content).encode()) % _MOST + 1
        while True:
            entries = made(number, content)
            key = what, number
            free = key not in self._held or self.holds(what, number, entries)
            if free and self._taken.setdefault(key, content) == content:
                return number, entries
            number = number % _MOST + 1


def _exact(name: str, value: int) -> tuple[str, str, bytes]:
    return name, "exact", canonical(value)


def _row_entries(switch: str, number: int, rows: Sequence[GenericRow]) -> list[SwitchEntry]:
    return [_row_entry(switch, number, row) for row in rows]


def _row_entry(switch: str, number: int, row: GenericRow) -> SwitchEntry:
    fields = [Match("bitmask", "ternary", canonical(row.bits), canonical(row.care))]
    for attribute, value, length in sorted(row.prefixes):
        mask = _ALL >> BITS - length << BITS - length
        fields.append(
            Match(f"value_{attribute}", "ternary", canonical(value & mask), canonical(mask))
        )
    # P4Runtime leaves a ternary match of no bits out.
    match = [(f.name, f.kind, f.joined()) for f in fields if f.other != b"\0"]
    ports = port_mask([int(port) for port in row.receivers], NARROW_PORTS)
    return SwitchEntry(
        switch,
        EVENT,
        (_exact("rows", number), *match),
        SEND,
        (("ports", canonical(ports)),),
        row.priority,
    )


def _vector_entries(switch: str, number: int, vectors: BitVectors) -> list[SwitchEntry]:
    return [
        SwitchEntry(
            switch,
            f"{VALUES}{int(name)}",
            (_exact("vectors", number), _exact("present", present), *value),
            REQUIRE,
            (("terms", canonical(terms)),),
            priority,
        )
        for name, found in sorted(vectors.fields.items())
        for present, value, terms, priority in (
            *(
                (1, (("value", "range", _range(low, high)),), terms, 2)
                for low, high, terms in found.rows
            ),
            (1, (), found.otherwise, 1),
            (0, (), found.absent, 1),
        )
    ]


def _range(low: int, high: int) -> bytes:
    return Match("value", "range", canonical(low), canonical(high)).joined()


def _state_entries(switch: str, number: int, rows: Sequence[ValueRow]) -> list[SwitchEntry]:
    made = []
    for low, high, receivers in rows:
        # P4Runtime leaves a range of all values out.
        everything = (low, high) == (0, STATE_MAXIMUM)
        values = () if everything else (("value", "range", _range(low, high)),)
        ports = (("ports", canonical(port_mask([int(port) for port in receivers], NARROW_PORTS))),)
        match = (_exact("states", number), *values)
        made.append(SwitchEntry(switch, STATES, match, SEND_BY_STATE, ports, 1))
    return made


def _pass_entry(switch: str, number: int, values: Mapping[str, int]) -> SwitchEntry:
    params = tuple((name, canonical(value)) for name, value in values.items())
    action = ASK if "tag" in values else TAKE
    return SwitchEntry(switch, PASSES, (_exact("pass", number),), action, params)
