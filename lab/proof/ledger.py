"""The ledger held against the topic: no record left out, none taken twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from stackcast.lab.proof.recorded import Recorded
from stackcast.lab.proof.verdict import DeliveryVerdict, Fault


class Offsets:
    """The offsets of a partition that have a record, as runs without a gap.

    runs: (from, until), ascending, disjoint. first: the first offset that the topic has, which runs
    may begin after; None if it has none.
    """

    def __init__(self, runs: Iterable[tuple[int, int]], first: int | None = None) -> None:
        pairs = np.array([*runs], dtype=np.int64).reshape(-1, 2)
        self._starts, self._untils = pairs[:, 0], pairs[:, 1]
        self._before = np.concatenate([[0], np.cumsum(self._untils - self._starts)])
        self.first = int(self._starts[0]) if first is None and len(pairs) else first

    def count(self, start: int, until: int) -> int:
        """Returns how many there are from ``start`` up to ``until``."""
        return max(0, self._below(until) - self._below(start))

    def _below(self, offset: int) -> int:
        run = int(np.searchsorted(self._starts, offset, "right")) - 1
        if run < 0:
            return 0
        inside = min(offset, int(self._untils[run])) - int(self._starts[run])
        return int(self._before[run]) + inside

    def following(self, offset: int) -> int | None:
        """Returns the first that is ``offset`` or later."""
        run = int(np.searchsorted(self._untils, offset, "right"))
        return max(offset, int(self._starts[run])) if run < len(self._starts) else None

    def count_from(self, offset: int) -> int:
        """Returns how many there are from ``offset`` on."""
        return int(self._before[-1]) - self._below(offset)


_NONE = Offsets(())


def check_ledger(
    verdict: DeliveryVerdict,
    recorded: Sequence[Recorded],
    topic: Mapping[int, Offsets],
    since: int = 0,
    from_start: bool = True,
) -> None:
    """Add to ``verdict`` what is wrong with the ledger, and the records that wait.

    topic: what it holds, by partition, from what batch ``since`` took on at least. from_start:
    whether the ledger's first batch must begin with the first record there is.
    """
    for before, after in itertools.pairwise(recorded):
        if after.batch.batch_id != before.batch.batch_id + 1 and after.batch.batch_id >= since:
            what = f"the preceding batch in the ledger is {before.batch.batch_id}"
            verdict.add(Fault("ledger", "", b"", None, after.batch.batch_id, what))
    ends: dict[int, int] = {}
    for one in recorded:
        held = 0
        for partition, (start, until) in sorted(one.batch.offsets.items()):
            mine = topic.get(partition, _NONE)
            inside = mine.count(start, until)
            held += inside
            end = ends.get(partition)
            faults = []
            if end is not None and start < end:
                faults.append(f"offsets {start} to {end - 1} are also in an earlier batch")
            if end is not None or from_start:
                skipped = mine.count(end or 0, start)
                if skipped:
                    at = mine.following(end or 0)
                    faults.append(f"{skipped} records starting at offset {at} are missing")
                elif end is not None and start > end and (mine.first is None or mine.first > end):
                    faults.append(f"the topic has no records from offset {end} to {start}")
            cut = end is None and not from_start and mine.first is not None and mine.first > start
            if start < until and (not inside or cut):
                faults.append(f"the topic no longer has records at offsets {start} to {until - 1}")
            ends[partition] = max(until, end or 0)
            if one.batch.batch_id < since:
                continue
            for fault in faults:
                what = f"partition {partition}: {fault}"
                verdict.add(Fault("ledger", "", b"", None, one.batch.batch_id, what))
        if one.packets is not None and one.packets != held and one.batch.batch_id >= since:
            what = f"the ledger has {one.packets} records, but the topic has {held}"
            verdict.add(Fault("ledger", "", b"", None, one.batch.batch_id, what))
    verdict.waiting = sum(mine.count_from(ends.get(p, 0)) for p, mine in topic.items())
