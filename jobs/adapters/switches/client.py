"""The gRPC channel to a switch, and the stream on which clients compete for the right to write.

An own client over the generated stubs. p4runtime-shell's client ends the process if a switch does
not answer; `stackcast switch shell` opens its interactive shell.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import re
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import grpc
from google.rpc import code_pb2

from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.schemas.p4runtime import p4runtime_pb2, p4runtime_pb2_grpc
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches import election

log = logging.getLogger(__name__)
# gRPC logs a stack trace for each message that it cannot parse. `error_of` names the switch.
logging.getLogger("grpc._common").setLevel(logging.CRITICAL)

#: Packets that wait to be read, and the longest that is kept: longer than any frame of a switch.
_MAX_PACKETS = 4096
_MAX_PACKET_BYTES = 1 << 14
_CLOSE_SECONDS = 0.5
#: A read may take long. It is cancelled if no response arrives for this time and the switch does
#: not answer another call either.
_SILENCE_SECONDS = 15.0
#: A read is also cancelled if no response arrives for this time although the switch answers.
_STALL_SECONDS = 120.0
_READ_SECONDS = 600.0
#: Errors of the stream that are logged per connection; a faulty switch may send any number.
_MAX_LOGGED_ERRORS = 10
#: Status codes of switches that do not have a role, or only the default one.
_NO_ROLE = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)
#: Longest message that a switch may send. Reads are split into many responses, so it is an error if
#: one of them is longer.
_MAX_MESSAGE_BYTES = 64 << 20
_CHANNEL_OPTIONS = (
    # The answer to a refused batch contains an error for each update. gRPC accepts 8 KB by default.
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.absolute_max_metadata_size", 1 << 20),
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    # Otherwise a switch that returns on its old address is not reached until the pause ends that
    # gRPC makes after a failed attempt.
    ("grpc.use_local_subchannel_pool", 1),
)
#: P4Runtime's unsigned integers: 64 bits for a device id, 128 for an election id.
MAX_DEVICE_ID = (1 << 64) - 1
MAX_ELECTION_ID = (1 << 128) - 1
_MAX_PORT = (1 << 16) - 1
#: Port at the end of an address. gRPC takes the last 16 bits of a larger one, another port.
_PORT = re.compile(r":(-?\d+)\s*$", re.ASCII)
#: gRPC reports a message that it cannot accept or parse by these codes and texts.
_BAD_MESSAGES = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: "message larger than max",
    grpc.StatusCode.INTERNAL: "deserializing response",
}


def check_target(address: str, device_id: int, election_id: int, name: str = "") -> None:
    """Check the values that P4Runtime and gRPC limit, before anything is sent.

    Args:
        address: ``host:port``, or another form of address that gRPC knows.
        device_id: P4Runtime's number of the switch at that address.
        election_id: id with which a client requests the right to write; 0: it only reads.
        name: name of the switch, for the error.

    Raises:
        SwitchError: ``BAD_TARGET``, with the value and its range.
    """
    port = _PORT.search(address)
    if not address.isprintable() or (port and not 1 <= int(port[1]) <= _MAX_PORT):
        reason = (
            f"its address {address!r} must have the form host:port, with a port from 1 to "
            f"{_MAX_PORT}"
        )
    elif not 0 <= device_id <= MAX_DEVICE_ID:
        reason = f"its device id {device_id} must be from 0 to {MAX_DEVICE_ID}"
    elif not 0 <= election_id <= MAX_ELECTION_ID:
        reason = f"election id {election_id} must be from 0 to {MAX_ELECTION_ID}"
    else:
        return
    raise SwitchError("BAD_TARGET", f"switch {name or address!r}: {reason}", address=address)


class Client:
    """A connection to one device. With election id 0 it only reads, and opens no stream.

    It uses the threads and the clock of the machine, because gRPC does so, too.

    Raises:
        SwitchError: ``BAD_TARGET`` as `check_target`, and the errors of a first connection.

    Attributes:
        primary: whether this client may write.
        taken: whether some client may write.
        highest: the highest election id that the switch has reported.
        terms: how often this client became primary.
        packets: packets that the program of the switch sent to this client, at most 4,096 of 16 KB.
        stream: the call of ``StreamChannel``, or None.
    """

    def __init__(
        self,
        address: str,
        device_id: int,
        election_id: int,
        credentials: Credentials,
        timeout: float,
        name: str = "",
    ) -> None:
        check_target(address, device_id, election_id, name)
        self.name = name
        self.address = address
        self.device_id = device_id
        self.election_id = halves(election_id)
        self.role_name = credentials.role
        self.packets: queue.Queue[Any] = queue.Queue(_MAX_PACKETS)
        self.primary = self.taken = False
        self.highest = self.terms = 0
        self.stream: Any = None
        self._timeout = timeout
        self._secured = not credentials.plain
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._arbitrations: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._listener: Future[None] | None = None
        self._errors = 0
        self.channel = _channel(address, credentials)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        try:
            self._check_reachable(timeout)
            if election_id:
                self._open_stream()
        except BaseException:
            self.close()
            raise

    def _check_reachable(self, timeout: float) -> None:
        """Check with a plain call that a switch answers, because its error is clearer."""
        try:
            self.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest(), timeout=timeout)
        except grpc.RpcError as error:
            details = error.details() or ""
            if self._secured and any(word in details.lower() for word in ("handshake", "ssl")):
                raise SwitchError(
                    "BAD_TLS",
                    f"{self.where}: the TLS connection failed, because one side rejected the "
                    f"certificate of the other: {details}",
                    address=self.address,
                ) from None
            # Servers of P4Runtime 1.0 do not know the call, but they answer.
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise self.error_of(error) or unreachable(self, f"no answer: {details}") from None

    def _open_stream(self) -> None:
        """Open the stream and request mastership.

        Raises:
            SwitchError: ``NO_ROLE``, ``NOT_ALLOWED``, ``NOT_PRIMARY``, ``BAD_MESSAGE`` or
                ``UNREACHABLE``.
        """
        self.stream = self.stub.StreamChannel(iter(self._requests.get, None))
        self._listener = SYSTEM_THREADS.start("p4runtime-stream", self._listen)
        self.request_mastership()
        if not self.stream.done():
            return
        reason = f"the switch rejected the stream: {self.stream.details()}"
        if self.role_name and self.stream.code() in _NO_ROLE:
            reason = (
                f"{self.where}: the switch rejected role {self.role_name!r}: "
                f"{self.stream.details()}"
            )
            raise SwitchError("NO_ROLE", reason, address=self.address)
        if self.stream.code() == grpc.StatusCode.PERMISSION_DENIED:
            raise SwitchError("NOT_ALLOWED", f"{self.where}: {reason}", address=self.address)
        if self.stream.code() == grpc.StatusCode.INVALID_ARGUMENT:
            raise SwitchError("NOT_PRIMARY", f"{self.where}: {reason}", address=self.address)
        raise self.stream_error() or unreachable(self, reason)

    def _listen(self) -> None:
        """Receive the messages of the stream. None in the queue reports its end."""
        try:
            for message in self.stream:
                if message.HasField("arbitration"):
                    self._arbitrations.put(message.arbitration)
                elif message.HasField("packet"):
                    # A client that reads no packets must not run out of memory.
                    if message.packet.ByteSize() <= _MAX_PACKET_BYTES:
                        with contextlib.suppress(queue.Full):
                            self.packets.put_nowait(message.packet)
                elif message.HasField("error"):
                    self._log_error(message.error.message)
        except grpc.RpcError:
            if (error := self.stream_error()) is not None:
                log.warning("%s", error)
        self._arbitrations.put(None)

    def _log_error(self, message: str) -> None:
        self._errors += 1
        if self._errors <= _MAX_LOGGED_ERRORS:
            log.warning("%s rejected a message: %s", self.where, message)
        if self._errors == _MAX_LOGGED_ERRORS:
            log.warning(
                "%s: further rejected messages of this connection are not logged", self.where
            )

    def request_mastership(self) -> None:
        """Send the election id and wait for the answer.

        Raises:
            SwitchError: ``UNREACHABLE``, if none arrives.
        """
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        if self.role_name:
            request.arbitration.role.name = self.role_name
        request.arbitration.election_id.high, request.arbitration.election_id.low = self.election_id
        self._requests.put(request)
        try:
            self._on_arbitration(self._arbitrations.get(timeout=self._timeout))
        except queue.Empty:
            if not self.stream.done():
                raise unreachable(self, "no answer to the arbitration message") from None
            self._on_arbitration(None)

    def send_packet(self, packet: p4runtime_pb2.PacketOut) -> None:
        """Send a packet over the stream. The log has the answer if the switch refuses it."""
        self._requests.put(p4runtime_pb2.StreamMessageRequest(packet=packet))

    @property
    def where(self) -> str:
        """The switch, as errors name it."""
        name = f"switch {self.name!r}" if self.name else "switch"
        return f"{name} at {self.address} (device {self.device_id})"

    @property
    def not_ours(self) -> str:
        """Which other client may write, as far as the switch has reported."""
        highest = election.describe_id(self.highest)
        own = election.describe_id(self.own)
        if not self.taken:
            return f"no client is its primary; the highest election id it has seen is {highest}"
        if self.highest == self.own:
            return f"another client with a higher election id than ours, {own}, is its primary"
        return f"another client with election id {highest} is its primary; ours is {own}"

    @property
    def own(self) -> int:
        """The election id of this client."""
        return self.election_id[0] << 64 | self.election_id[1]

    def read(self, request: p4runtime_pb2.ReadRequest) -> Iterator[p4runtime_pb2.Entity]:
        """Yield the entities of a Read as they arrive.

        A switch may need long for all of them. The call is cancelled if no response arrives for
        `_SILENCE_SECONDS` and the switch does not answer another call either, or for
        `_STALL_SECONDS`.

        Raises:
            SwitchError: ``UNREACHABLE``, if the call was cancelled.
            grpc.RpcError: the switch refused the request, or the connection broke.
        """
        call = self.stub.Read(request, timeout=_READ_SECONDS)
        clock = SYSTEM_CLOCK
        responses, ended, silent = [0], clock.event(), clock.event()

        def watch() -> None:
            before, since = 0, clock.monotonic()
            while not ended.wait(_SILENCE_SECONDS):
                if responses[0] != before:
                    before, since = responses[0], clock.monotonic()
                elif clock.monotonic() - since > _STALL_SECONDS or not self._answers():
                    silent.set()
                    call.cancel()
                    return

        SYSTEM_THREADS.start("p4runtime-read", watch)
        try:
            for response in call:
                responses[0] += 1
                yield from response.entities
        except grpc.RpcError:
            if silent.is_set():
                raise unreachable(self, "it stopped answering while it was being read") from None
            raise
        finally:
            ended.set()
            call.cancel()

    def _answers(self) -> bool:
        request = p4runtime_pb2.CapabilitiesRequest()
        try:
            self.stub.Capabilities(request, timeout=_SILENCE_SECONDS)
        except grpc.RpcError as error:
            return bool(error.code() == grpc.StatusCode.UNIMPLEMENTED)
        return True

    def poll_arbitration(self) -> bool:
        """Process what the switch has reported so far; return whether this client is primary."""
        while self.stream is not None:
            try:
                self._on_arbitration(self._arbitrations.get_nowait())
            except queue.Empty:
                break
        return self.primary

    def _on_arbitration(self, update: p4runtime_pb2.MasterArbitrationUpdate | None) -> None:
        """Process an update; None means that the stream ended, and with it the right to write."""
        code = code_pb2.NOT_FOUND if update is None else update.status.code
        primary = code == code_pb2.OK
        self.terms += primary and not self.primary
        self.primary, self.taken = primary, code != code_pb2.NOT_FOUND
        if update is not None:
            self.highest = int(update.election_id.high) << 64 | int(update.election_id.low)

    def stream_error(self) -> SwitchError | None:
        """Return the error of a stream that ended because of a message, otherwise None."""
        if self.stream is None or not self.stream.done():
            return None
        return self.error_of(self.stream)

    def error_of(self, call: Any) -> SwitchError | None:
        """Return ``BAD_MESSAGE`` if a call failed because of what the switch sent.

        Args:
            call: a call of gRPC that has ended, or its error.
        """
        details = call.details() or ""
        if _BAD_MESSAGES.get(call.code(), "\0") not in details:
            return None
        return SwitchError(
            "BAD_MESSAGE",
            f"{self.where} sent a message that is not a P4Runtime message, or is longer than "
            f"{_MAX_MESSAGE_BYTES >> 20} MB: {details}",
            address=self.address,
        )

    def close(self) -> None:
        """End the stream, its thread and the channel, within a second."""
        if self._listener is not None:
            self._requests.put(None)
            if not SYSTEM_THREADS.wait([self._listener], _CLOSE_SECONDS):
                self.stream.cancel()
                SYSTEM_THREADS.wait([self._listener], _CLOSE_SECONDS)
        self.channel.close()


def unreachable(client: Client, reason: str) -> SwitchError:
    """Return the error for a switch that does not answer, or no longer answers."""
    return SwitchError("UNREACHABLE", f"{client.where}: {reason}", address=client.address)


def _channel(address: str, credentials: Credentials) -> grpc.Channel:
    if credentials.plain:
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    return grpc.secure_channel(
        address, grpc.ssl_channel_credentials(*credentials.pems()), options=_CHANNEL_OPTIONS
    )


def halves(election_id: int) -> tuple[int, int]:
    """Return the high and the low 64 bits of an election id."""
    return election_id >> 64, election_id & (1 << 64) - 1
