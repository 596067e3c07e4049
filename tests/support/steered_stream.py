"""The main job in its own process, whose first batch waits for a test and then fails as asked.

    spark-submit tests/support/steered_stream.py

The batch creates the file `SENDING` while it is in progress, and waits for the file `GO`. The
variable `STEERING` has the folder of both and the kind of failure.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
from crashing_stream import STEPS, wrap

from stackcast.jobs import itch_stream
from stackcast.jobs.adapters.app import application
from stackcast.jobs.adapters.stream import spark_stream
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.udfs.errors import SinkError

STEERING = "STACKCAST_TEST_STEERING"
SENDING, GO = "sending", "go"
#: Kinds of failures: none; an error of the sink; a worker that is killed in each try of its task,
#: or in the first one only; and a broker that the test kills, for which the batch waits before it
#: fetches records.
FAILURES = ("nothing", "sink", "worker", "worker once", "broker")


@cache
def steering() -> tuple[Path, str]:
    """Returns the folder of the files, and the kind of failure."""
    folder, failure = json.loads(os.environ[STEERING])
    return Path(folder), failure


def pause() -> None:
    """Report that the batch is in progress, and wait for the test."""
    folder, _ = steering()
    (folder / SENDING).touch()
    while not (folder / GO).exists():
        time.sleep(0.01)


class SteeredSink:
    """A sink in pcap files that pauses before it sends, and then fails."""

    def __init__(self, options: SinkOptions) -> None:
        self._sink = open_sink(options)

    def send(self, data: np.ndarray, offsets: np.ndarray) -> int:
        if offsets.size > 1:
            pause()
            self._fail()
        return self._sink.send(data, offsets)

    def _fail(self) -> None:
        folder, failure = steering()
        if failure == "sink":
            raise SinkError("FRAME_TOO_LARGE", "the interface takes no frame of 9,000 bytes")
        if failure == "worker" or (failure == "worker once" and not (folder / "killed").exists()):
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self._sink.close()


def main() -> int:
    if steering()[1] == "broker":
        wrap(STEPS["pin"], "after", pause)
    else:
        spark_stream.open_sink = SteeredSink
    return application.run(itch_stream.deliver)


if __name__ == "__main__":
    # Workers unpickle the sink, so its class must be in a module that they can import.
    sys.exit(importlib.import_module("steered_stream").main())
