"""Bytes on each link for Prometheus, as the console follows them through the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from stackcast.jobs.adapters.console.network import NetworkView, Pair

#: Above so many directed links none has a series of its own.
MOST_LINKS = 4_000
_LABELS = ("source", "target")


class LinkMetrics:
    """A collector of Prometheus. For any thread; asks the tables at each scrape.

    Bytes count from the first scrape on, each publication along the network and trees of its time.
    network: None for the names alone.
    """

    def __init__(self, network: NetworkView | None = None) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._network = network

    def describe(self) -> Iterable[Metric]:
        """Returns what there is, without samples."""
        return self._families({}, {})

    def collect(self) -> Iterable[Metric]:
        """Returns a sample a directed link. Raises NetworkError, TableError."""
        if self._network is None:
            return self._families({}, {})
        return self._families(self._network.bytes_so_far(), self._network.links_up())

    def text(self) -> bytes:
        """Returns all of it in the text format. Raises as `collect`."""
        return generate_latest(self.registry)

    @staticmethod
    def _families(carried: Mapping[Pair, int], up: Mapping[Pair, bool]) -> Iterable[Metric]:
        crossed = CounterMetricFamily(
            "stackcast_link_bytes", "Bytes that notifications put on a link", labels=_LABELS
        )
        state = GaugeMetricFamily(
            "stackcast_link_up", "1 if notifications may cross a link", labels=_LABELS
        )
        if len(carried) <= MOST_LINKS:
            for pair, size in carried.items():
                crossed.add_metric(pair, size)
            for pair, usable in up.items():
                state.add_metric(pair, usable)
        return crossed, state
