"""What happens at a leaf of the generated program: ports, and named actions."""

from __future__ import annotations

from textwrap import dedent, indent

from udfs.network_match.pipeline import Pipeline
from udfs.network_match.values import argument_value
from udfs.p4_program.stages import table


def delivery(program: Pipeline) -> str:
    """The leaf table."""
    default, arguments = program.default
    call = "drop()"
    if default == "fwd":
        call = f"deliver({1 << (int(arguments[0]) - 1):#x})"
    return dedent(f"""\
        // The leaf: who gets the event.
        control leaf(inout metadata_t meta) {{
            action deliver(ports_t ports) {{
                meta.ports = ports;
            }}
            action drop() {{
                meta.ports = 0;
            }}

            @name("leaf")
            table leaf_rows {{
                key = {{
                    meta.state : exact @name("state");
                }}
                actions = {{
                    deliver;
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


def calls(program: Pipeline) -> str:
    """The tables of named actions; empty for a program without any."""
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
    places = range(1, program.options.calls + 1)
    key = ['meta.state : exact @name("state")']
    for number in places:
        made = table(f"call_{number}", f"call_{number}_rows", key, "ROWS", *names)
        body += "\n" + made.rstrip("\n") + "\n"
    applied = "".join(f"        call_{number}_rows.apply();\n" for number in places)
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


def one_event(program: Pipeline) -> str:
    """All stages in order, then the leaf."""
    instances = "".join(f"    {stage.name}_stage() {stage.name};\n" for stage in program.stages)
    applied = "".join(f"            {stage.name}.apply(hdr, meta);\n" for stage in program.stages)
    if program.blocks:
        instances += "    state_stage() cells;\n"
        applied += "            cells.apply(hdr, meta, standard_metadata);\n"
    instances += "    leaf() delivery;\n"
    applied += "            delivery.apply(meta);\n"
    if program.actions:
        instances += "    calls() call;\n"
        applied += "            call.apply(hdr, meta, standard_metadata);\n"
    start = table("start", "start_rows", ['meta.feed : exact @name("feed")'], 1, "set_state")
    return (
        "// One event: from the first state to its leaf, and what the leaf asks for.\n"
        "control one_event(inout headers_t hdr, inout metadata_t meta,\n"
        "                  inout standard_metadata_t standard_metadata) {\n"
        f"{instances}\n"
        "    action set_state(state_t next) {\n        meta.state = next;\n    }\n\n"
        "    // Its one row moves all events to another set of states at once.\n"
        f"{start}    apply {{\n"
        "        meta.ports = 0;\n"
        "        if (start_rows.apply().hit) {\n"
        f"{applied}        }}\n"
        "    }\n}\n"
    )
