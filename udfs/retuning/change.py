"""Planned changes of the trees in use: only those that pay, and no more than is allowed.

A rule is one tree in one switch; to install or to remove it is one change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stackcast.udfs.network.network import Network
from stackcast.udfs.retuning.comparison import Trial
from stackcast.udfs.retuning.steps import Wanted, rules
from stackcast.udfs.trees.strategies.strategy import Edges, TreeCapacity

Replay = Callable[[Sequence[Edges]], Trial]

MIN_SAVING = 0.01
#: Parts of a change that are tried at most.
_TRIES = 12


@dataclass(frozen=True)
class TreeChange:
    """Holds the trees that should stand (``wanted``), and the cost and the gain of the change.

    rules: changed, as installed or removed; ``forced`` of them as switches hold more than their
    budget. before, after: cost of the publications replayed, with the trees as they
    stand and as wanted; left: with those that stand but for what is forced out. added and removed
    are in the order of their worth.
    """

    wanted: Wanted
    added: tuple[Edges, ...]
    removed: tuple[Edges, ...]
    rules: int
    forced: int
    before: int
    left: int
    after: int

    @property
    def saving(self) -> float:
        """Share of the cost that the change saves; below 0 where limits cost more than that."""
        return 1 - self.after / self.before if self.before else 0.0

    def beside(self, network: Network, base: Wanted, missing: Wanted) -> TreeChange:
        """Returns this change beside trees that stand in any case, ``missing`` ones of which are to
        be installed, before all others."""
        return replace(
            self,
            wanted={**base, **self.wanted},
            added=(*missing, *self.added),
            rules=self.rules + sum(rules(network, edges) for edges in missing),
        )


@dataclass(frozen=True)
class _Move:
    """One tree that comes, with those that make way for it."""

    added: Edges
    removed: tuple[Edges, ...]
    rules: int


def plan_change(
    network: Network,
    standing: Wanted,
    target: Wanted,
    budget: Mapping[str, int],
    replay: Replay,
    max_changed_rules: int | None = None,
    min_saving: float = MIN_SAVING,
) -> TreeChange:
    """Plans the change from the trees ``standing`` towards those of ``target`` that pays.

    It saves cost on the publications that ``replay`` replays, or is none: trees go only for
    others that need their capacity, or where a switch holds more than its ``budget``; those of most
    worth a rule come first; at most ``max_changed_rules`` change (None: any number), but for forced
    ones. A change saves more than ``min_saving`` of the cost, and leaves away the last moves
    that would save no more than that together. ``target`` fits the budget.
    """
    stay, forced = _within(network, standing, target, budget, replay)
    spent = sum(rules(network, edges) for edges in forced)
    now = replay(list(stay))
    before = replay(list(standing)).cost if forced else now.cost
    cap = None if max_changed_rules is None else max(0, max_changed_rules - spent)
    moves = _moves(network, stay, target, budget, now, replay(list(target)), cap)
    best, after = _worthwhile(stay, moves, now, replay, min_saving)
    added = tuple(move.added for move in best)
    removed = (*forced, *(edges for move in best for edges in move.removed))
    gone = frozenset(removed)
    wanted = {edges: name for edges, name in standing.items() if edges not in gone}
    wanted |= {edges: target[edges] for edges in added}
    changed = spent + sum(move.rules for move in best)
    return TreeChange(wanted, added, removed, changed, spent, before, now.cost, after)


def _within(
    network: Network,
    standing: Wanted,
    target: Wanted,
    budget: Mapping[str, int],
    replay: Replay,
) -> tuple[list[Edges], list[Edges]]:
    """Returns the trees that may stay, and those that must go as switches hold too many."""
    capacity = TreeCapacity(network, budget)
    for edges in standing:
        capacity.reserve(edges)
    if all(left >= 0 for left in capacity.left.values()):
        return list(standing), []
    trial = replay(list(standing))
    ranked = sorted(standing, key=lambda e: (e in target, trial.worth(e), sorted(e)))
    forced = []
    for edges in ranked:
        if any(capacity.left[name] < 0 for name in capacity.switches(edges)):
            capacity.release(edges)
            forced.append(edges)
    # A tree that went early may fit by now, as bigger ones went after it.
    for edges in list(reversed(forced)):
        if capacity.fits(edges):
            capacity.reserve(edges)
            forced.remove(edges)
    return [edges for edges in standing if edges not in set(forced)], forced


def _moves(
    network: Network,
    stay: Sequence[Edges],
    target: Wanted,
    budget: Mapping[str, int],
    now: Trial,
    then: Trial,
    cap: int | None,
) -> list[_Move]:
    """Returns trees of the target that come, most worth a rule first, as many as the cap lets."""
    capacity = TreeCapacity(network, budget)
    for edges in stay:
        capacity.reserve(edges)
    known = frozenset(stay)
    new = [edges for edges in target if edges not in known]
    cost = {edges: rules(network, edges) for edges in [*new, *stay]}
    order = {edges: number for number, edges in enumerate(target)}
    new.sort(key=lambda e: (-then.worth(e) / cost[e], order[e]))
    outgoing = sorted(
        (edges for edges in stay if edges not in target),
        key=lambda e: (now.worth(e), cost[e], sorted(e)),
    )
    moves: list[_Move] = []
    spent = 0
    for edges in new:
        going = capacity.evictions(edges, outgoing)
        if going is None:
            continue
        price = cost[edges] + sum(cost[other] for other in going)
        if cap is not None and spent + price > cap:
            continue
        for other in going:
            capacity.release(other)
            outgoing.remove(other)
        capacity.reserve(edges)
        spent += price
        moves.append(_Move(edges, tuple(going), price))
    return moves


def _worthwhile(
    stay: Sequence[Edges], moves: Sequence[_Move], now: Trial, replay: Replay, min_saving: float
) -> tuple[Sequence[_Move], int]:
    """Returns the first moves, as few as save about as much as more of them, and the cost then."""
    count = len(moves)
    lengths = sorted({round(count * n / _TRIES) for n in range(1, _TRIES + 1)} - {0})
    tried = [(0, now.cost)]
    for length in lengths:
        gone = {edges for move in moves[:length] for edges in move.removed}
        trees = [edges for edges in stay if edges not in gone]
        trees += [move.added for move in moves[:length]]
        tried.append((length, replay(trees).cost))
    least = min_saving * now.cost
    fewest = min(size for _, size in tried)
    if now.cost - fewest <= least:
        return [], now.cost
    enough = min(fewest + least, now.cost - least)
    length, size = next((n, size) for n, size in tried if size <= enough and size < now.cost)
    return moves[:length], size
