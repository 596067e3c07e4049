"""The process that forks Spark's Python workers, with everything that tasks need already loaded.

Spark's own daemon loads nothing. Each of its workers then takes two seconds of processor time to
import the same modules and to load the same kernels, and after each task a worker examines all
their objects for garbage, which takes 0.1 s. `spark.python.daemon.module` names this module where
executors can import it before they have received files of a job.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable

from pyspark import daemon

Serve = Callable[[socket.socket, bool], int]


def quiet(serve: Serve) -> Serve:
    """Return a function that serves tasks, and ends without an error when Spark has hung up.

    Spark closes the connection of a worker that was idle for a minute, or whose results are no
    longer needed. pyspark then prints the traceback of a BrokenPipeError.
    """

    def serve_quietly(connection: socket.socket, authenticated: bool) -> int:
        try:
            return serve(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return serve_quietly


def main() -> None:
    """Load modules and kernels, and fork a worker at each request until Spark closes the input."""
    # Spark allows no threads before a fork. Those of these libraries (memory of Arrow, BLAS) are
    # started again in a child.
    import pyspark.worker  # noqa: F401, PLC0415

    from stackcast.jobs.adapters.kafka import broker_source, file_handoffs  # noqa: F401, PLC0415
    from stackcast.jobs.adapters.stream import tasks  # noqa: F401, PLC0415
    from stackcast.udfs import columns  # noqa: F401, PLC0415
    from stackcast.udfs.delivery import compiled_mark  # noqa: PLC0415
    from stackcast.udfs.trees import header_stacks  # noqa: PLC0415

    # Kernels that no cache has yet are compiled by workers, which share the work.
    if compiled_mark.is_set():
        header_stacks.warm_up()
    gc.collect()
    gc.freeze()
    daemon.worker = quiet(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
