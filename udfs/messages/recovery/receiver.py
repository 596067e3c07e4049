"""A receiver that recovers lost notifications: sans I/O, and without a clock of its own.

The caller passes datagrams and the time, and acts on the output: it delivers notifications to the
application, sends requests, and reports losses. Each session (see
:mod:`stackcast.udfs.messages.recovery.session`) keeps notifications until a summary confirms that a
range is complete, and requests missing ones. The rules are in docs/reference/frame-format.md.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.recovery.events import (
    Loss,
    Notification,
    Output,
    ReceiverOptions,
    ReceiverStatistics,
)
from stackcast.udfs.messages.recovery.session import Session, State
from stackcast.udfs.messages.reference import END_OF_SESSION_COUNT, HEADER
from stackcast.udfs.messages.sequence import MAX_MESSAGES
from stackcast.udfs.messages.summaries import unpack
from stackcast.udfs.messages.summary_keys import HostKeys

__all__ = [
    "Loss",
    "Notification",
    "Output",
    "Receiver",
    "ReceiverOptions",
    "ReceiverStatistics",
    "State",
]

#: Maximum number of sessions, unless sessions are named.
MOST_SESSIONS = 4096


class Receiver:
    """Combines the stream's datagrams and the service's answers, for any number of sessions.

    Args:
        options: options of all sessions.
        now: the time in seconds, of any clock that never goes back.
        sessions: sessions to listen to, even if they are silent; without any, the first
            `MOST_SESSIONS` of the stream.
        seed: of the random delays that keep hosts from sending requests at the same time.
        keys: this host's keys; with them, only summaries with a valid tag are accepted. They may
            be replaced at any time.

    Example:
        >>> from stackcast.udfs.messages.recovery.events import ReceiverOptions
        >>> receiver = Receiver(ReceiverOptions(order="sequence"), now=0.0)
        >>> out = receiver.receive([b"cut short"], now=0.1)
        >>> out.deliveries, out.requests, receiver.statistics.malformed
        ([], [], 1)
    """

    def __init__(
        self,
        options: ReceiverOptions,
        now: float,
        sessions: Iterable[bytes] = (),
        seed: int | None = None,
        keys: HostKeys | None = None,
    ) -> None:
        self.statistics = ReceiverStatistics()
        self.keys = keys
        # Sessions whose last summary had a valid tag.
        self._proven: set[bytes] = set()
        self._options = options
        self._jitter = random.Random(seed)
        self._sessions: dict[bytes, Session] = {}
        for session in sessions:
            self._open(session, now)
        self._closed = bool(self._sessions)

    def receive(self, datagrams: Iterable[bytes], now: float, answer: bool = False) -> Output:
        """Takes datagrams in the order of their arrival.

        Datagrams that are neither notifications nor summaries are counted and ignored. Call
        :meth:`time` when all datagrams that have arrived were taken, and when it is :meth:`due`.

        Args:
            datagrams: all of the stream, or all of the service.
            now: the time.
            answer: True for datagrams of the service, which open no session.
        """
        out = Output()
        statistics = self.statistics
        unpack_header, size = HEADER.unpack_from, HEADER.size
        sessions = self._sessions
        for datagram in datagrams:
            if len(datagram) < size:
                statistics.malformed += 1
                continue
            name, sequence, count = unpack_header(datagram)
            bare = count in (0, END_OF_SESSION_COUNT)
            if bare and self.keys is not None and not self._authentic(self.keys, name, datagram):
                continue
            session = sessions.get(name) or (None if answer else self._heard(name, now))
            if session is None:
                statistics.foreign += 1
            elif bare:
                self._without_messages(session, datagram, answer, now, out)
            elif sequence < session.covered:
                self._count(answer)
                if is_framed(datagram, count):
                    session.late(sequence, count, datagram, answer, now, out)
                else:
                    statistics.late += 1
            elif sequence in session.kept.counts:
                self._count(answer)
                statistics.duplicates += 1
                if answer:
                    session.answered(sequence, count, False, now)
            elif is_framed(datagram, count):
                self._count(answer)
                session.keep(sequence, count, datagram, answer, now, out)
                if answer:
                    session.answered(sequence, count, True, now)
            else:
                statistics.malformed += 1
        if answer:
            # Unread datagrams of the stream may close gaps; they are taken before `time` is called.
            self._pass(now, out)
        return out

    def time(self, now: float) -> Output:
        """Performs the actions that are due at the time ``now``."""
        out = Output()
        self._pass(now, out)
        return out

    def end(self, now: float) -> Output:
        """Completes ranges at the end of the stream, without waiting and without requests."""
        out = Output()
        for session in self._sessions.values():
            session.end(now, out)
        return out

    def due(self) -> float:
        """Returns the latest time to call :meth:`time`; infinite if nothing is due."""
        return min((s.due for s in self._sessions.values()), default=float("inf"))

    def sessions(self) -> dict[bytes, tuple[State, int, int]]:
        """Returns for each session its state, the number below which it is complete, and the
        largest number that was announced."""
        return {n: (s.state, s.covered, s.known) for n, s in self._sessions.items()}

    def catching_up(self) -> list[bytes]:
        """Returns the sessions that may not have everything since their start.

        Without `ReceiverOptions.from_start` there are none.
        """
        return [name for name, session in self._sessions.items() if session.is_catching_up]

    def unproven(self) -> list[bytes]:
        """Returns the sessions without a summary, or whose last summary had no valid tag.

        Without keys there are none.
        """
        if self.keys is None:
            return []
        return [name for name in self._sessions if name not in self._proven]

    def _authentic(self, keys: HostKeys, name: bytes, datagram: bytes) -> bool:
        """Returns True for a summary with a valid tag.

        No other datagram without messages may open or change a session.
        """
        if keys.proves(datagram):
            self._proven.add(name)
            return True
        if len(datagram) > HEADER.size:
            self.statistics.forged += 1
            self._proven.discard(name)
        return False

    def _pass(self, now: float, out: Output) -> None:
        for session in self._sessions.values():
            if session.due <= now:
                session.time(now, out)

    def _count(self, answer: bool) -> None:
        if answer:
            self.statistics.answered += 1
        else:
            self.statistics.received += 1

    def _without_messages(
        self, session: Session, datagram: bytes, answer: bool, now: float, out: Output
    ) -> None:
        if len(datagram) == HEADER.size:
            return
        try:
            summary = unpack(datagram)
        except MessageError:
            self.statistics.malformed += 1
            return
        self.statistics.summaries += 1
        session.summary(summary, answer, now, out)

    def _heard(self, name: bytes, now: float) -> Session | None:
        if self._closed or len(self._sessions) >= MOST_SESSIONS:
            return None
        return self._open(name, now)

    def _open(self, name: bytes, now: float) -> Session:
        session = Session(name, self._options, self.statistics, self._jitter, now)
        self._sessions[name] = session
        return session


def is_framed(datagram: bytes, count: int) -> bool:
    """Returns True if a MoldUDP64 packet holds ``count`` messages, 1 or more, and nothing else."""
    if count > MAX_MESSAGES:
        return False
    at, size = HEADER.size, len(datagram)
    for _ in range(count):
        if at + 2 > size:
            return False
        at += 2 + (datagram[at] << 8 | datagram[at + 1])
    return at == size
