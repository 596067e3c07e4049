"""Programs, middlewares and a controller over real sockets, on the switch's P4 program."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from network_namespaces import add_veth, in_network_namespace, ip
from program_switches import dropped
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from state_cases import REASONS
from state_hosts import REGISTERS, TABLE, StateHosts, state_hosts
from waiting import until

from stackcast.cli.receive.kernel_counters import read_memberships
from stackcast.jobs.adapters.states.client import StatesClient
from stackcast.jobs.adapters.states.links import GroupLink
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.udfs.errors import StateError
from stackcast.udfs.states.frames import pack_frame, read_frame
from stackcast.udfs.states.messages import (
    ACKNOWLEDGER,
    MOST_BYTES,
    STATES_PORT,
    MessageKind,
    group_of,
)

pytestmark = pytest.mark.integration

HOSTS = {"a": 2, "b": 3, "c": 4}


@pytest.fixture
def hosts(request: pytest.FixtureRequest) -> StateHosts:  # type: ignore[misc]
    with state_hosts(3, program=getattr(request, "param", REGISTERS)) as hosts:
        yield hosts


both_programs = pytest.mark.parametrize("hosts", [REGISTERS, TABLE], indirect=True)


def enter(stack: contextlib.ExitStack, hosts: StateHosts, **options: bool) -> dict[str, Replica]:
    return {
        name: stack.enter_context(hosts.replica(port, name, **options))
        for name, port in HOSTS.items()
    }


@both_programs
def test_what_programs_publish_is_in_the_memory_of_all(hosts: StateHosts) -> None:
    large = os.urandom(300_000)
    with contextlib.ExitStack() as stack:
        programs = enter(stack, hosts)
        for name, program in programs.items():
            program.publish(f"first of {name}".encode())
        firsts = {name: f"first of {name}".encode() for name in programs}
        for program in programs.values():
            until(lambda program=program: program.values == firsts)
        before = hosts.controller.controller.recovered
        for name, program in programs.items():
            program.publish(large if name == "a" else f"last of {name}".encode())
        last = {"a": large, "b": b"last of b", "c": b"last of c"}
        for program in programs.values():
            until(lambda program=program: program.values == last)
            program.flush()
        assert len({program.value for program in programs.values()}) == 1
        updates = [update.data for update in programs["c"].updates(timeout=0.1)]
        assert set(updates) >= set(last.values()) and len(updates) == len(set(updates))
    # Most came by the switch: had it carried nothing, each of the others would have been brought
    # the 215 segments of the large one.
    assert hosts.controller.controller.recovered - before < 100


def test_middleware_and_controller_end_and_nothing_is_lost(hosts: StateHosts) -> None:
    with contextlib.ExitStack() as stack:
        programs = enter(stack, hosts)
        programs["a"].publish(b"1")
        until(lambda: programs["b"].values == {"a": b"1"})
        hosts.stop(1)
        programs["a"].publish(b"2")
        until(lambda: programs["b"].values == {"a": b"2"})  # the data plane needs no controller
        hosts.stop(3)
        programs["a"].publish(b"3")
        hosts.stop(2)
        programs["a"].publish(b"4")
        for port in (1, 2, 3):
            hosts.start(port)
        for program in programs.values():
            until(lambda program=program: program.values == {"a": b"4"})
            program.flush()


@both_programs
def test_the_largest_update_and_states_beyond_the_registers_reach_a_replica(
    hosts: StateHosts, request: pytest.FixtureRequest
) -> None:
    with hosts.replica(2, "a") as a, StatesClient("b", hosts.listen[3]) as b:
        b.subscribe(a.state)
        data = os.urandom(MOST_BYTES)
        a.publish(data)
        until(lambda: b.value(a.state) == data)
        # The registers of a switch serve states below 2048. It drops updates of further states, and
        # the replica controller delivers them.
        names = [f"state {number}" for number in range(2100)]
        with StatesClient("many", hosts.listen[2]) as many:
            for name in names:
                many.publish(name, name.encode())
                b.subscribe(name)
            until(lambda: all(b.value(name) == name.encode() for name in names))
            many.publish(names[-1], b"last")
            until(lambda: b.value(names[-1]) == b"last")

        def unknown() -> int:
            reasons = dict(zip(REASONS, dropped(REASONS, hosts.switch), strict=True))
            return reasons["UNKNOWN_STATE"]

        if request.node.callspec.params["hosts"] == REGISTERS:
            until(lambda: unknown() > 0)  # the switch may have much to do yet
        else:
            assert unknown() == 0


def test_a_program_that_only_publishes_gets_nothing(hosts: StateHosts) -> None:
    with (
        hosts.replica(2, "sensor", subscribes=False) as sensor,
        hosts.replica(3, "reader") as reader,
    ):
        sensor.publish(b"21 degrees")
        until(lambda: reader.value == b"21 degrees")
        assert sensor.values == {}


def test_a_host_says_once_that_its_controller_is_gone_and_that_it_is_back(
    hosts: StateHosts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hosts.stop(3)
    hosts.stop(4)
    with hosts.replica(2, "a") as program:
        program.publish(b"1")
        program.flush()
        caplog.clear()
        hosts.stop(1)
        until(lambda: "refused" in caplog.text)
        service, retries = hosts.services[2][0], set()

        def retried() -> bool:
            retries.add(service._retry)
            return len(retries) > 4

        until(retried)
        hosts.start(1)
        until(lambda: "connected to the replica controller" in caplog.text)
        program.publish(b"2")
        program.flush()
    lines = [record.getMessage() for record in caplog.records]
    assert [
        line.partition("(")[2].partition(")")[0] for line in lines if "not reachable" in line
    ] == [
        "the connection was closed",
        "Connection refused",
    ]


def test_flush_says_what_is_not_safe(hosts: StateHosts) -> None:
    hosts.stop(1)
    with hosts.replica(2, "a") as program:
        program.publish(b"1")
        with pytest.raises(
            StateError, match=r"STATE\.NOT_CONFIRMED: .*not confirmed 1 update of a"
        ):
            program.flush(0.2)


@pytest.mark.parametrize("size", [8, 1408])
def test_frames_of_hosts_are_read_back_and_damaged_ones_are_not(size: int) -> None:
    group, datagram = group_of(MessageKind.PUBLISH, 77), os.urandom(size)
    frame = pack_frame(0x0A000001, group, datagram)
    assert read_frame(frame) == (group, 0x0A000001, datagram)
    assert read_frame(frame + b"\0" * 7) == (group, 0x0A000001, datagram)
    assert read_frame(pack_frame(ACKNOWLEDGER, group, b"")) == (group, ACKNOWLEDGER, b"")
    for position in (12, 14, 20, 23, 26, 30, 33, 36, 38):
        damaged = bytearray(frame)
        damaged[position] ^= 0x11
        assert read_frame(bytes(damaged)) is None
    assert all(read_frame(frame[:length]) is None for length in range(len(frame)))


def test_a_host_is_in_more_groups_than_a_socket_may_be() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    link = GroupLink("127.0.0.1", port)
    try:
        groups = [group_of(MessageKind.PUBLISH, state) for state in range(1, 121)]
        for group in groups:
            link.join(group)
        link.leave(groups[7])
        for group in groups:
            link.send(group, group.to_bytes(4))
        heard: set[int] = set()

        def all_heard() -> bool:
            for group, source, datagram in link.receive():
                assert group.to_bytes(4) == datagram and source == link.address
                heard.add(group)
            return len(heard) >= 119

        until(all_heard)
        assert heard == set(groups) - {groups[7]}
    finally:
        link.close()


@in_network_namespace
def test_a_host_is_in_its_groups_again_when_its_interface_was_created_again(_: Path) -> None:
    groups = [group_of(MessageKind.PUBLISH, state) for state in range(1, 31)]
    names = [str(IPv4Address(group)) for group in groups]

    def create() -> None:
        add_veth("near", "far", "10.9.0.2/24")
        ip("route add 224.0.0.0/4 dev far")

    def joined() -> set[str]:
        return read_memberships()["far"] & set(names)

    def heard() -> set[int]:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("near", 0))
            for name in names:
                packet = IP(src="10.9.0.1", dst=name) / UDP(sport=9, dport=STATES_PORT) / b"x"
                wire.send(bytes(Ether(dst="01:00:5e:00:00:01") / packet))
        return {group for _ in range(9) for group, _, _ in link.receive()}

    create()
    link = GroupLink("10.9.0.2")
    for group in groups:
        link.join(group)
    # Packets are lost until both interfaces are up.
    until(lambda: heard() == set(groups))
    ip("link delete near")
    create()
    assert joined() == set()
    link.rejoin()
    assert joined() == set(names)
    until(lambda: heard() == set(groups))
    link.rejoin()
    link.leave(groups[0])
    assert joined() == set(names[1:])
    # It also sends from there again.
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as wire:
        wire.bind(("near", 0x0800))
        wire.settimeout(60)
        link.send(groups[0], b"again")
        while b"again" not in wire.recv(2048):
            pass
    link.close()
