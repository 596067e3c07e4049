"""Metrics of the retuning as a service for Prometheus, and what its /health says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.udfs.retuning.steps import TreeStep

#: How a round ended: all that pays is there; steps are left, which wait for the switches; nothing
#: is on record; an error.
OUTCOMES = ("done", "unfinished", "no_record", "failed")
BUCKETS = (1, 5, 20, 60, 300, 900, 1800)
#: So many rounds that fail in a row are a problem.
FAILURES = 3


class RetuneMetrics:
    """Metrics of a service, on a registry of their own. For any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._began: float | None = None
        self._failed = 0
        self._outcome = self._why = ""
        self._rounds = Counter(
            "stackcast_retune_rounds", "Rounds by outcome", ["outcome"], registry=registry
        )
        for outcome in OUTCOMES:
            self._rounds.labels(outcome)
        self._seconds = Histogram(
            "stackcast_retune_seconds",
            "Duration of a round, including the time that it waits for switches",
            buckets=BUCKETS,
            registry=registry,
        )
        Gauge(
            "stackcast_retune_running_seconds",
            "Duration of the round in progress; 0 between rounds",
            registry=registry,
        ).set_function(self._running)
        self._trees = Counter(
            "stackcast_retune_trees",
            "Trees that steps have moved, by their new state",
            ["state"],
            registry=registry,
        )
        for state in ("installing", "active", "retiring", "retired"):
            self._trees.labels(state)
        self._saving = Gauge(
            "stackcast_retune_saved_ratio",
            "Share of the cost that the last change saves; negative if limits increase the cost",
            registry=registry,
        )

    def planned(self, saving: float) -> None:
        """A plan saves this share of the cost."""
        self._saving.set(saving)

    def wrote(self, step: TreeStep) -> None:
        """A step is in the table."""
        self._trees.labels("installing").inc(len(step.installed))
        for _, after in step.moved.values():
            self._trees.labels(after).inc()

    @contextmanager
    def round(self) -> Iterator[None]:
        """Times a round."""
        began = self._began = self._clock.monotonic()
        try:
            yield
        finally:
            self._began = None
            self._seconds.observe(self._clock.monotonic() - began)

    def ended(self, outcome: str, why: str = "") -> None:
        """A round ended in one of `OUTCOMES`; ``why`` it failed, if it did."""
        self._rounds.labels(outcome).inc()
        self._failed = self._failed + 1 if outcome == "failed" else 0
        self._outcome, self._why = outcome, why

    def health(self) -> Health:
        """Returns what /health says; asks nobody.

        A round that failed is a remark, as the next may not; `FAILURES` of them are a problem.
        """
        told = (f"{self._failed} consecutive rounds failed, the last one with: {self._why}",)
        problem = self._failed >= FAILURES
        return Health(
            told if problem else (),
            told if self._failed and not problem else (),
            {"last_round": self._outcome or None, "running_seconds": round(self._running(), 1)},
        )

    def _running(self) -> float:
        began = self._began
        return 0.0 if began is None else self._clock.monotonic() - began
