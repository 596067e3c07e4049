"""A standalone Spark cluster on this machine: a master, and workers at places of their own.

They are processes as docs/operations.md starts them, from pyspark's jars, with authentication and
encryption. A stream runs by conf/cluster-example.conf with names put in, and executors have our
code from an archive.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jvm
import pyspark
from crash_world import BATCH, WAIT_S, Program, World, command
from paths import ROOT
from ports import free_port

import jobs
import schemas
import udfs

EXAMPLE = ROOT / "conf" / "cluster-example.conf"
JOB = str(ROOT / "jobs" / "itch_stream.py")
_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
#: What Spark opens by itself for a driver in client mode.
_OPENS = "--add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
#: Lines that all nodes have, by the example.
_SECURITY = re.compile(r"^spark\.(?:authenticate|network\.crypto|io\.encryption).*$", re.MULTILINE)
#: A driver has our code, and what is compiled of it, from where its job is.
_OWN = dict.fromkeys(("PYTHONPATH", "NUMBA_CACHE_DIR"), "")
#: A node has nothing of this project, and nothing of the tests' environment.
_NODE = {
    **_OWN,
    "SPARK_DIST_CLASSPATH": "",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": jvm.QUICK,
}


def example(values: Mapping[str, Any]) -> str:
    """The example file with these values in place of its own, or without a line where one is None;
    keys are without ``spark.``."""
    text = EXAMPLE.read_text()
    for key, value in values.items():
        line = re.compile(rf"^spark\.{re.escape(key)} +\S.*$", re.MULTILINE)
        assert len(line.findall(text)) == 1, key
        other = "" if value is None else f"spark.{key} {value}"
        text = line.sub(lambda _, other=other: other, text)
    return text


@dataclass(frozen=True)
class Release:
    """A version of our code: an environment that has it, for drivers, and packed for executors.

    Whoever imports it says its name on standard error.
    """

    environment: Path
    archive: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def job(self) -> str:
        """The main job as the environment has it."""
        (found,) = self.environment.glob("lib/*/site-packages/jobs/itch_stream.py")
        return str(found)


def release(place: Path, name: str) -> Release:
    """An environment with our code, and the kernels that tests have compiled. Packages, half a
    gigabyte, it takes from where they are."""
    made = place / name
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    (packages,) = made.glob("lib/*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    for package in (udfs, jobs, schemas):
        source = Path(package.__file__).parent
        target = packages / source.name
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        for folder in [source, *source.rglob("*/")]:
            compiled = f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"
            with suppress(FileNotFoundError):
                shutil.copytree(
                    Path(os.environ["NUMBA_CACHE_DIR"], compiled),
                    target / folder.relative_to(source) / "__pycache__",
                )
    with (packages / "udfs" / "columns.py").open("a") as code:
        code.write(f'\n\nprint("release {name}", file=sys.stderr, flush=True)\n')
    return Release(made, Path(shutil.make_archive(str(made), "gztar", made)))


class Cluster:
    """Master and workers, a context manager; after it, all that they started is gone.

    workers: by their places.
    """

    def __init__(self, folder: Path, *places: str) -> None:
        self.folder = folder
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.secret = os.urandom(16).hex()
        self._started: list[Program] = []
        self._numbers = itertools.count()
        self._security = _SECURITY.findall(example({"authenticate.secret": self.secret}))
        lines = [
            *self._security,
            "spark.deploy.recoveryMode FILESYSTEM",
            f"spark.deploy.recoveryDirectory {folder / 'master'}",
            "spark.worker.driverTerminateTimeout 600s",
            # A worker says nothing to its master until a driver that it stops has ended.
            "spark.worker.timeout 900",
            "spark.deploy.recoveryTimeout 60",
        ]
        self._properties = folder / "node.conf"
        self._properties.write_text("\n".join(lines))
        self._places = places
        self.workers: dict[str, Program] = {}

    def __enter__(self) -> Cluster:
        try:
            self.revive_master()
            for place in self._places:
                self.revive_worker(place)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def names(self) -> dict[str, str]:
        """What the example file has of any stream on this cluster."""
        return {
            "master": self.url,
            "authenticate.secret": self.secret,
            "driver.host": "127.0.0.1",
            "pyspark.driver.python": sys.executable,
        }

    def revive_master(self) -> None:
        """Start the master, or another after one was killed; it knows what that knew."""
        port = self.url.rpartition(":")[2]
        self.master = self._node("master.Master", "--host", "127.0.0.1", "--port", port)
        self.master.until("elected leader")

    def revive_worker(self, place: str) -> None:
        """Start the worker of a place, or another after one was killed."""
        size = ("--cores", "8", "--memory", "8g", "--work-dir", str(self.folder / place))
        started = self._node("worker.Worker", *size, self.url, STACKCAST_PLACE=place)
        self.workers[place] = started
        started.until("Successfully registered with master")

    def properties(
        self, world: World, kafka: Mapping[str, str], version: Release, **others: Any
    ) -> Path:
        """The example file for a stream: its names, small memories and batches, quick JVMs.

        Each place is an ingress, with a tunnel of its own. others: lines beside the example's.
        """
        settings = world.settings
        ways = zip(self.workers, world.hosts.addresses, strict=True)
        links = zip(self.workers, world.ingresses, strict=True)
        values = {
            **self.names,
            "driver.memory": "1g",
            "executor.memory": "512m",
            "archives": f"{version.archive}#environment",
            "pyspark.driver.python": version.python,
            **{f"stackcast.kafka.{key}": value for key, value in kafka.items()},
            "stackcast.topic": settings["topic"],
            "stackcast.deadLetter.topic": settings["dead_letter_topic"],
            "stackcast.tables": settings["tables"],
            "stackcast.checkpoint": settings["checkpoint"],
            "stackcast.sink.udp.endpoint": settings["udp_endpoint"],
            "stackcast.sink.places": ",".join(f"{place}={way}" for place, way in ways),
            "stackcast.sink.ingresses": ",".join(f"{place}={host}" for place, host in links),
            # Here it acknowledges, so that nothing is lost on a busy machine.
            "stackcast.sink.udp.window": settings["udp_window"],
        }
        lines = {
            "stackcast.maxOffsetsPerTrigger": BATCH,
            "stackcast.waitSeconds": settings["wait_seconds"],
            "stackcast.latency": settings["latency"],
            "executor.extraJavaOptions": jvm.QUICK,
            **others,
        }
        values |= {key: lines.pop(key) for key in list(lines) if key in values}
        text = example(values) + "".join(f"spark.{key} {lines[key]}\n" for key in lines)
        path = world.folder / f"stream-{next(self._numbers)}.conf"
        path.write_text(text)
        return path

    def submit(self, properties: Path, job: str = JOB) -> Program:
        """A driver of the main job in client mode."""
        return self._run("spark-submit", "--properties-file", str(properties), job, **_OWN)

    def supervise(self, properties: Path, job: str) -> Program:
        """A driver of the main job in cluster mode, which a worker starts again. It bears the mark
        of what is returned, which ends when the cluster has the driver."""
        (jar,) = (_SPARK / "jars").glob("delta-storage-*.jar")
        return self._run(
            "spark-submit",
            *("--properties-file", str(properties), "--deploy-mode", "cluster", "--supervise"),
            *("--class", f"{_DEPLOY}.PythonRunner", "--driver-java-options", _OPENS),
            *(f"file:{jar}", job, ""),
        )

    def executors(self) -> dict[str, list[int]]:
        """Process ids of the executors that run, by the application."""
        found: dict[str, list[int]] = {}
        for worker in self.workers.values():
            for pid in worker.others():
                words = command(pid).decode().split("\0")
                if _EXECUTOR in words:
                    found.setdefault(words[words.index("--app-id") + 1], []).append(pid)
        return found

    def is_whole(self) -> bool:
        """Whether two applications have an executor at each place."""
        return [len(pids) for pids in self.executors().values()] == [len(self.workers)] * 2

    def has_killed_a_driver(self) -> bool:
        """Whether a master has told a worker to kill a driver."""
        return any("Asked to kill driver" in each.output for each in self.workers.values())

    def releases(self) -> dict[str, set[str]]:
        """By application that runs, the releases that its executors have imported."""
        return {
            app: {
                name
                for errors in self.folder.glob(f"*/{app}/*/stderr")
                for name in re.findall(r"^release (\w+)$", errors.read_text(), re.MULTILINE)
            }
            for app in self.executors()
        }

    def stop_driver(self, number: str) -> None:
        """Stop a driver of the cluster by its number, which it is not started again after."""
        options = self.folder / "client.options"
        options.write_text("\n".join("-D" + "=".join(line.split()) for line in self._security))
        client = ("-cp", f"{_SPARK}/jars/*", f"@{options}", f"{_DEPLOY}.Client")
        subprocess.run(["java", *client, "kill", self.url, number], check=True, timeout=WAIT_S)

    def _end(self) -> None:
        for each in reversed(self._started):
            each.kill()

    def _node(self, name: str, *arguments: str, **env: str) -> Program:
        return self._run(
            *("spark-class", f"{_DEPLOY}.{name}"),
            *("--properties-file", str(self._properties), *arguments),
            **_NODE,
            SPARK_CONF_DIR=str(self.folder),
            **env,
        )

    def _run(self, script: str, *arguments: str, **env: str) -> Program:
        started = Program(
            self.folder,
            *arguments,
            program=_SPARK / "bin" / script,
            # Names of this machine need not resolve.
            SPARK_LOCAL_IP="127.0.0.1",
            **env,
        )
        self._started.append(started)
        return started
