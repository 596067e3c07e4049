"""Explanations of how the rules of a file match events.

The tables are those of ``match``, for events in which any field may be absent. `MatchingRules` does
not use them. Parsing the 100,000 rules that a file may have would take a minute, so it evaluates
plain conjunctions as columns, and parses only the other rules.
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
    """The valid rules of a file, of which as few as possible are parsed.

    Args:
        file: the rules.

    Attributes:
        parsed: rules that are not plain conjunctions, or that read or update state, by index.
    """

    def __init__(self, file: RuleFile) -> None:
        self._file = file
        self._valid = np.array(file.valid, np.int64)
        self._blocks: Sequence[TermBlock] = ()
        self._actions: list[tuple[int, Sequence[Action]]]
        if file.framing:
            self.parsed = {index: file.rule(index) for index in file.valid}
            self._actions = [(index, rule.actions) for index, rule in self.parsed.items()]
            return
        read = read_table([file.texts[index] for index in file.valid], file.specification)
        self._blocks = read.blocks
        numbers = zip(file.valid, read.outcome.tolist(), strict=True)
        self._actions = [(index, read.outcomes[number]) for index, number in numbers]
        self.parsed = {file.valid[index]: rule for index, rule in read.rules}
        updating = [
            number
            for number, actions in enumerate(read.outcomes)
            if any(isinstance(action, Update) for action in actions)
        ]
        for index in self._valid[np.isin(read.outcome, updating)].tolist():
            self.parsed.setdefault(index, file.rule(index))

    def rule(self, index: int) -> Rule:
        """Return the syntax tree of a rule."""
        rule = self.parsed.get(index)
        return self._file.rule(index) if rule is None else rule

    def forwarding_to(self, host: str) -> list[int]:
        """Return the indexes of the rules that forward to a host or port."""
        return [index for index, actions in self._actions if host in actions_of(actions)[0]]

    def plain_matches(self, event: Event) -> set[int]:
        """Return the indexes of the plain conjunctions that are true for an event."""
        values = dict(event.values)
        if event.message_type is not None:
            values[MESSAGE_TYPE] = event.message_type
        matching: set[int] = set()
        for block in self._blocks:
            if not all(name in values for name in block.names):
                continue
            true = np.ones(len(block), np.bool_)
            for name, low, high in zip(block.names, block.lows, block.highs, strict=True):
                value = np.uint64(values[name])
                true &= (low <= value) & (value <= high)
            matching.update(self._valid[block.rule[true]].tolist())
        return matching


#: Number of rules that do not match which an explanation contains, unless all are requested.
SHOWN_RULES = 20
_COUNTED = ("true", "false", "unknown", "decided")


def explain_event(file: RuleFile, text: str, after: str, most: int | None) -> Json:
    """Return an event, its path through the tables, its ports and actions, and the rules.

    The ``index`` of the result lists the terms of the indexes that are true, and ``at_leaf`` the
    ports and actions without them. ``rules`` are all rules that match and the first ones that do
    not, in the order of the file; ``rules_left_out`` is the number of the others.

    Args:
        file: the rules.
        text: the event, a line as for ``match``.
        after: file of earlier events; empty if there are none.
        most: largest number of rules that do not match; None for all.

    Raises:
        EventError: the event cannot be read.
        typer.Exit: an earlier event cannot be read, which standard error reports.
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
    shown, left_out = [], 0
    for index in file.valid:
        may_match = index in rules.parsed or index in plain
        if not may_match and most is not None and most <= 0:
            left_out += 1
            continue
        result = evaluate_rule(rules.rule(index), event.values, specification, state, cells)
        if not result.matches and most is not None:
            if most <= 0:
                left_out += 1
                continue
            most -= 1
        shown.append({"rule": index, **rule_place(file, index), **evaluation_json(result)})
    explainer = Explainer(grouped, specification)
    path = explainer.path(event.values, event.message_type, cells)
    true_terms = explainer.holding(event.values, event.message_type, cells)
    outcome = path.outcome
    for _, term_outcome in true_terms:
        outcome = united(outcome, term_outcome)
    return {
        "event": {
            name: shown_value(name, raw, specification) for name, raw in event.values.items()
        },
        "path": path_json(path),
        "leaf": path.leaf,
        "at_leaf": outcome_json(path.outcome),
        "index": [{"text": text, **outcome_json(part)} for text, part in true_terms],
        **outcome_json(outcome),
        "rules": shown,
        "rules_left_out": left_out,
    }


def why_not(file: RuleFile, host: str, source: str) -> list[Json]:
    """Return how often each rule that forwards to a host matched, and how its predicates failed.

    The counts of a predicate are the numbers of other events for which it was true, false, unknown
    and decisive.

    Args:
        file: the rules.
        host: host or port.
        source: file of events, in order.

    Raises:
        typer.Exit: an event cannot be read, which standard error reports.
    """
    specification = file.specification
    rules = MatchingRules(file)
    interpreter = Interpreter([rule for _, rule in sorted(rules.parsed.items())], specification)
    candidates = {index: rules.rule(index) for index in rules.forwarding_to(host)}
    tried = 0
    matched: Counter[int] = Counter()
    truths: dict[int, list[Counter[str]]] = {}
    texts: dict[int, list[str]] = {}
    for event, time in _events(EventReader(specification), source):
        tried += 1
        state, cells = _state(interpreter, specification, event, time)
        for index, rule in candidates.items():
            result = evaluate_rule(rule, event.values, specification, state, cells)
            texts.setdefault(index, [predicate.text for predicate in result.predicates])
            counts = truths.setdefault(index, [Counter() for _ in result.predicates])
            if result.matches:
                matched[index] += 1
                continue
            for count, predicate in zip(counts, result.predicates, strict=True):
                count[predicate.truth] += 1
                count["decided"] += predicate.decided
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
        for index in candidates
    ]


def _state(
    interpreter: Interpreter, specification: Specification, event: Event, time: int
) -> tuple[dict[Subject, int | None], dict[str, int | None]]:
    """Return the values of variables when an event arrives, and of all cells by name."""
    cells = {
        cell.name: interpreter.finds(cell.name, time, event.values) for cell in interpreter.cells
    }
    return {counter: cells[counter.name] for counter in specification.counters}, cells


def _events(reader: EventReader, source: str) -> Iterator[tuple[Event, int]]:
    """Yield the events of a file, each with its time in units of the format's clock."""
    with open_source(source) as stream:
        for number, line in lines_of(stream):
            try:
                if not isinstance(line, str):
                    raise line
                event = reader.read_line(line)
                time = reader.time_of(event)
            except EventError as error:
                typer.echo(printable(f"{source}, line {number}: {error}"), err=True)
                raise typer.Exit(2) from None
            yield event, time
