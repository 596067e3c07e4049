"""Receives a stream as a host, and requests lost notifications again."""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import typer

from stackcast.cli.attributes.event_lines import EventReader
from stackcast.cli.deployment import Deployment
from stackcast.cli.itch_messages import message_row, message_text
from stackcast.cli.receive.failures import Failures, tell
from stackcast.cli.receive.host_watch import HostWatch
from stackcast.cli.receive.key_file import KeyFile
from stackcast.cli.receive.memberships import EventMembership, GroupMembership, Membership
from stackcast.cli.receive.own_addresses import OwnAddresses, is_loopback
from stackcast.cli.receive.sockets import (
    Wires,
    connected_socket,
    event_reader,
    event_socket,
    group_socket,
    listen_socket,
    source_address,
)
from stackcast.cli.signals import stop_on_signal
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.udfs.errors import printable
from stackcast.udfs.messages.recovery.receiver import (
    Notification,
    Output,
    Receiver,
    ReceiverOptions,
)
from stackcast.udfs.messages.reference import LENGTH, read_packet
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.messages.summaries import Request, cookie_of, request
from stackcast.udfs.stop_request import StopRequest

#: Largest number of reads of notifications before summaries are read.
_ROUNDS = 64
#: Addresses at which a service listens on all interfaces.
_ANY = ("0.0.0.0", "::", "[::]")
#: Longest wait for datagrams, in seconds, so that signals are noticed.
_SIGNALS = 0.2


@dataclass(frozen=True)
class ReceiveOptions:
    """Options of ``stackcast receive``, whose help describes them."""

    group: str | None
    port: int | None
    interface: str
    listen: str
    event_frames: str | None
    sources: Sequence[str]
    summary_port: int | None
    summary_address: str
    key_file: Path | None
    rerequest: str | None
    name: str
    from_start: bool
    silence: float
    timeout: float
    give_up: float
    keep: int
    topic: str
    topic_id: str
    generation: int
    partitions: int
    seconds: float
    drop: float
    seed: int
    order: Literal["arrival", "sequence"]
    forward: str
    receipts: Path | None
    as_hex: bool
    as_json: bool


def receive(options: ReceiveOptions, deployment: Deployment) -> bool:
    """Receive until a signal, or until the time is over.

    Args:
        options: options of the command.
        deployment: deployment whose format, encoding and attributes the messages have.

    Returns:
        Whether everything that was announced was received.

    Raises:
        typer.BadParameter: the options contradict each other.
        ReceiveError: a socket cannot be opened.
        SettingsError: the keys cannot be read.
    """
    settings = deployment.settings
    rerequest = _service(settings) if options.rerequest is None else options.rerequest
    if options.from_start and not rerequest:
        raise typer.BadParameter("--from-start requests earlier messages: give --rerequest")
    event_frames = options.event_frames
    if event_frames is None and deployment.has_events and settings.match == "network":
        event_frames = deployment.encoding or settings.attributes_encoding
    reader = None if options.as_hex else deployment.events()
    keys = KeyFile(options.key_file) if options.key_file else None
    topic = Topic(options.topic, options.topic_id, options.generation)
    partitions = range(options.partitions) if options.topic else ()
    sessions = [session_id(topic, partition) for partition in partitions]
    receiver_options = ReceiverOptions(
        order=options.order,
        from_start=options.from_start,
        asks=bool(rerequest),
        limit=options.keep,
        silence=options.silence,
        timeout=options.timeout,
        give_up=options.give_up or None,
    )
    place, wires = _open_wires(options, deployment, event_frames, rerequest)
    outlet = _open_outlet(options, deployment, reader, wires)
    watch = HostWatch(wires, place, time.monotonic())
    receiver = Receiver(receiver_options, time.monotonic(), sessions)
    prints = not (options.forward or options.receipts)
    try:
        with stop_on_signal() as stop:
            lossy = f", discarding {options.drop:.0%} of all datagrams" if options.drop else ""
            tell(f"listening at {place}{lossy}")
            if not wires.sources:
                except_own = ", except this host itself" if wires.own else ""
                tell(
                    "publishers are not restricted: datagrams of all senders are accepted"
                    f"{except_own}; give --source with the address of each publisher"
                )
            if deployment.has_events and reader is None and prints and not options.as_hex:
                tell(
                    "the names of the attributes are unknown, so events are printed as hex: give "
                    "--attributes with a file that 'stackcast attributes export' writes"
                )
            if text := wires.buffer_shortfall():
                tell(text)
            run(receiver, wires, outlet, watch, options.name, stop, options.seconds, keys)
        is_deaf = watch.end(time.monotonic())
        drops = wires.drops()
    finally:
        wires.close()
        outlet.close()
    _end(receiver, wires, drops, options.as_json)
    states = receiver.sessions()
    return not (
        receiver.statistics.losses
        or any(complete < announced for _, complete, announced in states.values())
        or receiver.catching_up()
        or receiver.unproven()
        or (receiver.statistics.forged and not states)
        or is_deaf
        or (drops and not rerequest)
    )


def _open_wires(
    options: ReceiveOptions, deployment: Deployment, event_frames: str | None, rerequest: str
) -> tuple[str, Wires]:
    """Open all sockets, and return the place that they listen at as text.

    Args:
        options: options of the command.
        deployment: deployment with the defaults of the options.
        event_frames: encoding of frames of events; None for UDP datagrams.
        rerequest: address of the re-request service; empty if there is none.
    """
    settings = deployment.settings
    group, port = options.group or settings.group, options.port or settings.port
    interface, summary_address = options.interface, options.summary_address
    summary_port = options.summary_port
    if summary_port is None:
        summary_port = settings.summary_port
    sources = frozenset(map(source_address, options.sources))
    membership: Membership | None = None
    summaries = None
    # On loopback, all senders are programs of this host, such as publishers of a test.
    on_loopback = False
    if event_frames and not options.listen:
        place = interface
        stream = event_socket()
        membership = EventMembership(stream, interface)
        if summary_port:
            summaries = listen_socket(summary_address or "0.0.0.0", summary_port)
            on_loopback = is_loopback(summaries.getsockname()[0])
    elif options.listen:
        place = options.listen
        host, port = parse_endpoint(options.listen, "--listen")
        stream = listen_socket(host, port)
        on_loopback = is_loopback(stream.getsockname()[0])
        if summary_port not in (0, port):
            summaries = listen_socket(host, summary_port)
    else:
        place = f"{group}:{port}{f' on {interface}' if interface else ''}"
        stream = group_socket(group, port)
        members = [stream]
        if summary_port not in (0, port):
            if summary_address:
                summaries = listen_socket(summary_address, summary_port)
            else:
                summaries = group_socket(group, summary_port)
                members.append(summaries)
        group_membership = GroupMembership(members, group, interface, sources)
        membership, on_loopback = group_membership, group_membership.on_loopback
    service = _service_socket(rerequest) if rerequest else None
    return place, Wires(
        stream,
        summaries,
        service,
        options.drop,
        random.Random(options.seed),
        sources=sources,
        own=() if on_loopback else OwnAddresses(),
        shape=event_reader(event_frames, deployment.widths) if event_frames else None,
        membership=membership,
    )


def _open_outlet(
    options: ReceiveOptions, deployment: Deployment, reader: EventReader | None, wires: Wires
) -> Outlet:
    if options.forward:
        return ForwardOutlet(*parse_endpoint(options.forward, "--forward"), wires.failures)
    if options.receipts:
        return ReceiptOutlet(options.receipts)
    return LineOutlet(
        options.as_json, options.as_hex, itch=not deployment.has_events, events=reader
    )


def _service_socket(address: str) -> socket.socket:
    return connected_socket("--rerequest", *parse_endpoint(address, "--rerequest"))


def _service(settings: Settings) -> str:
    """Return the address of the re-request service in the properties file; empty without one."""
    if "rerequest.listen" not in settings.given:
        return ""
    host, _ = parse_endpoint(settings.rerequest_listen)
    if host in _ANY:
        tell(
            f"{PREFIX}rerequest.listen is {settings.rerequest_listen}, which is not the address "
            "of a single machine, so losses are only reported: give --rerequest with the address "
            "of the service"
        )
        return ""
    return settings.rerequest_listen


def run(
    receiver: Receiver,
    wires: Wires,
    outlet: Outlet,
    watch: HostWatch,
    name: str,
    stop: StopRequest,
    seconds: float = 0.0,
    keys: KeyFile | None = None,
) -> None:
    """Carry datagrams between sockets, receiver and outlet until ``stop``, or for ``seconds``."""
    end = time.monotonic() + seconds if seconds else float("inf")
    cookie = b""
    last_requests: Sequence[Request] = ()

    def follow(out: Output) -> None:
        if out.deliveries:
            outlet.put(out.deliveries)
        if out.requests:
            ask(out.requests)
        for session, complete in out.caught_up:
            tell(f"session {session.decode('latin-1')}: caught up, complete up to {complete}")
        for loss in out.losses:
            missing = "some" if loss.missing is None else f"{loss.missing:,}"
            tell(
                f"session {loss.session.decode('latin-1')}: {missing} notifications lost from "
                f"{loss.from_} up to {loss.until}: {loss.reason}"
            )

    def ask(requests: Sequence[Request]) -> None:
        nonlocal last_requests
        last_requests = requests
        wires.ask(request(r.session, r.sequence, r.count, name, cookie) for r in requests)

    def without_cookies(answers: list[bytes]) -> list[bytes]:
        """Return answers other than cookies; on a new cookie, repeat the last requests."""
        nonlocal cookie
        cookies = [cookie_of(answer) for answer in answers]
        if new := next((c for c in cookies if c and c != cookie), b""):
            cookie = new
            ask(last_requests)
        return [answer for c, answer in zip(cookies, answers, strict=True) if not c]

    def pass_on(datagrams: Sequence[bytes], answer: bool = False) -> None:
        if datagrams:
            follow(receiver.receive(datagrams, time.monotonic(), answer))

    def take() -> bool:
        """Read all sockets, and return whether they may hold more."""
        # A summary must be read after all notifications that were sent before it.
        for _ in range(_ROUNDS):
            datagrams, more = wires.read(wires.stream)
            pass_on(datagrams)
            if not more:
                break
        answers, more_answers = wires.read(wires.service)
        pass_on(without_cookies(answers), answer=True)
        summaries, _ = wires.read(wires.summaries)
        pass_on(summaries)
        return more or more_answers

    more = False
    while not stop.is_set() and (now := time.monotonic()) < end:
        if keys is not None:
            receiver.keys = keys.keys(now)
        if not more:
            wires.wait(min(receiver.due() - now, end - now, _SIGNALS))
        more = take()
        if not more:
            follow(receiver.time(time.monotonic()))
        watch.check(time.monotonic())
    # Datagrams that have arrived by now count.
    take()
    follow(receiver.end(time.monotonic()))


def _end(receiver: Receiver, wires: Wires, drops: int, as_json: bool) -> None:
    """Print statistics and the state of each session."""
    counts = asdict(receiver.statistics)
    rows: list[dict[str, Any]] = [
        {
            "session": session.decode("latin-1"),
            "state": state.value,
            "complete": covered,
            "announced": known,
        }
        for session, (state, covered, known) in receiver.sessions().items()
    ]
    if wires.loss:
        counts["thrown"] = wires.thrown
    counts["failures"] = wires.failures.counts.total()
    counts["strangers"] = wires.strangers
    counts["dropped"] = drops
    if as_json:
        typer.echo(json.dumps({"statistics": counts, "sessions": rows}))
        return
    s = receiver.statistics
    tell(
        f"{s.delivered:,} notifications ({s.messages:,} messages): {s.received:,} received, "
        f"{s.duplicates + s.late:,} duplicates, {s.repaired:,} repaired by {s.requests:,} "
        f"requests, {s.missing:,} lost in {s.losses:,} ranges"
    )
    counts_by_kind = {
        "dropped by this host's kernel before they were read": drops,
        "that contradict a summary": s.disputed,
        "invalid summaries": s.suspicious,
        "summaries without a valid tag": s.forged,
        "after they were reported as lost": s.belated,
        "from other addresses": wires.strangers,
        "unexpected": s.unexpected,
        "beyond --keep": s.overflowed,
        "malformed": s.malformed,
        "of other sessions": s.foreign,
        "discarded by --drop": wires.thrown,
        **{f"failures of {kind}": count for kind, count in wires.failures.counts.items()},
    }
    if line := ", ".join(f"{number:,} {kind}" for kind, number in counts_by_kind.items() if number):
        tell(line)
    unproven = {name.decode("latin-1") for name in receiver.unproven()}
    for row in rows:
        text = f"session {row['session']}: {row['state']}, complete up to {row['complete']}"
        if row["complete"] < row["announced"]:
            text += f"; some of the messages announced up to {row['announced']} are missing"
        if row["session"] in unproven:
            text += "; no last summary with a valid tag: keys are wrong, or summaries are forged"
        tell(text)


class Outlet(Protocol):
    """Destination of the notifications that a receiver delivers."""

    def put(self, deliveries: Sequence[Notification]) -> None: ...
    def close(self) -> None: ...


class LineOutlet:
    """Prints a line for each message: session, number, and the message as text, JSON or hex.

    Args:
        as_json: print JSON.
        as_hex: print hex.
        itch: whether messages may be ITCH; all others are printed as hex.
        events: reader of messages that are attribute/value events.
    """

    def __init__(
        self,
        as_json: bool,
        as_hex: bool,
        *,
        itch: bool = True,
        events: EventReader | None = None,
    ) -> None:
        self._as_json, self._as_hex, self._itch = as_json, as_hex, itch
        self._events = events
        self._hinted = False

    def put(self, deliveries: Sequence[Notification]) -> None:
        lines = [
            self._line(delivery.session.decode("latin-1"), delivery.sequence + place, message)
            for delivery in deliveries
            for place, message in enumerate(read_packet(delivery.datagram)[2])
        ]
        sys.stdout.write("".join(lines))
        sys.stdout.flush()

    def _line(self, session: str, sequence: int, message: bytes) -> str:
        if self._as_hex:
            return f"{printable(session)} {sequence} {message.hex()}\n"
        if self._events is not None and (event := self._events.line(message)):
            if self._as_json:
                place = json.dumps({"session": session, "sequence": sequence})
                return f"{place[:-1]}, {event.members}}}\n"
            return f"{printable(session)} {sequence}  {event}\n"
        row = message_row(message) if self._itch else None
        if self._itch and not isinstance(row, dict) and not self._hinted:
            self._hinted = True
            tell(
                "some messages are not ITCH, and are printed as hex: if they are attribute/value "
                "events, give --attributes"
            )
        if self._as_json:
            fields = row if isinstance(row, dict) else {"hex": message.hex()}
            return json.dumps({"session": session, "sequence": sequence, **fields}) + "\n"
        text = message_text(row) if isinstance(row, dict) else message.hex()
        return f"{printable(session)} {sequence}  {text}\n"

    def close(self) -> None:
        """Do nothing: all lines are flushed."""


class ForwardOutlet:
    """Sends each notification once, as its unchanged MoldUDP64 datagram, to an address.

    Datagrams that cannot be sent are counted in ``failures``.
    """

    def __init__(self, host: str, port: int, failures: Failures) -> None:
        self._failures = failures
        self._socket = connected_socket("--forward", host, port)
        self._socket.setblocking(True)

    def put(self, deliveries: Sequence[Notification]) -> None:
        for delivery in deliveries:
            try:
                try:
                    self._socket.send(delivery.datagram)
                except OSError:
                    # The error may belong to an earlier datagram; then this one was not sent.
                    self._socket.send(delivery.datagram)
            except OSError as error:
                self._failures.add("forwarding", error)

    def close(self) -> None:
        self._socket.close()


class ReceiptOutlet:
    """Writes a file of datagrams, each preceded by its length (u16, big-endian)."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def put(self, deliveries: Sequence[Notification]) -> None:
        parts = (part for d in deliveries for part in (LENGTH.pack(len(d.datagram)), d.datagram))
        self._file.write(b"".join(parts))

    def close(self) -> None:
        self._file.close()
