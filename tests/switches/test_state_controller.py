"""The controller of states on a switch over P4Runtime, beside a refresher that writes the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import p4_products
import pytest
from state_cases import (
    LEASE,
    PUBLISH,
    REGISTER,
    REMOVE,
    TABLE,
    ack_frame,
    entries_of,
    program,
    state_frame,
)
from switch_model import Message, Port, SwitchModel
from waiting import until

from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.switches.state_controller import StateController
from stackcast.lab.fabric.injections import Injections
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.data_plane import CPU_PORT
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.states.messages import StateHeader
from stackcast.udfs.switches.entry import Difference
from stackcast.udfs.switches.state_entries import STATE, STATES_ROLE, TREE, state_row

pytestmark = pytest.mark.integration

MODEL = SwitchModel({1: Port(0x0A000001, True), 2: Port(), 3: Port(0x0A000003)}, 0b10, LEASE + 12)
HEADER = StateHeader(7, 1)


class Lab:
    """A switch with its server, and what has left it."""

    def __init__(self) -> None:
        self.switch = SimpleSwitch()
        self.injections = Injections()
        device = Device("s", 1, self.switch, lambda data: self.injections.put("s", data))
        self.server = P4RuntimeServer([device]).start()
        self.left: list[tuple[int, bytes]] = []

    def send(self, port: int, frame: bytes) -> None:
        self.left += self.switch.process(port, frame)

    def carried(self) -> list[tuple[int, bytes]]:
        for _, data in self.injections.take():
            self.left += self.switch.process(CPU_PORT, data)
        return sorted(self.left)

    def connect(self, election_id: int = 5, role: str = "") -> SwitchConnection:
        credentials = Credentials(role=role)
        return SwitchConnection.connect(self.server.address, 1, election_id, credentials, name="s")


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.server.stop()
    made.injections.close()


@pytest.fixture
def refresher(lab: Lab) -> Iterator[SwitchConnection]:
    """A client that has written program and entries."""
    info, _ = p4_products.products(TABLE)
    with lab.connect() as connection:
        connection.ensure_pipeline(info.read_text(), program(TABLE))
        assert connection.write(Difference(tuple(entries_of(MODEL, 3)), (), ())) == []
        yield connection


@pytest.fixture
def controlled(lab: Lab, refresher: SwitchConnection) -> Iterator[Lab]:
    stop = threading.Event()
    controller = StateController(lab.server.address, 1, name="s")
    thread = threading.Thread(target=controller.run, args=(stop.is_set,))
    thread.start()
    yield lab
    stop.set()
    thread.join(600)
    assert not thread.is_alive()


def frame_of(kind, source: int, number: int = 1) -> bytes:
    return state_frame(Message(kind, 1, source), StateHeader(7, number))


def registered(lab: Lab) -> list[tuple[int, bytes]]:
    register = frame_of(REGISTER, 0x0A000003)
    ack = ack_frame(Message(REGISTER, 1, 0x0A000003), HEADER)
    # Until a controller has joined, what it should get is dropped.
    until(lambda: lab.send(3, register) or (3, ack) in lab.carried())
    return [(3, ack), (2, register)]


def test_a_register_becomes_a_row_is_acknowledged_and_goes_on(controlled: Lab) -> None:
    ack, onward = registered(controlled)
    assert set(controlled.carried()) == {ack, onward}
    update = frame_of(PUBLISH, 0x0A000001)
    controlled.left.clear()
    controlled.send(1, update)
    assert (3, update) in controlled.left
    remove = frame_of(REMOVE, 0x0A000003, 2)
    controlled.send(3, remove)
    until(lambda: (2, remove) in controlled.carried())
    controlled.left.clear()
    controlled.send(1, update)
    assert (3, update) not in controlled.left


def test_the_refresher_neither_sees_nor_loses_rows_of_the_controller(
    controlled: Lab, refresher: SwitchConnection
) -> None:
    registered(controlled)
    wanted = {entry.key for entry in entries_of(MODEL, 3)}
    assert {entry.key for entry in refresher.read_entries("s")} == wanted
    with controlled.connect(2, STATES_ROLE) as other:
        rows = [entry for entry in other.read_entries("s") if entry.table == STATE]
    assert rows == [state_row("s", 1, 0b100)]


def test_a_role_writes_its_own_table_alone(lab: Lab, refresher: SwitchConnection) -> None:
    row = state_row("s", 9, 0b1)
    with lab.connect(1, STATES_ROLE) as own:
        assert own.write(Difference((row,), (), ())) == []
        (tree,) = own.read_entries("s", TREE)
        (refused,) = own.write(Difference((), (), (tree,)))
        assert refused.status == "PERMISSION_DENIED"
    with pytest.raises(SwitchError):
        lab.connect(1, "nobodys")


def test_what_no_controller_takes_is_counted(lab: Lab, refresher: SwitchConnection) -> None:
    with lab.connect(1, STATES_ROLE) as own:
        register = frame_of(REGISTER, 0x0A000003)
        lab.send(3, register)
        assert own.packet_in(10) == ({"port": 3}, register)
    assert lab.left == []
    until(lambda: lab.send(3, register) or lab.switch.drops["no_controller"] > 0)


def test_what_is_sent_out_must_fit_the_program(lab: Lab, refresher: SwitchConnection) -> None:
    with lab.connect(1, STATES_ROLE) as own:
        with pytest.raises(SwitchError):
            own.packet_out({"speed": 1}, b"frame")
        own.packet_out({}, b"frame")
        own.packet_out({"ports": 1 << 64}, b"frame")
        own.packet_out({"ports": 0b101}, frame_of(PUBLISH, 1))
        until(lambda: [port for port, _ in lab.carried()] == [1, 3])
