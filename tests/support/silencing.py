"""The attack that silences the receivers of a stream, against real processes.

    python tests/support/silencing.py [--trusted] [--keys]

A software switch and a `stackcast receive` for each of its hosts run as processes; this program is
the network cards between them. The publisher sends batches, each with a summary for all hosts.
After some batches host h1 sends, from its own port, a frame with a tree label and a summary that
announces that nothing follows up to 2^64 - 1. A receiver that believes it treats all later
messages as late.

``--trusted`` sends the forged frame by the publisher's port, as a switch would that lets it pass,
to show how receivers react to it. ``--keys`` gives each receiver its key, and forges summaries of
any form (`forgeries`), which receivers must ignore.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
from lossy_network import Stream, summary_bytes
from networks import from_graph
from paths import COMPILED_P4, ROOT
from ports import free_port
from program_switches import fill
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from waiting import until

from stackcast.lab.fabric.hosts import BadFrame, udp_payload
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, Topic, session_id
from stackcast.udfs.messages.summary_keys import SummaryKey
from stackcast.udfs.network.labels import HOP, NARROW, TREE
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees

SESSION = session_id(Topic("itch.raw"), 0)
BATCHES, EACH = 12, 50
#: Only against hangs.
SECONDS = 600.0
TO_ALL = NARROW.label(TREE, 1)
MASTER = SummaryKey(7, b"\x5a" * 32)


@dataclass
class Heard:
    """The report of a receiver at its end."""

    code: int
    delivered: int
    statistics: dict[str, int]
    errors: str


def stacked(datagram: bytes, port: int, label: int = TO_ALL) -> bytes:
    """Returns a frame with one label; by default that of the tree to all hosts."""
    inner = IP(src="10.64.0.1", dst="233.54.12.1") / UDP(sport=5000, dport=port) / datagram
    plain = bytes(Ether(dst="01:00:5e:36:0c:01", src="02:00:00:00:00:01") / inner)
    return plain[:12] + b"\x99\x99" + struct.pack(">HH", 1, label) + plain[14:]


def forgeries(end: int) -> list[bytes]:
    """Returns summaries after number ``end`` that no stream has sent, for receivers with keys."""
    following = end + (EACH << OFFSET_SHIFT)
    lies = [summary_bytes(SESSION, end, until, {}) for until in ((1 << 64) - 1, following)]
    lies += [summary_bytes(SESSION, 0, end, {}), summary_bytes(SESSION, end, following, {}, True)]
    # Without a tag, with a tag of another host or another key, and with an invalid tag.
    signers = [MASTER.for_host("h1"), SummaryKey(8, MASTER.secret).for_host("h2")]
    return [*lies, *(signer.sign(lie) for signer in signers for lie in lies), lies[1] + bytes(20)]


class Cards(threading.Thread):
    """The hosts' network cards, which turn frames of tunnels into datagrams for receivers."""

    def __init__(self, tunnels: dict[str, tuple[int, int]], receivers: dict[str, int]) -> None:
        super().__init__(daemon=True)
        self.sockets: dict[str, socket.socket] = {}
        for name, (far, near) in tunnels.items():
            self.sockets[name] = card = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            card.bind(("127.0.0.1", far))
            card.connect(("127.0.0.1", near))
        self._receivers = receivers
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._over = threading.Event()

    def run(self) -> None:
        names = {card: name for name, card in self.sockets.items()}
        while not self._over.is_set():
            for card in select.select(list(names), [], [], 0.1)[0]:
                try:
                    payload = udp_payload(card.recv(65_535))
                except (OSError, BadFrame):
                    continue
                if (port := self._receivers.get(names[card])) is not None:
                    self._out.sendto(payload, ("127.0.0.1", port))

    def close(self) -> None:
        self._over.set()
        self.join()
        for card in (*self.sockets.values(), self._out):
            card.close()


@contextmanager
def process(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "stackcast.cli.main", *arguments]
    program = subprocess.Popen(command, cwd=ROOT, text=True, **options)
    try:
        yield program
    finally:
        program.kill()
        program.wait()


def attack(
    folder: Path, trusted: bool, keys: bool = False, hosts: int = 3
) -> tuple[dict[str, Heard], dict[str, Any]]:
    """Returns the reports of receivers, and the last counters of the switch."""
    network = from_graph(nx.empty_graph(1), hosts, 1)
    (switch,) = network.switches.values()
    tunnels = {name: (free_port(), free_port()) for name in network.hosts}
    ports = [
        f"--port={network.hosts[name].port}=udp:127.0.0.1:{near}/127.0.0.1:{far}"
        for name, (far, near) in tunnels.items()
    ]
    with ExitStack() as stack:
        program = [f"--program={COMPILED_P4 / 'virtual_trees.json'}"]
        program += [f"--p4info={COMPILED_P4 / 'virtual_trees.p4info.txtpb'}", "--grpc=127.0.0.1:0"]
        running_switch = stack.enter_context(
            process("switch", "run", *program, *ports, stdout=subprocess.PIPE)
        )
        listening = {name: free_port() for name in network.subscribers()}
        receivers = {}
        for name, port in listening.items():
            out, errors = ((folder / f"{name}.{file}").open("w") for file in ("out", "errors"))
            options = ["--listen", f"127.0.0.1:{port}", "--summary-port", "0", "--json"]
            if keys:
                file = folder / f"{name}.keys"
                file.touch(0o600)
                file.write_text(f"{MASTER.id} {MASTER.for_host(name).secret.hex()}")
                options += ["--key-file", str(file)]
            receivers[name] = stack.enter_context(
                process("receive", *options, stdout=out, stderr=errors)
            )
        assert running_switch.stdout is not None
        ready = json.loads(running_switch.stdout.readline())
        fill(ready["p4runtime"], switch, switch_entries(network, broadcast_trees(network)))
        cards = Cards(tunnels, listening)
        cards.start()
        stack.callback(cards.close)
        until(
            lambda: all("listening" in (folder / f"{n}.errors").read_text() for n in listening),
            seconds=SECONDS,
        )

        def wait_for(messages: int) -> None:
            """Wait until each receiver has printed this number of messages."""
            until(
                lambda: all(
                    (folder / f"{name}.out").read_text().count("\n") >= messages
                    for name in listening
                ),
                seconds=SECONDS,
            )

        labels = {
            link.neighbor: NARROW.label(HOP, link.id)
            for link in network.links
            if link.neighbor in listening
        }
        publish(cards, trusted, labels if keys else {}, wait_for)
        reports = {name: end(folder, name, receiver) for name, receiver in receivers.items()}
        running_switch.send_signal(signal.SIGTERM)
        return reports, json.loads(running_switch.stdout.readline())


def publish(
    cards: Cards, trusted: bool, labels: dict[str, int], wait_for: Callable[[int], None]
) -> None:
    """Send the batches, and forged summaries between two of them.

    Args:
        cards: of all hosts.
        trusted: whether the publisher's port sends forged summaries.
        labels: of the hosts that get a summary of their own, with a tag; without any, all hosts get
            the same summary.
        wait_for: waits until all receivers have this number of messages.
    """
    stream = Stream(SESSION)
    for batch in range(BATCHES):
        begin = batch * EACH
        numbers = {offset << OFFSET_SHIFT: 1 for offset in range(begin, begin + EACH)}
        stream.append(numbers, begin + EACH << OFFSET_SHIFT)
        *notifications, summary = stream.datagrams(batch)
        frames = [stacked(notification, 26400) for notification in notifications]
        frames += [
            stacked(MASTER.for_host(host).sign(summary), 26401, label)
            for host, label in labels.items()
        ] or [stacked(summary, 26401)]
        for frame in frames:
            cards.sockets["feed1"].send(frame)
        # A faster publisher would overflow the buffers of sockets.
        wait_for(begin + EACH)
        if batch == BATCHES // 3:
            forged = forgeries(stream.ends[-1])
            sender = "feed1" if trusted else "h1"
            for summary in forged if labels else forged[:1]:
                cards.sockets[sender].send(stacked(summary, 26401))


def end(folder: Path, name: str, receiver: subprocess.Popen[str]) -> Heard:
    receiver.send_signal(signal.SIGTERM)
    code = receiver.wait(SECONDS)
    *messages, last = (folder / f"{name}.out").read_text().splitlines()
    statistics = json.loads(last)["statistics"]
    return Heard(code, len(messages), statistics, (folder / f"{name}.errors").read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        reports, counters = attack(Path(folder), "--trusted" in sys.argv, "--keys" in sys.argv)
    for name, report in reports.items():
        print(
            f"{name}: {report.delivered} of {BATCHES * EACH} messages, exit code {report.code}, "
            f"{report.statistics['late']} late, {report.statistics['missing']} lost, "
            f"{report.statistics['forged']} forged"
        )
    print(f"switch: {counters['drops']}")
