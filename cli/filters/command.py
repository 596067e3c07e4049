"""``stackcast filters``: check rules, compile them, match events, and say why."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Annotated

import numpy as np
import typer

from stackcast.cli.filters.events import SHOWN_RULES, MatchingRules, explain_event, why_not
from stackcast.cli.filters.rule_files import (
    RuleFile,
    lines_of,
    open_source,
    read_rules,
    rules_to_use,
    tell_faults,
    tell_warnings,
    warnings_in,
)
from stackcast.cli.filters.views import (
    Json,
    cell_json,
    event_text,
    groups_text,
    index_term_json,
    leaf_json,
    outcome_json,
    p4_json,
    rule_place,
    rule_text,
    term_json,
    why_not_text,
)
from stackcast.udfs.errors import EventError
from stackcast.udfs.filters.compiler.outcomes import united
from stackcast.udfs.filters.compiler.tables import KINDS
from stackcast.udfs.filters.compiler.term_table import TermTable
from stackcast.udfs.filters.explanation.dot import dot
from stackcast.udfs.filters.explanation.events import MAX_TEXTS, EventColumns, EventReader
from stackcast.udfs.filters.explanation.explain import Explainer
from stackcast.udfs.filters.matching.cells import Carried, StatefulMatcher
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.evaluate import fields_of, is_stateful, matches_columns
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.meaning.state import clock_of
from stackcast.udfs.filters.nodes import Call, Rule
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.fitting import Fitted, fit
from stackcast.udfs.network_match.groups import Groups
from stackcast.udfs.network_match.layout import NamedAction, ProgramOptions, program_layout
from stackcast.udfs.network_match.resources import render, report

app = typer.Typer(no_args_is_help=True, help="Check, compile, test and explain subscriptions.")

BATCH = 16_384
BATCH_WITH_RULES = 256
"""Fewer, as each rule is tried on each event."""
MOMENT = 0.2
"""Seconds that a batch waits for more events, once it has one."""

Lines = Iterator[tuple[int, str | EventError]]

FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        help="File of a specification, file of attributes (.jsonl), or the shipped format itch.",
    ),
]
RulesOption = Annotated[Path, typer.Option("--rules", help="File of rules; - is standard input.")]
SkipOption = Annotated[
    bool, typer.Option("--skip-faulty", help="Ignore faulty rules, and use the others.")
]


@app.command()
def check(
    format_: FormatOption,
    rules: RulesOption,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each fault.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Return exit code 1 for warnings, too.")
    ] = False,
) -> None:
    """Print faulty rules with the place of each fault, and how to correct it.

    Valid rules that are probably not meant get a warning. The exit code is 1 if a rule is faulty.
    """
    file = read_rules(format_, rules)
    tell_faults(file, as_json)
    found = warnings_in(file)
    tell_warnings(file, found, as_json)
    right = len(file.texts) - len(file.faults)
    if as_json:
        counts = {"rules": len(file.texts), "faulty": len(file.faults), "warnings": len(found)}
        typer.echo(json.dumps(counts))
    elif not file.texts:
        typer.echo(f"no rules in {file.name}")
    else:
        more = f"; warnings: {len(found):,}" if found else ""
        typer.echo(f"{file.name}: {right:,} of {len(file.texts):,} rules are right{more}")
    if file.faults or (strict and found):
        raise typer.Exit(1)


@app.command("compile")
def compile_command(
    format_: FormatOption,
    rules: RulesOption,
    *,
    dot_file: Annotated[
        Path | None, typer.Option("--dot", help="Output file for the diagram, for Graphviz.")
    ] = None,
    report_: Annotated[
        bool, typer.Option("--report", help="Print the resources on standard error.")
    ] = False,
    order: Annotated[
        str,
        typer.Option(
            "--order",
            help="Order of tables: specification, auto, or a comma-separated list of fields.",
        ),
    ] = "specification",
    p4: Annotated[
        Path | None,
        typer.Option("--p4", help="Output file for the entries of the generated P4 program."),
    ] = None,
    port: Annotated[
        list[str] | None, typer.Option("--port", help="Port to a host for --p4, as HOST=NUMBER.")
    ] = None,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial",
            help="Print rows for events without some fields, too, as match and explain use them.",
        ),
    ] = False,
    skip_faulty: SkipOption = False,
) -> None:
    """Print the compiled tables as JSON lines.

    First the entries, {"field", "state", "low", "high", "kind", "next"}, low and high as raw
    integers, both included; then the leaves, {"state", "ports", "actions"}, and "updates", each
    [cell, function, field], if there are any; then the cells of state, {"cell", "function",
    "field", "window_us"}, and for changes the raw "band". Tables are printed in their order; the
    initial state is that of the first line. Last come the terms of rules that would multiply in
    tables, {"predicates", "ports", "actions"}: an event goes to the leaf that it reaches and to
    each term whose predicates are all true. --dot, --p4 and --report do not change this output.

    Without --partial the rows are those of a switch and of the stream, where the only header of a
    format, or a message of a type, is always complete. They do not apply to events without some
    of its fields.
    """
    file = rules_to_use(format_, rules, skip_faulty)
    specification = file.specification
    ordered = _order(order, specification)
    found = file.compile(partial or None, ordered)
    compiled = found.grouped.diagram
    ports = _ports(port or [])
    # All that can fail comes before the first line.
    switch = _on_switch(file, ports, p4) if p4 else None
    if dot_file:
        _write(dot_file, [dot(compiled)])
    for at, state, low, high, kind, following in compiled.entries.tolist():
        line = {"field": compiled.fields[at], "state": state, "low": low, "high": high}
        typer.echo(json.dumps({**line, "kind": KINDS[kind], "next": following}))
    for state in sorted(compiled.outcomes):
        typer.echo(json.dumps(leaf_json(state, compiled.outcomes[state])))
    for cell in found.grouped.cells:
        typer.echo(json.dumps(cell_json(cell)))
    for index in found.grouped.indexes:
        for predicates, outcome in index.described():
            typer.echo(json.dumps(index_term_json(predicates, outcome)))
    if report_:
        typer.echo(groups_text(found), err=True)
        held = switch.groups if switch else Groups(compiled)
        shown = report(
            held.diagram, specification, vectors=held.vectors, conjunctions=held.conjunctions
        )
        typer.echo(render(shown), err=True, nl=False)
    if switch and switch.refused:
        raise typer.Exit(1)


@app.command("match")
def match_command(
    format_: FormatOption,
    rules: RulesOption,
    events: Annotated[
        str, typer.Option("--events", help="File of events as JSON lines; - is standard input.")
    ],
    *,
    with_rules: Annotated[
        bool,
        typer.Option("--with-rules", help="Print the indexes, from 0, of matching rules, too."),
    ] = False,
    skip_faulty: SkipOption = False,
) -> None:
    """Print ports and actions of each event from the compiled tables, as JSON lines.

    An event is a line {"add_order.price": 500000, "stock": "GOOGL"}: raw values, texts without
    padding, nothing scaled, short names where they are unique. Fields left out, or null, are
    absent. "time_us" is the event's time where no field is a @clock. Rules with state see the
    events as one source, in the file's order. An event that cannot be read becomes {"error",
    "code", "line"}, has no effect on others, and the exit code is 1 then. Empty lines are passed
    over.
    """
    file = rules_to_use(format_, rules, skip_faulty)
    run = _Run(file, with_rules)
    with open_source(events) as stream:
        lines = lines_of(stream)
        failed = False
        while batch := _batch(lines, run.batch):
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
    event: Annotated[str, typer.Option("--event", help="Event as JSON object, as for match.")] = "",
    after: Annotated[
        str, typer.Option("--after", help="File of earlier events, for rules with state.")
    ] = "",
    rule: Annotated[
        int | None, typer.Option("--rule", help="Index of a rule in the file, from 0.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Print all rules that do not match, not only 20.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    skip_faulty: SkipOption = False,
) -> None:
    """Explain how the tables match an event, or how a rule was compiled.

    For an event, the command prints state, value, matching row and next state in each table; then
    the rules that match and the first 20 of the others, with the predicates of each that were true,
    false or unknown. A star marks the decisive ones. The rows are those of match and of compile
    --partial. For a rule, it prints the normal form, and for each term the rows of compile that its
    events can take.
    """
    if bool(event) == (rule is not None):
        raise typer.BadParameter("give --event or --rule, and not both")
    file = rules_to_use(format_, rules, skip_faulty)
    if rule is None:
        found = explain_event(file, event, after, None if all_ else SHOWN_RULES)
        shown = event_text(found)
    else:
        found = _explain_rule(file, rule)
        shown = rule_text(found)
    typer.echo(json.dumps(found) if as_json else shown)


@app.command("why-not")
def why_not_command(
    format_: FormatOption,
    rules: RulesOption,
    events: Annotated[
        str, typer.Option("--events", help="File of events as JSON lines; - is standard input.")
    ],
    host: Annotated[str, typer.Option("--host", help="Host or port in fwd(...).")],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each rule.")
    ] = False,
    skip_faulty: SkipOption = False,
) -> None:
    """Explain why events did not go to a host.

    For each rule that forwards to the host, the command prints the numbers of events and of
    matches; and for each predicate, on how many of the other events it was false, unknown because
    the event does not have the field, or decisive, as marked by explain.
    """
    file = rules_to_use(format_, rules, skip_faulty)
    found = why_not(file, host, events)
    if as_json:
        for rule in found:
            typer.echo(json.dumps(rule))
    else:
        typer.echo(why_not_text(found) if found else f"no rule in {file.name} forwards to {host}")


def _batch(lines: Lines, most: int) -> list[tuple[int, str | EventError]]:
    """The next lines: ``most``, or those of a moment, so that slow events are told of soon."""
    batch: list[tuple[int, str | EventError]] = []
    until = math.inf
    for line in islice(lines, most):
        if not batch:
            until = monotonic() + MOMENT
        batch.append(line)
        if monotonic() > until:
            break
    return batch


class _Run:
    """Events through the tables of a file, batch by batch, with the state carried."""

    def __init__(self, file: RuleFile, with_rules: bool) -> None:
        grouped = file.compile(True).grouped
        clock = clock_of(file.specification)
        self._stateful = StatefulMatcher(grouped.diagram, clock.units)
        self._matcher: Matcher = self._stateful.matcher
        self._index, self._stateful_index = grouped.index, grouped.stateful
        self._indexes = grouped.indexes
        self._carried: Carried | None = None
        self._texts: dict[tuple[int | bytes, ...], str] = {}
        self._rules = MatchingRules(file) if with_rules else None
        self._parsed: list[tuple[int, Rule]] = []
        self._interpreter: Interpreter | None = None
        self.batch = BATCH
        wanted = {*self._matcher.fields, *(n for index in self._indexes for n in index.fields)}
        if self._rules is not None:
            self.batch = min(BATCH, BATCH_WITH_RULES)
            self._parsed = sorted(self._rules.parsed.items(), key=itemgetter(0))
            if any(is_stateful(rule.condition) for _, rule in self._parsed):
                self._interpreter = Interpreter([r for _, r in self._parsed], file.specification)
            else:
                wanted |= {name for _, rule in self._parsed for name in fields_of(rule.condition)}
        self.reader = EventReader(file.specification, wanted)

    def step(self, read: EventColumns) -> dict[int, str]:
        """Returns lines to print, by position in the batch."""
        values, present = read.stacked(self._matcher.fields)
        codes = self._matcher.walk(read.message_type, values, present)
        if self._matcher.stateful:
            leaves, self._carried = self._stateful.run(codes, values, read.time, self._carried)
        else:
            leaves = ~codes
        found = []
        if self._index is not None:
            found.append(self._index.match(read.message_type, *read.stacked(self._index.fields)))
        if self._stateful_index is not None:
            columns = read.stacked(self._stateful_index.fields)
            unread = np.zeros(len(leaves), np.bool_)
            told, self._carried = self._stateful_index.match(
                read.message_type, *columns, unread, read.time, self._carried
            )
            found.append(told)
        out: dict[int, str] = {}
        matching = self._matching(read, self._rules) if self._rules is not None else None
        for at, (position, leaf) in enumerate(
            zip(read.positions.tolist(), leaves.tolist(), strict=True)
        ):
            key = leaf, *(told[at].tobytes() for told in found)
            text = self._texts.get(key)
            if text is None:
                if len(self._texts) >= MAX_TEXTS:
                    self._texts.clear()
                outcome = self._matcher.outcomes[leaf]
                for index, told in zip(self._indexes, found, strict=True):
                    outcome = united(outcome, index.outcome(told[at]))
                text = self._texts[key] = json.dumps(outcome_json(outcome))
            if matching is not None:
                text = f'{text[:-1]}, "rules": {json.dumps(sorted(matching[at]))}}}'
            out[position] = text
        return out

    def _matching(self, read: EventColumns, rules: MatchingRules) -> list[set[int]]:
        matching = [rules.plain_matches(event) for event in read.events]
        if self._interpreter is not None:
            for found, event in zip(matching, read.events, strict=True):
                step = self._interpreter.step(event.values, event.time_us)
                found.update(self._parsed[at][0] for at in step.rules)
            return matching
        for index, rule in self._parsed:
            mask = matches_columns(rule.condition, read.columns, read.present)
            # Without any field, all is one answer for all events.
            for at in np.flatnonzero(np.broadcast_to(mask, len(matching))).tolist():
                matching[at].add(index)
        return matching


def _explain_rule(file: RuleFile, index: int) -> Json:
    if not 0 <= index < len(file.texts):
        range_ = f"rules 0 to {len(file.texts) - 1}" if file.texts else "no rules"
        raise typer.BadParameter(f"there is no rule {index}: {file.name} has {range_}")
    if index not in set(file.right):
        raise typer.BadParameter(f"rule {index} is faulty")
    found = file.compile(None)
    compiled, indexed = found.grouped.diagram, index in found.indexed
    terms = Explainer(found.grouped, file.specification).rule(file.rule(index))
    return {
        "rule": index,
        **rule_place(file, index),
        "in_index": indexed,
        "terms": [term_json(term, compiled, indexed) for term in terms],
    }


def _order(text: str, specification: Specification) -> str | tuple[str, ...]:
    if text in ("specification", "auto"):
        return text
    names = tuple(specification.field(name.strip()).qualified for name in text.split(","))
    for at, name in enumerate(names):
        if name in names[:at]:
            raise typer.BadParameter(f"--order names {name} twice")
    return names


def _ports(pairs: Iterable[str]) -> dict[str, int]:
    ports = {}
    for pair in pairs:
        host, _, number = pair.partition("=")
        if not host or not number.isascii() or not number.isdigit():
            raise typer.BadParameter(f"--port is HOST=NUMBER, not {pair!r}")
        ports[host] = int(number)
    return ports


def _on_switch(file: RuleFile, ports: Mapping[str, int], path: Path) -> Fitted:
    """Writes the entries of the generated program; says which rules find no room in it."""
    specification, table = file.specification, file.terms(None)
    options = _options(specification, table)
    program = program_layout(specification, options)
    fitted = fit(table, len(file.right), specification, program, ports)
    _write(path, (json.dumps(line) + "\n" for line in p4_json(fitted.entries)))
    for at, why in sorted(fitted.refused.items(), key=itemgetter(0)):
        place = f"{file.name}:{file.lines[file.right[at]]}"
        typer.echo(f"{place}: the switch has no room for this rule: {why.message}", err=True)
    return fitted


def _options(specification: Specification, table: TermTable) -> ProgramOptions | None:
    """A program with the actions that the rules name, arguments of 32 bits each."""
    calls = {token for tokens in table.outcomes for token in tokens if isinstance(token, Call)}
    widths = {call.name: (32,) * len(call.args) for call in sorted(calls)}
    default = (specification.default_action or "").partition("(")[0].strip()
    named = [NamedAction(name, bits) for name, bits in sorted(widths.items()) if name != default]
    return ProgramOptions(actions=tuple(named)) if named else None


def _write(path: Path, parts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(parts)
