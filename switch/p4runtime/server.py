"""A P4Runtime 1.4 server over gRPC for many switches, one device id each.

Only what travels is here: requests to calls of `stackcast.switch.p4runtime.device.Device`, its
answers and refusals back. Statuses are those of the P4Runtime specification; a refused Write or
Read carries one ``p4.v1.Error`` for each of its updates or entities, as long as they have room
(`batch_status`).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NoReturn

import grpc
from google.rpc import code_pb2

from stackcast.schemas.p4runtime import p4runtime_pb2, p4runtime_pb2_grpc
from stackcast.switch.p4runtime.arbitration import Arbitration
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.endpoint import ServerCredentials, check_listen
from stackcast.switch.p4runtime.refusal import Refusal, batch_status
from stackcast.udfs.errors import LabError

API_VERSION = "1.4.0"

LONGEST_MESSAGE = 64 << 20
"""Bytes of a message, in and out: programs and their batches are far smaller."""

_ENTITIES_A_RESPONSE = 1000
_SPARE_THREADS = 8
_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", LONGEST_MESSAGE),
    ("grpc.max_send_message_length", LONGEST_MESSAGE),
    # A client whose machine is gone says no goodbye; its stream would live, and it stay primary.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)
_Outbox = queue.SimpleQueue[Any]

log = logging.getLogger(__name__)


class P4RuntimeServer:
    """Serves ``devices`` at one address, by default on a free loopback port.

    Parameters
    ----------
    listen: ``HOST:PORT``; port 0 takes a free one. tls: none by default.

    patience: seconds within which a stream must start with arbitration.

    ``address`` is where it listens: ``"127.0.0.1:port"``. Raises LabError ``BAD_ADDRESS``,
    ``PORT_TAKEN``, ``BAD_TLS``.
    """

    def __init__(
        self,
        devices: Iterable[Device],
        listen: str = "127.0.0.1:0",
        tls: ServerCredentials | None = None,
        patience: float = 10.0,
    ) -> None:
        check_listen(listen)
        host, _, port = listen.rpartition(":")
        by_id = {device.arbitration.device_id: device for device in devices}
        credentials = tls and tls.load()
        # A stream keeps a thread as long as it lives; the others must not wait for it. Threads come
        # only when they are needed.
        streams = _SPARE_THREADS + sum(device.arbitration.most for device in by_id.values())
        self._threads = futures.ThreadPoolExecutor(streams + _SPARE_THREADS, "p4runtime")
        self._server = grpc.server(self._threads, options=_OPTIONS)
        servicer = _Servicer(by_id, streams, patience)
        p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(servicer, self._server)
        try:
            if credentials is None:
                bound = self._server.add_insecure_port(listen)
            else:
                bound = self._server.add_secure_port(listen, credentials)
        except RuntimeError:
            bound = 0
        if not bound:
            self._threads.shutdown(wait=False)
            root = "; ports below 1024 require root" if 0 < int(port) < 1024 else ""
            raise LabError("PORT_TAKEN", f"port {port} of {host} is in use or not permitted{root}")
        self.address = f"{host}:{bound}"

    def start(self) -> P4RuntimeServer:
        self._server.start()
        return self

    def stop(self, grace: float = 0.2) -> None:
        """Ends all streams and calls; ``grace`` is in seconds.

        A Write that has not taken effect yet never will. Other calls may go on in their threads;
        nobody hears of them.
        """
        self._server.stop(grace).wait(grace + 0.5)
        self._threads.shutdown(wait=False)


class _Servicer(p4runtime_pb2_grpc.P4RuntimeServicer):  # type: ignore[misc]
    # The names of the methods are the protocol's.

    def __init__(self, devices: Mapping[int, Device], streams: int, patience: float) -> None:
        self._devices = devices
        self._patience = patience
        self._streams = threading.BoundedSemaphore(streams)

    def Capabilities(self, request: Any, context: Any) -> Any:  # noqa: N802
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            device = self._device_for(request, context)
            config = request.config if request.HasField("config") else None
            device.set_config(request.action, config, _election_id(request), request.role)
        except Refusal as refusal:
            _abort(context, refusal)
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        kinds = p4runtime_pb2.GetForwardingPipelineConfigRequest
        try:
            running = self._device(request.device_id).config()
        except Refusal as refusal:
            _abort(context, refusal)
        response = p4runtime_pb2.GetForwardingPipelineConfigResponse()
        response.config.SetInParent()
        if running.HasField("cookie"):
            response.config.cookie.CopyFrom(running.cookie)
        if request.response_type in (kinds.ALL, kinds.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(running.p4info)
        if request.response_type in (kinds.ALL, kinds.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = running.p4_device_config
        return response

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            device = self._device_for(request, context)
            answers = device.write(
                request.updates,
                request.atomicity,
                _election_id(request),
                context.is_active,
                request.role,
            )
        except Refusal as refusal:
            _abort(context, refusal)
        if any(answers):
            _abort_batch(context, answers)
        return p4runtime_pb2.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        try:
            # Whoever comes in reads under the default role: that takes nothing from anybody.
            device = self._device(request.device_id)
            if request.role:
                device.roles.check(request.role, _names(context))
            with device.lock:
                device.arbitration_of(request.role)
            entities, answers = device.read(request.entities)
        except Refusal as refusal:
            _abort(context, refusal)
        for start in range(0, len(entities), _ENTITIES_A_RESPONSE):
            yield p4runtime_pb2.ReadResponse(
                entities=entities[start : start + _ENTITIES_A_RESPONSE]
            )
        if any(answers):
            _abort_batch(context, answers)

    def StreamChannel(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        if not self._streams.acquire(blocking=False):
            _abort(context, Refusal(code_pb2.RESOURCE_EXHAUSTED, "too many streams are open"))
        try:
            outbox, begun = _Outbox(), threading.Event()
            work = requests, outbox, begun, _names(context)
            threading.Thread(target=self._listen, args=work, daemon=True).start()
            # A stream that says nothing must not take the place of another.
            if not begun.wait(self._patience):
                _abort(context, _no_arbitration(f" within {self._patience:g} s"))
            while (message := outbox.get()) is not None:
                if isinstance(message, Refusal):
                    _abort(context, message)
                yield message
        finally:
            self._streams.release()

    def _listen(
        self,
        requests: Iterator[Any],
        outbox: _Outbox,
        begun: threading.Event,
        client: frozenset[str],
    ) -> None:
        """One client's messages, until it leaves; runs beside the thread that answers it."""
        device: Device | None = None
        joined: Arbitration | None = None
        last: Any = None
        try:
            for request in requests:
                begun.set()
                if request.HasField("arbitration"):
                    device, joined = self._arbitrate(joined, request.arbitration, outbox, client)
                elif device is None or joined is None:
                    raise _no_arbitration()
                else:
                    answer = _sent_out(device, request, outbox, joined.role)
                    if answer is not None:
                        outbox.put(answer)
        except Refusal as refusal:
            last = refusal
        except grpc.RpcError:
            log.debug("a client's stream was interrupted")
        finally:
            begun.set()
            if device is not None and joined is not None:
                with device.lock:
                    joined.leave(outbox)
            outbox.put(last)

    def _arbitrate(
        self, joined: Arbitration | None, message: Any, outbox: _Outbox, client: frozenset[str]
    ) -> tuple[Device, Arbitration]:
        if joined is not None and (
            (message.device_id, message.role.name) != (joined.device_id, joined.role)
        ):
            raise Refusal(
                code_pb2.FAILED_PRECONDITION,
                "a stream cannot change its device or role: open another",
            )
        device = self._device(message.device_id)
        _no_number(message.role.id)
        if message.role.HasField("config"):
            raise Refusal(code_pb2.INVALID_ARGUMENT, "roles with a configuration are not supported")
        device.roles.check(message.role.name, client)
        # A Write of the primary that this client succeeds holds the lock until it is done.
        with device.lock:
            arbitration = device.arbitration_of(message.role.name)
            arbitration.join(outbox, _election_id(message))
        return device, arbitration

    def _device_for(self, request: Any, context: Any) -> Device:
        """Returns the device that a request writes, if its client may take the request's role."""
        device = self._device(request.device_id)
        _no_number(request.role_id)
        device.roles.check(request.role, _names(context))
        return device

    def _device(self, device_id: int) -> Device:
        if device_id not in self._devices:
            raise Refusal(code_pb2.NOT_FOUND, f"device {device_id} does not exist")
        return self._devices[device_id]


def _election_id(message: Any) -> int | None:
    if not message.HasField("election_id"):
        return None
    return int(message.election_id.high) << 64 | int(message.election_id.low)


def _names(context: Any) -> frozenset[str]:
    """Returns the names in the certificate that a client showed."""
    shown = context.auth_context()
    keys = "x509_common_name", "x509_subject_alternative_name"
    return frozenset(name.decode(errors="replace") for key in keys for name in shown.get(key, ()))


def _no_number(number: int) -> None:
    if number:
        raise Refusal(
            code_pb2.NOT_FOUND, f"role {number}: a role must have a name instead of a number"
        )


def _no_arbitration(when: str = "") -> Refusal:
    words = f"a stream must start with arbitration{when}"
    return Refusal(code_pb2.FAILED_PRECONDITION, words)


def _sent_out(device: Device, request: Any, client: _Outbox, role: str) -> Any:
    """Sends out what a client gives; returns the error for it if that cannot be."""
    if request.WhichOneof("update") != "packet":
        return _unsupported(request)
    try:
        device.packet_out(request.packet, client, role)
    except Refusal as refusal:
        response = p4runtime_pb2.StreamMessageResponse()
        response.error.canonical_code = refusal.code
        response.error.message = refusal.message
        response.error.packet_out.packet_out.CopyFrom(request.packet)
        return response
    return None


def _unsupported(request: Any) -> Any:
    response = p4runtime_pb2.StreamMessageResponse()
    kind = request.WhichOneof("update")
    response.error.canonical_code = code_pb2.UNIMPLEMENTED if kind else code_pb2.INVALID_ARGUMENT
    response.error.message = (
        f"this switch does not support {kind}" if kind else "the message is empty"
    )
    if kind == "digest_ack":
        response.error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        response.error.other.SetInParent()
    return response


def _abort(context: Any, refusal: Refusal) -> NoReturn:
    context.abort(_GRPC_CODES[refusal.code], refusal.message)
    raise AssertionError("abort raises")


def _abort_batch(context: Any, answers: Sequence[Refusal | None]) -> NoReturn:
    status = batch_status(answers)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, status.message)
    raise AssertionError("abort raises")
