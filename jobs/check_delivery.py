"""Prove from the receipts of the hosts that no event was lost, changed or sent to a wrong host.

    spark-submit [--properties-file conf/X.conf] jobs/check_delivery.py FOLDER [--since BATCH]
        [--any-order] [--window RECORDS]

FOLDER has a folder `receipts`, or is one, with a file `<host>.mold` for each host, like the folder
of a lab. The job compares the receipts with the topic, with `egress_ledger`, and with the tables at
the versions in each row of the ledger; stackcast.lab.proof.checking describes what it proves.
Before the check, stop the stream, or wait until it has delivered all records.

The job sorts receipts by window in the system's folder for temporary files (TMPDIR), which needs as
much space as the receipts.

The exit code is 0 if correct delivery is proved, 1 if it is not, and 2 after an error.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from stackcast.jobs.command_lines.check_delivery import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.replay.replay import records_gone
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.embedded.kinds import SensorRun, SessionRun
from stackcast.jobs.embedded.recorded_batches import RecordedBatches
from stackcast.lab.proof import verification
from stackcast.lab.proof.checking import WINDOW, check_receipts
from stackcast.lab.proof.ledger import Offsets, check_ledger
from stackcast.lab.proof.receipts import Receipt, receipt_streams
from stackcast.lab.proof.recorded import Window, with_state
from stackcast.lab.proof.timeline import Timeline
from stackcast.lab.proof.verdict import DeliveryVerdict
from stackcast.udfs.errors import SettingsError, printable
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES

#: Each window is a query with consumers of its own, which Spark keeps for five minutes with what
#: they fetched last: at some windows a second they would fill its memory.
_FORGET_CONSUMERS = {
    f"spark.kafka.consumer.{what}.{when}": "1s"
    for what in ("cache", "fetchedData.cache")
    for when in ("timeout", "evictorThreadRunInterval")
}


def main(arguments: list[str]) -> int:
    options = parser(__doc__).parse_args(arguments)
    return application.run(partial(work, options))


def work(options: argparse.Namespace, settings: Settings, _lifecycle: Lifecycle) -> int:
    if settings.format == ATTRIBUTES:
        settings = formats.of_settings(settings, ATTRIBUTES)
    if settings.match == "network" and not settings.summary_port:
        raise SettingsError(
            "MATCHED_IN_NETWORK",
            "with spark.stackcast.match=network and no summaries no stream runs beside the events, "
            "so no ledger to hold receipts against: 'stackcast receive' says what a host got",
        )
    folder = options.folder
    received = receipt_streams(folder.parent if folder.name == "receipts" else folder)
    spark = session.start("stackcast check_delivery", _FORGET_CONSUMERS)
    verdict = Evidence(spark, settings).verdict(
        received, options.since, not options.any_order, options.window
    )
    tell(verdict)
    return 0 if verdict.proved else 1


def tell(verdict: DeliveryVerdict) -> None:
    """Prints what was looked at, and the first faults."""
    for line in verdict.lines():
        print(printable(line))


class Evidence:
    """Things that receipts are held against: topic, ledger, and the tables of each of its rows."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._settings = settings
        tables = open_tables(spark, settings.tables)
        self._topics = Topics(spark, settings)
        self._topics.wait()
        self._specification = specification_of(settings, tables)
        kind = SensorRun() if settings.format == ATTRIBUTES else SessionRun()
        self._made = RecordedBatches(settings, tables, kind, self._specification)

    def verdict(
        self,
        received: Mapping[str, Iterable[Receipt]],
        since: int = 0,
        ordered: bool = True,
        window: int = WINDOW,
    ) -> DeliveryVerdict:
        """Returns the verdict on what each host wrote down:
        `stackcast.lab.proof.receipts.receipt_streams`.

        Raises LabError TRUNCATED_RECEIPTS, KafkaError, TableError, ReplayError RECORDS_GONE if
        rules keep state and records are gone, and Spark's errors if Delta no longer has a version
        that a batch used.
        """
        recorded, topic = self._made.recorded, self._made.topic
        stateful = with_state(recorded, since)
        spans = self._topics.spans()
        held = self._offsets(spans, 0 if stateful else since)
        for one in stateful:
            for partition, (start, until) in one.batch.offsets.items():
                left = held[partition].count(start, until) if partition in held else 0
                self._check(partition, start, until, left, one.records[partition])
        timelines: dict[int, Timeline] = defaultdict(lambda: Timeline(self._specification))

        def expect(each: Window) -> verification.Expectation:
            first, end = spans.get(each.partition, (0, 0))
            start, until = max(first, each.start), min(end, each.until)
            records = self._topics.read_records(each.partition, start, until)
            if stateful and each.partition in held:
                # Kafka may have removed some in the meantime.
                count = held[each.partition].count(start, until)
                self._check(each.partition, start, until, len(records), count)
            self._made.told = self._topics.publishers
            return verification.expected(
                records,
                each.batches(),
                self._specification,
                topic,
                read=self._made.read,
                timeline=timelines[each.partition],
                count=False,
            )

        received = {host: self._of_topic(receipts) for host, receipts in received.items()}
        pruned = self._settings.match == "network"
        verdict = check_receipts(expect, recorded, received, topic, since, ordered, window, pruned)
        from_start = self._settings.starting_offsets == "earliest" and not topic.generation
        check_ledger(verdict, recorded, held, since, from_start)
        return verdict

    def _check(self, partition: int, start: int, until: int, left: int, count: int) -> None:
        """Checks that no record is gone of those that rules with state have read.

        Args:
            partition: partition of the topic.
            start: first offset of the records.
            until: offset after the last one.
            left: number of records that are left.
            count: number of records that there were.
        """
        if left < count:
            there = self._topics.spans().get(partition, (until, until))
            raise records_gone(self._settings.topic, partition, start, until, there, (left, count))

    def _of_topic(self, receipts: Iterable[Receipt]) -> Iterator[Receipt]:
        """Leaves out what hosts got before the topic was created again, or its log truncated."""
        return (each for each in receipts if each.session not in self._made.earlier)

    def _offsets(self, spans: Mapping[int, tuple[int, int]], since: int) -> dict[int, Offsets]:
        """The offsets that the topic has, from what a batch took on."""
        begin: dict[int, int] = {}
        ends: dict[int, int] = defaultdict(int)
        for one in self._made.recorded:
            for partition, (start, until) in one.batch.offsets.items():
                if one.batch.batch_id >= since:
                    first = min(start, ends[partition])
                    begin[partition] = min(first, begin.get(partition, first))
                ends[partition] = max(until, ends[partition])
        wanted = {
            partition: (max(first, begin.get(partition, ends[partition])), end)
            for partition, (first, end) in spans.items()
        }
        runs = self._topics.runs({p: span for p, span in wanted.items() if span[0] < span[1]})
        return {p: Offsets(runs.get(p, ()), first) for p, (first, _) in spans.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
