"""p4runtime-shell's client: the channel to a switch, and the stream that says who may write it.

The only module that imports p4runtime-shell. Three of its habits are replaced: it ends the process
when a switch does not answer, calls every broken stream critical in the root logger, and its reader
of write errors never returns if one update of a batch was fine.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Iterator
from typing import Any

import grpc
from google.rpc import code_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc
from p4runtime_sh.p4runtime import P4RuntimeClient

from jobs.adapters.switches.credentials import Credentials
from udfs.errors import SwitchError
from udfs.switches import election

log = logging.getLogger(__name__)

_MOST_PACKETS = 4096
_CLOSE_SECONDS = 0.5
# A read takes as long as it needs while something comes, or while the switch answers otherwise.
_SILENCE_SECONDS = 15.0
_READ_SECONDS = 600.0
# How switches say that they do not have a role, or none but the default one.
_NO_ROLE = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)
# The answer to a refused batch holds an error for each update, and gRPC takes 8 KB of such
# details unless told otherwise.
_CHANNEL_OPTIONS = (
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.absolute_max_metadata_size", 1 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
    # A switch that comes back on its old address must not be waited for by the failed attempt.
    ("grpc.use_local_subchannel_pool", 1),
)


class Client(P4RuntimeClient):  # type: ignore[misc]
    """p4runtime-shell's client with errors in place of ``sys.exit``, and a close that returns.

    primary: whether we may write. taken: whether any client may. highest: the highest election id
    that the switch told of. terms: how often we became primary. packets: what the switch's program
    sent us, as far as there is room. An election id of 0 only reads: there is no stream then.
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
        self.name = name
        self.address = address
        self.device_id = device_id
        self.election_id = halves(election_id)
        self.role_name = credentials.role
        self.packets: queue.Queue[Any] = queue.Queue(_MOST_PACKETS)
        self.primary = self.taken = False
        self.highest = self.terms = 0
        self._timeout = timeout
        self._secured = not credentials.plain
        self.stream: Any = None
        self.stream_recv_thread: Any = None
        self.channel = _channel(address, credentials)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        try:
            self._check_reachable(timeout)
            if election_id:
                self.set_up_stream()
        except BaseException:
            self.close()
            raise

    def _check_reachable(self, timeout: float) -> None:
        """Find out with a plain call whether a switch is there: a stream cannot say it as well."""
        try:
            self.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest(), timeout=timeout)
        except grpc.RpcError as error:
            words = error.details() or ""
            if self._secured and any(word in words.lower() for word in ("handshake", "ssl")):
                raise SwitchError(
                    "BAD_TLS",
                    f"{self.where}: no secure connection, its certificate or ours was refused: "
                    f"{words}",
                    address=self.address,
                ) from None
            # Servers of P4Runtime 1.0 do not know the call, but they answer.
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise unreachable(self, f"no answer: {words}") from None

    def set_up_stream(self) -> None:
        self.stream_out_q: queue.Queue[Any] = queue.Queue()
        self.stream_in_q: dict[str, queue.Queue[Any]] = {"arbitration": queue.Queue()}
        self.stream = self.stub.StreamChannel(iter(self.stream_out_q.get, None))
        self.stream_recv_thread = threading.Thread(target=self._listen, daemon=True)
        self.stream_recv_thread.start()
        self.handshake()

    def _listen(self) -> None:
        """Take in what the switch tells until the stream ends, which is told by None."""
        updates = self.stream_in_q["arbitration"]
        with contextlib.suppress(grpc.RpcError):
            for message in self.stream:
                if message.HasField("arbitration"):
                    updates.put(message)
                elif message.HasField("packet"):
                    # Who takes none must not be filled with them.
                    with contextlib.suppress(queue.Full):
                        self.packets.put_nowait(message.packet)
                elif message.HasField("error"):
                    log.warning("%s refused a message: %s", self.where, message.error.message)
        updates.put(None)

    def handshake(self) -> None:
        """Called by ``set_up_stream``: say who we are, and learn whether we may write."""
        self.ask()
        if self.stream.done():
            why = f"the stream was refused: {self.stream.details()}"
            if self.role_name and self.stream.code() in _NO_ROLE:
                why = f"{self.where}: role {self.role_name!r} was refused: {self.stream.details()}"
                raise SwitchError("NO_ROLE", why, address=self.address)
            if self.stream.code() == grpc.StatusCode.PERMISSION_DENIED:
                raise SwitchError("NOT_ALLOWED", f"{self.where}: {why}", address=self.address)
            if self.stream.code() == grpc.StatusCode.INVALID_ARGUMENT:
                raise SwitchError("NOT_PRIMARY", f"{self.where}: {why}", address=self.address)
            raise unreachable(self, why)

    def ask(self) -> None:
        """Send our election id, and take in the answer."""
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        if self.role_name:
            request.arbitration.role.name = self.role_name
        request.arbitration.election_id.high, request.arbitration.election_id.low = self.election_id
        self.stream_out_q.put(request)
        answer = self.get_stream_packet("arbitration", timeout=self._timeout)
        if answer is None and not self.stream.done():
            raise unreachable(self, "no answer to the arbitration message")
        self._on_arbitration(answer)

    @property
    def where(self) -> str:
        name = f"switch {self.name!r}" if self.name else "switch"
        return f"{name} at {self.address} (device {self.device_id})"

    @property
    def not_ours(self) -> str:
        """Says who may write in our place, as far as the switch has told."""
        highest = election.describe_id(self.highest)
        if not self.taken:
            return f"no client may write it now; the highest election id it has seen is {highest}"
        if self.highest == self.own:
            return f"another client writes it, with an election id above ours, {self._told_own}"
        return f"another client writes it, with election id {highest}; ours is {self._told_own}"

    @property
    def own(self) -> int:
        """Our election id, raised or not."""
        return self.election_id[0] << 64 | self.election_id[1]

    @property
    def _told_own(self) -> str:
        return election.describe_id(self.own)

    def read(self, request: Any) -> Iterator[Any]:
        """Entities of a Read as they come.

        A switch may take long to tell all, so it is given up only when nothing has come for
        `_SILENCE_SECONDS` and it does not answer a plain call either. Raises SwitchError
        ``UNREACHABLE`` then, and grpc.RpcError.
        """
        call = self.stub.Read(request, timeout=_READ_SECONDS)
        come, ended, silent = [0], threading.Event(), threading.Event()

        def watch() -> None:
            before = 0
            while not ended.wait(_SILENCE_SECONDS):
                if come[0] == before and not self._answers():
                    silent.set()
                    call.cancel()
                    return
                before = come[0]

        threading.Thread(target=watch, daemon=True).start()
        try:
            for response in call:
                come[0] += 1
                yield from response.entities
        except grpc.RpcError:
            if silent.is_set():
                raise unreachable(self, "it stopped answering while it was read") from None
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
        """Takes in all that the switch has told so far; returns whether we are primary."""
        while self.stream is not None:
            try:
                self._on_arbitration(self.stream_in_q["arbitration"].get_nowait())
            except queue.Empty:
                break
        return self.primary

    def _on_arbitration(self, update: Any) -> None:
        """Takes in one arbitration update; None: the stream has ended, and our right to write."""
        code = code_pb2.NOT_FOUND if update is None else update.arbitration.status.code
        primary = code == code_pb2.OK
        self.terms += primary and not self.primary
        self.primary, self.taken = primary, code != code_pb2.NOT_FOUND
        if update is not None:
            highest = update.arbitration.election_id
            self.highest = int(highest.high) << 64 | int(highest.low)

    def close(self) -> None:
        """End stream, thread and channel. A switch that does not answer cannot hold it up."""
        thread = self.stream_recv_thread
        if thread is not None:
            self.stream_out_q.put(None)
            thread.join(_CLOSE_SECONDS)
            if thread.is_alive():
                self.stream.cancel()
                thread.join(_CLOSE_SECONDS)
        self.channel.close()


def unreachable(client: Client, why: str) -> SwitchError:
    """The error for a switch that does not answer, or stopped answering."""
    return SwitchError("UNREACHABLE", f"{client.where}: {why}", address=client.address)


def _channel(address: str, credentials: Credentials) -> grpc.Channel:
    if credentials.plain:
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    return grpc.secure_channel(
        address, grpc.ssl_channel_credentials(*credentials.pems()), options=_CHANNEL_OPTIONS
    )


def halves(election_id: int) -> tuple[int, int]:
    """High and low 64 bits."""
    return election_id >> 64, election_id & (1 << 64) - 1
