"""How much a micro-batch takes at most, in records and in bytes.

Spark's Kafka source counts records alone, and nobody knows their sizes before they are read: so the
limit of records that it plans the next batch by follows from the sizes of those before it.
"""

from __future__ import annotations

GROWTH = 16
"""How many times the records of the batch before a batch may have: a few small ones say little of
those that come after them."""


class Admission:
    """Bounds the next batch; ``records`` is the most that it may have.

    most_records, most_bytes (of the records' values): of any batch; 0 bytes bound nothing. usual:
    bytes of a record by which the first batch is bounded.
    """

    def __init__(self, most_records: int, most_bytes: int, usual: int) -> None:
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._first = self._bounded(1, usual)
        self.records = self._first

    def seen(self, records: int, size: int) -> bool:
        """Takes what a batch had, ``size`` in bytes; tells whether the limit is another now."""
        before = self.records
        if records:
            self.records = min(self._bounded(records, size), max(self._first, GROWTH * records))
        return self.records != before

    def _bounded(self, records: int, size: int) -> int:
        """Returns how many records are of ``most_bytes`` if so many have so many bytes."""
        if not self._most_bytes or not size:
            return self._most_records
        return max(1, min(self._most_records, self._most_bytes * records // size))
