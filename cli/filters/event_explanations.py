"""Why an event goes where it goes: its way through the tables, and what the rules say of it.

The tables are those that ``match`` runs: of events that may lack any field.
"""

from __future__ import annotations

import typer

from cli.filters.matching_rules import MatchingRules
from cli.filters.rule_files import RuleFile, lines_of, open_source
from cli.filters.views import Json, outcome_json, path_json, rule_place, verdict_json
from udfs.errors import EventError
from udfs.filters.explanation.events import EventReader
from udfs.filters.explanation.explain import Explainer, shown_value, verdict
from udfs.filters.meaning.evaluate import Subject
from udfs.filters.meaning.interpreter import Interpreter

SHOWN_RULES = 20


def explain_event(file: RuleFile, text: str, after: str, others: int | None) -> Json:
    """The event, its way, what happens, and the rules.

    text: a line as ``match`` takes it. after: file of events before it, or "". rules: all that
    match and the first ``others`` that do not (None: all), in the file's order;
    ``rules_left_out`` is how many more there are. Errors: EventError; typer.Exit, having told the
    error of an event before it.
    """
    specification = file.specification
    reader = EventReader(specification)
    event = reader.read_line(text)
    rules = MatchingRules(file)
    compiled = file.compile(True, "specification")
    interpreter = Interpreter([rule for _, rule in sorted(rules.parsed.items())], specification)
    if after:
        _step(interpreter, reader, after)
    now = reader.time_of(event)
    cells = {cell.name: interpreter.finds(cell.name, now) for cell in interpreter.cells}
    state: dict[Subject, int | None] = {
        counter: cells[counter.name] for counter in specification.counters
    }
    plain = rules.plain_matches(event)
    shown, left = [], 0
    for index in file.right:
        tried = index in rules.parsed or index in plain
        if not tried and others is not None and others <= 0:
            left += 1
            continue
        found = verdict(rules.rule(index), event.values, specification, state, cells)
        if not found.matches and others is not None:
            if others <= 0:
                left += 1
                continue
            others -= 1
        shown.append({"rule": index, **rule_place(file, index), **verdict_json(found)})
    way = Explainer(compiled, specification).path(event.values, event.message_type, cells)
    return {
        "event": {
            name: shown_value(name, raw, specification) for name, raw in event.values.items()
        },
        "path": path_json(way),
        "leaf": way.leaf,
        **outcome_json(way.outcome),
        "rules": shown,
        "rules_left_out": left,
    }


def _step(interpreter: Interpreter, reader: EventReader, source: str) -> None:
    """Let the events of a file pass."""
    with open_source(source) as stream:
        for number, line in lines_of(stream):
            try:
                if not isinstance(line, str):
                    raise line
                before = reader.read_line(line)
            except EventError as error:
                typer.echo(f"{source}, line {number}: {error}", err=True)
                raise typer.Exit(2) from None
            interpreter.step(before.values, before.time_us)
