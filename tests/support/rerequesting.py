"""Hosts that ask a running service again, and what a stream has sent to each of them."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from asking_host import AskingHost
from lossy_network import splitmix64
from pcap_deployment import MODEL, PUBLISHER, Deployment
from ports import free_port

from jobs.adapters.replay.metrics import RerequestMetrics
from jobs.adapters.replay.service import Rerequests
from jobs.adapters.wire.pcap import read_pcap
from udfs.messages.recovery.receiver import Output, Receiver, ReceiverOptions
from udfs.messages.summaries import Summary, is_summary, request
from udfs.messages.summary_keys import HostKeys
from udfs.stacks.dissect import dissect

HOSTS = ("h1", "h2", "h3", "h4")
PATIENCE = 300.0

Key = tuple[str, bytes]


def frames(stream: Deployment) -> list[bytes]:
    files = sorted(Path(stream.settings.pcap_path).glob("*.pcap"), key=lambda p: p.stat().st_mtime)
    return [r.frame for path in files for r in read_pcap(path.open("rb"))]


def brought(frames_: Iterable[bytes]) -> dict[str, list[bytes]]:
    """By host, the datagrams that the network brings it, summaries included, in their order."""
    found: dict[str, list[bytes]] = {host: [] for host in HOSTS}
    for frame in frames_:
        parts = dissect(frame)
        assert parts.padding == 0
        for host, copies in MODEL.deliver(PUBLISHER, parts.labels).hosts.items():
            found[host] += [frame[len(frame) - parts.udp.length + 8 :]] * copies
    return found


def received(stream: Deployment) -> dict[str, list[bytes]]:
    return brought(frames(stream))


def sent(stream: Deployment) -> dict[Key, list[bytes]]:
    """By host and session, the notifications that the stream sent, by their numbers."""
    return by_session(received(stream))


def by_session(brought_: dict[str, list[bytes]]) -> dict[Key, list[bytes]]:
    found: dict[Key, list[bytes]] = defaultdict(list)
    for host, datagrams in brought_.items():
        for datagram in datagrams:
            if not is_summary(datagram):
                found[host, datagram[:10]].append(datagram)
    return {key: sorted(each, key=sequence_of) for key, each in found.items()}


def sequence_of(datagram: bytes) -> int:
    return int.from_bytes(datagram[10:18])


def count_of(datagram: bytes) -> int:
    return int.from_bytes(datagram[18:20])


class Client(AskingHost):
    """A host's socket."""

    def all(self, host: str, session: bytes, count: int = 65535) -> list[bytes]:
        """Everything from the first event on; each answer is held to its summary."""
        datagrams, at = [], 0
        while True:
            found, summary = self.ask(host, session, at, count)
            assert summary.session == session and summary.from_ == at
            check(found, summary)
            if summary.until == at:
                return datagrams
            datagrams += found
            at = summary.until


def repaired(
    service: Rerequests,
    host: str,
    datagrams: Sequence[bytes],
    ends: Mapping[bytes, int],
    keys: HostKeys | None = None,
) -> tuple[list[bytes], Receiver]:
    """What a host has once it is sure to have all below ``ends``, by session, as it asks for what
    lacks in what it heard of the stream; and the receiver that did."""
    client = Client(service)
    client.socket.settimeout(0.05)
    receiver = Receiver(ReceiverOptions(from_start=True), 0.0, ends, seed=1, keys=keys)
    delivered: list[bytes] = []

    def take(out: Output) -> None:
        delivered.extend(each.datagram for each in out.deliveries)
        assert not out.losses
        for asked in out.requests:
            client.send(request(asked.session, asked.sequence, asked.count, host))

    now, deadline = 0.0, time.monotonic() + PATIENCE
    take(receiver.receive(datagrams, now))
    while any(receiver.sessions()[session][1] < end for session, end in ends.items()):
        assert time.monotonic() < deadline, receiver.sessions()
        now += 0.05
        answers = []
        with suppress(TimeoutError):
            while True:
                found = client.socket.recv(65536)
                if not client.takes_cookie(found):
                    answers.append(found)
        take(receiver.receive(answers, now, answer=True))
        take(receiver.time(now))
    client.socket.close()
    return delivered, receiver


def check(datagrams: list[bytes], summary: Summary) -> None:
    """A summary says what came before it."""
    keys = [(sequence_of(d), count_of(d)) for d in datagrams]
    assert keys == sorted(keys)
    assert all(summary.from_ <= sequence < summary.until for sequence, _ in keys)
    digest = sum(splitmix64((sequence + count) % 2**64) for sequence, count in keys) % 2**64
    last = max((sequence for sequence, _ in keys), default=0)
    assert (summary.notifications, summary.last, summary.digest) == (len(keys), last, digest)


class Service:
    def __init__(self, stream: Deployment, **settings: object) -> None:
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
        self.thread.start()

    def ended(self, outcome: str) -> int:
        value = self.metrics.registry.get_sample_value(
            "stackcast_rerequests_total", {"outcome": outcome}
        )
        return int(value or 0)

    def counts(self, outcome: str, number: int) -> bool:
        """Whether so many requests end in that way, some time after their answers."""
        deadline = time.monotonic() + PATIENCE
        while self.ended(outcome) < number and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.ended(outcome) == number

    def close(self) -> None:
        self.stopping.set()
        self.thread.join()
