"""How many trees each switch has room for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from udfs.errors import SwitchError
from udfs.network.network import Network
from udfs.switches.entry import GROUPS
from udfs.switches.stack_entries import label_table, positions_of, switch_entries


@dataclass(frozen=True)
class Program:
    """What a switch runs. sizes: entries that each table of it can hold. max_rules: entries of all
    tables together; None: not said."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    max_rules: int | None = None


def budgets(network: Network, programs: Mapping[str, Program], most: int) -> dict[str, int]:
    """Trees that each switch may hold: at most ``most``, and what its program leaves room for.

    A tree takes an entry in each of the tables that a pass looks labels up in. A switch whose
    program knows no labels, or that is not among ``programs``, holds none.
    """
    positions = {}
    for name, program in programs.items():
        try:
            positions[name] = positions_of(program.sizes)
        except SwitchError:
            positions[name] = 0
    found = dict.fromkeys(network.switches, 0)
    for number in sorted(set(positions.values()) - {0}):
        used: dict[str, Counter[str]] = defaultdict(Counter)
        for entry in switch_entries(network, (), number):
            used[entry.switch][entry.table] += 1
        for name in network.switches:
            if positions.get(name) == number:
                found[name] = max(0, min(most, _room(programs[name], used[name], number)))
    return found


def _room(program: Program, used: Counter[str], positions: int) -> int:
    left = [
        program.sizes[table] - used[table]
        for table in map(label_table, range(1, positions + 1))
        if program.sizes.get(table, 0) > 0
    ]
    if program.max_rules is not None:
        rules = sum(number for table, number in used.items() if table != GROUPS)
        left.append((program.max_rules - rules) // positions)
    return min(left, default=1 << 30)
