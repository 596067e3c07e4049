"""Replays of the record under every strategy, side by side on the executors."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.udfs.retuning.comparison import Record, StrategyResult, evaluate
from stackcast.udfs.stop_request import StopRequest
from stackcast.udfs.trees.strategies.registry import strategies_for
from stackcast.udfs.trees.strategies.strategy import Situation

if TYPE_CHECKING:
    import pandas as pd

#: How often a job that took too long is cancelled, until it is gone, and a request to stop noticed.
_AGAIN_SECONDS = 1.0


def compare(
    spark: SparkSession,
    names: Sequence[str],
    situation: Situation,
    budget: Mapping[str, int],
    record: Record,
    seconds: float,
    stopping: StopRequest,
) -> Iterator[StrategyResult]:
    """Yields the result of each strategy, as they come: one job of Spark a strategy, of one task.

    A task needs the memory of one strategy, whatever executor it is on. One that takes longer than
    ``seconds`` is cancelled, with its Python worker; the outcome has an error then. So are all
    after a request to stop.
    """
    context = spark.sparkContext
    run = uuid.uuid4().hex
    given = spark.sparkContext.broadcast(
        pickle.dumps((list(names), situation, dict(budget), record))
    )

    # A function of its own is sent along: nodes need `udfs` and nothing of jobs.
    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415

        names, situation, budget, record = pickle.loads(given.value)
        known = strategies_for(situation.network.labels)
        for frame in frames:
            for number in frame["id"]:
                outcome = evaluate(known[names[number]], situation, budget, record)
                yield pd.DataFrame({"outcome": [pickle.dumps(outcome)]})

    def ask(number: int) -> StrategyResult:
        frame = spark.range(number, number + 1, 1, 1).mapInPandas(work, "outcome binary")
        tag = f"retune-{run}-{number}"
        with _cancelled_after(context, seconds, tag, stopping) as late:
            try:
                (row,) = frame.toArrow().to_pylist()
            except SQL_ERRORS:
                if not late.is_set():
                    raise
                why = f"it took longer than {seconds:g} s (--strategy-seconds)"
                if stopping.is_set():
                    why = "a stop of the retuning was requested"
                return StrategyResult(names[number], error=why, seconds=seconds)
        outcome: StrategyResult = pickle.loads(row["outcome"])
        return outcome

    try:
        # No more at once than run at once: who waits for its turn is not slow.
        workers = max(1, min(len(names), context.defaultParallelism))
        with ThreadPoolExecutor(workers) as pool:
            waiting = [pool.submit(ask, number) for number in range(len(names))]
            for future in as_completed(waiting):
                yield future.result()
    finally:
        given.unpersist()


@contextmanager
def _cancelled_after(
    context: SparkContext, seconds: float, tag: str, stopping: StopRequest
) -> Iterator[threading.Event]:
    """Cancels jobs of the block that run after so long, or after a request to stop; the event says
    that it came to that."""
    done, late = threading.Event(), threading.Event()

    def watch() -> None:
        end = time.monotonic() + seconds
        while not done.is_set():
            if stopping.is_set() or time.monotonic() >= end:
                late.set()
                # Again and again, as the job may not have begun yet.
                context.cancelJobsWithTag(tag)
                left = _AGAIN_SECONDS
            else:
                left = min(_AGAIN_SECONDS, end - time.monotonic())
            done.wait(max(0.0, left))

    context.addJobTag(tag)
    watcher = threading.Thread(target=watch, name=tag, daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        done.set()
        watcher.join()
        context.removeJobTag(tag)
