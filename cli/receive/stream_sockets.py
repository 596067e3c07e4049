"""Sockets for a stream, by options: frames of an interface, unicast or a multicast group."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass

from stackcast.cli.deployment import Deployment
from stackcast.cli.receive.memberships import EventMembership, GroupMembership, Membership
from stackcast.cli.receive.options import StreamOptions, TrialOptions
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
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire.udp import parse_endpoint


@dataclass(frozen=True)
class StreamSockets:
    """Open sockets for a stream.

    Attributes:
        place: where they listen, as text.
        stream: socket of notifications, and of summaries without a socket of their own.
        summaries: socket of summaries, if they have one.
        membership: group or interface that the sockets have joined.
        on_loopback: whether all senders are programs of this host, such as publishers of a test.
    """

    place: str
    stream: socket.socket
    summaries: socket.socket | None = None
    membership: Membership | None = None
    on_loopback: bool = False


def open_wires(
    options: StreamOptions,
    trial: TrialOptions,
    deployment: Deployment,
    event_frames: str | None,
    rerequest: str,
) -> tuple[str, Wires]:
    """Open all sockets, and return the place that they listen at as text.

    Args:
        options: options of the stream.
        trial: losses to simulate.
        deployment: deployment with the defaults of the options.
        event_frames: encoding of frames of events; None for UDP datagrams.
        rerequest: address of the re-request service; empty if there is none.

    Raises:
        typer.BadParameter: an address cannot be used.
        ReceiveError: a socket cannot be opened.
    """
    sources = frozenset(map(source_address, options.source or ()))
    sockets = _stream_sockets(options, deployment.settings, bool(event_frames), sources)
    service = None
    if rerequest:
        service = connected_socket("--rerequest", *parse_endpoint(rerequest, "--rerequest"))
    return sockets.place, Wires(
        sockets.stream,
        sockets.summaries,
        service,
        trial.drop,
        random.Random(trial.seed),
        sources=sources,
        own=() if sockets.on_loopback else OwnAddresses(),
        shape=event_reader(event_frames, deployment.widths) if event_frames else None,
        membership=sockets.membership,
    )


def _stream_sockets(
    options: StreamOptions, settings: Settings, has_event_frames: bool, sources: frozenset[str]
) -> StreamSockets:
    """Choose and open the sockets of a stream."""
    summary_port = options.summary_port
    if summary_port is None:
        summary_port = settings.summary_port
    if options.listen:
        return _unicast_sockets(options.listen, summary_port)
    if has_event_frames:
        return _frame_sockets(options, summary_port)
    port = options.port or settings.port
    return _group_sockets(options, options.group or settings.group, port, summary_port, sources)


def _unicast_sockets(listen: str, summary_port: int) -> StreamSockets:
    host, port = parse_endpoint(listen, "--listen")
    stream = listen_socket(host, port)
    on_loopback = is_loopback(stream.getsockname()[0])
    summaries = listen_socket(host, summary_port) if summary_port not in (0, port) else None
    return StreamSockets(listen, stream, summaries, on_loopback=on_loopback)


def _frame_sockets(options: StreamOptions, summary_port: int) -> StreamSockets:
    stream = event_socket()
    membership = EventMembership(stream, options.interface)
    summaries, on_loopback = None, False
    if summary_port:
        summaries = listen_socket(options.summary_address or "0.0.0.0", summary_port)
        on_loopback = is_loopback(summaries.getsockname()[0])
    return StreamSockets(options.interface, stream, summaries, membership, on_loopback)


def _group_sockets(
    options: StreamOptions, group: str, port: int, summary_port: int, sources: frozenset[str]
) -> StreamSockets:
    interface = options.interface
    place = f"{group}:{port}{f' on {interface}' if interface else ''}"
    stream = group_socket(group, port)
    summaries, members = None, [stream]
    if summary_port not in (0, port):
        if options.summary_address:
            summaries = listen_socket(options.summary_address, summary_port)
        else:
            summaries = group_socket(group, summary_port)
            members.append(summaries)
    membership = GroupMembership(members, group, interface, sources)
    return StreamSockets(place, stream, summaries, membership, membership.on_loopback)
