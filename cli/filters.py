"""``stackcast filters``: check rules, compile them, match events, and say why."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import numpy as np
import typer

import schemas
from udfs.errors import EventError, SubscriptionError
from udfs.filters.cells import Carried, StatefulMatcher
from udfs.filters.compile import (
    CheckedRule,
    CompiledFilter,
    actions_of,
    compile_rules,
    compile_table,
    table_of_texts,
)
from udfs.filters.dot import dot
from udfs.filters.evaluate import fields_of, is_stateful, matches_columns
from udfs.filters.events import Event, EventColumns, EventReader
from udfs.filters.explain import Alternative, Explainer, Verdict, shown_value, verdict
from udfs.filters.explain import Path as Way
from udfs.filters.interpreter import Interpreter
from udfs.filters.language import in_file, parse_rule
from udfs.filters.matcher import Matcher
from udfs.filters.nodes import Outcome, Rule, Update
from udfs.filters.normal_form import lane_terms
from udfs.filters.p4_entries import entries as p4_entries
from udfs.filters.p4_pipeline import NamedAction, Options
from udfs.filters.p4_values import Match, ProgramEntries, TableEntry
from udfs.filters.resources import render, report
from udfs.filters.rule_file import split_rules
from udfs.filters.shapes import RuleTable, read_table
from udfs.filters.state import add_updates, clock_of, split
from udfs.filters.tables import KINDS
from udfs.messages.specification import Specification, parse_specification

app = typer.Typer(no_args_is_help=True, help="Check, compile, try and explain subscriptions.")

BATCH = 16_384
MAX_LINE = 1 << 20
_CELLS_OF_MASKS = 1 << 26
_SHOWN_RULES = 20
_SHOWN_ROWS = 40
_SHOWN_PORTS = 16
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")

Json = dict[str, Any]

FormatOption = Annotated[
    str, typer.Option("--format", help="File of a specification, or a shipped one's name: itch.")
]
RulesOption = Annotated[Path, typer.Option("--rules", help="File of rules; - is standard input.")]
SkipOption = Annotated[
    bool, typer.Option("--skip-faulty", help="Go on with the rules that are right.")
]


@dataclass(frozen=True)
class _RuleFile:
    """Rules of a file. ``faults``: index and error, in the file's lines."""

    name: str
    specification: Specification
    framing: bool
    texts: list[str]
    lines: list[int]
    faults: list[tuple[int, SubscriptionError]]

    @property
    def right(self) -> list[int]:
        """Indexes of the rules that are not faulty."""
        faulty = {index for index, _ in self.faults}
        return [index for index in range(len(self.texts)) if index not in faulty]

    def rule(self, index: int) -> Rule:
        return parse_rule(self.texts[index], self.specification, framing=self.framing)

    def compile(self, optional: bool | None, order: str | tuple[str, ...]) -> CompiledFilter:
        """The rules that are right as tables."""
        right = self.right
        if not self.framing:
            texts = [self.texts[index] for index in right]
            read = read_table(texts, self.specification)
            table = table_of_texts(texts, read, self.specification, optional)
            return compile_table(table, self.specification, order=order, optional=optional)
        rules = []
        for index in right:
            rule = self.rule(index)
            rules.append(CheckedRule(str(index), rule.condition, *actions_of(rule.actions)))
        return compile_rules(rules, self.specification, order=order, optional=optional)


@app.command()
def check(
    format_: FormatOption,
    rules: RulesOption,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a fault.")] = False,
) -> None:
    """Say which rules are faulty, where, and what to write instead. Exit code 1 if any is."""
    file = _read_rules(format_, rules)
    _tell_faults(file, as_json)
    right = len(file.texts) - len(file.faults)
    if as_json:
        typer.echo(json.dumps({"rules": len(file.texts), "faulty": len(file.faults)}))
    else:
        typer.echo(f"{file.name}: {right:,} of {len(file.texts):,} rules are right")
    if file.faults:
        raise typer.Exit(1)


@app.command("compile")
def compile_command(
    format_: FormatOption,
    rules: RulesOption,
    *,
    dot_file: Annotated[
        Path | None, typer.Option("--dot", help="File to draw the diagram to, for Graphviz.")
    ] = None,
    report_: Annotated[
        bool, typer.Option("--report", help="Resources, to standard error.")
    ] = False,
    order: Annotated[
        str,
        typer.Option("--order", help="specification, auto, or fields with commas between."),
    ] = "specification",
    p4: Annotated[
        Path | None,
        typer.Option("--p4", help="File for the entries of the generated P4 program."),
    ] = None,
    port: Annotated[
        list[str] | None, typer.Option("--port", help="HOST=NUMBER: port to a host, for --p4.")
    ] = None,
    skip_faulty: SkipOption = False,
) -> None:
    """Print the compiled tables as JSON lines.

    First the entries, {"field", "state", "low", "high", "kind", "next"}, low and high as raw
    integers, both included; then the leaves, {"state", "ports", "actions"}. Tables stand in their
    order; start in the first line's state, or at the only leaf if there is no entry. What --dot
    and --p4 write and --report says is apart from this. Of a typed format an event has all
    fields of its message; of others any field may be absent.
    """
    file = _rules_to_use(format_, rules, skip_faulty)
    specification = file.specification
    compiled = file.compile(None, _order(order, specification))
    options = _options(specification, file, compiled)
    ports = _ports(port or [])
    # All that can fail comes before the first line.
    made = p4_entries(compiled, specification, ports, options=options) if p4 else None
    if p4 and made:
        _write(p4, (json.dumps(line) + "\n" for line in _p4_lines(made)))
    if dot_file:
        _write(dot_file, [dot(compiled)])
    for index, state, low, high, kind, following in compiled.entries.tolist():
        line = {"field": compiled.fields[index], "state": state, "low": low, "high": high}
        typer.echo(json.dumps({**line, "kind": KINDS[kind], "next": following}))
    for state in sorted(compiled.outcomes):
        typer.echo(json.dumps({"state": state, **_outcome(compiled.outcomes[state])}))
    if report_:
        typer.echo(render(report(compiled, specification)), err=True, nl=False)


@app.command("match")
def match_command(
    format_: FormatOption,
    rules: RulesOption,
    events: Annotated[
        str, typer.Option("--events", help="File of JSON lines; - is standard input.")
    ],
    *,
    with_rules: Annotated[
        bool,
        typer.Option("--with-rules", help="Add indexes of the rules that match, from 0."),
    ] = False,
    skip_faulty: SkipOption = False,
) -> None:
    """Print what the compiled tables do with each event: {"ports": [...], "actions": [...]}.

    An event is a line {"add_order.price": 500000, "stock": "GOOGL"}: raw values, texts without
    padding, nothing scaled, short names where they are unique. Fields left out, or null, are
    absent. "time_us" is the event's time where no field is a @clock. Rules with state see the
    events as one source, in the file's order. An event that cannot be read becomes {"error",
    "code", "line"}, has no effect on others, and the exit code is 1 then. Empty lines are passed
    over.
    """
    file = _rules_to_use(format_, rules, skip_faulty)
    run = _Run(file, with_rules)
    with _open(events) as stream:
        lines = _lines(stream)
        failed = False
        while batch := list(islice(lines, run.batch)):
            read = run.reader.read([line for _, line in batch])
            out = run.step(read)
            for at, error in read.faults:
                failed = True
                told = {"error": error.message, "code": error.code, "line": batch[at][0]}
                out[at] = json.dumps(told)
            sys.stdout.write("".join(f"{out[at]}\n" for at in range(len(batch))))
        sys.stdout.flush()
    if failed:
        raise typer.Exit(1)


@app.command("explain")
def explain_command(
    format_: FormatOption,
    rules: RulesOption,
    *,
    event: Annotated[str, typer.Option("--event", help="An event, as a line of match.")] = "",
    after: Annotated[
        str, typer.Option("--after", help="File of events before it, for rules with state.")
    ] = "",
    rule: Annotated[int, typer.Option("--rule", help="Index of a rule in the file, from 0.")] = -1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    skip_faulty: SkipOption = False,
) -> None:
    """Say why an event goes where it goes, or what a rule compiled to.

    For an event: table by table the state, the value, the row that decided and the next state; then
    the rules, and which predicates of each were true, false or unknown. A star marks those that
    decided. For a rule: its normal form, and for each term the rows that its events can take.
    """
    if bool(event) == (rule >= 0):
        raise typer.BadParameter("give --event or --rule, and not both")
    file = _rules_to_use(format_, rules, skip_faulty)
    found = _explain_event(file, event, after) if event else _explain_rule(file, rule)
    shown = _event_text(found) if event else _rule_text(found)
    typer.echo(json.dumps(found) if as_json else shown)


class _Run:
    """Events through the tables of a file, batch by batch, with the state carried."""

    def __init__(self, file: _RuleFile, with_rules: bool) -> None:
        compiled = file.compile(True, "specification")
        clock = clock_of(file.specification)
        self._stateful = StatefulMatcher(compiled, clock.units)
        self._matcher: Matcher = self._stateful.matcher
        self._carried: Carried | None = None
        self._texts: dict[int, str] = {}
        self._rules: list[tuple[int, Rule]] = []
        self._interpreter: Interpreter | None = None
        self._with_rules = with_rules
        wanted = set(self._matcher.fields)
        self.batch = BATCH
        if with_rules:
            self._rules = [(index, file.rule(index)) for index in file.right]
            if any(is_stateful(rule.condition) for _, rule in self._rules):
                self._interpreter = Interpreter([r for _, r in self._rules], file.specification)
            else:
                wanted |= {name for _, rule in self._rules for name in fields_of(rule.condition)}
        self.reader = EventReader(file.specification, wanted)

    def step(self, read: EventColumns) -> dict[int, str]:
        """Lines to print, by position in the batch."""
        values, present = read.stacked(self._matcher.fields)
        codes = self._matcher.walk(read.message_type, values, present)
        if self._matcher.stateful:
            leaves, self._carried = self._stateful.run(codes, values, read.time, self._carried)
        else:
            leaves = ~codes
        out: dict[int, str] = {}
        matching = self._matching(read) if self._with_rules else []
        for at, (position, leaf) in enumerate(
            zip(read.positions.tolist(), leaves.tolist(), strict=True)
        ):
            text = self._texts.get(leaf)
            if text is None:
                text = json.dumps(_outcome(self._matcher.outcomes[leaf]))
                self._texts[leaf] = text
            if self._with_rules:
                text = f'{text[:-1]}, "rules": {json.dumps(matching[at])}}}'
            out[position] = text
        return out

    def _matching(self, read: EventColumns) -> list[list[int]]:
        if self._interpreter is not None:
            return [
                [self._rules[at][0] for at in self._interpreter.step(e.values, e.time_us).rules]
                for e in read.events
            ]
        matching: list[list[int]] = [[] for _ in read.events]
        for index, rule in self._rules:
            mask = matches_columns(rule.condition, read.columns, read.present)
            for at in np.flatnonzero(mask).tolist():
                matching[at].append(index)
        return matching


def _explain_event(file: _RuleFile, text: str, after: str) -> Json:
    specification = file.specification
    reader = EventReader(specification)
    event = reader.read_line(text)
    rules = [(index, file.rule(index)) for index in file.right]
    compiled = file.compile(_lacks(file, event, rules), "specification")
    interpreter = Interpreter([rule for _, rule in rules], specification)
    if after:
        with _open(after) as stream:
            for number, line in _lines(stream):
                try:
                    before = reader.read_line(line) if isinstance(line, str) else _raise(line)
                except EventError as error:
                    typer.echo(f"{after}, line {number}: {error}", err=True)
                    raise typer.Exit(2) from None
                interpreter.step(before.values, before.time_us)
    now = reader.time_of(event)
    cells = {cell.name: interpreter.finds(cell.name, now) for cell in interpreter.cells}
    state = {counter: cells[counter.name] for counter in specification.counters}
    explainer = Explainer(compiled, specification)
    way = explainer.path(event.values, event.message_type, cells)
    shown = []
    for index, rule in rules:
        found = verdict(rule, event.values, specification, state, cells)
        shown.append({"rule": index, **_rule_place(file, index), **_verdict(found)})
    return {
        "event": {
            name: shown_value(name, raw, specification) for name, raw in event.values.items()
        },
        "path": _path(way),
        "leaf": way.leaf,
        **_outcome(way.outcome),
        "rules": shown,
    }


def _lacks(file: _RuleFile, event: Event, rules: Sequence[tuple[int, Rule]]) -> bool | None:
    """How to compile: as ``compile`` does, unless the event lacks a field of its own message."""
    if event.message_type is None:
        return None
    header = file.specification.header_of_type(event.message_type)
    names = {name for _, rule in rules for name in fields_of(rule.condition)}
    own = {field.qualified for field in header.fields} if header else set()
    return True if (names & own) - set(event.values) else None


def _explain_rule(file: _RuleFile, index: int) -> Json:
    if index not in set(file.right):
        raise typer.BadParameter(f"there is no rule {index}: {file.name} has {len(file.texts)}")
    compiled = file.compile(None, "specification")
    explainer = Explainer(compiled, file.specification)
    terms = explainer.rule(file.rule(index))
    return {
        "rule": index,
        **_rule_place(file, index),
        "terms": [_term(term, compiled) for term in terms],
    }


def _term(term: Alternative, compiled: CompiledFilter) -> Json:
    return {
        "term": term.text,
        "acts": term.acts,
        "updates": list(term.updates),
        "rows": [asdict(row) for row in term.rows],
        "leaves": [{"state": state, **_outcome(compiled.outcomes[state])} for state in term.leaves],
    }


def _rule_place(file: _RuleFile, index: int) -> Json:
    return {"line": file.lines[index], "text": " ".join(file.texts[index].split())}


def _verdict(found: Verdict) -> Json:
    return {
        "matches": found.matches,
        "truth": found.truth,
        "predicates": [asdict(decision) for decision in found.predicates],
    }


def _path(way: Way) -> list[Json]:
    steps = []
    for step in way.steps:
        row = step.row
        found = {"field": step.field, "state": step.state, "value": step.value, "shown": step.shown}
        taken = {"row": row.text, "kind": row.kind, "next": row.next} if row else None
        steps.append({**found, **(taken or {"row": None, "kind": None, "next": step.state})})
    return steps


def _event_text(found: Json) -> str:
    lines = ["event"]
    lines += [f"  {name} = {value}" for name, value in found["event"].items()]
    lines += ["", "way through the tables"]
    for step in found["path"]:
        where = f"  {step['field']}: state {step['state']}, value {step['shown']}"
        if step["row"] is None:
            lines.append(f"{where}: no row, passes")
        else:
            lines.append(f"{where}: {step['row']} -> {step['next']}")
    lines.append(f"  leaf {found['leaf']}: {_does(found)}")
    matching = [rule for rule in found["rules"] if rule["matches"]]
    others = [rule for rule in found["rules"] if not rule["matches"]]
    lines += ["", f"rules that match: {len(matching)}"]
    for rule in matching:
        lines += _rule_lines(rule)
    lines += ["", f"rules that do not: {len(others)}"]
    for rule in others[:_SHOWN_RULES]:
        lines += _rule_lines(rule)
    if len(others) > _SHOWN_RULES:
        lines.append(f"  and {len(others) - _SHOWN_RULES:,} more: see --json")
    return "\n".join(lines)


def _rule_lines(rule: Json) -> list[str]:
    lines = [f"  rule {rule['rule']}, line {rule['line']}: {rule['text']}"]
    for predicate in rule["predicates"]:
        star = "*" if predicate["decided"] else " "
        lines.append(f"    {star} {predicate['truth']:<7}  {predicate['text']}")
    return lines


def _rule_text(found: Json) -> str:
    lines = [f"rule {found['rule']}, line {found['line']}: {found['text']}"]
    if not found["terms"]:
        lines.append("  nothing can satisfy it")
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


def _does(found: Json) -> str:
    ports = list(map(str, found["ports"]))
    if len(ports) > _SHOWN_PORTS:
        ports[_SHOWN_PORTS:] = [f"and {len(ports) - _SHOWN_PORTS} more"]
    parts = [f"fwd({', '.join(ports)})"] if ports else []
    parts += [f"{name}({', '.join(map(str, args))})" for name, *args in found["actions"]]
    return "; ".join(parts) or "nobody"


def _outcome(outcome: Outcome) -> Json:
    """Ports and actions; updates are state, and no action to be seen."""
    return {
        "ports": [_plain(name) for name in outcome.receivers],
        "actions": [[call.name, *map(_plain, call.args)] for call in outcome.calls],
    }


def _plain(text: str) -> int | str:
    return int(text) if _NUMBER.fullmatch(text) else text


def _read_rules(format_: str, path: Path) -> _RuleFile:
    specification, is_file = _specification(format_)
    name, text = (
        ("<stdin>", sys.stdin.buffer.read()) if str(path) == "-" else (str(path), path.read_bytes())
    )
    found = split_rules(text.decode("utf-8-sig", "replace").replace("\r\n", "\n"))
    texts, lines = [rule for rule, _ in found], [line for _, line in found]
    typed = {header.message_type is not None for header in specification.headers}
    # Messages of a shipped format come without their framing; a file may mean any headers.
    framing = is_file and len(typed) > 1
    faults = _faults(texts, specification, framing)
    in_lines = [(index, in_file(error, lines[index])) for index, error in faults]
    return _RuleFile(name, specification, framing, texts, lines, in_lines)


def _faults(
    texts: Sequence[str], specification: Specification, framing: bool
) -> list[tuple[int, SubscriptionError]]:
    faults: dict[int, SubscriptionError] = {}
    others: list[tuple[int, Rule]] = []
    if framing:
        for index, text in enumerate(texts):
            try:
                others.append((index, parse_rule(text, specification, framing=True)))
            except SubscriptionError as error:
                faults[index] = error
    else:
        read: RuleTable = read_table(texts, specification)
        faults.update(read.errors)
        others = list(read.rules)
        updating = {
            number
            for number, actions in enumerate(read.outcomes)
            if any(isinstance(action, Update) for action in actions)
        }
        if updating:
            held = {index for index, _ in others}
            others += [
                (index, parse_rule(texts[index], specification))
                for index, number in enumerate(read.outcome.tolist())
                if number in updating and index not in held
            ]
    functions: dict[str, Any] = {}
    for index, rule in sorted(others, key=lambda pair: pair[0]):
        try:
            updates = actions_of(rule.actions)[2]
            for term in split(rule.condition, specification, updates, functions, True).terms:
                lane_terms(term.term, specification)
            add_updates(functions, updates)
        except SubscriptionError as error:
            faults[index] = error
    return sorted(faults.items())


def _rules_to_use(format_: str, path: Path, skip_faulty: bool) -> _RuleFile:
    file = _read_rules(format_, path)
    if file.faults:
        _tell_faults(file, as_json=False, err=True)
        if not skip_faulty:
            raise typer.Exit(1)
    return file


def _tell_faults(file: _RuleFile, as_json: bool, err: bool = False) -> None:
    for index, error in file.faults:
        place = {"line": error.fields.get("line", 1), "column": error.fields.get("column", 1)}
        head, *rest = error.message.split("\n")
        head = re.sub(r"^line \d+, column \d+: ", "", head)
        if as_json:
            suggestion = error.fields.get("suggestion")
            told = {"rule": index, **place, "code": error.code, "message": head}
            typer.echo(json.dumps({"file": file.name, **told, "suggestion": suggestion}))
            continue
        typer.echo(f"{file.name}:{place['line']}:{place['column']}: {error.code}: {head}", err=err)
        for line in rest:
            typer.echo(line, err=err)


def _specification(format_: str) -> tuple[Specification, bool]:
    """A specification by path or shipped name, and whether it is of a file."""
    path = Path(format_)
    if re.fullmatch(r"[a-z][a-z0-9_]*", format_) and not path.is_file():
        try:
            return parse_specification(
                schemas.read_text(f"messages/{format_}.spec"), format_
            ), False
        except FileNotFoundError:
            raise typer.BadParameter(
                f"there is no file {format_!r}, and no format of that name ships: itch does"
            ) from None
    text = path.read_bytes().decode("utf-8-sig", "replace")
    return parse_specification(text, path.name.removesuffix(".spec")), True


def _order(text: str, specification: Specification) -> str | tuple[str, ...]:
    if text in ("specification", "auto"):
        return text
    return tuple(specification.field(name.strip()).qualified for name in text.split(","))


def _ports(pairs: Iterable[str]) -> dict[str, int]:
    ports = {}
    for pair in pairs:
        host, _, number = pair.partition("=")
        if not host or not number.isascii() or not number.isdigit():
            raise typer.BadParameter(f"--port is HOST=NUMBER, not {pair!r}")
        ports[host] = int(number)
    return ports


def _options(
    specification: Specification, file: _RuleFile, compiled: CompiledFilter
) -> Options | None:
    """A program with the actions that the rules name, arguments of 32 bits each."""
    calls = {call for outcome in compiled.outcomes.values() for call in outcome.calls}
    widths = {call.name: (32,) * len(call.args) for call in sorted(calls)}
    default = (specification.default_action or "").partition("(")[0].strip()
    named = [NamedAction(name, bits) for name, bits in sorted(widths.items()) if name != default]
    return Options(actions=tuple(named)) if named else None


def _p4_lines(made: ProgramEntries) -> Iterator[Json]:
    """Multicast groups first, as entries name them."""
    for group, ports in made.groups:
        yield {"group": group, "ports": list(ports)}
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


def _write(path: Path, parts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(parts)


def _open(source: str) -> Any:
    return nullcontext(sys.stdin.buffer) if source == "-" else Path(source).open("rb")


def _lines(stream: BinaryIO) -> Iterator[tuple[int, str | EventError]]:
    """The lines of a file with their numbers, or the error in their place; blank ones left out."""
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE)
            yield number, EventError("TOO_LONG", f"the line has more than {MAX_LINE:,} bytes")
            continue
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not line.strip():
            continue
        try:
            yield number, line.decode()
        except UnicodeDecodeError:
            yield number, EventError("NOT_JSON", "the line is not UTF-8")


def _raise(error: EventError) -> Event:
    raise error
