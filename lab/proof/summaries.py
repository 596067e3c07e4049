"""The summaries that hosts were sent, held against what they wrote down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stackcast.lab.proof.receipts import datagrams_of
from stackcast.udfs.messages.reference import HEADER
from stackcast.udfs.messages.sequence import OFFSET_SHIFT
from stackcast.udfs.messages.summaries import Summary, digest, is_summary, unpack


@dataclass
class SummaryTally:
    """Counts of summaries over all hosts. wrong: that say otherwise than what the host has of their
    range. short: hosts and sessions whose summaries do not reach from first offset to last."""

    summaries: int = 0
    wrong: int = 0
    short: int = 0

    @property
    def exact(self) -> bool:
        """Every host was told what it has, and of everything."""
        return bool(self.summaries) and not self.wrong and not self.short


def hold_summaries(folder: Path, hosts: set[str], ends: Mapping[bytes, int]) -> SummaryTally:
    """Holds the summaries in ``folder/receipts`` against the datagrams beside them.

    hosts: those that are owed summaries. ends: by session, the offset behind its last record; the
    first one has 0.
    """
    tally = SummaryTally()
    for host in sorted(hosts):
        counts: dict[bytes, dict[int, int]] = defaultdict(dict)
        told: dict[bytes, list[Summary]] = defaultdict(list)
        for datagram in datagrams_of(Path(folder) / "receipts" / f"{host}.mold"):
            session, sequence, count = HEADER.unpack_from(datagram)
            if is_summary(datagram):
                told[session].append(unpack(datagram))
            else:
                counts[session][sequence] = count
        for session, end in ends.items():
            at = 0
            for summary in sorted(told[session], key=lambda each: each.from_):
                tally.summaries += 1
                tally.wrong += not _agrees(summary, counts[session])
                if summary.from_ <= at:
                    at = max(at, summary.until)
            tally.short += at < end << OFFSET_SHIFT
    return tally


def _agrees(summary: Summary, counts: Mapping[int, int]) -> bool:
    mine = {s: n for s, n in counts.items() if summary.from_ <= s < summary.until}
    sequence = np.array(list(mine), np.uint64)
    sums = digest(sequence, np.array(list(mine.values()), np.int64))
    told = summary.notifications, summary.last, summary.digest
    return told == (len(mine), max(mine, default=0), sums)
