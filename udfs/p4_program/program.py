"""The static step: a P4_16 program for v1model from a message format specification.

Source: CAMUS 3.1. The program has no rules in it: ``stackcast.udfs.network_match.entries`` fills
its tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import indent, wrap

from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.layout import (
    GROUP_BITS,
    MASK_BITS,
    OPTIONS,
    PORT_BITS,
    STATE_BITS,
    VALUE_BITS,
    NamedAction,
    ProgramLayout,
    ProgramOptions,
    p4_name,
    program_layout,
)
from stackcast.udfs.network_match.table_sizes import stage_sizes
from stackcast.udfs.p4_program.conjunctions import conjunctions
from stackcast.udfs.p4_program.forwarding import egress, ingress, routing, sending, sources
from stackcast.udfs.p4_program.parser import UDP, deparser, headers, metadata, parser
from stackcast.udfs.p4_program.pruning import checksum_statement, compute, pruning, verify
from stackcast.udfs.p4_program.registers import state_controls
from stackcast.udfs.p4_program.stages import (
    calls,
    delivery,
    kinds_text,
    one_event,
    stage_control,
)
from stackcast.udfs.switches.ports import FAN_OUT

__all__ = ["MAIN", "NamedAction", "ProgramOptions", "files", "generate"]

MAIN = "packet_subscriptions"
"""The program is ``MAIN.p4``; what it includes is in the folder ``MAIN``."""

REASONS = (
    ("CUT_SHORT", "the frame is shorter than its headers indicate", ""),
    ("BAD_LENGTH", "lengths or the number of messages are contradictory", "several"),
    ("TOO_MANY_MESSAGES", "the datagram has more than MESSAGES messages", "several"),
    ("TOO_LONG", "a message or the datagram is too long", "several"),
    ("BAD_CHECKSUM", "the checksum of IPv4 or UDP is wrong", ""),
    ("UNWANTED", "no rule matches any of the messages", "own"),
    ("NO_PORT", "only the ingress port has matching rules", ""),
    ("NO_ROUTE", "no prefix matches the IPv4 destination", ""),
    ("TTL_OVER", "the IPv4 time to live has expired", ""),
    ("NOT_IPV4", "the packet is neither an event nor IPv4", ""),
    ("UNKNOWN_PORT", "the tables have no neighbor at the ingress port", ""),
    ("NO_PUBLISHER", "an event from a host that is not a publisher", ""),
    ("FORGED_ADDRESS", "IPv4 from an address that differs from that of the host", ""),
    ("LINK_LOCAL", "control traffic between neighbors", ""),
)
"""Reasons that packets are dropped: indexes of the counter ``ingress.dropped``, from 1 on.

Names, explanations, and of which programs: ``several`` messages a datagram, ``own`` headers behind
UDP, or all.
"""

_INCLUDE = re.compile(r'^#include "([\w/.]+)"\n', re.MULTILINE)


def generate(specification: Specification, options: ProgramOptions | None = None) -> str:
    """Generates the program's source in one text. Equal specifications and options give equal text.

    Raises FilterError as ``program_layout`` does.
    """
    made = files(program_layout(specification, options))
    return _INCLUDE.sub(lambda found: made[found[1]] + "\n", made[f"{MAIN}.p4"])


def files(program: ProgramLayout) -> dict[str, str]:
    """Generates the source, one control a file, by path; the main file includes the others."""
    parts = {f"{MAIN}/{name}.p4": f"{text.strip()}\n" for name, text in _parts(program) if text}
    main = (
        f"{_title(program)}\n\n#include <core.p4>\n#include <v1model.p4>\n\n"
        + "".join(f'#include "{path}"\n' for path in parts)
        + f'\n@pkginfo(name = "{MAIN}")\n'
        "V1Switch(event_parser(), verify_checksums(), ingress(), egress(), compute_checksums(),"
        "\n         event_deparser()) main;\n"
    )
    return {f"{MAIN}.p4": main, **parts}


def _parts(program: ProgramLayout) -> Iterator[tuple[str, str]]:
    sizes = stage_sizes(program)
    several = program.repetition is not None
    yield "sizes", _sizes(program)
    yield "headers", headers(program)
    yield "metadata", _metadata(program)
    yield "parser", parser(program)
    for stage in program.stages:
        yield f"{stage.name}_stage", stage_control(stage, sizes)
    yield from state_controls(program)
    yield "conjunctions", conjunctions(program)
    yield "leaf", delivery(program)
    yield "calls", calls(program)
    yield "one_event", one_event(program)
    yield "source", sources(program)
    yield "ipv4_route", routing(program)
    yield "sending", sending()
    yield "ingress", ingress(program)
    if several:
        yield "pruning", pruning(program)
    yield "egress", egress(program)
    yield "verify_checksums", _checksums(program, "verify", verify(program) if several else "")
    yield "compute_checksums", _checksums(program, "update", compute(program) if several else "")
    yield "event_deparser", deparser(program)


def _title(program: ProgramLayout) -> str:
    fields = [f"{stage.name}: {kinds_text(stage)}" for stage in program.stages]
    first, *more = wrap(" > ".join(_parsed(program)), 84)
    options = program.options
    keys = f"  {options.conjunctions} times: state -> up to {options.key_fields} fields;"
    keys += " (state, their values) -> ports"
    lines = [
        f"Packet subscriptions for the message format {program.name!r}.",
        "",
        "Generated by ./spark-submit.sh make p4: do not edit.",
        "",
        "  packet <------------------------------------------------------------+",
        "    |                                                                 |",
        f"  parser {first}",
        *(f"    |    {names}" for names in more),
        "    |                                                                 |",
        "    |-- truncated, or wrong lengths or checksums ----> drop, counted  |",
        "  source: ingress port -> a switch or publisher,                      |",
        "    |       another host with this address, or drop, counted          |",
        "    |-- not an event --------------------------------> route: IPv4,   |",
        "    |                                          longest prefix         |",
        "  start: feed -> state                                                |",
        "    |                                                                 |",
        f"{keys:<70}|",
        "    |                                                                 |",
        "  one stage per field: (state, value) -> state, or matching terms     |",
        *(f"    |  {field:<63}|" for field in fields),
        "    |                                                                 |",
    ]
    if program.blocks:
        registers = ", ".join(f"{b.counter}[{b.slots}]" for b in program.blocks)
        told = [
            f"  state: {options.variables} times (state -> cell), (state, its value) -> state,",
            f"    |    then {options.updates} times (leaf -> cell, operand): update the cell",
            f"    |    registers: {registers}",
            "    |",
        ]
        lines += [f"{line:<70}|" for line in told]
    told = ["  leaf: state -> ports, or the ports of all matching terms", "    |"]
    told += ["    |-- another group of rules: recirculate", "    |"]
    if program.actions:
        told += ["  calls: state -> " + ", ".join(a.name for a in program.actions), "    |"]
    if program.repetition is not None:
        told += [
            "    |-- another message: remember the ports, and recirculate",
            "    |-- after the last of several: the ports of all, and recirculate",
            "    |",
        ]
    told += ["  sending: ports -> multicast group of the ports in one subset of 8;"]
    told += ["    |    ports in several subsets: one copy for each, recirculated"]
    lines += [f"{line:<70}|" for line in told]
    lines += ["  traffic manager > egress " + "-" * 43 + "+"]
    if program.repetition is not None:
        lines += ["    |    pruning: removes messages that do not match the rules of the port"]
    lines += ["    |", "  deparser"]
    return "\n".join(f"// {line}".rstrip() for line in lines)


def _parsed(program: ProgramLayout) -> list[str]:
    names = [layer.name for layer in (*program.stack, *program.framing)]
    if program.typed:
        names.append(" | ".join([layer.name for layer in program.messages] or ["type"]))
    return names


def _sizes(program: ProgramLayout) -> str:
    options = program.options
    state = bool(program.blocks)
    several = program.repetition is not None
    v6 = any(layer.parts["role"] == "ipv6" for layer in program.stack)
    has = {"": True, "own": program.own, "several": several}
    examined = 8 * options.datagram_bytes + MASK_BITS * options.messages
    lines = [
        (f"typedef bit<{STATE_BITS}> state_t;", True),
        (f"typedef bit<{PORT_BITS}> port_t;", True),
        (f"typedef bit<{MASK_BITS}> ports_t;  // the lowest bit is port 1", True),
        (f"typedef bit<{MASK_BITS * options.words}> terms_t;  // words of type ports_t", True),
        (f"typedef bit<{GROUP_BITS}> group_t;", True),
        (f"typedef bit<{VALUE_BITS}> value_t;  // value of a cell", state),
        (f"typedef bit<{program.start_bits}> start_t;  // start of the window of a cell", state),
        ("", True),
        (f"const bit<16> EVENT_PORT = {options.port};", program.own),
        (f"const int ROWS = {options.rows};  // maximum size of a table", True),
        (f"const int ROUTES = {options.routes};", True),
        (f"const int SOURCES = {MASK_BITS};", True),
        (f"const port_t PORTS = {MASK_BITS};", True),
        (f"const ports_t ALL_PORTS = {(1 << MASK_BITS) - 1:#x};", True),
        (f"const group_t FAN_OUT = {FAN_OUT:#x};  // one copy per subset of the ports", True),
        (
            "const port_t NOWHERE = 0;  // port of packets that are recirculated",
            True,
        ),
        ("const bit<16> IPV4 = 0x0800;", True),
        ("const bit<16> IPV6 = 0x86dd;", v6),
        (f"const bit<8> UDP = {UDP};", True),
        ("const bit<8> IGMP = 2;", True),
        ("const bit<4> GROUPS = 0xe;  // 224.0.0.0/4", True),
        ("const bit<24> LOCAL_NETWORK_CONTROL = 0xe00000;  // 224.0.0.0/24 (RFC 5771)", True),
        ("const bit<32> BROADCAST = 0xffffffff;", True),
        ("const bit<32> ETHERNET_BYTES = 14;", True),
        ("const bit<16> IPV4_BYTES = 20;  // IPv4 header without options", True),
        ("const int OPTIONS_BITS = 320;  // maximum", True),
        ("const bit<8> FEED = 1;", True),
        ("", several),
        (f"const int MESSAGES = {options.messages};  // maximum per datagram", several),
        (
            f"const bit<16> MESSAGE = {options.message_bytes};  // maximum size of a message",
            several,
        ),
        (
            f"const bit<16> DATAGRAM = {options.datagram_bytes};  // maximum size, with UDP header",
            several,
        ),
        (f"const int MESSAGE_BITS = {8 * options.message_bytes};", several),
        (f"const bit<32> WANTED_BITS = {MASK_BITS};", several),
        ("const bit<32> LENGTH_BITS = 16;", several),
        ("const bit<16> LENGTH_OCTETS = 2;", several),
        ("// The size of examined messages includes the ports of each message.", several),
        (f"const int EXAMINED_BITS = {examined};", several),
        ("", True),
        ("// standard_metadata.instance_type", True),
        ("const bit<32> RECIRCULATED = 4;", True),
        ("", True),
        ("// Steps of a packet.", True),
        ("const bit<8> ARRIVED = 0;  // first pass", True),
        ("const bit<8> EXAMINE = 1;  // next message, or next group of rules", True),
        ("const bit<8> DELIVER = 2;  // all messages have been examined", several),
        ("const bit<8> WHOLE = 3;  // the ports are known, and no message is removed", True),
        (
            "const bit<8> KEPT_FIELDS = 1;  // metadata that is preserved by recirculation",
            True,
        ),
        ("", True),
        (
            "// Reasons for dropping a packet, which are indexes of counter ingress.dropped.",
            True,
        ),
        ("typedef bit<8> reason_t;", True),
        ("const reason_t NOT_DROPPED = 0;", True),
        *(
            (f"const reason_t {name} = {index};  // {why}", has[of])
            for index, (name, why, of) in enumerate(REASONS, 1)
        ),
        (f"const bit<32> REASONS = {len(REASONS) + 1};", True),
    ]
    return "// Widths and sizes.\n" + "".join(f"{line}\n" for line, used in lines if used)


def _metadata(program: ProgramLayout) -> str:
    listed = "".join(f"    {field.declared}\n" for field in metadata(program))
    return "// Metadata of a packet.\nstruct metadata_t {\n" + listed + "}\n"


def _checksums(program: ProgramLayout, what: str, more: str) -> str:
    ipv4 = program.layer("ipv4")
    checksum = ipv4.parts["checksum"]
    names = [p4_name(f.name) for f in ipv4.header.fields]
    own = checksum_statement(
        what,
        f"hdr.{ipv4.name}.isValid()",
        [
            *(f"hdr.{ipv4.name}.{name}" for name in names if name != checksum),
            f"hdr.{OPTIONS}.values",
        ],
        f"hdr.{ipv4.name}.{checksum}",
    )
    control = {"verify": "verify_checksums", "update": "compute_checksums"}[what]
    purpose = {
        "verify": "Verifies the checksums of received packets.",
        "update": "Computes the checksums of emitted packets.",
    }[what]
    return (
        f"// {purpose}\ncontrol {control}(inout headers_t hdr, inout metadata_t meta) {{\n"
        f"    apply {{\n{indent(own + more, ' ' * 8)}    }}\n}}\n"
    )
