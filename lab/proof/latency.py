"""Latency of notifications: from event to wire, by clocks that the product does not touch.

An event begins with its record's Kafka timestamp, which its publisher gave it, in milliseconds. It
is on the wire when the kernel has the first of its frames at the first switch's socket. Both clocks
are this machine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.lab.proof.receipts import Receipt
from stackcast.udfs.errors import LabError
from stackcast.udfs.messages.sequence import split_sequence

Record = tuple[bytes, int]
"""Session and Kafka offset."""

#: Bounds of the histogram, milliseconds: twenty to each power of ten.
_BOUNDS = np.round(np.logspace(0, 6, 121), 3)


def arrivals(folder: Path, hosts: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Reads ``folder/receipts/<host>.times``: nanoseconds since 1970 for each receipt.

    Raises LabError TRUNCATED_RECEIPTS.
    """
    return {host: _times(Path(folder) / "receipts" / f"{host}.times") for host in hosts}


def _times(path: Path) -> NDArray[np.int64]:
    content = path.read_bytes()
    if rest := len(content) % 8:
        raise LabError(
            "TRUNCATED_RECEIPTS",
            f"{path}: the time at byte {len(content) - rest} is truncated, because the host ended "
            "before it was flushed",
        )
    return np.frombuffer(content, ">i8").astype(np.int64)


def latencies(
    received: Mapping[str, Sequence[Receipt]],
    arrived: Mapping[str, NDArray[np.int64]],
    published: Mapping[Record, int],
) -> NDArray[np.float64]:
    """Returns milliseconds from event to wire, of each record of which something was received.

    published: a record's timestamp, microseconds since 1970.
    """
    first: dict[Record, int] = {}
    for host, datagrams in received.items():
        for (session, sequence, messages), when in zip(
            datagrams, arrived[host].tolist(), strict=True
        ):
            record = session, split_sequence(sequence)[0]
            if messages and record in published:
                first[record] = min(when, first.get(record, when))
    return np.array([(when / 1_000 - published[r]) / 1_000 for r, when in first.items()])


def published_after(published: Mapping[Record, int], seconds: float) -> dict[Record, int]:
    """Return the records that were published so many seconds after the first one, or later.

    Args:
        published: each record's timestamp, microseconds since 1970.
        seconds: time in which publisher and switches open connections and see paths first.
    """
    first = min(published.values(), default=0) + round(1_000_000 * seconds)
    return {record: time for record, time in published.items() if time >= first}


def percentiles(milliseconds: NDArray[np.float64]) -> dict[str, float]:
    """Return p50, p99 and the maximum of some latencies, in milliseconds."""
    half, most = np.percentile(milliseconds, (50, 99))
    return {
        "p50_ms": round(float(half), 1),
        "p99_ms": round(float(most), 1),
        "max_ms": round(float(milliseconds.max()), 1),
    }


def summary(milliseconds: NDArray[np.float64]) -> dict[str, Any]:
    """Returns count, p50, p99 and largest, in milliseconds, and a histogram: rows (from, to, count)
    without the empty ones at its ends. Without any latency only the count."""
    if not len(milliseconds):
        return {"count": 0}
    # A timestamp is in whole milliseconds, so a record may seem to leave a little before it came.
    inside = np.clip(milliseconds, _BOUNDS[0], _BOUNDS[-1])
    counts, _ = np.histogram(inside, _BOUNDS)
    used = np.flatnonzero(counts)
    return {
        "count": len(milliseconds),
        **percentiles(milliseconds),
        "histogram": [
            {"from_ms": float(low), "to_ms": float(high), "count": int(count)}
            for low, high, count in zip(_BOUNDS, _BOUNDS[1:], counts, strict=False)
        ][used[0] : used[-1] + 1],
    }
