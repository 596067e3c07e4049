"""Ways through Spark, each an application of its own (`program`).

    python -m benchmarks.pipeline.spark_program FILE     its options, pickled

delivering   the stream of the main job
counting     ``mapInArrow`` that only counts the same records
frozen       the same, with ``gc.freeze`` once in a worker
join         our stream's source and frames, with a join of Spark's in place of the matcher
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQuery

from benchmarks.pipeline import join, stream
from benchmarks.pipeline.program import Look, Order, Program, own_output, sending
from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.running_stream import RunningStream
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.stream import spark_stream
from stackcast.jobs.adapters.stream.slices import Slices

#: Batches of a pass before those that count.
WARM = 2
#: Seconds between two looks at the progress of a query.
LOOK = 0.2


class SparkProgram(Program):
    """A pass is a query with a checkpoint of its own, in an application that goes on."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        place = tempfile.mkdtemp(prefix="way-", dir=options["folder"])
        properties = {"spark.sql.warehouse.dir": f"{place}/warehouse"} | options["spark"]
        told = " ".join(f"--conf '{key}={value}'" for key, value in properties.items())
        if options["as_spark_comes"]:
            # Where a file is named, Spark reads none of conf/.
            empty = Path(place, "none.conf")
            empty.touch()
            told = f"--properties-file {empty} {told}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{told} pyspark-shell"
        self._spark = session.start(f"stackcast bench {options['way']}")
        self._settings = options["settings"]
        self._place = place
        self._interface = options["interface"]
        ways: dict[str, Callable[[Settings, Noted], None]] = {
            "delivering": self._deliver,
            "counting": partial(self._pass, stream.counting(False)),
            "frozen": partial(self._pass, stream.counting(True)),
            "join": partial(self._join, options["plan"]),
        }
        self._way = ways[options["way"]]
        # Its batches would take ten seconds.
        self._slower = 5 if options["way"] == "join" else 1

    def read(self, order: Order, number: int) -> None:
        most = records_a_batch(order.records) // self._slower
        settings = replace(
            self._settings,
            topic=order.topic,
            dead_letter_topic=f"{order.topic}.dead",
            checkpoint=tempfile.mkdtemp(prefix="checkpoint-", dir=self._place),
            max_offsets_per_trigger=most,
        )
        settings = sending(settings, order.work, self._interface)
        before = self.seen.records
        end = order.records if order.once else order.records - most
        ends: set[int] = set()

        def noted(records: int, ended: float) -> bool:
            if records:
                ends.add(records)
                if records >= end:
                    self.seen = Look(0, before + records, time.time())
                    return True
                turn = number if len(ends) > WARM else 0
                self.seen = Look(turn, before + records, ended)
            return self.halting.is_set()

        self._way(settings, noted)

    def _deliver(self, settings: Settings, noted: Noted) -> None:
        lifecycle = Lifecycle()
        query, delivery = spark_stream.start(self._spark, settings, lifecycle)

        def done() -> bool:
            if isinstance(query, Slices):
                time.sleep(LOOK)
                return noted(sum(delivery.recorder.processed.values()), time.time())
            return noted(*_progress(query))

        try:
            lifecycle.run(query, done)
        finally:
            delivery.close()

    def _pass(self, work: stream.Pass, settings: Settings, noted: Noted) -> None:
        query = stream.start_pass(self._spark, settings, work, "records long", foreach=False)
        _until(query, noted)

    def _join(self, plan: str, settings: Settings, noted: Noted) -> None:
        with Path(plan).open("rb") as file:
            held, steps = pickle.load(file)
        _until(join.start(self._spark, settings, held, steps), noted)


#: Is told how many records of the topic are done, and since when (s since 1970); says whether to
#: end.
Noted = Callable[[int, float], bool]


def _progress(query: RunningStream) -> tuple[int, float]:
    time.sleep(LOOK)
    progress = query.lastProgress
    if progress is None:
        return 0, 0.0
    return stream.committed(progress.json), stream.ended(json.loads(progress.json))


def _until(query: StreamingQuery, noted: Noted) -> None:
    try:
        while not noted(*_progress(query)):
            if (error := query.exception()) is not None:
                raise error
    finally:
        query.stop()


def records_a_batch(records: int) -> int:
    """Most records of a micro-batch, of a topic of so many: a dozen batches at least."""
    return max(1_000, min(400_000, records // 12))


if __name__ == "__main__":
    answers = own_output()
    SparkProgram(pickle.loads(Path(sys.argv[1]).read_bytes())).serve(answers)
