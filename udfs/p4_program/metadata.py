"""The generated program's metadata: what goes with a packet, and what it is at first.

Targets need not begin with zeros, so each field is set before it is read: in the parser's first
states (``first``) or by who uses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from udfs.network_match.pipeline import Pipeline


@dataclass(frozen=True)
class Metadata:
    """One field.

    kept: a packet that comes in again has the value with which it left. first: P4 expression of the
    value on arrival, or for what is not kept of each pass; empty if it is always set before it is
    read. used: whether the program has it.
    """

    type: str
    name: str
    first: str = ""
    told: str = ""
    kept: bool = False
    used: bool = True

    @property
    def declared(self) -> str:
        """Its line in the struct."""
        kept = "@field_list(KEPT_FIELDS) " if self.kept else ""
        told = f"  // {self.told}" if self.told else ""
        return f"{kept}{self.type} {self.name};{told}"


def metadata(program: Pipeline) -> list[Metadata]:
    """The fields that a program has, in their order."""
    several = program.repetition is not None
    fields = [
        Metadata("bit<8>", "step", "ARRIVED", kept=True),
        Metadata("ports_t", "elsewhere", "", "ports that it did not come in by", kept=True),
        Metadata("ports_t", "ports", "0", "of one event, then of the packet", kept=True),
        Metadata("ports_t", "all_ports", "0", "of the messages so far", True, several),
        Metadata("bit<16>", "place", "0", "messages so far", True, several),
        Metadata("bit<32>", "examined_bits", "0", kept=True, used=several),
        Metadata("bit<48>", "arrived", kept=True, used=program.takes_time_along),
        Metadata("bit<1>", "again", "0", "comes in again"),
        Metadata("bit<1>", "ready", "0", "to be sent to its ports"),
        Metadata("reason_t", "reason", "", "why it is dropped"),
        Metadata("bit<16>", "header_bytes", "IPV4_BYTES", "of IPv4, with its options"),
        Metadata("bit<1>", "events", "0", "1: a datagram of messages", used=several),
        Metadata("bit<16>", "length", used=several),
        Metadata("bit<16>", "no_sum", "0", "stays 0", used=several),
        Metadata("bit<1>", "summed", "0", "a UDP checksum to be made", used=several),
        Metadata("bit<8>", "feed", "0", "0: no event"),
        Metadata("bit<8>", "message_type"),
        Metadata("state_t", "state"),
        Metadata("bit<1>", "unwanted", "0", "no rule is for it"),
        Metadata("bit<64>", "now", used=bool(program.blocks)),
    ]
    return [field for field in fields if field.used]
