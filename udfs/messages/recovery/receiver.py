"""A receiver of notifications that loses none: sans I/O, and without a clock of its own.

The caller hands it datagrams and the time, and acts on its output: hands notifications to the
application, sends requests, and tells of losses. Per session (see
:mod:`udfs.messages.recovery.session`), notifications are kept until a summary says that all of a
range are there, and the rest is asked for. The rules are in docs/wire.md.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from udfs.errors import MessageError
from udfs.messages.recovery.events import (
    Loss,
    Notification,
    Output,
    ReceiverOptions,
    ReceiverStatistics,
)
from udfs.messages.recovery.session import Session, State
from udfs.messages.reference import END_OF_SESSION_COUNT, HEADER
from udfs.messages.sequence import MAX_MESSAGES
from udfs.messages.summaries import unpack
from udfs.messages.summary_keys import HostKeys

__all__ = [
    "Loss",
    "Notification",
    "Output",
    "Receiver",
    "ReceiverOptions",
    "ReceiverStatistics",
    "State",
]

#: Sessions that are listened to at most where none are named.
MOST_SESSIONS = 4096


class Receiver:
    """Puts together the stream's datagrams and the service's answers, for any number of sessions.

    sessions: those to listen to, even where nothing is heard of them; without any, all that are
    heard, up to `MOST_SESSIONS`. now: the time, seconds of any clock that never goes back. seed: of
    the little that requests are moved by, so that hosts do not ask all at once. keys: of this host;
    with them it takes summaries with a right tag and no others. They may be set anew at any time.
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
        # Sessions whose last summary had a right tag.
        self._proven: set[bytes] = set()
        self._options = options
        self._jitter = random.Random(seed)
        self._sessions: dict[bytes, Session] = {}
        for session in sessions:
            self._open(session, now)
        self._closed = bool(self._sessions)

    def receive(self, datagrams: Iterable[bytes], now: float, answer: bool = False) -> Output:
        """Takes datagrams as they came in; ``answer``: from the service, not from the stream.

        Other datagrams than notifications and summaries are counted and left alone. Call
        :meth:`time` when nothing is left to take in, and when it is :meth:`due`.
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
            session = sessions.get(name) or self._heard(name, now)
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
            # What is still unread of the stream may be what lacks: that waits for `time`.
            self._pass(now, out)
        return out

    def time(self, now: float) -> Output:
        """Takes the time, ``now``."""
        out = Output()
        self._pass(now, out)
        return out

    def end(self, now: float) -> Output:
        """Takes that nothing more comes: what is complete is so now, not when it would be asked
        for."""
        out = Output()
        for session in self._sessions.values():
            session.end(now, out)
        return out

    def due(self) -> float:
        """Returns the latest time to call :meth:`time`; infinite if there is nothing to wait
        for."""
        return min((s.due for s in self._sessions.values()), default=float("inf"))

    def sessions(self) -> dict[bytes, tuple[State, int, int]]:
        """Returns of each session its state, the number below which all is complete, and the
        largest that was announced."""
        return {n: (s.state, s.covered, s.known) for n, s in self._sessions.items()}

    def unproven(self) -> list[bytes]:
        """Returns the sessions whose last summary had no right tag, or that none came of; none
        without keys."""
        if self.keys is None:
            return []
        return [name for name in self._sessions if name not in self._proven]

    def _authentic(self, keys: HostKeys, name: bytes, datagram: bytes) -> bool:
        """Returns True for a summary with a right tag; nothing else without messages may open a
        session, or change one."""
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
