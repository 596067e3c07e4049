"""The generated program's headers, metadata and parser.

A datagram may end after any framing header: what it does not reach is absent. A message is an
event if its type is one of the specification and the datagram reaches its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent, indent

from stackcast.udfs.network_match.layout import OPTIONS, Layer, ProgramLayout, p4_name
from stackcast.udfs.p4_program.several import (
    VARIABLES,
    in_order,
    several_headers,
    several_states,
    state,
)

UDP = 17
_UDP_BYTES = 8


@dataclass(frozen=True)
class Metadata:
    """One field of the metadata, which goes with a packet.

    Targets need not begin with zeros, so each field is set before it is read: in the parser's first
    states (``first``) or by who uses it.

    kept: a packet that comes in again has the value with which it left. first: P4 expression of the
    value on arrival, or of each pass if it is not kept; empty if it is always set before it is
    read. used: True if the program has it.
    """

    type: str
    name: str
    first: str = ""
    told: str = ""
    kept: bool = False
    used: bool = True

    @property
    def declared(self) -> str:
        """The line of the field in the struct."""
        kept = "@field_list(KEPT_FIELDS) " if self.kept else ""
        told = f"  // {self.told}" if self.told else ""
        return f"{kept}{self.type} {self.name};{told}"


def headers(program: ProgramLayout) -> str:
    """Generates the types of all headers, and the struct of their instances."""
    text = "// Headers from the specification, and additional headers that the program needs.\n"
    for layer in layers(program):
        fields = "".join(f"    bit<{f.bits}> {p4_name(f.name)};\n" for f in layer.header.fields)
        text += f"header {layer.name}_h {{\n{fields}}}\n\n"
    text += "header options_h {\n    varbit<OPTIONS_BITS> values;\n}\n\n"
    members = [(f"{name}_h", name) for name in _names(program)]
    if program.repetition is not None:
        text += several_headers()
        members = in_order(program, members)
    listed = "".join(f"    {type_} {name};\n" for type_, name in members)
    return text + f"struct headers_t {{\n{listed}}}\n"


def layers(program: ProgramLayout) -> tuple[Layer, ...]:
    """Returns all headers of the specification in the order in which they are parsed and
    emitted."""
    return (*program.stack, *program.framing, *program.messages)


def _names(program: ProgramLayout) -> list[str]:
    """Names the headers of every program: those of the specification, and the options of IPv4."""
    ipv4 = program.layer("ipv4").name
    names = [layer.name for layer in layers(program)]
    at = names.index(ipv4) + 1
    return [*names[:at], OPTIONS, *names[at:]]


def metadata(program: ProgramLayout) -> list[Metadata]:
    """Returns the fields that a program has, in their order."""
    several = program.repetition is not None
    fields = [
        Metadata("bit<8>", "step", "ARRIVED", kept=True),
        Metadata("ports_t", "elsewhere", "", "all ports, except the ingress port", kept=True),
        Metadata("ports_t", "ports", "0", "ports of one event, then of the packet", kept=True),
        Metadata("ports_t", "all_ports", "0", "ports of the messages so far", True, several),
        Metadata("bit<16>", "place", "0", "number of messages so far", True, several),
        Metadata("bit<32>", "examined_bits", "0", kept=True, used=several),
        Metadata("bit<48>", "arrived", kept=True, used=program.takes_time_along),
        Metadata("bit<1>", "again", "0", "1 to recirculate the packet"),
        Metadata("bit<1>", "ready", "0", "1 to send the packet to its ports"),
        Metadata("reason_t", "reason", "", "reason for dropping the packet"),
        Metadata(
            "bit<16>", "header_bytes", "IPV4_BYTES", "bytes of the IPv4 header with its options"
        ),
        Metadata("bit<1>", "events", "0", "1 for a datagram with messages", used=several),
        Metadata("bit<16>", "length", used=several),
        Metadata("bit<16>", "no_sum", "0", "always 0", used=several),
        Metadata("bit<1>", "summed", "0", "1 to compute the UDP checksum", used=several),
        Metadata("bit<8>", "feed", "0", "0 if there is no event"),
        Metadata("bit<8>", "message_type"),
        Metadata("state_t", "state"),
        Metadata(
            "state_t", "next", "0", "first state of the next group of rules; 0 for none", True
        ),
        Metadata("terms_t", "terms", "", "terms that match all fields so far"),
        Metadata("bit<1>", "called", "0", "an action is named", True, bool(program.actions)),
        Metadata("bit<1>", "unwanted", "0", "no rule is for it", used=bool(program.actions)),
        Metadata("bit<64>", "now", used=bool(program.blocks)),
    ]
    return [field for field in fields if field.used]


def parser(program: ProgramLayout) -> str:
    """Generates the parser."""
    states = [*_stack_states(program)]
    if program.repetition is None:
        states += _framing_states(program)
    else:
        states += several_states(program)
    variables = "" if program.repetition is None else indent(VARIABLES, "    ") + "\n"
    return (
        "// Parses a packet into headers.\n"
        "parser event_parser(packet_in packet, out headers_t hdr, inout metadata_t meta,\n"
        "                    inout standard_metadata_t standard_metadata) {\n"
        + variables
        + indent("\n".join(states), "    ")
        + "}\n"
    )


def deparser(program: ProgramLayout) -> str:
    """Generates the deparser: all headers, in their order."""
    names = [("", name) for name in _names(program)]
    emitted = [name for _, name in names]
    if program.repetition is not None:
        emitted = []
        for _, name in in_order(program, names):
            if name == "wanted":
                emitted += [
                    f"{one}[{place}]"
                    for place in range(program.options.messages)
                    for one in ("wanted", "blocks")
                ]
            elif name != "blocks":
                emitted.append(name)
    text = "".join(f"        packet.emit(hdr.{name});\n" for name in emitted)
    return (
        "// Emits the headers of a packet.\n"
        "control event_deparser(packet_out packet, in headers_t hdr) {\n"
        f"    apply {{\n{text}    }}\n}}\n"
    )


def _stack_states(program: ProgramLayout) -> Iterator[str]:
    ethernet, ipv4, udp = (program.layer(role) for role in ("ethernet", "ipv4", "udp"))
    v6 = next((layer for layer in program.stack if layer.parts["role"] == "ipv6"), None)
    own = first_state(program)
    event = "" if own else "    meta.feed = FEED;\n"
    fields = metadata(program)
    versions = "        IPV4: parse_version;\n" + ("        IPV6: parse_ipv6;\n" if v6 else "")
    of_pass = "".join(f"meta.{f.name} = {f.first};\n" for f in fields if f.first and not f.kept)
    yield state(
        "start",
        of_pass,
        "transition select(standard_metadata.instance_type) {\n        RECIRCULATED: again;\n"
        "        default: arrived;\n    }",
    )
    yield "// Initializes the metadata that is preserved for later passes.\n" + state(
        "arrived",
        "".join(f"meta.{f.name} = {f.first};\n" for f in fields if f.first and f.kept),
        "transition parse_ethernet;",
    )
    yield state(
        "again",
        "",
        "transition select(meta.step) {\n        WHOLE: accept;\n        default: parse_ethernet;\n"
        "    }",
    )
    yield state(
        "parse_ethernet",
        f"packet.extract(hdr.{ethernet.name});",
        f"transition select(hdr.{ethernet.name}.{ethernet.parts['type']}) {{\n"
        f"{versions}        default: accept;\n    }}",
    )
    # The first bytes of IPv4: version and length, then, in the last two, the fragment.
    yield dedent("""\
        // Fragments and packets with options are routed, because they are not events.
        state parse_version {
            transition select(packet.lookahead<bit<64>>()) {
                64w0x4500000000000000 &&& 64w0xff00000000003fff: parse_ipv4;
                64w0x4500000000000000 &&& 64w0xff00000000000000: parse_routed;
                64w0x4600000000000000 &&& 64w0xfe00000000000000: parse_options;
                64w0x4800000000000000 &&& 64w0xf800000000000000: parse_options;
                default: accept;
            }
        }
        """)
    yield state("parse_routed", f"packet.extract(hdr.{ipv4.name});", "transition accept;")
    yield state(
        "parse_options",
        "meta.header_bytes = (bit<16>) packet.lookahead<bit<8>>()[3:0] << 2;\n"
        f"packet.extract(hdr.{ipv4.name});\n"
        f"packet.extract(hdr.{OPTIONS}, (bit<32>) (meta.header_bytes - IPV4_BYTES) << 3);",
        "transition accept;",
    )
    for layer in (ipv4, v6):
        if layer is not None:
            protocol = "protocol" if layer is ipv4 else "next"
            yield state(
                f"parse_{layer.parts['role']}",
                f"packet.extract(hdr.{layer.name});\n{event}",
                f"transition select(hdr.{layer.name}.{layer.parts[protocol]}) {{\n"
                "        UDP: parse_udp;\n        default: accept;\n    }",
            )
    if own:
        then = (
            f"transition select(hdr.{udp.name}.{udp.parts['dst']}) {{\n"
            f"        EVENT_PORT: {own};\n        default: accept;\n    }}"
        )
    else:
        then = "transition accept;"
    yield state("parse_udp", f"packet.extract(hdr.{udp.name});", then)


def first_state(program: ProgramLayout) -> str:
    """Returns the parser's first state after UDP; empty if the specification ends there."""
    if program.framing:
        return f"reach_{program.framing[0].name}"
    return "reach_message" if program.typed else ""


def _framing_states(program: ProgramLayout) -> Iterator[str]:
    """Yields states for each header if the datagram reaches as far, then a message by its type."""
    udp = program.layer("udp")
    length = f"hdr.{udp.name}.{udp.parts['length']}"
    reached = _UDP_BYTES
    for position, layer in enumerate(program.framing):
        reached += layer.header.length
        if position + 1 < len(program.framing):
            then = f"transition reach_{program.framing[position + 1].name};"
        else:
            then = "transition reach_message;" if program.typed else "transition accept;"
        first = "meta.feed = FEED;\n" if position == 0 and not program.typed else ""
        yield _reach(layer.name, length, reached, f"parse_{layer.name}")
        yield state(f"parse_{layer.name}", f"packet.extract(hdr.{layer.name});\n{first}", then)
    if not program.typed:
        return
    yield _reach("message", length, reached + 1, "parse_type")
    cases = [(layer.header.message_type or 0, f"reach_{layer.name}") for layer in program.messages]
    cases += [(number, "other_message") for number, _ in program.other_types]
    yield state(
        "parse_type",
        "meta.message_type = packet.lookahead<bit<8>>();",
        "transition select(meta.message_type) {\n"
        + "".join(f"        {number:#04x}: {then};\n" for number, then in sorted(cases))
        + "        default: accept;\n    }",
    )
    if program.other_types:
        yield state("other_message", "meta.feed = FEED;", "transition accept;")
    for layer in program.messages:
        yield _reach(layer.name, length, reached + layer.header.length, f"parse_{layer.name}")
        yield state(
            f"parse_{layer.name}",
            f"packet.extract(hdr.{layer.name});\nmeta.feed = FEED;",
            "transition accept;",
        )


def _reach(name: str, length: str, octets: int, then: str) -> str:
    return state(
        f"reach_{name}",
        "",
        f"transition select({length}) {{\n        {octets} .. 65535: {then};\n"
        "        default: accept;\n    }",
    )
