"""Malformed messages of a switch cause one error with a name; other switches are not affected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from entry_tables import PIPELINE, SOME
from fault_server import FaultServer

from stackcast.jobs.adapters.switches import session as switch_session
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.schemas.p4runtime import p4runtime_pb2

pytestmark = pytest.mark.integration

SERVICE = "p4.v1.P4Runtime"


def varint(number: int) -> bytes:
    """Encode an unsigned integer as protobuf does."""
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, content: bytes) -> bytes:
    """Encode a field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def nested(depth: int) -> bytes:
    """A ReadResponse whose register entry has a tuple in a tuple, and so on."""
    data = b""
    for _ in range(depth):
        # P4Data.tuple (4), P4StructLike.members (1).
        data = field(4, field(1, data))
    # ReadResponse.entities (1), Entity.register_entry (11), RegisterEntry.data (3).
    return field(1, field(11, field(3, data)))


def arbitration() -> bytes:
    message = p4runtime_pb2.StreamMessageResponse()
    message.arbitration.device_id = 1
    message.arbitration.election_id.low = 1
    return bytes(message.SerializeToString())


def running() -> bytes:
    """The answer of a switch that runs the program."""
    answer = p4runtime_pb2.GetForwardingPipelineConfigResponse()
    answer.config.p4info.CopyFrom(PIPELINE.p4info)
    answer.config.cookie.cookie = PIPELINE.cookie
    return bytes(answer.SerializeToString())


class RawServer:
    """A gRPC server that answers the calls of P4Runtime with given bytes."""

    def __init__(self, reads: bytes, stream: bytes) -> None:
        self._ended = threading.Event()

        def talk(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
            next(requests)
            if stream:
                yield stream
            yield arbitration()
            self._ended.wait()

        calls: dict[str, Any] = {
            "Capabilities": grpc.unary_unary_rpc_method_handler(lambda *_: b""),
            "GetForwardingPipelineConfig": grpc.unary_unary_rpc_method_handler(
                lambda *_: running()
            ),
            "Read": grpc.unary_stream_rpc_method_handler(lambda *_: iter([reads])),
            "Write": grpc.unary_unary_rpc_method_handler(lambda *_: b""),
            "StreamChannel": grpc.stream_stream_rpc_method_handler(talk),
        }
        self._server = grpc.server(
            futures.ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", 1 << 30)]
        )
        handler = grpc.method_handlers_generic_handler(SERVICE, calls)
        self._server.add_generic_rpc_handlers((handler,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._ended.set()
        self._server.stop(0).wait(5)


@pytest.fixture
def serve() -> Iterator[Callable[[bytes, bytes], RawServer]]:
    servers: list[RawServer] = []

    def start(reads: bytes, stream: bytes) -> RawServer:
        servers.append(RawServer(reads, stream))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def good() -> Iterator[FaultServer]:
    server = FaultServer(["s1"])
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("reads", "stream", "code"),
    [
        (field(1, field(200, bytes(100 << 20))), b"", "SWITCH.BAD_MESSAGE"),
        (nested(5_000), b"", "SWITCH.BAD_MESSAGE"),
        (b"\xff\xff\xff", b"", "SWITCH.BAD_MESSAGE"),
        (b"", b"\xff\xff\xff", "SWITCH.BAD_MESSAGE"),
        (b"", bytes(100 << 20), "SWITCH.BAD_MESSAGE"),
        # Fields that the protocol does not have: the entry is of no table.
        (field(1, field(200, b"new")), b"", ""),
        (b"", field(200, b"new"), ""),
    ],
    ids=[
        "100 MB",
        "deep nesting",
        "garbage",
        "garbage on the stream",
        "100 MB on the stream",
        "unknown fields",
        "unknown fields on the stream",
    ],
)
def test_a_malformed_message_is_one_error_of_its_switch(
    serve: Callable[[bytes, bytes], RawServer],
    good: FaultServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reads: bytes,
    stream: bytes,
    code: str,
) -> None:
    monkeypatch.setattr(switch_session, "_FIRST_PAUSE", 0.01)
    bad = serve(reads, stream)
    with (
        SwitchSession(SwitchTarget("s1", bad.address, 1), election_id=1) as session,
        SwitchSession(SwitchTarget("s1", good.address, 1), election_id=1) as other,
    ):
        outcome = session.refresh([], PIPELINE)
        assert other.refresh(SOME, PIPELINE).in_sync
        if code:
            (error,) = outcome.errors
            assert error.startswith(f"{code}: switch 's1' at {bad.address}")
            assert not outcome.in_sync
        else:
            assert outcome.in_sync, outcome.errors
        assert good.devices["s1"].entries() == set(SOME)
    assert not [record for record in caplog.records if record.exc_info]


def test_packets_that_are_longer_than_frames_are_not_kept(
    serve: Callable[[bytes, bytes], RawServer],
) -> None:
    packets = [p4runtime_pb2.PacketIn(payload=bytes(length)) for length in (9_216, 1 << 20)]
    for packet, count in zip(packets, (1, 0), strict=True):
        message = p4runtime_pb2.StreamMessageResponse(packet=packet)
        server = serve(b"", message.SerializeToString())
        # The packet arrives before the answer to the request for mastership.
        with SwitchConnection.connect(server.address, 1, election_id=1) as connection:
            assert connection._client.packets.qsize() == count
