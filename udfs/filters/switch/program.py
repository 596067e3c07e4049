"""The static step: a message format specification to a P4_16 program for v1model.

Source: CAMUS 3.1. The program has no rules in it: ``p4_entries`` gives what its tables hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent, indent, wrap

from udfs.filters.switch.parser import UDP, first_state, headers, layers, parser
from udfs.filters.switch.pipeline import (
    GROUP_BITS,
    PORT_BITS,
    STATE_BITS,
    VALUE_BITS,
    NamedAction,
    Options,
    Pipeline,
    Stage,
    p4_name,
    pipeline,
)
from udfs.filters.switch.registers import state_controls
from udfs.filters.switch.sizes import stage_sizes
from udfs.filters.switch.values import argument_value
from udfs.messages.specification import Specification

__all__ = ["NamedAction", "Options", "generate", "generate_pipeline"]


def generate(specification: Specification, options: Options | None = None) -> str:
    """The program's source. Equal specifications and options give equal text.

    Raises FilterError as ``p4_pipeline.pipeline`` does.
    """
    return generate_pipeline(pipeline(specification, options))


def generate_pipeline(program: Pipeline) -> str:
    """The source of a program that has been described already."""
    sizes = stage_sizes(program)
    parts = [
        _title(program),
        _constants(program),
        headers(program),
        _metadata(program),
        parser(program),
        *(_stage(stage, sizes) for stage in program.stages),
        *state_controls(program),
        _deliver(program),
        _calls(program),
        _subscriptions(program),
        _routing(program),
        _ingress(program),
        _rest(program),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


def _title(program: Pipeline) -> str:
    fields = [f"{stage.name}: {_kinds(stage)}" for stage in program.stages]
    first, *more = wrap(" > ".join(_parsed(program)), 84)
    lines = [
        f"Packet subscriptions for the message format {program.name!r}.",
        "",
        "Made by the static step of the compiler (udfs/filters/switch/program.py): do not edit.",
        "",
        "  packet",
        "    |",
        f"  parser {first}",
        *(f"    |    {names}" for names in more),
        "    |",
        "    |-- no event ----------------------------> route: IPv4, longest prefix",
        "    |-- cut short ---------------------------> drop, counted",
        "    |",
        "  start: feed -> state",
        "    |",
        "  one stage a field: (state, value) -> state",
        *(f"    |  {field}" for field in fields),
        "    |",
    ]
    if program.blocks:
        options = program.options
        lines += [
            f"  state: {options.variables} times (state -> cell), (state, what it holds) -> state,",
            f"    |    then {options.updates} times (leaf -> cell, operand): update the cell",
            "    |    registers: " + ", ".join(f"{b.counter}[{b.slots}]" for b in program.blocks),
            "    |",
        ]
    lines += [
        "  leaf: state -> multicast group | port | nobody: drop, counted",
        "    |",
    ]
    if program.actions:
        lines += ["  calls: state -> " + ", ".join(a.name for a in program.actions), "    |"]
    lines += ["  traffic manager > deparser"]
    return "\n".join(f"// {line}".rstrip() for line in lines)


def _parsed(program: Pipeline) -> list[str]:
    names = [layer.name for layer in (*program.stack, *program.framing)]
    if program.typed:
        names.append(" | ".join([layer.name for layer in program.messages] or ["type"]))
    return names


def _kinds(stage: Stage) -> str:
    kinds = [*stage.kinds, "otherwise"]
    if stage.code_bits:
        kinds.insert(0, f"map to {stage.code_bits} bits")
    return f"{', '.join(kinds)} ({stage.bits} bits)"


def _constants(program: Pipeline) -> str:
    options = program.options
    state = bool(program.blocks)
    v6 = any(layer.parts["role"] == "ipv6" for layer in program.stack)
    feed = bool(first_state(program))
    lines = [
        (f"typedef bit<{STATE_BITS}> state_t;", True),
        (f"typedef bit<{PORT_BITS}> port_t;", True),
        (f"typedef bit<{GROUP_BITS}> group_t;", True),
        (f"typedef bit<{VALUE_BITS}> value_t;  // of a cell", state),
        (f"typedef bit<{program.start_bits}> start_t;  // of a cell's window", state),
        ("", True),
        (f"const bit<16> EVENT_PORT = {options.port};", feed),
        (f"const int ROWS = {options.rows};  // of a table, at most", True),
        (f"const int ROUTES = {options.routes};", True),
        ("const bit<16> IPV4 = 0x0800;", True),
        ("const bit<16> IPV6 = 0x86dd;", v6),
        (f"const bit<8> UDP = {UDP};", True),
        ("const bit<8> FEED = 1;", True),
        ("", True),
        ("// Counted, by index.", True),
        ("const bit<32> CUT_SHORT = 0;", True),
        ("const bit<32> UNSUBSCRIBED = 1;", feed),
    ]
    includes = "#include <core.p4>\n#include <v1model.p4>\n\n// Widths and sizes.\n"
    return includes + "".join(f"{line}\n" for line, used in lines if used)


def _metadata(program: Pipeline) -> str:
    fields = [
        "bit<8> feed;  // 0: no event",
        "bit<8> message_type;",
        "state_t state;",
        "bit<1> delivered;",
        "bit<1> unwanted;  // no receiver, no named action",
    ]
    if program.blocks:
        fields.append("bit<64> now;")
    return "struct metadata_t {\n" + "".join(f"    {f}\n" for f in fields) + "}\n"


# ---------------------------------------------------------------------------------------- stages


def _stage(stage: Stage, sizes: Mapping[tuple[str, str], int]) -> str:
    size = {kind: number for (name, kind), number in sizes.items() if name == stage.name}
    value, body, locals_ = stage.value, "", ""
    if stage.code_bits:
        locals_ += f"    bit<{stage.code_bits}> code = 0;\n"
        body += _table(
            "map", "map_rows", [f'{value} : range @name("value")'], size["map"], "set_code"
        )
        value = "code"
    if stage.optional:
        locals_ += "    bit<1> present = 0;\n"
    locals_ += "    bool found = false;\n"
    for kind in stage.kinds:
        keys = ['meta.state : exact @name("state")', f'{value} : {kind} @name("value")']
        body += _table(kind, f"{kind}_rows", keys, size[kind], "set_state")
    keys = ['meta.state : exact @name("state")']
    if stage.optional:
        keys.append('present : exact @name("present")')
    body += _table("otherwise", "otherwise_rows", keys, size["otherwise"], "set_state")
    set_code = (
        f"    action set_code(bit<{stage.code_bits}> next) {{\n        code = next;\n    }}\n"
        if stage.code_bits
        else ""
    )
    return (
        f"// {stage.field}: {_kinds(stage)}\n"
        f"control {stage.name}_stage(in headers_t hdr, inout metadata_t meta) {{\n{locals_}\n"
        "    action set_state(state_t next) {\n        meta.state = next;\n    }\n"
        f"{set_code}\n{body}    apply {{\n{_asked(stage)}"
        "        if (!found) {\n            otherwise_rows.apply();\n        }\n    }\n}\n"
    )


def _asked(stage: Stage) -> str:
    """Statements that ask the tables of values, if the event has the field."""
    lines = ["present = 1;"] if stage.optional else []
    lines += ["map_rows.apply();"] if stage.code_bits else []
    for position, kind in enumerate(stage.kinds):
        ask = f"if ({kind}_rows.apply().hit) {{\n    found = true;\n}}"
        lines.append(f"else {ask}" if position else ask)
    text = "\n".join(lines).replace("}\nelse", "} else")
    if stage.header:
        text = f"if ({stage.header}.isValid()) {{\n{indent(text, '    ')}\n}}"
    return indent(text, " " * 8) + "\n"


def _table(name: str, variable: str, keys: Sequence[str], size: int | str, *actions: str) -> str:
    key = "".join(f"            {one};\n" for one in keys)
    listed = "".join(f"            {one};\n" for one in actions)
    return (
        f'    @name("{name}")\n    table {variable} {{\n        key = {{\n{key}        }}\n'
        f"        actions = {{\n{listed}            @defaultonly NoAction;\n        }}\n"
        f"        const default_action = NoAction();\n        size = {size};\n    }}\n\n"
    )


# ----------------------------------------------------------------------------------- after stages


def _deliver(program: Pipeline) -> str:
    default, arguments = program.default
    call = "drop()"
    if default == "fwd":
        call = f"unicast({int(arguments[0])})"
    return dedent(f"""\
        // The leaf: who gets the event.
        control deliver(inout metadata_t meta, inout standard_metadata_t standard_metadata) {{
            action multicast(group_t group) {{
                standard_metadata.mcast_grp = group;
                meta.delivered = 1;
            }}
            action unicast(port_t port) {{
                standard_metadata.egress_spec = port;
                meta.delivered = 1;
            }}
            action drop() {{
                mark_to_drop(standard_metadata);
            }}

            @name("leaf")
            table leaf_rows {{
                key = {{
                    meta.state : exact @name("state");
                }}
                actions = {{
                    multicast;
                    unicast;
                    drop;
                }}
                const default_action = {call};
                size = ROWS;
            }}

            apply {{
                if (leaf_rows.apply().miss) {{
                    meta.unwanted = 1;
                }}
            }}
        }}
        """)


def _calls(program: Pipeline) -> str:
    if not program.actions:
        return ""
    body = ""
    for number, action in enumerate(program.actions):
        arguments = ", ".join(f"bit<{bits}> a{i}" for i, bits in enumerate(action.widths, 1))
        what = action.body.strip() or f"called.count({number});"
        body += (
            f"    action {action.name}({arguments}) {{\n{indent(dedent(what), ' ' * 8)}\n    }}\n"
        )
    default, given = program.default
    widths = {action.name: action.widths for action in program.actions}
    otherwise = ""
    if default in widths:
        values = [argument_value(a, w) for a, w in zip(given, widths[default], strict=True)]
        otherwise = f"{default}({', '.join(map(str, values))});"
    names = [action.name for action in program.actions]
    for number in range(1, program.options.calls + 1):
        table = _table(
            f"call_{number}",
            f"call_{number}_rows",
            ['meta.state : exact @name("state")'],
            "ROWS",
            *names,
        )
        body += "\n" + table.rstrip("\n") + "\n"
    applied = "".join(
        f"        call_{number}_rows.apply();\n" for number in range(1, program.options.calls + 1)
    )
    if otherwise:
        applied = (
            f"        if (meta.unwanted == 1) {{\n            {otherwise}\n        }}\n" + applied
        )
    return (
        "// Named actions of rules.\n"
        "control calls(inout headers_t hdr, inout metadata_t meta,\n"
        "              inout standard_metadata_t standard_metadata) {\n"
        f"    counter({len(names)}, CounterType.packets) called;\n\n"
        f"{body}\n    apply {{\n{applied}    }}\n}}\n"
    )


def _subscriptions(program: Pipeline) -> str:
    instances = "".join(f"    {stage.name}_stage() {stage.name};\n" for stage in program.stages)
    applied = "".join(f"            {stage.name}.apply(hdr, meta);\n" for stage in program.stages)
    if program.blocks:
        instances += "    state_stage() cells;\n"
        applied += "            cells.apply(hdr, meta, standard_metadata);\n"
    instances += "    deliver() delivery;\n"
    applied += "            delivery.apply(meta, standard_metadata);\n"
    if program.actions:
        instances += "    calls() call;\n"
        applied += "            call.apply(hdr, meta, standard_metadata);\n"
    table = _table("start", "start_rows", ['meta.feed : exact @name("feed")'], 1, "set_state")
    return (
        "// One event: from the first state to its leaf, and what the leaf asks for.\n"
        "control one_event(inout headers_t hdr, inout metadata_t meta,\n"
        "                  inout standard_metadata_t standard_metadata) {\n"
        f"{instances}\n"
        "    action set_state(state_t next) {\n        meta.state = next;\n    }\n\n"
        "    // Its one row moves all events to another set of states at once.\n"
        f"{table}    apply {{\n"
        "        if (start_rows.apply().hit) {\n"
        f"{applied}        }} else {{\n            mark_to_drop(standard_metadata);\n        }}\n"
        "    }\n}\n"
    )


def _routing(program: Pipeline) -> str:
    ethernet, ipv4 = program.layer("ethernet"), program.layer("ipv4")
    e, i = f"hdr.{ethernet.name}", f"hdr.{ipv4.name}"
    return dedent(f"""\
        // All other traffic.
        control route(inout headers_t hdr, inout standard_metadata_t standard_metadata) {{
            action send(bit<48> next_hop, port_t port) {{
                {e}.{ethernet.parts["src"]} = {e}.{ethernet.parts["dst"]};
                {e}.{ethernet.parts["dst"]} = next_hop;
                {i}.{ipv4.parts["ttl"]} = {i}.{ipv4.parts["ttl"]} - 1;
                standard_metadata.egress_spec = port;
            }}
            action drop() {{
                mark_to_drop(standard_metadata);
            }}

            @name("ipv4")
            table ipv4_rows {{
                key = {{
                    {i}.{ipv4.parts["dst"]} : lpm @name("dst");
                }}
                actions = {{
                    send;
                    drop;
                }}
                const default_action = drop();
                size = ROUTES;
            }}

            apply {{
                if ({i}.isValid() && {i}.{ipv4.parts["ttl"]} > 1) {{
                    ipv4_rows.apply();
                }} else {{
                    drop();
                }}
            }}
        }}
        """)


def _ingress(program: Pipeline) -> str:
    # Where a format has no headers of its own, what nobody subscribed to is still traffic.
    condition = "meta.feed != FEED" if first_state(program) else "meta.delivered == 0"
    undelivered = (
        ""
        if not first_state(program)
        else dedent("""
        if (meta.feed == FEED && meta.delivered == 0) {
            not_sent.count(UNSUBSCRIBED);
        }
        """)
    )
    return (
        "control ingress(inout headers_t hdr, inout metadata_t meta,\n"
        "                inout standard_metadata_t standard_metadata) {\n"
        "    counter(2, CounterType.packets) not_sent;\n"
        "    one_event() subscriptions;\n"
        "    route() other;\n\n"
        "    apply {\n"
        "        if (standard_metadata.parser_error != error.NoError) {\n"
        "            not_sent.count(CUT_SHORT);\n"
        "            mark_to_drop(standard_metadata);\n"
        "        } else {\n"
        "            if (meta.feed == FEED) {\n"
        "                subscriptions.apply(hdr, meta, standard_metadata);\n"
        "            }\n"
        f"            if ({condition}) {{\n"
        "                other.apply(hdr, standard_metadata);\n"
        "            }\n"
        f"{indent(undelivered.strip(), ' ' * 12)}\n"
        "        }\n    }\n}\n"
    )


def _rest(program: Pipeline) -> str:
    ipv4 = program.layer("ipv4")
    checksum = ipv4.parts["checksum"]
    covered = [
        f"hdr.{ipv4.name}.{p4_name(f.name)}"
        for f in ipv4.header.fields
        if p4_name(f.name) != checksum
    ]
    emitted = "".join(f"        packet.emit(hdr.{layer.name});\n" for layer in layers(program))
    return (
        "// A copy leaves as it came: taking messages off for a port would be done here.\n"
        "control egress(inout headers_t hdr, inout metadata_t meta,\n"
        "               inout standard_metadata_t standard_metadata) {\n    apply {\n    }\n}\n\n"
        "control verify_checksums(inout headers_t hdr, inout metadata_t meta) {\n"
        "    apply {\n    }\n}\n\n"
        "control compute_checksums(inout headers_t hdr, inout metadata_t meta) {\n    apply {\n"
        f"        update_checksum(\n            hdr.{ipv4.name}.isValid(),\n            {{\n"
        + ",\n".join(f"                {one}" for one in covered)
        + f"\n            }},\n            hdr.{ipv4.name}.{checksum},\n"
        "            HashAlgorithm.csum16);\n    }\n}\n\n"
        "control event_deparser(packet_out packet, in headers_t hdr) {\n"
        f"    apply {{\n{emitted}    }}\n}}\n\n"
        "V1Switch(event_parser(), verify_checksums(), ingress(), egress(), compute_checksums(),\n"
        "         event_deparser()) main;\n"
    )
