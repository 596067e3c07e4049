"""The software switch against BMv2 itself: the same programs, tables and frames."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pytest
import routes_cases
import state_cases
import virtual_trees_cases
from feature_cases import FEATURES, PORTS, receivable
from packet_cases import (
    ALERT,
    APART,
    KEYED,
    LENGTHS,
    PLAIN,
    ROUTES,
    STATE,
    order,
    other,
    routed,
    rows,
)
from paths import COMPILED_P4
from program_switches import open_ports
from pruning_model import datagram
from real_switch import RealSwitch
from switch_model import Message, Port, SwitchModel
from tunnels import in_tunnel

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network.encodings import ROUTES as FORMS
from stackcast.udfs.network.labels import LabelFormat, SwitchTables
from stackcast.udfs.network.source_routes import WIDE_SOURCE_ROUTES
from stackcast.udfs.network.tunnel import Tunnel, TunnelEnd
from stackcast.udfs.states.messages import StateHeader
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.tunnels import end_entries

pytestmark = [pytest.mark.integration, pytest.mark.bmv2]

FRAMES = 400
#: Behind the last port, seen from the switch and from the other end.
TUNNEL = Tunnel(TunnelEnd(0x0A090001, 1, 2), 0x0A090002, sends=True)
FAR = Tunnel(TunnelEnd(0x0A090002, 3, 4), 0x0A090001, sends=True)


@pytest.fixture(scope="module")
def real(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealSwitch]:
    binary = str(pytestconfig.getoption("--bmv2"))
    switch = RealSwitch(binary, tmp_path_factory.mktemp("bmv2"), PORTS)
    yield switch
    switch.close()


def compare(
    switch: SimpleSwitch,
    real: RealSwitch,
    frames: Iterable[tuple[int, bytes]],
    seed: int,
    quiet: float = 0.01,
) -> int:
    """Let each frame pass both; how many copies there were. ``quiet``: seconds between frames."""
    total = 0
    for port, frame in frames:
        expected = receivable(switch.process(port, frame))
        answer = sorted(real.process(port, frame, len(expected), quiet))
        assert answer == expected, (seed, port, frame.hex())
        total += len(answer)
    return total


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_program_does_what_it_does_in_bmv2(name: str, real: RealSwitch) -> None:
    feature = FEATURES[name]
    real.load(feature.info(), feature.json())
    real.insert(feature.entries)
    switch = feature.switch()
    seed = random.randrange(1 << 32)
    frames = islice(feature.frames(random.Random(seed)), FRAMES)
    assert compare(switch, real, frames, seed) > FRAMES / 4
    if name == "feature_state":
        for counter in ("ingress.frames", "ingress.frames_alone", "egress.sent"):
            ours = [switch.counter(counter, at) for at in range(switch.counter_size(counter))]
            assert ours == real.counter(counter)


def running(real: RealSwitch, program: str, entries: list[SwitchEntry]) -> SimpleSwitch:
    """The software switch with a program of ``p4/`` and entries that the real one has too."""
    config = (COMPILED_P4 / f"{program}.json").read_bytes()
    real.load((COMPILED_P4 / f"{program}.p4info.txtpb").read_text(), config)
    real.insert(entries)
    switch = SimpleSwitch()
    switch.load(config)
    switch.apply({entry.key: entry for entry in entries})
    return switch


def open_tables(draw: Callable[[], SwitchTables]) -> SwitchTables:
    """Tables of a switch that takes stacks by some port."""
    while not (tables := draw()).sources:
        pass
    return tables


def same_drops(switch: SimpleSwitch, real: RealSwitch) -> None:
    name = "ingress.dropped"
    ours = [switch.counter(name, at)[0] for at in range(switch.counter_size(name))]
    assert ours == [packets for packets, _ in real.counter(name)]


def test_virtual_trees_are_forwarded_as_in_bmv2(real: RealSwitch) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    tables = open_tables(lambda: virtual_trees_cases.random_tables(rng, PORTS))
    entries = virtual_trees_cases.entries_of(tables, PORTS) + end_entries("s", PORTS, TUNNEL)
    switch = running(real, "virtual_trees", entries)

    def frames() -> Iterator[tuple[int, bytes]]:
        for _ in range(FRAMES):
            labels = virtual_trees_cases.random_stack(rng)
            behind = virtual_trees_cases.datagram(rng.randbytes(rng.randrange(60)))
            frame = virtual_trees_cases.stack_frame(labels, behind)
            yield PORTS, in_tunnel(FAR, frame)
            yield (
                rng.randint(1, PORTS),
                frame[: rng.choice([*[len(frame)] * 5, rng.randrange(14, 60)])],
            )
        for address in ("10.1.2.3", "10.2.9.9", "10.3.1.1", "10.9.9.9"):
            behind = virtual_trees_cases.datagram(dst=address)
            yield 1, virtual_trees_cases.plain_frame(behind)
        for _, frame, _ in virtual_trees_cases.odd_frames():
            if len(frame) >= 14:
                yield 1, frame

    assert compare(switch, real, frames(), seed) > FRAMES
    same_drops(switch, real)


@pytest.mark.parametrize(
    "form", [*FORMS.values(), *WIDE_SOURCE_ROUTES.values()], ids=lambda form: form.program
)
def test_routes_are_forwarded_as_in_bmv2(form: LabelFormat, real: RealSwitch) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    tables = open_tables(lambda: routes_cases.random_tables(rng, PORTS, form))
    entries = routes_cases.entries_of(tables, PORTS) + end_entries("s", PORTS, TUNNEL)
    switch = running(real, form.program, entries)

    def frames() -> Iterator[tuple[int, bytes]]:
        for _ in range(FRAMES):
            labels = routes_cases.random_stack(rng, form)
            behind = virtual_trees_cases.datagram(rng.randbytes(rng.randrange(60)))
            frame = routes_cases.stack_frame(form, labels, behind)
            yield PORTS, in_tunnel(FAR, frame)
            end = rng.choice([*[len(frame)] * 5, rng.randrange(14, 60)])
            yield rng.randint(1, PORTS), frame[:end]
        for _, frame, _ in routes_cases.odd_frames(form):
            if len(frame) >= 14:
                yield 1, frame

    assert compare(switch, real, frames(), seed) > 10
    same_drops(switch, real)


def test_states_are_replicated_as_in_bmv2(real: RealSwitch) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    model = state_cases.random_model(rng, PORTS, PORTS)
    # No lease ends meanwhile.
    model.lease = 40
    switch = running(real, state_cases.REGISTERS, state_cases.entries_of(model))

    def frames() -> Iterator[tuple[int, bytes]]:
        for number in range(FRAMES):
            header = StateHeader(7, number, 1, 1)
            frame = state_cases.state_frame(state_cases.random_message(rng), header)
            end = rng.choice([*[len(frame)] * 9, rng.randrange(14, len(frame))])
            yield rng.randint(1, PORTS), frame[:end]
        for _, frame, _ in state_cases.odd_frames():
            if len(frame) >= 14:
                yield 1, frame

    assert compare(switch, real, frames(), seed) > 10
    same_drops(switch, real)


def test_leases_end_in_bmv2(real: RealSwitch) -> None:
    ports = {1: Port(0x0A000001, True), 2: Port(), 3: Port(0x0A000003)}
    model = SwitchModel(ports, 0b10, 20, state_cases.CAPACITY)
    running(real, state_cases.REGISTERS, state_cases.entries_of(model))
    header = StateHeader(7, 1)
    register = state_cases.state_frame(Message(state_cases.REGISTER, 1, 0x0A000003), header)
    update = state_cases.state_frame(Message(state_cases.PUBLISH, 1, 0x0A000001), header)
    assert sorted(port for port, _ in real.process(3, register, 2)) == [2, 3]
    assert real.process(1, update, 1) == [(3, update)]
    time.sleep(2.2)
    assert real.process(1, update, 0) == []


@pytest.mark.parametrize(
    ("rules", "apart", "keyed"),
    [(PLAIN, (), ()), (STATE, (), ()), (PLAIN, APART, KEYED)],
    ids=["plain", "state", "groups"],
)
def test_subscriptions_are_served_as_in_bmv2(
    rules: tuple[str, ...], apart: tuple[str, ...], keyed: tuple[str, ...], real: RealSwitch
) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    ports = range(1, 17)
    entries = [*open_ports("s", [*ports, 20, 33, 44, 52, 64]), *rows(rules, apart, keyed)]
    entries += [routed(route) for route in ROUTES]
    switch = running(real, "packet_subscriptions", entries)

    def message() -> bytes:
        if rng.random() < 0.2:
            kind = rng.choice(sorted(LENGTHS))
            return bytes([kind]) + rng.randbytes(LENGTHS[kind] - 1)
        return order(
            rng.choice(["GOOGL", "MSFT", "IBM", "AAPL", "NFLX", "X"]),
            rng.choice([0, 199_999, 200_000, 500_001, 990_001]),
            rng.choice([0, 99, 100, 1 << 31]),
            rng.choice("BS"),
            rng.choice([0, 1, 10**9, 5 * 10**9]),
        )

    def frames() -> Iterator[tuple[int, bytes]]:
        for _ in range(FRAMES // 2):
            several = [message() for _ in range(rng.choice([1, 1, 1, 2, 3, 5, 12]))]
            frame = bytearray(datagram(several, udp_sum=rng.random() < 0.7))
            if rng.random() < 0.15:
                frame[rng.randrange(14, len(frame))] ^= 1 << rng.randrange(8)
            if rng.random() < 0.05:
                del frame[rng.randrange(14, len(frame)) :]
            yield rng.randint(1, PORTS), bytes(frame)
        for words in range(11):
            frame = bytearray(other("10.1.2.3", options=ALERT * words))
            yield 1, bytes(frame)
            yield 1, bytes(frame[:-1])
            frame[14 + rng.randrange(20 + 4 * words)] ^= 1 << rng.randrange(8)
            yield 1, bytes(frame)

    # State goes by the order of messages: a frame must be through all its passes before the next.
    quiet = 0.05 if rules is STATE else 0.01
    assert compare(switch, real, frames(), seed, quiet) > FRAMES / 4
    same_drops(switch, real)
