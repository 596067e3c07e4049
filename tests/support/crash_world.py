"""A deployment for streams that are killed.

It fills a topic and edits a table while streams run, and its hosts keep receipts.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import os
import random
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from crashing_stream import Story, committed
from following import drain
from kafka import KafkaProducer
from paths import ROOT, SUPPORT
from pyspark.sql import SparkSession
from table_edits import change
from waiting import until

from stackcast.jobs import check_delivery
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.fabric.network import Ingress
from stackcast.lab.proof.receipts import receipts
from stackcast.lab.proof.verdict import DeliveryVerdict
from stackcast.lab.traffic.packets import groups
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up.broker import Broker
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.summaries import is_summary
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.stacks.frame import DATAGRAM
from stackcast.udfs.stacks.link_layer import ETHERTYPE_IPV4
from stackcast.udfs.trees.broadcast import broadcast_trees

MARK = "STACKCAST_TEST_MARK"
NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
TREES = broadcast_trees(NETWORK)
PUBLISHER = "feed1"
#: The same hosts and trees as `NETWORK`, with one publisher per partition.
SEVERAL = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1, publishers=2)
#: Limits waits, so that a test that hangs ends.
WAIT_S = 600
#: Maximum records per batch.
BATCH = 60
#: Share of the records that are truncated, so that most batches have dead letters.
TRUNCATED = 0.05
#: One edit of the subscriptions per that many published records.
EDIT_RECORDS = 2 * BATCH
RULES = {
    "high": ("h1", "price > 200"),
    "side": ("h2", 'buy_sell == "B" and shares >= 300'),
    "edited": ("h3", "shares > 500"),
    "both": ("h1", "trade.price > 20 : fwd(h1, h4)"),
    "state": ("h4", "count(10000000) > 50 and price > 0"),
}
_STACK = 16
_ETHERNET = 14


class Hosts:
    """The remote ends of the publishers' tunnels, and the network and hosts behind them.

    The forwarding model decides which hosts a frame reaches. Each host writes its copy to a file
    before the frame is acknowledged.

    Attributes:
        frames_by_ingress: number of frames per ingress, by its index as text.
    """

    def __init__(self, folder: Path, network: Network, publishers: Sequence[str]) -> None:
        self._model = ForwardingModel(network, network_tables(network, TREES))
        self._publishers = publishers
        receipts = folder / "receipts"
        receipts.mkdir()
        self._files = {
            host: (receipts / f"{host}.mold").open("wb", buffering=0)
            for host in network.subscribers()
        }
        self._hosts_reached = cache(self._follow)
        self.frames_by_ingress: Counter[str] = Counter()
        self._ingresses = [Ingress(str(index), self._take) for index in range(len(publishers))]
        self.addresses = [ingress.address for ingress in self._ingresses]
        self._ending = threading.Event()
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        self._thread.join()
        for ingress in self._ingresses:
            ingress.close()
        for file in self._files.values():
            file.close()

    def _follow(self, publisher: str, labels: tuple[int, ...]) -> tuple[str, ...]:
        delivery = self._model.deliver(publisher, labels)
        assert not delivery.loop and set(delivery.hosts.values()) == {1}
        return tuple(delivery.hosts)

    def _take(self, index: str, frame: bytes, _arrived: float) -> None:
        labels = int.from_bytes(frame[_ETHERNET:_STACK])
        stack = frame[_STACK : _STACK + 2 * labels]
        payload = frame[_STACK + 2 * labels + DATAGRAM :]
        assert int.from_bytes(frame[12:14]) != ETHERTYPE_IPV4
        if not is_summary(payload):
            assert dissect(frame).labels
        publisher = self._publishers[int(index)]
        for host in self._hosts_reached(publisher, struct.unpack(f">{labels}H", stack)):
            self._files[host].write(len(payload).to_bytes(2) + payload)
        self.frames_by_ingress[index] += 1

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for ingress in self._ingresses:
                selector.register(ingress, selectors.EVENT_READ)
            while not self._ending.is_set():
                if any(ingress.backlog for ingress in self._ingresses) or selector.select(0.1):
                    try:
                        for ingress in self._ingresses:
                            ingress.receive()
                    except Exception as error:
                        self.errors.append(error)
                        return
                    for ingress in self._ingresses:
                        ingress.answer()


class World:
    """One deployment: `start` starts its stream, `prove` checks what the hosts received."""

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        tables: Tables,
        folder: Path,
        latency: str = "microbatch",
        network: Network = NETWORK,
        rules: Mapping[str, tuple[str, str]] = RULES,
        alone: bool = False,
    ) -> None:
        """Create the topics and, unless another world has filled them, the tables.

        Args:
            latency: value of ``spark.stackcast.latency``.
            network: network whose publishers have one tunnel each.
            rules: host and filter of each subscription, by its id.
            alone: the first publisher publishes all records; the others are ingresses of places.
        """
        self.spark, self.broker, self.tables, self.folder = spark, broker, tables, folder
        self.ingresses = network.publishers()
        self.hosts = Hosts(folder, network, self.ingresses)
        publishers = self.ingresses[:1] if alone else self.ingresses
        self.rules = rules
        self._draw = random.Random(7)
        self._numbers = itertools.count()
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self.published = self.edits = self._allowed = 0
        if not tables.rows("subscriptions"):
            self._fill_tables(network)
        self.settings: dict[str, Any] = {
            "tables": tables.location,
            "publisher": ",".join(publishers),
            "udp_endpoint": self.hosts.addresses[0],
            "udp_window": 64,
            "wait_seconds": 300,
            "topic": f"itch.{folder.name}",
            "dead_letter_topic": f"dead.{folder.name}",
            "checkpoint": str(folder / "checkpoint"),
            "max_offsets_per_trigger": BATCH,
            "latency": latency,
            "realtime_slice": "500 milliseconds",
            "kafka": {"bootstrap.servers": broker.bootstrap_servers},
        }
        if len(publishers) > 1:
            self.set_ingresses((None, name) for name in publishers)
        for topic, partitions in (("topic", 2), ("dead_letter_topic", 1)):
            ensure_topic(broker.bootstrap_servers, self.settings[topic], partitions)

    def set_ingresses(self, places: Iterable[tuple[str | None, str]]) -> None:
        """Replace the ingresses.

        Args:
            places: place and publisher of each row; the tunnels follow in this order.
        """
        rows = [
            {"place": place, "publisher": publisher, "transport": address}
            for (place, publisher), address in zip(places, self.hosts.addresses, strict=True)
        ]
        self.tables.overwrite("ingresses", rows)

    def _fill_tables(self, network: Network) -> None:
        for name, rows in network_to_rows(network, dict.fromkeys(network.switches, "")).items():
            self.tables.append(name, rows)
        self.tables.append("virtual_trees", [tree_to_row(tree) for tree in TREES])
        editor = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
        self.tables.append(
            "subscriptions",
            [
                {"id": n, "subscriber": h, "format": "itch", "filter": f, "enabled": True, **editor}
                for n, (h, f) in self.rules.items()
            ],
        )

    # --- publisher and editor ------------------------------------------------------------------

    def fill_and_edit(self, records_per_second: float, edit: bool = True) -> None:
        """Publish, and edit a rule, from now on until `quiet`; `allow` limits both."""
        loops: list[Any] = [lambda: self._publish(records_per_second)]
        for loop in [*loops, self._edit] if edit else loops:
            thread = threading.Thread(target=self._guarded, args=(loop,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def allow(self, batches: int) -> None:
        """Allow the publisher to send the records of ``batches`` more batches."""
        self._allowed = self.published + BATCH * batches

    def quiet(self) -> None:
        """Stop publishing and editing; return when the topic has all records."""
        self._ending.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        self.check()
        (self.folder / "drained").touch()

    def _guarded(self, loop: Any) -> None:
        try:
            loop()
        except BaseException as error:
            self.errors.append(error)

    def _publish(self, rate: float) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.broker.bootstrap_servers,
            acks="all",
            delivery_timeout_ms=WAIT_S * 1000,
        )
        due = time.monotonic()
        for number, packet in enumerate(packets(self._draw, TRUNCATED)):
            # The proof evaluates each rule for each message in Python, so a slow machine must not
            # publish more records than its streams take.
            while self.published >= self._allowed and not self._ending.wait(0.05):
                pass
            if self._ending.is_set():
                break
            producer.send(self.settings["topic"], packet, partition=number % 2)
            self.published += 1
            due += 1 / rate
            time.sleep(max(0.0, due - time.monotonic()))
        producer.flush(WAIT_S)
        producer.close()

    def _edit(self) -> None:
        """Change one rule of the table per `EDIT_RECORDS` published records."""
        for number in itertools.count():
            while self.published < (number + 1) * EDIT_RECORDS:
                if self._ending.wait(0.05):
                    return
            rule = f"shares > {100 + number % 7 * 100}"
            change(self.tables, "subscriptions", {"id": "edited"}, filter=rule)
            self.edits += 1

    # --- the stream ----------------------------------------------------------------------------

    def start(self, crash: str = "", passing: int = 1, **options: Any) -> Program:
        """Start a stream, and allow some more batches; the parameters are those of a `Story`."""
        self.check()
        self.allow(passing + 3)
        story = Story(
            self.settings,
            crash,
            passing,
            drained=str(self.folder / "drained"),
            conf={
                "spark.driver.memory": "1g",
                "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            },
            **options,
        )
        path = self.folder / f"story-{next(self._numbers)}.json"
        path.write_text(json.dumps(dataclasses.asdict(story)))
        return Program(self.folder, str(SUPPORT / "crashing_stream.py"), str(path))

    def delivered(self) -> int:
        """Returns how many records are in committed batches."""
        return sum(committed(Settings(**self.settings)).values())

    def advance(self, *programs: Program) -> None:
        """Return when the stream has delivered another batch, which is published from now on.

        Fails if one of the programs ends before.
        """
        target = self.delivered() + BATCH
        self.allow(2)
        until(lambda: self.delivered() >= target, *programs, seconds=WAIT_S)
        self.check()

    def drain(self) -> None:
        """Deliver the remaining records by a stream in this process."""
        self.quiet()
        drain(self.spark, Settings(**self.settings))

    def check(self) -> None:
        """Fail if the publisher, the editor or a host has failed."""
        assert not (self.errors or self.hosts.errors), (self.errors, self.hosts.errors)

    def evidence(self) -> check_delivery.Evidence:
        return check_delivery.Evidence(self.spark, Settings(**self.settings))

    def prove(self) -> DeliveryVerdict:
        return self.evidence().verdict(receipts(self.folder))

    def close(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        self.hosts.close()


class Program:
    """A program in a process group of its own, which writes its output to a file.

    Python runs it unless ``program`` names another interpreter.
    """

    numbers = itertools.count()

    def __init__(
        self, folder: Path, *arguments: str, program: Path | str = sys.executable, **env: str
    ) -> None:
        number = next(self.numbers)
        self.log = folder / f"{Path(arguments[0]).stem}-{number}.log"
        # Folders of another run on this machine can have the same names.
        self.mark = f"{folder.name}-{os.getpid()}-{number}"
        import_path = [str(ROOT), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(program), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(import_path),
                    "SPARK_CONF_DIR": os.environ.get("SPARK_CONF_DIR", str(ROOT / "conf")),
                    "PYSPARK_PYTHON": sys.executable,
                    MARK: self.mark,
                    **env,
                },
            )

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, text: str) -> None:
        """Wait until the output contains ``text``."""
        self.until_or_end(text)
        assert text in self.output, self.output[-4000:]

    def until_or_end(self, text: str) -> None:
        """Wait until the output contains ``text``, or the program has ended."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.output and self.process.poll() is None:
            assert time.monotonic() < deadline, self.output[-4000:]
            time.sleep(0.05)

    def end(self) -> int:
        """Wait until the program and its children have ended.

        Returns:
            The exit code; a negative one is the number of the signal that killed the program.
        """
        try:
            status = self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.output[-4000:]) from None
        until(lambda: not self.others(), seconds=WAIT_S)
        return status

    def kill(self) -> None:
        """Send SIGKILL to the process group, and to the workers, which have groups of their own."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in self.others():
            self.signal(pid)
        self.process.wait()

    def others(self) -> list[int]:
        """Returns the ids of all other processes of this stream."""
        pids = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    if f"{MARK}={self.mark}\0".encode() in (entry / "environ").read_bytes():
                        pids.append(int(entry.name))
                except OSError:
                    continue
        return pids

    def workers(self) -> list[int]:
        """Returns the ids of the Python workers: forks of Spark's daemon, with its command line."""
        daemons = [pid for pid in self.others() if b"pyspark.daemon" in command(pid)]
        return [pid for pid in daemons if _parent(pid) in daemons]

    def jvm(self) -> int | None:
        """Returns the id of the driver's JVM, or None before it runs."""
        drivers = (b"deploy.SparkSubmit", b"deploy.worker.DriverWrapper")
        pids = (pid for pid in self.others() if any(name in command(pid) for name in drivers))
        return next(pids, None)

    @staticmethod
    def signal(pid: int | None) -> None:
        """Send SIGKILL to a process, if it still runs."""
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def command(pid: int) -> bytes:
    """Returns the words of a command line, with a zero byte after each; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 1


def packets(draw: random.Random, truncated: float = 0.02) -> Iterator[bytes]:
    """Yields packets of trading sessions without end.

    Args:
        draw: decides which packets are truncated.
        truncated: share of the packets that are truncated.
    """
    for seed in itertools.count(1):
        messages: Sequence[bytes] = list(TradingSession(messages=6_000, seed=seed, symbols=20))
        for group in groups(messages, seed=seed):
            packet = build_packet(b"SOURCE0001", 1, group)
            yield packet[:-3] if draw.random() < truncated else packet
