"""The surroundings of the benchmark's parts: broker, Spark, tables, topics, jobs as processes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from benchmarks.pipeline import producer
from benchmarks.pipeline.oracle import Capture
from benchmarks.pipeline.processor import command_of, descendants
from benchmarks.pipeline.receiver import FrameReceiver
from benchmarks.pipeline.wire import Wire
from benchmarks.pipeline.workload import Packets, Rules
from benchmarks.support.results import FOLDER, ROOT
from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.settings import KAFKA_PREFIX, PREFIX, Settings
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up.broker import Broker, default_class_path
from stackcast.lab.up.process import start_tied, stop_process
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.broadcast import broadcast_trees

RULES, HOSTS, PARTITIONS = 100_000, 128, 2
PUBLISHER = "feed1"
#: Packets that a topic repeats: more than a core's caches hold.
POOL = 16_384
#: pods, racks of a pod, hosts of a rack, by hosts in all.
FABRICS = {
    16: (4, 2, 2),
    100: (5, 4, 5),
    128: (8, 4, 4),
    1_000: (10, 10, 10),
    10_000: (25, 20, 20),
}


def network_of(hosts: int) -> Network:
    """Returns a fabric of two planes with two spines each; hosts: one of FABRICS."""
    pods, racks, each = FABRICS[hosts]
    return fabric(pods, racks, each, planes=2, spines=2)


class World:
    """A broker, a wire, and a Spark session once it is asked for; a context manager.

    quick: parts take fewer records and fewer points. minutes: of measuring each main way.
    tunnel: the wire that ways can all send on, in Java too.
    """

    def __init__(self, quick: bool = False, minutes: float = 5.0) -> None:
        self.quick = quick
        self.minutes = minutes
        self._numbers = count()
        #: Records a second of the fastest stream seen, with 5 % of messages matching.
        self.highest: float | None = None

    def __enter__(self) -> World:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="pipeline-", dir=FOLDER))
        # Workers read modules of this folder, too.
        known = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = f"{ROOT}:{known}"
        self.wire = Wire.make()
        self.tunnel = Wire.make_tunnel() if self.wire.kind != "udp" else self.wire
        self._far = self.wire.hold()
        self._tunnel_far = self._far if self.tunnel is self.wire else self.tunnel.hold()
        self._broker = Broker(default_class_path(), self.folder / "broker", lasting=True)
        self._broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        if "spark" in self.__dict__:
            self.spark.stop()
        self._broker.stop()
        self._far.close()
        self._tunnel_far.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def receiver(self, port: int) -> Iterator[FrameReceiver]:
        """Takes notifications to this UDP port at the far end."""
        self._far.close()
        try:
            with FrameReceiver(self.wire, port) as receiver:
                yield receiver
        finally:
            self._far = self.wire.hold()

    @contextmanager
    def capturing(self) -> Iterator[Capture]:
        """Takes whole notifications at the far end of the tunnel."""
        self._tunnel_far.close()
        try:
            with Capture(self.tunnel, Settings().port) as capture:
                yield capture
        finally:
            self._tunnel_far = self.tunnel.hold()

    @property
    def broker(self) -> int:
        """Its process."""
        return next(each for each in descendants(os.getpid()) if b"kafka.Kafka" in command_of(each))

    @cached_property
    def spark(self) -> SparkSession:
        os.environ.setdefault("SPARK_CONF_DIR", str(ROOT / "conf"))
        place = f"--conf spark.sql.warehouse.dir={self.folder / 'warehouse'}"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{place} pyspark-shell"
        return session.start("stackcast bench pipeline")

    @cached_property
    def fetching(self) -> dict[str, str]:
        """Returns the settings by which conf/spark-defaults.conf has records fetched."""
        found = dict(self.spark.sparkContext.getConf().getAll())
        return {
            key.removeprefix(KAFKA_PREFIX): value
            for key, value in found.items()
            if key.startswith(KAFKA_PREFIX)
        }

    @property
    def servers(self) -> str:
        return self._broker.bootstrap_servers

    def fresh(self, what: str) -> Path:
        """Returns a folder that is not there yet."""
        return self.folder / f"{what}{next(self._numbers)}"

    @cached_property
    def rules(self) -> Rules:
        return Rules.make(RULES, HOSTS)

    @cached_property
    def filled(self) -> Path:
        """Tables of 100,000 subscriptions in a network of 128 hosts, for `settings` to copy."""
        return self.fill_tables(self.rules, network_of(HOSTS))

    @cached_property
    def _empty(self) -> Path:
        folder = self.fresh("empty")
        open_tables(self.spark, str(folder)).create()
        return folder

    def fill_tables(self, rules: Rules, network: Network) -> Path:
        """Tables of these rules and this network, whose trees are broadcast trees."""
        folder = self.fresh("tables")
        shutil.copytree(self._empty, folder)
        tables = open_tables(self.spark, str(folder))
        # Nobody connects to them: switches take no part in the benchmark.
        addresses = dict.fromkeys(network.switches, "127.0.0.1:9")
        for name, rows in network_to_rows(network, addresses).items():
            tables.append(name, rows)
        tables.append("virtual_trees", [tree_to_row(tree) for tree in broadcast_trees(network)])
        total = len(rules.stock)
        now = dt.datetime.now(dt.UTC)
        columns = {
            "id": [f"s{number}" for number in range(total)],
            "subscriber": [f"h{host}" for host in rules.host.tolist()],
            "format": ["itch"] * total,
            "filter": rules.texts(),
            "enabled": [True] * total,
            "updated_by": ["bench"] * total,
            "updated_at": [now] * total,
        }
        frame = self.spark.createDataFrame(pa.table(columns))
        schema = tables.read("subscriptions").schema
        frame.select(
            *(frame[field.name].cast(field.dataType).alias(field.name) for field in schema)
        ).coalesce(1).write.format("delta").mode("append").save(str(folder / "subscriptions"))
        return folder

    def topic(
        self, packets: Packets, records: int, partitions: int = PARTITIONS, zstd: bool = False
    ) -> str:
        """Makes a topic of so many records, written at full speed."""
        name = self.empty_topic(partitions)
        if records:
            producer.fill(self.servers, name, packets, records, partitions, zstd)
        return name

    def forget(self, topic: str) -> None:
        """Deletes a topic: its disk is needed."""
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        admin.delete_topics([topic])
        admin.close()

    def empty_topic(self, partitions: int = PARTITIONS) -> str:
        name = f"bench{next(self._numbers)}"
        ensure_topic(self.servers, name, partitions)
        consumer = KafkaConsumer(bootstrap_servers=self.servers)
        # A broker can name itself as the leader before it takes records; this asks until it does.
        consumer.end_offsets([TopicPartition(name, each) for each in range(partitions)])
        consumer.close()
        return name

    def settings(
        self, topic: str, filled: Path | None = None, wire: Wire | None = None, **others: Any
    ) -> Settings:
        """For a stream over a topic: own tables, own checkpoint, frames onto a wire."""
        tables = self.fresh("tables")
        shutil.copytree(filled or self.filled, tables)
        values: dict[str, Any] = {
            "topic": topic,
            "dead_letter_topic": f"{topic}.dead",
            "tables": str(tables),
            "checkpoint": str(self.fresh("checkpoint")),
            "publisher": PUBLISHER,
            "latency": "microbatch",
            "kafka": self.fetching | {"bootstrap.servers": self.servers},
            **(wire or self.wire).settings(),
            **others,
        }
        return Settings(**values)


def properties(settings: Settings) -> dict[str, str]:
    """Returns the settings as Spark properties; those with their defaults are left out."""
    found = {
        PREFIX + field.metadata["key"]: str(value)
        for field in dataclasses.fields(settings)
        if field.metadata and (value := getattr(settings, field.name)) != field.default
    }
    return found | {KAFKA_PREFIX + key: value for key, value in settings.kafka.items()}


class Job:
    """``spark-submit jobs/itch_stream.py``, or another job, as a process; a context manager."""

    def __init__(
        self,
        settings: Settings,
        log: Path,
        environment: Mapping[str, str] | None = None,
        spark: Mapping[str, str] | None = None,
        script: str = "itch_stream.py",
        arguments: Sequence[object] = (),
    ) -> None:
        home = os.environ.get("SPARK_HOME")
        submit = f"{home}/bin/spark-submit" if home else shutil.which("spark-submit")
        options = [
            part
            for key, value in (properties(settings) | dict(spark or {})).items()
            for part in ("--conf", f"{key}={value}")
        ]
        job = str(ROOT / "jobs" / script)
        self._command = [str(submit), *options, job, *map(str, arguments)]
        self.log = log
        # The session of this program has its own.
        known = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
        self._environment = known | {"SPARK_CONF_DIR": str(ROOT / "conf")} | dict(environment or {})

    def __enter__(self) -> Job:
        with self.log.open("wb") as log:
            self._process = start_tied(
                self._command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.log.parent,
            )
        return self

    def __exit__(self, *_: object) -> None:
        stop_process(self._process, 60)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> int | None:
        """Returns its exit code once it has ended."""
        return self._process.poll()

    def check(self) -> None:
        """Raises RuntimeError with the end of its log if the job has ended."""
        if self._process.poll() is not None:
            lines = self.log.read_text(errors="replace").splitlines()[-15:]
            raise RuntimeError("the job has ended:\n" + "\n".join(lines))
