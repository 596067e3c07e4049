"""The stages of the generated program: the tables of a field, their sizes, and those of the
leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent, indent

from udfs.network_match.layout import ProgramLayout, ProgramOptions, Stage
from udfs.network_match.values import argument_value

SETS = 2
"""Sets of states that a switch holds at once: those in use, and those it is being moved to."""


def stage_control(stage: Stage, sizes: Mapping[tuple[str, str], int]) -> str:
    """Generates the control of a stage; ``sizes`` as of ``stage_sizes``."""
    size = {kind: number for (name, kind), number in sizes.items() if name == stage.name}
    value, body, locals_ = stage.value, "", ""
    if stage.code_bits:
        locals_ += f"    bit<{stage.code_bits}> code = 0;\n"
        keys = [f'{value} : range @name("value")']
        body += table("map", "map_rows", keys, size["map"], "set_code")
        value = "code"
    if stage.optional:
        locals_ += "    bit<1> present = 0;\n"
    locals_ += "    bool found = false;\n"
    for kind in stage.kinds:
        keys = ['meta.state : exact @name("state")', f'{value} : {kind} @name("value")']
        body += table(kind, f"{kind}_rows", keys, size[kind], "set_state")
    keys = ['meta.state : exact @name("state")']
    if stage.optional:
        keys.append('present : exact @name("present")')
    body += table("otherwise", "otherwise_rows", keys, size["otherwise"], "set_state")
    set_code = (
        f"    action set_code(bit<{stage.code_bits}> next) {{\n        code = next;\n    }}\n"
        if stage.code_bits
        else ""
    )
    return (
        f"// {stage.field}: {kinds_text(stage)}\n"
        f"control {stage.name}_stage(in headers_t hdr, inout metadata_t meta) {{\n{locals_}\n"
        "    action set_state(state_t next) {\n        meta.state = next;\n    }\n"
        f"{set_code}\n{body}    apply {{\n{_asked(stage)}"
        "        if (!found) {\n            otherwise_rows.apply();\n        }\n    }\n}\n"
    )


def kinds_text(stage: Stage) -> str:
    """Words the kinds of a stage's tables, for people."""
    kinds = [*stage.kinds, "otherwise"]
    if stage.code_bits:
        kinds.insert(0, f"map to {stage.code_bits} bits")
    return f"{', '.join(kinds)} ({stage.bits} bits)"


def table(name: str, variable: str, keys: Sequence[str], size: int | str, *actions: str) -> str:
    """Generates a table whose default does nothing."""
    key = "".join(f"            {one};\n" for one in keys)
    listed = "".join(f"            {one};\n" for one in actions)
    return (
        f'    @name("{name}")\n    table {variable} {{\n        key = {{\n{key}        }}\n'
        f"        actions = {{\n{listed}            @defaultonly NoAction;\n        }}\n"
        f"        const default_action = NoAction();\n        size = {size};\n    }}\n\n"
    )


def _asked(stage: Stage) -> str:
    """Generates statements that ask the tables of values, if the event has the field."""
    lines = ["present = 1;"] if stage.optional else []
    lines += ["map_rows.apply();"] if stage.code_bits else []
    for position, kind in enumerate(stage.kinds):
        ask = f"if ({kind}_rows.apply().hit) {{\n    found = true;\n}}"
        lines.append(f"else {ask}" if position else ask)
    text = "\n".join(lines).replace("}\nelse", "} else")
    if stage.header:
        text = f"if ({stage.header}.isValid()) {{\n{indent(text, '    ')}\n}}"
    return indent(text, " " * 8) + "\n"


def delivery(program: ProgramLayout) -> str:
    """Generates the leaf table."""
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


def calls(program: ProgramLayout) -> str:
    """Generates the tables of named actions; empty for a program without any."""
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


def one_event(program: ProgramLayout) -> str:
    """Generates the control of an event: all stages in order, then the leaf."""
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


def stage_sizes(program: ProgramLayout) -> Mapping[tuple[str, str], int]:
    """Returns the rows of each table of a stage, by names of the stage and of the table.

    A table holds a row a state and value at most, so the first ones, which few states read, are
    small whatever the rules are; ``ProgramOptions.rows`` is the most for each.
    """
    most = program.options.rows
    found: dict[tuple[str, str], int] = {}
    states = min(SETS, most)
    for stage in program.stages:
        values = 1 << stage.key_bits
        rows = {
            "exact": states * values,
            # A range of one value is a row of the exact table, and ranges do not overlap.
            "range": states * (values // 2),
            "lpm": states * (2 * values - 1),
        }
        own = {kind: rows[kind] for kind in stage.kinds}
        own["otherwise"] = states * (2 if stage.optional else 1)
        # A state that does not ask for the field is still there behind it.
        states = min(states + sum(own.values()), most)
        if stage.code_bits:
            own["map"] = SETS * values
        found |= {(stage.name, kind): max(1, min(size, most)) for kind, size in own.items()}
    return found


def cell_sizes(options: ProgramOptions) -> Mapping[str, int]:
    """Returns the rows of the tables of one position among the cells that an event reads or
    updates.

    Leaves update, so there ``ProgramOptions.rows`` is the bound as it is for leaves.
    """
    states = min(options.cell_rows, options.rows)
    return {
        "load": states,
        "exact": states,
        "range": states,
        "otherwise": min(2 * states, options.rows),
        "update": options.rows,
    }
