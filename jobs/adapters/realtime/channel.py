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
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)

from udfs.delivery.realtime import LivePlan, LocalValue, TaskReport
from udfs.errors import StreamError

log = logging.getLogger(__name__)

#: Between two looks of a worker: new plans reach it within this.
POLL_SECONDS = 0.1
#: An end that is silent for so long is gone.
SILENCE_SECONDS = 30.0
#: How long a task waits for its first plan.
PATIENCE_SECONDS = 30.0
#: A worker without tasks keeps the channel for so long: the next long batch comes soon.
LINGER_SECONDS = 60.0
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
    """Question of a worker: the numbers of plan and stacks that it has (-1: none), reports that it
    was not told to be taken, how many of its tasks may still send."""

    plan: int
    stacks: int
    reports: tuple[TaskReport, ...]
    active: int


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


class ChannelServer:
    """The driver's end. ``answer`` is called by a thread for each worker, at the same time.

    host: what workers connect to; bind: the address that is listened on.
    """

    def __init__(self, host: str, bind: str, answer: Callable[[Poll], Reply]) -> None:
        self._answer = answer
        self._listener = Listener((bind, 0), family="AF_INET", backlog=64)
        self.address = Address(host, self._listener.address[1], secrets.token_bytes(32))
        self._lock = threading.Lock()
        self._active: dict[int, int] = {}
        self._plans: dict[int, int] = {}
        self._open: dict[int, Connection] = {}
        self._closing = threading.Event()
        threading.Thread(target=self._accept, name="channel", daemon=True).start()

    @property
    def active(self) -> int:
        """Number of tasks that may still send, and of reports that are not taken."""
        with self._lock:
            return sum(self._active.values())

    @property
    def oldest_plan(self) -> int | None:
        """The oldest plan that a worker with tasks may use; None where there is none."""
        with self._lock:
            return min(
                (self._plans[n] for n, active in self._active.items() if active), default=None
            )

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
            _limit_silence(connection)
            deliver_challenge(connection, self.address.secret)
            answer_challenge(connection, self.address.secret)
        except _BROKEN as error:
            log.warning("a connection for plans was refused: %s", error)
            connection.close()
            return
        with self._lock:
            self._open[number] = connection
        try:
            while not self._closing.is_set():
                poll: Poll = connection.recv()
                with self._lock:
                    self._active.setdefault(number, poll.active)
                    self._plans[number] = poll.plan
                reply = self._answer(poll)
                with self._lock:
                    # What is not taken yet is still to come.
                    self._active[number] = poll.active + len(poll.reports) - reply.taken
                connection.send(reply)
        except _BROKEN as error:
            if not self._closing.is_set() and self._active.get(number):
                log.warning(
                    "a worker has closed its connection for plans: %s", error or "without an error"
                )
        finally:
            with self._lock:
                self._active.pop(number, None)
                self._plans.pop(number, None)
                self._open.pop(number, None)
            connection.close()


class WorkerChannel:
    """A worker's end (`udfs.delivery.realtime.Channel`), shared by its tasks; a thread talks.

    Where the connection breaks, the last plan stays, reports wait, and it is made again.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Condition()
        self._reports: list[TaskReport] = []
        self._active = 0
        self._polls = 0
        self._plan: LivePlan | None = None
        self._stacks: tuple[int, LocalValue] | None = None
        self._sent: Mapping[int, int] = {}
        self._stopping = False
        self._idle_since = time.monotonic()
        self._error = "nothing came from the driver"
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> Mapping[int, int]:
        """Registers a task; its `end` must follow.

        Raises StreamError NO_PLAN where the driver does not answer.
        """
        with self._lock:
            self._active += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._talk, name="channel", daemon=True)
                self._thread.start()
            # One that is under way may have been asked before the last reports.
            wanted = self._polls + 2
            deadline = time.monotonic() + PATIENCE_SECONDS
            while self._polls < wanted or self._plan is None:
                self._wake.set()
                if not self._lock.wait(min(0.05, max(0.0, deadline - time.monotonic()))) and (
                    time.monotonic() >= deadline
                ):
                    self._active -= 1
                    raise StreamError(
                        "NO_PLAN",
                        f"a worker gets no plan from the driver at {self._address.host}:"
                        f"{self._address.port}: {self._error}; check spark.driver.host, and that "
                        "workers may connect to it on any port",
                    )
            return dict(self._sent)

    @property
    def plan(self) -> LivePlan:
        """The newest plan; for a task that has begun."""
        assert self._plan is not None
        return self._plan

    @property
    def stopping(self) -> bool:
        """True where nothing more may be sent."""
        return self._stopping

    def report(self, report: TaskReport) -> None:
        """Tell the driver, soon."""
        with self._lock:
            self._reports.append(report)
        self._wake.set()

    def end(self) -> None:
        """A task sends nothing more."""
        with self._lock:
            self._active -= 1
            self._idle_since = time.monotonic()
        self._wake.set()

    def _talk(self) -> None:
        told = False
        while not self._idle():
            try:
                with Client(
                    (self._address.host, self._address.port), authkey=self._address.secret
                ) as connection:
                    _limit_silence(connection)
                    if told:
                        log.warning("the driver answers again")
                    told = False
                    while not self._idle():
                        self._exchange(connection)
                        self._wake.wait(POLL_SECONDS)
                        self._wake.clear()
            except _BROKEN as error:
                self._error = f"{type(error).__name__}: {error}"
                if not told and self._active:
                    log.warning(
                        "the connection to the driver at %s:%d is broken, the last plan stays: %s",
                        *(self._address.host, self._address.port, self._error),
                    )
                    told = True
                time.sleep(_AGAIN_SECONDS)

    def _exchange(self, connection: Connection) -> None:
        with self._lock:
            plan = -1 if self._plan is None else self._plan.number
            stacks = -1 if self._stacks is None else self._stacks[0]
            poll = Poll(plan, stacks, tuple(self._reports), self._active)
        connection.send(poll)
        reply: Reply = connection.recv()
        held, live = self._stacks, self._plan
        if reply.stacks is not None:
            held = reply.stacks_number, LocalValue(pickle.loads(reply.stacks))
        if reply.plan is not None and held is not None:
            live = LivePlan(reply.plan_number, pickle.loads(reply.plan), held[1])
        with self._lock:
            del self._reports[: reply.taken]
            self._stacks, self._plan = held, live
            self._sent, self._stopping = reply.sent, reply.stop
            self._polls += 1
            self._lock.notify_all()

    def _idle(self) -> bool:
        """Tells whether the talk is over: no task for a while. The next one starts it anew."""
        with self._lock:
            over = not self._active and time.monotonic() - self._idle_since > LINGER_SECONDS
            if over:
                self._thread = None
            return over


_channels: dict[Address, WorkerChannel] = {}
_channels_lock = threading.Lock()


def open_channel(address: Address) -> WorkerChannel:
    """Returns this process's channel to a driver: one for all its tasks, from batch to batch."""
    with _channels_lock:
        if address not in _channels:
            _channels.clear()
            _channels[address] = WorkerChannel(address)
        return _channels[address]


def _limit_silence(connection: Connection) -> None:
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
