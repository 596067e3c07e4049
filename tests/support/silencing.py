"""The attack that silences a stream's receivers, tried on processes of their own.

    python tests/support/silencing.py [--trusted] [--keys]

A software switch, and a `stackcast receive` for each of its hosts, run as processes; what stands
between them here is network cards. The publisher sends batches, each with a summary for all. After
some batches host h1 sends, from its own port, a frame with a tree label and a summary: there is
nothing more to come, up to 2^64 - 1. Who believes it takes all that comes later for late.

``--trusted`` sends the forged frame by the publisher's port, as a switch would that lets it pass:
what receivers make of it by themselves. ``--keys`` gives each receiver its key, and forges
summaries of any form (`forgeries`): they are left alone.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
from fill_switches import fill
from lossy_network import Stream, summary_bytes
from paths import P4, ROOT
from ports import free_port
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from lab.fabric.hosts import BadFrame, udp_payload
from udfs.messages.sequence import OFFSET_SHIFT, session_id
from udfs.messages.summary_keys import SummaryKey
from udfs.network.labels import HOP, NARROW, TREE
from udfs.network.topology import from_graph
from udfs.switches.stack_entries import switch_entries
from udfs.trees.broadcast import broadcast_trees

SESSION = session_id("itch.raw", 0)
BATCHES, EACH = 12, 50
SECONDS = 30.0
TO_ALL = NARROW.label(TREE, 1)
MASTER = SummaryKey(7, b"\x5a" * 32)


@dataclass
class Heard:
    """What a receiver says at its end."""

    code: int
    delivered: int
    statistics: dict[str, int]
    told: str


def stacked(datagram: bytes, port: int, label: int = TO_ALL) -> bytes:
    """A frame with one label: of the tree to all hosts, or another."""
    inner = IP(src="10.64.0.1", dst="233.54.12.1") / UDP(sport=5000, dport=port) / datagram
    plain = bytes(Ether(dst="01:00:5e:36:0c:01", src="02:00:00:00:00:01") / inner)
    return plain[:12] + b"\x99\x99" + struct.pack(">HH", 1, label) + plain[14:]


def forgeries(end: int) -> list[bytes]:
    """Summaries after number ``end`` that no stream has sent, for receivers with keys."""
    following = end + (EACH << OFFSET_SHIFT)
    lies = [summary_bytes(SESSION, end, until, {}) for until in ((1 << 64) - 1, following)]
    lies += [summary_bytes(SESSION, 0, end, {}), summary_bytes(SESSION, end, following, {}, True)]
    # Without a tag, with that of another host, of another key, and with any.
    signers = [MASTER.for_host("h1"), SummaryKey(8, MASTER.secret).for_host("h2")]
    return [*lies, *(by.sign(lie) for by in signers for lie in lies), lies[1] + bytes(20)]


class Cards(threading.Thread):
    """The hosts' network cards: frames of their tunnels become datagrams for their receivers."""

    def __init__(self, tunnels: dict[str, tuple[int, int]], receivers: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self.sockets: dict[str, socket.socket] = {}
        for name, (far, near) in tunnels.items():
            self.sockets[name] = it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            it.bind(("127.0.0.1", far))
            it.connect(("127.0.0.1", near))
        self._receivers = receivers
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._over = threading.Event()

    def run(self) -> None:
        names = {it: name for name, it in self.sockets.items()}
        while not self._over.is_set():
            for it in select.select(list(names), [], [], 0.1)[0]:
                try:
                    payload = udp_payload(it.recv(65_535))
                except (OSError, BadFrame):
                    continue
                if (port := self._receivers.get(names[it])) is not None:
                    self._out.sendto(payload, ("127.0.0.1", port))

    def close(self) -> None:
        self._over.set()
        self.join()
        for it in (*self.sockets.values(), self._out):
            it.close()


@contextmanager
def process(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "cli.main", *arguments]
    started = subprocess.Popen(command, cwd=ROOT, text=True, **options)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def attack(
    folder: Path, trusted: bool, keys: bool = False, hosts: int = 3
) -> tuple[dict[str, Heard], dict[str, Any]]:
    """What each receiver says at its end, and the switch's last counters."""
    network = from_graph(nx.empty_graph(1), hosts, 1)
    (switch,) = network.switches.values()
    tunnels = {name: (free_port(), free_port()) for name in network.hosts}
    ports = [
        f"--port={network.hosts[name].port}=udp:127.0.0.1:{near}/127.0.0.1:{far}"
        for name, (far, near) in tunnels.items()
    ]
    with ExitStack() as stack:
        program = [f"--json={P4 / 'virtual_trees.json'}"]
        program += [f"--p4info={P4 / 'virtual_trees.p4info.txtpb'}", "--grpc=127.0.0.1:0"]
        running = stack.enter_context(
            process("lab", "switch", *program, *ports, stdout=subprocess.PIPE)
        )
        listening = {name: free_port() for name in network.subscribers()}
        receivers = {}
        for name, port in listening.items():
            out, errors = ((folder / f"{name}.{what}").open("w") for what in ("out", "errors"))
            where = ["--listen", f"127.0.0.1:{port}", "--summary-port", "0", "--json"]
            if keys:
                file = folder / f"{name}.keys"
                file.touch(0o600)
                file.write_text(f"{MASTER.id} {MASTER.for_host(name).secret.hex()}")
                where += ["--key-file", str(file)]
            receivers[name] = stack.enter_context(
                process("receive", *where, stdout=out, stderr=errors)
            )
        assert running.stdout is not None
        ready = json.loads(running.stdout.readline())
        fill(ready["p4runtime"], switch, switch_entries(network, broadcast_trees(network)))
        cards = Cards(tunnels, listening)
        cards.start()
        stack.callback(cards.close)
        end = time.monotonic() + SECONDS
        while not all("listening" in (folder / f"{n}.errors").read_text() for n in listening):
            assert time.monotonic() < end, "receivers do not start"
            time.sleep(0.05)
        ways = {
            link.neighbor: NARROW.label(HOP, link.id)
            for link in network.links
            if link.neighbor in listening
        }
        publish(cards, trusted, ways if keys else {})
        time.sleep(1)
        heard = {name: ended(folder, name, one) for name, one in receivers.items()}
        running.send_signal(signal.SIGTERM)
        return heard, json.loads(running.stdout.readline())


def publish(cards: Cards, trusted: bool, ways: dict[str, int]) -> None:
    """Sends the batches, and amid them what is forged. ways: labels of the hosts that each get a
    summary of their own, with a tag; without any, one is for all."""
    stream = Stream(SESSION)
    for batch in range(BATCHES):
        begin = batch * EACH
        numbers = {offset << OFFSET_SHIFT: 1 for offset in range(begin, begin + EACH)}
        stream.append(numbers, begin + EACH << OFFSET_SHIFT)
        *notifications, summary = stream.datagrams(batch)
        frames = [stacked(each, 26400) for each in notifications]
        frames += [
            stacked(MASTER.for_host(host).sign(summary), 26401, way) for host, way in ways.items()
        ] or [stacked(summary, 26401)]
        for frame in frames:
            cards.sockets["feed1"].send(frame)
        time.sleep(0.02)
        if batch == BATCHES // 3:
            time.sleep(0.2)
            forged = forgeries(stream.ends[-1])
            sender = "feed1" if trusted else "h1"
            for each in forged if ways else forged[:1]:
                cards.sockets[sender].send(stacked(each, 26401))
            time.sleep(0.2)


def ended(folder: Path, name: str, receiver: subprocess.Popen[str]) -> Heard:
    receiver.send_signal(signal.SIGTERM)
    code = receiver.wait(SECONDS)
    *messages, last = (folder / f"{name}.out").read_text().splitlines()
    statistics = json.loads(last)["statistics"]
    return Heard(code, len(messages), statistics, (folder / f"{name}.errors").read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        told, counters = attack(Path(where), "--trusted" in sys.argv, "--keys" in sys.argv)
    for each, found in told.items():
        print(
            f"{each}: {found.delivered} of {BATCHES * EACH} messages, exit code {found.code}, "
            f"{found.statistics['late']} late, {found.statistics['missing']} lost, "
            f"{found.statistics['forged']} forged"
        )
    print(f"switch: {counters['drops']}")
