"""Two brokers and a controller, so that another broker can become leader."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from contextlib import ExitStack
from pathlib import Path

from kafka import KafkaAdminClient
from waiting import until

from stackcast.lab.up.broker import Broker, default_class_path, free_ports

_COMMON = """\
node.id={node}
controller.quorum.voters=100@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
"""
_CONTROLLER = """\
process.roles=controller
listeners=CONTROLLER://127.0.0.1:{controller}
"""
_BROKER = """\
process.roles=broker
listeners=PLAINTEXT://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.listener.name=PLAINTEXT
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
replica.lag.time.max.ms=2000
controlled.shutdown.enable=false
"""


class Node(Broker):
    """One process of a cluster: a broker, or the controller if it has no port."""

    def __init__(self, folder: Path, cluster: str, node: int, controller: int, port: int) -> None:
        super().__init__(default_class_path(), folder)
        data, log = folder / "data", folder / "log"
        for each in (data, log):
            each.mkdir(parents=True)
        (folder / "log4j2.xml").write_text("<Configuration/>")
        identity = f"version=1\ncluster.id={cluster}\nnode.id={node}\n"
        (data / "meta.properties").write_text(identity)
        text = _COMMON + (_BROKER if port else _CONTROLLER)
        values = {"node": node, "controller": controller, "port": port, "data": data}
        (folder / "server.properties").write_text(text.format(**values))
        self.bootstrap_servers = f"127.0.0.1:{port}"

    def begin(self) -> None:
        """Start the process, and wait for nothing."""
        self._child = self._spawn(("kafka.Kafka", str(self.folder / "server.properties")))


class TwoBrokers:
    """A cluster in a folder; a context manager.

    Attributes:
        brokers: the two brokers, whose node ids are 1 and 2.
        bootstrap_servers: addresses of both.
    """

    def __init__(self, folder: Path) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        controller, *ports = free_ports(3)
        self._controller = Node(folder / "controller", cluster, 100, controller, 0)
        self.brokers = [
            Node(folder / f"broker{number}", cluster, number, controller, port)
            for number, port in enumerate(ports, 1)
        ]
        self.bootstrap_servers = ",".join(broker.bootstrap_servers for broker in self.brokers)
        self._running = ExitStack()

    def __enter__(self) -> TwoBrokers:
        nodes = [self._controller, *self.brokers]
        for node in nodes:
            self._running.callback(node.stop)
            node.begin()
        for broker in self.brokers:
            broker.start(300)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def create_topic(self, name: str) -> None:
        """Create a topic of one partition with an unclean leader election, led by broker 1."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers.split(","))
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        admin.create_topics({name: {"assignments": {0: [1, 2]}, "configs": config}})
        admin.close()
        self.await_leader(name, 1)

    def await_leader(self, topic: str, node: int) -> None:
        """Wait until a broker leads the topic."""
        (broker,) = [b for n, b in enumerate(self.brokers, 1) if n == node]
        admin = KafkaAdminClient(bootstrap_servers=[broker.bootstrap_servers])

        def leads() -> bool:
            found = admin.describe_topics([topic])
            partitions = found[0]["partitions"] if found else []
            return bool(partitions) and partitions[0]["leader_id"] == node

        until(leads)
        admin.close()
