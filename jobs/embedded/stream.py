"""The embedded default: one whole run of a stream on this machine, proved at its end.

Publishes records, lets the ordinary stream deliver them, compares what the hosts received with what
they were owed, and writes the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.jobs.adapters.stream import spark_stream
from stackcast.jobs.adapters.stream.delivery import BatchDelivery
from stackcast.jobs.adapters.stream.slices import Slices
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.embedded.kinds import RunKind
from stackcast.jobs.embedded.lab import RunningLab, bring_up
from stackcast.jobs.embedded.progress import Parts, Progress
from stackcast.jobs.embedded.proof import RunProof, shown_subscriptions
from stackcast.jobs.embedded.recorded_batches import RecordedBatches
from stackcast.lab.proof import latency, verification
from stackcast.lab.proof.receipts import receipts
from stackcast.lab.proof.rule_matches import Place
from stackcast.lab.report.showcase import Showcase
from stackcast.lab.traffic.publisher import Published
from stackcast.udfs.messages.sequence import session_id
from stackcast.udfs.network.network import Network
from stackcast.udfs.stop_request import StopRequest
from stackcast.udfs.trees.publisher_trees import first_trees

#: Latencies are also reported without those of the first seconds of a session.
WARM_SECONDS = 1.0
T = TypeVar("T")


def run(settings: Settings, lifecycle: Lifecycle, kind: RunKind, progress: Progress) -> int:
    """Delivers the records of ``kind`` once, on the embedded lab.

    Returns the exit code: 0 only if every message went in and every delivery was exact.
    """
    progress.parts = Parts()
    with bring_up(settings, lifecycle, kind, progress) as up:
        published, mode = _deliver(up, lifecycle, kind, progress)
        progress.parts.begin("verification")
        with progress.stage(
            "comparing received with expected deliveries",
            "compared received with expected deliveries",
        ):
            status = up.lab.settle()
            proof = StreamProof(
                up.spark,
                up.settings,
                kind,
                up.tables,
                up.lab.network,
                published,
                mode,
                up.lab.folder,
                status,
            )
        proof.write(progress.parts)
    return 0 if proof.exact else 1


def _deliver(
    up: RunningLab, lifecycle: Lifecycle, kind: RunKind, progress: Progress
) -> tuple[Published, str]:
    """Publishes the records and lets the stream deliver them."""

    def publish(stop: StopRequest, told: Callable[[int], None]) -> Published:
        return kind.publish(up.settings, up.source, stop, lambda sent: told(sent.packets))

    texts = "publishing records", "published records"
    return drain(up, lifecycle, kind, progress, texts, publish)


def drain(
    up: RunningLab,
    lifecycle: Lifecycle,
    kind: RunKind,
    progress: Progress,
    texts: tuple[str, str],
    publish: Callable[[StopRequest, Callable[[int], None]], T],
) -> tuple[T, str]:
    """Have records published once the stream is ready, and run it until it has read all of them.

    Args:
        up: the lab, whose topic is empty.
        lifecycle: lifecycle of the job.
        kind: kind of the run; creates the topic.
        progress: shows the stages.
        texts: what the stage that publishes the records is doing, and has done at its end.
        publish: publishes the records; gets a request to stop, and a function to call now and then
            with the number of records so far.

    Returns:
        What ``publish`` has returned, and the mode of the stream.
    """
    settings, stop = up.settings, StopRequest()

    # The topic must be there before the stream looks for it.
    kind.publish(settings, None, stop)
    progress.parts.begin("stream: plan, header stacks, workers")
    publishing_text, published_text = texts
    with ExitStack() as ending:
        with progress.stage("starting the stream", "started the stream"):
            query, delivery = spark_stream.start(up.spark, settings, lifecycle)
            # An interrupt may come at any time from here on.
            ending.callback(_close, delivery, progress)
        progress.parts.begin("publishing")
        stages = ending.enter_context(ExitStack())
        stage = stages.enter_context(progress.stage(*texts))
        ending.callback(stop.set)
        sent: list[int] = []
        ended: list[T] = []
        publishing = SYSTEM_THREADS.start("publish", publish, stop, sent.append)
        topics = Topics(up.spark, settings)

        @cache
        def ends() -> dict[int, int]:
            return topics.end_offsets()

        def drained() -> bool:
            nonlocal stage
            done = sum(delivery.recorder.processed.values())
            if not publishing.done():
                if sent:
                    stage.text = f"{publishing_text}: {sent[-1]:,}"
                    stage.finished = f"{published_text}: {sent[-1]:,}"
                progress.count(stage, 0, 0)
                return False
            if not ended:
                ended.append(publishing.result())
                progress.parts.begin("remaining deliveries")
                stages.close()
                stage = stages.enter_context(
                    progress.stage("delivering records", "delivered records")
                )
            progress.count(stage, done, sum(ends().values()))
            return all(delivery.recorder.processed.get(p, 0) >= end for p, end in ends().items())

        lifecycle.run(query, drained, delivery.last_batch.check)
        delivery.flush_summaries()
    return publishing.result(), "realtime" if isinstance(query, Slices) else "microbatch"


def _close(delivery: BatchDelivery, progress: Progress) -> None:
    with progress.stage("writing ledger and tables", "wrote ledger and tables"):
        delivery.close()


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
        mode: str,
        folder: Path,
        status: Mapping[str, Any],
    ) -> None:
        self._published = published
        self._mode = mode
        self._tables = tables
        self._specification = specification_of(settings, tables)
        self._recorded = RecordedBatches(settings, tables, kind, self._specification)
        topics = Topics(spark, settings)
        self._records, times = topics.read_timed()
        self._recorded.told = topics.publishers
        expected = verification.expected(
            self._records,
            self._recorded.batches,
            self._specification,
            self._recorded.topic,
            read=self._recorded.read,
        )
        received = receipts(folder)
        compared = verification.compare(expected, received)
        stamps = {
            (session_id(self._recorded.topic, partition), offset): time
            for (partition, offset, _), time in zip(self._records, times, strict=True)
        }
        arrived = latency.arrivals(folder, list(received))
        self._latencies = latency.latencies(received, arrived, stamps)
        later = latency.published_after(stamps, WARM_SECONDS)
        self._warm_latencies = latency.latencies(received, arrived, later)
        super().__init__(settings, kind.options, network, folder, status, expected, compared)

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

    def _sender(self, place: Place) -> str:
        """Whose a message is."""
        record = session_id(self._recorded.topic, place.partition), place.offset
        senders = self._expected.senders.get(record)
        return self._settings.publisher if senders is None else senders[place.message]

    def _total(self, column: str) -> int:
        """Over all batches of the ledger."""
        return sum(row[column] for row in self._recorded.ledger)

    def _figures(self) -> dict[str, Any]:
        times = {"mode": self._mode, **latency.summary(self._latencies)}
        if len(self._warm_latencies):
            times["after_first_second"] = latency.percentiles(self._warm_latencies)
        return {
            "messages_in": self._total("messages"),
            "messages_matched": self._total("matched"),
            "frames_sent": self._total("frames"),
            "dead_letters": self._total("dead_letters"),
            "batches": len(self._recorded.ledger),
            "messages_published": self._published.messages,
            "messages_per_second": round(
                self._published.messages / max(self._published.seconds, 1e-6)
            ),
            "records_unprocessed": self._expected.unprocessed,
            "latency": times,
        }

    def _samples(self) -> dict[str, Any]:
        batches = self._recorded.batches
        newest = batches[-1] if batches else verification.Batch(0, {}, [])
        showcase = Showcase(
            self._network,
            first_trees(self._network),
            self._specification,
            self._settings.publisher,
            self._settings.max_labels,
            lambda record, _: self._recorded.read(record, newest),
            newest.registry,
            self._sender,
        )
        return {
            "subscriptions": shown_subscriptions(
                self._tables.rows("subscriptions"), self._expected
            ),
            "notifications": showcase.notifications(self._records, newest.rules, self._expected),
            "batches": [
                {
                    "batch_id": row["batch_id"],
                    "rows": row["packets"],
                    "seconds": round(row["seconds"], 3),
                    "versions": dict(row["versions"]),
                }
                for row in self._recorded.ledger
                if row["packets"]
            ],
        }
