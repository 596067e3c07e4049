"""Confirmation of a position in a session by two datagrams."""

from __future__ import annotations

from collections.abc import Hashable


class ConfirmedPosition:
    """The largest position that two different datagrams of a session have reached.

    A position is a sequence number below which the stream has sent everything. A summary reaches
    its ``until``, and a notification the number after its first. A single datagram, however far
    ahead, can therefore never raise the confirmed position above that of the others.
    """

    __slots__ = ("_largest", "_source", "confirmed")

    def __init__(self) -> None:
        #: The second largest position; 0 until there are two.
        self.confirmed = 0
        self._largest = 0
        self._source: Hashable = None

    def add(self, position: int, source: Hashable) -> bool:
        """Records that a datagram has reached a position.

        Args:
            position: a sequence number.
            source: identifies the datagram, so that copies of it count once.

        Returns:
            True if the confirmed position rises.
        """
        before, largest = self.confirmed, self._largest
        if position > largest:
            self.confirmed, self._largest, self._source = largest, position, source
            return largest > before
        if position <= before or source == self._source:
            return False
        self.confirmed = position
        return True

    def discard_unconfirmed(self) -> None:
        """Forgets a position that only one datagram has reached."""
        self._largest, self._source = self.confirmed, None
