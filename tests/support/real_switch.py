"""The real BMv2 (simple_switch_grpc) between pairs of virtual network interfaces, as an oracle."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import grpc
from google.protobuf import text_format
from ports import free_port

from stackcast.schemas.p4runtime import p4info_pb2, p4runtime_pb2, p4runtime_pb2_grpc
from stackcast.udfs.switches.entry import GROUPS, SESSIONS, SwitchEntry, group_id, replicas
from stackcast.udfs.switches.match import Match

_ETH_P_ALL = 3
_ELECTION = 1
_START_SECONDS = 30.0
# A copy that is not expected must still be seen: so long nothing may arrive.
_QUIET_SECONDS = 0.01
_LATE_SECONDS = 3.0


class RealSwitch:
    """One BMv2 with ports 1..``ports``, and a raw socket at the other end of each.

    Needs the right to make interfaces. ``folder`` takes the log.
    """

    def __init__(self, binary: str, folder: Path, ports: int = 8) -> None:
        mark = f"bm{os.getpid() % 10000}"
        self._names = [(f"{mark}s{port}", f"{mark}h{port}") for port in range(1, ports + 1)]
        self._sockets: dict[int, socket.socket] = {}
        self._requests: queue.Queue[p4runtime_pb2.StreamMessageRequest | None] = queue.Queue()
        self.info = p4info_pb2.P4Info()
        self._copied: dict[str, SwitchEntry] = {}
        for port, (inner, outer) in enumerate(self._names, 1):
            _ip("link", "add", inner, "type", "veth", "peer", "name", outer)
            for name in (inner, outer):
                _ip("link", "set", name, "mtu", "9500", "addrgenmode", "none", "arp", "off", "up")
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            raw.bind((outer, _ETH_P_ALL))
            raw.setblocking(False)
            self._sockets[port] = raw
        address = f"127.0.0.1:{free_port()}"
        self.log = folder / "bmv2.log"
        interfaces = [
            word
            for port, (inner, _) in enumerate(self._names, 1)
            for word in ("-i", f"{port}@{inner}")
        ]
        self._process = subprocess.Popen(
            [
                *(binary, "--no-p4", "--device-id", "1", *interfaces),
                *("--log-file", str(self.log), "-L", "warn", "--", "--grpc-server-addr", address),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        self._channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self._channel).result(_START_SECONDS)
        self._stub = p4runtime_pb2_grpc.P4RuntimeStub(self._channel)
        self._stream = self._stub.StreamChannel(iter(self._requests.get, None))
        hello = p4runtime_pb2.StreamMessageRequest()
        hello.arbitration.device_id = 1
        hello.arbitration.election_id.low = _ELECTION
        self._requests.put(hello)
        assert next(self._stream).arbitration.status.code == 0

    def load(self, info: str, program: bytes) -> None:
        """Run a program, given as text of its P4Info and JSON, with empty tables."""
        # BMv2 says that a new program has no groups, but keeps those of the old one: what is then
        # inserted under the same numbers sends everything twice.
        self.delete(list(self._copied.values()))
        self.info = text_format.Parse(info, p4info_pb2.P4Info())
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=1,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        request.election_id.low = _ELECTION
        request.config.p4info.CopyFrom(self.info)
        request.config.p4_device_config = program
        self._stub.SetForwardingPipelineConfig(request)

    def insert(self, entries: Iterable[SwitchEntry]) -> None:
        held = list(entries)
        self._write(p4runtime_pb2.Update.INSERT, held)
        self._copied |= {each.key: each for each in held if each.table in (GROUPS, SESSIONS)}

    def delete(self, entries: Iterable[SwitchEntry]) -> None:
        gone = list(entries)
        self._write(p4runtime_pb2.Update.DELETE, gone)
        for each in gone:
            self._copied.pop(each.key, None)

    def _write(self, kind: int, entries: Iterable[SwitchEntry]) -> None:
        request = p4runtime_pb2.WriteRequest(device_id=1)
        request.election_id.low = _ELECTION
        for entry in entries:
            request.updates.add(type=kind, entity=self._entity(entry))
        if request.updates:
            self._stub.Write(request)

    def value_set(self, name: str, values: Sequence[int]) -> None:
        """The members of a parser's value set of one field."""
        number = next(v.preamble.id for v in self.info.value_sets if v.preamble.name == name)
        request = p4runtime_pb2.WriteRequest(device_id=1)
        request.election_id.low = _ELECTION
        update = request.updates.add(type=p4runtime_pb2.Update.MODIFY)
        update.entity.value_set_entry.value_set_id = number
        for value in values:
            member = update.entity.value_set_entry.members.add()
            match = member.match.add(field_id=1)
            match.exact.value = value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
        self._stub.Write(request)

    def counter(self, name: str) -> list[tuple[int, int]]:
        """``(packets, bytes)`` of each index of an indexed counter."""
        number = next(c.preamble.id for c in self.info.counters if c.preamble.name == name)
        request = p4runtime_pb2.ReadRequest(device_id=1)
        request.entities.add().counter_entry.counter_id = number
        found = {
            entity.counter_entry.index.index: entity.counter_entry.data
            for answer in self._stub.Read(request)
            for entity in answer.entities
        }
        return [(found[i].packet_count, found[i].byte_count) for i in sorted(found)]

    def process(
        self, port: int, frame: bytes, expected: int, quiet: float = _QUIET_SECONDS
    ) -> list[tuple[int, bytes]]:
        """The copies of ``frame``: waits until ``expected`` came, or for long, and then until no
        more came for ``quiet`` seconds."""
        self._sockets[port].send(frame)
        copies: list[tuple[int, bytes]] = []
        by_file = {raw.fileno(): port for port, raw in self._sockets.items()}
        end = time.monotonic() + _LATE_SECONDS
        while True:
            missing = len(copies) < expected
            wait = max(0.0, end - time.monotonic()) if missing else quiet
            ready, _, _ = select.select(list(by_file), [], [], wait)
            if not ready:
                return copies
            for file in ready:
                copies += self._arrived(by_file[file])

    def _arrived(self, port: int) -> list[tuple[int, bytes]]:
        copies = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, address = self._sockets[port].recvfrom(1 << 16)
                if address[2] != socket.PACKET_OUTGOING:
                    copies.append((port, data))
        return copies

    def close(self) -> None:
        self._requests.put(None)
        self._channel.close()
        self._process.terminate()
        self._process.wait()
        for raw in self._sockets.values():
            raw.close()
        for inner, _ in self._names:
            _ip("link", "del", inner)

    def _entity(self, entry: SwitchEntry) -> p4runtime_pb2.Entity:
        entity = p4runtime_pb2.Entity()
        if entry.table == GROUPS:
            group = entity.packet_replication_engine_entry.multicast_group_entry
            group.multicast_group_id = group_id(entry)
            for port, instance in replicas(entry):
                group.replicas.add(egress_port=port, instance=instance)
            return entity
        if entry.table == SESSIONS:
            session = entity.packet_replication_engine_entry.clone_session_entry
            session.session_id = group_id(entry)
            for port, instance in replicas(entry):
                session.replicas.add(egress_port=port, instance=instance)
            return entity
        table = next(t for t in self.info.tables if t.preamble.name == entry.table)
        fields = {field.name: field.id for field in table.match_fields}
        row = entity.table_entry
        row.table_id = table.preamble.id
        row.priority = entry.priority
        for name, kind, value in entry.match:
            match = row.match.add(field_id=fields[name])
            if kind == "optional":
                match.optional.value = value
                continue
            field = Match.parted(name, kind, value)
            if kind == "exact":
                match.exact.value = field.value
            elif kind == "lpm":
                match.lpm.value, match.lpm.prefix_len = field.value, field.prefix_length
            elif kind == "ternary":
                match.ternary.value, match.ternary.mask = field.value, field.other
            else:
                match.range.low, match.range.high = field.value, field.other
        action = next(a for a in self.info.actions if a.preamble.name == entry.action)
        row.action.action.action_id = action.preamble.id
        numbers = {parameter.name: parameter.id for parameter in action.params}
        for name, value in entry.params:
            row.action.action.params.add(param_id=numbers[name], value=value)
        return entity


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
