"""What streams that crash run in: a broker, a topic that is being filled, tables that are being
edited, and hosts that keep receipts."""

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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from crashing_stream import Story
from kafka import KafkaProducer
from paths import ROOT, SUPPORT
from pyspark.sql import SparkSession

from jobs import check_delivery
from jobs.adapters.app.error_texts import SQL_ERRORS
from jobs.adapters.app.settings import Settings
from jobs.adapters.tables.tables import Tables
from lab.fabric.network import Ingress
from lab.proof.receipts import receipts
from lab.proof.verdict import DeliveryVerdict
from lab.traffic.packets import groups
from lab.traffic.publisher import ensure_topic
from lab.traffic.trading_session import TradingSession
from lab.up.broker import Broker
from udfs.messages.reference import build_packet
from udfs.messages.summaries import is_summary
from udfs.network.network import Network
from udfs.network.rows import network_to_rows, tree_to_row
from udfs.network.topology import fabric
from udfs.stacks.dissect import dissect
from udfs.stacks.forwarding import ForwardingModel, network_tables
from udfs.stacks.frame import DATAGRAM, ETHERTYPE_IPV4
from udfs.trees.broadcast import broadcast_trees

MARK = "STACKCAST_TEST_MARK"
NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
TREES = broadcast_trees(NETWORK)
PUBLISHER = "feed1"
#: The same hosts and trees, and each partition has a publisher.
SEVERAL = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1, publishers=2)
WAIT_S = 600
EDIT_S = 5.0
#: Records of a batch at most.
BATCH = 200
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
    """The far ends of tunnels, of these publishers: the forwarding model says which hosts a frame
    reaches, and each has what it received in a file when the frame is acknowledged.

    taken: how many frames came by each, by its number.
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
        self._reached = cache(self._follow)
        self.taken: Counter[str] = Counter()
        self._ingresses = [Ingress(str(way), self._take) for way in range(len(publishers))]
        self.addresses = [each.address for each in self._ingresses]
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

    def _take(self, way: str, frame: bytes, _arrived: float) -> None:
        labels = int.from_bytes(frame[_ETHERNET:_STACK])
        stack = frame[_STACK : _STACK + 2 * labels]
        payload = frame[_STACK + 2 * labels + DATAGRAM :]
        assert int.from_bytes(frame[12:14]) != ETHERTYPE_IPV4
        if not is_summary(payload):
            assert dissect(frame).labels
        publisher = self._publishers[int(way)]
        reached = self._reached(publisher, struct.unpack(f">{labels}H", stack))
        for host in reached:
            self._files[host].write(len(payload).to_bytes(2) + payload)
        self.taken[way] += 1

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for ingress in self._ingresses:
                selector.register(ingress, selectors.EVENT_READ)
            while not self._ending.is_set():
                if any(each.backlog for each in self._ingresses) or selector.select(0.1):
                    try:
                        for ingress in self._ingresses:
                            ingress.receive()
                    except Exception as error:
                        self.errors.append(error)
                        return
                    for ingress in self._ingresses:
                        ingress.answer()


class World:
    """One deployment. `start` starts its stream, `prove` says what came of it."""

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
        """Each publisher of the network has a tunnel. alone: the first one publishes all, and the
        others are ingresses of places."""
        self.spark, self.broker, self.tables, self.folder = spark, broker, tables, folder
        self.ingresses = network.publishers()
        self.hosts = Hosts(folder, network, self.ingresses)
        publishers = self.ingresses[:1] if alone else self.ingresses
        self.rules = rules
        self._draw = random.Random(7)
        self._numbers = itertools.count()
        self._ending = threading.Event()
        self._beside: list[threading.Thread] = []
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
            named = zip(publishers, self.hosts.addresses, strict=True)
            self.settings["sink_publishers"] = ",".join(f"{name}={way}" for name, way in named)
        for topic, partitions in (("topic", 2), ("dead_letter_topic", 1)):
            ensure_topic(broker.bootstrap_servers, self.settings[topic], partitions)

    def _fill_tables(self, network: Network) -> None:
        for name, rows in network_to_rows(network, dict.fromkeys(network.switches, "")).items():
            self.tables.append(name, rows)
        self.tables.append("virtual_trees", [tree_to_row(tree) for tree in TREES])
        who = {"updated_by": "test", "updated_at": dt.datetime.now(dt.UTC)}
        self.tables.append(
            "subscriptions",
            [
                {"id": n, "subscriber": h, "format": "itch", "filter": f, "enabled": True, **who}
                for n, (h, f) in self.rules.items()
            ],
        )

    # --- what goes on meanwhile ----------------------------------------------------------------

    def fill_and_edit(self, packets_a_second: float, edit: bool = True) -> None:
        """Publish and edit from now on, until `quiet`."""
        works: list[Any] = [lambda: self._publish(packets_a_second)]
        for work in [*works, self._edit] if edit else works:
            thread = threading.Thread(target=self._guarded, args=(work,), daemon=True)
            thread.start()
            self._beside.append(thread)

    def allow(self, batches: int) -> None:
        """Let records of so many more batches be published."""
        self._allowed = self.published + BATCH * batches

    def quiet(self) -> None:
        """End filling and editing; returns when all is in the topic."""
        self._ending.set()
        for thread in self._beside:
            thread.join(WAIT_S)
        self.check()
        (self.folder / "drained").touch()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)

    def _publish(self, rate: float) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.broker.bootstrap_servers,
            acks="all",
            delivery_timeout_ms=WAIT_S * 1000,
        )
        due = time.monotonic()
        for number, packet in enumerate(packets(self._draw)):
            # On a slow machine no more than the streams can take: the proof is brute force.
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
        """One rule changes again and again, and so do its subscriber's neighbours in the table."""
        name = f"delta.`{self.tables.location}/subscriptions`"
        for number in itertools.count():
            if self._ending.wait(EDIT_S):
                return
            try:
                self.spark.sql(
                    f"UPDATE {name} SET filter = 'shares > {100 + number % 7 * 100}' "
                    "WHERE id = 'edited'"
                )
                self.edits += 1
            except SQL_ERRORS as error:
                self.errors.append(error)
                return

    # --- the stream ----------------------------------------------------------------------------

    def start(self, crash: str = "", passing: int = 1, **how: Any) -> Program:
        """Start a stream, and let some more batches be published; the parameters are those of a
        `Story`."""
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
            **how,
        )
        path = self.folder / f"story-{next(self._numbers)}.json"
        path.write_text(json.dumps(dataclasses.asdict(story)))
        return Program(self.folder, str(SUPPORT / "crashing_stream.py"), str(path))

    def drain(self, **how: Any) -> None:
        """Let a stream take what is left, and end."""
        stream = self.start(**how)
        assert stream.end() == 0, stream.output[-4000:]

    def check(self) -> None:
        """Fails where what is not to be tested has failed."""
        assert not (self.errors or self.hosts.errors), (self.errors, self.hosts.errors)

    def evidence(self) -> check_delivery.Evidence:
        return check_delivery.Evidence(self.spark, Settings(**self.settings))

    def prove(self) -> DeliveryVerdict:
        return self.evidence().verdict(receipts(self.folder))

    def close(self) -> None:
        self._ending.set()
        for thread in self._beside:
            thread.join(WAIT_S)
        self.hosts.close()


class Program:
    """A program, of Python's if no other is named, as a process group of its own; its output is in
    a file."""

    numbers = itertools.count()

    def __init__(
        self, folder: Path, *arguments: str, program: Path | str = sys.executable, **env: str
    ) -> None:
        number = next(self.numbers)
        self.log = folder / f"{Path(arguments[0]).stem}-{number}.log"
        # Another run on this machine has folders of the same names.
        self.mark = f"{folder.name}-{os.getpid()}-{number}"
        places = [str(ROOT), str(SUPPORT), os.environ.get("PYTHONPATH", "")]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [str(program), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(places),
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
        """Wait until the output has ``text``."""
        self.until_or_end(text)
        assert text in self.output, self.output[-4000:]

    def until_or_end(self, text: str) -> None:
        """Wait until the output has ``text``, or the stream has ended."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.output and self.process.poll() is None:
            assert time.monotonic() < deadline, self.output[-4000:]
            time.sleep(0.05)

    def end(self) -> int:
        """The exit code, when it and all that it started is gone; below 0 it was killed."""
        try:
            status = self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(self.output[-4000:]) from None
        deadline = time.monotonic() + 20
        while self.others() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not self.others()
        return status

    def kill(self) -> None:
        """SIGKILL to the group, and to workers, which have one of their own."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in self.others():
            self.signal(pid)
        self.process.wait()

    def others(self) -> list[int]:
        """All other processes of this stream."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.process.pid:
                try:
                    if f"{MARK}={self.mark}\0".encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def workers(self) -> list[int]:
        """Python workers: Spark's daemon forks them, so they look like it."""
        daemons = [pid for pid in self.others() if b"pyspark.daemon" in command(pid)]
        return [pid for pid in daemons if _parent(pid) in daemons]

    def jvm(self) -> int | None:
        """The driver's JVM, once there is one."""
        drivers = (b"deploy.SparkSubmit", b"deploy.worker.DriverWrapper")
        found = [p for p in self.others() if any(name in command(p) for name in drivers)]
        return found[0] if found else None

    @staticmethod
    def signal(pid: int | None) -> None:
        """SIGKILL to one process, if it is still there."""
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def command(pid: int) -> bytes:
    """The words of a process, each ended by a zero byte; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 1


def packets(draw: random.Random) -> Any:
    """Packets of trading sessions without end, a damaged one among each few."""
    for seed in itertools.count(1):
        messages: Sequence[bytes] = list(TradingSession(messages=6_000, seed=seed, symbols=20))
        for group in groups(messages, seed=seed):
            packet = build_packet(b"SOURCE0001", 1, group)
            yield packet[:-3] if draw.random() < 0.02 else packet
