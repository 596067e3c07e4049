"""Memory of the job's processes while an hour's worth of events goes through."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.pipeline import producer
from benchmarks.pipeline.processor import command_of, descendants
from benchmarks.pipeline.stream import LOOK
from benchmarks.pipeline.throughput import MAIN
from benchmarks.pipeline.world import PARTITIONS, Job, World
from benchmarks.support.results import Lines
from stackcast.jobs.adapters.app.settings import Settings

#: 1,000 packets a second for an hour, sent as fast as they go; in as many batches as take 180.
RECORDS, TRIGGER = 3_600_000, 20_000
QUICK = 12
PAUSE = 1.0
PATIENCE = 600.0
#: What the second half may add to what the first half ended with.
FLAT = 0.05
JVM = "driver JVM"
KINDS = (JVM, "driver Python", "workers")
#: What a JVM has of its machine follows its -Xmx, not its work: what its objects take, once those
#: that are no longer used are gone, is what could grow.
OBJECTS = "live objects of the driver JVM"
#: When that is looked at, in % of the records.
MARKS = (10, 50, 100)
_PAGE = os.sysconf("SC_PAGE_SIZE")

Sample = Mapping[str, float]


def run(world: World, lines: Lines) -> None:
    """One job; its memory by records done, and what the second half added."""
    records = RECORDS // QUICK if world.quick else RECORDS
    topic = world.empty_topic()
    settings = world.settings(topic, max_offsets_per_trigger=TRIGGER)
    packets = MAIN.packets(world)
    samples: list[Sample] = []
    objects: dict[int, float] = {}
    context = multiprocessing.get_context("spawn")
    with (
        context.Pool(1) as pool,
        Job(settings, world.fresh("memory.log")) as job,
    ):
        fed = pool.apply_async(producer.fill, (world.servers, topic, packets, records, PARTITIONS))
        done, since = 0, time.monotonic()
        while done < records:
            time.sleep(PAUSE)
            job.check()
            before, done = done, committed(Path(settings.checkpoint), topic)
            if done:
                samples.append({"records": done, **resident(job.pid)})
            for mark in MARKS:
                if done >= records * mark / 100 and mark not in objects:
                    objects[mark] = in_use(job.pid)
            if done != before:
                since = time.monotonic()
            if time.monotonic() - since > PATIENCE:
                raise TimeoutError(f"{done} of {records} records, and no more; log: {job.log}")
        fed.get()
    batches = records // TRIGGER
    for kind in KINDS:
        grown, slope = growth(samples, kind)
        at = {mark: nearest(samples, records * mark / 100)[kind] for mark in MARKS}
        lines.say("memory", **row(kind, records, batches, at), mb_a_million_records=slope)
        if kind != JVM:
            lines.floor(f"{kind}: growth in the second half", grown, FLAT, "x")
    lines.say("memory", **row(OBJECTS, records, batches, objects))
    grown = objects[100] / objects[50] - 1
    lines.floor(f"{OBJECTS}: growth in the second half", grown, FLAT, "x")


def row(kind: str, records: int, batches: int, at: Mapping[int, float]) -> dict[str, object]:
    """Returns MB at each of MARKS."""
    marks = {f"mb_at_{mark}_percent": at[mark] for mark in MARKS}
    return {"what": kind, "records": records, "batches": batches, **marks}


def in_use(root: int) -> float:
    """Returns MB of the objects that a job's JVM still uses. It takes the JDK's jcmd."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        raise FileNotFoundError("jcmd, which a JDK has, is not on the path")
    (process,) = [p for p in descendants(root) if b"org.apache.spark.deploy" in command_of(p)]
    for command in ("GC.run", "GC.heap_info"):
        told = subprocess.run(
            [jcmd, str(process), command], check=True, capture_output=True, text=True
        ).stdout
    found = re.search(r"used (\d+)K", told)
    if found is None:
        raise ValueError(f"jcmd GC.heap_info says {told!r}")
    return int(found[1]) * 1024 / 1e6


def committed(checkpoint: Path, topic: str) -> int:
    """Returns records of all batches that a stream has committed."""
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not numbers:
        return 0
    text = (checkpoint / "offsets" / str(max(numbers))).read_text("utf-8")
    return sum(json.loads(text.splitlines()[-1])[topic].values())


def reached(job: Job, settings: Settings, records: int) -> int:
    """Returns how many records a job has committed, once these are; raises TimeoutError where it
    stands still."""
    done, since = 0, time.monotonic()
    while done < records:
        time.sleep(LOOK)
        job.check()
        before, done = done, committed(Path(settings.checkpoint), settings.topic)
        if done != before:
            since = time.monotonic()
        if time.monotonic() - since > PATIENCE:
            raise TimeoutError(f"{done} of {records} records, and no more; log: {job.log}")
    return done


def growth(samples: Sequence[Sample], kind: str) -> tuple[float, float]:
    """Returns growth in the second half: as a part of its begin, and in MB a million records."""
    half = samples[-1]["records"] / 2
    late = [each for each in samples if each["records"] >= half]
    done = np.array([each["records"] for each in late]) / 1e6
    used = np.array([each[kind] for each in late])
    if len(late) < 2 or done[0] == done[-1]:
        return 0.0, 0.0
    slope = float(np.polyfit(done, used, 1)[0])
    return slope * float(done[-1] - done[0]) / max(float(used[0]), 1.0), slope


def nearest(samples: Sequence[Sample], records: float) -> Sample:
    return min(samples, key=lambda sample: abs(sample["records"] - records))


def resident(root: int) -> dict[str, float]:
    """Returns MB of a job's processes by kind; a page of forked workers counts where it is used."""
    used = dict.fromkeys(KINDS, 0.0)
    for process in descendants(root):
        command = command_of(process)
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
        except (OSError, IndexError):
            continue  # it has ended
        if b"pyspark.daemon" in command or b"pyspark.worker" in command:
            kind = "workers"
        elif b"org.apache.spark.deploy" in command:
            kind = JVM
        elif b".py" in command:
            kind = "driver Python"
        else:
            continue
        used[kind] += pages * _PAGE / 1e6
    return used
