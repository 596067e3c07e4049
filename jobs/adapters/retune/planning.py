"""Retuning of one deployment: what is on record, what trees would serve it best, and the change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.retune.clients import clients_by_tables
from stackcast.jobs.adapters.retune.deployment import Deployment, all_up, read_deployment
from stackcast.jobs.adapters.retune.options import RetuneOptions
from stackcast.jobs.adapters.retune.record import RecordedPublications, read_record
from stackcast.jobs.adapters.retune.trials import compare
from stackcast.jobs.adapters.runtime.clock import Clock
from stackcast.jobs.adapters.runtime.spark_engine import SparkEngine
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.network.publishers import sending, several
from stackcast.udfs.retuning.change import TreeChange, plan_change
from stackcast.udfs.retuning.comparison import Record, StrategyResult, Trial
from stackcast.udfs.retuning.encodings import EncodingCosts, encoding_costs, least
from stackcast.udfs.retuning.mixture import ChosenTrees, choose
from stackcast.udfs.retuning.steps import Wanted, rules, under_way
from stackcast.udfs.stacks.forwarding import network_tables
from stackcast.udfs.stop_request import StopAsked, StopRequest
from stackcast.udfs.switches.capacity import tree_budgets
from stackcast.udfs.trees.publications import Statistics, by_entry
from stackcast.udfs.trees.strategies.strategy import Edges, Situation, numbered

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetunePlan:
    """Result of a run. deployment: as read. encodings: what the heaviest publications take in each,
    the network's with the trees after the change first."""

    deployment: Deployment
    options: RetuneOptions
    recorded: RecordedPublications
    record: Record
    outcomes: Sequence[StrategyResult]
    choice: ChosenTrees
    change: TreeChange
    encodings: Sequence[EncodingCosts]


class Planner:
    """Plans what to change, and writes nothing."""

    def __init__(
        self, spark: SparkSession, tables: SparkTables, settings: Settings, options: RetuneOptions
    ) -> None:
        self._spark, self._tables, self._settings = spark, tables, settings
        self._engine = SparkEngine(spark)
        self._options = options
        self._names = options.names(settings.labels)

    def plan(self, stopping: StopRequest | None = None) -> RetunePlan | None:
        """Returns what to change, and why; None where nothing is on record that the network can
        carry.

        Raises NetworkError, TableError, SwitchError as the tables and programs have it; StopAsked
        soon after a request to stop.
        """
        stopping = stopping or StopRequest()
        options = self._options
        recorded = read_record(self._tables, options.most, options.window, options.as_of)
        there = self._read()
        network, base, free = there.network, there.base, there.free
        named = self._settings.publisher
        publishers = sending(network, named) if several(named) else ()
        publications = by_entry(recorded.publications, publishers)
        record = Record(network, publications, options.objective, self._settings.max_labels, base)
        _tell(recorded, record)
        if not record.publications:
            return None
        situation = Situation(
            network,
            clients_by_tables(self._tables, self._settings, network, record),
            Statistics(record.publications),
            options.seed,
        )
        standing = there.chosen
        now = record.replay(list(standing))
        log.info("%-16s %s", "current trees", measured(now))
        outcomes = self._compared(situation, free, record, stopping)
        usable = [edges for edges in standing if all_up(network, edges)]
        choice = self._chosen(record, outcomes, free, usable, now, stopping)

        def replay(trees: Sequence[Edges]) -> Trial:
            _check(stopping)
            return record.replay(trees)

        missing = {edges: name for edges, name in base.items() if edges not in there.in_use}
        change = plan_change(
            network,
            standing,
            choice.trees,
            free,
            replay,
            self._cap(there, missing),
            options.min_saving,
        ).beside(network, base, missing)
        encodings = self._encodings(there, list(change.wanted), record)
        return RetunePlan(there, options, recorded, record, outcomes, choice, change, encodings)

    def _compared(
        self, situation: Situation, free: Mapping[str, int], record: Record, stopping: StopRequest
    ) -> list[StrategyResult]:
        """Compares the strategies by what is on record. Raises SettingsError ``BAD_VALUE`` where
        none of them can be used, StopAsked."""
        outcomes: list[StrategyResult] = []
        for outcome in compare(
            self._spark,
            self._engine,
            self._names,
            situation,
            free,
            record,
            self._options.seconds,
            stopping,
        ):
            outcomes.append(outcome)
            if outcome.error:
                log.warning("%-16s cannot be used: %s", outcome.name, outcome.error)
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
                f"none of the strategies {', '.join(self._names)} returned trees (see the log "
                "for the reasons): choose others with --strategies, or increase "
                "--strategy-seconds",
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
            check = _until(seconds, stopping, self._engine.clock)
            choice = choose(record, outcomes, free, usable, check)
        else:
            choice = ChosenTrees("no trees", {}, now, now.cost)
        if not choice.complete:
            log.warning(
                "the search for a mixture took longer than %g s (--strategy-seconds): using the "
                "trees of the best strategy",
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
        self, there: Deployment, trees: Sequence[Edges], record: Record
    ) -> list[EncodingCosts]:
        """Compares encodings by what is on record, and says which one is the best."""
        # The labels of another encoding go in the place of those that all switches have by now.
        network = there.network
        free = tree_budgets(network, there.limits, 1 << 30)
        room = {
            name: free[name] + sum(1 for _ in network.labels.rows(held))
            for name, held in network_tables(network, ()).items()
        }
        costs = encoding_costs(network, numbered(trees, ""), record.publications, room)
        best, now = least(costs), costs[0]
        if best is not now:
            log.info(
                "encoding %s with labels of %d bits would need %s bytes on links, but %s needs "
                "%s; a switch would have %d rows of labels (set spark.stackcast.encoding to "
                "change it)",
                best.encoding,
                best.bits,
                f"{best.bytes:,}",
                now.encoding,
                f"{now.bytes:,}",
                best.rows,
            )
        return costs

    def _cap(self, there: Deployment, missing: Iterable[Edges]) -> int | None:
        """Rules that may change by now: what an earlier run has under way counts, and so do the
        trees that must come."""
        most = self._options.max_changed_rules
        if most is None:
            return None
        most = max(0, most - sum(rules(there.network, edges) for edges in missing))
        busy = under_way(there.network, there.trees)
        if busy:
            log.info(
                "%d rule changes of an earlier run are still in progress: of the %d allowed "
                "changes, %d remain",
                busy,
                most,
                max(0, most - busy),
            )
        return max(0, most - busy)

    def keep(self) -> Wanted:
        """Returns the change where nothing is on record: all stays but trees that lost a link or
        their room, and those come that must stand."""
        there = self._read()
        nothing = Record(there.network, ())
        kept = plan_change(there.network, there.chosen, {}, there.free, nothing.replay)
        return {**there.base, **kept.wanted}

    def _read(self) -> Deployment:
        return read_deployment(self._tables, self._settings, self._options.rules)


def _tell(recorded: RecordedPublications, record: Record) -> None:
    log.info(
        "%d recorded batches with %d different publications, which have %.1f %% of the bytes",
        recorded.batches,
        len(record.publications),
        100 * recorded.covered,
    )
    if record.left_out:
        log.warning(
            "%d recorded deliveries are ignored, because the network no longer has a path for them",
            record.left_out,
        )


def measured(trial: Trial) -> str:
    """Returns the figures of a replay in words, whichever of them is the cost."""
    return (
        f"{trial.bytes:>14,} bytes on links, {trial.labels:5.2f} labels, {trial.way:.2f} links "
        "per receiver"
    )


def _check(stopping: StopRequest) -> None:
    if stopping.is_set():
        raise StopAsked


def _until(seconds: float, stopping: StopRequest, clock: Clock) -> Callable[[], None]:
    """Returns a function that raises TimeoutError from then on, and StopAsked after a request."""
    end = clock.monotonic() + seconds

    def check() -> None:
        _check(stopping)
        if clock.monotonic() >= end:
            raise TimeoutError

    return check
