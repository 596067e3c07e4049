"""Forwarding in the generated program: routes, sets of ports as groups, ingress and egress.

A set of ports is sent to by one multicast group, as ``stackcast.udfs.switches.ports`` numbers them:
the ports are eight subsets of eight, and a group stands for each set within one. A set that reaches
into several goes to the group of all subsets first, whose copies come back and are sent on, each to
its own.
"""

from __future__ import annotations

from textwrap import dedent, indent

from stackcast.udfs.network_match.framing import COUNT, LENGTH
from stackcast.udfs.network_match.layout import MASK_BITS, ProgramLayout, p4_name
from stackcast.udfs.switches.ports import SUBSET


def routing(program: ProgramLayout) -> str:
    """Generates the routes of plain IPv4 by longest prefix, for all that is no event."""
    ethernet, ipv4 = program.layer("ethernet"), program.layer("ipv4")
    e, i = f"hdr.{ethernet.name}", f"hdr.{ipv4.name}"
    length = ipv4.parts["length"]
    ttl = f"{i}.{ipv4.parts['ttl']}"
    return dedent(f"""\
        // Routes all other traffic.
        control ipv4_route(inout headers_t hdr, inout metadata_t meta,
                           inout standard_metadata_t standard_metadata) {{
            action send(port_t port) {{
                {ttl} = {ttl} - 1;
                standard_metadata.egress_spec = port;
            }}
            action deliver(bit<48> mac, port_t port) {{
                {e}.{ethernet.parts["dst"]} = mac;
                send(port);
            }}
            action drop() {{
                meta.reason = NO_ROUTE;
            }}

            @name("ipv4")
            table ipv4_rows {{
                key = {{
                    {i}.{ipv4.parts["dst"]} : lpm @name("dst");
                }}
                actions = {{
                    send;
                    deliver;
                    drop;
                }}
                const default_action = drop();
                size = ROUTES;
            }}

            apply {{
                if (!{i}.isValid()) {{
                    meta.reason = NOT_IPV4;
                }} else if ({i}.{length} < meta.header_bytes
                    || (bit<32>) {i}.{length} > standard_metadata.packet_length - ETHERNET_BYTES) {{
                    meta.reason = CUT_SHORT;
                }} else if ({ttl} <= 1) {{
                    meta.reason = TTL_OVER;
                }} else {{
                    ipv4_rows.apply();
                }}
            }}
        }}
        """)


def sources(program: ProgramLayout) -> str:
    """Generates who may send what in by which port: events come from switches and publishers."""
    ipv4 = program.layer("ipv4")
    i = f"hdr.{ipv4.name}"
    protocol, dst = (f"{i}.{ipv4.parts[part]}" for part in ("protocol", "dst"))
    return dedent(f"""\
        // Checks whether the neighbor at the ingress port may send a packet.
        //
        // Only switches and publishers may send events. Other hosts may send only plain traffic,
        // and IPv4 only from their own address. If a port has no row, the tables contain no
        // neighbor at this port, and its packets are dropped.
        control check_source(in headers_t hdr, in bool published, inout metadata_t meta,
                             in standard_metadata_t standard_metadata) {{
            bool trusted = true;
            bit<32> address = 0;

            // The neighbor is a switch or a publisher.
            action trust() {{
            }}
            // The neighbor is another host, and this is its address.
            action host(bit<32> ipv4) {{
                trusted = false;
                address = ipv4;
            }}
            action unknown() {{
                meta.reason = UNKNOWN_PORT;
            }}

            @name("port")
            table port_rows {{
                key = {{
                    standard_metadata.ingress_port : exact @name("port");
                }}
                actions = {{
                    trust;
                    host;
                    @defaultonly unknown;
                }}
                const default_action = unknown();
                size = SOURCES;
            }}

            apply {{
                port_rows.apply();
                if (meta.reason != NOT_DROPPED) {{
                    // The ingress port is unknown.
                }} else if (published) {{
                    if (!trusted) {{
                        meta.reason = NO_PUBLISHER;
                    }}
                }} else if ({i}.isValid()) {{
                    // Routers do not forward these packets, and some have no source address.
                    if (({protocol} == IGMP && {dst}[31:28] == GROUPS)
                        || {dst}[31:8] == LOCAL_NETWORK_CONTROL || {dst} == BROADCAST) {{
                        meta.reason = LINK_LOCAL;
                    }} else if (!trusted && {i}.{ipv4.parts["src"]} != address) {{
                        meta.reason = FORGED_ADDRESS;
                    }}
                }}
            }}
        }}
        """)


def sending() -> str:
    """Generates the choice of the group of a set of ports."""
    cases = ""
    for subset in range(MASK_BITS // SUBSET):
        low = subset * SUBSET
        mask = ((1 << SUBSET) - 1) << low
        cases += (
            f"{' else ' if cases else ''}if (meta.ports & {(1 << MASK_BITS) - 1 - mask:#018x} == 0)"
            f" {{\n    standard_metadata.mcast_grp = 8w{subset} ++ "
            f"meta.ports[{low + SUBSET - 1}:{low}];\n}}"
        )
    cases += f" else {{\n    standard_metadata.mcast_grp = FAN_OUT;\n{indent(AGAIN, '    ')}}}\n"
    return (
        "// Each set of ports has a multicast group, whose number contains subset and mask.\n"
        "control sending(inout metadata_t meta, inout standard_metadata_t standard_metadata) {\n"
        f"    apply {{\n{indent(cases, ' ' * 8)}    }}\n}}\n"
    )


AGAIN = "// One copy is made for each subset, and recirculated.\nmeta.again = 1;\n"


def ingress(program: ProgramLayout) -> str:
    """Generates ingress: it drops a packet, matches it as an event, or routes it."""
    several = program.repetition is not None
    event = _event_of_several(program) if several else _one_event(program)
    condition = "meta.events == 1" if several else "meta.feed == FEED"
    errors = (
        dedent("""\
            if (standard_metadata.parser_error == error.BadLength) {
                meta.reason = BAD_LENGTH;
            } else if (standard_metadata.parser_error == error.TooManyMessages) {
                meta.reason = TOO_MANY_MESSAGES;
            } else if (standard_metadata.parser_error == error.TooLong) {
                meta.reason = TOO_LONG;
            } else """)
        if several
        else ""
    )
    instances = (
        "    check_source() source;\n    one_event() subscriptions;\n    sending() send;\n"
        "    ipv4_route() route;\n"
    )
    published = f"hdr.{program.framing[0].name}.isValid()" if several else condition
    body = (
        "meta.reason = NOT_DROPPED;\n"
        "if (meta.step == ARRIVED) {\n"
        "    // A packet is never sent back to its ingress port.\n"
        "    meta.elsewhere = ALL_PORTS;\n"
        "    if (standard_metadata.ingress_port <= PORTS) {\n"
        "        meta.elsewhere =\n"
        "            ~((ports_t) 1 << (bit<8>) (standard_metadata.ingress_port - 1));\n"
        "    }\n"
        + (_ARRIVED if program.takes_time_along else "")
        + "}\n"
        + errors
        + "if (standard_metadata.parser_error != error.NoError) {\n"
        "    meta.reason = CUT_SHORT;\n"
        "} else if (standard_metadata.checksum_error == 1) {\n"
        "    meta.reason = BAD_CHECKSUM;\n"
        "} else if (meta.step == ARRIVED) {\n"
        f"    source.apply(hdr, {published}, meta, standard_metadata);\n"
        "}\n"
        "if (meta.reason == NOT_DROPPED) {\n"
        "    if (meta.step == WHOLE) {\n"
        "        meta.ready = 1;\n"
        f"    }} else if ({condition}) {{\n{indent(event, '        ')}"
        "    } else {\n        route.apply(hdr, meta, standard_metadata);\n    }\n}\n"
        "if (meta.reason != NOT_DROPPED) {\n"
        "    dropped.count((bit<32>) meta.reason);\n"
        "    mark_to_drop(standard_metadata);\n"
        "} else if (meta.ready == 1) {\n"
        "    send.apply(meta, standard_metadata);\n"
        "}\n"
    )
    return (
        "// Drops packets, matches events, and routes all other traffic.\n"
        "control ingress(inout headers_t hdr, inout metadata_t meta,\n"
        "                inout standard_metadata_t standard_metadata) {\n"
        "    counter(REASONS, CounterType.packets) dropped;\n"
        f"{instances}\n    apply {{\n{indent(body, ' ' * 8)}    }}\n}}\n"
    )


_ARRIVED = "    meta.arrived = standard_metadata.ingress_global_timestamp;\n"


def _one_event(program: ProgramLayout) -> str:
    # Where a format has no headers of its own, what nobody subscribed to is still traffic.
    unwanted = (
        "meta.reason = UNWANTED;" if program.own else "route.apply(hdr, meta, standard_metadata);"
    )
    return dedent(f"""\
        subscriptions.apply(hdr, meta, standard_metadata);
        if (meta.next != 0) {{
            // The packet is matched against another group of rules.
            standard_metadata.egress_spec = NOWHERE;
            meta.again = 1;
            meta.step = EXAMINE;
        }} else if (meta.ports == 0) {{
            {unwanted}
        }} else {{
            meta.ports = meta.ports & meta.elsewhere;
            meta.step = WHOLE;
            meta.ready = 1;
            if (meta.ports == 0) {{
                meta.reason = NO_PORT;
            }}
        }}
        """)


def _event_of_several(program: ProgramLayout) -> str:
    framing = program.framing
    count = f"hdr.{framing[0].name}.{p4_name(COUNT)}"
    length = f"hdr.{framing[1].name}.{p4_name(LENGTH)}"
    return dedent(f"""\
        if (meta.step == DELIVER) {{
            meta.ready = 1;
        }} else {{
            if (meta.feed == FEED) {{
                subscriptions.apply(hdr, meta, standard_metadata);
            }} else {{
                meta.ports = 0;
            }}
            if (meta.next == 0) {{
                meta.all_ports = meta.all_ports | meta.ports;
                meta.place = meta.place + 1;
            }}
            if (meta.next != 0 || {count} > 1) {{
                standard_metadata.egress_spec = NOWHERE;
                meta.again = 1;
                meta.step = EXAMINE;
            }}
            if (meta.next == 0 && {count} > 1) {{
                // The message and its ports stay before the next message.
                hdr.wanted_now.setValid();
                hdr.wanted_now.ports = meta.ports;
                meta.examined_bits = meta.examined_bits + WANTED_BITS + LENGTH_BITS
                    + ((bit<32>) {length} << 3);
            }}
            if (meta.next == 0 && meta.place == {count}) {{
                meta.ports = meta.all_ports;
                meta.ports = meta.ports & meta.elsewhere;
                meta.step = DELIVER;
                if (meta.all_ports == 0) {{
                    meta.reason = UNWANTED;
                }} else if (meta.ports == 0) {{
                    meta.reason = NO_PORT;
                }} else if ({count} == 1) {{
                    meta.step = WHOLE;
                    meta.ready = 1;
                }}
            }}
        }}
        """)


def egress(program: ProgramLayout) -> str:
    """Generates egress: copies that come in again, and messages taken off for a port."""
    several = program.repetition is not None
    prune = (
        " else if (meta.step == DELIVER) {\n    pruned.apply(hdr, meta, standard_metadata);\n}"
        if several
        else ""
    )
    body = (
        "if (standard_metadata.egress_rid != 0) {\n"
        "    // The copy is only for one subset of the ports.\n"
        "    meta.ports = meta.ports\n"
        "        & ((ports_t) 0xff << (bit<8>) ((standard_metadata.egress_rid - 1) << 3));\n"
        "}\n"
        "if (meta.again == 1) {\n"
        "    if (meta.ports == 0 && meta.step != EXAMINE) {\n"
        "        // The packet has no port in this subset.\n"
        "        mark_to_drop(standard_metadata);\n"
        "    } else {\n"
        "        recirculate_preserving_field_list(KEPT_FIELDS);\n"
        f"    }}\n}}{prune}\n"
    )
    instances = "    pruning() pruned;\n\n" if several else ""
    return (
        f"// Recirculates packets{', and prunes the messages of a copy' if several else ''}.\n"
        "control egress(inout headers_t hdr, inout metadata_t meta,\n"
        "               inout standard_metadata_t standard_metadata) {\n"
        f"{instances}    apply {{\n{indent(body, ' ' * 8)}    }}\n}}\n"
    )
