"""What `check_delivery` takes for a day's messages: memory that does not grow, and time.

The stream writes its frames to files, the forwarding model takes them to their hosts, and the job
holds what the hosts were handed against topic, tables and ledger; once for all messages, and before
for a tenth of them. Its JVM has a heap of `HEAP` both times.
"""

from __future__ import annotations

import struct
import time
from functools import cache
from pathlib import Path

from benchmarks.pipeline.memory import JVM, reached, resident
from benchmarks.pipeline.processor import DRIVER, in_all, used
from benchmarks.pipeline.workload import Packets, Rules
from benchmarks.pipeline.world import POOL, PUBLISHER, Job, World, network_of
from benchmarks.support.results import Lines
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire.pcap import read_pcap
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.trees.broadcast import broadcast_trees

#: Every rule is looked at for every message, so few of them; a packet has 1 to 6 messages.
RULES, HOSTS, SIZES, SHARE = 8, 16, (1, 6), 0.05
MESSAGES, QUICK = 10_000_000, 20
HEAP = "512m"
#: What ten times the messages may add.
FLAT = 0.1
PAUSE = 0.5
_LENGTH = struct.Struct(">H")


def run(world: World, lines: Lines) -> None:
    """Memory and time by messages, and what the second may add."""
    messages = MESSAGES // QUICK if world.quick else MESSAGES
    rules = Rules.make(RULES, HOSTS)
    filled = world.fill_tables(rules, network_of(HOSTS))
    packets = Packets.make(rules, POOL, SIZES, SHARE)
    few, all_of_them = (
        proved(world, lines, filled, packets, m) for m in (messages // 10, messages)
    )
    for kind, most in all_of_them.items():
        # A JVM takes of the machine what its heap lets it, so that it ends well is what counts.
        if kind != JVM:
            grown = most / few[kind] - 1
            lines.floor(f"{kind}: what ten times the messages add", grown, FLAT, "x")


def proved(
    world: World, lines: Lines, filled: Path, packets: Packets, messages: int
) -> dict[str, float]:
    """Returns the most MB that the job's processes took, by kind."""
    records = round(messages / (len(packets.start) / packets.count))
    topic = world.topic(packets, records)
    frames, folder = world.fresh("frames"), world.fresh("hosts") / "receipts"
    settings = world.settings(topic, filled, sink="pcap", pcap_path=str(frames))
    with Job(settings, world.fresh("stream.log")) as job:
        reached(job, settings, records)
    receipts = write_receipts(frames, folder)
    most, seconds, cores = checked(world, settings, folder)
    lines.say(
        "proof",
        messages=messages,
        records=records,
        receipts=receipts,
        mb=most,
        heap=HEAP,
        seconds=seconds,
        microseconds_of_a_core_a_message=cores * 1e6 / messages,
    )
    world.forget(topic)
    return most


def write_receipts(frames: Path, folder: Path) -> int:
    """Writes what hosts get of frames in pcap files, a file a host; returns how many datagrams."""
    network = network_of(HOSTS)
    model = ForwardingModel(network, network_tables(network, broadcast_trees(network)))

    @cache
    def copies(labels: tuple[int, ...]) -> dict[str, int]:
        return dict(model.deliver(PUBLISHER, labels).hosts)

    folder.mkdir(parents=True)
    files = {host: (folder / f"{host}.mold").open("wb") for host in network.subscribers()}
    count = 0
    for path in sorted(frames.glob("*.pcap"), key=lambda p: p.stat().st_mtime):
        with path.open("rb") as file:
            for record in read_pcap(file):
                found = dissect(record.frame)
                if not found.messages:
                    continue
                datagram = build_packet(found.session, found.sequence, found.messages)
                entry = _LENGTH.pack(len(datagram)) + datagram
                for host, times in copies(tuple(found.labels)).items():
                    files[host].write(entry * times)
                    count += times
    for each in files.values():
        each.close()
    return count


def checked(
    world: World, settings: Settings, folder: Path
) -> tuple[dict[str, float], float, float]:
    """Runs the job; returns the most MB by kind, its seconds, and seconds of a core.

    Raises RuntimeError with its last lines where it does not prove all.
    """
    began, most, cores = time.monotonic(), {}, 0.0
    log = world.fresh("check.log")
    spark = {"spark.driver.memory": HEAP}
    with Job(settings, log, spark=spark, script="check_delivery.py", arguments=[folder]) as job:
        while (code := job.ended()) is None:
            for kind, value in resident(job.pid).items():
                most[kind] = max(most.get(kind, 0.0), value)
            cores = max(cores, in_all(used({job.pid: DRIVER})))
            time.sleep(PAUSE)
    if code:
        job.check()
    return {kind: value for kind, value in most.items() if value}, time.monotonic() - began, cores
