"""What one rule would match among recorded events, and who gets those by the rules there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from udfs.filters.compiler.compile import table_of_texts
from udfs.filters.language.shapes import read_table
from udfs.filters.row_matcher import index_of_rules
from udfs.messages.buffers import Batch
from udfs.messages.readers import Format

#: Events that are matched at once times rules, at most.
_PAIRS = 1 << 22


class RulePreview:
    """Counts, of the events of records, those that a draft of a rule matches.

    form: of the records. draft, others: texts of rules, which are right. receivers: of each of the
    others. Rules with state depend on what came before: ``counted`` says whether the draft can be
    judged at all, and ``left_out`` how many of the others are not.

    events, matched: how many there were. also: by host, how many of those matched it gets by the
    other rules.
    """

    def __init__(
        self,
        form: Format,
        draft: str,
        others: Sequence[str] = (),
        receivers: Sequence[Sequence[str]] = (),
    ) -> None:
        texts, specification = [draft, *others], form.specification
        table = table_of_texts(texts, read_table(texts, specification), specification)
        plain = np.ones(len(texts), np.bool_)
        plain[[*table.kept, *table.updates]] = False
        self.counted = bool(plain[0])
        self.left_out = int(np.count_nonzero(~plain[1:]))
        kept = np.flatnonzero(plain)
        self._receivers = [() if at == 0 else tuple(receivers[at - 1]) for at in kept.tolist()]
        chosen = table if plain.all() else table.select(kept)
        self._index = index_of_rules(chosen, len(kept), specification)
        self._reader = form.reader(tuple(self._index.definitions), ())
        self._step = max(64, _PAIRS // len(texts))
        self.events = self.matched = 0
        self.also: dict[str, int] = {}

    def add(self, batch: Batch) -> None:
        """Counts the events of these records; those that cannot be read are none."""
        messages = self._reader.read(batch).messages
        sound = np.flatnonzero(messages.message_reason == 0)
        self.events += len(sound)
        if not self.counted:
            return
        for at in range(0, len(sound), self._step):
            some = sound[at : at + self._step]
            present = None if messages.present is None else messages.present[:, some]
            self._count(
                *self._index.pairs(messages.message_type[some], messages.values[:, some], present)
            )

    def _count(self, event: NDArray[np.int64], rule: NDArray[np.int64]) -> None:
        drafted = np.unique(event[rule == 0])
        self.matched += len(drafted)
        shared = (rule > 0) & np.isin(event, drafted)
        event, rule = event[shared], rule[shared]
        got: dict[str, list[NDArray[np.int64]]] = {}
        for one in np.unique(rule).tolist():
            for host in self._receivers[one]:
                got.setdefault(host, []).append(event[rule == one])
        for host, events in got.items():
            self.also[host] = self.also.get(host, 0) + len(np.unique(np.concatenate(events)))
