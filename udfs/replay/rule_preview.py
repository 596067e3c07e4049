"""What one rule would match among recorded events, and who gets those by the rules there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.readers import Format
from stackcast.udfs.replay.event_matches import EventMatches


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
        self._matches = EventMatches(form, [draft, *others])
        plain = self._matches.plain
        self.counted = bool(plain[0])
        self.left_out = int(np.count_nonzero(~plain[1:]))
        self._receivers = [(), *map(tuple, receivers)]
        self.events = self.matched = 0
        self.also: dict[str, int] = {}

    def add(self, batch: Batch) -> None:
        """Counts the events of these records; those that cannot be read are none."""
        read, sound = self._matches.read(batch)
        self.events += len(sound)
        if self.counted:
            for event, rule in self._matches.pairs(read, sound):
                self._count(event, rule)

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
