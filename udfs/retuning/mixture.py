"""Trees of several strategies together: better than the best of them alone.

From the best strategy's trees on, those that are missed least go for candidates of the others that
promise most, as long as replays say that it pays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stackcast.udfs.retuning.comparison import Record, StrategyResult, Trees, Trial
from stackcast.udfs.trees.strategies.strategy import FEWEST_EDGES, Edges, TreeCapacity

NAME = "mixture"

#: Publications that a mixture is sought by at most, the heaviest; its replays are of all.
_MOST_PUBLICATIONS = 400
_ROUNDS = 8


@dataclass(frozen=True)
class ChosenTrees:
    """Holds the chosen ``trees`` with the strategy that each is of, and their replay of the record.

    name: of a strategy, or ``mixture``. unseen: as of a `StrategyResult`. complete: False if the
    search for a mixture was broken off.
    """

    name: str
    trees: Mapping[Edges, str]
    trial: Trial
    unseen: int
    complete: bool = True


def _go_on() -> None:
    """Never breaks off."""


def choose(
    record: Record,
    results: Sequence[StrategyResult],
    budget: Mapping[str, int],
    current: Sequence[Edges] = (),
    check: Callable[[], None] = _go_on,
) -> ChosenTrees:
    """Chooses the trees that should cost least: a strategy's, or a mixture.

    A mixture never costs more on the record than the best strategy does; it is chosen if it costs
    less on the publications that its trees were not chosen by, too. ``current``: trees in use,
    candidates as any others if they are of the network's usable links. ``check`` is called between
    replays: where it raises TimeoutError, the best strategy is taken as it is.

    At least one of the results has no error.
    """
    # Ties are settled by name, whatever order results come in.
    ordered = sorted(results, key=lambda result: result.name)
    known = [result for result in ordered if not result.error]
    by_name = _strategies(known, current)
    single = min(known, key=lambda result: (result.unseen, result.trial.cost))
    alone = ChosenTrees(
        single.name, dict.fromkeys(single.trees, single.name), single.trial, single.unseen
    )
    if len(record.publications) < 2:
        return alone
    try:
        mixed, unseen = _mixture(record, known, budget, current, single.unseen, check)
    except TimeoutError:
        return replace(alone, complete=False)
    if mixed is None:
        return alone
    trees, trial = mixed
    return ChosenTrees(NAME, {edges: by_name[edges] for edges in trees}, trial, unseen)


def _mixture(
    record: Record,
    known: Sequence[StrategyResult],
    budget: Mapping[str, int],
    current: Sequence[Edges],
    limit: int,
    check: Callable[[], None],
) -> tuple[tuple[Trees, Trial] | None, int]:
    """Returns a mixture with its replay, and its unseen cost, below ``limit``; None if there is
    none."""
    unseen = 0
    for number in (0, 1):
        train, test = record.part(number, 2), record.part(1 - number, 2)
        starts = [result.halves[number] for result in known]
        best = min(range(len(known)), key=lambda n: (known[n].seen[number], known[n].name))
        pools = [result.pools[number + 1] for result in known]
        check()
        pool = _merged([*starts, *pools, current])
        mixed, _ = mix(train, starts[best], pool, budget, check=check)
        unseen += test.replay(mixed).cost
    if unseen >= limit:
        return None, unseen
    start = min(known, key=lambda result: (result.trial.cost, result.name))
    pool = _merged([*(o.trees for o in known), *(o.pools[0] for o in known), current])
    return mix(record, start.trees, pool, budget, start.trial, check), unseen


def mix(
    record: Record,
    start: Sequence[Edges],
    pool: Sequence[Edges],
    budget: Mapping[str, int],
    trial: Trial | None = None,
    check: Callable[[], None] = _go_on,
) -> tuple[Trees, Trial]:
    """Exchanges trees of ``start`` for those of ``pool``, never for more cost on the record, and
    returns them with their replay. ``trial``: the replay of ``start``, made if not given.

    ``start`` fits the budget, and so does what comes back.
    """
    begun = record.replay(start) if trial is None else trial
    sample = record.heaviest(_MOST_PUBLICATIONS)
    replays = _Replays(sample, [*start, *pool])
    if sample is record:
        replays.know(start, begun)
    trees, now = tuple(start), replays.of(start)
    share = 1.0
    for _ in range(_ROUNDS):
        changed = _exchanged(replays, trees, now, pool, budget, share, check)
        if set(changed) == set(trees):
            if share <= 0.1:
                break
            share /= 3
            continue
        then = replays.of(changed)
        if then.cost < now.cost:
            trees, now = changed, then
        else:
            share /= 3
            if share < 0.02:
                break
    trees = replays.ordered(trees)
    if sample is not record:
        now = begun if trees == tuple(start) else record.replay(trees)
    return (trees, now) if now.cost < begun.cost else (tuple(start), begun)


class _Replays:
    """Holds replays of a sample of the record: each publication is encoded under each set of trees
    once, however often the search comes back to the set.

    ``trees``: all that may be in a set. They stand in this order in every replay, so what a set
    costs does not depend on how the search came to it. Only equal sets are sure to give a
    publication the same stack: a tree that is far from its way, or that no label names, still has
    its say in prices and ties (`stackcast.udfs.trees.kernels.refined`).
    """

    def __init__(self, sample: Record, trees: Iterable[Edges]) -> None:
        self.sample = sample
        self._place = {edges: at for at, edges in enumerate(dict.fromkeys(trees))}
        self._trials: dict[frozenset[Edges], Trial] = {}
        self._costs: dict[frozenset[Edges], dict[int, int]] = defaultdict(dict)

    def ordered(self, trees: Iterable[Edges]) -> Trees:
        return tuple(sorted(set(trees), key=self._place.__getitem__))

    def know(self, trees: Sequence[Edges], trial: Trial) -> None:
        """Takes over a replay of trees that stand in order."""
        self._trials[frozenset(trees)] = trial

    def of(self, trees: Iterable[Edges]) -> Trial:
        """Returns the replay of all publications."""
        every = frozenset(trees)
        found = self._trials.get(every)
        if found is None:
            found = self._trials[every] = self.sample.replay(self.ordered(every))
        return found

    def cost(self, trees: Iterable[Edges], only: Sequence[int]) -> int:
        """Returns the cost of some publications, by their number."""
        every = frozenset(trees)
        trial = self._trials.get(every)
        if trial is not None:
            return sum(trial.costs[at] for at in only)
        known = self._costs[every]
        new = [at for at in only if at not in known]
        if new:
            known.update(zip(new, self.sample.replay(self.ordered(every), new).costs, strict=True))
        return sum(known[at] for at in only)


def _exchanged(
    replays: _Replays,
    trees: Sequence[Edges],
    now: Trial,
    pool: Sequence[Edges],
    budget: Mapping[str, int],
    share: float,
    check: Callable[[], None],
) -> tuple[Edges, ...]:
    """Exchanges up to a ``share`` of the trees for others that promise more."""
    losses = _losses(replays, trees, now, check)
    gains = _gains(replays, trees, now, pool)
    capacity = TreeCapacity(replays.sample.network, budget)
    for edges in trees:
        capacity.reserve(edges)
    cost = {edges: len(capacity.switches(edges)) for edges in [*trees, *gains]}
    staying = sorted(trees, key=lambda e: (losses[e] / cost[e], sorted(e)))
    for edges in list(staying):
        if losses[edges] < 0:  # it makes stacks shorter, and ways longer
            staying.remove(edges)
            capacity.release(edges)
    coming = sorted(gains, key=lambda e: (-gains[e] / cost[e], sorted(e)))
    left = max(1, round(share * max(len(trees), 1)))
    added: list[Edges] = []
    for edges in coming:
        if left == 0:
            break
        if gains[edges] <= 0:
            break
        going = capacity.evictions(edges, staying)
        if going is None or sum(losses[other] for other in going) >= gains[edges]:
            continue
        for other in going:
            capacity.release(other)
            staying.remove(other)
        capacity.reserve(edges)
        added.append(edges)
        left -= 1
    kept = set(staying)
    return (*(edges for edges in trees if edges in kept), *added)


def _losses(
    replays: _Replays, trees: Sequence[Edges], now: Trial, check: Callable[[], None]
) -> dict[Edges, int]:
    """Returns what each tree's publications would cost more without it."""
    users: dict[Edges, list[int]] = defaultdict(list)
    for at, named in enumerate(now.named):
        for edges in named:
            users[edges].append(at)
    losses = {}
    for edges in trees:
        own = users.get(edges)
        if own is None:
            losses[edges] = 0
            continue
        check()
        without = replays.cost((other for other in trees if other != edges), own)
        losses[edges] = without - sum(now.costs[at] for at in own)
    return losses


def _gains(
    replays: _Replays, trees: Sequence[Edges], now: Trial, pool: Sequence[Edges]
) -> dict[Edges, float]:
    """Returns the cost that each tree of the pool promises to save, if all of them were there."""
    standing = set(trees)
    new = [edges for edges in pool if edges not in standing]
    gains: dict[Edges, float] = defaultdict(float)
    if not new:
        return {}
    then = replays.of([*trees, *new])
    for before, after, named in zip(now.costs, then.costs, then.named, strict=True):
        causes = [edges for edges in named if edges not in standing]
        for edges in causes:
            gains[edges] += (before - after) / len(causes)
    return {edges: gain for edges, gain in gains.items() if gain > 0}


def _merged(lists: Iterable[Sequence[Edges]]) -> list[Edges]:
    """Returns all different trees of two edges or more, in their first order."""
    return list(
        dict.fromkeys(edges for trees in lists for edges in trees if len(edges) >= FEWEST_EDGES)
    )


def _strategies(results: Sequence[StrategyResult], current: Sequence[Edges]) -> dict[Edges, str]:
    """Maps each tree to the first strategy that has it."""
    names: dict[Edges, str] = {}
    for result in results:
        for trees in (result.trees, result.pools[0]):
            for edges in trees:
                names.setdefault(edges, result.name)
    for edges in current:
        names.setdefault(edges, NAME)
    return names
