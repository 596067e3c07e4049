"""Loading of kernels and plan into the workers before the first batch."""

from __future__ import annotations

import logging
from concurrent.futures import Future

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads
from stackcast.udfs.columns import loaded, warmed_up
from stackcast.udfs.delivery.frame_headers import StacksHandle
from stackcast.udfs.delivery.plan import PlanHandle
from stackcast.udfs.messages.sequence import Topic

log = logging.getLogger(__name__)


def warm_up(
    spark: SparkSession, workers: int | None = None, threads: Threads = SYSTEM_THREADS
) -> Future[None]:
    """Load the kernels into workers in the background.

    If the cache (`NUMBA_CACHE_DIR`) does not contain them, the workers first compile them together,
    which takes two workers a minute.

    Args:
        spark: session whose executors run the workers.
        workers: number of workers; None for one per slot.
        threads: threads of the driver.

    Returns:
        A future that ends when all workers are ready. It raises no error, because a batch loads
        the kernels that its worker does not have.
    """

    def run() -> None:
        start = threads.clock.monotonic()
        try:
            tasks = workers or session.slots(spark)
            spark.range(0, tasks, 1, tasks).mapInArrow(warmed_up, "id long").collect()
            log.info("workers ready: %d, in %.2f s", tasks, threads.clock.monotonic() - start)
        except Exception as error:
            if session.ending.is_set():
                # The session has ended and canceled the tasks.
                return
            if not isinstance(error, SQL_ERRORS):
                log.exception("workers could not be warmed up")
                return
            log.warning("workers could not be warmed up: %s", one_line(error))

    return threads.start("warm-up", run)


def load_plan(spark: SparkSession, plan: PlanHandle, stacks: StacksHandle, topic: Topic) -> None:
    """Load a plan into a worker in each slot, with the kernels that deliver records by it.

    It raises no error, because the first batch loads plan and kernels if they are missing.
    """
    start = SYSTEM_CLOCK.monotonic()
    try:
        tasks = session.slots(spark)
        run = loaded(plan, stacks, topic)
        spark.range(0, tasks, 1, tasks).mapInArrow(run, "id long").collect()
        log.info("plan loaded by %d workers in %.2f s", tasks, SYSTEM_CLOCK.monotonic() - start)
    except Exception as error:
        log.warning("the plan could not be loaded in advance: %s", one_line(error))
