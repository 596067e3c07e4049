"""A P4Runtime server that misbehaves on demand, made for tests of what writes to switches.

Small and of its own, so that it shares no mistake with the lab's server: tables are dictionaries,
a P4Info only gives names. `Faults` says what goes wrong and when; a test may look at the tables
after every single update that was applied.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2

from stackcast.schemas.p4runtime import p4runtime_pb2, p4runtime_pb2_grpc
from stackcast.udfs.switches.entry import SwitchEntry, canonical, group_entry, replicas

RIVAL = 1 << 40
"""Election id of the rival that a fault brings in."""

_Update = p4runtime_pb2.Update
_Action = p4runtime_pb2.SetForwardingPipelineConfigRequest


@dataclass
class Faults:
    """Faults of one switch.

    Updates are numbered from 0, in the order in which they are applied or refused.

    Attributes:
        shuffle: shuffles the updates of each Write.
        refuse: returns the reason for which an update is refused, given its number and message.
        die: numbers of updates before which the switch dies; streams and calls end.
        forgets: a switch that died comes back without program and entries.
        forget: numbers of updates after whose Write the tables are silently emptied.
        rival: numbers of updates after whose Write another client is primary.
        vague: a Write with a refused update names no update, and applies none.
        slow: seconds before each response of a Read.
        deaf: calls other than those of a stream are not answered.
        no_program: the switch accepts no program.
        capacity: number of table entries that fit in the switch, whatever its P4Info says.
        explicit: reads return matches that accept every value (p4lang/PI, issue 35).
        details: refused writes have ``garbage`` as details, or one error too many (``extra``).
    """

    shuffle: random.Random | None = None
    refuse: Callable[[int, Any], str | None] = lambda _number, _update: None
    die: set[int] = field(default_factory=set)
    forgets: bool = False
    forget: set[int] = field(default_factory=set)
    rival: set[int] = field(default_factory=set)
    vague: bool = False
    slow: float = 0.0
    deaf: bool = False
    no_program: bool = False
    capacity: int | None = None
    explicit: bool = False
    details: str = ""


class FaultyDevice:
    """One switch.

    Attributes:
        writes: for each accepted Write, the kind and the entry of each update.
        actions: how the program was set, each time.
        reads: how often all tables were read.
        keeps_entries: whether the switch can reconcile.
        hides_groups: like BMv2, the switch reports no groups after a change of its program, but
            still copies by them.
        forgot: whether the switch lost its entries.
    """

    def __init__(self, name: str, device_id: int) -> None:
        self.name = name
        self.device_id = device_id
        self.lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """As new, without faults; clients that are connected are sent away."""
        with self.lock:
            for outbox in getattr(self, "clients", {}):
                outbox.put(None)
            self.clients: dict[Any, int] = {}
            self.highest = 0
            self.primary: int | None = None
            self.config: Any = None
            self.held: dict[bytes, Any] = {}
            self.number = 0
            self.writes: list[list[tuple[str, SwitchEntry]]] = []
            self.actions: list[str] = []
            self.reads = 0
            self.keeps_entries = True
            self.hides_groups = False
            self.hidden: list[Any] = []
            self.forgot = False
            self.faults = Faults()
            self.observer: Callable[[FaultyDevice, SwitchEntry], None] = lambda _device, _entry: (
                None
            )

    def entries(self) -> set[SwitchEntry]:
        """Return the entries of the switch."""
        with self.lock:
            return {self.decode(entity) for entity in self.held.values()}

    def copies(self) -> Counter[tuple[str, int, int]]:
        """How often a frame for a group leaves: by the group's key, port and instance."""
        with self.lock:
            groups = filter(_is_group, [*self.held.values(), *self.hidden])
            return Counter(
                (entry.key, port, instance)
                for entry in map(self.decode, groups)
                for port, instance in replicas(entry)
            )

    def set_config(self, request: Any, context: Any) -> None:
        self.actions.append(_Action.Action.Name(request.action))
        if self.hides_groups:
            self.hidden += filter(_is_group, self.held.values())
            self.held = {key: each for key, each in self.held.items() if not _is_group(each)}
        if request.action == _Action.RECONCILE_AND_COMMIT and not self.keeps_entries:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "cannot reconcile")
        if self.faults.no_program:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is no program")
        if request.action == _Action.VERIFY_AND_COMMIT:
            self.held.clear()
        self.config = request.config

    def decode(self, entity: Any) -> SwitchEntry:
        """By the P4Info, on a way of its own."""
        if _is_group(entity):
            group = entity.packet_replication_engine_entry.multicast_group_entry
            ports = [(replica.egress_port, replica.instance) for replica in group.replicas]
            return group_entry(self.name, group.multicast_group_id, ports)
        wire = entity.table_entry
        (table,) = (t for t in self.config.p4info.tables if t.preamble.id == wire.table_id)
        match = []
        for field_info in table.match_fields:
            for field_match in wire.match:
                if field_match.field_id == field_info.id:
                    match.append((field_info.name, *_match(field_match)))
        name, params = "", []
        for action in self.config.p4info.actions:
            if action.preamble.id == wire.action.action.action_id:
                name = action.preamble.name
                names = {param.id: param.name for param in action.params}
                params = [(names[p.param_id], p.value) for p in wire.action.action.params]
        return SwitchEntry(
            self.name, table.preamble.name, tuple(match), name, tuple(params), wire.priority
        )

    def die(self) -> None:
        """All clients lose their streams; what was held is forgotten if the faults say so."""
        with self.lock:
            for outbox in self.clients:
                outbox.put(None)
            self.clients.clear()
            self.primary = None
            self.highest = 0
            if self.faults.forgets:
                self.config = None
                self.held.clear()

    def bring_rival(self) -> None:
        """Another client becomes primary; it stays until `send_rival_away`."""
        with self.lock:
            self.highest = self.primary = RIVAL
            self.tell()

    def send_rival_away(self) -> None:
        with self.lock:
            if self.primary == RIVAL:
                self.primary = None
                self.tell()

    def tell(self) -> None:
        for outbox, election_id in self.clients.items():
            outbox.put(self.notice(election_id))

    def notice(self, election_id: int) -> Any:
        message = p4runtime_pb2.StreamMessageResponse()
        arbitration = message.arbitration
        arbitration.device_id = self.device_id
        arbitration.election_id.high = self.highest >> 64
        arbitration.election_id.low = self.highest & (1 << 64) - 1
        if self.primary is None:
            arbitration.status.code = code_pb2.NOT_FOUND
        elif election_id != self.primary:
            arbitration.status.code = code_pb2.ALREADY_EXISTS
        return message

    def write(self, request: Any, context: Any) -> None:
        updates = list(request.updates)
        answers = [p4runtime_pb2.Error(canonical_code=code_pb2.OK) for _ in updates]
        order = list(range(len(updates)))
        if self.faults.shuffle:
            self.faults.shuffle.shuffle(order)
        self.writes.append(
            [(_Update.Type.Name(each.type), self.decode(each.entity)) for each in updates]
        )
        first = self.number
        if self.faults.vague:
            refused = [self.faults.refuse(first + n, each) for n, each in enumerate(updates)]
            if any(refused):
                self.number += len(updates)
                context.abort(grpc.StatusCode.INTERNAL, "something is wrong")
        for place in order:
            number, update = self.number, updates[place]
            if number in self.faults.die:
                self.faults.die.discard(number)
                self.die()
                context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
            self.number += 1
            words = self.faults.refuse(number, update)
            code = code_pb2.INTERNAL
            if words is None:
                code, words = self.apply(update)
            if code != code_pb2.OK:
                answers[place].canonical_code, answers[place].message = code, words
            else:
                self.observer(self, self.decode(update.entity))
        written = set(range(first, self.number))
        if written & self.faults.forget:
            self.faults.forget -= written
            self.held.clear()
            self.forgot = True
        if written & self.faults.rival:
            self.faults.rival -= written
            self.bring_rival()
        if any(answer.canonical_code for answer in answers):
            status = status_pb2.Status(code=code_pb2.UNKNOWN, message="some failed")
            for answer in answers:
                status.details.add().Pack(answer)
            if self.faults.details == "extra":
                status.details.add().Pack(p4runtime_pb2.Error(canonical_code=code_pb2.INTERNAL))
            content = status.SerializeToString()
            if self.faults.details == "garbage":
                content = b"\xff\xff"
            details = ("grpc-status-details-bin", content)
            context.set_trailing_metadata((details,))
            context.abort(grpc.StatusCode.UNKNOWN, status.message)

    def apply(self, update: Any) -> tuple[int, str]:
        key = wire_key(update.entity)
        present = key in self.held
        if update.type == _Update.INSERT:
            if present:
                return code_pb2.ALREADY_EXISTS, "it is there already"
            if self.full(update.entity):
                return code_pb2.RESOURCE_EXHAUSTED, "the table is full"
        elif not present:
            return code_pb2.NOT_FOUND, "it is not there"
        if update.type == _Update.DELETE:
            del self.held[key]
        else:
            self.held[key] = update.entity
        return code_pb2.OK, ""

    def as_read(self, entity: Any) -> Any:
        """Return an entity as a Read does."""
        if not self.faults.explicit or _is_group(entity):
            return entity
        explicit = p4runtime_pb2.Entity()
        explicit.CopyFrom(entity)
        entry = explicit.table_entry
        (table,) = (t for t in self.config.p4info.tables if t.preamble.id == entry.table_id)
        present = {match.field_id for match in entry.match}
        for key in table.match_fields:
            if key.id not in present and key.match_type == key.LPM:
                match = entry.match.add(field_id=key.id)
                match.lpm.value = b"\0"
                match.lpm.prefix_len = 0
        return explicit

    def full(self, entity: Any) -> bool:
        if self.faults.capacity is not None:
            return sum(map(_is_table_entry, self.held.values())) >= self.faults.capacity
        table_id = entity.table_entry.table_id
        size = next((t.size for t in self.config.p4info.tables if t.preamble.id == table_id), 0)
        return bool(
            size and sum(e.table_entry.table_id == table_id for e in self.held.values()) >= size
        )


class FaultServer(p4runtime_pb2_grpc.P4RuntimeServicer):
    """Serves devices 1, 2, ... named by ``names`` on a free loopback port.

    tls: key, certificate and the authority that clients' certificates must be of, in PEM.
    """

    def __init__(self, names: Iterable[str], tls: tuple[bytes, bytes, bytes] | None = None) -> None:
        self.devices = {name: FaultyDevice(name, n) for n, name in enumerate(names, 1)}
        self._by_id = {device.device_id: device for device in self.devices.values()}
        self._threads = futures.ThreadPoolExecutor(16 + 4 * len(self.devices))
        self._server = grpc.server(self._threads)
        p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        if tls is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            key, certificate, authority = tls
            port = self._server.add_secure_port(
                "127.0.0.1:0",
                grpc.ssl_server_credentials([(key, certificate)], authority, True),
            )
        self.address = f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        for device in self.devices.values():
            device.die()
        self._server.stop(0.2).wait(2)
        self._threads.shutdown(wait=False)

    def Capabilities(self, request: Any, context: Any) -> Any:  # noqa: N802
        if any(device.faults.deaf for device in self.devices.values()):
            context.abort(grpc.StatusCode.UNAVAILABLE, "no answer")
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version="1.4.0")

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        device = self._device(request, context)
        with device.lock:
            self._must_be_primary(device, request, context)
            device.set_config(request, context)
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        device = self._device(request, context)
        with device.lock:
            if device.config is None:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no program")
            return p4runtime_pb2.GetForwardingPipelineConfigResponse(config=device.config)

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802
        device = self._device(request, context)
        with device.lock:
            self._must_be_primary(device, request, context)
            if device.config is None:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no program")
            device.write(request, context)
        return p4runtime_pb2.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        device = self._device(request, context)
        with device.lock:
            if device.config is None:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no program")
            entities = [
                device.as_read(entity)
                for entity in device.held.values()
                if any(_matches(entity, wildcard) for wildcard in request.entities)
            ]
            device.reads += any(_reads_all_tables(wildcard) for wildcard in request.entities)
        for start in range(0, len(entities), 100):
            time.sleep(device.faults.slow)
            yield p4runtime_pb2.ReadResponse(entities=entities[start : start + 100])

    def StreamChannel(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(requests, outbox), daemon=True).start()
        while (message := outbox.get()) is not None:
            if isinstance(message, str):
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
            yield message

    def _listen(self, requests: Any, outbox: Any) -> None:
        device = None
        try:
            for request in requests:
                device = self._by_id[request.arbitration.device_id]
                election_id = _number(request.arbitration.election_id)
                # A client without election id never becomes primary.
                requests_mastership = request.arbitration.HasField("election_id")
                with device.lock:
                    others = [box for box in device.clients if box is not outbox]
                    if requests_mastership and election_id in map(device.clients.get, others):
                        outbox.put(f"election id {election_id} is in use")
                        return
                    before = device.clients.get(outbox)
                    device.clients[outbox] = election_id
                    if requests_mastership and election_id >= device.highest:
                        device.highest = device.primary = election_id
                        device.tell()
                    else:
                        if before is not None and before == device.primary:
                            device.primary = None
                        outbox.put(device.notice(election_id))
        except grpc.RpcError:
            pass
        finally:
            if device is not None:
                with device.lock:
                    last_id = device.clients.pop(outbox, None)
                    if last_id is not None and last_id == device.primary:
                        device.primary = None
                        device.tell()
            outbox.put(None)

    def _device(self, request: Any, context: Any) -> FaultyDevice:
        if request.device_id not in self._by_id:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such device")
        return self._by_id[request.device_id]

    def _must_be_primary(self, device: FaultyDevice, request: Any, context: Any) -> None:
        if device.primary is None or _number(request.election_id) != device.primary:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not primary")


def _matches(entity: Any, wildcard: Any) -> bool:
    if entity.WhichOneof("entity") != wildcard.WhichOneof("entity"):
        return False
    table_id = wildcard.table_entry.table_id
    return _is_group(entity) or table_id in (0, entity.table_entry.table_id)


def _reads_all_tables(wildcard: Any) -> bool:
    return _is_table_entry(wildcard) and not wildcard.table_entry.table_id


def _is_table_entry(entity: Any) -> bool:
    return bool(entity.HasField("table_entry"))


def _is_group(entity: Any) -> bool:
    return bool(entity.HasField("packet_replication_engine_entry"))


def wire_key(entity: Any) -> bytes:
    """Return what identifies an entity in `FaultyDevice.held`."""
    if _is_group(entity):
        group = entity.packet_replication_engine_entry.multicast_group_entry
        return b"group %d" % group.multicast_group_id
    key = p4runtime_pb2.TableEntry()
    key.CopyFrom(entity.table_entry)
    key.ClearField("action")
    return bytes(key.SerializeToString(deterministic=True))


def _match(field_match: Any) -> tuple[str, bytes]:
    """Return the kind and the joined value, without the code under test."""
    kind = field_match.WhichOneof("field_match_type")
    if kind in ("exact", "optional"):
        return kind, getattr(field_match, kind).value
    if kind == "lpm":
        return kind, field_match.lpm.value + bytes([field_match.lpm.prefix_len])
    low, high = (
        (field_match.ternary.value, field_match.ternary.mask)
        if kind == "ternary"
        else (field_match.range.low, field_match.range.high)
    )
    width = max(len(low), len(high))
    assert {canonical(int.from_bytes(each, "big")) for each in (low, high)} == {low, high}
    return kind, low.rjust(width, b"\0") + high.rjust(width, b"\0")


def _number(election_id: Any) -> int:
    return int(election_id.high) << 64 | int(election_id.low)
