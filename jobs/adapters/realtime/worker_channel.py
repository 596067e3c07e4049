"""The workers' end of the channel to the driver of a real-time stream."""

from __future__ import annotations

import logging
import pickle
import secrets
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection

from jobs.adapters.realtime.channel import LEASE_SECONDS, Address, Poll, Reply, limit_silence
from udfs.delivery.realtime import LivePlan, LocalValue, TaskReport
from udfs.errors import StreamError

log = logging.getLogger(__name__)

#: Between two looks: new plans reach a worker within this.
POLL_SECONDS = 0.1
#: The same where the plan that came cannot be read.
RESENT_SECONDS = 2.0
#: How long a task waits for its first plan.
PATIENCE_SECONDS = 30.0
#: A worker without tasks keeps the channel for so long: the next long batch comes soon.
LINGER_SECONDS = 60.0
#: A worker with so many reports that were not taken sends nothing until some are.
MOST_REPORTS = 64
#: Reports of one look.
_REPORTS_AT_ONCE = 8
_AGAIN_SECONDS = 0.2


class WorkerChannel:
    """A worker's end (`udfs.delivery.realtime.Channel`), for its tasks, which run one after the
    other; a thread talks.

    Where the connection breaks, the last plan stays, reports wait, and it is made again.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Condition()
        self._id = secrets.token_bytes(16)
        self._reports: list[TaskReport] = []
        self._first = 0
        self._active = 0
        self._using = -1
        self._polls = 0
        self._answered = time.monotonic()
        self._plan: LivePlan | None = None
        self._stacks: tuple[int, LocalValue] | None = None
        self._unreadable = ""
        self._sent: Mapping[int, int] = {}
        self._stopping = False
        self._idle_since = time.monotonic()
        self._error = "nothing came from the driver"
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> Mapping[int, int]:
        """Registers a task; its `end` must follow.

        Raises StreamError NO_PLAN where the driver does not answer, PLAN_UNREADABLE.
        """
        with self._lock:
            self._active += 1
            # Until the task says what it uses.
            self._using = -1
            if self._thread is None:
                self._thread = threading.Thread(target=self._talk, name="channel", daemon=True)
                self._thread.start()
            try:
                self._await_plan()
            except StreamError:
                self._active -= 1
                raise
            return dict(self._sent)

    def _await_plan(self) -> None:
        # One that is under way may have been asked before the last reports.
        wanted = self._polls + 2 + len(self._reports) // _REPORTS_AT_ONCE
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._polls < wanted or self._plan is None:
            if self._polls >= wanted and self._unreadable:
                raise StreamError(
                    "PLAN_UNREADABLE",
                    f"a worker cannot read the plan that came from the driver: {self._unreadable}; "
                    "give both the same Python packages and the same Stackcast",
                )
            self._wake.set()
            if not self._lock.wait(min(0.05, max(0.0, deadline - time.monotonic()))) and (
                time.monotonic() >= deadline
            ):
                raise StreamError(
                    "NO_PLAN",
                    f"a worker gets no plan from the driver at {self._address.host}:"
                    f"{self._address.port}: {self._error}; check spark.driver.host, and that "
                    "workers may connect to it on any port",
                )

    @property
    def plan(self) -> LivePlan:
        """The newest plan; for a task that has begun."""
        assert self._plan is not None
        return self._plan

    @property
    def stopping(self) -> bool:
        """True where nothing more may be sent."""
        return self._stopping

    def use(self, number: int) -> None:
        """The task sends by no plan older than this from here on."""
        self._using = number

    def await_lease(self) -> None:
        """Returns once frames may leave, or where nothing more may be sent.

        Plans change and switches with them, so a worker that the driver may have given up sends
        nothing, nor does one whose reports nobody takes.
        """
        told = False
        while not self._stopping and (
            time.monotonic() - self._answered > LEASE_SECONDS or len(self._reports) >= MOST_REPORTS
        ):
            if not told:
                log.warning("nothing is sent until the driver answers and takes reports")
                told = True
            with self._lock:
                self._lock.wait(_AGAIN_SECONDS)
        if told:
            log.warning("sending again")

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
                    limit_silence(connection)
                    if told:
                        log.warning("the driver answers again")
                    told = False
                    while not self._idle():
                        self._exchange(connection)
                        self._wake.wait(RESENT_SECONDS if self._unreadable else POLL_SECONDS)
                        self._wake.clear()
            except Exception as error:  # whatever it is, there is one more try
                self._error = f"{type(error).__name__}: {error}"
                if not told and self._active:
                    log.warning(
                        "the connection to the driver at %s:%d is broken, the last plan stays: %s",
                        *(self._address.host, self._address.port, self._error),
                    )
                    told = True
                time.sleep(_AGAIN_SECONDS)

    def _exchange(self, connection: Connection) -> None:
        asked = time.monotonic()
        with self._lock:
            poll = Poll(
                worker=self._id,
                plan=-1 if self._plan is None else self._plan.number,
                stacks=-1 if self._stacks is None else self._stacks[0],
                active=self._active,
                using=self._using,
                first=self._first,
                reports=tuple(self._reports[:_REPORTS_AT_ONCE]),
                waiting=len(self._reports),
            )
        connection.send(poll)
        reply: Reply = connection.recv()
        self._read(reply)
        with self._lock:
            del self._reports[: reply.taken]
            self._first += reply.taken
            self._sent, self._stopping = reply.sent, reply.stop
            # Behind the plan that came with it: by that the task goes on.
            self._answered = asked
            self._polls += 1
            self._lock.notify_all()

    def _read(self, reply: Reply) -> None:
        """Takes over what the driver sent; a plan that cannot be read leaves the one before, and is
        sent again."""
        before, self._unreadable = self._unreadable, ""
        try:
            if reply.stacks is not None:
                self._stacks = reply.stacks_number, LocalValue(pickle.loads(reply.stacks))
            if reply.plan is not None and self._stacks is not None:
                plan = pickle.loads(reply.plan)
                self._plan = LivePlan(reply.plan_number, plan, self._stacks[1])
        except Exception as error:  # an import fails, say, where a package is missing
            self._unreadable = f"{type(error).__name__}: {error}"
            if self._unreadable != before:
                log.error("plan %d cannot be read: %s", reply.plan_number, self._unreadable)

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
