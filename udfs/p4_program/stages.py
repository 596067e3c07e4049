"""The stages of the generated program: the tables of a field, and those of the leaf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent, indent

from stackcast.udfs.network_match.layout import MASK_BITS, ProgramLayout, Stage
from stackcast.udfs.network_match.table_sizes import group_rows
from stackcast.udfs.network_match.values import argument_value


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
        body += table(kind, f"{kind}_rows", keys, size[kind], "set_state", "require")
    keys = ['meta.state : exact @name("state")']
    if stage.optional:
        keys.append('present : exact @name("present")')
    body += table("otherwise", "otherwise_rows", keys, size["otherwise"], "set_state", "require")
    set_code = (
        f"    action set_code(bit<{stage.code_bits}> next) {{\n        code = next;\n    }}\n"
        if stage.code_bits
        else ""
    )
    return (
        f"// {stage.field}: {kinds_text(stage)}\n"
        f"control {stage.name}_stage(in headers_t hdr, inout metadata_t meta) {{\n{locals_}\n"
        "    action set_state(state_t next) {\n        meta.state = next;\n    }\n"
        "    action require(terms_t terms) {\n        meta.terms = meta.terms & terms;\n    }\n"
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
    words = range(program.options.words)
    parts = [f"found[{MASK_BITS * word + MASK_BITS - 1}:{MASK_BITS * word}]" for word in words]
    drop, actions = "", ["deliver", "deliver_terms"]
    if program.actions:
        drop = "    // Does not select ports, and is not the default action.\n"
        drop += "    action drop() {\n        meta.called = 1;\n    }\n"
        actions.append("drop")
    united = "\n            | ".join(parts)
    return (
        "// The leaf of an event, which contains its ports.\n"
        "control leaf(inout metadata_t meta) {\n"
        "    terms_t found = 0;\n\n"
        "    action deliver(ports_t ports) {\n        meta.ports = meta.ports | ports;\n    }\n"
        "    // Bits that belong to no term are ignored.\n"
        "    action deliver_terms(terms_t terms) {\n        found = meta.terms & terms;\n"
        f"        meta.ports = meta.ports | (\n            {united});\n    }}\n"
        f"{drop}\n"
        + table("leaf", "leaf_rows", ['meta.state : exact @name("state")'], "ROWS", *actions)
        + "    apply {\n        leaf_rows.apply();\n    }\n}\n"
    )


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
    """Generates the control of an event: all stages in order, then the leaf, for one group of
    rules."""
    parts = [
        (f"conjunctions_{number}", "conjunctions")
        for number in range(1, program.options.conjunctions + 1)
    ]
    parts += [(stage.name, f"{stage.name}_stage") for stage in program.stages]
    instances = "".join(f"    {control}() {name};\n" for name, control in parts)
    applied = "".join(f"{name}.apply(hdr, meta);\n" for name, _ in parts)
    if program.blocks:
        instances += "    state_stage() cells;\n"
        applied += "cells.apply(hdr, meta, standard_metadata);\n"
    instances += "    leaf() delivery;\n"
    applied += "delivery.apply(meta);\nnext_rows.apply();\n"
    default, arguments = program.default
    called = " && meta.called == 0" if program.actions else ""
    if default != "drop":
        then = "meta.unwanted = 1;"
        if default == "fwd":
            then = f"meta.ports = {1 << (int(arguments[0]) - 1):#x};"
        unwanted = "meta.next == 0 && meta.ports == 0" + called
        applied += f"if ({unwanted}) {{\n    {then}\n}}\n"
    if program.actions:
        instances += "    calls() call;\n"
        applied += "call.apply(hdr, meta, standard_metadata);\n"
    start = table("start", "start_rows", ['meta.feed : exact @name("feed")'], 1, "set_state")
    following = table(
        "next",
        "next_rows",
        ['root : exact @name("state")'],
        group_rows(program.options),
        "set_next",
    )
    reset = "            meta.called = 0;\n" if program.actions else ""
    return (
        "// Matches one event against one group of rules, from the first state to the leaf and its "
        "updates.\ncontrol one_event(inout headers_t hdr, inout metadata_t meta,\n"
        "                  inout standard_metadata_t standard_metadata) {\n"
        f"{instances}    state_t root = 0;\n    bool begun = true;\n\n"
        "    action set_state(state_t next) {\n        meta.state = next;\n    }\n"
        "    action set_next(state_t next) {\n        meta.next = next;\n    }\n\n"
        "    // An update of the single row switches all events to other states atomically.\n"
        f"{start}"
        "    // Maps the first state of a group to the first state of the next group.\n"
        f"{following}    apply {{\n"
        "        if (meta.next != 0) {\n"
        "            meta.state = meta.next;\n            meta.next = 0;\n"
        "        } else {\n"
        "            meta.ports = 0;\n"
        f"{reset}"
        "            if (start_rows.apply().miss) {\n                begun = false;\n"
        "            }\n        }\n"
        "        if (begun) {\n"
        "            root = meta.state;\n"
        f"            meta.terms = {(1 << MASK_BITS * program.options.words) - 1:#x};\n"
        f"{indent(applied, ' ' * 12)}        }}\n"
        "    }\n}\n"
    )
