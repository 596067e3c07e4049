"""From the trees that switches hold to the ones they should: steps that exceed no budget.

New trees are installed beside the old ones as far as budgets allow; old ones go once the new are in
use; trees that did not fit before follow. A step is worked out from the rows of ``virtual_trees``
alone, so whoever comes after a crash goes on where it was. Between steps the refresher moves trees
from ``installing`` to ``active`` and from ``retiring`` to ``retired``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.virtual_tree import State, VirtualTree, stored
from stackcast.udfs.trees.strategies.strategy import Edges, TreeCapacity

Wanted = Mapping[Edges, str]
"""The trees that should stand in the end, and the strategy of each, in the order of installing."""


@dataclass(frozen=True)
class TreeStep:
    """One commit to ``virtual_trees``.

    installed: new rows, ``installing``. moved: tree id → its state before and after. left: trees
    that are still to be installed or retired after this step. unfit: trees that do not fit even
    when all that should go are gone.
    """

    installed: tuple[VirtualTree, ...] = ()
    moved: Mapping[int, tuple[State, State]] = field(default_factory=dict)
    left: int = 0
    unfit: tuple[Edges, ...] = ()

    @property
    def writes(self) -> bool:
        """True if there is something to commit now; if not and trees are left, wait."""
        return bool(self.installed or self.moved)


def next_step(
    network: Network,
    trees: Iterable[VirtualTree],
    wanted: Wanted,
    budget: Mapping[str, int],
    free_ids: Iterable[int] = (),
) -> TreeStep:
    """Works out the next commit. ``trees``: all rows, retired ones too, as their ids stay taken but
    for ``free_ids``, which are given again when none above all rows is left.

    Every tree but a retired one takes a place in each of its switches. A row whose edges are
    wanted stays, under its id; one that was retiring is active again. A tree that lost a link of
    the network is retired at once, whether it is wanted or not: no switch can hold it.

    Raises NetworkError ``TREE_IDS_EXHAUSTED`` when no id is left, ``BAD_SIZE`` for a budget
    below 0.
    """
    # Of two rows of one tree, the one in use stays.
    rows = sorted(trees, key=lambda tree: (tree.state != "active", tree.id))
    moved: dict[int, tuple[State, State]] = {}
    capacity = TreeCapacity(network, budget)
    kept: dict[Edges, VirtualTree] = {}
    doomed: list[VirtualTree] = []
    for tree in stored(rows):
        # Broken ones too: they leave the switches when no batch names them any more.
        capacity.reserve(tree.edges)
        if lost_links(network, tree.edges):
            moved[tree.id] = tree.state, "retired"
        elif tree.state != "retiring":
            if tree.edges in wanted and tree.edges not in kept:
                kept[tree.edges] = tree
            else:
                doomed.append(tree)
    leaving = [tree for tree in rows if tree.state == "retiring" and tree.id not in moved]
    for tree in list(leaving):
        if tree.edges in wanted and tree.edges not in kept:
            kept[tree.edges] = tree
            moved[tree.id] = "retiring", "active"
            leaving.remove(tree)
    missing = [edges for edges in wanted if edges not in kept and not lost_links(network, edges)]
    taken = max((tree.id for tree in rows), default=0)
    ids = chain(range(taken + 1, network.labels.max_id + 1), sorted(free_ids))
    installed = _install(network, missing, wanted, capacity, ids)
    missing = [edges for edges in missing if edges not in installed]
    waits = bool(installed) or any(tree.state == "installing" for tree in kept.values())
    going = _going(doomed, leaving, capacity, waits)
    moved |= {tree.id: (tree.state, "retiring") for tree in going}
    stuck = not (waits or moved or doomed or leaving)
    return TreeStep(
        tuple(installed.values()),
        moved,
        0 if stuck else len(missing) + len(doomed) - len(going),
        tuple(missing) if stuck else (),
    )


def lost_links(network: Network, edges: Edges) -> list[tuple[str, str]]:
    """Returns edges that are no link of the network (any more), sorted. A link that is down is
    one."""
    return sorted(pair for pair in edges if not _is_link(network, pair))


def rules(network: Network, edges: Edges) -> int:
    """Counts the rules of a tree: one in each switch that it touches."""
    return len({name for pair in edges for name in pair if name in network.switches})


def under_way(network: Network, trees: Iterable[VirtualTree]) -> int:
    """Counts the rules of trees that switches are still to be given, or rid of."""
    return sum(
        rules(network, tree.edges) for tree in trees if tree.state in ("installing", "retiring")
    )


def _is_link(network: Network, pair: tuple[str, str]) -> bool:
    switch, neighbor = pair if pair[0] in network.switches else (pair[1], pair[0])
    try:
        network.link(switch, neighbor)
    except NetworkError:
        return False
    return True


def _install(
    network: Network,
    missing: Iterable[Edges],
    wanted: Wanted,
    capacity: TreeCapacity,
    ids: Iterator[int],
) -> dict[Edges, VirtualTree]:
    """Makes new rows for trees that fit beside all that are stored; reserves their places."""
    installed: dict[Edges, VirtualTree] = {}
    for edges in missing:
        if not capacity.fits(edges):
            continue
        number = next(ids, None)
        if number is None:
            advice = "" if network.labels.bits == 32 else ", or use 32-bit labels"
            raise NetworkError(
                "TREE_IDS_EXHAUSTED",
                f"all ids of virtual trees up to {network.labels.max_id} are in use, and the ids "
                f"of retired trees are not free yet: wait until they are{advice}",
            )
        capacity.reserve(edges)
        installed[edges] = VirtualTree(number, edges, wanted[edges], "installing")
    return installed


def _going(
    doomed: Iterable[VirtualTree],
    leaving: Iterable[VirtualTree],
    capacity: TreeCapacity,
    waits: bool,
) -> list[VirtualTree]:
    """Returns trees that retire now: while new trees are not in use yet, only those that nobody
    names either, and those that a switch holds beyond its budget."""
    for tree in leaving:
        capacity.release(tree.edges)
    going = []
    for tree in doomed:
        crowded = any(capacity.left[name] < 0 for name in capacity.switches(tree.edges))
        if crowded or not waits or tree.state == "installing":
            capacity.release(tree.edges)
            going.append(tree)
    return going
