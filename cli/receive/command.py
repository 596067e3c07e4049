"""``stackcast receive``: receive a stream as a host does, and request lost notifications again."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, cast

import typer

from stackcast.cli.attributes.event_lines import EventReader
from stackcast.cli.deployment import (
    DeploymentFile,
    EventAttributes,
    EventEncoding,
    EventWidths,
    read_deployment,
)
from stackcast.cli.itch import message_row, message_text
from stackcast.cli.keys import KeyFile
from stackcast.cli.receive.failures import Failures, tell
from stackcast.cli.receive.host_watch import HostWatch
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

#: Rounds of reading notifications after which summaries have their turn in any case.
_ROUNDS = 64
#: Addresses at which a service listens on all interfaces.
_ANY = ("0.0.0.0", "::", "[::]")
#: Longest wait for datagrams, in seconds, so that signals are noticed.
_SIGNALS = 0.2


def receive(
    properties_file: DeploymentFile = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Multicast group of the stream; 233.54.12.1 by default."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=1, max=65535, help="UDP port of the stream; 26400 by default."),
    ] = None,
    interface: Annotated[
        str,
        typer.Option(
            "--interface",
            help="Name or address of the interface to join the group on; others are ignored.",
        ),
    ] = "",
    listen: Annotated[
        str, typer.Option("--listen", help="Receive unicast at host:port instead of a group.")
    ] = "",
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            help="Accept only this publisher's address; may be repeated. By default, all addresses "
            "but those of this host.",
        ),
    ] = None,
    summary_port: Annotated[
        int | None,
        typer.Option(
            "--summary-port",
            min=0,
            max=65535,
            help="UDP port for summaries, 26401 by default; 0 disables them.",
        ),
    ] = None,
    summary_address: Annotated[
        str,
        typer.Option(
            "--summary-address", help="Address of this host for summaries, if switches match."
        ),
    ] = "",
    rerequest: Annotated[
        str | None,
        typer.Option(
            "--rerequest",
            help="host:port of the re-request service; empty to only report losses, although the "
            "properties file has an address.",
        ),
    ] = None,
    events: Annotated[
        Literal["", "bitmask", "id_pairs"],
        typer.Option("--events", help="Receive attribute/value events in this encoding, not IP."),
    ] = "",
    attributes: EventAttributes = None,
    encoding: EventEncoding = None,
    widths: EventWidths = None,
    name: Annotated[
        str, typer.Option("--name", help="Name of this host, if the service identifies by name.")
    ] = "",
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help="Keys of this host: accept only authentic summaries."),
    ] = None,
    topic: Annotated[
        str,
        typer.Option("--topic", help="Receive only the sessions of this topic, even if silent."),
    ] = "",
    topic_id: Annotated[
        str,
        typer.Option(
            "--topic-id", help="Id of --topic, as 'kafka-topics.sh --describe' prints it."
        ),
    ] = "",
    generation: Annotated[
        int,
        typer.Option("--generation", min=0, help="How often --topic began new sessions."),
    ] = 0,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of partitions of --topic.")
    ] = 1,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Request all earlier notifications, too.")
    ] = False,
    order: Annotated[
        Literal["arrival", "sequence"],
        typer.Option("--order", help="Order in which messages are printed or forwarded."),
    ] = "arrival",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines, the last one with statistics.")
    ] = False,
    as_hex: Annotated[bool, typer.Option("--hex", help="Print messages as hex.")] = False,
    forward: Annotated[
        str, typer.Option("--forward", help="Send each datagram once, unchanged, to host:port.")
    ] = "",
    receipts: Annotated[
        Path | None,
        typer.Option("--receipts", help="File for datagrams, each preceded by its length."),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, help="Duration; 0 runs until Ctrl-C.")
    ] = 0.0,
    keep: Annotated[
        int, typer.Option("--keep", min=2, help="Unconfirmed notifications to keep per session.")
    ] = 1 << 17,
    silence: Annotated[
        float,
        typer.Option("--silence", min=0.01, help="Seconds without summaries before a request."),
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, help="Seconds to wait for a first answer.")
    ] = 0.25,
    give_up: Annotated[
        float,
        typer.Option("--give-up", min=0, help="Seconds before a range counts as lost; 0: never."),
    ] = 0.0,
    drop: Annotated[
        float,
        typer.Option("--drop", min=0, max=1, help="Share of datagrams to discard as a trial."),
    ] = 0.0,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of --drop; the same one repeats the losses.")
    ] = 1,
) -> None:
    """Print each message that this host is sent once, and request lost messages again.

    Without --rerequest, losses are only reported. Ctrl-C, SIGTERM or --seconds end the command. It
    then prints statistics on standard error, where it also reports losses and long silence. The
    exit code is 1 if messages were lost, if an announced message is missing at the end, if earlier
    messages are missing with --from-start, if keys are given and the last summary of a session is
    not authentic, or if nothing was received and the kernel shows why.
    """
    deployment = read_deployment(properties_file, attributes, encoding or events or None, widths)
    settings = deployment.settings
    group, port = group or settings.group, port or settings.port
    summary_port = settings.summary_port if summary_port is None else summary_port
    if rerequest is None:
        rerequest = _service(settings)
    if not events and deployment.has_events and settings.match == "network":
        events = cast(Any, deployment.encoding or settings.attributes_encoding)
    reader = None if as_hex else deployment.events()
    if from_start and not rerequest:
        raise typer.BadParameter("--from-start requests earlier messages: give --rerequest")
    if forward and receipts:
        raise typer.BadParameter("give --forward or --receipts, and not both")
    keys = KeyFile(key_file) if key_file else None
    if topic_id and not topic:
        raise typer.BadParameter("--topic-id belongs to --topic: give both")
    known = Topic(topic, topic_id, generation)
    sessions = [session_id(known, p) for p in range(partitions)] if topic else []
    options = ReceiverOptions(
        order=order,
        from_start=from_start,
        asks=bool(rerequest),
        limit=keep,
        silence=silence,
        timeout=timeout,
        give_up=give_up or None,
    )
    dice = random.Random(seed)
    sources = frozenset(map(source_address, source or ()))
    shape = event_reader(events, deployment.widths) if events else None
    membership: Membership | None = None
    summaries = None
    # On loopback, all senders are programs of this host: there they are publishers of a trial.
    on_loopback = False
    where = listen or f"{group}:{port}{f' on {interface}' if interface else ''}"
    if events and not listen:
        where = interface
        stream = event_socket()
        membership = EventMembership(stream, interface)
        if summary_port:
            summaries = listen_socket(summary_address or "0.0.0.0", summary_port)
            on_loopback = is_loopback(summaries.getsockname()[0])
    elif listen:
        host, port = parse_endpoint(listen)
        stream = listen_socket(host, port)
        on_loopback = is_loopback(stream.getsockname()[0])
        if summary_port not in (0, port):
            summaries = listen_socket(host, summary_port)
    else:
        stream = group_socket(group, port)
        members = [stream]
        if summary_port not in (0, port):
            if summary_address:
                summaries = listen_socket(summary_address, summary_port)
            else:
                summaries = group_socket(group, summary_port)
                members.append(summaries)
        membership = GroupMembership(members, group, interface, sources)
        on_loopback = membership.on_loopback
    service = connected_socket("--rerequest", *parse_endpoint(rerequest)) if rerequest else None
    wires = Wires(
        stream,
        summaries,
        service,
        drop,
        dice,
        sources=sources,
        own=() if on_loopback else OwnAddresses(),
        shape=shape,
        membership=membership,
    )
    outlet: Outlet
    if forward:
        outlet = ForwardOutlet(*parse_endpoint(forward), wires.failures)
    elif receipts:
        outlet = ReceiptOutlet(receipts)
    else:
        outlet = LineOutlet(as_json, as_hex, itch=not deployment.has_events, events=reader)
    watch = HostWatch(wires, where, time.monotonic())
    receiver = Receiver(options, time.monotonic(), sessions)
    try:
        with stop_on_signal() as stop:
            tell(f"listening at {where}" + (f", a trial that loses {drop:.0%}" if drop else ""))
            if not sources:
                except_own = "" if on_loopback else ", except this host itself"
                tell(
                    "publishers are not restricted: datagrams of all senders are accepted"
                    f"{except_own}; give --source with the address of each publisher"
                )
            if deployment.has_events and reader is None and not (as_hex or forward or receipts):
                tell(
                    "the names of the attributes are unknown, so events are printed as hex: give "
                    "--attributes with a file that 'stackcast attributes export' writes"
                )
            if text := wires.buffer_shortfall():
                tell(text)
            run(receiver, wires, outlet, watch, name, stop, seconds, keys)
        deaf = watch.end(time.monotonic())
        drops = wires.drops()
    finally:
        wires.close()
        outlet.close()
    _end(receiver, wires, drops, as_json)
    states = receiver.sessions()
    if (
        receiver.statistics.losses
        or any(covered < known for _, covered, known in states.values())
        or receiver.catching_up()
        or receiver.unproven()
        or (receiver.statistics.forged and not states)
        or deaf
        or (drops and not rerequest)
    ):
        raise typer.Exit(1)


def _service(settings: Settings) -> str:
    """Returns the address of the re-request service if a file of properties has it."""
    if "rerequest.listen" not in settings.given:
        return ""
    host, _ = parse_endpoint(settings.rerequest_listen)
    if host in _ANY:
        tell(
            f"{PREFIX}rerequest.listen is {settings.rerequest_listen}, which is no address of one "
            "machine: losses are only reported; give --rerequest with the address of the service"
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
        """Read all sockets; return whether they may hold more."""
        # A summary must not be read before the notifications that were sent before it.
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
        "summaries that no stream sends": s.suspicious,
        "summaries without a right tag": s.forged,
        "after they were reported as lost": s.belated,
        "of other addresses": wires.strangers,
        "unexpected": s.unexpected,
        "without room": s.overflowed,
        "malformed": s.malformed,
        "of other sessions": s.foreign,
        "discarded for the trial": wires.thrown,
        **{f"failures of {kind}": count for kind, count in wires.failures.counts.items()},
    }
    if line := ", ".join(f"{number:,} {kind}" for kind, number in counts_by_kind.items() if number):
        tell(line)
    unproven = {name.decode("latin-1") for name in receiver.unproven()}
    for row in rows:
        text = f"session {row['session']}: {row['state']}, complete up to {row['complete']}"
        if row["complete"] < row["announced"]:
            text += f"; announced up to {row['announced']}, of which something is missing"
        if row["session"] in unproven:
            text += "; its last summary has no valid tag, or none came: wrong keys, or a forger"
        tell(text)


class Outlet(Protocol):
    """Takes the notifications that a receiver delivers."""

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
