"""The part of the generated program that keeps state: registers, windows, aggregates.

docs/reference/rule-state.md defines its meaning: a cell is (start, count, value), its window opens
with its first update, and all conditions look at cells before any is updated.
"""

from __future__ import annotations

from textwrap import dedent, indent

from stackcast.udfs.network_match.layout import (
    FUNCTIONS,
    SLOT_BITS,
    TAG_BITS,
    VALUE_BITS,
    ProgramLayout,
)
from stackcast.udfs.network_match.table_sizes import cell_sizes

_CELL = f"bit<8> block, bit<{SLOT_BITS}> slot, bit<8> function, bit<64> window, bit<{TAG_BITS}> tag"
_REGISTERS = (
    (f"bit<{TAG_BITS}>", "owner"),
    ("start_t", "start"),
    ("bit<32>", "count"),
    ("value_t", "value"),
)


def state_controls(program: ProgramLayout) -> tuple[tuple[str, str], ...]:
    """Generates the controls that keep state, by name; none for a program without counters."""
    if not program.blocks:
        return ()
    return (
        ("cell", _cell()),
        ("clock", _clock(program)),
        ("closing", _closing()),
        ("reading", _reading()),
        ("updating", _updating()),
        ("state_stage", _stage(program)),
    )


def _cell() -> str:
    functions = "".join(
        f"const bit<8> {name.upper()} = {number};\n" for number, name in enumerate(FUNCTIONS)
    )
    return f"// Functions of cells, with their numbers in the entries.\n{functions}" + dedent(f"""
        struct cell_t {{
            bit<8> block;  // number of the counter that the registers belong to
            bit<{SLOT_BITS}> slot;
            bit<8> function;
            bit<64> window;
            bit<{TAG_BITS}> tag;
            bit<{TAG_BITS}> owner;  // tag of the cell that wrote the registers
            start_t start;
            bit<32> count;
            value_t value;
            bit<1> known;
        }}
        """)


def _clock(program: ProgramLayout) -> str:
    times = f" * {program.clock_units}" if program.clock_units > 1 else ""
    body = ""
    for header, value in program.clocks:
        body += f"if ({header}.isValid()) {{\n    meta.now = {value};\n}} else "
    if program.always_clocked:
        head, _, last = body.rpartition("if (")
        body = head + last[last.index("{") :].removesuffix(" else ") + "\n"
    else:
        # A packet that comes in again has no time of its own.
        several = program.repetition is not None
        arrival = "meta.arrived" if several else "standard_metadata.ingress_global_timestamp"
        switch = f"meta.now = (bit<64>) {arrival}{times};\n"
        body += f"{{\n    {switch}}}\n" if body else switch
    units = f"{program.clock_units} units per microsecond" if times else "in microseconds"
    return (
        f"// The time of an event ({units}): its own clock, or the clock of the switch.\n"
        "control clock(in headers_t hdr, inout metadata_t meta,\n"
        "              in standard_metadata_t standard_metadata) {\n"
        f"    apply {{\n{indent(body, ' ' * 8)}    }}\n}}\n"
    )


def _closing() -> str:
    return dedent("""\
        // Empties a cell whose window has ended. Time differences wrap around in both directions. A
        // window of MOVED ends with a value that differs by this amount from the first value of the
        // window. Contents of the registers that belong to another cell are discarded.
        control closing(in metadata_t meta, in value_t operand, inout cell_t cell) {
            start_t after = 0;
            start_t before = 0;
            bit<64> away = 0;
            apply {
                if (cell.function == MOVED) {
                    away = operand - cell.value;
                    if (operand < cell.value) {
                        away = cell.value - operand;
                    }
                } else {
                    after = (start_t) meta.now - cell.start;
                    before = cell.start - (start_t) meta.now;
                    away = (bit<64>) after;
                    if (before < after) {
                        away = (bit<64>) before;
                    }
                }
                if (away >= cell.window || cell.owner != cell.tag) {
                    cell.count = 0;
                }
            }
        }
        """)


def _reading() -> str:
    # Written without 'if', p4c would put each step's expression into the next one.
    step = (
        "        work = work << 1;\n"
        "        if (work >= divisor) {\n            work = work - less;\n        }\n"
    )
    return (
        dedent("""\
            // Computes the value that a condition reads from the registers of a cell.
            control reading(in metadata_t meta, in value_t operand, inout cell_t cell) {
                closing() closing_;
                bit<128> divisor = 0;
                bit<128> less = 0;
                bit<128> work = 0;

                // Restoring division, because no target can divide: remainder above, quotient
                // below. If the divisor fits, it is subtracted above, and 1 is set below.
                action divide() {
                    divisor = (bit<128>) cell.count << 64;
                    less = divisor - 1;
                    work = (bit<128>) cell.value;
            """)
        + step * VALUE_BITS
        + "        cell.value = work[63:0];\n    }\n\n    apply {\n"
        + dedent("""\
                    closing_.apply(meta, operand, cell);
                    cell.known = 1;
                    if (cell.function == MOVED) {
                        cell.value = 0;
                        if (cell.count == 0) {
                            cell.value = 1;
                        }
                    } else if (cell.count == 0) {
                        cell.value = 0;
                        if (cell.function != COUNT && cell.function != SUM) {
                            cell.known = 0;
                        }
                    } else if (cell.function == COUNT) {
                        cell.value = (value_t) cell.count;
                    } else if (cell.function == AVG) {
                        divide();
                    }
                }
            }
            """)
    )


def _updating() -> str:
    return dedent("""\
        // Updates the registers of a cell for an event with this operand.
        control updating(in metadata_t meta, in value_t operand, inout cell_t cell) {
            closing() closing_;
            apply {
                closing_.apply(meta, operand, cell);
                cell.owner = cell.tag;
                if (cell.count == 0) {
                    cell.start = (start_t) meta.now;
                    cell.count = 1;
                    cell.value = operand;
                } else if (cell.function != MOVED) {
                    cell.count = cell.count |+| 1;
                    if (cell.function == SUM || cell.function == AVG) {
                        cell.value = cell.value |+| operand;
                    } else if (cell.function == MIN) {
                        if (operand < cell.value) {
                            cell.value = operand;
                        }
                    } else if (cell.function == MAX) {
                        if (operand > cell.value) {
                            cell.value = operand;
                        }
                    }
                }
            }
        }
        """)


def _stage(program: ProgramLayout) -> str:
    options = program.options
    sizes = cell_sizes(options)
    body = "".join(
        f"    register<{kind}>({block.slots}) {block.name}_{what};\n"
        for block in program.blocks
        for kind, what in _REGISTERS
    )
    body += dedent("""
        cell_t cell = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
        value_t operand = 0;
        bit<1> known = 0;
        bool found = false;
        clock() clock_;
        """).replace("\n", "\n    ")
    body = body.rstrip(" ")
    for number in range(1, options.variables + 1):
        body += f"    reading() reading_{number};\n"
    for number in range(1, options.updates + 1):
        body += f"    updating() updating_{number};\n"
    body += indent(_actions(program), "    ")
    loads = ["load", *(operand.action for operand in program.operands)]
    for number in range(1, options.variables + 1):
        body += _table(f"load_{number}", ["meta.state : exact"], loads, sizes["load"])
        for kind in ("exact", "range"):
            keys = ["meta.state : exact", f"cell.value : {kind}"]
            body += _table(f"{kind}_{number}", keys, ["set_state"], sizes[kind])
        keys = ["meta.state : exact", "cell.known : exact"]
        body += _table(f"otherwise_{number}", keys, ["set_state"], sizes["otherwise"])
    for number in range(1, options.updates + 1):
        body += _table(f"update_{number}", ["meta.state : exact"], loads, sizes["update"])
    apply = "clock_.apply(hdr, meta, standard_metadata);\n\n"
    apply += "// All conditions read the cells before the event updates them.\n"
    apply += "".join(_read(program, n) for n in range(1, options.variables + 1))
    apply += "\n// The leaf then selects the cells to update.\n"
    apply += "".join(_update(program, n) for n in range(1, options.updates + 1))
    return (
        "// State: (state, cell) -> state for the conditions, then leaf -> cells to update. A\n"
        "// target with one register access per pass needs registers for each position.\n"
        "control state_stage(in headers_t hdr, inout metadata_t meta,\n"
        "                    in standard_metadata_t standard_metadata) {\n"
        f"{body}    apply {{\n{indent(apply, ' ' * 8)}    }}\n}}\n"
    )


def _actions(program: ProgramLayout) -> str:
    text = dedent(f"""
        action set_state(state_t next) {{
            meta.state = next;
        }}
        action load({_CELL}) {{
            cell.block = block;
            cell.slot = slot;
            cell.function = function;
            cell.window = window;
            cell.tag = tag;
            operand = 0;
            known = 1;
        }}
        """)
    for operand in program.operands:
        text += (
            f"action {operand.action}(\n        {_CELL}) {{\n"
            "    load(block, slot, function, window, tag);\n"
            f"    operand = (value_t) {operand.value};\n"
            f"    known = {operand.header}.isValid() ? 1w1 : 1w0;\n}}\n"
        )
    return text + "\n"


def _read(program: ProgramLayout, number: int) -> str:
    return (
        f"if (load_{number}_rows.apply().hit) {{\n"
        + indent(_registers(program, "read"), "    ")
        + indent(
            dedent(f"""\
            reading_{number}.apply(meta, operand, cell);
            found = false;
            if (cell.known == 1) {{
                if (exact_{number}_rows.apply().hit) {{
                    found = true;
                }} else if (range_{number}_rows.apply().hit) {{
                    found = true;
                }}
            }}
            if (!found) {{
                otherwise_{number}_rows.apply();
            }}
            """),
            "    ",
        )
        + "}\n"
    )


def _update(program: ProgramLayout, number: int) -> str:
    return (
        f"known = 0;\nupdate_{number}_rows.apply();\nif (known == 1) {{\n"
        + indent(_registers(program, "read"), "    ")
        + f"    updating_{number}.apply(meta, operand, cell);\n"
        + indent(_registers(program, "write"), "    ")
        + "}\n"
    )


def _registers(program: ProgramLayout, what: str) -> str:
    text = ""
    for block in program.blocks:
        lines = []
        for _, member in _REGISTERS:
            register = f"{block.name}_{member}"
            if what == "read":
                lines.append(f"{register}.read(cell.{member}, cell.slot);")
            else:
                lines.append(f"{register}.write(cell.slot, cell.{member});")
        statements = indent("\n".join(lines), "    ")
        text += f"if (cell.block == {block.number}) {{\n{statements}\n}}\n"
    return text.replace("}\nif", "} else if")


def _table(name: str, keys: list[str], actions: list[str], size: int) -> str:
    named = [f'{key} @name("{key.split(" ")[0].split(".")[1]}")' for key in keys]
    key = "".join(f"            {one};\n" for one in named)
    listed = "".join(f"            {one};\n" for one in actions)
    return (
        f'    @name("{name}")\n    table {name}_rows {{\n        key = {{\n{key}        }}\n'
        f"        actions = {{\n{listed}            @defaultonly NoAction;\n        }}\n"
        f"        const default_action = NoAction();\n        size = {size};\n    }}\n\n"
    )
