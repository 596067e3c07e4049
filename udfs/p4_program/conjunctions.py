"""Tables of conjunctions of single values: the fields that a group of rules asks, and its keys."""

from __future__ import annotations

from textwrap import indent

from stackcast.udfs.network_match.layout import VALUE_BITS, ProgramLayout, take
from stackcast.udfs.network_match.table_sizes import group_rows
from stackcast.udfs.p4_program.stages import table


def conjunctions(program: ProgramLayout) -> str:
    """Generates the control that looks up the values of some fields together.

    The fields are those that its entries name for the state that a group of rules begins in. Empty
    for a program without such tables.
    """
    if not program.options.conjunctions:
        return ""
    places = range(1, program.options.key_fields + 1)
    body = "".join(f"    bit<{VALUE_BITS}> value_{place} = 0;\n" for place in places)
    optional = any(stage.optional for stage in program.stages)
    body += "    bit<1> present = 1;\n\n" if optional else "\n"
    state = 'meta.state : exact @name("state")'
    tables = ""
    for place in places:
        actions = []
        for stage in program.stages:
            actions.append(take(stage, place))
            there = ""
            if stage.optional:
                there = f"        present = present & ({stage.header}.isValid() ? 1w1 : 1w0);\n"
            body += (
                f"    action {actions[-1]}() {{\n"
                f"        value_{place} = (bit<{VALUE_BITS}>) {stage.value};\n{there}    }}\n"
            )
        rows = group_rows(program.options)
        tables += table(f"field_{place}", f"field_{place}_rows", [state], rows, *actions)
    keys = [state, *(f'value_{place} : exact @name("value_{place}")' for place in places)]
    tables += table("keys", "keys_rows", keys, "ROWS", "deliver")
    asked = "".join(f"field_{place}_rows.apply();\n" for place in places[1:])
    there = "if (present == 1) {\n    keys_rows.apply();\n}\n"
    asked += there if optional else "keys_rows.apply();\n"
    return (
        "// Conjunctions of single values: the values of several fields form one key.\n"
        f"control conjunctions(in headers_t hdr, inout metadata_t meta) {{\n{body}"
        "    action deliver(ports_t ports) {\n        meta.ports = meta.ports | ports;\n    }\n\n"
        f"{tables}    apply {{\n        if (field_1_rows.apply().hit) {{\n"
        f"{indent(asked, ' ' * 12)}        }}\n    }}\n}}\n"
    )
