"""Frames to and from the client that controls a switch: PacketIn and PacketOut.

A program that talks to its controller has headers ``packet_in`` and ``packet_out``, whose fields
travel as metadata of the messages. Between port `stackcast.switch.data_plane.CPU_PORT` and the
program they are in front of the frame, as in BMv2.
"""

from __future__ import annotations

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.p4runtime.p4info import Parameter
from stackcast.switch.p4runtime.refusal import invalid, number
from stackcast.udfs.switches.match import canonical

MOST_WAITING = 1024
"""Frames that wait for a client that does not take them; more are dropped."""


def packet_in(fields: tuple[Parameter, ...], data: bytes) -> p4runtime_pb2.StreamMessageResponse:
    """Returns the message of what a program sent to its controller."""
    size = _bytes(fields)
    message = p4runtime_pb2.StreamMessageResponse()
    message.packet.payload = data[size:]
    rest = int.from_bytes(data[:size])
    left = 8 * size
    for field in fields:
        left -= field.bits
        value = rest >> left & (1 << field.bits) - 1
        message.packet.metadata.add(metadata_id=field.id, value=canonical(value))
    return message


def packet_out(fields: tuple[Parameter, ...], packet: p4runtime_pb2.PacketOut) -> bytes:
    """Returns what the program gets of a controller's message.

    Raises `Refusal` INVALID_ARGUMENT for metadata that is missing, twice there or unknown,
    OUT_OF_RANGE for a value that is too wide.
    """
    if not fields:
        raise invalid("the program does not accept packets of its controller")
    given: dict[int, bytes] = {}
    for each in packet.metadata:
        if each.metadata_id in given:
            raise invalid(f"metadata {each.metadata_id} occurs twice")
        given[each.metadata_id] = each.value
    head = 0
    for field in fields:
        if field.id not in given:
            raise invalid(f"metadata {field.name!r} is missing")
        value = number(given.pop(field.id), field.bits, f"metadata {field.name!r}")
        head = head << field.bits | value
    if given:
        raise invalid(f"the program has no metadata {min(given)}")
    return head.to_bytes(_bytes(fields)) + packet.payload


def _bytes(fields: tuple[Parameter, ...]) -> int:
    return sum(field.bits for field in fields) // 8
