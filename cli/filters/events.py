"""Events against a file of rules: those that match, and why an event goes where it goes.

The tables are those that ``match`` runs: of events that may lack any field. `MatchingRules` does
without them: a file may have 100,000 rules, and parsing each takes a minute, so rules that are
plain conjunctions are tried as columns, and only the others are parsed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import typer

from stackcast.cli.filters.rule_files import RuleFile, lines_of, open_source
from stackcast.cli.filters.views import Json, evaluation_json, outcome_json, path_json, rule_place
from stackcast.udfs.errors import EventError, printable
from stackcast.udfs.filters.compiler.compile import actions_of
from stackcast.udfs.filters.compiler.outcomes import united
from stackcast.udfs.filters.explanation.events import Event, EventReader
from stackcast.udfs.filters.explanation.explain import Explainer, evaluate_rule, shown_value
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.meaning.evaluate import Subject
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE
from stackcast.udfs.filters.meaning.terms import TermBlock
from stackcast.udfs.filters.nodes import Action, Rule, Update
from stackcast.udfs.messages.specification import Specification


class MatchingRules:
    """The right rules of a file, as few of them parsed as will do.

    parsed: by index, rules that are no plain conjunctions or have to do with state.
    """

    def __init__(self, file: RuleFile) -> None:
        self._file = file
        self._right = np.array(file.right, np.int64)
        self._blocks: Sequence[TermBlock] = ()
        self._actions: list[tuple[int, Sequence[Action]]]
        if file.framing:
            self.parsed = {index: file.rule(index) for index in file.right}
            self._actions = [(index, rule.actions) for index, rule in self.parsed.items()]
            return
        read = read_table([file.texts[index] for index in file.right], file.specification)
        self._blocks = read.blocks
        numbers = zip(file.right, read.outcome.tolist(), strict=True)
        self._actions = [(index, read.outcomes[number]) for index, number in numbers]
        self.parsed = {file.right[at]: rule for at, rule in read.rules}
        updating = [
            number
            for number, actions in enumerate(read.outcomes)
            if any(isinstance(action, Update) for action in actions)
        ]
        for index in self._right[np.isin(read.outcome, updating)].tolist():
            self.parsed.setdefault(index, file.rule(index))

    def rule(self, index: int) -> Rule:
        """Returns the syntax tree of a rule."""
        found = self.parsed.get(index)
        return self._file.rule(index) if found is None else found

    def forwarding_to(self, host: str) -> list[int]:
        """Returns indexes of the rules that name a host, or a port, as their receiver."""
        return [index for index, actions in self._actions if host in actions_of(actions)[0]]

    def plain_matches(self, event: Event) -> set[int]:
        """Returns indexes of the plain conjunctions that are true on the event."""
        values = dict(event.values)
        if event.message_type is not None:
            values[MESSAGE_TYPE] = event.message_type
        found: set[int] = set()
        for block in self._blocks:
            if not all(name in values for name in block.names):
                continue
            true = np.ones(len(block), np.bool_)
            for name, low, high in zip(block.names, block.lows, block.highs, strict=True):
                value = np.uint64(values[name])
                true &= (low <= value) & (value <= high)
            found.update(self._right[block.rule[true]].tolist())
        return found


SHOWN_RULES = 20
_COUNTED = ("true", "false", "unknown", "decided")


def explain_event(file: RuleFile, text: str, after: str, others: int | None) -> Json:
    """Returns the event, its way through the tables, what happens there, and the rules.

    index: terms of the indexes that hold. at_leaf: what happens without them.

    text: a line as ``match`` takes it. after: file of events before it, or "". rules: all that
    match and the first ``others`` that do not (None: all), in the file's order;
    ``rules_left_out`` is how many more there are. Errors: EventError; typer.Exit, having told the
    error of an event before it.
    """
    specification = file.specification
    reader = EventReader(specification)
    event = reader.read_line(text)
    rules = MatchingRules(file)
    grouped = file.compile(True).grouped
    interpreter = Interpreter([rule for _, rule in sorted(rules.parsed.items())], specification)
    for before, _ in _events(reader, after) if after else ():
        interpreter.step(before.values, before.time_us)
    state, cells = _state(interpreter, specification, event, reader.time_of(event))
    plain = rules.plain_matches(event)
    shown, left = [], 0
    for index in file.right:
        tried = index in rules.parsed or index in plain
        if not tried and others is not None and others <= 0:
            left += 1
            continue
        found = evaluate_rule(rules.rule(index), event.values, specification, state, cells)
        if not found.matches and others is not None:
            if others <= 0:
                left += 1
                continue
            others -= 1
        shown.append({"rule": index, **rule_place(file, index), **evaluation_json(found)})
    explainer = Explainer(grouped, specification)
    way = explainer.path(event.values, event.message_type, cells)
    held = explainer.holding(event.values, event.message_type, cells)
    outcome = way.outcome
    for _, told in held:
        outcome = united(outcome, told)
    return {
        "event": {
            name: shown_value(name, raw, specification) for name, raw in event.values.items()
        },
        "path": path_json(way),
        "leaf": way.leaf,
        "at_leaf": outcome_json(way.outcome),
        "index": [{"text": text, **outcome_json(told)} for text, told in held],
        **outcome_json(outcome),
        "rules": shown,
        "rules_left_out": left,
    }


def why_not(file: RuleFile, host: str, source: str) -> list[Json]:
    """Returns of each rule that forwards to a host on how many events it was tried and matched.

    predicates: of each, on how many of the others it was true, false and unknown, and on how many
    it decided. source: file of events, which pass one after the other. Errors: typer.Exit, having
    told the error of an event.
    """
    specification = file.specification
    rules = MatchingRules(file)
    interpreter = Interpreter([rule for _, rule in sorted(rules.parsed.items())], specification)
    asked = {index: rules.rule(index) for index in rules.forwarding_to(host)}
    tried = 0
    matched: Counter[int] = Counter()
    truths: dict[int, list[Counter[str]]] = {}
    texts: dict[int, list[str]] = {}
    for event, now in _events(EventReader(specification), source):
        tried += 1
        state, cells = _state(interpreter, specification, event, now)
        for index, rule in asked.items():
            found = evaluate_rule(rule, event.values, specification, state, cells)
            texts.setdefault(index, [each.text for each in found.predicates])
            counts = truths.setdefault(index, [Counter() for _ in found.predicates])
            if found.matches:
                matched[index] += 1
                continue
            for count, each in zip(counts, found.predicates, strict=True):
                count[each.truth] += 1
                count["decided"] += each.decided
        interpreter.step(event.values, event.time_us)
    return [
        {
            "rule": index,
            **rule_place(file, index),
            "tried": tried,
            "matched": matched[index],
            "predicates": [
                {"text": text, **{name: count[name] for name in _COUNTED}}
                for text, count in zip(texts.get(index, ()), truths.get(index, ()), strict=True)
            ],
        }
        for index in asked
    ]


def _state(
    interpreter: Interpreter, specification: Specification, event: Event, now: int
) -> tuple[dict[Subject, int | None], dict[str, int | None]]:
    """Returns the values that an event finds in variables, and in all cells by name."""
    cells = {
        cell.name: interpreter.finds(cell.name, now, event.values) for cell in interpreter.cells
    }
    return {counter: cells[counter.name] for counter in specification.counters}, cells


def _events(reader: EventReader, source: str) -> Iterator[tuple[Event, int]]:
    """Yields the events of a file, each with its time in units of the format's clock."""
    with open_source(source) as stream:
        for number, line in lines_of(stream):
            try:
                if not isinstance(line, str):
                    raise line
                event = reader.read_line(line)
                now = reader.time_of(event)
            except EventError as error:
                typer.echo(printable(f"{source}, line {number}: {error}"), err=True)
                raise typer.Exit(2) from None
            yield event, now
