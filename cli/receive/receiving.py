"""Receives a stream as a host, and requests lost notifications again."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

import typer

from stackcast.cli.attributes.event_lines import EventReader
from stackcast.cli.deployment import Deployment
from stackcast.cli.receive.failures import tell
from stackcast.cli.receive.host_watch import HostWatch
from stackcast.cli.receive.key_file import KeyFile
from stackcast.cli.receive.options import (
    OutputOptions,
    RecoveryOptions,
    StreamOptions,
    TopicOptions,
    TrialOptions,
)
from stackcast.cli.receive.outlets import open_outlet
from stackcast.cli.receive.reception import Reception
from stackcast.cli.receive.sockets import Wires
from stackcast.cli.receive.stream_sockets import open_wires
from stackcast.cli.signals import stop_on_signal
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.wire.udp import parse_endpoint
from stackcast.udfs.messages.recovery.receiver import Receiver, ReceiverOptions
from stackcast.udfs.messages.sequence import Topic, session_id

#: Addresses at which a service listens on all interfaces.
_ANY = ("0.0.0.0", "::", "[::]")


@dataclass(frozen=True)
class ReceiveOptions:
    """Options of ``stackcast receive``, except those of the deployment."""

    stream: StreamOptions
    recovery: RecoveryOptions
    topic: TopicOptions
    trial: TrialOptions
    output: OutputOptions


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
    stream, recovery, trial, output = (
        options.stream,
        options.recovery,
        options.trial,
        options.output,
    )
    settings = deployment.settings
    rerequest = _service(settings) if recovery.rerequest is None else recovery.rerequest
    if recovery.from_start and not rerequest:
        raise typer.BadParameter("--from-start requests earlier messages: give --rerequest")
    event_frames: str | None = stream.event_frames
    if event_frames is None and deployment.has_events and settings.match == "network":
        event_frames = deployment.encoding or settings.attributes_encoding
    reader = None if output.as_hex else deployment.events()
    keys = KeyFile(stream.key_file) if stream.key_file else None
    receiver_options = _receiver_options(recovery, output, bool(rerequest))
    place, wires = open_wires(stream, trial, deployment, event_frames, rerequest)
    outlet = open_outlet(output, deployment.has_events, reader, wires.failures)
    watch = HostWatch(wires, place, time.monotonic())
    receiver = Receiver(receiver_options, time.monotonic(), _sessions(options.topic))
    try:
        with stop_on_signal() as stop:
            lossy = f", discarding {trial.drop:.0%} of all datagrams" if trial.drop else ""
            tell(f"listening at {place}{lossy}")
            _hint(output, deployment, reader, wires)
            reception = Reception(receiver, wires, outlet, watch, recovery.name, keys)
            reception.run(stop, trial.seconds)
        is_deaf = watch.end(time.monotonic())
        drops = wires.drops()
    finally:
        wires.close()
        outlet.close()
    _print_end(receiver, wires, drops, output.as_json)
    return not (is_deaf or (drops and not rerequest)) and _is_complete(receiver)


def _receiver_options(
    recovery: RecoveryOptions, output: OutputOptions, asks: bool
) -> ReceiverOptions:
    return ReceiverOptions(
        order=output.order,
        from_start=recovery.from_start,
        asks=asks,
        limit=recovery.keep,
        silence=recovery.silence,
        timeout=recovery.timeout,
        give_up=recovery.give_up or None,
    )


def _sessions(options: TopicOptions) -> list[bytes]:
    """Return the sessions of a topic; none without a topic."""
    topic = Topic(options.topic, options.topic_id or "", options.generation)
    partitions = range(options.partitions) if options.topic else ()
    return [session_id(topic, partition) for partition in partitions]


def _hint(
    output: OutputOptions, deployment: Deployment, reader: EventReader | None, wires: Wires
) -> None:
    """Print hints on publishers, names of attributes and sizes of buffers."""
    if not wires.sources:
        except_own = ", except this host itself" if wires.own else ""
        tell(
            "publishers are not restricted: datagrams of all senders are accepted"
            f"{except_own}; give --source with the address of each publisher"
        )
    prints_text = not (output.forward or output.receipts or output.as_hex)
    if deployment.has_events and reader is None and prints_text:
        tell(
            "the names of the attributes are unknown, so events are printed as hex: give "
            "--attributes with a file that 'stackcast attributes export' writes"
        )
    if text := wires.buffer_shortfall():
        tell(text)


def _is_complete(receiver: Receiver) -> bool:
    """Whether all announced notifications have arrived, and summaries are authentic."""
    states = receiver.sessions()
    return not (
        receiver.statistics.losses
        or any(complete < announced for _, complete, announced in states.values())
        or receiver.catching_up()
        or receiver.unproven()
        or (receiver.statistics.forged and not states)
    )


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


def _print_end(receiver: Receiver, wires: Wires, drops: int, as_json: bool) -> None:
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
