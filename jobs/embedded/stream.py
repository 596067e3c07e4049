"""The embedded default: one whole run of a stream on this machine, proved at its end.

Publishes records, lets the ordinary stream deliver them, compares what the hosts received with what
they were owed, and writes the report.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
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
from jobs.embedded.kinds import RunKind, in_background
from jobs.embedded.lab import RunningLab, bring_up
from jobs.embedded.proof import RunProof, shown_subscriptions
from jobs.embedded.recorded_batches import RecordedBatches
from lab.proof import verification
from lab.proof.receipts import receipts
from lab.report.showcase import Showcase
from lab.traffic.publisher import Published
from udfs.network.network import Network
from udfs.stop_request import StopRequest
from udfs.trees.broadcast import broadcast_trees

log = logging.getLogger("stackcast.lab")


def run(settings: Settings, lifecycle: Lifecycle, kind: RunKind) -> int:
    """Delivers the records of ``kind`` once, on the embedded lab.

    Returns the exit code: 0 only if every message went in and every delivery was exact.
    """
    began = time.monotonic()
    with bring_up(settings, lifecycle, kind) as up:
        published = _deliver(up, lifecycle, kind)
        proof = StreamProof(
            up.spark,
            up.settings,
            kind,
            up.tables,
            up.lab.network,
            published,
            up.lab.folder,
            up.settle(),
        )
        proof.write(time.monotonic() - began)
    return 0 if proof.exact else 1


def _deliver(up: RunningLab, lifecycle: Lifecycle, kind: RunKind) -> Published:
    """Publishes the records and lets the stream deliver them; returns when the topic is drained."""
    settings, stop = up.settings, StopRequest()

    # The topic must be there before the stream looks for it.
    kind.publish(settings, None, stop)
    log.info("starting the stream: it waits for its plan and its workers")
    query, delivery = micro_batches.start(up.spark, settings, lifecycle)
    log.info("publishing to topic %s", settings.topic)
    publishing = in_background(lambda: kind.publish(settings, up.source, stop))
    topics = Topics(up.spark, settings)

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
        log.info("the stream has ended; waiting for its ledger and tables to be written")
        delivery.close()
    published = publishing.result()
    log.info("topic %s is drained: %d packets", settings.topic, published.packets)
    return published


class StreamProof(RunProof):
    """The proof of a run of the stream, by the topic, the ledger and the hosts' receipts."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        kind: RunKind,
        tables: Tables,
        network: Network,
        published: Published,
        folder: Path,
        status: Mapping[str, Any],
    ) -> None:
        self._published = published
        self._tables = tables
        self._specification = formats.specification_of(settings, tables)
        self._recorded = RecordedBatches(settings, tables, kind, self._specification)
        self._records = Topics(spark, settings).read_all()
        expected = verification.expected(
            self._records,
            self._recorded.batches,
            self._specification,
            settings.topic,
            read=self._recorded.read,
        )
        compared = verification.compare(expected, receipts(folder))
        super().__init__(settings, network, folder, status, expected, compared)

    @property
    def exact(self) -> bool:
        expected = self._expected
        return (
            self._compared.exact
            and expected.unprocessed == 0
            and self._total("matched") == expected.messages_matched
            and self._total("messages") == expected.messages_in
            and self._total("dead_letters") == expected.dead_letters.total()
        )

    def _total(self, column: str) -> int:
        """Over all batches of the ledger."""
        return sum(row[column] for row in self._recorded.ledger)

    def _figures(self) -> dict[str, Any]:
        return {
            "messages_in": self._total("messages"),
            "messages_matched": self._total("matched"),
            "frames_sent": self._total("frames"),
            "dead_letters": self._total("dead_letters"),
            "batches": len(self._recorded.ledger),
            "messages_published": self._published.messages,
            "records_unprocessed": self._expected.unprocessed,
        }

    def _samples(self) -> dict[str, Any]:
        batches = self._recorded.batches
        newest = batches[-1] if batches else verification.Batch(0, {}, [])
        showcase = Showcase(
            self._network,
            broadcast_trees(self._network),
            self._specification,
            self._settings.publisher,
            self._settings.max_labels,
            lambda record, _: self._recorded.read(record, newest),
            newest.registry,
        )
        return {
            "subscriptions": shown_subscriptions(self._tables.rows("subscriptions")),
            "notifications": showcase.notifications(self._records, newest.rules),
            "batches": [
                {
                    "batch_id": row["batch_id"],
                    "rows": row["packets"],
                    "seconds": round(row["seconds"], 3),
                    "versions": dict(row["versions"]),
                }
                for row in self._recorded.ledger
            ],
        }
