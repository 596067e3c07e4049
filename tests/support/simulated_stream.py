"""A stream in a simulation: its real modules on tables, files, Kafka, clock and engine in memory.

Nothing here imports Spark, Delta or Kafka, opens a file, or sleeps.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import random
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from memory_files import MemoryFolder
from memory_handoffs import MemoryHandoffs
from memory_kafka import MemoryKafka
from memory_source import MemorySource
from memory_tables import MemoryTables
from numpy.typing import NDArray
from virtual_time import VirtualTime

from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.checkpoint.progress import Progress
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.jobs.adapters.stream.assembly import Systems, assemble, real_time
from stackcast.jobs.adapters.stream.checks import before_start
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.progress_reports import ProgressReports
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.jobs.adapters.tables.tables import LEDGER
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.lab.proof.checking import check_receipts
from stackcast.lab.proof.ledger import Offsets, check_ledger
from stackcast.lab.proof.receipts import Receipt, packet_receipt
from stackcast.lab.proof.recorded import Recorded, Window
from stackcast.lab.proof.summaries import SummaryTally, check_summaries
from stackcast.lab.proof.timeline import Timeline
from stackcast.lab.proof.verdict import DeliveryVerdict
from stackcast.lab.proof.verification import Batch, Expectation, expected
from stackcast.lab.traffic.itch_writer import itch_specification
from stackcast.lab.traffic.packets import groups
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import CheckedRule, check
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import session_id
from stackcast.udfs.network.ingresses import Ingresses
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.stacks.frame import DATAGRAM
from stackcast.udfs.trees.broadcast import broadcast_trees

TOPIC = "itch.raw"
PARTITIONS = 2
NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
TREES = broadcast_trees(NETWORK)
PUBLISHER = "feed1"
RULES = {
    "high": ("h1", "price > 200"),
    "side": ("h2", 'buy_sell == "B" and shares >= 300'),
    "edited": ("h3", "shares > 500"),
    "both": ("h1", "trade.price > 20 : fwd(h1, h4)"),
}
#: Methods that change something outside the process.
EFFECTS = ("append", "overwrite", "merge", "write", "replace", "remove")
#: Wall time at which a simulation begins.
START = 1_700_000_000.0
#: Filters that rule `edited` gets one after another.
EDITS = ("shares > 100", "shares > 700 or price < 50", "shares > 900")
#: Seconds after the last record, in which it is delivered.
STORY_END = 2.0
#: Share of the records that are truncated, which become dead letters.
TRUNCATED = 0.05
_ETHERNET, _STACK = 14, 16


class Kill(NamedTuple):
    """The end of a process.

    Attributes:
        effect: number of the effect before which it is killed; the first one has number 1.
        power: whether the machine loses its power, and with it all that is not on its disk.
    """

    effect: int
    power: bool = False


class Effects:
    """An object whose methods `EFFECTS` call a function first."""

    def __init__(self, target: Any, before: Callable[[], None]) -> None:
        self._target, self._before = target, before

    def folder(self, name: str) -> Effects:
        return Effects(self._target.folder(name), self._before)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._target, name)
        if name not in EFFECTS:
            return member

        def effect(*args: Any, **kwargs: Any) -> Any:
            self._before()
            return member(*args, **kwargs)

        return effect


class Hosts:
    """The network and its hosts. The forwarding model decides which hosts a frame reaches.

    Attributes:
        received: datagrams by host, in the order of their arrival.
    """

    def __init__(self) -> None:
        self._model = ForwardingModel(NETWORK, network_tables(NETWORK, TREES))
        self._reached = functools.cache(self._follow)
        self.received: dict[str, list[bytes]] = {host: [] for host in NETWORK.subscribers()}

    def receive(self, frame: bytes) -> None:
        """Pass a frame to the network."""
        end = _STACK + 2 * int.from_bytes(frame[_ETHERNET:_STACK])
        labels = struct.unpack(f">{(end - _STACK) // 2}H", frame[_STACK:end])
        for host in self._reached(labels):
            self.received[host].append(frame[end + DATAGRAM :])

    def receipts(self) -> dict[str, Iterator[Receipt]]:
        """Return the receipts of the hosts."""
        return {host: map(packet_receipt, rows) for host, rows in self.received.items()}

    def _follow(self, labels: tuple[int, ...]) -> tuple[str, ...]:
        delivery = self._model.deliver(PUBLISHER, labels)
        assert not delivery.loop and set(delivery.hosts.values()) <= {1}
        return tuple(delivery.hosts)


class Sink:
    """A sink whose frames reach the hosts one by one."""

    def __init__(self, hosts: Hosts, before: Callable[[], None]) -> None:
        self._hosts, self._before = hosts, before

    def send(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> int:
        for begin, end in itertools.pairwise(offsets.tolist()):
            self._before()
            self._hosts.receive(data[begin:end].tobytes())
        return len(offsets) - 1

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class OpenSink:
    """Opens sinks of a simulation, see `stackcast.udfs.delivery.sink.Opener`."""

    def __init__(self, hosts: Hosts, before: Callable[[], None]) -> None:
        self._hosts, self._before = hosts, before

    def place(self) -> str:
        return "simulation"

    def way(self, ingresses: Ingresses, publisher: str, switch: str) -> str:
        return publisher

    def __call__(self, way: Any = None) -> Sink:
        return Sink(self._hosts, self._before)


class Letters(list[dict[str, Any]]):
    """The topic of dead letters."""

    def write_dead_letters(self, letters: list[dict[str, Any]]) -> None:
        self.extend(letters)


class Deployment:
    """Everything that outlives the process of a stream.

    Args:
        rules: host and filter of each subscription, by its id.
        settings: settings that differ from those of the simulation.
    """

    def __init__(self, rules: Mapping[str, tuple[str, str]] = RULES, **settings: Any) -> None:
        self.settings = Settings(
            topic=TOPIC,
            publisher=PUBLISHER,
            tables="memory",
            checkpoint="memory",
            realtime_slice="500 milliseconds",
            udp_endpoint="127.0.0.1:1",
            **settings,
        )
        self.now = START
        self.kafka, self.hosts, self.letters = MemoryKafka(), Hosts(), Letters()
        self.kafka.create(TOPIC, PARTITIONS)
        self.disk = MemoryFolder()
        self.tables = MemoryTables(self)
        self.tables.create()
        self._packets = packets()
        for name, rows in network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "")).items():
            self.tables.append(name, rows)
        self.tables.append("virtual_trees", [tree_to_row(tree) for tree in TREES])
        self.tables.append("subscriptions", [self._rule(n, *rule) for n, rule in rules.items()])

    def wall_time(self) -> float:
        """Return the time of the next commit."""
        return self.now

    def publish(self, count: int) -> None:
        """Append records to all partitions in turn."""
        for number in range(count):
            time = round(self.now * 1_000_000)
            self.kafka.publish(TOPIC, number % PARTITIONS, next(self._packets), time)

    def edit(self, rule: str, text: str) -> None:
        """Change the filter of a rule."""
        (row,) = [row for row in self.tables.rows("subscriptions") if row["id"] == rule]
        self.tables.merge("subscriptions", [row | {"filter": text}], [], ("id",))

    def verdict(self) -> DeliveryVerdict:
        """Compare what hosts have received with rules, records and ledger, by brute force."""
        rows = sorted(self.tables.rows(LEDGER), key=lambda row: row["started_at"])
        topic = topic_of_row(rows[-1])
        recorded = [self._recorded(row) for row in rows]
        specification = itch_specification()

        def expect(window: Window) -> Expectation:
            log = self.kafka.log(TOPIC, window.partition)
            records = [
                (window.partition, record.offset, record.value)
                for record in log.records[window.start : window.until]
            ]
            timeline = timelines[window.partition]
            return expected(
                *(records, window.batches(), specification, topic),
                timeline=timeline,
                count=False,
            )

        timelines = [Timeline(specification) for _ in range(PARTITIONS)]
        verdict = check_receipts(expect, recorded, self.hosts.receipts(), topic)
        logs = {p: Offsets([(0, self.kafka.log(TOPIC, p).end)]) for p in range(PARTITIONS)}
        check_ledger(verdict, recorded, logs)
        return verdict

    def summaries(self) -> SummaryTally:
        """Compare the summaries of all hosts with the notifications that they have received."""
        topic = topic_of_row(self.tables.rows(LEDGER)[-1])
        ends = {session_id(topic, p): self.kafka.log(TOPIC, p).end for p in range(PARTITIONS)}
        return check_summaries(self.hosts.received, ends)

    def _recorded(self, row: Mapping[str, Any]) -> Recorded:
        versions = dict(row["versions"])
        rules = self._rules(versions["subscriptions"])
        offsets = {p["partition"]: (p["from_offset"], p["until_offset"]) for p in row["partitions"]}
        records = {p["partition"]: p["records"] for p in row["partitions"]}
        batch = Batch(row["batch_id"], offsets, rules)
        return Recorded(batch, versions, frozenset(), row["packets"], records)

    @functools.cache  # noqa: B019 - a test has few deployments
    def _rules(self, version: int) -> list[CheckedRule]:
        specification = itch_specification()
        rows = self.tables.rows("subscriptions", version)
        live, _ = select(rows, "itch", FORMATS, specification, lambda: [], 0)
        rules, rejections = check(live, specification, set(NETWORK.subscribers()), PUBLISHER)
        assert not rejections
        return list(rules)

    def _rule(self, name: str, host: str, text: str) -> dict[str, Any]:
        editor = {"updated_by": "test", "updated_at": dt.datetime.fromtimestamp(START, dt.UTC)}
        row = {"id": name, "subscriber": host, "format": "itch", "filter": text, "enabled": True}
        return row | editor


class Process:
    """A process that runs the stream of a deployment in real time.

    Args:
        deployment: the deployment.
        kill: when the process is killed; None if it is not.

    Attributes:
        effects: number of effects on the deployment so far.
        killed: whether the process was killed.
    """

    def __init__(self, deployment: Deployment, kill: Kill | None = None) -> None:
        self._deployment = deployment
        self._kill = kill
        self.effects, self.killed = 0, False
        self.time = VirtualTime(deployment.now + 1)
        self._started = self.time.start("start", self._start)
        self._stopping = False

    def run(self, seconds: float) -> bool:
        """Let time pass. Return whether the process still runs.

        Raises:
            Exception: the error by which the stream has ended.
        """
        self.time.block(lambda: self.killed, seconds)
        self._deployment.now = self.time.wall_time()
        if not self.killed and self._started.done():
            self._started.result()
            error = self._slices.exception()
            if error is not None:
                raise error
        return not self.killed

    def stop(self) -> bool:
        """End the stream. Return False if the process was killed before its end."""
        ended = self.time.start("stop", self._stop)
        self.time.block(lambda: self.killed or ended.done(), None)
        self._deployment.now = self.time.wall_time()
        if not self.killed:
            ended.result()
        return not self.killed

    def _start(self) -> None:
        outside, time = self._deployment, self.time
        settings = outside.settings
        tables: Any = Effects(outside.tables, self._before_effect)
        checkpoint: Any = Effects(outside.disk, self._before_effect)
        topics = TopicLog(outside.kafka, settings, time)
        systems = Systems(
            engine=time,
            slots=PARTITIONS,
            tables=tables,
            checkpoint=checkpoint,
            topics=topics,
            letters=outside.letters,
            open_sink=OpenSink(outside.hosts, self._before_effect),
            last_batch=None,
            stopping=lambda: self._stopping,
        )
        beginning = before_start(settings, checkpoint, tables, topics, _not_written)
        fence = Fence(tables, f"stream of {TOPIC}", (LEDGER,), time)
        query = Progress(checkpoint, TOPIC).identify()
        fence.claim(query, "simulation", settings.checkpoint)
        ending = ExitStack()
        metrics = StreamMetrics()
        self._delivery = assemble(settings, systems, beginning, fence, query, metrics, ending)
        source = MemorySource(outside.kafka, time)
        parts = self._delivery, source, 60.0, MemoryHandoffs(time)
        reports = ProgressReports(query, TOPIC, "memory", clock=time)
        self._slices = real_time(settings, systems, *parts, reports)
        self._slices.start()

    def _stop(self) -> None:
        self._started.result()
        self._stopping = True
        self._slices.stop()
        self._delivery.fence.check()
        self._delivery.flush_summaries()
        self._delivery.close()

    def _before_effect(self) -> None:
        self.effects += not self.killed
        if not self.killed and self._kill is not None and self._kill.effect == self.effects:
            self.killed = True
            if self._kill.power:
                self._deployment.disk.lose_power()
        if self.killed:
            # A killed process runs nothing more, not even its exception handlers.
            self.time.block(lambda: False, None)


def tell(deployment: Deployment, kills: Iterable[Kill] = ()) -> list[int]:
    """Publish and edit while processes of a stream run one after another, until all is recorded.

    Args:
        deployment: the deployment.
        kills: kills of the first processes. Later ones are not killed.

    Returns:
        The number of effects of each process.
    """
    remaining, effects = iter(kills), list[int]()

    def start() -> Process:
        return Process(deployment, next(remaining, None))

    def restart(killed: Process) -> Process:
        effects.append(killed.effects)
        return start()

    process = start()
    for seconds in _story(deployment):
        if not process.run(seconds):
            process = restart(process)
    while not process.stop():
        process = restart(process)
        process.run(STORY_END)
    return [*effects, process.effects]


def _story(deployment: Deployment) -> Iterator[float]:
    """Publish and edit, and yield the seconds that pass after each step."""
    for number, text in enumerate(EDITS):
        for _ in range(3):
            deployment.publish(9)
            yield 0.2
        deployment.edit("edited", text)
        # The first edit is followed by a pause, in which slices have no records.
        yield 0.05 if number else 1.5
    deployment.publish(7)
    yield STORY_END


def _not_written(error: OSError) -> StackcastError:
    raise error


def packets() -> Iterator[bytes]:
    """Yield packets of trading sessions without end; some are truncated."""
    draw = random.Random(7)
    for seed in itertools.count(1):
        messages = list(TradingSession(messages=500, seed=seed, symbols=20))
        for group in groups(messages, seed=seed):
            packet = build_packet(b"SOURCE0001", 1, group)
            yield packet[:-3] if draw.random() < TRUNCATED else packet
