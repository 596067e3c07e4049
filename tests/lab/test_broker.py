"""The embedded broker and its publisher, as a user of the lab sees them."""

from __future__ import annotations

import gzip
import itertools
import os
import signal
import socket
import subprocess
import sys
from threading import Event

import pytest
from kafka import KafkaConsumer, TopicPartition
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from scapy_captures import write_pcap
from typer.testing import CliRunner
from waiting import still_runs, until

from stackcast.cli.itch import app
from stackcast.lab.traffic.packets import packetize, write_records
from stackcast.lab.traffic.publisher import TICK_S, Published, ensure_topic, publish
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up.broker import Broker, default_class_path, free_ports
from stackcast.udfs.errors import KafkaError, LabError, RequirementError
from stackcast.udfs.messages.reference import read_packet

pytestmark = pytest.mark.integration


def records(broker: Broker, topic: str, partitions: int = 2) -> list[list[bytes]]:
    """All record values of a topic, by partition."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    try:
        parts = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(parts)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(parts)
        values: list[list[bytes]] = [[] for _ in parts]
        while any(len(values[part.partition]) < ends[part] for part in parts):
            for part, batch in consumer.poll(timeout_ms=5000).items():
                values[part.partition] += [record.value for record in batch]
        return values
    finally:
        consumer.close()


def test_a_session_arrives_whole_and_in_order_in_each_partition(broker):
    messages = list(TradingSession(messages=2000, seed=3, symbols=20))
    reports: list[Published] = []
    published = publish(
        broker.bootstrap_servers, "whole", messages, seed=3, progress=reports.append
    )
    by_partition = records(broker, "whole")
    assert published.messages == 2000
    assert published.packets == sum(map(len, by_partition))
    assert published.payload_bytes == sum(len(r) for part in by_partition for r in part)
    assert reports[-1] == published
    packets = [read_packet(record) for part in by_partition for record in part]
    for part in by_partition:
        numbers = [read_packet(record)[1] for record in part]
        assert numbers == sorted(numbers)
    packets.sort(key=lambda packet: packet[1])
    assert [message for _, _, group in packets for message in group] == messages
    assert {len(group) for _, _, group in packets} == set(range(1, 13))


def test_all_sessions_of_a_file_are_published(broker, tmp_path):
    days = [list(TradingSession(messages=count, symbols=20)) for count in (500, 700)]
    write_records(tmp_path / "days", [record for day in days for record in [*day, b""]])
    command = ["publish", str(tmp_path / "days"), "--topic", "days", "--partitions", "1"]
    result = CliRunner().invoke(app, [*command, "--bootstrap-servers", broker.bootstrap_servers])
    assert (result.exit_code, "1,200 messages" in result.stdout) == (0, True), result.output
    (packets,) = records(broker, "days", partitions=1)
    assert [m for packet in packets for m in read_packet(packet)[2]] == [*days[0], *days[1]]


@pytest.mark.parametrize("packed", [False, True])
def test_the_packets_of_a_capture_are_published_unchanged(broker, tmp_path, packed):
    packets = list(packetize(TradingSession(messages=200, symbols=20)))
    addresses = {"src": "02:00:00:00:00:01", "dst": "01:00:5e:36:0c:01"}
    datagram = IP(src="10.0.0.1", dst="233.54.12.1") / UDP(dport=26400)
    head = Ether(**addresses, type=0x8100) / Dot1Q(vlan=9) / datagram
    path = tmp_path / "capture"
    frames = [bytes(head / Raw(packet)) for packet in packets]
    write_pcap(path, [*frames, bytes(Ether(**addresses, type=0x0806) / Raw(bytes(28)))])
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    topic = f"capture-{packed}"
    command = ["publish", str(path), "--topic", topic, "--partitions", "1"]
    result = CliRunner().invoke(app, [*command, "--bootstrap-servers", broker.bootstrap_servers])
    assert (result.exit_code, "200 messages" in result.stdout) == (0, True), result.output
    assert f"1 of {len(packets) + 1:,} frames contain no MoldUDP64 packet" in result.stderr
    assert records(broker, topic, partitions=1) == [packets]


def test_the_same_session_makes_the_same_topic(broker):
    for topic in ("once", "again"):
        publish(broker.bootstrap_servers, topic, TradingSession(messages=500, symbols=20))
    assert records(broker, "once") == records(broker, "again")


def test_a_topic_has_the_partitions_asked_for(broker):
    ensure_topic(broker.bootstrap_servers, "three", partitions=3)
    ensure_topic(broker.bootstrap_servers, "three", partitions=3)  # twice is fine
    publish(broker.bootstrap_servers, "three", TradingSession(messages=300, symbols=20))
    assert all(records(broker, "three", partitions=3))


def test_a_record_of_a_megabyte_of_noise_is_taken(broker):
    from kafka import KafkaProducer  # noqa: PLC0415

    ensure_topic(broker.bootstrap_servers, "noise", partitions=1)
    noise = os.urandom(1 << 20)
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, max_request_size=1 << 22
    ) as producer:
        producer.send("noise", noise).get(30)
    assert records(broker, "noise", partitions=1) == [[noise]]


def test_publishing_keeps_to_a_rate_of_messages_and_can_be_stopped(broker):
    stop = Event()

    def progress(published: Published) -> None:
        if published.packets == 20:
            stop.set()

    published = publish(
        broker.bootstrap_servers,
        "slow",
        TradingSession(messages=2000, symbols=20),
        speed="400",
        stop=stop,
        progress=progress,
    )
    assert published.packets == 20 < published.messages
    assert published.seconds >= published.messages / 400 - TICK_S


def test_packets_are_published_unchanged(broker):
    packets = [*packetize(TradingSession(messages=300, symbols=20)), b"", b"damaged"]
    published = publish(broker.bootstrap_servers, "unchanged", packets, packets=True, partitions=1)
    assert (published.packets, published.messages) == (len(packets), 300)
    assert records(broker, "unchanged", partitions=1) == [packets]


@pytest.mark.long
def test_the_broker_starts_on_another_port_if_a_program_takes_the_first_one(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        calls = itertools.count()

        def choose(count: int) -> list[int]:
            # Ports of an earlier choice could be in use by the second call.
            if next(calls):
                return free_ports(count)
            return [server.getsockname()[1], *free_ports(count - 1)]

        monkeypatch.setattr("stackcast.lab.up.broker.free_ports", choose)
        with Broker(default_class_path(), tmp_path) as broker:
            ensure_topic(broker.bootstrap_servers, "any")
    assert next(calls) == 2


def test_no_broker_is_one_clear_error():
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1\b.*check the address") as caught:
        publish("127.0.0.1:1", "any", [])
    assert caught.value.code == "KAFKA.BROKER_UNREACHABLE"


def test_a_broker_that_cannot_start_shows_the_end_of_its_log(tmp_path):
    with pytest.raises(LabError, match="ClassNotFoundException") as caught:
        Broker([], tmp_path).start()
    assert caught.value.code == "LAB.BROKER_FAILED"


def test_without_java_the_error_says_so(tmp_path):
    with pytest.raises(RequirementError, match="Java 17"):
        Broker([], tmp_path, java="no-such-java").start()


def test_the_broker_dies_with_its_parent(tmp_path):
    """Even if the parent is killed and cannot clean up."""
    code = (
        "import sys, time\n"
        "from stackcast.lab.up.broker import Broker, default_class_path\n"
        "broker = Broker(default_class_path(), sys.argv[1]).start()\n"
        "print(broker.pid, flush=True)\n"
        "time.sleep(3600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not still_runs(child))
