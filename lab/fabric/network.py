"""The lab's network in one process: software switches, links, and hosts with real UDP sockets.

A switch drops all frames until its program has been set over P4Runtime.

    python -m stackcast.lab.fabric.network --description network.json --out DIR
        [--external-host h3=IP:PORT] [--tunnel-host h4=IP:PORT] [--loss SHARE] [--again ADDRESSES]

``network.json`` holds the rows of the tables ``switches``, ``hosts`` and ``links``, and perhaps the
``encoding`` of its stacks and ``label_bits``, the width of their labels (16 or 32). When
all is up, one JSON line says where: ``{"p4runtime", "ingress": {publisher: address}, "hosts":
{host: address}, "tunnels": {host: address}, "pid"}``. A tunnel host is another program, which sends
and gets whole frames, each in a datagram between its address and the one in ``tunnels``; it may be
any host of the network. Then JSON lines on standard input are answered on standard output:
``{"command": "status"}`` with counters, ``{"command": "stop"}`` with a last status, ``{"command":
"loss", "share": 0.01}`` with counters once links lose another share of frames, ``{"command":
"link", "between": ["u", "v"], "up": false}`` with counters once the links between two switches are
down, or up. It also ends at the end of its input and on SIGTERM. What hosts receive is in
``DIR/receipts/<host>.mold``: a u16 big-endian length and a payload, again and again;
``<host>.times`` has an u64 for each, the nanoseconds since 1970 at which its frame came to the
first switch's socket. A frame that was acknowledged to its sender is in the files. ``ADDRESSES`` is
the line of a network that has ended: this one is where it was, and its hosts write on.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stackcast.command_line import ArgumentParser
from stackcast.lab.fabric.hosts import (
    ExternalHost,
    LabHost,
    NetworkCard,
    TunnelHost,
    check_external,
    external_hosts,
    receivers,
)
from stackcast.lab.fabric.injections import Injections
from stackcast.lab.fabric.switches import Fabric
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.errors import LabError, StackcastError, printable
from stackcast.udfs.network.encodings import label_format
from stackcast.udfs.network.labels import NARROW
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_from_rows

_RECEIVE_BUFFER = 8 << 20
_LARGEST = 65_535
_BATCH = 256
# The kernel's buffer is small without root: it is emptied after every few frames.
_BETWEEN_PULLS = 8
_LONGEST_QUEUE = 4096
# Linux; Python's socket module does not name these.
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_ROOM_BESIDE = socket.CMSG_SPACE(_TIMESPEC.size)

_Address = tuple[str, int]


class Ingress:
    """A loopback UDP socket; each datagram is one frame that enters the publisher's switch.

    ``send`` is given the publisher, the frame, and when the kernel had it, ns since 1970.

    ``port`` 0 takes a free one.

    Senders are told how many of their frames have been processed: an 8-byte big-endian count,
    cumulative for each source address since this socket was opened.

    The windows of all senders together must fit the socket's buffer: with Linux's default of
    ``net.core.rmem_max`` and without root that is about 180 frames of 1,500 bytes.
    """

    def __init__(
        self, publisher: str, send: Callable[[str, bytes, int], None], port: int = 0
    ) -> None:
        self.publisher = publisher
        self._send = send
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        # Root may have more than the system's limit; without it, windows keep bursts small.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._waiting: deque[tuple[bytes, _Address, int]] = deque()
        self._processed: dict[_Address, int] = {}
        self._unanswered: set[_Address] = set()

    @property
    def address(self) -> str:
        ip, port = self._socket.getsockname()
        return f"{ip}:{port}"

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def backlog(self) -> int:
        """Frames taken from the socket that still wait: :meth:`receive` has more to do."""
        return len(self._waiting)

    def receive(self) -> None:
        """Send the frames that have arrived into the network, a batch at most."""
        for done in range(_BATCH):
            if done % _BETWEEN_PULLS == 0:
                self._pull()
            if not self._waiting:
                return
            frame, source, arrived = self._waiting.popleft()
            self._send(self.publisher, frame, arrived)
            self._processed[source] = self._processed.get(source, 0) + 1
            self._unanswered.add(source)

    def answer(self) -> None:
        """Tell each sender of the last batch its count."""
        for source in self._unanswered:
            # A sender that asked for no credit may be gone; that is its own business.
            with contextlib.suppress(OSError):
                self._socket.sendto(self._processed[source].to_bytes(8), source)
        self._unanswered.clear()

    def _pull(self) -> None:
        while len(self._waiting) < _LONGEST_QUEUE:
            try:
                frame, beside, _, source = self._socket.recvmsg(_LARGEST, _ROOM_BESIDE)
            except BlockingIOError:
                return
            seconds, rest = _TIMESPEC.unpack(beside[0][2])
            self._waiting.append((frame, source, seconds * 1_000_000_000 + rest))

    def close(self) -> None:
        self._socket.close()


_LONGEST_COMMAND = 1 << 16


class LabNetwork:
    """All parts of a network, wired; :meth:`run` is its event loop.

    Parameters
    ----------
    out: folder for receipts. external: address (``ip:port``) by host, of hosts whose application
        is another program. tunnels: the same, of hosts that send and get whole frames. again:
        `addresses` of one that has ended, to take its place; its hosts write on in their files.
        loss: share of the frames that each link loses.

    Raises LabError ``UNKNOWN_HOST`` for an external host that is no subscriber of the network, or
    a tunnel's that is not in it, ``PORT_TAKEN``.
    """

    def __init__(
        self,
        network: Network,
        out: Path,
        external: Mapping[str, str],
        again: Mapping[str, Any] | None = None,
        loss: float = 0.0,
        tunnels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        check_external(external, network.subscribers())
        check_external(tunnels, network.hosts, "--tunnel-host")
        receipts = out / "receipts"
        receipts.mkdir(parents=True, exist_ok=True)
        self._card = NetworkCard()
        self._hosts: dict[str, LabHost | ExternalHost] = {
            name: ExternalHost(name, external[name])
            if name in external
            else LabHost(name, receipts / f"{name}.mold", again is not None)
            for name in receivers(network)
            if name not in tunnels
        }
        data_planes = {name: SimpleSwitch() for name in network.switches}
        self._fabric = Fabric(network, data_planes, self._deliver, loss)
        places = {**again["ingress"], **again["tunnels"]} if again else {}
        ports = {name: int(place.rpartition(":")[2]) for name, place in places.items()}
        self._ingress = [
            Ingress(name, self._enter, ports.get(name, 0))
            for name in network.publishers()
            if name not in tunnels
        ]
        self._tunnels = {
            name: TunnelHost(name, place, ports.get(name, 0)) for name, place in tunnels.items()
        }
        self._tunnel_switches = {name: network.host(name).switch for name in tunnels}
        self._arrived = 0
        self._injections = Injections()
        self._server = P4RuntimeServer(
            (
                Device(
                    switch.name,
                    switch.device_id,
                    data_planes[switch.name],
                    partial(self._injections.put, switch.name),
                )
                for switch in network.switches.values()
            ),
            again["p4runtime"] if again else "127.0.0.1:0",
        ).start()

    def addresses(self) -> dict[str, Any]:
        """Returns the line that says that the network is ready."""
        return {
            "p4runtime": self._server.address,
            "ingress": {each.publisher: each.address for each in self._ingress},
            "hosts": {name: host.address for name, host in self._hosts.items()},
            "tunnels": {name: tunnel.address for name, tunnel in self._tunnels.items()},
            "pid": os.getpid(),
        }

    def status(self) -> dict[str, Any]:
        """Counters since the start; ``link_bytes`` is by direction, ``"u->v"``."""
        drops: Counter[str] = self._fabric.all_drops()
        switch_drops = self._fabric.switch_drops()
        for name, count in self._unknown_senders().items():
            drops["unknown_sender"] += count
            switch_drops.setdefault(name, {})["unknown_sender"] = count
        for reason, count in self._card.drops.items():
            drops[f"host_{reason}"] += count
        drops["lost_packet_out"] += self._injections.lost
        everyone = {**self._hosts, **self._tunnels}
        drops["lost_at_host_socket"] += sum(each.lost for each in everyone.values())
        return {
            "frames_in": self._fabric.frames_in,
            "deliveries": {name: each.delivered for name, each in everyone.items()},
            "drops": {reason: count for reason, count in sorted(drops.items()) if count},
            "switch_drops": switch_drops,
            "link_bytes": self._fabric.link_bytes(),
            "outstanding": sum(host.outstanding for host in self._hosts.values())
            + sum(ingress.backlog for ingress in self._ingress),
        }

    def _unknown_senders(self) -> Counter[str]:
        """Counts frames to a tunnel that did not come from its host, by switch of the host."""
        counts: Counter[str] = Counter()
        for name, tunnel in self._tunnels.items():
            counts[self._tunnel_switches[name]] += tunnel.unknown_senders
        return +counts

    def carry(self, ingress: Ingress) -> None:
        """A batch of frames, all the way into the files; then their senders are told."""
        ingress.receive()
        for host in self._hosts.values():
            host.settle()
        ingress.answer()

    def run(self, commands: int, wake: socket.socket, answer: Callable[[Any], None]) -> None:
        """Carry frames and answer commands until told to stop.

        Parameters
        ----------
        commands: file descriptor of JSON lines. wake: readable once a signal asks for the end.
        answer: writes an answer.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(wake, selectors.EVENT_READ, None)
            selector.register(commands, selectors.EVENT_READ, None)
            selector.register(self._injections, selectors.EVENT_READ, None)
            for ingress in self._ingress:
                selector.register(ingress, selectors.EVENT_READ, ingress)
            for tunnel in self._tunnels.values():
                selector.register(tunnel, selectors.EVENT_READ)
            unread = b""
            while True:
                busy = {ingress for ingress in self._ingress if ingress.backlog}
                ready = selector.select(0 if busy else None)
                for ingress in busy.union(key.data for key, _ in ready if key.data is not None):
                    self.carry(ingress)
                for key, _ in ready:
                    if key.data is not None:
                        continue
                    if key.fileobj is wake:
                        return
                    if key.fileobj is self._injections:
                        self._send_out()
                        continue
                    if isinstance(key.fileobj, TunnelHost):
                        self._hear(key.fileobj)
                        continue
                    piece = os.read(commands, _LONGEST_COMMAND)
                    *lines, unread = (unread + piece).split(b"\n")
                    for line in lines:
                        if not self._obey(line, answer):
                            return
                    if not piece or len(unread) > _LONGEST_COMMAND:
                        return

    def close(self) -> None:
        """Ends the P4Runtime server and closes all sockets and files."""
        for each in (*self._ingress, *self._hosts.values(), *self._tunnels.values()):
            each.close()
        self._server.stop()
        self._injections.close()

    def _enter(self, publisher: str, frame: bytes, arrived: int) -> None:
        self._arrived = arrived
        self._fabric.send(publisher, frame)

    def _send_out(self) -> None:
        """What switches' controllers gave, all the way into the files."""
        self._arrived = time.time_ns()
        for switch, data in self._injections.take():
            self._fabric.inject(switch, data)
        for host in self._hosts.values():
            host.settle()

    def _hear(self, tunnel: TunnelHost) -> None:
        """What a tunnel's host sent, a few frames at most, all the way."""
        self._arrived = time.time_ns()
        for frame in tunnel.receive():
            self._fabric.send(tunnel.name, frame)

    def _deliver(self, host: str, frame: bytes) -> None:
        if host in self._tunnels:
            self._tunnels[host].send(frame)
            return
        receiver = self._hosts.get(host)
        if receiver is None:
            self._card.drops["not_a_subscriber"] += 1
            return
        payload = self._card.read(frame)
        if payload is not None:
            receiver.take(payload, self._arrived)

    def _obey(self, line: bytes, answer: Callable[[Any], None]) -> bool:
        """Answer one command; False if it was the last."""
        try:
            asked = json.loads(line)
            command = asked["command"]
            if command == "loss":
                self._fabric.loss, command = float(asked["share"]), "status"
            elif command == "link":
                one, other = asked["between"]
                self._fabric.plug(str(one), str(other), bool(asked["up"]))
                command = "status"
        except (ValueError, KeyError, TypeError):
            command = None
        if command in ("status", "stop"):
            answer(self.status())
            return bool(command == "status")
        answer(
            {
                "error": 'unknown command, expected {"command": "status"}, {"command": "stop"}, '
                '{"command": "loss", "share": 0.01} or '
                '{"command": "link", "between": ["u", "v"], "up": false}'
            }
        )
        return True


def read_description(path: Path) -> Network:
    """Reads a network's description. Raises LabError ``BAD_DESCRIPTION``, NetworkError."""
    try:
        rows = json.loads(path.read_text())
        labels = label_format(
            rows.get("encoding", NARROW.encoding), rows.get("label_bits", NARROW.bits)
        )
        return network_from_rows(rows["switches"], rows["hosts"], rows["links"], labels)
    except OSError as error:
        raise LabError("BAD_DESCRIPTION", f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(
            "BAD_DESCRIPTION",
            f"{path}: it must have rows of switches, hosts and links, and label_bits 16 or 32: "
            f"{error!r}",
        ) from None


def main(arguments: list[str] | None = None) -> int:
    """Runs the network of the command line; returns the exit code."""
    parser = ArgumentParser(
        prog="stackcast.lab.fabric.network", description="Run the network of the lab."
    )
    parser.add_argument("--description", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--external-host", action="append", default=[], metavar="HOST=IP:PORT")
    parser.add_argument("--tunnel-host", action="append", default=[], metavar="HOST=IP:PORT")
    parser.add_argument("--loss", type=float, default=0.0, metavar="SHARE")
    parser.add_argument("--again", type=json.loads, metavar="ADDRESSES")
    options = parser.parse_args(arguments)
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        external = external_hosts(options.external_host)
        description = read_description(options.description)
        tunnels = external_hosts(options.tunnel_host, "--tunnel-host")
        network = LabNetwork(
            description, options.out, external, options.again, options.loss, tunnels
        )
    except StackcastError as error:
        print(printable(str(error)), file=sys.stderr)
        return 1
    try:
        _say(network.addresses())
        network.run(sys.stdin.fileno(), wake, _say)
    except (KeyboardInterrupt, BrokenPipeError):
        pass  # Ctrl-C, or the parent has ended
    finally:
        network.close()
    return 0


def _say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    status = main()
    # gRPC's threads may take longer to wind down than whoever waits for this process should.
    os._exit(status)
