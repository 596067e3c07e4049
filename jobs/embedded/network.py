"""The embedded default where the switches match: one trading session through the network, proved.

Brings up switches and hosts (`lab`), fills the tables, has the refresher write the filters, sends
the session's packets whole into the publisher's switch, and compares what the hosts received with
what they were owed. Neither broker nor stream: Spark reads and writes tables, and sees no packet.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import FORMATS, Settings
from jobs.adapters.planning import formats
from jobs.adapters.switches.filters import REJECTED
from jobs.adapters.tables.tables import Tables
from jobs.adapters.wire import SinkOptions, open_sink
from jobs.embedded import lab as embedded_lab
from jobs.embedded.feed import Fed
from jobs.embedded.kinds import Kind
from lab.proof import verification
from lab.proof.receipts import receipts
from lab.report import page
from lab.report.showcase import FilteredShowcase
from lab.traffic.packets import SESSION
from lab.up import deployment
from lab.up.lab import Lab
from udfs.filters.subscriptions import CheckedRule, check, select
from udfs.messages.attributes.registry import Registry
from udfs.messages.specification import Specification
from udfs.network.drawing import drawing
from udfs.network.network import Network

log = logging.getLogger("stackcast.lab")


def run(settings: Settings, lifecycle: Lifecycle, kind: Kind, keep_spark: bool = False) -> int:
    """One run on the embedded lab. Returns the exit code: 0 only if every delivery was exact.

    ``keep_spark``: leave its session to a run that comes after this one.
    """
    began = time.monotonic()
    folder, network = embedded_lab.prepare(settings)
    settings = dataclasses.replace(settings, tables=str(folder / "tables"))
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(folder, network, broker=False))
        lab.clear()
        generator = stack.enter_context(kind.source(settings, folder))
        spark_and_tables = embedded_lab.beside(lambda: embedded_lab.open_tables(settings))
        lab.up()
        log.info("%d switches at %s", len(network.switches), lab.p4runtime)
        spark, tables = spark_and_tables.result()
        if not keep_spark:
            stack.callback(spark.stop)
        lifecycle.hold_jvm(spark)
        embedded_lab.fill(tables, kind.rows(settings, network, lab.p4runtime))
        embedded_lab.refresh(tables, settings, lifecycle)
        source = generator()
        options = SinkOptions(
            "udp", endpoint=lab.ingress[settings.publisher], window=deployment.WINDOW
        )
        sink = open_sink(options)
        stack.callback(sink.close)
        publisher = network.host(settings.publisher)
        fed = kind.feed(settings, tables, publisher, sink, source, lifecycle.stopping)
        log.info(
            "%d frames, %d %s in %.1f s", len(fed.packets), fed.messages, kind.noun, fed.seconds
        )
        status = lab.settle()
        log.info("comparing what the hosts received with what they were owed")
        outcome = Outcome(settings, kind, tables, network, fed, folder, status)
        outcome.write(time.monotonic() - began)
    return 0 if outcome.exact else 1


class Outcome:
    """What a run came to: proved, counted, and written down."""

    def __init__(
        self,
        settings: Settings,
        kind: Kind,
        tables: Tables,
        network: Network,
        fed: Fed,
        folder: Path,
        status: Mapping[str, Any],
    ) -> None:
        self._settings = settings
        self._network = network
        self._fed = fed
        self._folder = folder
        self._status = status
        self._specification = formats.specification_of(settings, tables)
        self._subscriptions = tables.rows("subscriptions")
        self._rejected = {row["id"] for row in tables.rows(REJECTED)}
        self._rules = self._live()
        self._read = kind.frame_reader()
        self._registry = kind.registry(tables)
        self._framing = kind.framing
        self._expected = expected(
            fed.packets, self._rules, self._specification, self._read, self._registry
        )
        received = receipts(folder, kind.receipt)
        self._compared = verification.compare(self._expected, received, pruned=True)

    @property
    def exact(self) -> bool:
        """Whether all packets went in and every delivery was as owed."""
        carried = self._status["frames_in"] == len(self._fed.packets)
        return self._compared.exact and carried and bool(self._fed.packets)

    def write(self, seconds: float) -> dict[str, Any]:
        """Print the table, write report.json and report.html; returns the summary."""
        compared, expected = self._compared, self._expected
        summary: dict[str, Any] = {
            "messages_in": self._fed.messages,
            "messages_matched": expected.messages_matched,
            "frames_sent": len(self._fed.packets),
            "rejected_subscriptions": len(self._rejected),
            "deliveries_expected": compared.expected,
            "deliveries_received": compared.received,
            "missing": compared.missing,
            "extra": compared.extra,
            "duplicates": compared.duplicates,
            "out_of_order": compared.out_of_order,
            "misnumbered": compared.misnumbered,
            "dead_letters": expected.dead_letters.total(),
            "link_bytes": sum(self._status["link_bytes"].values()),
            "unicast_bytes": verification.unicast_bytes(
                self._network, self._settings.publisher, expected, self._framing
            ),
            "broadcast_bytes": verification.broadcast_bytes(self._network, expected, self._framing),
            "feed_seconds": round(self._fed.seconds, 1),
            "seconds": round(seconds, 1),
        }
        page.print_table(summary, compared.rows())
        page.write_json(self._folder / "report.json", summary)
        page.write_html(self._folder / "report.html", self._page(summary))
        print(f"report: {self._folder / 'report.html'}")
        return summary

    def _live(self) -> list[CheckedRule]:
        rows, _ = select(self._subscriptions, self._settings.format, FORMATS)
        hosts = set(self._network.subscribers())
        rules, _ = check(rows, self._specification, hosts, self._settings.publisher)
        return [rule for rule in rules if rule.id not in self._rejected]

    def _page(self, summary: dict[str, Any]) -> page.ReportData:
        showcase = FilteredShowcase(
            self._network,
            self._specification,
            self._settings.publisher,
            self._read,
            self._registry,
        )
        return page.ReportData(
            summary=summary,
            hosts=self._compared.rows(),
            **drawing(self._network),
            subscriptions=[
                {"id": r["id"], "host": r["subscriber"], "filter": r["filter"]}
                for r in self._subscriptions
                if r["enabled"] and r["id"] not in self._rejected
            ],
            notifications=showcase.notifications(self._fed.packets, self._rules),
        )


def expected(
    packets: Iterable[tuple[int, int, bytes]],
    rules: Sequence[CheckedRule],
    specification: Specification,
    read: verification.Reader | None = None,
    registry: Registry | None = None,
) -> verification.Expectation:
    """What hosts are owed of packets as `Fed` has them, all under the same rules."""
    all_of_it = verification.Batch(0, {0: (0, 1 << 62)}, rules, registry)
    return verification.expected(packets, [all_of_it], specification, "", SESSION, read)
