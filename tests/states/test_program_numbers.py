"""Numbers of programs never run out, and no replica takes the updates of an earlier holder."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import pytest
from state_world import World

from stackcast.udfs.states.controller import SETTLE, Controller
from stackcast.udfs.states.messages import MOST_VNF, MessageKind, Signal, SignalKind, group_of
from stackcast.udfs.states.middleware import Middleware
from stackcast.udfs.states.outputs import CONTROLLER, Keep, Output, Record, Send
from stackcast.udfs.states.programs import FIRST_VNF, QUARANTINE, Program, Programs
from stackcast.udfs.states.requests import LEASE, REFRESH
from stackcast.udfs.states.segments import after, cut

pytestmark = pytest.mark.unit

#: Seconds between two starts.
STEP = 20.0
STATES = ("doors", "scanners")
#: Connections to the controller, and addresses of hosts; the first is the replica's.
HOSTS = range(1, 9)
Holder = tuple[str, int]


class Sender(NamedTuple):
    """A program that publishes, even if the controller takes it for dead."""

    holder: Holder
    vnf: int
    state: int
    update: int


def line_count(function: Callable[[], object]) -> int:
    """Returns how many lines of Python a call executes."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)
    return lines


class Network:
    """A controller, a host with a replica of each state, and programs that start and die."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.now = 0.0
        self.controller = Controller()
        self.replica = Middleware(HOSTS[0])
        self.records: dict[str, Record] = {}
        self.backlog: dict[tuple[int, int, int, int], bytes] = {}
        self.holders: dict[int, Holder] = {}
        self.alive: dict[int, Holder] = {}
        self.ended: dict[int, float] = {}
        #: Programs whose hosts no longer reach the controller, with the time of their last lease.
        self.cut_off: list[tuple[float, int]] = []
        self.senders: list[Sender] = []
        self.outcomes: Counter[str] = Counter()
        self.take(self.replica.from_program(1, Signal(SignalKind.INIT_VNF, data=b"replica"), 0.0))
        self._connect()
        for state in STATES:
            signal = Signal(SignalKind.SUB_REG, data=state.encode())
            self.take(self.replica.from_program(1, signal, self.now))

    def _connect(self) -> None:
        for host in HOSTS[1:]:
            self.ask(host, Signal(SignalKind.LEASE, data=host.to_bytes(4)))
        self.take(self.replica.controller_up(self.now))

    def restart_controller(self) -> None:
        self.controller = Controller()
        kept = [(key[0], datagram) for key, datagram in self.backlog.items()]
        self.replica.controller_down()
        self.carry(self.controller.restore(list(self.records.values()), kept, self.now))
        self._connect()
        # The next controller gives each program a new lease.
        self.cut_off = [(self.now, vnf) for _, vnf in self.cut_off]
        self._renew_leases()
        self.now += SETTLE
        self.controller_ticks()

    def ask(self, host: int, signal: Signal) -> Signal | None:
        """Returns the answer of the controller to the middleware of a host."""
        outputs = self.controller.from_middleware(host, signal, self.now)
        self.carry(outputs)
        answers = [o.signal for o in outputs if isinstance(o, Send) and o.connection == host]
        return next((each for each in answers if each.kind is signal.kind), None)

    def carry(self, outputs: list[Output]) -> None:
        """Carry out what the controller returns."""
        for output in outputs:
            match output:
                case Record(value=None):
                    self.records.pop(output.key, None)
                case Record():
                    self.records[output.key] = output
                case Keep():
                    key = output.state, output.vnf, output.update, output.segment
                    self.backlog.pop(key, None)
                    if output.datagram is not None:
                        self.backlog[key] = output.datagram
                        self.check(output.vnf, output.datagram[8:], "kept")
                case Send(connection=connection) if connection == HOSTS[0]:
                    self.take(self.replica.from_controller(output.signal, self.now))
                case Send(signal=signal) if signal.kind is SignalKind.RECOVER:
                    for sender in self.senders:
                        if (sender.vnf, sender.state) == (signal.vnf, signal.state):
                            self.answer(output.connection, sender, signal)

    def answer(self, host: int, sender: Sender, signal: Signal) -> None:
        """Answer the controller for a program that has only its next update."""
        if host == sender.holder[1]:
            kind = SignalKind.TRUNCATED
            self.ask(host, Signal(kind, signal.vnf, signal.state, sender.update))

    def take(self, outputs: list[Output]) -> None:
        """Carry out what the middleware of the replica returns."""
        for output in outputs:
            if isinstance(output, Send) and output.connection == CONTROLLER:
                self.carry(self.controller.from_middleware(HOSTS[0], output.signal, self.now))
            elif isinstance(output, Send) and output.signal.kind is SignalKind.PUBLISH:
                self.check(output.signal.vnf, output.signal.data, "delivered")

    def check(self, vnf: int, data: bytes, outcome: str) -> None:
        """Fail unless an update is of the program that has the number."""
        name, address = self.holders[vnf]
        assert data == f"{name} {address}".encode()
        self.outcomes[outcome] += 1

    # Programs

    def start(self, name: str, host: int) -> int:
        """Start a program; returns its number."""
        own = [v for v, h in self.holders.items() if h == (name, host) and v not in self.alive]
        answer = self.ask(host, Signal(SignalKind.INIT_VNF, data=name.encode()))
        assert answer is not None
        vnf = answer.vnf
        assert vnf
        if vnf in self.alive:
            # Its lease has just run out.
            assert vnf in {cut for _, cut in self.cut_off} and self.alive[vnf] == (name, host)
            self.cut_off = [(since, cut) for since, cut in self.cut_off if cut != vnf]
            own.append(vnf)
        if own:
            assert vnf in own
            self.outcomes["own number"] += 1
        elif vnf in self.holders:
            # The controller notices an end up to two steps before this model does.
            assert self.now - self.ended[vnf] >= QUARANTINE - 2 * STEP
            self.outcomes["number of another"] += 1
        self.holders[vnf] = self.alive[vnf] = name, host
        return vnf

    def publish(self, vnf: int, state: str) -> None:
        """Begin to publish a state, and publish one update."""
        name, host = self.holders[vnf]
        answer = self.ask(host, Signal(SignalKind.INIT_PUB, vnf, data=state.encode()))
        assert answer is not None
        self.senders.append(Sender((name, host), vnf, answer.state, answer.update))
        self.controller_ticks()
        self.send(len(self.senders) - 1)

    def send(self, place: int) -> None:
        """Send the next update of a program to replica and controller."""
        holder, vnf, state, update = sender = self.senders[place]
        self.senders[place] = sender._replace(update=after(update))
        data = f"{holder[0]} {holder[1]}".encode()
        address = group_of(MessageKind.PUBLISH, state)
        for header, piece in cut(vnf, update, data):
            datagram = header.pack() + piece
            self.take(self.replica.from_network(address, holder[1], datagram, self.now))
            self.carry(self.controller.from_network(address, holder[1], datagram, self.now))
        if self.holders[vnf] != holder:
            self.outcomes["sent by an earlier holder"] += 1

    def end(self, vnf: int, says_so: bool) -> None:
        """End a program, or cut its host off from the controller."""
        name, host = self.alive[vnf]
        if says_so:
            self.ask(host, Signal(SignalKind.LEASE, vnf, count=1))
            del self.alive[vnf]
            self.ended[vnf] = self.now
            self.senders = [s for s in self.senders if (s.vnf, s.holder) != (vnf, (name, host))]
        else:
            self.cut_off.append((self.now, vnf))

    def step(self) -> None:
        """Let time pass: programs renew their leases, except those that are cut off."""
        for _ in range(5):
            # A controller that ticks less often takes itself for paused, and extends all leases.
            self.now += STEP / 5
            self.carry(self.controller.tick(self.now))
        self._renew_leases()
        for since, vnf in list(self.cut_off):
            if self.now >= since + LEASE + STEP:
                self.cut_off.remove((since, vnf))
                del self.alive[vnf]
                self.ended[vnf] = self.now
        # Programs that are cut off continue to send, each for some hours.
        del self.senders[:-60]
        self.take(self.replica.tick(self.now))
        self.controller_ticks()
        if self.senders:
            self.send(self.draw.randrange(len(self.senders)))

    def _renew_leases(self) -> None:
        silent = {vnf for _, vnf in self.cut_off}
        for vnf, (name, host) in self.alive.items():
            if vnf not in silent:
                self.ask(host, Signal(SignalKind.LEASE, vnf, data=name.encode()))

    def controller_ticks(self) -> None:
        for _ in range(2):
            self.carry(self.controller.tick(self.now))
            self.now += 0.05
        self.carry(self.controller.facts())


@pytest.mark.integration
@pytest.mark.parametrize(
    "starts", [2_000, pytest.param(200_000, marks=pytest.mark.long)], ids=["some", "many"]
)
def test_numbers_never_run_out_and_replicas_take_updates_of_present_holders_only(
    starts: int,
) -> None:
    network = Network(1)
    lines = 0
    for number in range(1, starts + 1):
        host = network.draw.choice(HOSTS[1:])
        is_new = network.draw.random() < 0.4
        name = f"pod-{number}" if is_new else f"service-{network.draw.randrange(20)}"
        vnf = network.start(name, host)
        if network.draw.random() < 0.5:
            network.publish(vnf, network.draw.choice(STATES))
        else:
            state = network.draw.choice(STATES).encode()
            network.ask(host, Signal(SignalKind.SUB_REG, vnf, data=state))
        network.step()
        running = [v for v in network.alive if v not in {cut for _, cut in network.cut_off}]
        if len(running) > 10:
            network.end(network.draw.choice(running), network.draw.random() < 0.7)
        if number % 500 == 0:
            network.restart_controller()
        if number == 1_000:
            lines = line_count(lambda: network.controller.tick(network.now))
    assert len(network.holders) <= 150
    assert line_count(lambda: network.controller.tick(network.now)) < 2 * lines
    assert network.controller.counts().numbers_left > MOST_VNF - FIRST_VNF - 1_000
    assert network.controller.counts().programs < 300
    for outcome in (
        "own number",
        "number of another",
        "sent by an earlier holder",
        "kept",
        "delivered",
    ):
        assert network.outcomes[outcome] > starts / 100, network.outcomes


def test_a_number_rests_before_another_program_gets_it() -> None:
    programs = Programs()
    first, _ = programs.start(Program("a", 1))
    programs.end(first, 100.0)
    programs.forget(first, 100.0)
    programs.release(100.0 + QUARANTINE - 1)
    assert programs.start(Program("b", 1)) == (first + 1, None)
    assert programs.start(Program("a", 1))[0] == first
    programs.end(first, 200.0)
    programs.forget(first, 200.0)
    left = programs.numbers_left
    programs.release(200.0 + QUARANTINE)
    assert programs.numbers_left == left + 1
    number, former = programs.start(Program("c", 1))
    assert number == first and former is not None and former.name == "a"


def test_without_a_number_left_a_program_gets_none_until_one_has_rested() -> None:
    programs = Programs()
    programs._next = MOST_VNF
    last, _ = programs.start(Program("a", 1))
    assert (last, programs.numbers_left) == (MOST_VNF, 0)
    assert programs.start(Program("b", 1)) == (0, None)
    programs.end(last, 0.0)
    programs.forget(last, 0.0)
    assert programs.start(Program("b", 1)) == (0, None)
    programs.release(QUARANTINE)
    assert programs.start(Program("b", 1))[0] == last


def test_a_program_without_a_number_gets_one_once_one_has_rested() -> None:
    world = World(2, seed=1)
    world.run(1)
    world.controller._facts.programs._next = MOST_VNF
    world.start("a", 1)
    world.run(1)
    for name in ("late", "impatient"):
        world.start(name, 2)
        world.publish(name, "doors", name.encode())
    world.run(QUARANTINE)
    assert [world.clients[name].program.vnf for name in ("late", "impatient")] == [0, 0]
    for name in ("a", "impatient"):
        world._end_client(world.clients.pop(name))
    world.run(QUARANTINE + REFRESH + 1)
    program = world.clients["late"].program
    assert program.vnf == MOST_VNF and not program.unacknowledged


def test_a_host_keeps_its_address_if_a_program_ends_before_it_hears_that_no_number_is_left() -> (
    None
):
    middleware = Middleware(HOSTS[0])
    middleware.controller_up(0.0)
    middleware.from_program(1, Signal(SignalKind.INIT_VNF, data=b"a"), 0.0)
    middleware.program_ended(1, 0.0)
    # A lease of program 0 would be the address of the host.
    assert middleware.from_controller(Signal(SignalKind.INIT_VNF, data=b"a"), 0.0) == []


def test_a_program_that_has_restarted_continues_after_its_last_update() -> None:
    network = Network(2)
    vnf = network.start("a", 2)
    network.publish(vnf, "doors")
    network.end(vnf, says_so=True)
    other = network.start("b", 3)
    network.publish(other, "doors")
    assert network.start("a", 2) == vnf
    network.publish(vnf, "doors")
    assert network.senders[1].update > network.senders[0].update
    for _ in range(3):
        network.step()
    latest = network.replica._replicas[network.senders[1].state].latest
    for sender in network.senders:
        assert after(latest[sender.vnf][0]) == sender.update


def test_a_number_is_free_after_its_program_even_if_no_other_publishes_later() -> None:
    network = Network(3)
    for name, host in (("a", 2), ("b", 3)):
        network.publish(network.start(name, host), "doors")
    first = next(vnf for vnf, holder in network.holders.items() if holder == ("a", 2))
    network.end(first, says_so=True)
    network.senders.clear()
    for _ in range(round(2 * QUARANTINE / STEP) + 1):
        network.step()
    assert network.start("c", 4) == first


def test_a_replica_that_was_cut_off_takes_no_update_of_an_earlier_holder() -> None:
    """It has not heard that the updates of the first holder were let go."""
    replica = Middleware(HOSTS[0])
    replica.from_program(1, Signal(SignalKind.INIT_VNF, data=b"replica"), 0.0)
    replica.controller_up(0.0)
    replica.from_controller(Signal(SignalKind.INIT_VNF, 5001, data=b"replica"), 0.0)
    replica.from_program(1, Signal(SignalKind.SUB_REG, data=b"doors"), 0.0)
    replica.from_controller(Signal(SignalKind.SUB_REG, 5001, 1, data=b"doors"), 0.0)

    def report(host: int, name: bytes, last: int) -> None:
        about = host.to_bytes(4) + name
        signal = Signal(SignalKind.SUMMARY, 5002, 1, last, data=about)
        replica.from_controller(signal, 0.0)

    def delivered(host: int, update: int) -> list[bytes]:
        ((header, data),) = cut(5002, update, b"from %d" % host)
        address = group_of(MessageKind.PUBLISH, 1)
        outputs = replica.from_network(address, host, header.pack() + data, 0.0)
        signals = [output.signal for output in outputs if isinstance(output, Send)]
        return [each.data for each in signals if each.kind is SignalKind.PUBLISH]

    report(2, b"a", 0)
    assert delivered(2, 1) == [b"from 2"]
    replica.controller_down()
    replica.controller_up(0.0)
    report(3, b"b", 7)
    assert delivered(2, 2) == delivered(2, 8) == []
    assert delivered(3, 8) == [b"from 3"]
    # The same host, but another program.
    report(3, b"c", 20)
    assert delivered(3, 9) == []
    assert delivered(3, 21) == [b"from 3"]


def values(world: World, name: str) -> dict[str, bytes]:
    """Returns the last update of each publisher that a program has."""
    updates = world.clients[name].program.values("doors")
    return {publisher: update.data for publisher, update in updates.items()}


def test_a_replica_on_the_host_of_a_restarted_program_gets_its_last_update() -> None:
    world = World(2, seed=1)
    world.start("a", 1)
    world.publish("a", "doors", b"old")
    world.run(2)
    vnf = world.clients["a"].program.vnf
    world._end_client(world.clients.pop("a"))
    world.run(2)
    world.start("a", 1)
    for name, host in (("near", 1), ("far", 2)):
        world.start(name, host)
        world.subscribe(name, "doors")
    world.run(10)
    assert world.clients["a"].program.vnf == vnf
    assert values(world, "near") == values(world, "far") == {"a": b"old"}
    world.publish("a", "doors", b"new")
    world.run(2)
    assert values(world, "near") == values(world, "far") == {"a": b"new"}


@pytest.mark.parametrize("dies", ["program", "middleware"])
def test_an_update_after_a_restart_is_the_last_though_no_controller_ran(dies: str) -> None:
    world = World(3, seed=4)
    world.start("a", 2)
    world.start("replica", 3)
    world.subscribe("replica", "doors")
    world.run(1)
    world.kill_controller(20.03)
    for number in range(5):
        world.publish("a", "doors", b"%d" % number)
        world.run(1)
    if dies == "middleware":
        world.kill_middleware(2, 1)
        world.clients.pop("a")
        world.run(2)
    world.start("a", 2)
    world.publish("a", "doors", b"new")
    world.run(200)
    assert values(world, "replica") == {"a": b"new"}
    assert world.clients["replica"].program.value("doors").data == b"new"


def test_the_last_update_of_a_program_stays_while_it_runs_under_another_number() -> None:
    world = World(3, seed=1)
    for name, host in (("a", 1), ("b", 2)):
        world.start(name, host)
        world.publish(name, "doors", name.encode())
        world.run(2)
    world.kill_middleware(1, 1)
    world.run(LEASE + QUARANTINE + 60)
    world.publish("b", "doors", b"later")
    world.run(2)
    world.start("late", 3)
    world.subscribe("late", "doors")
    world.run(5)
    assert values(world, "late") == {"a": b"a", "b": b"later"}


def test_two_programs_of_one_name_never_have_one_number() -> None:
    """Even if the host's lease runs out while its signals are on their way."""
    controller, middleware = Controller(), Middleware(2)
    late: list[Signal] = []

    def send(outputs: list[Output]) -> None:
        late.extend(o.signal for o in outputs if isinstance(o, Send) and o.connection == CONTROLLER)

    def arrive(now: float) -> None:
        while late:
            for output in controller.from_middleware(1, late.pop(0), now):
                if isinstance(output, Send):
                    send(middleware.from_controller(output.signal, now))

    send(middleware.controller_up(0.0))
    send(middleware.from_program(1, Signal(SignalKind.INIT_VNF, data=b"a"), 0.0))
    arrive(0.0)
    send(middleware.from_program(2, Signal(SignalKind.INIT_VNF, data=b"a"), 1.0))
    for second in range(1, round(LEASE) + 3):
        controller.tick(float(second))
    arrive(LEASE + 2)
    numbers = [program.vnf for program in middleware._programs.values()]
    assert len(numbers) == len(set(numbers)) == 2 and all(numbers)


def test_the_end_of_a_connection_costs_the_same_however_many_programs_others_have() -> None:
    def lines(others: int) -> int:
        controller = Controller()
        vnfs: list[int] = []
        for connection, count in ((1, others), (2, 3)):
            controller.from_middleware(connection, Signal(SignalKind.LEASE, data=bytes(4)), 0.0)
            for number in range(count):
                name = f"{connection} {number}".encode()
                signal = Signal(SignalKind.INIT_VNF, data=name)
                *_, answer = controller.from_middleware(connection, signal, 0.0)
                assert isinstance(answer, Send)
                vnfs.append(answer.signal.vnf)
                publish = Signal(SignalKind.INIT_PUB, answer.signal.vnf, data=name)
                controller.from_middleware(connection, publish, 0.0)
        count = line_count(lambda: controller.middleware_ended(2))
        # The next messages of the middleware of these programs come by another connection.
        refused = controller.dropped["not_its_program"]
        for vnf in vnfs:
            controller.from_middleware(1, Signal(SignalKind.SUMMARY, vnf, 1), 0.0)
        assert controller.dropped["not_its_program"] == refused + 3
        return count

    assert lines(500) == lines(5)


@pytest.mark.parametrize("name", ["", "n" * 300, "\u00e9" * 300])
def test_a_program_of_any_name_keeps_its_lease(name: str) -> None:
    world = World(1, seed=1)
    world.start(name, 1)
    world.run(LEASE)
    assert world.clients[name].program.vnf == FIRST_VNF
