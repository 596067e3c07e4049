"""The stage of a field in the generated program: its tables, and how they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import indent

from udfs.network_match.pipeline import Stage


def stage_control(stage: Stage, sizes: Mapping[tuple[str, str], int]) -> str:
    """The control of a stage; ``sizes`` as of ``sizes.stage_sizes``."""
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
    """The kinds of a stage's tables, for people."""
    kinds = [*stage.kinds, "otherwise"]
    if stage.code_bits:
        kinds.insert(0, f"map to {stage.code_bits} bits")
    return f"{', '.join(kinds)} ({stage.bits} bits)"


def table(name: str, variable: str, keys: Sequence[str], size: int | str, *actions: str) -> str:
    """A table whose default does nothing."""
    key = "".join(f"            {one};\n" for one in keys)
    listed = "".join(f"            {one};\n" for one in actions)
    return (
        f'    @name("{name}")\n    table {variable} {{\n        key = {{\n{key}        }}\n'
        f"        actions = {{\n{listed}            @defaultonly NoAction;\n        }}\n"
        f"        const default_action = NoAction();\n        size = {size};\n    }}\n\n"
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
