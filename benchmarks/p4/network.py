"""All frames of the main job's default session through the switches of its network."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from random import Random

from virtual_trees_cases import datagram, modelled, stack_frame

from benchmarks.compile import say
from benchmarks.p4.workloads import PUBLISHER, Workload
from stackcast.lab.fabric.switches import Fabric
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.stacks.forwarding import ForwardingModel
from stackcast.udfs.switches.stack_entries import switch_entries

PAYLOAD = 70
RUNS = 3


def session(work: Workload, program: bytes) -> None:
    """One process carries all frames to all hosts, as the lab does, without its sockets."""
    random = Random("session")
    stacks = [labels for labels, frames in work.stacks.items() for _ in range(frames)]
    random.shuffle(stacks)
    frames = [stack_frame(labels, datagram(random.randbytes(PAYLOAD))) for labels in stacks]
    wanted: Counter[str] = Counter()
    for labels, times in work.stacks.items():
        for host, copies in (
            ForwardingModel(work.network, work.tables).deliver(PUBLISHER, labels).hosts.items()
        ):
            wanted[host] += copies * times
    behind = datagram(bytes(PAYLOAD))
    began = time.thread_time()
    for (switch, port, labels), times in work.visits.items():
        for _ in range(times):
            modelled(work.tables[switch], port, labels, behind)
    plain = time.thread_time() - began
    for cached in (False, True):
        seconds = []
        for _ in range(RUNS):
            seconds.append(_carried(work, program, frames, wanted, cached))
        median = statistics.median(seconds)
        say(
            f"network, default session, cache {'on' if cached else 'off'}",
            switches=len(work.network.switches),
            frames=len(frames),
            frames_at_switches=work.visits.total(),
            deliveries=wanted.total(),
            seconds=median,
            frames_a_second=round(len(frames) / median),
            frames_at_switches_a_second=round(work.visits.total() / median),
            to="the forwarding model in plain Python, switch by switch",
            ratio=median / plain,
        )


def _carried(
    work: Workload, program: bytes, frames: list[bytes], wanted: Counter[str], cached: bool
) -> float:
    switches = {name: SimpleSwitch(cached=cached) for name in work.network.switches}
    for switch in switches.values():
        switch.load(program)
    for entry in switch_entries(work.network, work.trees):
        switches[entry.switch].apply({entry.key: entry})
    came: Counter[str] = Counter()

    def arrived(host: str, _: bytes) -> None:
        came[host] += 1

    network = Fabric(work.network, switches, arrived)
    began = time.thread_time()
    for frame in frames:
        network.send(PUBLISHER, frame)
    seconds = time.thread_time() - began
    assert came == wanted
    assert not network.all_drops().total()
    return seconds
