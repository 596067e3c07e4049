"""The parser of datagrams of several messages.

On arrival the first message is parsed by its type and all others as blocks of bytes, so lengths and
checksum are those of the whole datagram. In the passes after that the examined messages are one run
of bytes in front, each behind the ports that want it, and what follows the message that is
examined is left alone. In the last pass each is a block again, with its ports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stackcast.udfs.network_match.framing import COUNT, LENGTH
from stackcast.udfs.network_match.layout import ProgramLayout, p4_name

_UDP_BYTES = 8
_IPV4_BYTES = 20
_END_OF_SESSION = 0xFFFF

VARIABLES = (
    "bit<16> room = 0;  // remaining bytes of the datagram\n"
    "bit<16> left = 0;  // remaining messages\n"
)


def several_headers() -> str:
    """Generates the headers that are in no specification, and the parser's errors."""
    return (
        "// A message of the datagram, and a message whose type is not in the specification.\n"
        f"header block_h {{\n    bit<16> {LENGTH};\n    varbit<MESSAGE_BITS> message;\n}}\n\n"
        "header rest_h {\n    varbit<MESSAGE_BITS> message;\n}\n\n"
        "// The ports of a message, which precede the message.\n"
        "header wanted_h {\n    ports_t ports;\n}\n\n"
        "// Examined messages, each preceded by its ports.\n"
        "header examined_h {\n    varbit<EXAMINED_BITS> messages;\n}\n\n"
        "error {\n    BadLength,\n    TooManyMessages,\n    TooLong\n}\n\n"
    )


def in_order(program: ProgramLayout, members: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns ``members``, type and name, with those of this module at their places in a packet."""
    found = []
    for type_, name in members:
        if name == program.framing[1].name:
            found += [("examined_h", "examined"), ("wanted_h", "wanted_now")]
        found.append((type_, name))
    return [
        *found,
        ("rest_h", "rest"),
        ("wanted_h[MESSAGES]", "wanted"),
        ("block_h[MESSAGES]", "blocks"),
    ]


def several_states(program: ProgramLayout) -> Iterator[str]:
    """Yields the states from the first after UDP on."""
    first, block = program.framing
    count = f"hdr.{first.name}.{p4_name(COUNT)}"
    length = f"hdr.{block.name}.{p4_name(LENGTH)}"
    udp, ip = program.place("udp", "length"), program.place("ipv4", "length")
    least = _UDP_BYTES + first.header.length
    yield state(
        f"reach_{first.name}",
        f"verify({udp} >= {least} && {ip} == {udp} + {_IPV4_BYTES}, error.BadLength);\n"
        f"verify({udp} <= DATAGRAM, error.TooLong);\n"
        f"packet.extract(hdr.{first.name});\n"
        f"room = {udp} - {least};\nleft = {count};",
        f"transition select(meta.step, {count}) {{\n"
        "        (ARRIVED, 0): no_messages;\n"
        f"        (ARRIVED, {_END_OF_SESSION:#06x}): no_messages;\n"
        "        (ARRIVED, _): several;\n"
        "        (EXAMINE, _): skip;\n"
        "        default: wanted_block;\n    }",
    )
    yield "// A heartbeat or an end of session is routed, because it is not an event.\n" + state(
        "no_messages", "verify(room == 0, error.BadLength);", "transition accept;"
    )
    yield state(
        "several",
        f"verify({count} <= MESSAGES, error.TooManyMessages);\nmeta.events = 1;",
        f"transition parse_{block.name};",
    )
    yield state(
        "skip",
        "meta.events = 1;\npacket.extract(hdr.examined, meta.examined_bits);",
        f"transition parse_{block.name};",
    )
    yield state(
        f"parse_{block.name}",
        f"verify(room >= {block.header.length}, error.BadLength);\n"
        f"packet.extract(hdr.{block.name});\n"
        f"room = room - {block.header.length};\n"
        f"verify({length} <= room, error.BadLength);\n"
        f"verify({length} <= MESSAGE, error.TooLong);\n"
        f"room = room - {length};\n"
        "left = left - 1;",
        f"transition select({length}) {{\n        0: more;\n        default: parse_type;\n    }}",
    )
    cases = [
        (layer.header.message_type or 0, layer.header.length, f"parse_{layer.name}")
        for layer in program.messages
    ]
    cases += [(kind, size, "other_message") for kind, size in program.other_types]
    yield "// A message with a wrong length for its type is not an event.\n" + state(
        "parse_type",
        "meta.message_type = packet.lookahead<bit<8>>();",
        f"transition select(meta.message_type, {length}) {{\n"
        + "".join(
            f"        ({number:#04x}, {size}): {then};\n" for number, size, then in sorted(cases)
        )
        + "        default: rest_of_message;\n    }",
    )
    for layer in program.messages:
        yield state(
            f"parse_{layer.name}",
            f"packet.extract(hdr.{layer.name});\nmeta.feed = FEED;",
            "transition more;",
        )
    if program.other_types:
        yield state("other_message", "meta.feed = FEED;", "transition rest_of_message;")
    yield state(
        "rest_of_message",
        f"packet.extract(hdr.rest, (bit<32>) {length} << 3);",
        "transition more;",
    )
    yield state(
        "more",
        "",
        "transition select(meta.step) {\n        ARRIVED: more_blocks;\n"
        "        default: accept;\n    }",
    )
    yield state(
        "more_blocks",
        "",
        "transition select(left) {\n        0: end;\n        default: next_block;\n    }",
    )
    yield state(
        "wanted_block",
        "meta.events = 1;\npacket.extract(hdr.wanted.next);",
        "transition next_block;",
    )
    yield state(
        "next_block",
        "verify(room >= LENGTH_OCTETS, error.BadLength);\n"
        "meta.length = packet.lookahead<bit<16>>();\n"
        "room = room - LENGTH_OCTETS;\n"
        "verify(meta.length <= room, error.BadLength);\n"
        "verify(meta.length <= MESSAGE, error.TooLong);\n"
        "room = room - meta.length;\n"
        "left = left - 1;\n"
        "packet.extract(hdr.blocks.next, (bit<32>) meta.length << 3);",
        "transition select(meta.step, left) {\n"
        "        (_, 0): end;\n"
        "        (DELIVER, _): wanted_block;\n"
        "        default: next_block;\n    }",
    )
    yield state("end", "verify(room == 0, error.BadLength);", "transition accept;")


def state(name: str, body: str, then: str) -> str:
    """Generates a state of the parser."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    return f"state {name} {{\n" + "".join(f"    {line}\n" for line in lines) + f"    {then}\n}}\n"
