"""Filters and explanations as JSON and as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from stackcast.cli.filters.rule_files import Compiled, RuleFile
from stackcast.udfs.filters.compiler.compile import CompiledFilter
from stackcast.udfs.filters.explanation.explain import Alternative, Path, RuleEvaluation
from stackcast.udfs.filters.meaning.state import Cell
from stackcast.udfs.filters.nodes import Outcome
from stackcast.udfs.network_match.values import ProgramEntries, TableEntry
from stackcast.udfs.switches.entry import group_id, replicas
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.ports import port_groups

Json = dict[str, Any]

#: Largest numbers of rows and of ports in a text.
_MAX_ROWS, _MAX_PORTS = 40, 16
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def term_json(term: Alternative, compiled: CompiledFilter, indexed: bool) -> Json:
    """Return a term of a rule, and the rows and leaves that its events can reach.

    Args:
        term: the term.
        compiled: the diagram.
        indexed: whether the rule is in an index, which has no rows.
    """
    row = {"term": term.text, "acts": term.acts, "updates": list(term.updates)}
    if indexed:
        return row | {"rows": [], "leaves": []}
    return {
        **row,
        "rows": [asdict(entry) for entry in term.rows],
        "leaves": [
            {"state": state, **outcome_json(compiled.outcomes[state])} for state in term.leaves
        ],
    }


def index_term_json(predicates: Sequence[Json], outcome: Outcome) -> Json:
    """Return a term of an index, with raw values as integers."""
    rows = [
        {
            "field": predicate["field"],
            "intervals": [
                [int.from_bytes(interval["low"]), int.from_bytes(interval["high"])]
                for interval in predicate["intervals"]
            ],
            "text": predicate["text"],
        }
        for predicate in predicates
    ]
    return {"predicates": rows, **outcome_json(outcome), **_updates_json(outcome)}


def groups_text(compiled: Compiled) -> str:
    """Return the size of each part of compiled rules as text."""
    diagram = compiled.grouped.diagram
    lines = [
        f"{compiled.rules:,} rules compiled in {compiled.seconds:.3f} s",
        f"diagram: {compiled.rules - len(compiled.indexed):,} rules, "
        f"{len(diagram.entries):,} entries, {len(diagram.outcomes):,} leaves",
    ]
    for index in compiled.grouped.indexes:
        kind = "index of rules with state" if index is compiled.grouped.stateful else "index"
        lines.append(
            f"{kind}: {index.rules:,} rules, {index.terms:,} terms of {index.forms:,} forms, "
            f"{index.nbytes:,} bytes"
        )
    return "\n".join(lines) + "\n"


def rule_place(file: RuleFile, index: int) -> Json:
    """Return line and text of a rule."""
    return {"line": file.lines[index], "text": " ".join(file.texts[index].split())}


def evaluation_json(result: RuleEvaluation) -> Json:
    """Return the verdict of a rule on an event."""
    return {
        "matches": result.matches,
        "truth": result.truth,
        "predicates": [asdict(decision) for decision in result.predicates],
    }


def path_json(path: Path) -> list[Json]:
    """Return the path of an event, table by table."""
    steps = []
    for step in path.steps:
        row = step.row
        place = {"field": step.field, "state": step.state, "value": step.value, "shown": step.shown}
        match = {"row": row.text, "kind": row.kind, "next": row.next} if row else None
        steps.append({**place, **(match or {"row": None, "kind": None, "next": step.state})})
    return steps


def event_text(explanation: Json) -> str:
    """Return the explanation of an event as text."""
    lines = ["event"]
    lines += [f"  {name} = {value}" for name, value in explanation["event"].items()]
    lines += ["", "path through the tables"]
    for step in explanation["path"]:
        place = f"  {step['field']}: state {step['state']}, value {step['shown']}"
        if step["row"] is None:
            lines.append(f"{place}: no row, passes")
        else:
            lines.append(f"{place}: {step['row']} -> {step['next']}")
    lines.append(f"  leaf {explanation['leaf']}: {_action_text(explanation['at_leaf'])}")
    if explanation["index"]:
        lines += ["", "terms of the index that are true"]
        lines += [f"  {term['text']}: {_action_text(term)}" for term in explanation["index"]]
        lines += ["", f"together: {_action_text(explanation)}"]
    matching = [rule for rule in explanation["rules"] if rule["matches"]]
    unmatched = [rule for rule in explanation["rules"] if not rule["matches"]]
    lines += ["", f"rules that match: {len(matching):,}"]
    for rule in matching:
        lines += _rule_lines(rule)
    left_out = explanation["rules_left_out"]
    lines += ["", f"rules that do not match: {len(unmatched) + left_out:,}"]
    for rule in unmatched:
        lines += _rule_lines(rule)
    if left_out:
        lines.append(f"  and {left_out:,} more: see --all")
    return "\n".join(lines)


def _rule_lines(rule: Json) -> list[str]:
    lines = [f"  rule {rule['rule']}, line {rule['line']}: {rule['text']}"]
    for predicate in rule["predicates"]:
        star = "*" if predicate["decided"] else " "
        lines.append(f"    {star} {predicate['truth']:<7}  {predicate['text']}")
    return lines


def rule_text(explanation: Json) -> str:
    """Return the terms and rows of a compiled rule as text."""
    lines = [f"rule {explanation['rule']}, line {explanation['line']}: {explanation['text']}"]
    if not explanation["terms"]:
        lines.append("  no event can satisfy the rule")
    if explanation["in_index"]:
        lines.append("  the rule is matched by the index, which has its terms as rows")
    for term in explanation["terms"]:
        effects = "; ".join(
            [*term["updates"], *(["performs the rule's actions"] if term["acts"] else [])]
        )
        lines += ["", f"{term['term']} : {effects}"]
        rows = term["rows"]
        for row in rows[:_MAX_ROWS]:
            lines.append(f"  {row['field']}: state {row['state']}: {row['text']} -> {row['next']}")
        if len(rows) > _MAX_ROWS:
            lines.append(f"  and {len(rows) - _MAX_ROWS:,} more rows: see --json")
        for leaf in term["leaves"][:_MAX_ROWS]:
            lines.append(f"  leaf {leaf['state']}: {_action_text(leaf)}")
        if len(term["leaves"]) > _MAX_ROWS:
            lines.append(f"  and {len(term['leaves']) - _MAX_ROWS:,} more leaves: see --json")
    return "\n".join(lines)


def why_not_text(rules: Sequence[Json]) -> str:
    """Return the predicates that rules failed on as text."""
    lines = []
    for rule in rules:
        lines += ["", f"rule {rule['rule']}, line {rule['line']}: {rule['text']}"]
        lines.append(f"  matched {rule['matched']:,} of {rule['tried']:,} events; for the others:")
        for counts in rule["predicates"]:
            lines.append(
                f"    {counts['false']:>9,} false, {counts['unknown']:>9,} unknown, "
                f"{counts['decided']:>9,} decided: {counts['text']}"
            )
    return "\n".join(lines[1:])


def _action_text(outcome: Json) -> str:
    """Return ports and actions as in a rule."""
    ports = list(map(str, outcome["ports"]))
    if len(ports) > _MAX_PORTS:
        ports[_MAX_PORTS:] = [f"and {len(ports) - _MAX_PORTS} more"]
    parts = [f"fwd({', '.join(ports)})"] if ports else []
    parts += [f"{name}({', '.join(map(str, args))})" for name, *args in outcome["actions"]]
    return "; ".join(parts) or "no receivers"


def outcome_json(outcome: Outcome) -> Json:
    """Return ports and actions. Updates of state are not among them."""
    return {
        "ports": [_plain(name) for name in outcome.receivers],
        "actions": [[call.name, *map(_plain, call.args)] for call in outcome.calls],
    }


def leaf_json(state: int, outcome: Outcome) -> Json:
    """Return a leaf with its ports and actions, and with its updates if there are any."""
    return {"state": state, **outcome_json(outcome), **_updates_json(outcome)}


def _updates_json(outcome: Outcome) -> Json:
    if not outcome.updates:
        return {}
    return {"updates": [[u.cell, u.function, u.field] for u in outcome.updates]}


def cell_json(cell: Cell) -> Json:
    """Return a cell that tables read or leaves update.

    The window is in microseconds, and the band of the function ``moved`` in raw values.
    """
    return {
        "cell": cell.name,
        "function": cell.function,
        "field": cell.field,
        "band" if cell.function == "moved" else "window_us": cell.window,
    }


def _plain(text: str) -> int | str:
    return int(text) if _NUMBER.fullmatch(text) else text


def p4_json(program: ProgramEntries) -> Iterator[Json]:
    """Yield the multicast groups that the ports of the rules need, and then the entries."""
    for group in port_groups("", program.ports):
        copies = replicas(group)
        line: Json = {"group": group_id(group), "ports": [port for port, _ in copies]}
        if any(instance for _, instance in copies):
            line["instances"] = [instance for _, instance in copies]
        yield line
    for entry in program.entries:
        yield _p4_entry(entry)


def _p4_entry(entry: TableEntry) -> Json:
    return {
        "table": entry.table,
        "match": [_p4_match(match) for match in entry.match],
        "action": entry.action,
        "params": {name: value.hex() for name, value in entry.params},
        "priority": entry.priority,
    }


def _p4_match(match: Match) -> Json:
    value = match.value.hex()
    kinds: dict[str, Any] = {
        "exact": {"exact": value},
        "range": {"range": {"low": value, "high": match.other.hex()}},
        "ternary": {"ternary": {"value": value, "mask": match.other.hex()}},
        "lpm": {"lpm": {"value": value, "prefix_len": match.prefix_length}},
    }
    return {"field": match.name, **kinds[match.kind]}
