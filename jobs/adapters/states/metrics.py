"""Metrics of the jobs of replicated states for Prometheus, and what their /health says."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.states.service import ControllerService

LATE_SECONDS = 60.0
"""So long tables may be behind the facts, and updates unconfirmed, before /health says so."""


class ControllerMetrics:
    """Metrics of `jobs/replica_controller.py`, on a registry of their own. For any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._since: float | None = None
        self._facts = Counter(
            "stackcast_state_records", "Facts merged into the tables", registry=self.registry
        )

    def watch(self, service: ControllerService) -> None:
        """Has its counts told, too."""
        self.registry.register(_ControllerCounts(service))

    def recorded(self) -> None:
        """Facts are on record that are to come into the tables."""
        if self._since is None:
            self._since = self._clock.monotonic()

    def merged(self, facts: int) -> None:
        """So many facts are in the tables."""
        self._facts.inc(facts)
        self._since = None

    def health(self) -> Health:
        """Returns what /health says."""
        since = self._since
        behind = 0.0 if since is None else self._clock.monotonic() - since
        problems: tuple[str, ...] = ()
        if behind > LATE_SECONDS:
            problems = (f"the tables are {behind:.0f} s behind the facts: see the log",)
        return Health(problems, facts={"tables_behind_seconds": round(behind, 1)})


class _ControllerCounts(Collector):
    """Counts of a controller that runs in another thread, as they are when somebody asks."""

    def __init__(self, service: ControllerService) -> None:
        self._controller = service.controller

    def collect(self) -> Iterator[Metric]:
        counts = self._controller.counts()
        for name, text, value in (
            ("middlewares", "Connected middlewares", counts.middlewares),
            ("programs", "Programs that are running or whose last update is kept", counts.programs),
            (
                "program_numbers_remaining",
                "Number of programs that can still be started",
                counts.numbers_left,
            ),
            ("names", "States that have a number", counts.states),
            (
                "names_beyond_registers",
                "States without space in the registers of a switch",
                counts.beyond_registers,
            ),
            ("backlog_updates", "Updates in the backlog", counts.kept),
            ("backlog_bytes", "Bytes of updates in the backlog", counts.kept_bytes),
            ("publishers_waiting", "Publishers of a state with a missing update", counts.waiting),
        ):
            yield GaugeMetricFamily(f"stackcast_state_{name}", text, value)
        yield CounterMetricFamily(
            "stackcast_state_recovered_updates",
            "Updates that were sent to replicas again",
            counts.recovered,
        )
        dropped = CounterMetricFamily(
            "stackcast_state_dropped", "Dropped signals and updates, by reason", labels=["reason"]
        )
        for reason, number in counts.dropped.items():
            dropped.add_metric([reason], number)
        yield dropped


class PublisherMetrics:
    """Metrics of `jobs/state_stream.py`, on a registry of their own. For any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._since: float | None = None
        self._updates = Counter("stackcast_state_updates", "Published updates", registry=registry)
        self._bytes = Counter(
            "stackcast_state_update_bytes", "Bytes of published updates", registry=registry
        )
        self._refused = Counter(
            "stackcast_state_updates_rejected",
            "Updates that were rejected because they are too large",
            registry=registry,
        )
        Gauge(
            "stackcast_state_unconfirmed_seconds",
            "Time since the oldest update that the replica controller has not confirmed; 0 if "
            "there is none",
            registry=registry,
        ).set_function(self._unconfirmed)

    def published(self, octets: int) -> None:
        """An update of so many bytes is on its way."""
        self._updates.inc()
        self._bytes.inc(octets)
        if self._since is None:
            self._since = self._clock.monotonic()

    def refused(self) -> None:
        """An update was too large."""
        self._refused.inc()

    def confirmed(self) -> None:
        """All that was published is safe."""
        self._since = None

    def health(self) -> Health:
        """Returns what /health says."""
        seconds = self._unconfirmed()
        problems: tuple[str, ...] = ()
        if seconds > LATE_SECONDS:
            problems = (f"the replica controller has not confirmed an update for {seconds:.0f} s",)
        return Health(problems, facts={"unconfirmed_seconds": round(seconds, 1)})

    def _unconfirmed(self) -> float:
        since = self._since
        return 0.0 if since is None else self._clock.monotonic() - since
