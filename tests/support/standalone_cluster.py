"""A standalone Spark cluster on this machine, with a master and one worker per place.

The processes run as described in docs/how-to/run-a-standalone-cluster.md, from the jars of pyspark,
with authentication and encryption. A stream runs by conf/cluster-example.conf with other names, and
executors load the code from an archive.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
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
from wheels import bare_environment

from stackcast import jobs, schemas, udfs

EXAMPLE = ROOT / "conf" / "cluster-example.conf"
JOB = str(ROOT / "jobs" / "itch_stream.py")
_SPARK = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
#: Options that Spark itself adds for a driver in client mode.
_OPENS = "--add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
#: Lines of the example that all nodes need.
_SECURITY = re.compile(r"^spark\.(?:authenticate|network\.crypto|io\.encryption).*$", re.MULTILINE)
#: A driver loads the code and its compiled kernels from the folder of its job.
_CLEARED = dict.fromkeys(("PYTHONPATH", "NUMBA_CACHE_DIR"), "")
#: A node has no code of this project, and no variables of the tests.
_NODE = {
    **_CLEARED,
    "SPARK_DIST_CLASSPATH": "",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": jvm.QUICK,
}


def example(values: Mapping[str, Any]) -> str:
    """Returns the example file with other values.

    Args:
        values: values by key without ``spark.``; None removes the line.
    """
    text = EXAMPLE.read_text()
    for key, value in values.items():
        line = re.compile(rf"^spark\.{re.escape(key)} +\S.*$", re.MULTILINE)
        assert len(line.findall(text)) == 1, key
        replacement = "" if value is None else f"spark.{key} {value}"
        text = line.sub(lambda _, replacement=replacement: replacement, text)
    return text


@dataclass(frozen=True)
class Release:
    """A version of the code: an environment for drivers, and its archive for executors.

    A process that imports it prints its name on standard error.
    """

    environment: Path
    archive: Path

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def job(self) -> str:
        """Returns the file of the main job in the environment."""
        (path,) = self.environment.glob("lib/*/site-packages/stackcast/jobs/itch_stream.py")
        return str(path)


def release(place: Path, name: str) -> Release:
    """Create an environment with the code and its compiled kernels."""
    environment = place / name
    (packages,) = bare_environment(environment).glob("lib/*/site-packages")
    product = packages / "stackcast"
    product.mkdir()
    (product / "__init__.py").touch()
    for package in (udfs, jobs, schemas):
        source = Path(package.__file__).parent
        target = product / source.name
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        for folder in [source, *source.rglob("*/")]:
            compiled = f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"
            with suppress(FileNotFoundError):
                shutil.copytree(
                    Path(os.environ["NUMBA_CACHE_DIR"], compiled),
                    target / folder.relative_to(source) / "__pycache__",
                )
    with (product / "udfs" / "columns.py").open("a") as code:
        code.write(f'\n\nprint("release {name}", file=sys.stderr, flush=True)\n')
    archive = shutil.make_archive(str(environment), "gztar", environment)
    return Release(environment, Path(archive))


class Cluster:
    """A context manager for master and workers; at its end it kills all their processes.

    Attributes:
        workers: workers by place.
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
            # A worker sends nothing to its master until a driver that it stops has ended.
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
        """Returns the values of the example file that each stream on this cluster has."""
        return {
            "master": self.url,
            "authenticate.secret": self.secret,
            "driver.host": "127.0.0.1",
            "pyspark.driver.python": sys.executable,
        }

    def revive_master(self) -> None:
        """Start the master, or start it again with its state after it was killed."""
        port = self.url.rpartition(":")[2]
        self.master = self._node("master.Master", "--host", "127.0.0.1", "--port", port)
        self.master.until("elected leader")

    def revive_worker(self, place: str) -> None:
        """Start the worker of a place, or start it again after it was killed."""
        size = ("--cores", "8", "--memory", "8g", "--work-dir", str(self.folder / place))
        started = self._node("worker.Worker", *size, self.url, STACKCAST_PLACE=place)
        self.workers[place] = started
        started.until("Successfully registered with master")

    def properties(
        self, world: World, kafka: Mapping[str, str], version: Release, **others: Any
    ) -> Path:
        """Write the properties of a stream: the example file with small memories and batches.

        Each place is an ingress with its own tunnel.

        Args:
            world: deployment of the stream.
            kafka: options of Kafka's client.
            version: release of the code.
            others: further values, by key without ``spark.``.
        """
        settings = world.settings
        world.set_ingresses(zip(self.workers, world.ingresses, strict=True))
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
            # The tunnel acknowledges frames, so that a busy machine loses none.
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
        """Start a driver of the main job in client mode."""
        return self._run("spark-submit", "--properties-file", str(properties), job, **_CLEARED)

    def supervise(self, properties: Path, job: str) -> Program:
        """Start a driver of the main job in cluster mode, which a worker restarts.

        Returns:
            The client, which ends when the cluster has the driver. The driver has the same mark.
        """
        (jar,) = (_SPARK / "jars").glob("delta-storage-*.jar")
        return self._run(
            "spark-submit",
            *("--properties-file", str(properties), "--deploy-mode", "cluster", "--supervise"),
            *("--class", f"{_DEPLOY}.PythonRunner", "--driver-java-options", _OPENS),
            *(f"file:{jar}", job, ""),
        )

    def executors(self) -> dict[str, list[int]]:
        """Returns the process ids of the running executors by application."""
        executors: dict[str, list[int]] = {}
        for worker in self.workers.values():
            for pid in worker.others():
                words = command(pid).decode().split("\0")
                if _EXECUTOR in words:
                    executors.setdefault(words[words.index("--app-id") + 1], []).append(pid)
        return executors

    def is_whole(self) -> bool:
        """Returns whether two applications have an executor at each place."""
        return [len(pids) for pids in self.executors().values()] == [len(self.workers)] * 2

    def has_killed_a_driver(self) -> bool:
        """Returns whether a master has asked a worker to kill a driver."""
        return any("Asked to kill driver" in worker.output for worker in self.workers.values())

    def releases(self) -> dict[str, set[str]]:
        """Returns the releases that executors have imported, by running application."""
        return {
            app: {
                name
                for errors in self.folder.glob(f"*/{app}/*/stderr")
                for name in re.findall(r"^release (\w+)$", errors.read_text(), re.MULTILINE)
            }
            for app in self.executors()
        }

    def stop_driver(self, number: str) -> None:
        """Stop a driver of the cluster by its number, without a restart."""
        options = self.folder / "client.options"
        options.write_text("\n".join("-D" + "=".join(line.split()) for line in self._security))
        client = ("-cp", f"{_SPARK}/jars/*", f"@{options}", f"{_DEPLOY}.Client")
        subprocess.run(["java", *client, "kill", self.url, number], check=True, timeout=WAIT_S)

    def _end(self) -> None:
        for program in reversed(self._started):
            program.kill()

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
            # The name of this machine does not always resolve.
            SPARK_LOCAL_IP="127.0.0.1",
            **env,
        )
        self._started.append(started)
        return started
