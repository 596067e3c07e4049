"""Limits of a micro-batch in records and bytes.

Spark's Kafka source can only limit the number of records, and the sizes of records are unknown
before they are read. The limit of the next batch therefore follows from the sizes of the batches
before it.
"""

from __future__ import annotations

#: Maximum growth of a batch, relative to the batch before it. A few small records say little about
#: the sizes of the records that follow.
GROWTH = 16


class Admission:
    """Computes how many records the next batch may contain.

    Args:
        most_records: maximum records of a batch.
        most_bytes: maximum bytes of the values of a batch; 0 means unlimited.
        usual: expected bytes of a record, by which the first batch is limited.

    Attributes:
        records: maximum records of the next batch.
    """

    def __init__(self, most_records: int, most_bytes: int, usual: int) -> None:
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._first = self._limit(1, usual)
        self.records = self._first

    def adapt(self, records: int, size: int) -> bool:
        """Adapt the limit to a batch, and return True if it has changed.

        Args:
            records: records of the batch.
            size: bytes of their values.
        """
        previous = self.records
        if records:
            self.records = min(self._limit(records, size), max(self._first, GROWTH * records))
        return self.records != previous

    def _limit(self, records: int, size: int) -> int:
        """Return the limit if this number of records has this number of bytes."""
        if not self._most_bytes or not size:
            return self._most_records
        return max(1, min(self._most_records, self._most_bytes * records // size))
