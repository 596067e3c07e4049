"""Stored trees: what each saves on the publications on record, and what retuning would change."""

from __future__ import annotations

import logging
import threading
from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, table_error
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console.network import NetworkView
from stackcast.jobs.adapters.console.reading import Reading
from stackcast.jobs.adapters.retune.options import RetuneOptions
from stackcast.jobs.adapters.retune.planning import Planner
from stackcast.jobs.adapters.retune.report import summary
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.udfs.errors import ConsoleError, StackcastError
from stackcast.udfs.retuning.comparison import Record
from stackcast.udfs.retuning.steps import rules

log = logging.getLogger(__name__)

#: Publications by which trees are judged on a page, those of most bytes.
MOST = 300
#: Seconds that what trees save is kept: statistics grow all the time.
KEPT_SECONDS = 10.0
#: Seconds that a strategy may take on a page, and the search for a mixture.
STRATEGY_SECONDS = 30.0


class TreesView:
    """Reads stored trees and tries a retuning, which writes nothing. For any thread."""

    def __init__(
        self,
        reading: Reading,
        settings: Settings,
        network: NetworkView,
        spark: SparkSession,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._threads = threads
        self._clock = threads.clock
        self._reading = reading
        self._settings = settings
        self._network = network
        self._spark = spark
        self._lock = threading.Lock()
        self._found: tuple[float, Any, dict[str, Any]] | None = None
        self._proposal: dict[str, Any] = {"state": "none"}
        self._ended = False

    def end(self) -> None:
        """Leaves a trial under way to itself: what it meets when Spark goes is not told. From any
        thread, and from signal handlers."""
        self._ended = True

    def stored(self) -> dict[str, Any]:
        """Returns ``trees`` but for retired ones, with the notifications that name each and the
        bytes on links that it ``saves``, of the heaviest publications on record; and of all of
        them ``bytes``, ``labels``, bytes ``without`` any tree, and how many there are.

        As the trees and the network are now. Raises NetworkError, TableError.
        """
        with self._lock:
            versions = self._network.versions()
            if self._found is None or self._found[1] != versions or self._old(self._found[0]):
                self._found = self._clock.monotonic(), versions, self._judged()
            return self._found[2]

    def _old(self, since: float) -> bool:
        return self._clock.monotonic() - since > KEPT_SECONDS

    def _judged(self) -> dict[str, Any]:
        network, trees = self._network.network(), self._network.trees()
        record = Record(
            network, self._network.publications(), max_labels=self._settings.max_labels
        ).heaviest(MOST)
        active = [tree.edges for tree in trees if tree.state == "active"]
        trial = record.replay(active)
        told = []
        for tree in trees:
            if tree.state == "retired":
                continue
            users = [at for at, named in enumerate(trial.named) if tree.edges in named]
            others = [edges for edges in active if edges != tree.edges]
            without = record.replay(others, only=users).bytes if users else 0
            told.append(
                {
                    "id": tree.id,
                    "strategy": tree.strategy,
                    "state": tree.state,
                    "switches": rules(network, tree.edges),
                    "uses": trial.uses.get(tree.edges, 0),
                    "saves": without - sum(trial.costs[at] for at in users),
                    "edges": [list(pair) for pair in sorted(tree.edges)],
                }
            )
        return {
            "trees": told,
            "bytes": trial.bytes,
            "labels": trial.labels,
            "without": record.replay([]).bytes,
            "publications": len(record.publications),
        }

    def proposal(self) -> dict[str, Any]:
        """Returns the ``state`` of the last trial: none, running, failed (``error``) or done, with
        ``plan`` as the report of a retuning has it, or None where nothing is on record."""
        return self._proposal

    def propose(self) -> dict[str, Any]:
        """Begins a retuning that writes nothing; `proposal` tells of it. Raises ConsoleError
        BUSY."""
        with self._lock:
            if self._proposal["state"] == "running":
                raise ConsoleError(
                    "BUSY", "a dry run is already in progress: wait until it has finished"
                )
            self._proposal = {"state": "running", "began": self._clock.wall_time()}
        self._threads.start("retuning", self._try)
        return self._proposal

    def _try(self) -> None:
        began = self._proposal["began"]
        try:
            options = RetuneOptions(seconds=STRATEGY_SECONDS)
            plan = Planner(self._spark, self._reading.tables, self._settings, options).plan()
            found: dict[str, Any] = {"state": "done", "plan": plan and summary(plan)}
        except (*SQL_ERRORS, StackcastError, OSError) as error:
            told = error if isinstance(error, StackcastError) else table_error(error)
            found = {"state": "failed", "error": str(told)}
        except Exception as error:  # or the page would wait for ever
            if not self._ended:
                log.exception("the dry run of a retuning failed")
            found = {"state": "failed", "error": repr(error)}
        self._proposal = {**found, "began": began, "seconds": self._clock.wall_time() - began}
