"""An embedded Kafka broker: one KRaft node on loopback, run from its jars.

The broker is a JVM child of this process. It lives in one folder (configuration, data, logs),
listens on free loopback ports only, and ends with the context manager or with its parent,
whichever comes first.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from kafka import KafkaAdminClient
from kafka.errors import KafkaError as ClientError

from stackcast.installation import var_folder
from stackcast.lab.up.jars import spark_jars
from stackcast.lab.up.process import start_tied, stop_process
from stackcast.requirements import check_java
from stackcast.udfs.errors import LabError

# What the broker needs that pyspark already ships; its own jars leave these out.
_FROM_PYSPARK = (
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "jackson-*.jar",
    "scala-library-*.jar",
    "snappy-java-*.jar",
    "lz4-java-*.jar",
    "zstd-jni-*.jar",
)

_LOG_LINES = 12
_PORT_TAKEN = ("Address already in use", "BindException")

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions=2
num.network.threads=2
num.io.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# Invalid records of several megabytes must reach the stream, which counts them.
message.max.bytes=8388608
replica.fetch.max.bytes=8388608
controlled.shutdown.enable=false
"""

# All that formatting a storage by Kafka's own tool, a JVM of its own, would leave that is needed.
_META_PROPERTIES = """\
version=1
cluster.id={cluster}
node.id=1
"""

_LOG4J2 = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders>
    <RollingFile name="File" fileName="{log}/server.log" filePattern="{log}/server-%i.log">
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c{{1}}: %m%n"/>
      <SizeBasedTriggeringPolicy size="10MB"/>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="File"/></Root>
    <Logger name="kafka.server.KafkaConfig" level="ERROR"/>
    <Logger name="org.apache.kafka.common.config.AbstractConfig" level="ERROR"/>
  </Loggers>
</Configuration>
"""


def default_class_path() -> list[str]:
    """Jars of the broker: ``var/jars/broker/*.jar`` and those that pyspark has anyway.

    Raises ``LabError`` ``NO_BROKER_JARS`` with the place that was looked at.
    """
    folder = var_folder().absolute() / "jars" / "broker"
    own = sorted(folder.glob("*.jar"))
    if not any(jar.name.startswith("kafka_2") for jar in own):
        raise LabError(
            "NO_BROKER_JARS",
            f"no Kafka broker in {folder}: fetch it with 'stackcast lab fetch', or set "
            "STACKCAST_VAR to the folder that contains jars/broker",
            folder=str(folder),
        )
    borrowed = [jar for pattern in _FROM_PYSPARK for jar in spark_jars(pattern)]
    return [str(jar) for jar in (*own, *borrowed)]


def free_ports(count: int) -> list[int]:
    """Returns ``count`` distinct loopback TCP ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Broker:
    """A running Kafka broker; a context manager.

    Parameters
    ----------
    jars: class path: jar files, folders or globs.
    folder: where configuration, ``data`` and ``log`` go. Data of an earlier run are removed,
        so that a topic always begins at offset 0.
    java: the Java 17 (or newer) executable.
    lasting: whether it lives for long, so that it pays to compile what it does well.

    ``bootstrap_servers`` is ``"127.0.0.1:PORT"`` once ``start`` has returned.
    Errors: ``LabError`` ``BROKER_FAILED`` with the last lines of the broker's log;
    ``RequirementError`` ``JAVA``.
    """

    def __init__(
        self,
        jars: Iterable[str | Path],
        folder: str | Path,
        java: str = "java",
        lasting: bool = False,
    ) -> None:
        self._class_path = os.pathsep.join(_expand(jars))
        self.folder = Path(folder).absolute()
        self._java = java
        self._lasting = lasting
        self._child: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = ""

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """Process id of the broker, None while it does not run."""
        return self._child.pid if self._child else None

    def alive(self) -> bool:
        """True while the broker's process runs."""
        return self._child is not None and self._child.poll() is None

    def start(self, timeout: float = 60) -> Broker:
        """Begins, where nobody has, and returns when the broker answers.

        Another program may take a port between its choice and its use: then all is tried again.
        """
        try:
            if not self.alive():
                self.begin()
            try:
                self._wait_until_it_answers(timeout)
            except LabError:
                if not self._port_was_taken():
                    raise
                self.stop()
                self.begin()
                self._wait_until_it_answers(timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def begin(self) -> None:
        """Makes an empty storage and starts the broker's process, which `start` waits for."""
        log = self.folder / "log"
        data = self.folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        shutil.rmtree(log, ignore_errors=True)
        log.mkdir(parents=True)
        data.mkdir()
        (self.folder / "log4j2.xml").write_text(_LOG4J2.format(log=log))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        (data / "meta.properties").write_text(_META_PROPERTIES.format(cluster=cluster))
        port, controller = free_ports(2)
        self._child = self._spawn(("kafka.Kafka", str(self._write_properties(port, controller))))
        self.bootstrap_servers = f"127.0.0.1:{port}"

    def _write_properties(self, port: int, controller: int) -> Path:
        path = self.folder / "server.properties"
        data = self.folder / "data"
        path.write_text(_PROPERTIES.format(port=port, controller=controller, data=data))
        return path

    def _port_was_taken(self) -> bool:
        """True if the broker has ended, and its log says that it could not have a port."""
        lines = [line for log in self._logs() for line in log]
        return not self.alive() and any(words in line for line in lines for words in _PORT_TAKEN)

    def _logs(self) -> list[list[str]]:
        """Lines of the two logs that a start can leave."""
        paths = [self.folder / "log" / name for name in ("console.log", "server.log")]
        return [p.read_text(errors="replace").splitlines() for p in paths if p.exists()]

    def stop(self, timeout: float = 15) -> None:
        """Ends the broker and waits until it is gone. Does nothing if it does not run."""
        child, self._child = self._child, None
        if child is not None:
            stop_process(child, timeout)

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        options = (
            "-Xmx512m",
            "-Xms128m",
            "-XX:+UseSerialGC",
            *(() if self._lasting else ("-XX:TieredStopAtLevel=1",)),
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:-BytecodeVerificationRemote",
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.xml').as_uri()}",
        )
        arguments = [self._java, *options, "-cp", self._class_path, *command]
        try:
            with (self.folder / "log" / "console.log").open("ab") as console:
                return start_tied(arguments, stdout=console, stderr=subprocess.STDOUT)
        except FileNotFoundError:
            check_java(self._java)
            raise

    def _wait_until_it_answers(self, timeout: float) -> None:
        port = int(self.bootstrap_servers.rsplit(":", 1)[1])
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if not self.alive():
                check_java(self._java)
                status = self._child.returncode if self._child else None
                raise self._failed(f"it ended during its start with exit code {status}")
            if _listens(port) and _answers_metadata(self.bootstrap_servers):
                return
            time.sleep(0.1)
        raise self._failed(f"it did not respond within {timeout:.0f} s")

    def _failed(self, why: str) -> LabError:
        lines = [line for log in self._logs() for line in log[-_LOG_LINES:]]
        said = "\n  ".join(lines) or "(nothing)"
        return LabError(
            "BROKER_FAILED",
            f"the Kafka broker could not be started: {why}. "
            f"Last lines of {self.folder / 'log'}:\n  {said}",
            folder=str(self.folder),
        )


def _expand(jars: Iterable[str | Path]) -> list[str]:
    """Jar files, folders and globs to jar files, in order."""
    found: list[str] = []
    for each in map(Path, jars):
        if each.is_dir():
            found += [str(jar.absolute()) for jar in sorted(each.glob("*.jar"))]
        elif "*" in each.name:
            found += [str(jar.absolute()) for jar in sorted(each.parent.glob(each.name))]
        else:
            found.append(str(each.absolute()))
    return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers_metadata(address: str) -> bool:
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=address, bootstrap_timeout_ms=2000, request_timeout_ms=5000
        )
    except (ClientError, OSError):
        return False
    try:
        return bool(admin.describe_cluster()["brokers"])
    except (ClientError, OSError):
        return False
    finally:
        admin.close()
