"""Pruning: messages that a port does not want are taken off its copy, and checksums kept right.

A checksum is computed over fields of headers, and those of a header that is not there count for
nothing. So it is on BMv2 within ``verify_checksum`` and ``update_checksum`` themselves; p4c copies
the arguments of a hash first, and then they would count. Bytes behind the datagram (Ethernet may
pad) have no part in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import indent

from stackcast.udfs.network_match.framing import COUNT, LENGTH
from stackcast.udfs.network_match.layout import Layer, ProgramLayout, p4_name

_GROUP = 8


def verify(program: ProgramLayout) -> str:
    """Generates the check of the UDP checksum: over the whole datagram, with itself, it is 0."""
    checksum = program.place("udp", "checksum")
    messages = [*_fields(program.framing), *_fields(program.messages), "hdr.rest.message"]
    return (
        "// The sum over all words and the checksum is 0, even if 0xffff was sent (RFC 768).\n"
        + checksum_statement(
            "verify",
            f"meta.step == ARRIVED && meta.events == 1 && {checksum} != 0",
            [*_pseudo(program), checksum, *messages, *_blocks(program)],
            "meta.no_sum",
        )
    )


def compute(program: ProgramLayout) -> str:
    """Generates the UDP checksum of a copy that has lost messages; 0 is sent as 0xffff."""
    checksum = program.place("udp", "checksum")
    parts = [*_pseudo(program), *_fields(program.framing[:1]), *_blocks(program)]
    return (
        checksum_statement("update", "meta.summed == 1", parts, checksum)
        + "// A checksum of 0 would mean no checksum. The sum over a zero word is 0xffff.\n"
        + checksum_statement("update", f"meta.summed == 1 && {checksum} == 0", ["16w0"], checksum)
    )


def checksum_statement(what: str, condition: str, parts: Sequence[str], target: str) -> str:
    """Generates ``verify_checksum`` or ``update_checksum``."""
    listed = ",\n".join(f"        {part}" for part in parts)
    return (
        f"{what}_checksum(\n    {condition},\n    {{\n{listed}\n    }},\n    {target},\n"
        "    HashAlgorithm.csum16);\n"
    )


def pruning(program: ProgramLayout) -> str:
    """Generates the control of egress that takes messages off a copy, with counts and lengths."""
    count = f"hdr.{program.framing[0].name}.{p4_name(COUNT)}"
    checksum = program.place("udp", "checksum")
    body = "mine = (ports_t) 1 << (bit<8>) (standard_metadata.egress_port - 1);\n"
    for first in range(0, program.options.messages, _GROUP):
        some = "".join(
            f"if ({_there(place)}hdr.wanted[{place}].ports & mine == 0) {{\n"
            f"    removed = removed + 1;\n"
            f"    octets = octets + hdr.blocks[{place}].length + LENGTH_OCTETS;\n"
            f"    hdr.blocks[{place}].setInvalid();\n}}\n"
            f"hdr.wanted[{place}].setInvalid();\n"
            for place in range(first, min(first + _GROUP, program.options.messages))
        )
        # Most datagrams have few messages: those that they lack are passed over together.
        if first:
            some = f"if (hdr.wanted[{first}].isValid()) {{\n{indent(some, '    ')}}}\n"
        body += some
    udp, ip = program.place("udp", "length"), program.place("ipv4", "length")
    body += (
        "if (removed != 0) {\n"
        f"    {count} = {count} - removed;\n"
        f"    {udp} = {udp} - octets;\n"
        f"    {ip} = {ip} - octets;\n"
        f"    if ({checksum} != 0) {{\n        meta.summed = 1;\n    }}\n}}\n"
    )
    return (
        "// Removes the messages of a copy that do not match the rules of its port.\n"
        "control pruning(inout headers_t hdr, inout metadata_t meta,\n"
        "                inout standard_metadata_t standard_metadata) {\n"
        "    ports_t mine = 0;\n    bit<16> removed = 0;\n    bit<16> octets = 0;\n\n"
        f"    apply {{\n{indent(body, ' ' * 8)}    }}\n}}\n"
    )


def _there(place: int) -> str:
    """Generates the condition that a message is there; not for the first of eight, asked before."""
    return f"hdr.wanted[{place}].isValid() && " if place % _GROUP else ""


def _pseudo(program: ProgramLayout) -> list[str]:
    """Lists the pseudo-header, then UDP without its checksum."""
    udp = [program.place("udp", part) for part in ("src", "dst", "length")]
    return [
        program.place("ipv4", "src"),
        program.place("ipv4", "dst"),
        "8w0",
        program.place("ipv4", "protocol"),
        udp[2],
        *udp,
    ]


def _fields(layers: Iterable[Layer]) -> list[str]:
    return [f"hdr.{x.name}.{p4_name(f.name)}" for x in layers for f in x.header.fields]


def _blocks(program: ProgramLayout) -> list[str]:
    return [
        f"hdr.blocks[{place}].{part}"
        for place in range(program.options.messages)
        for part in (LENGTH, "message")
    ]
