"""Replays of the record under every strategy, in parallel on the executors."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.runtime.clock import Event
from stackcast.jobs.adapters.runtime.engine import Engine
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
    engine: Engine,
    names: Sequence[str],
    situation: Situation,
    budget: Mapping[str, int],
    record: Record,
    seconds: float,
    stopping: StopRequest,
) -> Iterator[StrategyResult]:
    """Yield the result of each strategy as soon as its Spark job ends, which has one task.

    A task needs the memory of one strategy, whatever executor it is on.

    Args:
        spark: session that runs the jobs.
        engine: broadcasts the record, and has the threads that wait for the jobs.
        names: names of the strategies.
        situation: what the strategies choose trees for.
        budget: number of trees that each switch can store.
        record: publications that are replayed.
        seconds: time after which a job is cancelled, with its Python worker; the result of its
            strategy is then an error.
        stopping: cancels all jobs.
    """
    context = spark.sparkContext
    run = uuid.uuid4().hex
    # Each task reads a copy of its own, which it may change.
    inputs = engine.broadcast(pickle.dumps((list(names), situation, dict(budget), record)))

    # A function of its own is sent along: nodes need `udfs` and nothing of jobs.
    def work(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415

        names, situation, budget, record = pickle.loads(inputs.value)
        known = strategies_for(situation.network.labels)
        for frame in frames:
            for number in frame["id"]:
                outcome = evaluate(known[names[number]], situation, budget, record)
                yield pd.DataFrame({"outcome": [pickle.dumps(outcome)]})

    def ask(number: int) -> StrategyResult:
        frame = spark.range(number, number + 1, 1, 1).mapInPandas(work, "outcome binary")
        tag = f"retune-{run}-{number}"
        with _cancelled_after(context, engine, seconds, tag, stopping) as late:
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

    # A job that waits for its turn must not be taken for a slow one.
    parallel = max(1, min(len(names), context.defaultParallelism))
    worker = engine.worker("retune", parallel)
    try:
        pending = [worker.submit(ask, number) for number in range(len(names))]
        while pending:
            engine.wait(pending)
            ended = [future for future in pending if future.done()]
            pending = [future for future in pending if not future.done()]
            yield from (future.result() for future in ended)
    finally:
        worker.close()
        inputs.destroy()


@contextmanager
def _cancelled_after(
    context: SparkContext, engine: Engine, seconds: float, tag: str, stopping: StopRequest
) -> Iterator[Event]:
    """Cancel the jobs of the block after this time, or after a request to stop.

    Yields:
        An event that is set when they are cancelled.
    """
    clock = engine.clock
    deadline, late = clock.monotonic() + seconds, clock.event()

    def cancel_if_due() -> float:
        remaining = deadline - clock.monotonic()
        if stopping.is_set() or remaining <= 0:
            late.set()
            # Repeated, because the job may not have begun yet.
            context.cancelJobsWithTag(tag)
            return _AGAIN_SECONDS
        return min(_AGAIN_SECONDS, remaining)

    context.addJobTag(tag)
    watch = engine.poll(tag, cancel_if_due)
    try:
        yield late
    finally:
        watch.close()
        context.removeJobTag(tag)
