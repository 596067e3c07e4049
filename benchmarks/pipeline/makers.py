"""What ways are made of: files for their processes, commands, compiled Java."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.pipeline import join
from benchmarks.pipeline.oracle import Oracle
from benchmarks.pipeline.ways import Way
from benchmarks.pipeline.workload import Packets
from benchmarks.pipeline.world import PARTITIONS, World
from benchmarks.support.results import FOLDER
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning.formats import sources
from stackcast.jobs.adapters.planning.plans import Plans
from stackcast.jobs.adapters.planning.versions import BatchVersions
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.lab.up.broker import default_class_path
from stackcast.udfs.delivery.plan import Plan

_HERE = Path(__file__).parent
#: Kafka Streams of the broker's version; it needs of other jars only what Spark has.
_STREAMS = FOLDER / "jars" / "kafka-streams-4.3.0.jar"
#: Bytewax, in a folder of its own: there are no wheels of it for all Pythons that we run on.
_PACKAGES, _BYTEWAX = FOLDER / "packages", "bytewax==0.21.1"
#: Packets of each workload that are compared.
_COMPARED = 2_048
#: Programs that hand data over in the JVM use both of its compilers, as Spark does by default.
_BOTH_COMPILERS = {"spark.driver.extraJavaOptions": "-XX:+IgnoreUnrecognizedVMOptions"}
_CLUSTER = {"spark.master": "local-cluster[2,1,2048]", "spark.executor.memory": "2g"}


def fetch() -> None:
    """Has pip and the Ivy of pyspark fetch what is compared with, once, while there is a network.

    What cannot be fetched is a way that fails.
    """
    if not _STREAMS.exists():
        (ivy,) = (Path(os.environ["SPARK_HOME"]) / "jars").glob("ivy-*.jar")
        name, version = _STREAMS.stem.rsplit("-", 1)
        with tempfile.TemporaryDirectory() as cache:
            _run(
                *("java", "-jar", str(ivy), "-dependency", "org.apache.kafka", name, version),
                *("-notransitive", "-types", "jar", "-cache", cache),
                *("-retrieve", f"{_STREAMS.parent}/[artifact]-[revision].[ext]"),
            )
    if not _PACKAGES.exists():
        _run(
            *(sys.executable, "-m", "pip", "install", "-q", "--no-deps"),
            "--target",
            str(_PACKAGES),
            _BYTEWAX,
        )


def _run(*command: str) -> None:
    subprocess.run(command, check=False, stdout=sys.stderr)


def compile_tables(world: World, settings: Settings) -> tuple[Plan, Any]:
    """Return plan and header stacks of the tables of settings, with all stacks computed."""
    tables = open_tables(world.spark, settings.tables)
    versions = BatchVersions(tables, settings.topic, sources(settings)).current()
    compilation = Plans(settings, tables).at(versions).compilation
    for receivers in compilation.receiver_sets:
        compilation.header_stacks.of(receivers)
    return compilation.with_known().plan, compilation.header_stacks


class Makers:
    """Makes ways by their names (`benchmarks.pipeline.throughput`), each not started yet."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._base = world.settings("none", wire=world.tunnel)
        self.plan, self._stacks = compile_tables(world, self._base)
        self.oracle = Oracle(self.plan, self._stacks, world.rules)

    @cached_property
    def compared(self) -> Packets:
        """Some packets of each workload."""
        rules = self._world.rules
        return Packets.joined(
            [
                Packets.make(rules, _COMPARED, (1, 35), 0.05),
                Packets.make(rules, _COMPARED, (1, 35), 1.0),
                Packets.mixed(_COMPARED),
            ]
        )

    def way(self, name: str) -> Way:
        """Returns the way of this name, not started. Raises KeyError for one that is not known."""
        if name.startswith("local-cluster, "):
            return self._spark(name, name.removeprefix("local-cluster, "), _CLUSTER)
        if name == "Java consumer":
            return self._made(name, [self._java("Consumer")])
        if name == "Kafka Streams":
            folder = str(self._world.fresh("streams"))
            return self._made(name, [[*self._java("Streams"), folder]])
        if name in ("kernels, no Spark", "Bytewax, no processing"):
            kind = "kernels" if name.startswith("kernels") else "bytewax"
            options = self._options(compiled=str(self._file))
            module = "benchmarks.pipeline.python_program"
            commands = [
                [sys.executable, "-m", module, kind, str(partition), options]
                for partition in range(PARTITIONS)
            ]
            return self._made(
                name, commands, {"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{_PACKAGES}"}
            )
        return self._spark(name, name, {})

    def _spark(self, name: str, kind: str, properties: dict[str, str]) -> Way:
        servers = {"bootstrap.servers": self._world.servers}
        way, changed, compilers = {
            "stackcast": ("delivering", {"latency": "auto"}, {}),
            "micro-batches": ("delivering", {}, {}),
            "Spark's connector": ("delivering", {"fetch": "connector"}, _BOTH_COMPILERS),
            "mapInArrow, Spark defaults": ("counting", {"kafka": servers}, {}),
            "mapInArrow": ("counting", {}, _BOTH_COMPILERS),
            "mapInArrow, gc.freeze": ("frozen", {}, _BOTH_COMPILERS),
            "Spark's join": ("join", {}, _BOTH_COMPILERS),
        }[kind]
        more: dict[str, Any] = {}
        if way == "join":
            more["plan"] = str(self._world.fresh("join"))
            with Path(more["plan"]).open("wb") as file:
                pickle.dump((self.plan, join.steps_of(self._world.rules, self.plan)), file)
        options = self._options(
            changed=changed,
            way=way,
            spark=compilers | properties,
            as_spark_comes=kind.endswith("Spark defaults"),
            **more,
        )
        module = "benchmarks.pipeline.spark_program"
        # No name of this machine need resolve.
        environment = {"SPARK_LOCAL_IP": "127.0.0.1"}
        if properties:
            environment["SPARK_HOME"] = str(self._spark_home())
        return self._made(name, [[sys.executable, "-m", module, options]], environment)

    def _spark_home(self) -> Path:
        """Spark by links: a local cluster keeps its executors' files in Spark's own folder."""
        home = self._world.fresh("spark")
        home.mkdir()
        for each in Path(os.environ["SPARK_HOME"]).iterdir():
            if each.name != "work":
                (home / each.name).symlink_to(each)
        return home

    def _made(
        self,
        name: str,
        commands: Sequence[Sequence[str]],
        environment: Mapping[str, str] | None = None,
    ) -> Way:
        world = self._world
        known = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
        known |= environment or {}
        return Way(name, commands, world.folder, world.tunnel, world.broker, known)

    def _options(self, changed: dict[str, Any] | None = None, **more: Any) -> str:
        """A file with the options of a program, with tables of its own."""
        tables = self._world.fresh("tables")
        shutil.copytree(self._base.tables, tables)
        settings = dataclasses.replace(self._base, tables=str(tables), **(changed or {}))
        path = self._world.fresh("options")
        told = {
            "settings": settings,
            "folder": str(self._world.folder),
            "interface": self._world.wire.near,
            "plan": "",
        }
        path.write_bytes(pickle.dumps(told | more))
        return str(path)

    @cached_property
    def _file(self) -> Path:
        path = self._world.fresh("plan")
        with path.open("wb") as file:
            pickle.dump((self.plan, self._stacks), file)
        return path

    def _java(self, program: str) -> list[str]:
        jars = [*default_class_path()]
        sources = ["Delivery.java", "Consumer.java"]
        if program == "Streams":
            spark = Path(os.environ["SPARK_HOME"]) / "jars"
            jars += [str(_STREAMS), *map(str, spark.glob("rocksdbjni-*.jar"))]
            sources.append("Streams.java")
        classes = self._world.fresh("classes")
        path = ":".join(jars)
        subprocess.run(
            ["javac", "-d", str(classes), "-cp", path, *(str(_HERE / each) for each in sources)],
            check=True,
        )
        tables = self._world.fresh("delivery")
        self.oracle.write(tables)
        return [
            *("java", "-Xmx2g", "-XX:+UseParallelGC", "-cp", f"{classes}:{path}", program),
            *(self._world.servers, self._world.tunnel.near, str(tables)),
        ]
