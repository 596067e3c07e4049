"""A P4Runtime 1.x server over gRPC for many switches, one device id each.

Only what travels is here: requests to calls of :class:`lab.device.Device`, its answers and
refusals back. Statuses are those of the P4Runtime specification; a refused Write carries one
``p4.v1.Error`` for each of its updates.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any, NoReturn

import grpc
from google.rpc import code_pb2, status_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

from lab.device import Device
from lab.p4info import Refusal
from udfs.errors import LabError

API_VERSION = "1.4.0"

_ENTRIES_A_RESPONSE = 1000
_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
_Outbox = queue.SimpleQueue[Any]

log = logging.getLogger(__name__)


class P4RuntimeServer:
    """Serves ``devices`` on a loopback port, a free one by default.

    ``address`` is ``"127.0.0.1:port"``. Raises LabError ``PORT_TAKEN``.
    """

    def __init__(self, devices: Iterable[Device], port: int = 0) -> None:
        by_id = {device.arbitration.device_id: device for device in devices}
        # A stream keeps a thread as long as it lives, and the threads come only when needed:
        # room for four clients on every switch at once.
        self._threads = futures.ThreadPoolExecutor(16 + 4 * len(by_id), "p4runtime")
        self._server = grpc.server(self._threads, options=[("grpc.so_reuseport", 0)])
        p4runtime_pb2_grpc.add_P4RuntimeServicer_to_server(_Servicer(by_id), self._server)
        try:
            bound = self._server.add_insecure_port(f"127.0.0.1:{port}")
        except RuntimeError:
            bound = 0
        if not bound:
            raise LabError("PORT_TAKEN", f"port {port} of 127.0.0.1 cannot be listened on")
        self.address = f"127.0.0.1:{bound}"

    def start(self) -> P4RuntimeServer:
        self._server.start()
        return self

    def stop(self, grace: float = 0.2) -> None:
        """Ends all streams and calls; ``grace`` is in seconds."""
        self._server.stop(grace).wait(grace + 0.5)
        self._threads.shutdown(wait=False)


class _Servicer(p4runtime_pb2_grpc.P4RuntimeServicer):  # type: ignore[misc]
    # The names of the methods are the protocol's.

    def __init__(self, devices: Mapping[int, Device]) -> None:
        self._devices = devices

    def Capabilities(self, request: Any, context: Any) -> Any:  # noqa: N802
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            device = self._device(request.device_id)
            _default_role(request.role)
            device.set_config(request.action, request.config, _number(request.election_id))
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
        response.config.cookie.CopyFrom(running.cookie)
        if request.response_type in (kinds.ALL, kinds.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(running.p4info)
        if request.response_type in (kinds.ALL, kinds.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = running.p4_device_config
        return response

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            device = self._device(request.device_id)
            _default_role(request.role)
            answers = device.write(request.updates, request.atomicity, _number(request.election_id))
        except Refusal as refusal:
            _abort(context, refusal)
        if any(answers):
            _abort_write(context, answers)
        return p4runtime_pb2.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        try:
            device = self._device(request.device_id)
            entries = [entry for entity in request.entities for entry in device.read(entity)]
        except Refusal as refusal:
            _abort(context, refusal)
        for start in range(0, len(entries), _ENTRIES_A_RESPONSE):
            response = p4runtime_pb2.ReadResponse()
            for entry in entries[start : start + _ENTRIES_A_RESPONSE]:
                response.entities.add().table_entry.CopyFrom(entry)
            yield response

    def StreamChannel(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        outbox = _Outbox()
        threading.Thread(target=self._listen, args=(requests, outbox), daemon=True).start()
        while (message := outbox.get()) is not None:
            if isinstance(message, Refusal):
                _abort(context, message)
            yield message

    def _listen(self, requests: Iterator[Any], outbox: _Outbox) -> None:
        """One client's messages, until it leaves; runs beside the thread that answers it."""
        device: Device | None = None
        last: Any = None
        try:
            for request in requests:
                if request.HasField("arbitration"):
                    device = self._arbitrate(device, request.arbitration, outbox)
                elif device is None:
                    raise Refusal(
                        code_pb2.FAILED_PRECONDITION, "a stream must begin with arbitration"
                    )
                else:
                    outbox.put(_unsupported(request))
        except Refusal as refusal:
            last = refusal
        except grpc.RpcError:
            log.debug("a client's stream broke off")
        finally:
            if device is not None:
                with device.lock:
                    device.arbitration.leave(outbox)
            outbox.put(last)

    def _arbitrate(self, joined: Device | None, message: Any, outbox: _Outbox) -> Device:
        device = self._device(message.device_id)
        _default_role(message.role.name)
        if joined not in (None, device):
            raise Refusal(
                code_pb2.FAILED_PRECONDITION, "a stream cannot change its device: open another"
            )
        if message.HasField("election_id") and not _number(message.election_id):
            raise Refusal(code_pb2.INVALID_ARGUMENT, "election id 0 is not valid")
        with device.lock:
            device.arbitration.join(outbox, _number(message.election_id))
        return device

    def _device(self, device_id: int) -> Device:
        if device_id not in self._devices:
            raise Refusal(code_pb2.NOT_FOUND, f"there is no device {device_id} here")
        return self._devices[device_id]


def _number(election_id: Any) -> int:
    return int(election_id.high) << 64 | int(election_id.low)


def _default_role(name: str) -> None:
    if name:
        raise Refusal(code_pb2.UNIMPLEMENTED, f"role {name!r}: there is only the default role")


def _unsupported(request: Any) -> Any:
    response = p4runtime_pb2.StreamMessageResponse()
    response.error.canonical_code = code_pb2.UNIMPLEMENTED
    response.error.message = f"this switch takes no {request.WhichOneof('update')}"
    return response


def _abort(context: Any, refusal: Refusal) -> NoReturn:
    context.abort(_GRPC_CODES[refusal.code], refusal.message)
    raise AssertionError("abort raises")


def _abort_write(context: Any, answers: Iterable[Refusal | None]) -> NoReturn:
    status = status_pb2.Status(code=code_pb2.UNKNOWN, message="some updates were refused")
    for answer in answers:
        error = p4runtime_pb2.Error(canonical_code=code_pb2.OK)
        if answer is not None:
            error = p4runtime_pb2.Error(canonical_code=answer.code, message=answer.message)
        status.details.add().Pack(error)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, status.message)
    raise AssertionError("abort raises")
