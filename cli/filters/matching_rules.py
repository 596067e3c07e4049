"""Which rules of a file match an event, without the tables.

A file may have 100,000 rules, and parsing each takes a minute. So rules that are plain conjunctions
are tried as columns, and only the others are parsed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cli.filters.rule_files import RuleFile
from udfs.filters.explanation.events import Event
from udfs.filters.language.shapes import read_table
from udfs.filters.meaning.normal_form import MESSAGE_TYPE
from udfs.filters.meaning.terms import TermBlock
from udfs.filters.nodes import Rule, Update


class MatchingRules:
    """The right rules of a file, as few of them parsed as will do.

    parsed: by index, rules that are no plain conjunctions or have to do with state.
    """

    def __init__(self, file: RuleFile) -> None:
        self._file = file
        self._right = np.array(file.right, np.int64)
        self._blocks: Sequence[TermBlock] = ()
        if file.framing:
            self.parsed = {index: file.rule(index) for index in file.right}
            return
        read = read_table([file.texts[index] for index in file.right], file.specification)
        self._blocks = read.blocks
        self.parsed = {file.right[at]: rule for at, rule in read.rules}
        updating = [
            number
            for number, actions in enumerate(read.outcomes)
            if any(isinstance(action, Update) for action in actions)
        ]
        for index in self._right[np.isin(read.outcome, updating)].tolist():
            self.parsed.setdefault(index, file.rule(index))

    def rule(self, index: int) -> Rule:
        """The syntax tree of a rule."""
        found = self.parsed.get(index)
        return self._file.rule(index) if found is None else found

    def plain_matches(self, event: Event) -> set[int]:
        """Indexes of the plain conjunctions that are true on the event."""
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
