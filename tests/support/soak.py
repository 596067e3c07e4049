"""A soak: runs a stream in real time for minutes, and samples its resources.

Edits and samples alternate in one thread of the test while the stream runs in others. Processes of
their own publish records, and compact the tables as the operator of a deployment does. A sample
first collects garbage in the driver and in its JVM, so it counts only memory that is in use.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import re
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from deltalake import DeltaTable
from flatness import Limit, Verdict, judge
from kafka import KafkaProducer
from kafka_topics import kafka_topic
from pcap_deployment import PARTITIONS, Deployment, records

from stackcast.jobs.adapters.tables.definitions import NAMES
from stackcast.jobs.adapters.wire.pcap import read_pcap
from stackcast.udfs.messages.sequence import session_id, split_sequence
from stackcast.udfs.stacks.dissect import dissect

#: Records per second. A slice of 50 ms then has a few, and none has to wait for another.
RATE = 40
EDIT_SECONDS = 4.0
#: Seconds between two compactions of the tables. delta-rs loads the names of all files of a table
#: for each commit, so without compaction, memory grows by 30 MB per 1,000 files.
COMPACT_SECONDS = 60.0
#: Samples of a run, and the shortest time between two of them.
SAMPLES, SAMPLE_SECONDS = 60, 4.0
#: A stream that commits no slice for this time has stopped.
PATIENCE_S = 120.0
#: Longest window of a quantile of latency, and fewest windows of a run.
WINDOW_S, WINDOWS = 600.0, 10
#: Time after a sample during which records may be delayed by it.
RECOVERY_S = 1.0

MEMORY = Limit(0.05, 8)
COUNT = Limit(0.05, 5)
#: Growth of each series that counts as flat, in the unit of the series. Latency depends on the load
#: of the machine; a stream that slows down from slice to slice exceeds its limit, too. delta-rs has
#: a pool of up to 512 threads that read files. A thread ends if it has no work for ten seconds, so
#: under polling the pool stays as large as the largest number of files that were read at once.
LIMITS = {
    "driver memory, MB": MEMORY,
    "JVM memory, MB": MEMORY,
    "JVM heap, MB": MEMORY,
    "worker memory, MB": MEMORY,
    "driver descriptors": COUNT,
    "JVM descriptors": COUNT,
    "worker descriptors": COUNT,
    "driver threads": COUNT,
    "delta-rs threads": Limit(0.5, 64),
    "JVM threads": COUNT,
    "workers": Limit(0.0, 1),
    "checkpoint files": COUNT,
    "checkpoint, KB": Limit(0.05, 64),
    "Spark's local files": COUNT,
    "p99 latency, ms": Limit(1.0, 100),
}
LATENCY = "p99 latency, ms"
#: Name of the threads of delta-rs.
DELTA_THREADS = "tokio-rt-worker"
#: A checkpoint keeps the files of the last 100 slices, so there are fewer before that.
WARM_SLICES = 150


@dataclass(frozen=True)
class Series:
    """A measured series with its verdict."""

    name: str
    times: Sequence[float]
    values: Sequence[float]
    verdict: Verdict


class Probe:
    """Samples a stream whose driver is this process.

    Args:
        deployment: the stream.
    """

    def __init__(self, deployment: Deployment) -> None:
        context: Any = deployment.spark.sparkContext
        self._jvm = context._jvm
        self._jvm_pid = self._jvm.ProcessHandle.current().pid()
        self._disk = self._jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager()
        self._python_files = Path(context._temp_dir)
        self._checkpoint = Path(deployment.settings.checkpoint)

    def sample(self) -> dict[str, float]:
        """Collect garbage, and return a value for each series of `LIMITS` except latency."""
        gc.collect()
        self._jvm.System.gc()
        runtime = self._jvm.Runtime.getRuntime()
        driver, jvm = Path("/proc/self"), Path(f"/proc/{self._jvm_pid}")
        workers = [Path(f"/proc/{pid}") for pid in descendants(self._jvm_pid)]
        pool = thread_names(driver)[DELTA_THREADS]
        files = [size for _, size in files_below(self._checkpoint)]
        local = self._disk.getAllFiles().size() + sum(1 for _ in files_below(self._python_files))
        return {
            "driver memory, MB": resident(driver) / 1e6,
            "JVM memory, MB": resident(jvm) / 1e6,
            "JVM heap, MB": (runtime.totalMemory() - runtime.freeMemory()) / 1e6,
            "worker memory, MB": sum(map(resident, workers)) / 1e6,
            "driver descriptors": descriptors(driver),
            "JVM descriptors": descriptors(jvm),
            "worker descriptors": sum(map(descriptors, workers)),
            "driver threads": threads(driver) - pool,
            "delta-rs threads": pool,
            "JVM threads": threads(jvm),
            "workers": len(workers),
            "checkpoint files": len(files),
            "checkpoint, KB": sum(files) / 1e3,
            "Spark's local files": local,
        }


class Soak:
    """Feeds a stream, edits its rules and samples it, as a step of `Deployment.run`.

    Args:
        deployment: the stream, in real time.
        seconds: duration.
        edit: changes a rule; called with the number of the edit.
        report: prints a line of progress.

    Attributes:
        times: times of the samples in seconds since the step began.
        samples: values by series.
        pauses: begin and end of each sample, in seconds since 1970.
        slices: number of slices that ended meanwhile.
        edits: number of edits.
        threads: threads of the driver by name, at the beginning and at the end.
    """

    def __init__(
        self,
        deployment: Deployment,
        seconds: float,
        edit: Callable[[int], None],
        report: Callable[[str], None],
    ) -> None:
        self._deployment = deployment
        self._seconds = seconds
        self._edit = edit
        self._report = report
        self.times: list[float] = []
        self.samples: defaultdict[str, list[float]] = defaultdict(list)
        self.pauses: list[tuple[float, float]] = []
        self.threads: list[Counter[str]] = []
        self._warm_at = float("inf")
        self.slices = self.edits = 0
        self._last_slice, self._moved = -1, 0.0
        self._began = 0.0

    def run(self) -> None:
        """Run for the duration, or until the stream stops."""
        self._began = self._moved = time.monotonic()
        first = self._deployment.last_slice()
        probe = Probe(self._deployment)
        interval = max(SAMPLE_SECONDS, self._seconds / SAMPLES)
        next_edit = next_sample = 0.0
        self.threads.append(thread_names(Path("/proc/self")))
        with feeding(self._deployment):
            while (moment := time.monotonic() - self._began) < self._seconds and self._moves():
                if moment >= next_sample:
                    self._sample(probe)
                    next_sample = moment + interval
                elif moment >= next_edit:
                    self._edit(self.edits)
                    self.edits += 1
                    next_edit = moment + EDIT_SECONDS
                time.sleep(0.1)
        self.threads.append(thread_names(Path("/proc/self")))
        self.slices = self._last_slice - first

    def _moves(self) -> bool:
        last, moment = self._deployment.last_slice(), time.monotonic()
        if last != self._last_slice:
            self._last_slice, self._moved = last, moment
        return moment - self._moved < PATIENCE_S

    def _sample(self, probe: Probe) -> None:
        begin = time.time()
        values = probe.sample()
        self.pauses.append((begin, time.time() + RECOVERY_S))
        self.times.append(time.monotonic() - self._began)
        if self._last_slice >= WARM_SLICES:
            self._warm_at = min(self._warm_at, self.times[-1])
        for name, value in values.items():
            self.samples[name].append(value)
        shown = ("driver memory, MB", "JVM heap, MB", "worker memory, MB", "checkpoint files")
        figures = ", ".join(f"{name} {values[name]:,.0f}" for name in shown)
        self._report(
            f"soak {self.times[-1]:5.0f} of {self._seconds:.0f} s: slice {self._last_slice:,}, "
            f"{self.edits} edits, {figures}"
        )

    def series(self) -> list[Series]:
        """Return all series with their verdicts; call this when the stream has ended."""
        measured = [(name, self.times, values) for name, values in self.samples.items()]
        sent, latency = latencies(self._deployment)
        quantiles = windows(sent, latency, self.pauses, self._seconds)
        measured.append((LATENCY, [t - sent[0] for t in quantiles], list(quantiles.values())))
        return [
            Series(name, times, values, judge(times, values, LIMITS[name], self._warm_at))
            for name, times, values in measured
        ]


@contextmanager
def feeding(deployment: Deployment) -> Iterator[None]:
    """Publish records at `RATE`, and compact the tables, from other processes during a block."""
    context = multiprocessing.get_context("spawn")
    ending = context.Event()
    topic, packets = deployment.settings.topic, records()
    processes = [
        context.Process(target=publish, args=(deployment.servers, topic, packets, ending)),
        context.Process(target=compact, args=(deployment.tables.location, ending)),
    ]
    for process in processes:
        process.daemon = True
        process.start()
    try:
        yield
    finally:
        ending.set()
        for process in processes:
            process.join()
    assert [process.exitcode for process in processes] == [0, 0]


def publish(servers: str, topic: str, packets: Sequence[bytes], ending: Event) -> None:
    """Publish packets in turn, at `RATE`, until a test has set ``ending``."""
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    began, number = time.monotonic(), 0
    while not ending.wait(max(0.0, began + number / RATE - time.monotonic())):
        producer.send(topic, packets[number % len(packets)], partition=number % PARTITIONS)
        number += 1
    producer.flush()
    producer.close()


def compact(location: str, ending: Event) -> None:
    """Compact all tables in a folder at intervals, until a test has set ``ending``."""
    while not ending.wait(COMPACT_SECONDS):
        for name in NAMES:
            DeltaTable(f"{location}/{name}").optimize.compact()


def latencies(deployment: Deployment) -> tuple[np.ndarray, np.ndarray]:
    """Return when the record of each frame was published, and how long after that the frame left.

    Returns:
        Seconds since 1970, ascending, and milliseconds; the broker keeps times in milliseconds.
    """
    read, stamps = deployment.topics.read_timed()
    published = {
        (partition, offset): stamp / 1e6
        for (partition, offset, _), stamp in zip(read, stamps, strict=True)
    }
    topic = kafka_topic(deployment.settings)
    partition_of = {session_id(topic, p): p for p in range(PARTITIONS)}
    pairs = []
    for path in Path(deployment.settings.pcap_path).glob("*.pcap"):
        with path.open("rb") as file:
            for record in read_pcap(file):
                parts = dissect(record.frame)
                if not parts.messages:
                    continue
                offset, _ = split_sequence(parts.sequence)
                stamp = published[partition_of[parts.session], offset]
                pairs.append((stamp, 1000 * (record.time - stamp)))
    sent, latency = np.array(sorted(pairs)).T
    return sent, latency


def windows(
    sent: np.ndarray, latency: np.ndarray, pauses: Sequence[tuple[float, float]], seconds: float
) -> dict[float, float]:
    """Return the 99th percentile of latency for each window, by the time at which it begins.

    Args:
        sent: times at which records were published, ascending, in seconds.
        latency: latency of each record.
        pauses: begin and end of times whose records do not count, in the same seconds.
        seconds: duration of the run, which has at least `WINDOWS` windows.
    """
    begins = [begin for begin, _ in pauses]
    counts = np.array([not _paused(time_, begins, pauses) for time_ in sent.tolist()])
    width = min(WINDOW_S, seconds / WINDOWS)
    window = ((sent - sent[0]) // width).astype(int)
    return {
        sent[0] + width * number: float(np.percentile(latency[chosen], 99))
        for number in range(int(seconds / width))
        if (chosen := counts & (window == number)).any()
    }


def _paused(moment: float, begins: Sequence[float], pauses: Sequence[tuple[float, float]]) -> bool:
    index = bisect_right(begins, moment) - 1
    return index >= 0 and moment < pauses[index][1]


def table(series: Sequence[Series]) -> str:
    """Return a table with a chart of each series; its last column names those that grow."""
    head = f"{'series':22} {'level':>9} {'growth':>9} {'limit':>9}  "
    lines = [f"{head}{'chart':{CHART}}  verdict"]
    for each in series:
        verdict = each.verdict
        figures = " ".join(f"{v:9,.1f}" for v in (verdict.level, verdict.growth, verdict.limit))
        word = "flat" if verdict.is_flat else "GROWS"
        lines.append(f"{each.name:22} {figures}  {chart(each.values):{CHART}}  {word}")
    return "\n".join(lines)


#: Width of a chart, and its characters from the lowest to the highest value.
CHART, BARS = 30, "▁▂▃▄▅▆▇█"


def chart(values: Sequence[float]) -> str:
    """Return a chart of one line from 0 to the largest value."""
    parts = np.array_split(np.asarray(values, float), min(CHART, len(values)))
    means = [float(part.mean()) for part in parts]
    top = max(*means, 0.0) or 1.0
    return "".join(BARS[round((len(BARS) - 1) * max(0.0, mean) / top)] for mean in means)


def write(path: Path, soak: Soak, series: Sequence[Series], **facts: Any) -> None:
    """Write a run as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    facts |= {"slices": soak.slices, "edits": soak.edits, "load": os.getloadavg()}
    facts |= {"driver threads": soak.threads}
    rows = [asdict(each) | {"flat": each.verdict.is_flat} for each in series]
    path.write_text(json.dumps({"run": facts, "series": rows}, indent=1) + "\n", "utf-8")


def descendants(pid: int) -> list[int]:
    """Return the children of a process, and theirs."""
    parents: defaultdict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(fields[1])].append(int(folder.name))
    pids, unread = [], [pid]
    while unread:
        children = parents[unread.pop()]
        pids += children
        unread += children
    return pids


def resident(process: Path) -> int:
    """Return the resident size of a process in bytes, without files that it maps; 0 if it ended."""
    return 1024 * int(_status(process).get("RssAnon", "0").split()[0])


def threads(process: Path) -> int:
    """Return the number of threads of a process."""
    return int(_status(process).get("Threads", "0"))


def thread_names(process: Path) -> Counter[str]:
    """Return the number of threads of a process by name, without the numbers in names."""
    names: Counter[str] = Counter()
    for task in (process / "task").iterdir():
        with suppress(OSError):
            names[re.sub(r"\d+", "N", (task / "comm").read_text().strip())] += 1
    return names


def _status(process: Path) -> Mapping[str, str]:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def descriptors(process: Path) -> int:
    """Return the number of open file descriptors of a process; 0 if it ended."""
    try:
        return sum(1 for _ in (process / "fd").iterdir())
    except OSError:
        return 0


def files_below(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a folder with their sizes; the stream may remove some meanwhile."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            try:
                yield path, path.stat().st_size
            except FileNotFoundError:
                continue
