"""Hosts that send requests to a running service, and the datagrams that a stream sent to them."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from lossy_network import splitmix64
from pcap_deployment import MODEL, PUBLISHER, Deployment
from ports import free_port
from waiting import until

from stackcast.jobs.adapters.replay.metrics import RerequestMetrics
from stackcast.jobs.adapters.replay.service import Rerequests
from stackcast.jobs.adapters.wire.pcap import read_pcap
from stackcast.udfs.messages.recovery.receiver import Output, Receiver, ReceiverOptions
from stackcast.udfs.messages.summaries import Summary, cookie_of, is_summary, request, unpack
from stackcast.udfs.messages.summary_keys import HostKeys
from stackcast.udfs.stacks.dissect import dissect

HOSTS = ("h1", "h2", "h3", "h4")
#: Limits waits, so that a test that hangs ends.
WAIT_S = 600.0

Key = tuple[str, bytes]


def frames(stream: Deployment) -> list[bytes]:
    files = sorted(Path(stream.settings.pcap_path).glob("*.pcap"), key=lambda p: p.stat().st_mtime)
    return [r.frame for path in files for r in read_pcap(path.open("rb"))]


def brought(frames_: Iterable[bytes]) -> dict[str, list[bytes]]:
    """Returns the datagrams that the network delivers, with summaries, by host and in order."""
    datagrams: dict[str, list[bytes]] = {host: [] for host in HOSTS}
    for frame in frames_:
        parts = dissect(frame)
        assert parts.padding == 0
        for host, copies in MODEL.deliver(PUBLISHER, parts.labels).hosts.items():
            datagrams[host] += [frame[len(frame) - parts.udp.length + 8 :]] * copies
    return datagrams


def received(stream: Deployment) -> dict[str, list[bytes]]:
    return brought(frames(stream))


def sent(stream: Deployment) -> dict[Key, list[bytes]]:
    """Returns the notifications that the stream sent, by host and session, in sequence."""
    return by_session(received(stream))


def sent_to(stream: Deployment, host: str) -> list[bytes]:
    """Returns the notifications that the stream sent to a host."""
    return [
        datagram
        for key, datagrams in sent(stream).items()
        if key[0] == host
        for datagram in datagrams
    ]


def by_session(brought_: dict[str, list[bytes]]) -> dict[Key, list[bytes]]:
    notifications: dict[Key, list[bytes]] = defaultdict(list)
    for host, datagrams in brought_.items():
        for datagram in datagrams:
            if not is_summary(datagram):
                notifications[host, datagram[:10]].append(datagram)
    return {key: sorted(datagrams, key=sequence_of) for key, datagrams in notifications.items()}


def sequence_of(datagram: bytes) -> int:
    return int.from_bytes(datagram[10:18])


def count_of(datagram: bytes) -> int:
    return int.from_bytes(datagram[18:20])


class Client:
    """The socket of a host, and the cookie that the service sent to it."""

    def __init__(self, service: Rerequests, address: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind((address, 0))
        self.socket.settimeout(WAIT_S)
        self.service = service.address
        self.cookie = self._last = b""

    def send(self, datagram: bytes) -> None:
        """Send a request, with the cookie if there is one."""
        self._last = datagram
        behind = b"\0" + self.cookie if self.cookie else b""
        self.socket.sendto(datagram + behind, self.service)

    def answer(self) -> tuple[list[bytes], Summary]:
        """Returns the datagrams of an answer, and the summary that ends it."""
        datagrams = []
        while not is_summary(datagram := self.socket.recv(65536)):
            if not self.takes_cookie(datagram):
                datagrams.append(datagram)
        return datagrams, unpack(datagram)

    def takes_cookie(self, datagram: bytes) -> bool:
        """Returns whether a datagram is a cookie; if so, sends the last request again with it."""
        cookie = cookie_of(datagram)
        if cookie:
            self.cookie = cookie
            self.send(self._last)
        return bool(cookie)

    def ask(
        self, host: str, session: bytes, sequence: int, count: int = 65535
    ) -> tuple[list[bytes], Summary]:
        self.send(request(session, sequence, count, host))
        return self.answer()

    def all(self, host: str, session: bytes, count: int = 65535) -> list[bytes]:
        """Returns all notifications of a session; fails if an answer differs from its summary."""
        datagrams: list[bytes] = []
        sequence = 0
        while True:
            answer, summary = self.ask(host, session, sequence, count)
            assert summary.session == session and summary.from_ == sequence
            check(answer, summary)
            if summary.until == sequence:
                return datagrams
            datagrams += answer
            sequence = summary.until


def everything(
    service: Rerequests, hosts: Sequence[str], sessions: Sequence[bytes], count: int = 65535
) -> dict[Key, list[bytes]]:
    """Returns all notifications of each host and session; all ask at once.

    The service computes a range of offsets for all hosts that wait, so this takes less time.
    """
    keys = [(host, session) for host in hosts for session in sessions]
    with ThreadPoolExecutor(len(keys)) as pool:
        answers = pool.map(lambda key: Client(service).all(*key, count), keys)
        return dict(zip(keys, answers, strict=True))


def repaired(
    service: Rerequests,
    host: str,
    datagrams: Sequence[bytes],
    ends: Mapping[bytes, int],
    keys: HostKeys | None = None,
) -> tuple[list[bytes], Receiver]:
    """Run a receiver until it has all notifications.

    Args:
        service: service that answers its requests.
        host: name of the host.
        datagrams: datagrams of the stream that the host received.
        ends: sequence number by session, below which the receiver must have everything.
        keys: keys that prove summaries.

    Returns:
        The delivered notifications, and the receiver.
    """
    client = Client(service)
    client.socket.settimeout(0.05)
    receiver = Receiver(ReceiverOptions(from_start=True), 0.0, ends, seed=1, keys=keys)
    delivered: list[bytes] = []

    def take(out: Output) -> None:
        delivered.extend(delivery.datagram for delivery in out.deliveries)
        assert not out.losses
        for wish in out.requests:
            client.send(request(wish.session, wish.sequence, wish.count, host))

    clock, deadline = 0.0, time.monotonic() + WAIT_S
    take(receiver.receive(datagrams, clock))
    while any(receiver.sessions()[session][1] < end for session, end in ends.items()):
        assert time.monotonic() < deadline, receiver.sessions()
        clock += 0.05
        answers = []
        with suppress(TimeoutError):
            while True:
                datagram = client.socket.recv(65536)
                if not client.takes_cookie(datagram):
                    answers.append(datagram)
        take(receiver.receive(answers, clock, answer=True))
        take(receiver.time(clock))
    client.socket.close()
    return delivered, receiver


def check(datagrams: list[bytes], summary: Summary) -> None:
    """Fail if a summary does not describe the datagrams before it."""
    keys = [(sequence_of(d), count_of(d)) for d in datagrams]
    assert keys == sorted(keys)
    assert all(summary.from_ <= sequence < summary.until for sequence, _ in keys)
    digest = sum(splitmix64((sequence + count) % 2**64) for sequence, count in keys) % 2**64
    last = max((sequence for sequence, _ in keys), default=0)
    assert (summary.notifications, summary.last, summary.digest) == (len(keys), last, digest)


class Service:
    """A re-request service in a thread."""

    def __init__(self, stream: Deployment, *, serve: bool = True, **settings: object) -> None:
        self.metrics = RerequestMetrics(stream.settings.metrics_hosts)
        self.rerequests = Rerequests(
            stream.spark,
            dataclasses.replace(
                stream.settings, rerequest_listen=f"127.0.0.1:{free_port()}", **settings
            ),
            stream.tables,
            self.metrics,
        )
        self.stopping = threading.Event()
        self.thread = threading.Thread(
            target=self.rerequests.serve, args=(self.stopping,), daemon=True
        )
        if serve:
            self.thread.start()

    def ended(self, outcome: str) -> int:
        value = self.metrics.registry.get_sample_value(
            "stackcast_rerequests_total", {"outcome": outcome}
        )
        return int(value or 0)

    def counts(self, outcome: str, number: int) -> bool:
        """Wait until that number of requests has ended with an outcome, and return whether no more
        have. The service counts a request after its answer."""
        until(lambda: self.ended(outcome) >= number, seconds=WAIT_S)
        return self.ended(outcome) == number

    def close(self) -> None:
        self.stopping.set()
        self.thread.join()
