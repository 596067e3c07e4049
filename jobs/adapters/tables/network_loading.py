"""A whole network into the tables, in place of what they hold.

Readers of the tables never see a part of it: where more than one table changes, `hosts` is empty
from the first write to the last. Links to hosts lead nowhere then, so that what is there makes no
network, and who read the one before goes on with it. What broke off is mended by doing it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stackcast.jobs.adapters.tables.definitions import definition
from stackcast.jobs.adapters.tables.edits import change_tree_states
from stackcast.jobs.adapters.tables.tables import TREES, Tables
from stackcast.udfs.errors import TableError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.succession import KEYS, Succession, SwitchSettings, succession


def compare(tables: Tables, network: Network, choices: SwitchSettings) -> Succession:
    """Returns what the tables would become. Raises TableError ``MISSING``, NetworkError."""
    for name in (*KEYS, TREES):
        tables.version(name)
    with ThreadPoolExecutor() as pool:
        held = dict(zip((*KEYS, TREES), pool.map(tables.rows, (*KEYS, TREES)), strict=True))
    trees = held.pop(TREES)
    return succession(network, held, trees, choices)


def load(tables: Tables, plan: Succession, replace: bool = False) -> None:
    """Write what differs. A table that is as it should be gets no version.

    Raises TableError ``NETWORK_IN_USE`` if rows of a network would go or change, unless
    ``replace``.
    """
    if plan.destroys and not replace:
        said = "; ".join(f"{name}: {change}" for name, change in plan.changes.items() if change)
        raise TableError(
            "NETWORK_IN_USE",
            f"{tables.location} contains another network, which may be in use ({said}). To "
            "replace it with this network, add --replace; --dry-run shows what would change",
        )
    changed = [name for name, change in plan.changes.items() if change]
    if not changed:
        return
    hosts = plan.changes["hosts"]
    there = len(plan.rows["hosts"]) - hosts.added + hosts.removed
    covered = there > 0 and (len(changed) > 1 or bool(plan.retired))
    if covered:
        tables.overwrite("hosts", [])
    with ThreadPoolExecutor() as pool:
        writes = [
            pool.submit(_write, tables, name, plan.rows[name])
            for name in changed
            if name != "hosts"
        ]
        for write in writes:
            write.result()
    moves = {number: (state, "retired") for number, state in plan.retired.items()}
    change_tree_states(tables, moves)
    # Last: with it, the tables make a network again.
    if covered or hosts:
        _write(tables, "hosts", plan.rows["hosts"])


def _write(tables: Tables, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    columns = definition(name).columns.names
    tables.overwrite(name, [{column: row.get(column) for column in columns} for row in rows])
