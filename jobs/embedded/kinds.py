"""Kinds of runs of the embedded default: a trading session, or measurements of sensors.

Each kind makes its records, sends them, and says how the proof reads them; all else of a run is the
same.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.wire import Sink
from stackcast.jobs.embedded import feed as network_feed
from stackcast.lab.proof import attribute_reader, receipts, verification
from stackcast.lab.traffic import sensors
from stackcast.lab.traffic.packets import open_records
from stackcast.lab.traffic.publisher import Published, publish, publish_records
from stackcast.lab.traffic.topic_log import TopicLog
from stackcast.lab.up import deployment
from stackcast.lab.up.process import start_tied, stop_process
from stackcast.udfs.errors import LabError
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.network import Host, Network
from stackcast.udfs.stop_request import StopRequest

Wait = Callable[[], Path]
T = TypeVar("T")

#: Sensors' records are one event each, so a run of them has fewer than a trading session.
EVENTS = 20_000
FAULTS = 0.01


class RunKind(ABC):
    """One kind of run. ``noun``: what its messages are called in logs."""

    noun: str

    in_topic: bool = False
    """Whether what goes straight into the network may be in a topic too, for a stream beside it."""

    @abstractmethod
    def source(self, settings: Settings, folder: Path) -> AbstractContextManager[Wait]:
        """Begins to make the records; yields a function that waits for their file."""

    @abstractmethod
    def publish(
        self, settings: Settings, source: Path | None, stop: StopRequest,
        progress: Callable[[Published], None] | None = None,
    ) -> Published:  # fmt: skip
        """Sends the records to the topic; without a source only makes the topic. ``progress`` is
        told now and then what has been sent."""

    @abstractmethod
    def feed(
        self, settings: Settings, tables: Tables, publisher: Host, sink: Sink, source: Path,
        stop: StopRequest, progress: Callable[[int, int], None],
        share: network_feed.Share = network_feed.ALL, topic: TopicLog | None = None,
    ) -> network_feed.Fed:  # fmt: skip
        """Sends a share of the records straight into the network; ``progress`` as of
        `stackcast.jobs.embedded.feed`."""

    def rows(self, settings: Settings, network: Network, p4runtime: str) -> Mapping[str, Any]:
        """Returns the rows of the lab's tables."""
        return deployment.rows(
            network,
            p4runtime,
            settings.lab_subscriptions,
            settings.lab_seed,
            match=settings.match,
            message_format=settings.format,
        )

    def registry(
        self, settings: Settings, tables: Tables, version: int | None = None
    ) -> Registry | None:
        """Returns the attributes that records name, if they do."""
        return None

    def reader(self, settings: Settings, specification: Specification) -> verification.RecordReader:
        """Returns the proof's reader of the topic's records, whatever is advertised."""
        return verification.packet_reader(specification)

    def frame_reader(self) -> verification.RecordReader | None:
        """Returns the proof's reader of what `feed` says was sent; None for packets of messages."""
        return None

    receipt: Callable[[bytes], receipts.Receipt] = staticmethod(receipts.packet_receipt)
    """Reads a datagram that a host received from switches that match."""

    framing: verification.Framing = verification.PACKETS
    """The framing of plain frames from publishers into switches that match."""


class SessionRun(RunKind):
    """ITCH messages in MoldUDP64 packets."""

    noun = "messages"
    in_topic = True

    def source(self, settings: Settings, folder: Path) -> AbstractContextManager[Wait]:
        return _session(settings, folder)

    def publish(
        self, settings: Settings, source: Path | None, stop: StopRequest,
        progress: Callable[[Published], None] | None = None,
    ) -> Published:  # fmt: skip
        servers, topic = settings.kafka["bootstrap.servers"], settings.topic
        if source is None:
            return publish(servers, topic, (), partitions=_partitions(settings))
        with open_records(source) as messages:
            return publish(
                servers,
                topic,
                messages,
                speed=settings.lab_speed,
                seed=settings.lab_seed,
                partitions=_partitions(settings),
                stop=stop,
                progress=progress,
            )

    def feed(
        self, settings: Settings, tables: Tables, publisher: Host, sink: Sink, source: Path,
        stop: StopRequest, progress: Callable[[int, int], None],
        share: network_feed.Share = network_feed.ALL, topic: TopicLog | None = None,
    ) -> network_feed.Fed:  # fmt: skip
        with open_records(source) as records:
            return network_feed.feed(
                settings, publisher, sink, records, stop, progress, share, topic
            )


class SensorRun(RunKind):
    """Attribute/value events, a JSON object a line."""

    noun = "events"
    receipt = staticmethod(receipts.event_receipt)
    framing = attribute_reader.FRAMES

    @contextmanager
    def source(self, settings: Settings, folder: Path) -> Iterator[Wait]:
        count = settings.lab_messages if "lab.messages" in settings.given else EVENTS
        path = folder / "sensors.jsonl"
        matched = settings.match == "network"

        def write() -> Path:
            # What goes straight onto a wire has ids already, and cannot be damaged JSON.
            made = sensors.events(
                count, settings.lab_seed, 0.0 if matched else FAULTS, late=not matched
            )
            path.write_bytes(b"".join(record + b"\n" for record in made))
            return path

        yield in_background(write).result

    def rows(self, settings: Settings, network: Network, p4runtime: str) -> Mapping[str, Any]:
        return deployment.rows(
            network,
            p4runtime,
            settings.lab_subscriptions,
            settings.lab_seed,
            match=settings.match,
            message_format=settings.format,
            late=settings.match != "network",
        )

    def publish(
        self, settings: Settings, source: Path | None, stop: StopRequest,
        progress: Callable[[Published], None] | None = None,
    ) -> Published:  # fmt: skip
        return publish_records(
            settings.kafka["bootstrap.servers"],
            settings.topic,
            () if source is None else source.read_bytes().splitlines(),
            speed=settings.lab_speed,
            partitions=_partitions(settings),
            stop=stop,
            progress=progress,
        )

    def feed(
        self, settings: Settings, tables: Tables, publisher: Host, sink: Sink, source: Path,
        stop: StopRequest, progress: Callable[[int, int], None],
        share: network_feed.Share = network_feed.ALL, topic: TopicLog | None = None,
    ) -> network_feed.Fed:  # fmt: skip
        registry = formats.registry_of(tables, settings.widths)
        records = source.read_bytes().splitlines()
        return network_feed.feed_events(
            settings, publisher, registry, sink, records, stop, progress, share, topic
        )

    def registry(
        self, settings: Settings, tables: Tables, version: int | None = None
    ) -> Registry | None:
        return formats.registry_of(tables, settings.widths, version)

    def reader(self, settings: Settings, specification: Specification) -> verification.RecordReader:
        return attribute_reader.event_reader(
            settings.attributes_input,
            settings.attributes_encoding,
            formats.longest_event(settings),
        )

    def frame_reader(self) -> verification.RecordReader | None:
        return attribute_reader.frame_reader()


def _partitions(settings: Settings) -> int:
    """Each of several publishers has a partition; where switches match, the events of one have one
    order."""
    return (
        settings.lab_publishers if settings.match == "network" else max(2, settings.lab_publishers)
    )


def in_background(work: Callable[[], T]) -> Future[T]:
    """Runs ``work`` on a thread that does not keep the program alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@contextmanager
def _session(settings: Settings, folder: Path) -> Iterator[Callable[[], Path]]:
    """Generates the session in a process of its own; yields a function that waits for the file."""
    if settings.lab_session:
        path = Path(settings.lab_session)
        if not path.is_file():
            raise LabError(
                "NO_SESSION", f"there is no file {path}: set spark.stackcast.lab.session"
            )
        yield lambda: path
        return
    path = folder / "session.NASDAQ_ITCH50"
    command = [sys.executable, "-m", "stackcast.lab.traffic.trading_session", "--out", str(path)]
    for option, value in (
        ("--messages", settings.lab_messages),
        ("--seed", settings.lab_seed),
        ("--symbols", settings.lab_symbols),
    ):
        command += [option, str(value)]
    with (folder / "generate.log").open("wb") as output:
        child = start_tied(command, stdout=output, stderr=output)

    def wait() -> Path:
        if child.wait() != 0:
            text = (folder / "generate.log").read_text()[-2000:]
            raise LabError("NO_SESSION", f"the trading session could not be generated: {text}")
        return path

    try:
        yield wait
    finally:
        stop_process(child, 5)
