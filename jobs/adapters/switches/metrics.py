"""Metrics of the refresher: switches, tables and trees."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.switches.results import RefreshResult
from stackcast.udfs.errors import StackcastError

#: Few, as there is a series for each of them and each switch.
REFRESH_BUCKETS = (0.05, 0.2, 1, 5, 20, 60)
READY_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 300, 1800)
STATES = ("installing", "active", "retiring")
#: A refresher that has not polled for so long hangs.
SILENT_SECONDS = 120.0

_Made = TypeVar("_Made", Counter, Gauge, Histogram)


class SwitchMetrics:
    """Metrics of a refresher, on a registry of their own. For any thread.

    Series of a switch go when the switch does.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.leads: bool | None = None
        self.refused_why = ""
        self.version: int | None = None
        self.out_of_sync: dict[str, str] = {}
        self.polled_at: float | None = None
        self._of_switch: list[Any] = []
        self._names: set[str] = set()

        def each(made: _Made) -> _Made:
            self._of_switch.append(made)
            return made

        self._seconds = each(
            Histogram(
                "stackcast_switch_refresh_seconds",
                "Duration of a refresh of a switch, from its start to the last read",
                ["switch"],
                buckets=REFRESH_BUCKETS,
                registry=registry,
            )
        )
        self._written = each(
            Counter(
                "stackcast_switch_entries_written",
                "Updates that a switch accepted",
                ["switch"],
                registry=registry,
            )
        )
        self._failures = each(
            Counter(
                "stackcast_switch_refresh_failures",
                "Refreshes that left a switch out of sync",
                ["switch"],
                registry=registry,
            )
        )
        self._in_sync = each(
            Gauge(
                "stackcast_switch_in_sync",
                "1 if the switch had exactly the desired entries when it was last read",
                ["switch"],
                registry=registry,
            )
        )
        self._held = each(
            Gauge(
                "stackcast_switch_entries",
                "Entries of the switch when it was last read",
                ["switch"],
                registry=registry,
            )
        )
        self._differences = each(
            Counter(
                "stackcast_switch_read_back_differences",
                "Entries that differed from the last refresh when the switch was read back",
                ["switch"],
                registry=registry,
            )
        )
        self._drops = Counter(
            "stackcast_switch_drops",
            "Packets that the switch dropped, by reason",
            ["switch", "reason"],
            registry=registry,
        )
        self._derive = Histogram(
            "stackcast_derive_seconds",
            "Duration of deriving switch_entries from the tables",
            buckets=READY_BUCKETS,
            registry=registry,
        )
        self._derive_failures = Counter(
            "stackcast_derive_failures",
            "Derivations of switch_entries that failed",
            registry=registry,
        )
        self._refused = Gauge(
            "stackcast_versions_rejected",
            "1 while the newest tables cannot be used",
            registry=registry,
        )
        self._ready = Histogram(
            "stackcast_ready_seconds",
            "Time from the commit of an edit until all switches have it",
            buckets=READY_BUCKETS,
            registry=registry,
        )
        self._leads = Gauge(
            "stackcast_refresher_primary",
            "1 if this refresher writes the switches, 0 if another one does",
            registry=registry,
        )
        self._trees = Gauge(
            "stackcast_virtual_trees", "Stored trees by state", ["state"], registry=registry
        )

    def refreshed(
        self, results: Mapping[str, RefreshResult], over_capacity: Collection[str] = ()
    ) -> None:
        """Counts refreshes of switches; those ``over_capacity`` hold what they can, not all."""
        for name, result in results.items():
            self._names.add(name)
            in_sync = result.in_sync and name not in over_capacity
            self._seconds.labels(name).observe(result.seconds)
            self._written.labels(name).inc(result.written)
            self._failures.labels(name).inc(not in_sync)
            self._in_sync.labels(name).set(in_sync)
            if result.installed is not None:
                self._held.labels(name).set(result.installed)
            if in_sync:
                self.out_of_sync.pop(name, None)
            else:
                self.out_of_sync[name] = (*result.errors, "it has more entries than it can hold")[0]

    def differed(self, switch: str, entries: int) -> None:
        """Count entries that a switch held differently than its last refresh left them."""
        self._names.add(switch)
        self._differences.labels(switch).inc(entries)

    def dropped(self, switch: str, reason: str, packets: int) -> None:
        """Counts packets that a switch dropped since it was last looked at."""
        self._drops.labels(switch, reason).inc(packets)

    def behind(self, names: Iterable[str], all_names: Iterable[str]) -> None:
        """Sets which of ``all_names``, the switches there are, are not known to be in step."""
        there, wrong = set(all_names), set(names)
        for name in self._names - there:
            self.out_of_sync.pop(name, None)
            for metric in self._of_switch:
                metric.remove(name)
            self._drops.remove_by_labels({"switch": name})
        self._names = there
        for name in there:
            self._in_sync.labels(name).set(name not in wrong)
        self.out_of_sync = {
            name: self.out_of_sync.get(name, "it has not been read back yet") for name in wrong
        }

    @contextmanager
    def deriving(self) -> Iterator[None]:
        """Times the derivation of `switch_entries`; counts an error that ends it."""
        began = self._clock.monotonic()
        try:
            yield
        except Exception as error:
            if isinstance(error, StackcastError) and error.what != "NOT_PRIMARY":
                self.refused(error)
            else:
                self._derive_failures.inc()
            raise
        finally:
            self._derive.observe(self._clock.monotonic() - began)

    def refused(self, why: StackcastError) -> None:
        """Says that the newest tables cannot be used, until `derived` says otherwise."""
        self._derive_failures.inc()
        self._refused.set(1)
        self.refused_why = str(why)

    def derived(self, version: int, tree_states: Iterable[str]) -> None:
        """Says that `switch_entries` is at this version, from trees of these states."""
        self.version = version
        self._refused.set(0)
        self.refused_why = ""
        counts = Tally(tree_states)
        for state in STATES:
            self._trees.labels(state).set(counts[state])

    def ready(self, seconds: float) -> None:
        """Counts an edit that all switches hold, so long after its commit."""
        self._ready.observe(seconds)

    def polled(self, leads: bool) -> None:
        """Says that the refresher polled just now, and writes the switches or does not."""
        self.leads, self.polled_at = leads, self._clock.monotonic()
        self._leads.set(leads)

    def health(self) -> Health:
        """Returns how the refresher is now; asks nobody.

        A problem is that it does not poll (any more). Tables that cannot be used and switches that
        are not in step are remarks: it tries again by itself. One that waits for another to end is
        well.
        """
        now = self._clock.monotonic()
        problems, remarks = [], []
        if self.polled_at is None:
            problems.append("the refresher has not polled tables and switches yet")
        elif now - self.polled_at > SILENT_SECONDS:
            problems.append(
                f"the refresher has not polled tables and switches for {now - self.polled_at:.0f} s"
            )
        if self.refused_why:
            remarks.append(f"the newest tables cannot be used: {self.refused_why}")
        wrong = dict(self.out_of_sync)
        if wrong and self.leads:
            remarks.append(f"{len(wrong)} switches are out of sync")
        facts = {
            "leads": self.leads,
            "switch_entries": self.version,
            "switches": len(self._names),
            "out_of_sync": wrong,
        }
        return Health(tuple(problems), tuple(remarks), facts)
