"""The ordinary stream in a process of its own, which kills itself at a step of a batch.

    python tests/support/crashing_stream.py STORY.json

STORY.json is a `Story`. All that the process started dies with it, by SIGKILL: the driver, its JVM
and what that started. Without a crash it ends when the file ``drained`` is there and nothing is
left in the topic.
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

from jobs.adapters.app import session
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.logs import set_up
from jobs.adapters.app.settings import Settings
from jobs.adapters.stream import delivery as delivery_module
from jobs.adapters.stream import micro_batches
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.wire import SinkOptions, open_sink

CRASH = "STACKCAST_TEST_CRASH"
GROUP = "STACKCAST_TEST_GROUP"


class Step(NamedTuple):
    """Something that a batch does: a method of a class, with this first argument if one is named.

    Before and after it the process can be killed.
    """

    owner: str
    method: str
    argument: object = None


#: In the order of a batch; the tables are written beside it.
STEPS = {
    "pin": Step("jobs.adapters.checkpoint.pins.Pins", "put"),
    "state": Step("jobs.adapters.checkpoint.state.CarriedState", "put"),
    "dead letters": Step("jobs.adapters.stream.kafka.Topics", "write_dead_letters"),
    "report": Step("jobs.adapters.checkpoint.reports.Reports", "put"),
    "ledger": Step("jobs.adapters.tables.tables.Tables", "append", "egress_ledger"),
    "statistics": Step("jobs.adapters.tables.tables.Tables", "append", "delivery_statistics"),
    "publications": Step("jobs.adapters.tables.tables.Tables", "append", "publication_statistics"),
    "batch": Step("jobs.adapters.stream.delivery.BatchDelivery", "process"),
}
#: What happens in a worker, and what Spark writes by itself.
IN_WORKER = ("first frame", "last frame", "worker")
BY_SPARK = ("offsets", "commits")


@dataclasses.dataclass(frozen=True)
class Story:
    """What a start of the stream does.

    settings: of `Settings`. crash: ``before X`` or ``after X`` of `STEPS`, one of `IN_WORKER` or
    ``after X`` of `BY_SPARK`; empty: none. passing: the time of so many that it is passed. A crash
    of ``worker`` is of the Python worker alone, once. drained: see above.
    """

    settings: dict[str, Any]
    crash: str = ""
    passing: int = 1
    master: str = "local[2]"
    drained: str = ""
    conf: dict[str, str] = dataclasses.field(default_factory=dict)


def die() -> None:
    """End all of the stream at once."""
    group = int(os.environ[GROUP])
    os.killpg(group, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Counted:
    """Calls what it is given at the n-th passing."""

    def __init__(self, passing: int, then: Callable[[], None]) -> None:
        self._left = passing
        self._then = then
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._then()


def wrap(step: Step, when: str, passed: Callable[[], None]) -> None:
    """Call ``passed`` before or after each call of a step."""
    path, _, name = step.owner.rpartition(".")
    owner = getattr(importlib.import_module(path), name)
    plain = getattr(owner, step.method)

    def method(self: object, *arguments: object, **named: object) -> object:
        mine = step.argument is None or step.argument == arguments[0]
        if mine and when == "before":
            passed()
        result = plain(self, *arguments, **named)
        if mine and when == "after":
            passed()
        return result

    setattr(owner, step.method, method)


class CrashingSink:
    """A sink that dies in the middle of sending, or when all is sent and flushed."""

    left: int | None = None

    def __init__(self, options: SinkOptions) -> None:
        self._sink = open_sink(options)
        crash = json.loads(os.environ[CRASH])
        self._crash, self._once = crash["crash"], Path(crash["once"])
        if CrashingSink.left is None:
            CrashingSink.left = crash["passing"]
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
        assert CrashingSink.left is not None
        CrashingSink.left -= 1
        return CrashingSink.left == 0

    def _die(self) -> None:
        if self._crash != "worker":
            die()
        if not self._once.exists():
            self._once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def watch(folder: Path, passed: Callable[[], None]) -> None:
    """Call ``passed`` for each file that Spark adds to a log of its."""
    known = {path.name for path in folder.glob("*")}
    while True:
        names = {path.name for path in folder.glob("*")}
        for _ in [name for name in names - known if name.isdigit()]:
            passed()
        known |= names
        time.sleep(0.0005)


def prepare(story: Story) -> None:
    """Set the crash of a story."""
    os.environ[GROUP] = str(os.getpgrp())
    if not story.crash:
        return
    when, _, name = story.crash.partition(" ")
    once = Path(story.settings["checkpoint"]).parent / "worker-killed"
    if story.crash in IN_WORKER:
        os.environ[CRASH] = json.dumps(
            {"crash": story.crash, "passing": story.passing, "once": str(once)}
        )
        delivery_module.open_sink = CrashingSink
    elif name in BY_SPARK:
        passed = Counted(story.passing, die)
        folder = Path(story.settings["checkpoint"], name)
        threading.Thread(target=partial(watch, folder, passed), daemon=True).start()
    else:
        wrap(STEPS[name], when, Counted(story.passing, die))


def committed(settings: Settings) -> dict[int, int]:
    """Offsets after the last batch that is committed, by partition, from Spark's own files."""
    checkpoint = Path(settings.checkpoint)
    done = [int(p.name) for p in checkpoint.glob("commits/*") if p.name.isdigit()]
    if not done:
        return {}
    lines = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
    reached = json.loads(lines[-1])[settings.topic]
    return {int(partition): offset for partition, offset in reached.items()}


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
        query, delivery = micro_batches.start(spark, settings, lifecycle)
        print("the stream runs", flush=True)
        topics = Topics(spark, settings)

        def finished() -> bool:
            done = bool(story.drained) and Path(story.drained).exists()
            return done and committed(settings) == topics.end_offsets()

        try:
            lifecycle.run(query, finished)
            delivery.tell_rest()
        finally:
            delivery.close()
    print("drained", flush=True)
    return 0


if __name__ == "__main__":
    # Workers look for its sink in a module that they can import.
    sys.exit(importlib.import_module("crashing_stream").main(sys.argv[1]))
