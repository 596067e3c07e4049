"""Converts entries between the names of a P4Info and the messages of P4Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, status_pb2

from stackcast.schemas.p4runtime import p4info_pb2, p4runtime_pb2
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import (
    GROUPS,
    SwitchEntry,
    canonical,
    group_entry,
    group_id,
    replicas,
)
from stackcast.udfs.switches.match import Match

#: A refused update: its position in the request, status code and reason.
UpdateError = tuple[int, str, str]

#: Last part of the name of the counter in which each of our programs counts dropped packets.
DROPPED = "dropped"
_ROLE = "@p4runtime_role("
#: Entries that a switch may return besides those for which its program states a size.
_SPARE_ENTRIES = 200_000


@dataclass(frozen=True, slots=True)
class _Table:
    id: int
    name: str
    is_const: bool
    #: In the order of the P4Info.
    field_ids: dict[str, int]
    bitwidths: dict[int, int]

    @classmethod
    def of(cls, table: p4info_pb2.Table) -> _Table:
        return cls(
            table.preamble.id,
            table.preamble.name,
            table.is_const_table,
            {field.name: field.id for field in table.match_fields},
            {field.id: field.bitwidth for field in table.match_fields},
        )


@dataclass(frozen=True, slots=True)
class _Action:
    id: int
    name: str
    #: In the order of the P4Info.
    param_ids: dict[str, int]

    @classmethod
    def of(cls, action: p4info_pb2.Action) -> _Action:
        preamble = action.preamble
        return cls(preamble.id, preamble.name, {param.name: param.id for param in action.params})


_UNKNOWN_ACTION = _Action(0, "", {})


class Names:
    """The names and ids of one program.

    Args:
        p4info: the P4Info of the program.
        role: the client's role. Entries of tables that the program assigns to another role are
            left out.

    Attributes:
        tables: names of the tables, in the order of the P4Info.
        drop_counters: ids of the counters of dropped packets.
        max_entries: more entries than a switch with this program can hold.
    """

    def __init__(self, p4info: p4info_pb2.P4Info, role: str = "") -> None:
        self._headers = {
            header.preamble.name: header.metadata for header in p4info.controller_packet_metadata
        }
        self._others = {
            table.preamble.id
            for table in p4info.tables
            if any(
                each.startswith(_ROLE) and each != f'{_ROLE}"{role}")'
                for each in table.preamble.annotations
            )
        }
        # Plain objects: each access to a field of a message creates an object.
        tables = [_Table.of(table) for table in p4info.tables]
        actions = [_Action.of(action) for action in p4info.actions]
        self._tables = {table.name: table for table in tables}
        self._actions = {action.name: action for action in actions}
        self._table_by_id = {table.id: table for table in tables}
        self._action_by_id = {action.id: action for action in actions}
        self.drop_counters = tuple(
            counter.preamble.id
            for counter in p4info.counters
            if counter.preamble.name.rpartition(".")[2] == DROPPED
        )
        self.tables = tuple(self._tables)
        self.max_entries = _SPARE_ENTRIES + 2 * sum(table.size for table in p4info.tables)

    def to_wire(self, entry: SwitchEntry, key_only: bool = False) -> p4runtime_pb2.Entity:
        """Convert an entry to a message.

        Args:
            entry: a table entry or a group.
            key_only: leave action or replicas out, as for a deletion.

        Raises:
            SwitchError: ``WRITE_FAILED``, if the program does not have a name, or a value is
                malformed.
        """
        wire = p4runtime_pb2.Entity()
        if entry.table == GROUPS:
            group = wire.packet_replication_engine_entry.multicast_group_entry
            try:
                group.multicast_group_id = group_id(entry)
                for port, instance in [] if key_only else replicas(entry):
                    # Older switches do not know the other form of a port, which is bytes.
                    group.replicas.add(egress_port=port, instance=instance)
            except (IndexError, ValueError) as error:  # no number, or one of more than 32 bits
                raise SwitchError("WRITE_FAILED", f"{entry.key}: {error}") from None
            return wire
        table = _named(self._tables, entry.table, "table")
        table_entry = wire.table_entry
        table_entry.table_id = table.id
        table_entry.priority = entry.priority
        for name, kind, value in entry.match:
            field = table_entry.match.add(
                field_id=_named(table.field_ids, name, f"field of {entry.table}")
            )
            _put(field, entry, name, kind, value)
        if key_only:
            return wire
        action = _named(self._actions, entry.action, "action")
        message = table_entry.action.action
        message.action_id = action.id
        for name, value in entry.params:
            number = _named(action.param_ids, name, f"parameter of {entry.action}")
            message.params.add(param_id=number, value=value)
        return wire

    def table_id(self, name: str) -> int:
        """Return the id of a table. Raises SwitchError ``WRITE_FAILED`` for an unknown name."""
        return int(_named(self._tables, name, "table").id)

    def packet_in(self, packet: p4runtime_pb2.PacketIn) -> tuple[dict[str, int], bytes]:
        """Return the metadata of a packet by name, and its frame."""
        names = {field.id: field.name for field in self._headers.get("packet_in", ())}
        metadata = {
            names[each.metadata_id]: int.from_bytes(each.value)
            for each in packet.metadata
            if each.metadata_id in names
        }
        return metadata, packet.payload

    def packet_out(self, metadata: Mapping[str, int], frame: bytes) -> p4runtime_pb2.PacketOut:
        """Return a packet. Raises SwitchError ``WRITE_FAILED`` for unknown metadata."""
        ids = {field.name: field.id for field in self._headers.get("packet_out", ())}
        packet = p4runtime_pb2.PacketOut(payload=frame)
        for name, value in metadata.items():
            number = _named(ids, name, "metadata")
            packet.metadata.add(metadata_id=number, value=canonical(value))
        return packet

    def from_wire(
        self, switch: str, wire: p4runtime_pb2.Entity, unknown: Counter[int] | None = None
    ) -> Iterator[SwitchEntry]:
        """Yield the entry of a message, or nothing if it is constant or of another role.

        A switch may return matches that accept every value, although P4Runtime says that it leaves
        them out. They are removed, because desired entries do not have them either.

        Args:
            switch: value of `SwitchEntry.switch`.
            wire: a table entry or a group.
            unknown: counts entries of tables that the program does not have, by id of the table. If
                None, such an entry is an error.

        An entry whose action the program does not have is returned without action, so that it
        differs from every desired entry.

        Raises:
            SwitchError: ``READ_FAILED``, if the program does not have an id of the entry.
        """
        if wire.WhichOneof("entity") == "packet_replication_engine_entry":
            group = wire.packet_replication_engine_entry.multicast_group_entry
            if group.multicast_group_id:
                yield group_entry(
                    switch,
                    group.multicast_group_id,
                    [(_port(replica), replica.instance) for replica in group.replicas],
                )
            return
        entry = wire.table_entry
        if entry.table_id in self._others:
            return
        if unknown is not None and entry.table_id not in self._table_by_id:
            unknown[entry.table_id] += 1
            return
        try:
            table = self._table_by_id[entry.table_id]
            if table.is_const or entry.is_default_action or entry.is_const:
                return
            message = entry.action.action
            action = self._action_by_id.get(message.action_id, _UNKNOWN_ACTION)
            matches = {field.field_id: field for field in entry.match}
            params = {param.param_id: param.value for param in message.params}
            yield SwitchEntry(
                switch,
                table.name,
                tuple(
                    [
                        _match(name, matches[number])
                        for name, number in table.field_ids.items()
                        if number in matches
                        and not _accepts_all(matches[number], table.bitwidths[number])
                    ]
                ),
                action.name,
                tuple(
                    [
                        (name, _canonical(params[number]))
                        for name, number in action.param_ids.items()
                    ]
                ),
                entry.priority,
            )
        except KeyError as missing:
            raise SwitchError(
                "READ_FAILED",
                f"switch {switch!r} has an entry with an id that its program does not contain: "
                f"{missing}",
            ) from None


def refused_updates(error: Any, count: int) -> list[UpdateError] | None:
    """Return the updates of a Write that were refused.

    Args:
        error: the error of the call.
        count: number of updates in the request.

    Returns:
        None if the answer does not name updates, or cannot be parsed.
    """
    if error.code() != grpc.StatusCode.UNKNOWN:
        return None
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        refused = []
        try:
            details = status_pb2.Status.FromString(value).details
            for position, detail in enumerate(details):
                update = p4runtime_pb2.Error()
                detail.Unpack(update)
                if update.canonical_code != code_pb2.OK:
                    refused.append((position, _code(update.canonical_code), update.message))
        except DecodeError:
            return None
        return refused if refused and len(details) <= count else None
    return None


def _code(number: int) -> str:
    return str(code_pb2.Code.Name(number)) if number in code_pb2.Code.values() else str(number)


def _put(field: Any, entry: SwitchEntry, name: str, kind: str, value: bytes) -> None:
    try:
        match = Match.parted(name, kind, value)
    except ValueError as error:
        raise SwitchError("WRITE_FAILED", f"{entry.key}: field {name!r}: {error}") from None
    if kind in ("exact", "optional"):
        getattr(field, kind).value = match.value
    elif kind == "lpm":
        field.lpm.value, field.lpm.prefix_len = match.value, match.prefix_length
    elif kind == "ternary":
        field.ternary.value, field.ternary.mask = match.value, match.other
    else:
        field.range.low, field.range.high = match.value, match.other


def _match(name: str, field: Any) -> tuple[str, str, bytes]:
    kind = field.WhichOneof("field_match_type")
    if kind in ("exact", "optional"):
        return name, kind, _canonical(getattr(field, kind).value)
    if kind == "lpm":
        match = Match(name, kind, _canonical(field.lpm.value), b"", field.lpm.prefix_len)
    elif kind == "ternary":
        match = Match(name, kind, _canonical(field.ternary.value), _canonical(field.ternary.mask))
    elif kind == "range":
        match = Match(name, kind, _canonical(field.range.low), _canonical(field.range.high))
    else:
        raise KeyError(f"match of field {name!r}")
    return name, kind, match.joined()


def _accepts_all(field: Any, bitwidth: int) -> bool:
    """Whether a match accepts every value, so that P4Runtime requires to leave it out."""
    kind = field.WhichOneof("field_match_type")
    if kind == "ternary":
        return not any(field.ternary.mask)
    if kind == "lpm":
        return bool(field.lpm.prefix_len == 0)
    if kind == "range":
        high = int.from_bytes(field.range.high, "big")
        return not any(field.range.low) and bitwidth > 0 and high == (1 << bitwidth) - 1
    return False


def _port(replica: Any) -> int:
    by_bytes = replica.WhichOneof("port_kind") == "port"
    return int.from_bytes(replica.port, "big") if by_bytes else int(replica.egress_port)


def _named(ids: Any, name: str, kind: str) -> Any:
    if name not in ids:
        raise SwitchError("WRITE_FAILED", f"the program of the switch has no {kind} named {name!r}")
    return ids[name]


def _canonical(value: bytes) -> bytes:
    return value if value[:1] > b"\0" else canonical(int.from_bytes(value, "big"))
