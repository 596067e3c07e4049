"""The stream of the main job in its own process, which kills itself at a step of a batch.

    python tests/support/crashing_stream.py STORY.json

STORY.json is a `Story`. SIGKILL ends the driver together with its JVM and the workers. Without a
crash the stream ends when the file ``drained`` exists and it has delivered all records of the
topic.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.logs import set_up
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream import spark_stream
from stackcast.jobs.adapters.wire import SinkOptions, open_sink

CRASH = "STACKCAST_TEST_CRASH"
GROUP = "STACKCAST_TEST_GROUP"


class Step(NamedTuple):
    """A step of a batch, before or after which the process can be killed.

    Attributes:
        owner: class, with its module.
        method: name of the method.
        argument: first argument of the calls that count; None counts all calls.
    """

    owner: str
    method: str
    argument: object = None


#: In the order of a batch; another thread writes the tables.
STEPS = {
    "pin": Step("stackcast.jobs.adapters.checkpoint.pins.Pins", "put"),
    "state": Step("stackcast.jobs.adapters.checkpoint.state.CarriedState", "put"),
    "dead letters": Step("stackcast.jobs.adapters.kafka.topics.Topics", "write_dead_letters"),
    "report": Step("stackcast.jobs.adapters.checkpoint.reports.Reports", "put"),
    "ledger": Step(
        "stackcast.jobs.adapters.tables.folder_tables.FolderTables", "append", "egress_ledger"
    ),
    "statistics": Step(
        "stackcast.jobs.adapters.tables.folder_tables.FolderTables", "append", "delivery_statistics"
    ),
    "publications": Step(
        "stackcast.jobs.adapters.tables.folder_tables.FolderTables",
        "append",
        "publication_statistics",
    ),
    "batch": Step("stackcast.jobs.adapters.stream.micro_batches.MicroBatches", "process"),
}
#: Steps of a worker, and steps at which Spark itself writes a file.
IN_WORKER = ("first frame", "last frame", "worker")
BY_SPARK = ("offsets", "commits")


@dataclasses.dataclass(frozen=True)
class Story:
    """One start of the stream.

    Attributes:
        settings: arguments of `Settings`.
        crash: ``before X`` or ``after X`` for a step X of `STEPS`, one of `IN_WORKER`, or
            ``after X`` for a step of `BY_SPARK`. ``worker`` kills the Python worker only, once.
            Empty for no crash.
        passing: number of times that the process reaches the step, the last of which kills it.
        master: value of ``spark.master``.
        drained: path of the file that ends the stream.
        conf: other Spark properties.
    """

    settings: dict[str, Any]
    crash: str = ""
    passing: int = 1
    master: str = "local[2]"
    drained: str = ""
    conf: dict[str, str] = dataclasses.field(default_factory=dict)


def die() -> None:
    """Kill all processes of the stream."""
    group = int(os.environ[GROUP])
    os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Counted:
    """Calls ``action`` when it is called for the n-th time."""

    def __init__(self, passing: int, action: Callable[[], None]) -> None:
        self._remaining = passing
        self._action = action
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._remaining -= 1
            if self._remaining == 0:
                self._action()


def wrap(step: Step, when: str, passed: Callable[[], None]) -> None:
    """Call ``passed`` before or after each call of a step."""
    path, _, name = step.owner.rpartition(".")
    owner = getattr(importlib.import_module(path), name)
    plain = getattr(owner, step.method)

    def method(self: object, *arguments: object, **named: object) -> object:
        counts = step.argument is None or step.argument == arguments[0]
        if counts and when == "before":
            passed()
        result = plain(self, *arguments, **named)
        if counts and when == "after":
            passed()
        return result

    setattr(owner, step.method, method)


class CrashingSink:
    """A sink that kills its process while it sends, or after it has flushed the last frame."""

    remaining: int | None = None

    def __init__(self, options: SinkOptions) -> None:
        self._sink = open_sink(options)
        crash = json.loads(os.environ[CRASH])
        self._crash, self._once = crash["crash"], Path(crash["once"])
        if CrashingSink.remaining is None:
            CrashingSink.remaining = crash["passing"]
        self._sent = 0

    def send(self, data: np.ndarray, offsets: np.ndarray) -> int:
        frames = offsets.size - 1
        if self._crash in ("first frame", "worker") and frames > 1 and self._due():
            self._sink.send(data, offsets[: frames // 2 + 1])
            self._sink.flush()
            self._die()
        self._sent += frames
        return self._sink.send(data, offsets)

    def flush(self) -> None:
        self._sink.flush()
        if self._crash == "last frame" and self._sent and self._due():
            self._die()

    def close(self) -> None:
        self._sink.close()

    def _due(self) -> bool:
        assert CrashingSink.remaining is not None
        CrashingSink.remaining -= 1
        return CrashingSink.remaining == 0

    def _die(self) -> None:
        if self._crash != "worker":
            die()
        if not self._once.exists():
            self._once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def watch(folder: Path, passed: Callable[[], None]) -> None:
    """Call ``passed`` for each file that Spark adds to one of its logs."""
    seen_names = {path.name for path in folder.glob("*")}
    while True:
        names = {path.name for path in folder.glob("*")}
        for _ in [name for name in names - seen_names if name.isdigit()]:
            passed()
        seen_names |= names
        time.sleep(0.0005)


def prepare(story: Story) -> None:
    """Install the crash of a story."""
    os.environ[GROUP] = str(os.getpgrp())
    if not story.crash:
        return
    when, _, name = story.crash.partition(" ")
    once = Path(story.settings["checkpoint"]).parent / "worker-killed"
    if story.crash in IN_WORKER:
        os.environ[CRASH] = json.dumps(
            {"crash": story.crash, "passing": story.passing, "once": str(once)}
        )
        spark_stream.open_sink = CrashingSink
    elif name in BY_SPARK:
        passed = Counted(story.passing, die)
        folder = Path(story.settings["checkpoint"], name)
        threading.Thread(target=partial(watch, folder, passed), daemon=True).start()
    else:
        wrap(STEPS[name], when, Counted(story.passing, die))


def committed(settings: Settings) -> dict[int, int]:
    """Returns the end offset of the last committed batch by partition, from Spark's own files."""
    checkpoint = Path(settings.checkpoint)
    batches = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    if not batches:
        return {}
    lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    ends = json.loads(lines[-1])[settings.topic]
    return {int(partition): offset for partition, offset in ends.items()}


def main(path: str) -> int:
    story = Story(**json.loads(Path(path).read_text()))
    conf = {"spark.master": story.master, **story.conf}
    options = " ".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in conf.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{options} pyspark-shell"
    set_up()
    prepare(story)
    settings = Settings(**story.settings)
    with Lifecycle() as lifecycle:
        spark = session.start("stackcast crashing stream")
        query, delivery = spark_stream.start(spark, settings, lifecycle)
        print("the stream runs", flush=True)
        topics = Topics(spark, settings)

        def finished() -> bool:
            may_end = bool(story.drained) and Path(story.drained).exists()
            return may_end and committed(settings) == topics.end_offsets()

        try:
            lifecycle.run(query, finished)
            delivery.flush_summaries()
        finally:
            delivery.close()
    print("drained", flush=True)
    return 0


if __name__ == "__main__":
    # Workers unpickle the sink, so its class must be in a module that they can import.
    sys.exit(importlib.import_module("crashing_stream").main(sys.argv[1]))
