"""Matching of events with the compiled tables of a file of rules."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from time import monotonic

import numpy as np

from stackcast.cli.filters.events import MatchingRules
from stackcast.cli.filters.rule_files import RuleFile, lines_of, open_source
from stackcast.cli.filters.views import outcome_json
from stackcast.udfs.errors import EventError
from stackcast.udfs.filters.compiler.outcomes import united
from stackcast.udfs.filters.explanation.events import MAX_TEXTS, EventColumns, EventReader
from stackcast.udfs.filters.matching.cells import Carried, StatefulMatcher
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.meaning.evaluate import fields_of, is_stateful, matches_columns
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.meaning.state import clock_of
from stackcast.udfs.filters.nodes import Rule

#: Largest number of events in a batch.
BATCH = 16_384
#: The same with --with-rules, which evaluates each rule on each event.
BATCH_WITH_RULES = 256
#: Longest wait in seconds for further events of a batch.
BATCH_SECONDS = 0.2

Lines = Iterator[tuple[int, str | EventError]]


def match_events(file: RuleFile, events: str, with_rules: bool) -> bool:
    """Print ports and actions of each event as JSON lines.

    Args:
        file: the rules.
        events: file of events; ``-`` for standard input.
        with_rules: also print the indexes of the rules that match.

    Returns:
        Whether all events could be read.
    """
    matcher = _EventMatcher(file, with_rules)
    failed = False
    with open_source(events) as stream:
        lines = lines_of(stream)
        while batch := _batch(lines, matcher.batch):
            read = matcher.reader.read([line for _, line in batch])
            texts = matcher.step(read)
            for row, error in read.faults:
                failed = True
                fault = {"error": error.message, "code": error.code, "line": batch[row][0]}
                texts[row] = json.dumps(fault)
            sys.stdout.write("".join(f"{texts[row]}\n" for row in range(len(batch))))
            sys.stdout.flush()
    return not failed


def _batch(lines: Lines, size: int) -> list[tuple[int, str | EventError]]:
    """Return up to ``size`` lines, or those that arrive within `BATCH_SECONDS`."""
    batch: list[tuple[int, str | EventError]] = []
    end = math.inf
    for line in islice(lines, size):
        if not batch:
            end = monotonic() + BATCH_SECONDS
        batch.append(line)
        if monotonic() > end:
            break
    return batch


class _EventMatcher:
    """Matches batches of events with the tables of a file, and keeps the state between batches."""

    def __init__(self, file: RuleFile, with_rules: bool) -> None:
        grouped = file.compile(True).grouped
        clock = clock_of(file.specification)
        self._stateful = StatefulMatcher(grouped.diagram, clock.units)
        self._matcher: Matcher = self._stateful.matcher
        self._index, self._stateful_index = grouped.index, grouped.stateful
        self._indexes = grouped.indexes
        self._state: Carried | None = None
        self._texts: dict[tuple[int | bytes, ...], str] = {}
        self._rules = MatchingRules(file) if with_rules else None
        self._parsed: list[tuple[int, Rule]] = []
        self._interpreter: Interpreter | None = None
        self.batch = BATCH
        fields = {*self._matcher.fields, *(n for index in self._indexes for n in index.fields)}
        if self._rules is not None:
            self.batch = min(BATCH, BATCH_WITH_RULES)
            self._parsed = sorted(self._rules.parsed.items(), key=itemgetter(0))
            if any(is_stateful(rule.condition) for _, rule in self._parsed):
                self._interpreter = Interpreter([r for _, r in self._parsed], file.specification)
            else:
                fields |= {name for _, rule in self._parsed for name in fields_of(rule.condition)}
        self.reader = EventReader(file.specification, fields)

    def step(self, read: EventColumns) -> dict[int, str]:
        """Return the lines to print, by position in the batch."""
        values, present = read.stacked(self._matcher.fields)
        codes = self._matcher.walk(read.message_type, values, present)
        if self._matcher.stateful:
            leaves, self._state = self._stateful.run(codes, values, read.time, self._state)
        else:
            leaves = ~codes
        matches = []
        if self._index is not None:
            matches.append(self._index.match(read.message_type, *read.stacked(self._index.fields)))
        if self._stateful_index is not None:
            columns = read.stacked(self._stateful_index.fields)
            unread = np.zeros(len(leaves), np.bool_)
            stateful_matches, self._state = self._stateful_index.match(
                read.message_type, *columns, unread, read.time, self._state
            )
            matches.append(stateful_matches)
        lines: dict[int, str] = {}
        matching = self._matching(read, self._rules) if self._rules is not None else None
        for row, (position, leaf) in enumerate(
            zip(read.positions.tolist(), leaves.tolist(), strict=True)
        ):
            key = leaf, *(match[row].tobytes() for match in matches)
            text = self._texts.get(key)
            if text is None:
                if len(self._texts) >= MAX_TEXTS:
                    self._texts.clear()
                outcome = self._matcher.outcomes[leaf]
                for index, match in zip(self._indexes, matches, strict=True):
                    outcome = united(outcome, index.outcome(match[row]))
                text = self._texts[key] = json.dumps(outcome_json(outcome))
            if matching is not None:
                text = f'{text[:-1]}, "rules": {json.dumps(sorted(matching[row]))}}}'
            lines[position] = text
        return lines

    def _matching(self, read: EventColumns, rules: MatchingRules) -> list[set[int]]:
        """Return the indexes of the rules that match each event."""
        matching = [rules.plain_matches(event) for event in read.events]
        if self._interpreter is not None:
            for rule_indexes, event in zip(matching, read.events, strict=True):
                step = self._interpreter.step(event.values, event.time_us)
                rule_indexes.update(self._parsed[number][0] for number in step.rules)
            return matching
        for index, rule in self._parsed:
            mask = matches_columns(rule.condition, read.columns, read.present)
            # A condition without fields has a single result for all events.
            for row in np.flatnonzero(np.broadcast_to(mask, len(matching))).tolist():
                matching[row].add(index)
        return matching
