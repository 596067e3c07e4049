"""The service of re-requests: hosts ask for notifications, and get what was owed to them again.

One thread takes datagrams from a UDP socket, one answers, one sends, and a pool computes: a range a
host at a time, those first who had least. Requests that wait are answered together: each offset
range is computed once, for all hosts that wait for it, and kept for who asks later. Nothing is
kept that cannot be computed again, so any number of replicas may run side by side.

A request counts for a host only with a cookie, which proves that the host receives at the address
that the request came from. Other requests use up the budget of their network prefix, whose cookies
they are answered with.
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.key_files import signing_key
from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.replay.host_statistics import HostStatistics
from stackcast.jobs.adapters.replay.metrics import RerequestMetrics
from stackcast.jobs.adapters.replay.replay import Replay, Run
from stackcast.jobs.adapters.replay.sender import Address, Sender
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS, Threads, Worker, wait_for_all
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.wire.receive_buffer import dropped, enlarge_receive_buffer, shortfall
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.udfs.errors import MessageError, ReplayError, SettingsError, StackcastError
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, Topic
from stackcast.udfs.messages.summaries import COOKIE_SIZE, Request, challenge, read_request
from stackcast.udfs.names import MOST_NAME
from stackcast.udfs.replay.answers import (
    Cookies,
    Gone,
    Piece,
    PieceCache,
    RateLimiter,
    RequestAnswer,
    network_prefix,
    turns,
)
from stackcast.udfs.replay.notifications import Notifications
from stackcast.udfs.replay.sent_ranges import Gap, SentRange
from stackcast.udfs.stop_request import StopRequest

log = logging.getLogger(__name__)

#: How old what is known of table ``hosts`` may get, seconds.
_HOSTS_SECONDS = 1.0

_RECEIVE_BUFFER = 4 << 20
#: Datagrams that may wait to be read; further ones are dropped.
MOST_WAITING = 65_536
#: Requests per second of a host that has proved its address, and in one burst.
RATE, AT_ONCE = 50.0, 200.0
#: Challenges per second to all addresses of a /24, and in one burst. This is enough for its hosts
#: while somebody forges some of their requests, and 40 kB/s if the aim is to flood an address.
CHALLENGE_RATE, CHALLENGE_BURST = 1000.0, 2000.0
#: Bytes that a host is sent: so many a second, and at once.
BYTES_RATE, BYTES_AT_ONCE = float(16 << 20), float(64 << 20)
#: Offset ranges that are computed for one request; the answer is cut short then.
MOST_COMPUTED = 8
#: Bytes of notifications that are kept for who asks next.
CACHE_BYTES = 256 << 20
#: So many hosts at once, and an offset range is computed for all there are.
FOR_ALL = 64
#: A batch that the ledger still lacks so long after the next one began is not coming, seconds.
LATE_SECONDS = 600.0
#: How long the first request waits for others, seconds.
TOGETHER_SECONDS = 0.02
#: Interval between two log lines about requests that were dropped unread.
_DROPPED_SECONDS = 10.0
#: Refusals that are logged in a second; all are counted.
_REFUSALS = 10
#: Time between two attempts to compute the newest range at the start, if they fail, in seconds.
RETRY_SECONDS = 5.0
_POLL_SECONDS = 0.2
_FAULTS = (StackcastError, *SQL_ERRORS, OSError)


@dataclass
class _Waiting:
    answer: RequestAnswer
    address: Address
    since: float


class Rerequests:
    """Answers until told to stop. `serve` is for one thread.

    Attributes:
        computed: number of offset ranges that were computed.
        ready: whether the plan of the newest notifications is prepared, so that a request waits
            for no cold start.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        tables: Tables,
        metrics: RerequestMetrics | None = None,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._threads = threads
        self._clock = threads.clock
        self._metrics = metrics or RerequestMetrics(settings.metrics_hosts)
        self._statistics = HostStatistics(tables, threads)
        self._replay = Replay(spark, settings, tables)
        self._hosts = Hosts(settings, tables, self._clock)
        self._key = signing_key(settings)
        self._cache = PieceCache(CACHE_BYTES)
        #: Topic that the pieces in the cache are of.
        self._topic: Topic | None = None
        self._rate_limiter = RateLimiter(RATE, AT_ONCE)
        self._byte_limiter = RateLimiter(BYTES_RATE, BYTES_AT_ONCE)
        self._challenge_limiter = RateLimiter(CHALLENGE_RATE, CHALLENGE_BURST)
        self._cookies = Cookies(secrets.token_bytes(32))
        #: Runs under way, and the hosts whose turn they are; "" for the one at the start.
        self._running: dict[Future[Notifications], tuple[Run, str]] = {}
        #: Those of them that began before a new generation of the topic.
        self._outdated: set[Future[Notifications]] = set()
        self._slots = max(1, session.slots(spark))
        self._waiting: dict[tuple[str, bytes], _Waiting] = {}
        self._inbox: deque[tuple[bytes, Address]] = deque(maxlen=MOST_WAITING)
        self._arrived = self._clock.event()
        self._refused = (0.0, 0)
        #: Datagrams that the kernel has dropped so far, and when the log last said so.
        self._dropped, self._dropped_told = 0, -_DROPPED_SECONDS
        self._socket = _listen(settings)
        self._sender = Sender(self._socket, threads)
        self._unread_since: float | None = None
        self.computed = 0
        self.ready = False
        self._next_attempt = 0.0

    @property
    def address(self) -> Address:
        """Address that it listens at."""
        host, port = self._socket.getsockname()
        return host, port

    @property
    def unread_seconds(self) -> float:
        """Seconds that tables could not be read; 0 where they can."""
        since = self._unread_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def serve(self, stopping: StopRequest, on_ready: Callable[[], None] = lambda: None) -> None:
        """Answers until ``stopping``; what waits then stays unanswered, and is asked for again.

        Args:
            stopping: ends the service.
            on_ready: called once, as soon as the service is `ready`.
        """
        listener = self._threads.start("rerequest-listen", self._listen, stopping)
        log.info("listening for re-requests at %s:%d", *self.address)
        announced = False
        computing = self._threads.worker("rerequest-compute", self._slots)
        try:
            while not stopping.is_set():
                if self._idle and self._arrived.wait(_POLL_SECONDS):
                    self._clock.sleep(TOGETHER_SECONDS)
                self._arrived.clear()
                self._step(computing)
                if self.ready and not announced:
                    announced = True
                    on_ready()
                self._statistics.follow()
            # Results are not needed, and runs may wait for a broker that is gone. One may only be
            # about to start its Spark job.
            while not wait_for_all(self._threads, list(self._running), _POLL_SECONDS):
                self._replay.cancel()
        finally:
            computing.close()
            stopping.set()
            wait_for_all(self._threads, [listener])
            self._sender.close()
            self._socket.close()
            self._statistics.close()

    def _listen(self, stopping: StopRequest) -> None:
        while not stopping.is_set():
            self._count_dropped()
            try:
                self._inbox.append(self._socket.recvfrom(HEADER_AND_NAME))
            except TimeoutError:
                continue
            except OSError as error:  # as what an earlier answer met on its way
                log.debug("%s", error)
                continue
            self._arrived.set()

    def _count_dropped(self) -> None:
        """Counts what the kernel has dropped since the last call, and what the inbox will drop."""
        before, self._dropped = self._dropped, dropped(self._socket)
        number = self._dropped - before + (len(self._inbox) == self._inbox.maxlen)
        if number:
            self._metrics.dropped(number)
            now = self._clock.monotonic()
            if now - self._dropped_told > _DROPPED_SECONDS:
                self._dropped_told = now
                log.warning(
                    "%d requests were dropped before they were read; the hosts will send them "
                    "again",
                    number,
                )

    @property
    def _idle(self) -> bool:
        """True if no request waits, and nothing is to be prepared now."""
        attempt_due = self._clock.monotonic() >= self._next_attempt
        preparing = not self.ready and (self._running or attempt_due)
        return not self._waiting and not preparing

    def _step(self, computing: Worker) -> None:
        """Take what came, and go one offset range on with all that wait."""
        if not self._inbox and self._idle:
            return
        if not self._running:
            self._replay.trim()
        readable = self._refresh()
        # Those that come meanwhile are for the next step, so that a flood does not hold up answers.
        for _ in range(len(self._inbox)):
            self._take(*self._inbox.popleft())
        for waiting in list(self._waiting.values()):
            self._go_on(waiting)
        self._metrics.waiting(len(self._waiting))
        if readable and not self.ready and not self._running:
            self._prepare_newest(computing)
        self._compute(computing)

    def _refresh(self) -> bool:
        """Reads what is new in tables; returns False if they cannot be read."""
        try:
            self._hosts.refresh()
            self._replay.ledger.refresh()
        except _FAULTS as error:
            self._unread_since = self._unread_since or self._clock.monotonic()
            self._next_attempt = self._clock.monotonic() + RETRY_SECONDS
            log.error("tables cannot be read: %s", one_line(error))
            self._clock.sleep(_POLL_SECONDS)
            return False
        if self._topic != self._replay.ledger.topic:
            self._topic = self._replay.ledger.topic
            self._cache = PieceCache(CACHE_BYTES)
            self._outdated.update(self._running)
        self._unread_since = None
        return True

    def _prepare_newest(self, computing: Worker) -> None:
        """Starts to compute the newest range that was sent, which prepares its plan and a worker.

        The first answer of a cold service takes as long as that.
        """
        if self._clock.monotonic() < self._next_attempt:
            return
        self._next_attempt = self._clock.monotonic() + RETRY_SECONDS
        newest = self._replay.ledger.ranges.last_sent()
        if newest is None:
            self.ready = True
            return
        partition, offset = newest[0], newest[1].until - 1
        try:
            run = self._replay.prepare(partition, offset)
        except _FAULTS as error:
            self._failed(error, partition, offset, offset + 1)
            return
        self._running[computing.submit(self._replay.run, run, None)] = run, ""

    def _take(self, datagram: bytes, address: Address) -> None:
        try:
            request = read_request(datagram)
        except MessageError as error:
            self._refuse("malformed", f"{address[0]}:{address[1]}: {error}")
            return
        host = self._hosts.identify(address[0], request.name)
        if host is None:
            who = f"{address[0]}:{address[1]}, name {request.name!r}"
            self._refuse("unknown_host", f"no host in table hosts matches {who}")
            return
        session = self._replay.ledger.sessions.get(request.session)
        if session is None:
            self._refuse(
                "unknown_session",
                f"host {host} requested session {request.session!r}, which is not in the ledger",
            )
            return
        now = self._clock.monotonic()
        if not self._cookies.proves(request.cookie, address, now):
            self._challenge(request, address, now)
            return
        rate = f"sends more than {RATE:.0f} requests per second"
        if self._rate_limiter.allows(host, now):
            rate = f"requests more than {BYTES_RATE:.0f} bytes per second"
            if self._byte_limiter.left(host, now) > 0:
                rate = ""
        if rate:
            self._statistics.refused(host)
            self._refuse("limited", f"host {host} {rate}")
            return
        key = host, request.session
        if self._sender.busy(key):
            return  # asked while the answer is on its way
        known = self._waiting.get(key)
        if known is not None and known.answer.request == request:
            known.address = address
            return
        answer = RequestAnswer(host, session.partition, request)
        self._waiting[key] = _Waiting(answer, address, self._clock.monotonic())

    def _challenge(self, request: Request, address: Address, now: float) -> None:
        """Sends a cookie, and nothing larger, to an address that has not proved itself.

        Anybody can send requests under a host's address, so they cost that host nothing.
        """
        prefix = network_prefix(address[0])
        if not self._challenge_limiter.allows(prefix, now):
            text = f"addresses of {prefix} send more than {CHALLENGE_RATE:.0f} requests"
            self._refuse("challenge_limited", f"{text} per second without a valid cookie")
            return
        self._metrics.answered("challenged")
        self._sender.send_one(address, challenge(request, self._cookies.make(address, now)))

    def _go_on(self, waiting: _Waiting) -> None:
        """As far as there is nothing to compute."""
        answer = waiting.answer
        # The ledger may have been read again since.
        session = self._replay.ledger.sessions.get(answer.request.session)
        while not answer.done:
            if session is None:
                answer.end()
                continue
            if answer.offset < session.begin:
                answer.nothing(session.begin)
                continue
            if session.until is not None and answer.offset >= session.until:
                if answer.offset < session.end:
                    why = "the topic was created again, or Kafka truncated its log"
                    answer.take(Gone(answer.offset, session.end, why))
                else:
                    answer.end()
                continue
            found = self._replay.ledger.ranges.at(answer.partition, answer.offset)
            if isinstance(found, Gap):
                self._at_gap(answer, found)
                continue
            piece = self._cache.find(answer.partition, answer.offset)
            if piece is None or not piece.serves(answer.host):
                if answer.computed < MOST_COMPUTED:
                    return
                answer.end()
            else:
                answer.take(piece)
        self._send(waiting)

    def _at_gap(self, answer: RequestAnswer, gap: Gap) -> None:
        if gap.until is None:
            answer.end()
        elif not gap.missing:
            answer.nothing(gap.until)
        elif self._clock.wall_time() - gap.after / 1e6 < LATE_SECONDS:
            answer.end()
        else:
            answer.take(Gone(gap.from_, gap.until, "batches are missing from the ledger"))

    def _compute(self, computing: Worker) -> None:
        """Computes what those need whose turn it is, and takes what is done; waits for one of
        these, not for all."""
        waiting = list(self._waiting.values())
        busy = {host for _, host in self._running.values()}
        needs = [(each.answer.host, each.answer.computed) for each in waiting]
        for place in turns(needs, busy):
            if len(self._running) >= self._slots:
                break
            first = waiting[place].answer
            if any(_within(first, run) for run, _ in self._running.values()):
                continue
            try:
                run = self._replay.prepare(first.partition, first.offset)
            except _FAULTS as error:
                self._failed(error, first.partition, first.offset, first.offset + 1)
                continue
            again = self._cache.find(run.span.partition, first.offset) is not None
            hosts = frozenset(each.answer.host for each in waiting if _within(each.answer, run))
            everyone = again or run.span.silent or len(hosts) > FOR_ALL
            future = computing.submit(self._replay.run, run, None if everyone else hosts)
            self._running[future] = run, first.host
        if self._running:
            self._threads.wait(list(self._running), _POLL_SECONDS)
        for future in [future for future in self._running if future.done()]:
            run, _ = self._running.pop(future)
            if future in self._outdated:
                self._outdated.discard(future)
                continue
            try:
                piece = future.result()
            except _FAULTS as error:
                self._failed(error, run.span.partition, run.span.from_, run.span.until)
                continue
            waiting = [each for each in self._waiting.values() if _within(each.answer, run)]
            self._keep(run, piece, waiting)

    def _keep(self, run: Run, piece: Piece, waiting: Iterable[_Waiting]) -> None:
        self._cache.put(run.span.partition, piece)
        self.ready = True
        if not run.span.silent:
            self.computed += 1
            for each in waiting:
                each.answer.computed += 1
        batches = [r.batch for r in run.span.ranges]
        log.info(
            "partition %d, offsets %d to %d: computed %d notifications of batches %d to %d "
            "again, with %s",
            run.span.partition,
            piece.from_,
            piece.until,
            len(piece) if isinstance(piece, Notifications) else 0,
            batches[0],
            batches[-1],
            named(self._replay.ledger.origins[run.span.ranges[0].origin].versions),
        )

    def _failed(self, error: Exception, partition: int, offset: int, end: int) -> None:
        if isinstance(error, ReplayError):
            until = max(error.fields.get("until", 0), offset + 1)
            self._cache.put(partition, Gone(offset, until, str(error)))
            self.ready = True
            log.warning("partition %d, offsets %d to %d: %s", partition, offset, until, error)
            return
        # No answer: the hosts ask again.
        log.error("partition %d, offset %d: %s", partition, offset, one_line(error))
        for key, each in list(self._waiting.items()):
            if each.answer.partition == partition and offset <= each.answer.offset < end:
                del self._waiting[key]
                self._metrics.answered("failed")

    def _send(self, waiting: _Waiting) -> None:
        answer = waiting.answer
        summary = answer.summary()
        key = answer.host, answer.request.session
        self._waiting.pop(key, None)
        number = len(answer.datagrams)
        self._byte_limiter.spend(answer.host, self._clock.monotonic(), answer.octets)

        def done() -> None:
            seconds = self._clock.monotonic() - waiting.since
            self._metrics.answered(answer.outcome, number, answer.octets, seconds, answer.host)
            self._statistics.answered(answer.host, answer.outcome, number, answer.octets)

        closing = summary.pack()
        if self._key is not None:
            closing = self._key.for_host(answer.host).sign(closing)
        self._sender.send(key, waiting.address, [*answer.datagrams, closing], done)
        log.info(
            "host %s, session %s, sequence %d to %d: %s, %d notifications%s%s",
            answer.host,
            answer.request.session.decode("latin-1"),
            summary.from_,
            summary.until,
            answer.outcome,
            number,
            self._origin(answer.partition, answer.request, summary.until),
            f"; {answer.why}" if answer.why else "",
        )

    def _origin(self, partition: int, request: Request, until: int) -> str:
        """Batches and versions of a range, for a log line."""
        if until <= request.sequence:
            return ""
        ledger = self._replay.ledger
        ends = (request.sequence >> OFFSET_SHIFT, (until - 1) >> OFFSET_SHIFT)
        found = [ledger.ranges.at(partition, offset) for offset in ends]
        ranges = [each for each in found if isinstance(each, SentRange)]
        if not ranges:
            return ""
        versions = named(ledger.origins[ranges[-1].origin].versions)
        return f"; batches {ranges[0].batch} to {ranges[-1].batch}, the last with {versions}"

    def _refuse(self, outcome: str, text: str) -> None:
        self._metrics.answered(outcome)
        second, number = self._refused
        now = self._clock.monotonic()
        if now - second >= 1:
            second, number = now, 0
        self._refused = second, number + 1
        if number < _REFUSALS:
            log.warning("%s: %s", outcome.replace("_", " "), text)


#: Bytes of the longest request with its cookie, and one more, so that a longer one is seen to be.
HEADER_AND_NAME = 20 + MOST_NAME + 1 + COOKIE_SIZE + 1


def _within(answer: RequestAnswer, run: Run) -> bool:
    """Tells whether an answer goes on with what a run computes."""
    span = run.span
    return answer.partition == span.partition and span.from_ <= answer.offset < span.until


def _listen(settings: Settings) -> socket.socket:
    key = f"{PREFIX}rerequest.listen"
    try:
        address = parse_endpoint(settings.rerequest_listen)
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        enlarge_receive_buffer(made, _RECEIVE_BUFFER)
        if text := shortfall(made, _RECEIVE_BUFFER):
            log.warning("%s: %s", key, text)
        made.settimeout(_POLL_SECONDS)
        made.bind(address)
    except (StackcastError, OSError) as error:
        raise SettingsError(
            "BAD_VALUE",
            f"{key} is {settings.rerequest_listen!r}, but the job cannot listen there: "
            f"{error.message if isinstance(error, StackcastError) else error}",
            key=key,
        ) from error
    return made


class Hosts:
    """Finds the host behind a request, by table ``hosts`` as it is now. For one thread."""

    def __init__(self, settings: Settings, tables: Tables, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._tables = tables
        self._by_name = settings.rerequest_identify == "name"
        self._head: tuple[str, int] | None = None
        self._read_at = -_HOSTS_SECONDS
        self._names: Mapping[str, str] = {}

    def refresh(self) -> None:
        """Take what is new, once a second at most. Raises TableError MISSING, Spark's errors."""
        now = self._clock.monotonic()
        if now - self._read_at < _HOSTS_SECONDS:
            return
        head = self._tables.head("hosts")
        if head != self._head:
            rows: list[dict[str, Any]] = self._tables.rows("hosts", head[1])
            column = "host" if self._by_name else "ipv4"
            self._names = {row[column]: row["host"] for row in rows}
            self._head = head
        self._read_at = now

    def identify(self, address: str, name: str) -> str | None:
        """The host that asks from an IPv4 address, or under a name; None if there is none."""
        return self._names.get(name if self._by_name else address)
