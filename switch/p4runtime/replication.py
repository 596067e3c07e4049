"""Multicast groups and clone sessions of P4Runtime, checked, to and from entries by name."""

from __future__ import annotations

from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet
from google.rpc import code_pb2

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.p4runtime.refusal import Refusal, invalid, number, unimplemented
from stackcast.switch.p4runtime.table_entries import HeldEntry
from stackcast.udfs.switches.entry import GROUPS, SESSIONS, SwitchEntry, group_entry, session_entry

# Widths of v1model: mcast_grp and egress_rid have 16 bits, ports 9; sessions are those of BMv2.
_GROUPS = 1 << 16
_INSTANCES = 1 << 16
_PORT_BITS = 9
_SESSIONS = 1 << 15
_LONGEST = 1 << 16

KINDS = {"multicast_group_entry": GROUPS, "clone_session_entry": SESSIONS}


def kind_of(wire: Any) -> str:
    """Returns `GROUPS` or `SESSIONS`: what an entry of the packet replication engine is."""
    kind = wire.WhichOneof("type")
    if kind is None:
        raise invalid("an entry of the packet replication engine is a group or a clone session")
    return KINDS[kind]


def key_entry(switch: str, wire: Any) -> SwitchEntry:
    """Returns the number alone, as DELETE and Read have it; 0 is refused."""
    if kind_of(wire) == GROUPS:
        return group_entry(switch, _number(wire.multicast_group_entry.multicast_group_id), ())
    return session_entry(switch, _session(wire.clone_session_entry.session_id), ())


def whole_entry(switch: str, wire: Any) -> HeldEntry:
    """Returns a group or a clone session with its replicas, for INSERT and MODIFY.

    Replicas come back as they were written: by ``port`` or by the older ``egress_port``.
    Raises `Refusal`: a number that v1model cannot hold, a replica without a port, or one that comes
    twice.
    """
    entity = p4runtime_pb2.Entity()
    stored = entity.packet_replication_engine_entry
    if kind_of(wire) == GROUPS:
        group = wire.multicast_group_entry
        what = f"multicast group {_number(group.multicast_group_id)}"
        ports = _replicas(group.replicas, what)
        _store_replicas(stored.multicast_group_entry.replicas, group.replicas)
        stored.multicast_group_entry.multicast_group_id = group.multicast_group_id
        stored.multicast_group_entry.metadata = group.metadata
        return HeldEntry(group_entry(switch, group.multicast_group_id, ports), entity, stored)
    session = wire.clone_session_entry
    what = f"clone session {_session(session.session_id)}"
    if session.class_of_service:
        raise unimplemented(f"{what}: this switch does not support classes of service")
    length = session.packet_length_bytes
    if not 0 <= length < _LONGEST:
        raise invalid(f"{what}: truncation of packets to {length} bytes is not supported")
    ports = _replicas(session.replicas, what)
    _store_replicas(stored.clone_session_entry.replicas, session.replicas)
    stored.clone_session_entry.session_id = session.session_id
    stored.clone_session_entry.packet_length_bytes = length
    return HeldEntry(session_entry(switch, session.session_id, ports, length), entity, stored)


def _number(group: int) -> int:
    if not group:
        raise invalid("0 is not a multicast group: it disables replication")
    if group >= _GROUPS:
        raise Refusal(code_pb2.OUT_OF_RANGE, f"multicast group {group} does not fit 16 bits")
    return group


def _session(session: int) -> int:
    if not 0 < session < _SESSIONS:
        raise invalid(f"a clone session must be 1 to {_SESSIONS - 1}, not {session}")
    return session


def _replicas(replicas: Any, what: str) -> list[tuple[int, int]]:
    ports: dict[tuple[int, int], None] = {}
    for replica in replicas:
        if len(UnknownFieldSet(replica)):
            raise unimplemented(f"{what}: a replica has fields of a later P4Runtime than 1.4.1")
        kind = replica.WhichOneof("port_kind")
        if kind is None:
            raise invalid(f"{what}: a replica has no port")
        if kind == "port":
            port = number(replica.port, _PORT_BITS, f"{what}, port")
        else:
            port = replica.egress_port
            if port >> _PORT_BITS:
                raise Refusal(
                    code_pb2.OUT_OF_RANGE, f"{what}: port {port} does not fit {_PORT_BITS} bits"
                )
        if replica.instance >= _INSTANCES:
            raise invalid(f"{what}: instance {replica.instance} does not fit 16 bits")
        if (port, replica.instance) in ports:
            raise invalid(f"{what}: port {port}, instance {replica.instance} occurs twice")
        ports[port, replica.instance] = None
    return list(ports)


def _store_replicas(stored: Any, replicas: Any) -> None:
    for replica in replicas:
        kept = stored.add(instance=replica.instance)
        if replica.WhichOneof("port_kind") == "egress_port":
            kept.egress_port = replica.egress_port
        else:
            kept.port = replica.port.lstrip(b"\0") or b"\0"
