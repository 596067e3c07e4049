"""The rules that recorded events match, and the newest of those events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.filters.compiler.compile import table_of_texts
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.row_matcher import index_of_rules
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.readers import Format, Read

#: Events that are matched at once times rules, at most.
_PAIRS = 1 << 22

Numbers = NDArray[np.int64]


class EventMatches:
    """Matches events of records by rules without state, all rules of each.

    form: of the records. texts: of rules, which are right. plain: bool, by rule; those with state
    depend on what came before, and match nothing here.
    """

    def __init__(self, form: Format, texts: Sequence[str]) -> None:
        specification = form.specification
        table = table_of_texts(texts, read_table(texts, specification), specification)
        self.plain: NDArray[np.bool_] = np.ones(len(texts), np.bool_)
        self.plain[[*table.kept, *table.updates]] = False
        self._kept = np.flatnonzero(self.plain)
        chosen = table if self.plain.all() else table.select(self._kept)
        self._index = index_of_rules(chosen, len(self._kept), specification)
        self._reader = form.reader(tuple(self._index.definitions), ())
        self._step = max(64, _PAIRS // max(1, len(texts)))

    def read(self, batch: Batch) -> tuple[Read, Numbers]:
        """Returns the messages of records, and the numbers of those that can be read."""
        read = self._reader.read(batch)
        return read, np.flatnonzero(read.messages.message_reason == 0)

    def pairs(self, read: Read, sound: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """Yields message and rule of each match, by their numbers; messages ascend."""
        messages = read.messages
        for at in range(0, len(sound), self._step):
            some = sound[at : at + self._step]
            present = None if messages.present is None else messages.present[:, some]
            event, rule = self._index.pairs(
                messages.message_type[some], messages.values[:, some], present
            )
            yield some[event], self._kept[rule]


class RecordedEvent(NamedTuple):
    """An event where it stands in its topic. time: of the record, microseconds since 1970, or None.
    rules: those that it matches, by their numbers."""

    partition: int
    offset: int
    message_index: int
    time: int | None
    message: bytes
    rules: tuple[int, ...]


class NewestEvents:
    """Keeps the newest events of each partition, ``most`` of them.

    wanted: the condition that an event fulfils; empty for any. matched: whether some rule matches
    it, too. Condition and rules with state match nothing.
    """

    def __init__(
        self, form: Format, rules: Sequence[str], wanted: str, most: int, matched: bool = False
    ) -> None:
        self._matched = matched
        self._chooses = bool(wanted)
        self.matches = EventMatches(form, [*rules, wanted] if wanted else rules)
        self._last = len(rules)
        self._most = most
        self._kept: dict[int, deque[RecordedEvent]] = {}
        self.looked_at = self.found = 0

    def add(self, batch: Batch) -> None:
        """Takes the events of these records, in order of their offsets."""
        read, sound = self.matches.read(batch)
        self.looked_at += len(sound)
        pairs = list(self.matches.pairs(read, sound))
        event = np.concatenate([e for e, _ in pairs]) if pairs else sound[:0]
        rule = np.concatenate([r for _, r in pairs]) if pairs else sound[:0]
        chosen = np.unique(event[rule == self._last]) if self._chooses else sound
        if self._matched:
            chosen = np.intersect1d(chosen, event[rule < self._last])
        self.found += len(chosen)
        messages = read.messages
        for number in chosen[-self._most :].tolist():
            first, last = np.searchsorted(event, [number, number + 1])
            record = int(messages.packet[number])
            begin = int(messages.start[number])
            own = RecordedEvent(
                int(batch.partition[record]),
                int(batch.offset[record]),
                int(messages.index[number]),
                None if batch.time is None else int(batch.time[record]),
                read.content[begin : begin + int(messages.length[number])].tobytes(),
                tuple(n for n in sorted(rule[first:last].tolist()) if n < self._last),
            )
            self._kept.setdefault(own.partition, deque(maxlen=self._most)).append(own)

    def newest(self) -> list[RecordedEvent]:
        """Returns the newest first, by the records' times, ``most`` of them."""
        every = [event for kept in self._kept.values() for event in kept]
        every.sort(key=lambda e: (e.time or 0, e.offset, e.message_index), reverse=True)
        return every[: self._most]
