"""The diagram of a compiled filter as Graphviz DOT text (CAMUS Fig. 3)."""

from __future__ import annotations

from collections.abc import Iterator

from stackcast.udfs.filters.compiler.tables import KINDS, CompiledFilter, leaf_row
from stackcast.udfs.filters.nodes import Outcome

MAX_LABELS = 6
"""Rows that one arrow names; it says how many more there are."""


def dot(compiled: CompiledFilter, name: str = "subscriptions") -> str:
    """Draws states as nodes, one cluster a field, arrows labelled with the rows between two states.

    A dashed arrow is taken if no other row fits, a dotted one if the field is absent. Equal
    filters give equal text.
    """
    lines = [
        f"digraph {_quoted(name)} {{",
        '  rankdir=TB; node [shape=circle, fontname="Helvetica"]; edge [fontname="Helvetica"];',
        f"  start [shape=point]; start -> s{compiled.root};",
    ]
    arrows: dict[tuple[int, int, str], list[str]] = {}
    states: dict[int, dict[int, None]] = {}
    places = {field: place for place, field in enumerate(compiled.fields)}
    for row, kind in zip(compiled.entry_rows(), compiled.entries["kind"].tolist(), strict=True):
        states.setdefault(places[row["field"]], {})[row["state"]] = None
        style = {"default": "dashed", "absent": "dotted"}.get(KINDS[kind], "solid")
        arrows.setdefault((row["state"], row["next"], style), []).append(row["text"])
    for place in sorted(states):
        field = compiled.fields[place]
        lines += [f"  subgraph cluster_{place} {{", f"    label={_quoted(field)}; style=rounded;"]
        lines += [f"    s{state} [label={_quoted(str(state))}];" for state in states[place]]
        lines.append("  }")
    lines += _leaves(compiled)
    for (state, following, style), texts in arrows.items():
        lines.append(f"  s{state} -> s{following} [label={_quoted(_label(texts))}, style={style}];")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _leaves(compiled: CompiledFilter) -> Iterator[str]:
    reached = {compiled.root, *compiled.entries["next"].tolist()}
    yield "  subgraph cluster_leaves {"
    yield '    label="leaves"; style=rounded; node [shape=box];'
    for state in sorted(compiled.outcomes):
        if state in reached:
            label = f"{state}: {_outcome(state, compiled.outcomes[state])}"
            yield f"    s{state} [label={_quoted(label)}];"
    yield "  }"


def _outcome(state: int, outcome: Outcome) -> str:
    actions: list[str] = list(leaf_row(state, outcome)["actions"])
    if outcome.receivers:
        actions.insert(0, f"fwd({', '.join(outcome.receivers)})")
    return "\n".join(actions) or "nobody"


def _label(texts: list[str]) -> str:
    shown = texts[:MAX_LABELS]
    if len(texts) > MAX_LABELS:
        shown.append(f"and {len(texts) - MAX_LABELS} more")
    return "\n".join(shown)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + "".join(c if c.isprintable() else f"#{ord(c):02x}" for c in escaped) + '"'
