"""The output of ``stackcast filters``: filters and explanations as JSON and as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from stackcast.cli.filters.rule_files import Compiled, RuleFile
from stackcast.udfs.filters.compiler.compile import CompiledFilter
from stackcast.udfs.filters.explanation.explain import Alternative, RuleEvaluation
from stackcast.udfs.filters.explanation.explain import Path as Way
from stackcast.udfs.filters.meaning.state import Cell
from stackcast.udfs.filters.nodes import Outcome
from stackcast.udfs.network_match.values import ProgramEntries, TableEntry
from stackcast.udfs.switches.entry import group_id, replicas
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.ports import port_groups

Json = dict[str, Any]

_SHOWN_ROWS = 40
_SHOWN_PORTS = 16
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def term_json(term: Alternative, compiled: CompiledFilter, indexed: bool) -> Json:
    """Returns a term of a rule and where its events can go; the index has no rows for it."""
    told = {"term": term.text, "acts": term.acts, "updates": list(term.updates)}
    if indexed:
        return told | {"rows": [], "leaves": []}
    return {
        **told,
        "rows": [asdict(row) for row in term.rows],
        "leaves": [
            {"state": state, **outcome_json(compiled.outcomes[state])} for state in term.leaves
        ],
    }


def index_term_json(predicates: Sequence[Json], outcome: Outcome) -> Json:
    """Returns a term of the index, with raw values as integers."""
    shown = [
        {
            "field": predicate["field"],
            "intervals": [
                [int.from_bytes(each["low"]), int.from_bytes(each["high"])]
                for each in predicate["intervals"]
            ],
            "text": predicate["text"],
        }
        for predicate in predicates
    ]
    return {"predicates": shown, **outcome_json(outcome), **_updates_json(outcome)}


def groups_text(found: Compiled) -> str:
    """Returns how large each part of the compiled rules is, for people."""
    diagram = found.grouped.diagram
    lines = [
        f"{found.rules:,} rules compiled in {found.seconds:.3f} s",
        f"diagram: {found.rules - len(found.indexed):,} rules, {len(diagram.entries):,} entries, "
        f"{len(diagram.outcomes):,} leaves",
    ]
    for index in found.grouped.indexes:
        kind = "index of rules with state" if index is found.grouped.stateful else "index"
        lines.append(
            f"{kind}: {index.rules:,} rules, {index.terms:,} terms of {index.forms:,} forms, "
            f"{index.nbytes:,} bytes"
        )
    return "\n".join(lines) + "\n"


def rule_place(file: RuleFile, index: int) -> Json:
    """Line and text of a rule."""
    return {"line": file.lines[index], "text": " ".join(file.texts[index].split())}


def evaluation_json(found: RuleEvaluation) -> Json:
    """Returns a rule's verdict on an event."""
    return {
        "matches": found.matches,
        "truth": found.truth,
        "predicates": [asdict(decision) for decision in found.predicates],
    }


def path_json(way: Way) -> list[Json]:
    """Returns an event's way, table by table."""
    steps = []
    for step in way.steps:
        row = step.row
        found = {"field": step.field, "state": step.state, "value": step.value, "shown": step.shown}
        taken = {"row": row.text, "kind": row.kind, "next": row.next} if row else None
        steps.append({**found, **(taken or {"row": None, "kind": None, "next": step.state})})
    return steps


def event_text(found: Json) -> str:
    """Returns the explanation of an event, for people."""
    lines = ["event"]
    lines += [f"  {name} = {value}" for name, value in found["event"].items()]
    lines += ["", "way through the tables"]
    for step in found["path"]:
        where = f"  {step['field']}: state {step['state']}, value {step['shown']}"
        if step["row"] is None:
            lines.append(f"{where}: no row, passes")
        else:
            lines.append(f"{where}: {step['row']} -> {step['next']}")
    lines.append(f"  leaf {found['leaf']}: {_does(found['at_leaf'])}")
    if found["index"]:
        lines += ["", "terms of the index that hold"]
        lines += [f"  {term['text']}: {_does(term)}" for term in found["index"]]
        lines += ["", f"together: {_does(found)}"]
    matching = [rule for rule in found["rules"] if rule["matches"]]
    others = [rule for rule in found["rules"] if not rule["matches"]]
    lines += ["", f"rules that match: {len(matching):,}"]
    for rule in matching:
        lines += _rule_lines(rule)
    left = found["rules_left_out"]
    lines += ["", f"rules that do not: {len(others) + left:,}"]
    for rule in others:
        lines += _rule_lines(rule)
    if left:
        lines.append(f"  and {left:,} more: see --all")
    return "\n".join(lines)


def _rule_lines(rule: Json) -> list[str]:
    lines = [f"  rule {rule['rule']}, line {rule['line']}: {rule['text']}"]
    for predicate in rule["predicates"]:
        star = "*" if predicate["decided"] else " "
        lines.append(f"    {star} {predicate['truth']:<7}  {predicate['text']}")
    return lines


def rule_text(found: Json) -> str:
    """Returns the terms and rows that a rule compiled to, for people."""
    lines = [f"rule {found['rule']}, line {found['line']}: {found['text']}"]
    if not found["terms"]:
        lines.append("  nothing can satisfy it")
    if found["in_index"]:
        lines.append("  is matched by the index, whose rows its terms are")
    for term in found["terms"]:
        what = "; ".join(
            [*term["updates"], *(["takes the rule's actions"] if term["acts"] else [])]
        )
        lines += ["", f"{term['term']} : {what}"]
        rows = term["rows"]
        for row in rows[:_SHOWN_ROWS]:
            lines.append(f"  {row['field']}: state {row['state']}: {row['text']} -> {row['next']}")
        if len(rows) > _SHOWN_ROWS:
            lines.append(f"  and {len(rows) - _SHOWN_ROWS:,} rows more: see --json")
        for leaf in term["leaves"][:_SHOWN_ROWS]:
            lines.append(f"  leaf {leaf['state']}: {_does(leaf)}")
        if len(term["leaves"]) > _SHOWN_ROWS:
            lines.append(f"  and {len(term['leaves']) - _SHOWN_ROWS:,} leaves more: see --json")
    return "\n".join(lines)


def why_not_text(rules: Sequence[Json]) -> str:
    """Returns what rules failed on, for people."""
    lines = []
    for rule in rules:
        lines += ["", f"rule {rule['rule']}, line {rule['line']}: {rule['text']}"]
        lines.append(f"  matched {rule['matched']:,} of {rule['tried']:,} events; of the others")
        for each in rule["predicates"]:
            lines.append(
                f"    {each['false']:>9,} false, {each['unknown']:>9,} unknown, "
                f"{each['decided']:>9,} decided: {each['text']}"
            )
    return "\n".join(lines[1:])


def _does(found: Json) -> str:
    ports = list(map(str, found["ports"]))
    if len(ports) > _SHOWN_PORTS:
        ports[_SHOWN_PORTS:] = [f"and {len(ports) - _SHOWN_PORTS} more"]
    parts = [f"fwd({', '.join(ports)})"] if ports else []
    parts += [f"{name}({', '.join(map(str, args))})" for name, *args in found["actions"]]
    return "; ".join(parts) or "nobody"


def outcome_json(outcome: Outcome) -> Json:
    """Returns ports and actions; updates are state, and no action to be seen."""
    return {
        "ports": [_plain(name) for name in outcome.receivers],
        "actions": [[call.name, *map(_plain, call.args)] for call in outcome.calls],
    }


def leaf_json(state: int, outcome: Outcome) -> Json:
    """Returns a leaf and all that happens there; ``updates`` only if there are any."""
    return {"state": state, **outcome_json(outcome), **_updates_json(outcome)}


def _updates_json(outcome: Outcome) -> Json:
    if not outcome.updates:
        return {}
    return {"updates": [[u.cell, u.function, u.field] for u in outcome.updates]}


def cell_json(cell: Cell) -> Json:
    """Returns a cell that the tables read or the leaves update; the window in microseconds, the
    dead band of moved in raw values."""
    return {
        "cell": cell.name,
        "function": cell.function,
        "field": cell.field,
        "band" if cell.function == "moved" else "window_us": cell.window,
    }


def _plain(text: str) -> int | str:
    return int(text) if _NUMBER.fullmatch(text) else text


def p4_json(made: ProgramEntries) -> Iterator[Json]:
    """Yields multicast groups first, as entries name them: all that the ports of the rules need."""
    for group in port_groups("", made.ports):
        copies = replicas(group)
        line: Json = {"group": group_id(group), "ports": [port for port, _ in copies]}
        if any(instance for _, instance in copies):
            line["instances"] = [instance for _, instance in copies]
        yield line
    for entry in made.entries:
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
