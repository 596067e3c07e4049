"""The private names of kafka-python exist in the installed version, and do what they should."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from stackcast.jobs.adapters.kafka.private_names import detach_socket

pytestmark = pytest.mark.unit


def run(net: NetworkSelector) -> None:
    """Run the tasks of kafka-python until they wait for the socket again."""
    for _ in range(5):
        net.poll(timeout_ms=20)


def test_kafka_python_neither_reads_nor_closes_a_detached_socket():
    ours, peer = socket.socketpair()
    ours.setblocking(False)
    net = NetworkSelector()
    transport = KafkaTCPTransport(net, ours)
    received = []
    transport.set_protocol(SimpleNamespace(_sensors=None, data_received=received.append))
    transport.resume_reading()
    peer.send(b"first")
    run(net)
    assert received == [b"first"]
    detached = detach_socket(SimpleNamespace(transport=transport))
    peer.send(b"second")
    run(net)
    net.close()
    assert received == [b"first"]
    assert detached is ours and ours.recv(10) == b"second"
    for end in (ours, peer):
        end.close()


def test_a_transport_with_tls_has_the_names_of_its_base_class():
    assert issubclass(KafkaSSLTransport, KafkaTCPTransport)
    assert KafkaSSLTransport.pause_reading is KafkaTCPTransport.pause_reading
