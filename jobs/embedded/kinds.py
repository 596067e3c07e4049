"""Kinds of runs of the embedded default: a trading session, or measurements of sensors.

Each kind makes its records, sends them, and says how the proof reads them; all else of a run is the
same.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.planning.specifications import registry_of
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.wire import Sink
from stackcast.jobs.embedded import feed as network_feed
from stackcast.jobs.embedded.options import DEFAULT, RunOptions
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

FAULTS = 0.01


class RunKind(ABC):
    """One kind of run.

    Attributes:
        noun: name of its messages in logs.
        defaults: values of options that depend on the kind.
        options: options of the lab, with these defaults.
    """

    noun: str
    defaults: Mapping[str, Any]

    in_topic: bool = False
    """Whether what goes straight into the network may be in a topic too, for a stream beside it."""

    def __init__(self, options: RunOptions = DEFAULT) -> None:
        self.options = options.with_defaults(network="fabric", **self.defaults)

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
            self.options.subscriptions,
            self.options.seed,
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

    def _partitions(self, settings: Settings) -> int:
        """Return the number of partitions of the topic.

        Each of several publishers has one. If switches match, the events of one publisher have one
        order.
        """
        publishers = self.options.publishers
        return publishers if settings.match == "network" else max(2, publishers)

    receipt: Callable[[bytes], receipts.Receipt] = staticmethod(receipts.packet_receipt)
    """Reads a datagram that a host received from switches that match."""

    framing: verification.Framing = verification.PACKETS
    """The framing of plain frames from publishers into switches that match."""


class SessionRun(RunKind):
    """ITCH messages in MoldUDP64 packets."""

    noun = "messages"
    defaults: ClassVar = {"messages": 100_000, "subscriptions": 1000, "speed": "10000"}
    in_topic = True

    def source(self, settings: Settings, folder: Path) -> AbstractContextManager[Wait]:
        return _session(self.options, folder)

    def publish(
        self, settings: Settings, source: Path | None, stop: StopRequest,
        progress: Callable[[Published], None] | None = None,
    ) -> Published:  # fmt: skip
        servers, topic = settings.kafka["bootstrap.servers"], settings.topic
        if source is None:
            return publish(servers, topic, (), partitions=self._partitions(settings))
        with open_records(source) as messages:
            return publish(
                servers,
                topic,
                messages,
                speed=self.options.speed,
                seed=self.options.seed,
                partitions=self._partitions(settings),
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
                settings,
                publisher,
                sink,
                records,
                stop,
                progress,
                share,
                topic,
                speed=self.options.speed,
                seed=self.options.seed,
            )


class SensorRun(RunKind):
    """Attribute/value events, a JSON object a line.

    A record is one event, so a run has fewer messages than a trading session. Rules overlap in many
    attributes, so fewer of them make as many table entries.
    """

    noun = "events"
    defaults: ClassVar = {"messages": 20_000, "subscriptions": 200, "speed": "2000"}
    receipt = staticmethod(receipts.event_receipt)
    framing = attribute_reader.FRAMES

    @contextmanager
    def source(self, settings: Settings, folder: Path) -> Iterator[Wait]:
        path = folder / "sensors.jsonl"
        matched = settings.match == "network"

        def write() -> Path:
            # What goes straight onto a wire has ids already, and cannot be damaged JSON.
            made = sensors.events(
                self.options.messages,
                self.options.seed,
                0.0 if matched else FAULTS,
                late=not matched,
            )
            path.write_bytes(b"".join(record + b"\n" for record in made))
            return path

        yield SYSTEM_THREADS.start("session", write).result

    def rows(self, settings: Settings, network: Network, p4runtime: str) -> Mapping[str, Any]:
        return deployment.rows(
            network,
            p4runtime,
            self.options.subscriptions,
            self.options.seed,
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
            speed=self.options.speed,
            partitions=self._partitions(settings),
            stop=stop,
            progress=progress,
        )

    def feed(
        self, settings: Settings, tables: Tables, publisher: Host, sink: Sink, source: Path,
        stop: StopRequest, progress: Callable[[int, int], None],
        share: network_feed.Share = network_feed.ALL, topic: TopicLog | None = None,
    ) -> network_feed.Fed:  # fmt: skip
        registry = registry_of(tables, settings.widths)
        records = source.read_bytes().splitlines()
        return network_feed.feed_events(
            settings,
            publisher,
            registry,
            sink,
            records,
            stop,
            progress,
            share,
            topic,
            speed=self.options.speed,
        )

    def registry(
        self, settings: Settings, tables: Tables, version: int | None = None
    ) -> Registry | None:
        return registry_of(tables, settings.widths, version)

    def reader(self, settings: Settings, specification: Specification) -> verification.RecordReader:
        return attribute_reader.event_reader(
            settings.attributes_input,
            settings.attributes_encoding,
            formats.longest_event(settings),
        )

    def frame_reader(self) -> verification.RecordReader | None:
        return attribute_reader.frame_reader()


@contextmanager
def _session(options: RunOptions, folder: Path) -> Iterator[Callable[[], Path]]:
    """Generates the session in a process of its own; yields a function that waits for the file."""
    if options.session:
        recorded = Path(options.session)
        yield lambda: recorded
        return
    path = folder / "session.NASDAQ_ITCH50"
    command = [sys.executable, "-m", "stackcast.lab.traffic.trading_session", "--out", str(path)]
    for option, value in (
        ("--messages", options.messages),
        ("--seed", options.seed),
        ("--symbols", options.symbols),
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
