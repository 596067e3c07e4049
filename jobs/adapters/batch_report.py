"""What the tasks of one micro-batch reported, added up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


class BatchReport:
    """The rows of all tasks, as `udfs.columns.REPORT` has them.

    ``stacks``: by delivery, the receivers that each header stack reaches, of those that the plan
    came with. Rows of others say themselves whom they reach.
    """

    def __init__(
        self, rows: Iterable[dict[str, Any]], stacks: Sequence[Sequence[Sequence[str]] | None]
    ) -> None:
        by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            by_kind[row["kind"]].append(row)
        self._stacks = stacks
        self._templates = by_kind["template"]
        self._counts = by_kind["partition"]
        self.states = by_kind["state"]
        self.partitions = _merge_partitions(self._counts)
        self.reasons: Counter[str] = Counter()
        for row in by_kind["reason"]:
            self.reasons[row["reason"]] += row["count"]
        self.letters = [
            {
                "partition": row["partition"],
                "offset": row["from_offset"],
                "index": row["message_index"],
                "reason": row["reason"],
                "length": row["length"],
                "sample": row["sample"].hex(),
            }
            for row in by_kind["sample"]
        ]

    @property
    def dead_letters(self) -> int:
        return sum(self.reasons.values())

    def total(self, column: str) -> int:
        return sum(row[column] for row in self._counts)

    def by_subscriber(self) -> dict[str, dict[str, int]]:
        """Notifications, messages and bytes for each subscriber."""
        result: dict[str, dict[str, int]] = defaultdict(
            lambda: {"notifications": 0, "messages": 0, "bytes": 0}
        )
        for row in self._templates:
            for host in self._reached(row):
                counts = result[host]
                counts["notifications"] += row["frames"]
                counts["messages"] += row["messages"]
                counts["bytes"] += row["bytes"]
        return result

    def publications(self) -> list[dict[str, Any]]:
        """Receivers, notifications, messages and bytes of datagrams, one row a receiver set.

        A notification that leaves in several frames, one a stack, went to the receivers of all.
        """
        receivers: dict[int, set[str]] = defaultdict(set)
        for row in self._templates:
            receivers[row["delivery"]].update(self._reached(row))
        result: dict[tuple[str, ...], dict[str, Any]] = {}
        for row in self._templates:
            # All stacks of a delivery bring the same datagrams.
            if row["part"] > 0:
                continue
            key = tuple(sorted(receivers[row["delivery"]]))
            found = result.setdefault(
                key,
                {"receivers": list(key), "notifications": 0, "messages": 0, "datagram_bytes": 0},
            )
            found["notifications"] += row["frames"]
            found["messages"] += row["messages"]
            found["datagram_bytes"] += row["datagram_bytes"]
        return [result[key] for key in sorted(result)]

    def _reached(self, row: Row) -> Sequence[str]:
        known = self._stacks[row["delivery"]]
        reached: Sequence[str] = row["receivers"] if known is None else known[row["part"]]
        return reached


def _merge_partitions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a Kafka partition, though several tasks may have shared it."""
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        new = {
            k: row[k]
            for k in ("partition", "from_offset", "until_offset", "first_sequence", "last_sequence")
        }
        old = merged.setdefault(row["partition"], new)
        for key, choose in (
            ("from_offset", min),
            ("until_offset", max),
            ("first_sequence", min),
            ("last_sequence", max),
        ):
            known = [r[key] for r in (old, new) if r[key] is not None]
            old[key] = choose(known) if known else None
    return [merged[p] for p in sorted(merged)]
