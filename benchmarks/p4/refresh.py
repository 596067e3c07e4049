"""Refreshes of software switches over P4Runtime, by number of entries and of switches.

The switches run in a process of their own. A refresh of a switch connects, sets the
program, reads, compares, writes and reads back. The reference sends the same entries in requests
that were built in advance, and parses the entries that the switch returns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import grpc
from paths import COMPILED_P4

from benchmarks.compile import say
from benchmarks.support.ready_process import ReadyProcess
from stackcast.jobs.adapters.switches.background import PARALLEL
from stackcast.jobs.adapters.switches.messages import Names
from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.schemas.p4runtime import p4runtime_pb2, p4runtime_pb2_grpc
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.network.labels import NARROW, TREE
from stackcast.udfs.switches.entry import SwitchEntry, canonical
from stackcast.udfs.switches.stack_entries import LABELS_A_PASS, label_table

#: Entries of one switch.
ENTRIES = (10_000, 50_000)
#: A network of many switches.
SWITCHES, ENTRIES_OF_EACH = 260, 2_000
RUNS = 3
PROGRAM = "virtual_trees"
_BATCH = 500
_MAX_MESSAGE = 64 << 20


def run() -> None:
    """Print one line per measurement."""
    program = P4Program.read(COMPILED_P4, PROGRAM)
    for count in ENTRIES:
        _one_switch(program, count)
    _many_switches(program)


def tree_entries(switch: str, count: int) -> list[SwitchEntry]:
    """Return entries of stored trees, spread over the label tables, with masks of 15 ports."""
    entries = []
    for number in range(count):
        tree, position = divmod(number, LABELS_A_PASS)
        table = label_table(position + 1)
        control = table.rpartition(".")[0]
        label = ("label", "exact", canonical(NARROW.label(TREE, tree + 1)))
        ports = ("ports", canonical(number % ((1 << 15) - 1) + 1))
        entries.append(SwitchEntry(switch, table, (label,), f"{control}.tree", (ports,)))
    return entries


class Switches(ReadyProcess):
    """Empty software switches in a process of their own, at one address."""

    def __init__(self, count: int) -> None:
        super().__init__(serve, count)

    @cached_property
    def address(self) -> str:
        address: str = self._answer()
        return address


def serve(count: int, pipe: Any) -> None:
    """Serve devices 1 to ``count``."""
    devices = [Device(f"s{number}", number, SimpleSwitch()) for number in range(1, count + 1)]
    server = P4RuntimeServer(devices).start()
    pipe.send("ready")
    while pipe.recv():
        pipe.send(server.address)


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of the clock and of this process's processor time."""
    clock, processor = time.monotonic(), time.process_time()
    work()
    return time.monotonic() - clock, time.process_time() - processor


def _one_switch(program: P4Program, count: int) -> None:
    entries = tree_entries("s1", count)
    written, unchanged, reference = [], [], []
    for _ in range(RUNS):
        with Switches(1) as switches:
            target = SwitchTarget("s1", switches.address, 1)
            with SwitchSession(target) as session:
                written.append(_timed(lambda: _refresh(session, entries, program)))
                unchanged.append(_timed(lambda: _refresh(session, entries, program)))
        with Switches(1) as switches:
            target = SwitchTarget("s1", switches.address, 1)
            with SwitchSession(target) as session:
                _refresh(session, [], program)
                reference.append(_plain(switches.address, program, entries))
    clock, processor = _medians(written)
    plain_clock, plain_processor = _medians(reference)
    say(
        f"refresh of one switch from empty, {count} entries",
        seconds=clock,
        processor_seconds=processor,
        entries_a_second=round(count / clock),
        entries_a_processor_second=round(count / processor),
        to="the same requests, built in advance, and one read",
        ratio=clock / plain_clock,
        processor_ratio=processor / plain_processor,
    )
    clock, processor = _medians(unchanged)
    say(f"refresh without a change, {count} entries", seconds=clock, processor_seconds=processor)


def _medians(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    clock, processor = zip(*times, strict=True)
    return statistics.median(clock), statistics.median(processor)


def _refresh(session: SwitchSession, entries: Sequence[SwitchEntry], program: P4Program) -> None:
    result = session.refresh(entries, program, 10.0)
    if not result.in_sync:
        raise SystemExit(f"the switch is not in step: {result.errors[:3]}")


def _plain(address: str, program: P4Program, entries: Sequence[SwitchEntry]) -> tuple[float, float]:
    """Return the times of the reference on a switch that runs the program."""
    names = Names(program.p4info)
    requests = []
    for start in range(0, len(entries), _BATCH):
        request = p4runtime_pb2.WriteRequest(device_id=1)
        request.election_id.low = 1
        for entry in entries[start : start + _BATCH]:
            request.updates.add(type=p4runtime_pb2.Update.INSERT).entity.CopyFrom(
                names.to_wire(entry)
            )
        requests.append(request)
    wildcard = p4runtime_pb2.ReadRequest(device_id=1)
    wildcard.entities.add().table_entry.SetInParent()
    options = [("grpc.max_receive_message_length", _MAX_MESSAGE)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)

        def work() -> None:
            for request in requests:
                stub.Write(request)
            if sum(len(response.entities) for response in stub.Read(wildcard)) < len(entries):
                raise SystemExit("the switch does not hold what was written")

        return _timed(work)


def _many_switches(program: P4Program) -> None:
    with Switches(SWITCHES) as switches:
        sessions, entries = [], []
        for number in range(1, SWITCHES + 1):
            name = f"s{number}"
            sessions.append(SwitchSession(SwitchTarget(name, switches.address, number)))
            entries.append(tree_entries(name, ENTRIES_OF_EACH))

        def work() -> None:
            with ThreadPoolExecutor(PARALLEL) as pool:
                list(
                    pool.map(lambda n: _refresh(sessions[n], entries[n], program), range(SWITCHES))
                )

        clock, processor = _timed(work)
        for session in sessions:
            session.close()
    total = SWITCHES * ENTRIES_OF_EACH
    say(
        f"refresh of {SWITCHES} switches from empty, {ENTRIES_OF_EACH} entries each",
        seconds=clock,
        processor_seconds=processor,
        entries_a_second=round(total / clock),
        entries_a_processor_second=round(total / processor),
    )
