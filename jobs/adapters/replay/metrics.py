"""Metrics of the service of re-requests for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

#: How a request ended. ``ahead``: the ledger does not cover it yet; ``gone``: it cannot be computed
#: any more; ``limited``: a host that has proved its address asks too often, or for too much;
#: ``challenged``: it had no valid cookie and was sent one; ``challenge_limited``: it was sent none,
#: because addresses of its /24 ask too often without one; ``failed``: an error that is not the
#: asker's; ``dropped``: the service was too busy to read it, so it stays without an answer.
OUTCOMES = (
    "answered",
    "ahead",
    "gone",
    "unknown_host",
    "unknown_session",
    "malformed",
    "limited",
    "challenged",
    "challenge_limited",
    "failed",
    "dropped",
)
BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60)


class RerequestMetrics:
    """Metrics of `jobs/rerequest.py`, on a registry of their own. For any thread.

    hosts: where more than so many asked, none has a series of its own.
    """

    def __init__(self, hosts: int = 0) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "stackcast_rerequests", "Requests by outcome", ["outcome"], registry=registry
        )
        for outcome in OUTCOMES:
            self._requests.labels(outcome)
        self._datagrams = Counter(
            "stackcast_rerequest_notifications", "Notifications sent in answers", registry=registry
        )
        self._bytes = Counter(
            "stackcast_rerequest_bytes", "Bytes of notifications sent in answers", registry=registry
        )
        self._most_hosts = hosts
        self._hosts: set[str] = set()
        self._of_host = Counter(
            "stackcast_host_rerequests", "Requests of a host for a gap", ["host"], registry=registry
        )
        self._sent_to_host = Counter(
            "stackcast_host_rerequest_notifications",
            "Notifications sent in answers to a host",
            ["host"],
            registry=registry,
        )
        self._seconds = Histogram(
            "stackcast_rerequest_seconds",
            "Time from a request to the end of its answer",
            buckets=BUCKETS,
            registry=registry,
        )
        self._waiting = Gauge(
            "stackcast_rerequests_pending", "Requests that are not answered yet", registry=registry
        )

    def answered(
        self,
        outcome: str,
        datagrams: int = 0,
        octets: int = 0,
        seconds: float | None = None,
        host: str = "",
    ) -> None:
        """A request of a host ended in one of `OUTCOMES`, after so many notifications and bytes."""
        self._requests.labels(outcome).inc()
        self._datagrams.inc(datagrams)
        self._bytes.inc(octets)
        if seconds is not None:
            self._seconds.observe(seconds)
        if host and self._most_hosts and outcome != "ahead":
            self._by_host(host, datagrams)

    def dropped(self, requests: int) -> None:
        """Counts datagrams that were dropped before they were read."""
        self._requests.labels("dropped").inc(requests)

    def _by_host(self, host: str, datagrams: int) -> None:
        self._hosts.add(host)
        if len(self._hosts) > self._most_hosts:
            self._most_hosts = 0
            self._of_host.clear()
            self._sent_to_host.clear()
            return
        self._of_host.labels(host).inc()
        self._sent_to_host.labels(host).inc(datagrams)

    def waiting(self, requests: int) -> None:
        """So many requests wait for their answers."""
        self._waiting.set(requests)
