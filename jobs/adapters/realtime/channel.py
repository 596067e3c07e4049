"""The channel between the driver and the workers of a real-time stream: plans down, reports up.

Workers ask and the driver answers, in turns, some ten times a second, over TCP. Both ends prove by
HMAC that they know a secret of 32 bytes, made anew for each stream, before either reads a pickle of
the other's; it travels to the workers in the task itself. What follows is not encrypted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)

from udfs.delivery.realtime import TaskReport

log = logging.getLogger(__name__)

#: An end that is silent for so long is gone.
SILENCE_SECONDS = 30.0
#: A worker that the driver has not answered for so long sends nothing until it does.
LEASE_SECONDS = 60.0
#: After so long the driver takes it that a silent worker sends nothing: its lease is over, and what
#: was under way then is out.
FORGET_SECONDS = 2 * LEASE_SECONDS
_AGAIN_SECONDS = 0.2

_BROKEN = (OSError, EOFError, AuthenticationError, pickle.UnpicklingError)


@dataclass(frozen=True)
class Address:
    """Address of the driver, and what proves who asks. Pickles; does not print its secret."""

    host: str
    port: int
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class Poll:
    """Question of a worker. plan, stacks: the numbers of those that it has (-1: none). active: how
    many of its tasks may still send; using: the oldest plan that they may send by (-1: not known
    yet). reports: the first of those that it was not told to be taken, ``first`` being the number
    of the first of them; waiting: how many there are of these in all."""

    worker: bytes
    plan: int
    stacks: int
    active: int
    using: int
    first: int
    reports: tuple[TaskReport, ...]
    waiting: int


@dataclass(frozen=True)
class Reply:
    """Answer to it. plan, stacks: pickled, None where the worker has them or there are none;
    plan_number, stacks_number: which they are. taken: how many of the reports. sent: by partition,
    the offset before which everything has been sent. stop: send nothing more."""

    plan_number: int
    plan: bytes | None
    stacks_number: int
    stacks: bytes | None
    taken: int
    sent: Mapping[int, int]
    stop: bool


@dataclass
class _Worker:
    """State of a worker as the driver knows it, over all its connections. active: its tasks that
    may still send, and reports that are not taken; using: as of `Poll`; heard: when it last asked;
    taken: the number of its first report that is not taken."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    active: int = 0
    using: int = -1
    heard: float = 0.0
    taken: int = 0


class ChannelServer:
    """The driver's end. ``answer`` is called by a thread for each worker, at the same time, and
    with each report until it is taken, which is once, however often the worker tells it.

    A worker whose connection breaks sends on by the plan that it has: it counts as long as its
    lease may hold. host: what workers connect to; bind: the address that is listened on.
    """

    def __init__(self, host: str, bind: str, answer: Callable[[Poll], Reply]) -> None:
        self._answer = answer
        self._listener = Listener((bind, 0), family="AF_INET", backlog=64)
        self.address = Address(host, self._listener.address[1], secrets.token_bytes(32))
        self._lock = threading.Lock()
        #: By their ids. One that is gone stays, so that no report of it is taken again.
        self._workers: dict[bytes, _Worker] = {}
        self._open: dict[int, Connection] = {}
        self._closing = threading.Event()
        threading.Thread(target=self._accept, name="channel", daemon=True).start()

    @property
    def active(self) -> int:
        """Number of tasks that may still send, and of reports that are not taken."""
        return sum(worker.active for worker in self._counting())

    @property
    def oldest_plan(self) -> int | None:
        """The oldest plan that a worker may still send by, -1 where one has not said it yet; None
        where no worker has tasks."""
        return min((worker.using for worker in self._counting()), default=None)

    def _counting(self) -> list[_Worker]:
        since = time.monotonic() - FORGET_SECONDS
        with self._lock:
            return [each for each in self._workers.values() if each.active and each.heard >= since]

    def close(self) -> None:
        """Closes all connections."""
        self._closing.set()
        # A thread in accept() does not see that its socket is closed: a last caller wakes it.
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.address, 1).close()
        self._listener.close()
        with self._lock:
            for connection in self._open.values():
                with contextlib.suppress(OSError):
                    _shut_down(connection)

    def _accept(self) -> None:
        for number in range(1 << 62):
            try:
                # Without its key: who is silent in the exchange of proofs must keep nobody waiting.
                connection = self._listener.accept()
            except OSError:
                if self._closing.is_set():
                    return
                time.sleep(_AGAIN_SECONDS)
                continue
            if self._closing.is_set():
                connection.close()
                return
            threading.Thread(
                target=self._serve, args=(number, connection), name=f"channel-{number}", daemon=True
            ).start()

    def _serve(self, number: int, connection: Connection) -> None:
        try:
            limit_silence(connection)
            deliver_challenge(connection, self.address.secret)
            answer_challenge(connection, self.address.secret)
        except _BROKEN as error:
            log.warning("a connection for plans was refused: %s", error)
            connection.close()
            return
        with self._lock:
            self._open[number] = connection
        worker = _Worker()
        try:
            while not self._closing.is_set():
                poll: Poll = connection.recv()
                with self._lock:
                    worker = self._workers.setdefault(poll.worker, worker)
                connection.send(self._reply(worker, poll))
        except _BROKEN as error:
            if not self._closing.is_set() and worker.active:
                log.warning(
                    "a worker has closed its connection for plans: %s", error or "without an error"
                )
        except Exception:
            log.exception("a worker could not be answered, and asks again")
        finally:
            with self._lock:
                self._open.pop(number, None)
            connection.close()

    def _reply(self, worker: _Worker, poll: Poll) -> Reply:
        # A connection that broke may still be at it.
        with worker.lock:
            # Before the answer: what it may send by from then on is no older.
            worker.using, worker.heard = poll.using, time.monotonic()
            worker.active = max(worker.active, poll.active)
            known = worker.taken - poll.first
            reply = self._answer(replace(poll, reports=poll.reports[known:]))
            worker.taken += reply.taken
            taken = known + reply.taken
            worker.active = max(0, poll.active + poll.waiting - taken)
            return replace(reply, taken=taken)


def limit_silence(connection: Connection) -> None:
    """Reading and writing fail with an OSError after a silence, instead of waiting for ever."""
    duplicate = socket.socket(fileno=os.dup(connection.fileno()))
    with duplicate:
        limit = struct.pack("ll", int(SILENCE_SECONDS), 0)
        duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        duplicate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _shut_down(connection: Connection) -> None:
    duplicate = socket.socket(fileno=os.dup(connection.fileno()))
    with duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
