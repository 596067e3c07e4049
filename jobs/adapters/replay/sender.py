"""Sends answers, a few datagrams of each in turn, so that a long answer delays no other one."""

from __future__ import annotations

import logging
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads

log = logging.getLogger(__name__)

#: Datagrams of one answer before the next answer has its turn.
BURST = 16
#: Least time between two turns of one answer, seconds: what a socket's buffer can take in.
PAUSE = 0.002

Key = tuple[str, bytes]
Address = tuple[str, int]


@dataclass
class _Outgoing:
    address: Address
    datagrams: list[bytes]
    done: Callable[[], None]
    position: int = 0
    due: float = 0.0


class Sender:
    """Sends answers in the background, at most one per host and session at a time.

    Args:
        sock: socket that sends.
        threads: threads of the driver.
    """

    def __init__(self, sock: socket.socket, threads: Threads = SYSTEM_THREADS) -> None:
        self._socket = sock
        self._clock = threads.clock
        self._waiting: OrderedDict[Key, _Outgoing] = OrderedDict()
        self._lock = threading.Lock()
        self._poll = threads.poll("rerequest-sender", self._send_burst)

    def send(
        self, key: Key, address: Address, datagrams: list[bytes], done: Callable[[], None]
    ) -> None:
        """Send datagrams in this order, and call ``done`` in the background after the last one."""
        with self._lock:
            self._waiting[key] = _Outgoing(address, datagrams, done)
        self._poll.wake()

    def send_one(self, address: Address, datagram: bytes) -> None:
        """Send a datagram before all that wait. It is lost if the socket has no room for it."""
        try:
            self._socket.sendto(datagram, address)
        except OSError as error:
            log.debug("%s", error)

    def busy(self, key: Key) -> bool:
        """Return whether an answer to this host, for this session, is being sent."""
        with self._lock:
            return key in self._waiting

    def close(self) -> None:
        """Send the answers that wait, and end."""
        self._poll.close()
        while (pause := self._send_burst()) is not None:
            self._clock.sleep(pause)

    def _send_burst(self) -> float | None:
        """Send some datagrams of the answer whose turn it is.

        Returns:
            The seconds until the next turn, or None if no answer waits.
        """
        with self._lock:
            if not self._waiting:
                return None
            # Answers are in the order of their last turns, so the first is due first.
            key, answer = next(iter(self._waiting.items()))
            now = self._clock.monotonic()
            if now < answer.due:
                return answer.due - now
            last = answer.position + BURST >= len(answer.datagrams)
            if last:
                # The host may send its next request as soon as it has the answer.
                del self._waiting[key]
            else:
                self._waiting.move_to_end(key)
        answer.due = now + PAUSE
        if not self._send_some(answer):
            with self._lock:
                if self._waiting.get(key) is answer:
                    del self._waiting[key]
        if last:
            answer.done()
        return 0.0

    def _send_some(self, answer: _Outgoing) -> bool:
        """Send the next datagrams of an answer, and return False if the socket refused one."""
        datagrams = answer.datagrams[answer.position : answer.position + BURST]
        answer.position += len(datagrams)
        for datagram in datagrams:
            try:
                self._socket.sendto(datagram, answer.address)
            except OSError as error:
                # The host sends its request again, as after a loss in the network.
                log.warning("the answer to %s:%d could not be sent: %s", *answer.address, error)
                return False
        return True
