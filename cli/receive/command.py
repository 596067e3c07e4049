"""``stackcast receive``: hear a stream as a host does, and ask again for what got lost."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import typer

from cli.attributes.files import USUAL, WidthsOption, widths_of
from cli.itch import message_row, message_text
from cli.keys import KeyFile
from cli.receive.failures import Failures, tell
from cli.receive.sockets import (
    Wires,
    connected_socket,
    event_reader,
    event_socket,
    group_socket,
    listen_socket,
    source_address,
)
from cli.signals import stop_on_signal
from jobs.adapters.wire.udp import parse_endpoint
from udfs.errors import printable
from udfs.messages.recovery.receiver import Notification, Output, Receiver, ReceiverOptions
from udfs.messages.reference import LENGTH, read_packet
from udfs.messages.sequence import session_id
from udfs.messages.summaries import Request, cookie_of, request
from udfs.stop_request import StopRequest

#: Rounds in which notifications are read before summaries have their turn anyway.
_ROUNDS = 64
#: A signal is seen after so many seconds at the latest.
_SIGNALS = 0.2


def receive(
    group: Annotated[
        str, typer.Option("--group", help="Multicast group of the stream.")
    ] = "233.54.12.1",
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="UDP port of the stream.")
    ] = 26400,
    interface: Annotated[
        str, typer.Option("--interface", help="Where the group is joined: name or address.")
    ] = "",
    listen: Annotated[
        str, typer.Option("--listen", help="host:port to hear unicast at, in place of a group.")
    ] = "",
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Hear only this address, the publisher's; may be repeated."),
    ] = None,
    summary_port: Annotated[
        int, typer.Option("--summary-port", min=0, max=65535, help="Of summaries; 0: none.")
    ] = 26401,
    summary_address: Annotated[
        str,
        typer.Option(
            "--summary-address", help="This host's, which summaries come to where switches match."
        ),
    ] = "",
    rerequest: Annotated[
        str, typer.Option("--rerequest", help="host:port of the re-request service.")
    ] = "",
    events: Annotated[
        Literal["", "bitmask", "id_pairs"],
        typer.Option("--events", help="Hear attribute/value events in this encoding, without IP."),
    ] = "",
    widths: WidthsOption = USUAL,
    name: Annotated[
        str, typer.Option("--name", help="This host, for a service that identifies by name.")
    ] = "",
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", help="This host's keys: take authentic summaries alone."),
    ] = None,
    topic: Annotated[
        str, typer.Option("--topic", help="Hear its sessions only, and those even if silent.")
    ] = "",
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Of the topic: that many sessions.")
    ] = 1,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="From the first event on, not from now on.")
    ] = False,
    order: Annotated[
        Literal["arrival", "sequence"], typer.Option("--order", help="Of the messages that go on.")
    ] = "arrival",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, statistics as the last.")
    ] = False,
    as_hex: Annotated[bool, typer.Option("--hex", help="Messages as hex, of any format.")] = False,
    forward: Annotated[
        str, typer.Option("--forward", help="host:port that gets plain datagrams, each once.")
    ] = "",
    receipts: Annotated[
        Path | None, typer.Option("--receipts", help="File of datagrams, length before each.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, help="End after so long; 0: on Ctrl-C.")
    ] = 0.0,
    keep: Annotated[
        int, typer.Option("--keep", min=2, help="Notifications a session keeps until confirmed.")
    ] = 1 << 17,
    silence: Annotated[
        float, typer.Option("--silence", min=0.01, help="Seconds without summaries, then ask.")
    ] = 5.0,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, help="Seconds to wait for a first answer.")
    ] = 0.25,
    give_up: Annotated[
        float, typer.Option("--give-up", min=0, help="Seconds until it counts as lost; 0: never.")
    ] = 0.0,
    drop: Annotated[
        float, typer.Option("--drop", min=0, max=1, help="Trial: share to lose in each direction.")
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Of --drop: the same losses again.")] = 1,
) -> None:
    """Print what this host is sent, each message once, and ask again for what got lost.

    Without --rerequest what is lost is only told. Ctrl-C, SIGTERM or --seconds end it with
    statistics on standard error; losses are told there too. The exit code is 1 then, and where
    something that was announced is not there at the end, or with keys nobody proves what should be.
    """
    if from_start and not rerequest:
        raise typer.BadParameter("--from-start asks for what was sent before: give --rerequest")
    if forward and receipts:
        raise typer.BadParameter("give --forward or --receipts, and not both")
    keys = KeyFile(key_file) if key_file else None
    sessions = [session_id(topic, p) for p in range(partitions)] if topic else []
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
    heard = frozenset(map(source_address, source or ()))
    shape = event_reader(events, widths_of(widths)) if events else None
    if events and not listen:
        stream = event_socket(interface)
        at = summary_address or "0.0.0.0"
        summaries = listen_socket(at, summary_port) if summary_port else None
    elif listen:
        host, port = parse_endpoint(listen)
        stream = listen_socket(host, port)
        summaries = listen_socket(host, summary_port) if summary_port not in (0, port) else None
    else:
        stream = group_socket(group, port, interface, heard)
        apart = summary_port not in (0, port)
        summaries = None
        if apart and summary_address:
            summaries = listen_socket(summary_address, summary_port)
        elif apart:
            summaries = group_socket(group, summary_port, interface, heard)
    service = connected_socket(*parse_endpoint(rerequest)) if rerequest else None
    wires = Wires(stream, summaries, service, drop, dice, sources=heard, shape=shape)
    outlet: Outlet
    if forward:
        outlet = ForwardOutlet(*parse_endpoint(forward), wires.failures)
    elif receipts:
        outlet = ReceiptOutlet(receipts)
    else:
        outlet = LineOutlet(as_json, as_hex, itch=not events)
    where = listen or f"{group}:{port}{f' on {interface}' if interface else ''}"
    if events and not listen:
        where = interface
    tell(f"listening at {where}" + (f", a trial that loses {drop:.0%}" if drop else ""))
    receiver = Receiver(options, time.monotonic(), sessions)
    try:
        with stop_on_signal() as stop:
            run(receiver, wires, outlet, name, stop, seconds, keys)
    finally:
        wires.close()
        outlet.close()
    _end(receiver, wires, as_json)
    sessions_ = receiver.sessions()
    if (
        receiver.statistics.losses
        or any(covered < known for _, covered, known in sessions_.values())
        or receiver.unproven()
        or (receiver.statistics.forged and not sessions_)
    ):
        raise typer.Exit(1)


def run(
    receiver: Receiver,
    wires: Wires,
    outlet: Outlet,
    name: str,
    stop: StopRequest,
    seconds: float = 0.0,
    keys: KeyFile | None = None,
) -> None:
    """Carry datagrams between sockets, receiver and outlet until ``stop``, or for ``seconds``."""
    end = time.monotonic() + seconds if seconds else float("inf")
    cookie = b""
    asked: Sequence[Request] = ()

    def follow(out: Output) -> None:
        if out.deliveries:
            outlet.put(out.deliveries)
        if out.requests:
            ask(out.requests)
        for loss in out.losses:
            missing = "some" if loss.missing is None else f"{loss.missing:,}"
            tell(
                f"session {loss.session.decode('latin-1')}: {missing} notifications lost from "
                f"{loss.from_} up to {loss.until}: {loss.reason}"
            )

    def ask(requests: Sequence[Request]) -> None:
        nonlocal asked
        asked = requests
        wires.ask(request(r.session, r.sequence, r.count, name, cookie) for r in requests)

    def proven(answers: list[bytes]) -> list[bytes]:
        """What is no cookie; with one, what was asked for last is asked for again."""
        nonlocal cookie
        found = [(cookie_of(answer), answer) for answer in answers]
        if new := next((each for each, _ in found if each and each != cookie), b""):
            cookie = new
            ask(asked)
        return [answer for each, answer in found if not each]

    def pass_on(datagrams: Sequence[bytes], answer: bool = False) -> None:
        if datagrams:
            follow(receiver.receive(datagrams, time.monotonic(), answer))

    def take() -> bool:
        """Whether there may be more."""
        # A summary must not be read before the notifications that were sent before it.
        for _ in range(_ROUNDS):
            datagrams, more = wires.read(wires.stream)
            pass_on(datagrams)
            if not more:
                break
        answers, more_answers = wires.read(wires.service)
        pass_on(proven(answers), answer=True)
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
    # What has come by now counts.
    take()
    follow(receiver.end(time.monotonic()))


def _end(receiver: Receiver, wires: Wires, as_json: bool) -> None:
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
    if as_json:
        typer.echo(json.dumps({"statistics": counts, "sessions": rows}))
        return
    s = receiver.statistics
    tell(
        f"{s.delivered:,} notifications ({s.messages:,} messages): {s.received:,} received, "
        f"{s.duplicates + s.late:,} duplicates, {s.repaired:,} repaired by {s.requests:,} "
        f"requests, {s.missing:,} lost in {s.losses:,} ranges"
    )
    others = {
        "that contradict a summary": s.disputed,
        "summaries that no stream sends": s.suspicious,
        "summaries without a right tag": s.forged,
        "after they were told to be lost": s.belated,
        "of other addresses": wires.strangers,
        "unexpected": s.unexpected,
        "without room": s.overflowed,
        "malformed": s.malformed,
        "of other sessions": s.foreign,
        "thrown away for the trial": wires.thrown,
        **{f"failures of {what}": count for what, count in wires.failures.counts.items()},
    }
    if told := ", ".join(f"{number:,} {what}" for what, number in others.items() if number):
        tell(told)
    unproven = {name.decode("latin-1") for name in receiver.unproven()}
    for row in rows:
        lacks = row["complete"] < row["announced"]
        more = f"; something of what was announced up to {row['announced']} lacks" if lacks else ""
        if row["session"] in unproven:
            more += "; its last summary has no right tag, or none came: wrong keys, or a forger"
        tell(f"session {row['session']}: {row['state']}, complete up to {row['complete']}{more}")


class Outlet(Protocol):
    def put(self, deliveries: Sequence[Notification]) -> None: ...
    def close(self) -> None: ...


class LineOutlet:
    """A line a message: session, number, and the message as text, JSON or hex. itch: whether
    messages may be of ITCH; others are hex."""

    def __init__(self, as_json: bool, as_hex: bool, *, itch: bool = True) -> None:
        self._as_json, self._as_hex, self._itch = as_json, as_hex, itch

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
        row = message_row(message) if self._itch else None
        if self._as_json:
            fields = row if isinstance(row, dict) else {"hex": message.hex()}
            return json.dumps({"session": session, "sequence": sequence, **fields}) + "\n"
        text = message_text(row) if isinstance(row, dict) else message.hex()
        return f"{printable(session)} {sequence}  {text}\n"

    def close(self) -> None:
        """Lines are out already."""


class ForwardOutlet:
    """Each notification once, as the MoldUDP64 datagram that it is, to one address.

    One that cannot be sent is left out, and counted in ``failures``.
    """

    def __init__(self, host: str, port: int, failures: Failures) -> None:
        self._failures = failures
        self._socket = connected_socket(host, port)
        self._socket.setblocking(True)

    def put(self, deliveries: Sequence[Notification]) -> None:
        for delivery in deliveries:
            try:
                try:
                    self._socket.send(delivery.datagram)
                except OSError:
                    # The error may be of an earlier one; this one is not sent then.
                    self._socket.send(delivery.datagram)
            except OSError as error:
                self._failures.add("forwarding", error)

    def close(self) -> None:
        self._socket.close()


class ReceiptOutlet:
    """A file of datagrams, each with its length (u16, big-endian) before."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def put(self, deliveries: Sequence[Notification]) -> None:
        parts = (part for d in deliveries for part in (LENGTH.pack(len(d.datagram)), d.datagram))
        self._file.write(b"".join(parts))

    def close(self) -> None:
        self._file.close()
