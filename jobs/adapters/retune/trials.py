"""Replays of the record under every strategy, side by side on the executors."""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from jobs.adapters.app.error_texts import SQL_ERRORS
from udfs.retuning.comparison import Record, StrategyResult, evaluate
from udfs.trees.strategies.registry import STRATEGIES
from udfs.trees.strategies.strategy import Situation

if TYPE_CHECKING:
    import pandas as pd

#: How often a job that took too long is cancelled, until it is gone.
_AGAIN_SECONDS = 1.0


def compare(
    spark: SparkSession,
    names: Sequence[str],
    situation: Situation,
    budget: Mapping[str, int],
    record: Record,
    seconds: float,
) -> Iterator[StrategyResult]:
    """Yields the result of each strategy, as they come: one job of Spark a strategy, of one task.

    A task needs the memory of one strategy, whatever executor it is on. One that takes longer than
    ``seconds`` is cancelled, with its Python worker; the outcome has an error then.
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
        for frame in frames:
            for number in frame["id"]:
                outcome = evaluate(STRATEGIES[names[number]], situation, budget, record)
                yield pd.DataFrame({"outcome": [pickle.dumps(outcome)]})

    def ask(number: int) -> StrategyResult:
        frame = spark.range(number, number + 1, 1, 1).mapInPandas(work, "outcome binary")
        with _cancelled_after(context, seconds, f"retune-{run}-{number}") as late:
            try:
                (row,) = frame.toArrow().to_pylist()
            except SQL_ERRORS:
                if not late.is_set():
                    raise
                return StrategyResult(
                    names[number],
                    error=f"it took longer than {seconds:g} s (--strategy-seconds)",
                    seconds=seconds,
                )
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
def _cancelled_after(context: SparkContext, seconds: float, tag: str) -> Iterator[threading.Event]:
    """Cancels jobs of the block that run after so long; the event says that it was so long."""
    done, late = threading.Event(), threading.Event()

    def watch() -> None:
        if not done.wait(seconds):
            late.set()
            # Again and again, as the job may not have begun yet.
            while True:
                context.cancelJobsWithTag(tag)
                if done.wait(_AGAIN_SECONDS):
                    return

    context.addJobTag(tag)
    watcher = threading.Thread(target=watch, name=tag, daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        done.set()
        watcher.join()
        context.removeJobTag(tag)
