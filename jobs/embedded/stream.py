"""The embedded default: one whole run of a stream on this machine, proved at its end.

Brings up broker, switches and hosts (`lab`), fills the tables, publishes records, lets
the ordinary stream deliver them, compares what the hosts received with what they were owed, writes
the report, and takes everything down again, whatever happens in between.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning import formats
from jobs.adapters.stream import micro_batches
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.tables.tables import Tables
from jobs.embedded import lab as embedded_lab
from jobs.embedded.kinds import Kind
from jobs.embedded.recorded_batches import RecordedBatches
from lab.proof import verification
from lab.proof.receipts import receipts
from lab.report import page
from lab.report.showcase import Showcase
from lab.traffic.publisher import Published
from lab.up import deployment
from lab.up.lab import Lab
from udfs.network.drawing import drawing
from udfs.network.network import Network
from udfs.stop_request import StopRequest
from udfs.trees.broadcast import broadcast_trees

log = logging.getLogger("stackcast.lab")


def run(settings: Settings, lifecycle: Lifecycle, kind: Kind) -> int:
    """One run on the embedded lab. Returns the exit code.

    0 only if every message went in and every delivery was exact.
    """
    began = time.monotonic()
    folder, network = embedded_lab.prepare(settings)
    with ExitStack() as stack:
        lab = Lab(folder, network)
        stack.enter_context(lab)
        lab.clear()
        generator = stack.enter_context(kind.source(settings, folder))
        settings = dataclasses.replace(settings, tables=str(folder / "tables"))
        spark_and_tables = embedded_lab.beside(lambda: embedded_lab.open_tables(settings))
        lab.up()
        log.info(
            "broker %s; %d switches at %s",
            lab.bootstrap_servers,
            len(network.switches),
            lab.p4runtime,
        )
        spark, tables = spark_and_tables.result()
        stack.callback(spark.stop)
        lifecycle.hold_jvm(spark)
        settings = dataclasses.replace(
            settings,
            kafka=settings.kafka | {"bootstrap.servers": lab.bootstrap_servers},
            checkpoint=str(folder / "checkpoint"),
            udp_endpoint=lab.ingress[settings.publisher],
            udp_window=deployment.WINDOW,
        )
        embedded_lab.fill(tables, kind.rows(settings, network, lab.p4runtime))
        embedded_lab.refresh(tables, settings, lifecycle)
        source = generator()
        published = _deliver(spark, settings, lifecycle, kind, source)
        status = lab.settle()
        log.info("comparing what the hosts received with what they were owed")
        outcome = Outcome(spark, settings, kind, tables, network, published, folder, status)
        summary = outcome.write(time.monotonic() - began)
    return 0 if outcome.exact(summary) else 1


def _deliver(
    spark: SparkSession, settings: Settings, lifecycle: Lifecycle, kind: Kind, source: Path
) -> Published:
    """Publish the records and let the stream deliver it; returns when the topic is drained."""
    stop = StopRequest()

    def work() -> Published:
        return kind.publish(settings, source, stop)

    # The topic must be there before the stream looks for it.
    kind.publish(settings, None, stop)
    query, delivery = micro_batches.start(spark, settings, lifecycle)
    publishing = embedded_lab.beside(work)
    topics = Topics(spark, settings)

    @cache
    def ends() -> dict[int, int]:
        return topics.end_offsets()

    def drained() -> bool:
        if not publishing.done():
            return False
        publishing.result()
        return all(delivery.processed.get(p, 0) >= end for p, end in ends().items())

    try:
        lifecycle.run(query, finished=drained)
    finally:
        stop.set()
        delivery.close()
    published = publishing.result()
    log.info("topic %s is drained: %d packets", settings.topic, published.packets)
    return published


class Outcome:
    """What a run came to: proved, counted, and written down."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        kind: Kind,
        tables: Tables,
        network: Network,
        published: Published,
        folder: Path,
        status: Mapping[str, Any],
    ) -> None:
        self._settings = settings
        self._network = network
        self._published = published
        self._folder = folder
        self._status = status
        self._tables = tables
        self._specification = formats.specification_of(settings, tables)
        recorded = RecordedBatches(settings, tables, kind, self._specification)
        self._read = recorded.read
        self._ledger = recorded.ledger
        self._batches = recorded.batches
        self._records = Topics(spark, settings).read_all()
        self._expected = verification.expected(
            self._records, self._batches, self._specification, settings.topic, read=self._read
        )
        received = receipts(folder)
        self._compared = verification.compare(self._expected, received)

    def write(self, seconds: float) -> dict[str, Any]:
        """Print the table, write report.json and report.html; returns the summary."""
        compared, expected = self._compared, self._expected
        link_bytes = sum(self._status["link_bytes"].values())
        summary: dict[str, Any] = {
            "messages_in": sum(row["messages"] for row in self._ledger),
            "messages_matched": sum(row["matched"] for row in self._ledger),
            "frames_sent": sum(row["frames"] for row in self._ledger),
            "deliveries_expected": compared.expected,
            "deliveries_received": compared.received,
            "missing": compared.missing,
            "extra": compared.extra,
            "duplicates": compared.duplicates,
            "out_of_order": compared.out_of_order,
            "misnumbered": compared.misnumbered,
            "dead_letters": sum(row["dead_letters"] for row in self._ledger),
            "link_bytes": link_bytes,
            "unicast_bytes": verification.unicast_bytes(
                self._network, self._settings.publisher, expected
            ),
            "broadcast_bytes": verification.broadcast_bytes(self._network, expected),
            "batches": len(self._ledger),
            "seconds": round(seconds, 1),
            "messages_published": self._published.messages,
            "records_unprocessed": expected.unprocessed,
        }
        page.print_table(summary, compared.rows())
        page.write_json(self._folder / "report.json", summary)
        page.write_html(self._folder / "report.html", self._page(summary))
        print(f"report: {self._folder / 'report.html'}")
        return summary

    def exact(self, summary: Mapping[str, Any]) -> bool:
        """True if all messages went in and every delivery was as owed."""
        return (
            self._compared.exact
            and summary["records_unprocessed"] == 0
            and summary["messages_matched"] == self._expected.messages_matched
            and summary["messages_in"] == self._expected.messages_in
            and summary["dead_letters"] == self._expected.dead_letters.total()
        )

    def _page(self, summary: dict[str, Any]) -> page.ReportData:
        showcase = Showcase(
            self._network,
            broadcast_trees(self._network),
            self._specification,
            self._settings.publisher,
            self._settings.max_labels,
            self._read,
            self._batches[-1].registry if self._batches else None,
        )
        rules = self._batches[-1].rules if self._batches else []
        return page.ReportData(
            summary=summary,
            hosts=self._compared.rows(),
            batches=[
                {
                    "batch_id": row["batch_id"],
                    "rows": row["packets"],
                    "seconds": round(row["seconds"], 3),
                    "versions": dict(row["versions"]),
                }
                for row in self._ledger
            ],
            **drawing(self._network),
            subscriptions=[
                {"id": r["id"], "host": r["subscriber"], "filter": r["filter"]}
                for r in self._tables.rows("subscriptions")
                if r["enabled"]
            ],
            notifications=showcase.notifications(self._records, rules),
        )
