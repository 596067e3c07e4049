"""Writes what a release of ours leaves behind: tables, checkpoints, records and frames of a stream.

Run it with the sources of that release, in an environment that has its packages:

    PYTHONPATH=/path/to/sources/of/it STACKCAST_VAR=/path/to/var python make_stream.py OUT.tar.xz

The archive holds

- ``tables``: after two batches of two, three and four rules, one of them with state;
- ``stopped``: the checkpoint after the stream was stopped between two batches;
- ``killed``: the checkpoint after the next run was killed with SIGKILL in its first batch, when
  all frames had left, and neither ledger nor statistics nor the commit had been written;
- ``stream.json``: ``records`` by partition, hexadecimal, from offset 0; ``frames`` of both runs.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from pathlib import Path

from kafka import KafkaProducer

from jobs.adapters.app import session
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.stream.delivery import BatchDelivery
from jobs.adapters.stream.kafka import Topics
from jobs.adapters.stream.micro_batches import start
from jobs.adapters.tables.tables import Tables
from jobs.adapters.wire.pcap import read_pcap
from lab.traffic.packets import groups
from lab.traffic.publisher import ensure_topic
from lab.traffic.trading_session import TradingSession
from lab.up.broker import Broker, default_class_path
from udfs.messages.reference import build_packet
from udfs.network.rows import network_to_rows, tree_to_row
from udfs.network.topology import fabric
from udfs.trees.broadcast import broadcast_trees

TOPIC = "itch.golden"
PARTITIONS = 2
BATCH = 70
FIRST = 2 * BATCH
RULES = {
    "high": ("h1", "price > 200"),
    "side": ("h2", 'buy_sell == "B" and shares >= 300'),
    "many": ("h3", "count(600000000) > 100 and price > 0"),
    "both": ("h1", "trade.price > 20 : fwd(h1, h4)"),
}


def settings_of(folder: Path, bootstrap_servers: str, frames: str) -> Settings:
    return Settings(
        topic=TOPIC,
        dead_letter_topic="itch.golden.dead",
        tables=str(folder / "tables"),
        checkpoint=str(folder / "checkpoint"),
        publisher="feed1",
        max_offsets_per_trigger=BATCH,
        sink="pcap",
        pcap_path=str(folder / frames),
        kafka={"bootstrap.servers": bootstrap_servers},
    )


def fill(tables: Tables) -> None:
    network = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)
    tables.create()
    for name, rows in network_to_rows(network, dict.fromkeys(network.switches, "s:1")).items():
        tables.append(name, rows)
    tables.append("virtual_trees", [tree_to_row(tree) for tree in broadcast_trees(network)])
    now = dt.datetime.now(dt.UTC)
    for name, (host, text) in RULES.items():
        row = {"id": name, "subscriber": host, "format": "itch", "filter": text, "enabled": True}
        tables.append("subscriptions", [row | {"updated_by": "golden", "updated_at": now}])


def publish(bootstrap_servers: str, records: list[bytes], first: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
    for number, record in enumerate(records, first):
        producer.send(TOPIC, record, partition=number % PARTITIONS)
    producer.flush()
    producer.close()


def frames_in(folder: Path) -> list[str]:
    files = sorted(folder.glob("*.pcap"))
    return [record.frame.hex() for path in files for record in read_pcap(path.open("rb"))]


def main(out: Path) -> None:
    messages = list(TradingSession(messages=1_200, seed=3, symbols=20))
    records = [build_packet(b"SOURCE0001", 1, group) for group in groups(messages, seed=3)]
    folder = Path(tempfile.mkdtemp())
    spark = session.start("golden stream")
    with Broker(default_class_path(), folder / "broker").start(timeout=600) as broker:
        fill(Tables(spark, str(folder / "tables")))
        ensure_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        publish(broker.bootstrap_servers, records[:FIRST], 0)
        settings = settings_of(folder, broker.bootstrap_servers, "frames-stopped")
        query, delivery = start(spark, settings, lifecycle := Lifecycle())
        ends = Topics(spark, settings).end_offsets()
        lifecycle.run(query, lambda: delivery.processed == ends)
        delivery.close()
        shutil.copytree(folder / "checkpoint", folder / "stopped")
        publish(broker.bootstrap_servers, records[FIRST:], FIRST)
        killed = os.fork()
        if not killed:
            os.execv(
                sys.executable, [sys.executable, __file__, str(folder), broker.bootstrap_servers]
            )
        os.waitpid(killed, 0)
    spark.stop()
    (folder / "checkpoint").rename(folder / "killed")
    stream = {
        "topic": TOPIC,
        "records": [[r.hex() for r in records[p::PARTITIONS]] for p in range(PARTITIONS)],
        "frames": {run: frames_in(folder / f"frames-{run}") for run in ("stopped", "killed")},
    }
    (folder / "stream.json").write_text(json.dumps(stream))
    with tarfile.open(out, "w:xz") as archive:
        for name in ("tables", "stopped", "killed", "stream.json"):
            archive.add(folder / name, name)


def run_and_die(folder: Path, bootstrap_servers: str) -> None:
    """The second run, in a process of its own."""
    BatchDelivery._bury = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    settings = settings_of(folder, bootstrap_servers, "frames-killed")
    query, _ = start(session.start("golden stream"), settings, lifecycle := Lifecycle())
    lifecycle.run(query, lambda: False)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        run_and_die(Path(sys.argv[1]), sys.argv[2])
