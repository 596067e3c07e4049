"""From the start of the job's process to its first frame, with and without compiled kernels."""

from __future__ import annotations

import time

from benchmarks.pipeline.throughput import MAIN
from benchmarks.pipeline.world import Job, World
from benchmarks.support.results import Lines

RECORDS = 20_000
PATIENCE = 600.0


def run(world: World, lines: Lines) -> None:
    """Cold, then warm: the second job finds the kernels that the first compiled."""
    topic = world.topic(MAIN.packets(world), RECORDS)
    cache = {"NUMBA_CACHE_DIR": str(world.fresh("kernels"))}
    seconds = {}
    for kernels in ("cold", "warm"):
        settings = world.settings(topic, latency="auto")
        with world.receiver(settings.port) as receiver:
            began = time.time()
            with Job(settings, world.fresh("start.log"), cache) as job:
                deadline = time.monotonic() + PATIENCE
                while not len(arrived := receiver.taken()):
                    job.check()
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"no frame within {PATIENCE:g} s; log: {job.log}")
                    time.sleep(0.1)
            seconds[kernels] = float(arrived[:, 1].min()) / 1e9 - began
        lines.say("start to first frame", kernels=kernels, seconds=seconds[kernels])
    lines.say("cold to warm", ratio=seconds["cold"] / seconds["warm"])
