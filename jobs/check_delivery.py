"""Prove from what the hosts wrote down that nothing was lost, changed or sent astray.

    spark-submit [--properties-file conf/X.conf] jobs/check_delivery.py FOLDER [--since BATCH]
        [--any-order]

FOLDER has a folder `receipts`, or is one, with a file `<host>.mold` for each host, as the lab's.
They are held against the topic, `egress_ledger`, and the tables at the versions of each of its
rows; `lab.proof.checking` says what is proved. Stop the stream before, or let it catch up.

--since BATCH  look at this batch and later ones alone
--any-order    a network that loses frames was repaired since: order and copies do not count

Exit code 0 proved, 1 not, 2 an error.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.adapters.app import application, session
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning import formats
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.tables.tables import Tables
from jobs.embedded.kinds import SensorRun, SessionRun
from jobs.embedded.recorded_batches import RecordedBatches
from lab.proof import verification
from lab.proof.checking import DeliveryVerdict, check_ledger, check_receipts
from lab.proof.receipts import Receipt, receipts
from udfs.errors import printable
from udfs.messages.attributes.registry import FORMAT as ATTRIBUTES


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="check_delivery", description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--since", type=int, default=0, metavar="BATCH")
    parser.add_argument("--any-order", action="store_true")
    options = parser.parse_args(arguments)
    return application.run(partial(work, options))


def work(options: argparse.Namespace, settings: Settings, _lifecycle: Lifecycle) -> int:
    if settings.format == ATTRIBUTES:
        settings = formats.of_settings(settings, ATTRIBUTES)
    spark = session.start("stackcast check_delivery")
    verdict = prove(spark, settings, options.folder, options.since, not options.any_order)
    tell(verdict)
    return 0 if verdict.proved else 1


def tell(verdict: DeliveryVerdict) -> None:
    """Prints what was looked at, and the first faults."""
    for line in verdict.lines():
        print(printable(line))


def prove(
    spark: SparkSession, settings: Settings, folder: Path, since: int = 0, ordered: bool = True
) -> DeliveryVerdict:
    """The verdict on the receipts in a folder.

    Raises LabError NO_RECEIPTS, TRUNCATED_RECEIPTS, KafkaError, TableError, and Spark's errors
    where Delta lacks a version that a batch used.
    """
    received = receipts(folder.parent if folder.name == "receipts" else folder)
    return Evidence(spark, settings).verdict(received, since, ordered)


class Evidence:
    """Things that receipts are held against: topic, ledger, and the tables of each of its rows."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._settings = settings
        tables = Tables(spark, settings.tables)
        topics = Topics(spark, settings)
        topics.wait()
        specification = formats.specification_of(settings, tables)
        kind = SensorRun() if settings.format == ATTRIBUTES else SessionRun()
        made = RecordedBatches(settings, tables, kind, specification)
        records = topics.read_all()
        made.told = topics.publishers
        self._recorded = made.recorded
        self._expectation = verification.expected(
            records, made.batches, specification, settings.topic, read=made.read
        )
        self._offsets: dict[int, list[int]] = defaultdict(list)
        for partition, offset, _ in sorted(records, key=lambda record: record[:2]):
            self._offsets[partition].append(offset)

    def verdict(
        self, received: Mapping[str, Sequence[Receipt]], since: int = 0, ordered: bool = True
    ) -> DeliveryVerdict:
        """Returns the verdict on what each host wrote down: `lab.proof.receipts.receipts`."""
        topic = self._settings.topic
        verdict = check_receipts(self._expectation, self._recorded, received, topic, since, ordered)
        from_start = self._settings.starting_offsets == "earliest"
        check_ledger(verdict, self._recorded, self._offsets, since, from_start)
        return verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
