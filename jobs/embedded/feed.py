"""A publisher's feed straight into the network, sent by the jobs' own sinks."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, tee
from typing import NamedTuple

import numpy as np

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK
from stackcast.jobs.adapters.wire import Sink
from stackcast.lab.traffic.feed import GROUPS, event_frames, feed_frames
from stackcast.lab.traffic.packets import new_packets, session_of
from stackcast.lab.traffic.publisher import Speed, paced
from stackcast.lab.traffic.topic_log import TopicLog
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.sequence import Topic, sequence_number, session_id
from stackcast.udfs.network.network import Host
from stackcast.udfs.stop_request import StopRequest

log = logging.getLogger("stackcast.lab")

_AT_ONCE = 64
_PROGRESS_SECONDS = 5.0


class Share(NamedTuple):
    """What one of several publishers sends: of so many, by its number from 0 on, every record whose
    place has that remainder."""

    number: int = 0
    of: int = 1

    @property
    def partition(self) -> int | None:
        """The partition of a topic that has its records; None: any."""
        return self.number if self.of > 1 else None

    def take(self, records: Iterable[bytes]) -> Iterable[bytes]:
        """Returns its records."""
        return islice(records, self.number, None, self.of)


@dataclass(frozen=True)
class Fed:
    """A session that was fed into the network, and the time it took.

    packets: the publisher's number, that of the packet, bytes; of each in order. Of events, whole
    frames. topic: where the packets are, if they were written to one before.
    """

    packets: Sequence[tuple[int, int, bytes]]
    messages: int
    seconds: float
    topic: Topic | None = None


ALL = Share()


def _log(messages: int, packets: int) -> None:
    log.info("sent %d messages in %d packets into the network", messages, packets)


def feed(
    settings: Settings,
    publisher: Host,
    sink: Sink,
    records: Iterable[bytes],
    stop: StopRequest,
    progress: Callable[[int, int], None] = _log,
    share: Share = ALL,
    topic: TopicLog | None = None,
    *,
    speed: str = "full",
    seed: int = 1,
) -> Fed:
    """Sends a session's messages; returns when the far end has processed every packet.

    ``stop`` ends it early. ``progress`` is told messages and packets now and then. share: of the
    records, in a session of its own. topic: where each packet is on record before it is sent, under
    the number of its place there, each of several publishers' in a partition of their own; without
    it, a packet has the number of its first message. speed: as `Speed.parse` reads it. seed: of the
    sizes of packets.
    Raises SinkError, LabError ``PACKET_TOO_LARGE``, KafkaError ``NOT_PUBLISHED``.
    """
    began = shown = SYSTEM_CLOCK.monotonic()
    group = int(ipaddress.IPv4Address(settings.group))
    sent: list[tuple[int, int, bytes]] = []
    messages = 0
    pace = Speed.parse(speed)
    packets = paced(new_packets(share.take(records), session_of(share.number), seed), pace, stop)
    at_once = _AT_ONCE if pace.kind == "full" else 1
    while several := list(islice(packets, at_once)):
        payloads = [packet for packet, _ in several]
        if topic is not None:
            places = topic.append(payloads, share.partition)
            payloads = [topic.numbered(*each) for each in zip(payloads, places, strict=True)]
        frames = feed_frames(payloads, publisher, group, settings.port, mtu=settings.mtu)
        _send(sink, list(frames))
        sent += ((share.number, int.from_bytes(packet[10:18]), packet) for packet in payloads)
        messages += sum(len(own) for _, own in several)
        if SYSTEM_CLOCK.monotonic() - shown > _PROGRESS_SECONDS:
            shown = SYSTEM_CLOCK.monotonic()
            progress(messages, len(sent))
    sink.flush()
    return Fed(sent, messages, SYSTEM_CLOCK.monotonic() - began, topic and topic.topic)


def feed_events(
    settings: Settings,
    publisher: Host,
    registry: Registry,
    sink: Sink,
    records: Iterable[bytes],
    stop: StopRequest,
    progress: Callable[[int, int], None] = _log,
    share: Share = ALL,
    topic: TopicLog | None = None,
    *,
    speed: str = "full",
) -> Fed:
    """Sends JSON records as attribute/value events, as `feed` does.

    In the encoding that the settings name; in both in turn where they name none.

    Raises SinkError, MessageError for a record that is no event.
    """
    began = shown = SYSTEM_CLOCK.monotonic()
    pace = Speed.parse(speed)
    sent: list[tuple[int, int, bytes]] = []
    named = "attributes.encoding" in settings.given
    encodings = (settings.attributes_encoding,) if named else tuple(GROUPS)
    session = session_of(share.number)
    given, keys = share.take(records), None
    if topic is not None:
        placed, again = tee(_placed(given, topic, share))
        given, keys = (record for record, _ in placed), (key for _, key in again)
    events = event_frames(given, publisher, registry, encodings, session, keys=keys)
    made = ((each, []) for each in events)
    frames = paced(made, pace, stop)
    at_once = _AT_ONCE if pace.kind == "full" else 1
    while several := [frame for frame, _ in islice(frames, at_once)]:
        _send(sink, [each.frame for each in several])
        sent += ((share.number, each.sequence, each.frame) for each in several)
        if SYSTEM_CLOCK.monotonic() - shown > _PROGRESS_SECONDS:
            shown = SYSTEM_CLOCK.monotonic()
            progress(len(sent), len(sent))
    sink.flush()
    return Fed(sent, len(sent), SYSTEM_CLOCK.monotonic() - began, topic and topic.topic)


def _placed(
    records: Iterable[bytes], topic: TopicLog, share: Share
) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
    """Puts records on record, and yields each with the session and number of its place."""
    left = iter(records)
    while several := list(islice(left, _AT_ONCE)):
        for record, place in zip(several, topic.append(several, share.partition), strict=True):
            session = session_id(topic.topic, place.partition)
            yield record, (session, sequence_number(place.offset, 0))


def _send(sink: Sink, frames: Sequence[bytes]) -> None:
    offsets = np.zeros(len(frames) + 1, np.int64)
    np.cumsum([len(frame) for frame in frames], out=offsets[1:])
    sink.send(np.frombuffer(b"".join(frames), np.uint8), offsets)
