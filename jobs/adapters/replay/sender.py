"""Sends answers, a few datagrams of each in turn, so that none waits for a long one before it."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

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
    at: int = 0
    due: float = field(default=0.0)


class Sender:
    """A thread that owns all answers on their way; one of each host and session at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._waiting: OrderedDict[Key, _Outgoing] = OrderedDict()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="rerequest-sender", daemon=True)
        self._thread.start()

    def send(
        self, key: Key, address: Address, datagrams: list[bytes], done: Callable[[], None]
    ) -> None:
        """Send them in this order; ``done`` is called behind the last, on the sender's thread."""
        with self._changed:
            self._waiting[key] = _Outgoing(address, datagrams, done)
            self._changed.notify()

    def send_one(self, address: Address, datagram: bytes) -> None:
        """Send one datagram at once, before all that waits; what finds no room is lost."""
        try:
            self._socket.sendto(datagram, address)
        except OSError as error:
            log.debug("%s", error)

    def busy(self, key: Key) -> bool:
        """Tells whether an answer to this host, for this session, is on its way."""
        with self._changed:
            return key in self._waiting

    def close(self) -> None:
        """Send what waits, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closing:
                    self._changed.wait()
                if not self._waiting:
                    return
                key, answer = next(iter(self._waiting.items()))
                last = answer.at + BURST >= len(answer.datagrams)
                if last:
                    # Who has an answer may ask at once, so it is off the list before it is there.
                    del self._waiting[key]
                else:
                    self._waiting.move_to_end(key)
            # Answers stand in the order of their last turns: the first is due first.
            pause = answer.due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            if not self._turn(answer):
                with self._changed:
                    if self._waiting.get(key) is answer:
                        del self._waiting[key]
            if last:
                answer.done()

    def _turn(self, answer: _Outgoing) -> bool:
        """Send some of an answer; whether that could be done."""
        answer.due = time.monotonic() + PAUSE
        some = answer.datagrams[answer.at : answer.at + BURST]
        answer.at += len(some)
        for datagram in some:
            try:
                self._socket.sendto(datagram, answer.address)
            except OSError as error:
                # As lost on the way: the host asks again.
                log.warning("the answer to %s:%d could not be sent: %s", *answer.address, error)
                return False
        return True
