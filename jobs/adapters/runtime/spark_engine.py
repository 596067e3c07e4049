"""The engine of production: tasks, broadcasts and executors of Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

from pyspark import RDD, Broadcast, SparkContext
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.runtime.threads import SystemThreads

T = TypeVar("T")

#: Jobs that run at the same time: a slice, and the slice that waits for its end.
_PARALLEL_JOBS = 2


class SparkEngine(SystemThreads):
    """An engine on a Spark session.

    Args:
        spark: session whose executors run the tasks.
        clock: clock of the driver.
    """

    def __init__(self, spark: SparkSession, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(clock)
        self._spark = spark
        self._jobs = ThreadPoolExecutor(_PARALLEL_JOBS, thread_name_prefix="job")

    def run(self, work: Callable[[int], T], count: int) -> list[T]:
        """Run tasks; see `Engine.run`.

        From the last task of one call to the first task of the next call it takes 25 ms, a third of
        the time of a job of a DataFrame.
        """

        def run_partition(numbers: Iterator[int]) -> Iterator[T]:
            return map(work, numbers)

        tasks = _numbers(self._spark.sparkContext, count)
        results: list[T] = tasks.mapPartitions(run_partition).collect()
        return results

    def submit(self, work: Callable[[int], T], count: int) -> Future[list[T]]:
        return self._jobs.submit(self.run, work, count)

    def broadcast(self, value: Any) -> Broadcast[Any]:
        """Send a value to all executors once.

        If Spark encrypts its files, pyspark writes a broadcast in chunks, and fails on buffers such
        as those of large numpy arrays. Pickled bytes do not have this fault. The driver cannot read
        such a value from its handle.
        """
        context: SparkContext = self._spark.sparkContext
        encrypted = getattr(context, "_encryption_enabled", False)
        return context.broadcast(_Packed(value) if encrypted else value)

    def close(self) -> None:
        self._jobs.shutdown(wait=True)

    def single_host(self) -> bool:
        context: Any = self._spark.sparkContext._jsc.sc()
        drivers = 0 if context.isLocal() else 1
        return len(context.statusTracker().getExecutorInfos()) == drivers + 1


class _Packed:
    """A value that is pickled as a call of ``pickle.loads``, so a task gets the value itself."""

    def __init__(self, value: Any) -> None:
        self._pickled = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._pickled,)


@lru_cache(maxsize=4)
def _numbers(context: SparkContext, count: int) -> RDD[int]:
    return context.parallelize(range(count), max(1, count))
