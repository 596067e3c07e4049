"""Kernels and the plan in the workers, before the first batch needs them."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from stackcast.udfs.columns import loaded, warmed_up
from stackcast.udfs.delivery.frame_headers import StacksHandle
from stackcast.udfs.delivery.plan import PlanHandle
from stackcast.udfs.messages.sequence import Topic

log = logging.getLogger(__name__)


def warm_up(spark: SparkSession, workers: int | None = None) -> Future[None]:
    """Load the kernels into so many workers, beside the caller; by default one in each slot.

    Where no cache has them (`NUMBA_CACHE_DIR`) the workers share out compiling them first, a
    minute's work of two. The result is there when all are ready. It raises nothing: a batch that
    finds no kernels loads them itself.
    """
    future: Future[None] = Future()

    def run() -> None:
        clock = time.monotonic()
        try:
            tasks = workers or session.slots(spark)
            spark.range(0, tasks, 1, tasks).mapInArrow(warmed_up, "id long").collect()
            log.info("workers ready: %d, in %.2f s", tasks, time.monotonic() - clock)
        except Exception as error:
            if session.ending.is_set():
                # The end of the session cut the tasks off.
                return
            if not isinstance(error, SQL_ERRORS):
                log.exception("workers could not be warmed up")
                return
            log.warning("workers could not be warmed up: %s", one_line(error))
        finally:
            future.set_result(None)

    # Not a thread that an application would wait for at its end.
    threading.Thread(target=run, name="warm-up", daemon=True).start()
    return future


def load_plan(spark: SparkSession, plan: PlanHandle, stacks: StacksHandle, topic: Topic) -> None:
    """Load a plan into a worker in each slot, with the kernels that deliver records by it.

    It raises nothing, because the first batch loads what is missing.
    """
    clock = time.monotonic()
    try:
        tasks = session.slots(spark)
        run = loaded(plan, stacks, topic)
        spark.range(0, tasks, 1, tasks).mapInArrow(run, "id long").collect()
        log.info("plan loaded by %d workers in %.2f s", tasks, time.monotonic() - clock)
    except Exception as error:
        log.warning("the plan could not be loaded in advance: %s", one_line(error))
