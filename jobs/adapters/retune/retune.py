"""Retuning of one deployment: what is on record, what trees would serve it best, and the change.

Everything is worked out from tables, so a run that was cut off is gone on with by running again.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import SQL_ERRORS, gone_for_good, one_line
from jobs.adapters.app.lifecycle import StopAsked
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning import formats
from jobs.adapters.retune.record import RecordedPublications, read_record
from jobs.adapters.retune.trials import compare
from jobs.adapters.switches.program import P4Program
from jobs.adapters.tables.network_tables import NetworkTables
from jobs.adapters.tables.network_versions import NetworkVersions
from jobs.adapters.tables.tables import TREES, Tables
from udfs.errors import SettingsError, StackcastError, TableError
from udfs.filters.advertisements import check_advertisements, select_advertisements
from udfs.filters.subscriptions import Subscription
from udfs.network.labels import NARROW, LabelFormat
from udfs.network.network import Network
from udfs.network.publishers import sending, several
from udfs.network.rows import network_from_rows, tree_from_row, tree_to_row
from udfs.network.virtual_tree import VirtualTree
from udfs.retuning.change import MIN_SAVING, TreeChange, plan_change
from udfs.retuning.comparison import Objective, Record, StrategyResult, Trial
from udfs.retuning.encodings import EncodingCosts, encoding_costs, least
from udfs.retuning.mixture import ChosenTrees, choose
from udfs.retuning.relations import clients_of
from udfs.retuning.steps import TreeStep, Wanted, lost_links, next_step, rules, under_way
from udfs.stacks.forwarding import network_tables
from udfs.stop_request import StopRequest
from udfs.switches.capacity import Limits, tree_budgets
from udfs.switches.rollout import free_ids
from udfs.trees.publications import Clients, Statistics, by_entry
from udfs.trees.publisher_trees import host_trees
from udfs.trees.strategies.registry import strategies_for
from udfs.trees.strategies.strategy import Edges, Situation, TreeCapacity, numbered

log = logging.getLogger(__name__)

#: Times that a commit is tried again after somebody else wrote the table.
_TRIES = 5


@dataclass(frozen=True)
class RetuneOptions:
    """Options of a run. objective: the cost to save. rules: trees a switch at most.
    max_changed_rules: None for any number. most: publications that are replayed. strategies: names;
    empty for all. seconds: that a strategy may take, and the search for a mixture. quarantine: that
    the id of a retired tree waits before another may have it."""

    rules: int = 40
    max_changed_rules: int | None = None
    min_saving: float = MIN_SAVING
    window: dt.timedelta | None = None
    as_of: int | None = None
    most: int = 5_000
    strategies: tuple[str, ...] = ()
    seed: int = 0
    seconds: float = 600.0
    quarantine: dt.timedelta = dt.timedelta(days=1)
    objective: Objective = "bytes"

    def names(self, labels: LabelFormat = NARROW) -> list[str]:
        """Strategies to compare, for an encoding: none where its stacks name no trees. Raises
        SettingsError BAD_VALUE for one that is not known."""
        known = strategies_for(labels)
        for name in self.strategies:
            if name not in known:
                raise SettingsError(
                    "BAD_VALUE",
                    f"there is no strategy {name!r} for encoding {labels.encoding}: there are "
                    f"{', '.join(known) or 'none, as its stacks name no trees'}",
                )
        return list(dict.fromkeys(self.strategies)) or list(known)


@dataclass(frozen=True)
class RetunePlan:
    """Result of a run. trees: all rows of `virtual_trees`, as read. encodings: what the heaviest
    publications take in each, the network's with the trees after the change first."""

    network: Network
    options: RetuneOptions
    budget: Mapping[str, int]
    trees: Sequence[VirtualTree]
    recorded: RecordedPublications
    record: Record
    outcomes: Sequence[StrategyResult]
    choice: ChosenTrees
    change: TreeChange
    encodings: Sequence[EncodingCosts]


class Retuner:
    """Plans by `plan`, then writes by `step` until nothing is left."""

    def __init__(
        self, spark: SparkSession, tables: Tables, settings: Settings, options: RetuneOptions
    ) -> None:
        self._spark, self._tables, self._settings = spark, tables, settings
        self._options = options
        self._names = options.names(settings.labels)
        self._limits: Mapping[str, Limits] = {}

    def plan(self, stopping: StopRequest | None = None) -> RetunePlan | None:
        """Returns what to change, and why; None where nothing is on record that the network can
        carry.

        Raises NetworkError, TableError, SwitchError as the tables and programs have it; StopAsked
        soon after a request to stop.
        """
        stopping = stopping or StopRequest()
        options = self._options
        recorded = read_record(self._tables, options.most, options.window, options.as_of)
        network, budget, trees = self._read()
        named = self._settings.publisher
        publishers = sending(network, named) if several(named) else ()
        publications = by_entry(recorded.publications, publishers)
        base = base_trees(network)
        free = _left_beside(base, network, budget)
        record = Record(network, publications, options.objective, self._settings.max_labels, base)
        self._tell(recorded, record)
        if not record.publications:
            return None
        situation = Situation(
            network, self._clients(network, record), Statistics(record.publications), options.seed
        )
        stored = in_use(network, trees)
        standing = {edges: name for edges, name in stored.items() if edges not in base}
        now = record.replay(list(standing))
        log.info("%-16s %s", "as they are", measured(now))
        outcomes = self._compared(situation, free, record, stopping)
        usable = [edges for edges in standing if _all_up(network, edges)]
        choice = self._chosen(record, outcomes, free, usable, now, stopping)

        def replay(trees: Sequence[Edges]) -> Trial:
            _check(stopping)
            return record.replay(trees)

        missing = {edges: name for edges, name in base.items() if edges not in stored}
        change = plan_change(
            network,
            standing,
            choice.trees,
            free,
            replay,
            self._cap(network, trees, missing),
            options.min_saving,
        ).beside(network, base, missing)
        encodings = self._encodings(network, list(change.wanted), record)
        return RetunePlan(
            network,
            options,
            budget,
            trees,
            recorded,
            record,
            outcomes,
            choice,
            change,
            encodings,
        )

    def _compared(
        self, situation: Situation, free: Mapping[str, int], record: Record, stopping: StopRequest
    ) -> list[StrategyResult]:
        """Compares the strategies by what is on record. Raises SettingsError ``BAD_VALUE`` where
        none of them can be used, StopAsked."""
        outcomes: list[StrategyResult] = []
        for outcome in compare(
            self._spark, self._names, situation, free, record, self._options.seconds, stopping
        ):
            outcomes.append(outcome)
            if outcome.error:
                log.warning("%-16s cannot be used here: %s", outcome.name, outcome.error)
                continue
            log.info(
                "%-16s %s, %3d trees, %.1f s",
                outcome.name,
                measured(outcome.trial),
                len(outcome.trees),
                outcome.seconds,
            )
        _check(stopping)
        # Whichever came first has no effect on what is chosen.
        outcomes.sort(key=lambda outcome: self._names.index(outcome.name))
        if self._names and all(outcome.error for outcome in outcomes):
            raise SettingsError(
                "BAD_VALUE",
                f"none of the strategies {', '.join(self._names)} has an outcome, the log says why "
                "of each: ask for others with --strategies, or give them more time",
            )
        return outcomes

    def _chosen(
        self,
        record: Record,
        outcomes: Sequence[StrategyResult],
        free: Mapping[str, int],
        usable: Sequence[Edges],
        now: Trial,
        stopping: StopRequest,
    ) -> ChosenTrees:
        """Chooses trees: a strategy's, or a mixture. now: what the trees that stand take, which is
        what it stays with where stacks name no trees. Raises StopAsked."""
        seconds = self._options.seconds
        if self._names:
            choice = choose(record, outcomes, free, usable, _until(seconds, stopping))
        else:
            choice = ChosenTrees("no trees", {}, now, now.cost)
        if not choice.complete:
            log.warning(
                "the search for a mixture took longer than %g s (--strategy-seconds): the best "
                "strategy is taken as it is",
                seconds,
            )
        log.info(
            "%-16s %s, %3d trees",
            f"chosen: {choice.name}" if choice.name != "mixture" else "chosen: a mixture",
            measured(choice.trial),
            len(choice.trees),
        )
        return choice

    def _encodings(
        self, network: Network, trees: Sequence[Edges], record: Record
    ) -> list[EncodingCosts]:
        """Compares encodings by what is on record, and says which one is the best."""
        # The labels of another encoding go in the place of those that all switches have by now.
        free = tree_budgets(network, self._limits, 1 << 30)
        room = {
            name: free[name] + sum(1 for _ in network.labels.rows(held))
            for name, held in network_tables(network, ()).items()
        }
        costs = encoding_costs(network, numbered(trees, ""), record.publications, room)
        best, now = least(costs), costs[0]
        if best is not now:
            log.info(
                "encoding %s, in labels of %d bits, would take %s bytes on links for what %s takes "
                "%s, with %d rows of labels in a switch: spark.stackcast.encoding sets it",
                best.encoding,
                best.bits,
                f"{best.bytes:,}",
                now.encoding,
                f"{now.bytes:,}",
                best.rows,
            )
        return costs

    def _cap(
        self, network: Network, trees: Sequence[VirtualTree], missing: Iterable[Edges]
    ) -> int | None:
        """Rules that may change by now: what an earlier run has under way counts, and so do the
        trees that must come."""
        most = self._options.max_changed_rules
        if most is None:
            return None
        most = max(0, most - sum(rules(network, edges) for edges in missing))
        busy = under_way(network, trees)
        if busy:
            log.info(
                "%d rules of an earlier run are still under way: of the %d that may change, %d are "
                "left",
                busy,
                most,
                max(0, most - busy),
            )
        return max(0, most - busy)

    def keep(self) -> Wanted:
        """Returns the change where nothing is on record: all stays but trees that lost a link or
        their room, and those come that must stand."""
        network, budget, trees = self._read()
        base = base_trees(network)
        free = _left_beside(base, network, budget)
        standing = {e: name for e, name in in_use(network, trees).items() if e not in base}
        nothing = Record(network, ())
        return {**base, **plan_change(network, standing, {}, free, nothing.replay).wanted}

    def look(self, wanted: Wanted) -> TreeStep:
        """Returns what is to be written next, by the tables as they are now."""
        version = self._tables.version(TREES)
        network, budget, trees = self._read()
        free = self._free_ids(network, trees, wanted, version)
        return next_step(network, trees, wanted, budget, free)

    def step(self, wanted: Wanted, may_write: Callable[[], object] = lambda: None) -> TreeStep:
        """Write what is next, in one commit, if anything; returns it.

        Where somebody else writes the table meanwhile, it is read again. ``may_write`` is called
        between reading and writing, and raises where we are not to write any more: whoever is to
        write in our place and has written by then is found out by the commit.
        """
        for tried in range(_TRIES):
            version = self._tables.version(TREES)
            rows = {row["tree_id"]: row for row in self._tables.rows(TREES, version)}
            network, budget, _ = self._read()
            trees = [tree_from_row(row) for row in rows.values()]
            free = self._free_ids(network, trees, wanted, version)
            step = next_step(network, trees, wanted, budget, free)
            moves = {n: (rows[n], after) for n, (_, after) in step.moved.items()}
            new = [self._row(tree, rows) for tree in step.installed if tree.id not in rows]
            for tree in step.installed:
                if tree.id in rows:  # given again
                    row = self._row(tree, rows) | {"state": rows[tree.id]["state"]}
                    moves[tree.id] = row, tree.state
            may_write()
            try:
                if self._tables.move_and_add(TREES, "tree_id", "state", moves, new, version):
                    return step
            except SQL_ERRORS as error:
                if tried == _TRIES - 1 or "oncurrent" not in str(error):
                    raise
                log.warning("%s was written meanwhile: %s", TREES, one_line(error))
            log.warning("%s was written meanwhile, and is read again", TREES)
        raise TableError("BUSY", f"{TREES} is written by others all the time: try again later")

    def _free_ids(
        self, network: Network, trees: Sequence[VirtualTree], wanted: Wanted, version: int
    ) -> set[int]:
        """Returns the ids of retired trees to give again, if there may not be new ones enough:
        those that have been retired for the quarantine, and that nothing in use holds."""
        above = network.labels.max_id - max((tree.id for tree in trees), default=0)
        if len(wanted) <= above:
            return set()
        long = self._retired_before(dt.datetime.now(dt.UTC) - self._options.quarantine, version)
        source = NetworkTables(self._tables, labels=self._settings.labels)
        older = source.older(NetworkVersions(self._tables).in_use(source.consistent()))
        if older.gone:  # they may name any tree
            return set()
        return free_ids((tree for tree in trees if long.get(tree.id) == tree.edges), older.sources)

    def _retired_before(self, time: dt.datetime, version: int) -> dict[int, Edges]:
        """Returns the trees, by id, that were retired in the newest version before ``time``."""
        first, after = 0, version + 1
        while first < after:
            between = (first + after) // 2
            committed = self._tables.committed_at(TREES, between)
            if committed is None or committed <= time:
                first = between + 1
            else:
                after = between
        if not first:
            return {}
        try:
            rows = self._tables.rows(TREES, first - 1)
        except SQL_ERRORS as error:
            if not gone_for_good(error):
                raise
            return {}
        found = [tree_from_row(row) for row in rows]
        return {tree.id: tree.edges for tree in found if tree.state == "retired"}

    @staticmethod
    def _row(tree: VirtualTree, rows: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """With the columns that somebody may have added to the table, empty."""
        others = next(iter(rows.values()), {})
        return dict.fromkeys(others) | tree_to_row(tree)

    def _read(self) -> tuple[Network, dict[str, int], list[VirtualTree]]:
        source = NetworkTables(self._tables)
        versions = source.consistent()
        rows = {name: source.rows(name, version) for name, version in versions.items()}
        network = network_from_rows(
            rows["switches"], rows["hosts"], rows["links"], self._settings.labels
        )
        pipelines: dict[str, P4Program] = {}
        programs = {}
        for row in rows["switches"]:
            name = row["pipeline"]
            if name not in pipelines:
                pipelines[name] = P4Program.read(self._settings.p4_folder, name)
            programs[row["switch"]] = Limits(pipelines[name].sizes, row["max_rules"])
        self._limits = programs
        trees = [tree_from_row(row) for row in rows[TREES]]
        return network, tree_budgets(network, programs, self._options.rules), trees

    def _clients(self, network: Network, record: Record) -> Clients:
        """By subscriptions and advertisements; where they do not compile, by what was received."""
        specification = formats.specification_of(self._settings, self._tables)
        subscriptions = [
            Subscription(row["id"], row["subscriber"], row["filter"])
            for row in self._tables.rows("subscriptions")
            if row["enabled"] and row["format"] == self._settings.format
        ]
        announced, refused = check_advertisements(
            select_advertisements(self._tables.rows("advertisements"), self._settings.format),
            specification,
            network.hosts,
        )
        for rejection in refused:
            log.warning("advertisement %s: %s %s", rejection.id, rejection.code, rejection.message)
        publishers = {each.publisher for each in record.publications}
        known = publishers | set(network.publishers())
        try:
            found = clients_of(
                announced,
                subscriptions,
                network,
                specification,
                known,
                "auto" if specification.optional else "specification",
            )
        except StackcastError as error:
            log.warning("who may receive what is taken from the statistics: %s", error)
            found = Clients({})
        received: dict[str, frozenset[str]] = {name: frozenset() for name in known}
        for each in record.publications:
            received[each.publisher] |= each.receivers
        # Who received something once may do so again, whatever became of its subscription.
        potential = {
            name: found.potential.get(name, frozenset()) | received[name] for name in known
        }
        return Clients(potential, found.permanent)

    @staticmethod
    def _tell(recorded: RecordedPublications, record: Record) -> None:
        log.info(
            "%d batches on record, %d different publications, %.1f %% of their bytes",
            recorded.batches,
            len(record.publications),
            100 * recorded.covered,
        )
        if record.left_out:
            log.warning(
                "%d deliveries on record are left out: the network does not lead there any more",
                record.left_out,
            )


def measured(trial: Trial) -> str:
    """Returns the figures of a replay in words, whichever of them is the cost."""
    return (
        f"{trial.bytes:>14,} bytes on links, {trial.labels:5.2f} labels, "
        f"{trial.way:.2f} links to a receiver"
    )


def in_use(network: Network, trees: Sequence[VirtualTree]) -> dict[Edges, str]:
    """Trees that stand, by their edges: active or about to be, and with all their links."""
    return {
        tree.edges: tree.strategy
        for tree in sorted(trees, key=lambda tree: tree.id)
        if tree.state in ("active", "installing") and not lost_links(network, tree.edges)
    }


def base_trees(network: Network) -> Wanted:
    """Returns the trees that must stand whatever is on record: where stacks name trees alone, those
    to each host, of which any set is put together."""
    if network.labels.trees != "alone":
        return {}
    return dict.fromkeys(host_trees(network, network.publishers()), "publisher")


def _left_beside(base: Wanted, network: Network, budget: Mapping[str, int]) -> dict[str, int]:
    """Returns the trees that switches may hold beside these. Raises SettingsError BAD_VALUE."""
    capacity = TreeCapacity(network, budget)
    for edges in base:
        capacity.reserve(edges)
    for name, left in capacity.left.items():
        if left < 0 and base:
            raise SettingsError(
                "BAD_VALUE",
                f"encoding {network.labels.encoding} needs a tree to each host alone: "
                f"{budget[name] - left} in switch {name!r}, which may hold {budget[name]} by "
                "--rules, max_rules and its program's tables",
            )
    return capacity.left


def _check(stopping: StopRequest) -> None:
    if stopping.is_set():
        raise StopAsked


def _until(seconds: float, stopping: StopRequest) -> Callable[[], None]:
    """Returns a function that raises TimeoutError from then on, and StopAsked after a request."""
    end = time.monotonic() + seconds

    def check() -> None:
        _check(stopping)
        if time.monotonic() >= end:
            raise TimeoutError

    return check


def _all_up(network: Network, edges: Edges) -> bool:
    for pair in edges:
        switch, neighbor = pair if pair[0] in network.switches else (pair[1], pair[0])
        if not network.usable(network.link(switch, neighbor)):
            return False
    return True
