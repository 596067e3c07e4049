"""The summaries that hosts received, compared with the notifications that they received."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stackcast.lab.proof.receipts import datagrams_of
from stackcast.udfs.messages.reference import HEADER
from stackcast.udfs.messages.sequence import OFFSET_SHIFT
from stackcast.udfs.messages.summaries import Summary, digest, is_summary, unpack


@dataclass
class SummaryTally:
    """Counts over all hosts.

    Attributes:
        summaries: summaries that were received.
        wrong: summaries that differ from the notifications of their range.
        short: hosts and sessions whose summaries do not cover all offsets.
    """

    summaries: int = 0
    wrong: int = 0
    short: int = 0

    @property
    def exact(self) -> bool:
        """True if the summaries of all hosts are right, and cover everything."""
        return bool(self.summaries) and not self.wrong and not self.short


def check_summaries(
    received: Mapping[str, Iterable[bytes]], ends: Mapping[bytes, int]
) -> SummaryTally:
    """Compare the summaries that hosts received with the notifications that they received.

    Args:
        received: datagrams by host that summaries are sent to.
        ends: by session, the offset after its last record. The first record has offset 0.
    """
    tally = SummaryTally()
    for host in sorted(received):
        counts: dict[bytes, dict[int, int]] = defaultdict(dict)
        summaries: dict[bytes, list[Summary]] = defaultdict(list)
        for datagram in received[host]:
            session, sequence, count = HEADER.unpack_from(datagram)
            if is_summary(datagram):
                summaries[session].append(unpack(datagram))
            else:
                counts[session][sequence] = count
        for session, end in ends.items():
            covered = 0
            for summary in sorted(summaries[session], key=lambda each: each.from_):
                tally.summaries += 1
                tally.wrong += not _agrees(summary, counts[session])
                if summary.from_ <= covered:
                    covered = max(covered, summary.until)
            tally.short += covered < end << OFFSET_SHIFT
    return tally


def check_recorded_summaries(
    folder: Path, hosts: Iterable[str], ends: Mapping[bytes, int]
) -> SummaryTally:
    """Compare the summaries in the receipts of hosts; see `check_summaries`.

    Args:
        folder: folder with ``receipts/<host>.mold``.
        hosts: hosts that summaries are sent to.
        ends: by session, the offset after its last record.
    """
    receipts = Path(folder) / "receipts"
    received = {host: datagrams_of(receipts / f"{host}.mold") for host in hosts}
    return check_summaries(received, ends)


def _agrees(summary: Summary, counts: Mapping[int, int]) -> bool:
    covered = {s: n for s, n in counts.items() if summary.from_ <= s < summary.until}
    sequence = np.array(list(covered), np.uint64)
    sums = digest(sequence, np.array(list(covered.values()), np.int64))
    content = summary.notifications, summary.last, summary.digest
    return content == (len(covered), max(covered, default=0), sums)
