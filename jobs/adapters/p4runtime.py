"""Switches over P4Runtime: entries read and written by their P4Info names.

The only module that imports p4runtime-shell. Its client is used for the channel and the stream;
two of its habits are replaced here: it ends the process when a switch does not answer, and its
reader of write errors never returns if one update of a batch was fine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
from google.protobuf import text_format
from google.rpc import code_pb2, status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc
from p4runtime_sh.p4runtime import P4RuntimeClient, SSLOptions

from udfs.errors import SwitchError
from udfs.switches.entry import Difference, SwitchEntry, canonical

_BATCH = 500
_RPC_SECONDS = 15.0
_CONNECT_SECONDS = 5.0
_CLOSE_SECONDS = 0.5
# The answer to a refused batch holds an error for each update, and gRPC takes 8 KB of such
# details unless told otherwise.
_CHANNEL_OPTIONS = (
    ("grpc.max_metadata_size", 1 << 20),
    ("grpc.absolute_max_metadata_size", 1 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
    # A switch that comes back on its old address must not be waited for by the failed attempt.
    ("grpc.use_local_subchannel_pool", 1),
)

Failure = tuple[SwitchEntry, str]


class _Client(P4RuntimeClient):  # type: ignore[misc]
    """p4runtime-shell's client with errors in place of ``sys.exit``, and a close that returns."""

    def __init__(
        self, address: str, device_id: int, election_id: int, tls: SSLOptions, timeout: float
    ) -> None:
        self.address = address
        self.device_id = device_id
        self.election_id = (election_id >> 64, election_id & (1 << 64) - 1)
        self.role_name = None
        self.ssl_options = tls
        self.primary = False
        self._timeout = timeout
        self.stream_recv_thread = None
        self.channel = _channel(address, tls)
        self.stub = p4runtime_pb2_grpc.P4RuntimeStub(self.channel)
        try:
            self._knock(timeout)
            self.set_up_stream()
        except BaseException:
            self.close()
            raise

    def _knock(self, timeout: float) -> None:
        """Find out with a plain call whether a switch is there: a stream cannot say it as well."""
        try:
            self.stub.Capabilities(p4runtime_pb2.CapabilitiesRequest(), timeout=timeout)
        except grpc.RpcError as error:
            # Servers of P4Runtime 1.0 do not know the call, but they answer.
            if error.code() != grpc.StatusCode.UNIMPLEMENTED:
                raise _unreachable(self, f"no answer: {error.details()}") from None

    def handshake(self) -> None:
        """Called by ``set_up_stream``: say who we are, and learn whether we may write."""
        request = p4runtime_pb2.StreamMessageRequest()
        request.arbitration.device_id = self.device_id
        request.arbitration.election_id.high, request.arbitration.election_id.low = self.election_id
        self.stream_out_q.put(request)
        answer = self.get_stream_packet("arbitration", timeout=self._timeout)
        if answer is None:
            why = "no answer to the arbitration message"
            if self.stream.done():
                why = f"the stream was refused: {self.stream.details()}"
                if self.stream.code() == grpc.StatusCode.INVALID_ARGUMENT:
                    raise SwitchError("NOT_PRIMARY", f"{self.where}: {why}", address=self.address)
            raise _unreachable(self, why)
        self.primary = answer.arbitration.status.code == code_pb2.OK

    @property
    def where(self) -> str:
        return f"switch at {self.address} (device {self.device_id})"

    def heed_notices(self) -> bool:
        """Whether we are primary, after all that the switch has told so far."""
        notices = self.stream_in_q["arbitration"]
        while not notices.empty():
            notice = notices.get()
            self.primary = notice is not None and notice.arbitration.status.code == code_pb2.OK
        return self.primary

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


class SwitchConnection:
    """One switch, connected. A context manager; :meth:`connect` makes it.

    Errors are ``SwitchError``: ``UNREACHABLE`` (nothing answers, or stopped answering: retrying
    can help), ``NOT_PRIMARY`` (another client writes this switch), ``WRITE_FAILED`` and
    ``READ_FAILED`` (the switch refused the whole request, in its own words).
    """

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._names: _Names | None = None

    @classmethod
    def connect(
        cls,
        address: str,
        device_id: int,
        election_id: int,
        tls: SSLOptions | None = None,
        timeout: float = _CONNECT_SECONDS,
    ) -> SwitchConnection:
        """Connect and take part in the switch's arbitration.

        A lower election id than another client's gives a connection that can only read.

        Parameters
        ----------
        address: ``host:port``. election_id: 1 or more, at most 128 bits.
        tls: none by default. timeout: seconds.
        """
        return cls(_Client(address, device_id, election_id, tls or SSLOptions(True), timeout))

    def __enter__(self) -> SwitchConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; takes a second at most."""
        self._client.close()

    @property
    def is_primary(self) -> bool:
        """Whether this connection may write, as far as the switch has told."""
        return self._client.heed_notices()

    def ensure_pipeline(self, p4info_text: str, device_config: bytes = b"") -> bool:
        """See to it that the switch runs this program; returns whether it had to be set.

        Setting it empties the switch's tables. ``p4info_text`` is P4Info in text format,
        ``device_config`` what the target loads.
        """
        p4info = text_format.Parse(p4info_text, p4info_pb2.P4Info())
        if self._running() == p4info:
            self._names = _Names(p4info)
            return False
        self._must_be_primary()
        request = p4runtime_pb2.SetForwardingPipelineConfigRequest(
            device_id=self._client.device_id,
            action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        self._sign(request)
        request.config.p4info.CopyFrom(p4info)
        request.config.p4_device_config = device_config
        try:
            self._client.stub.SetForwardingPipelineConfig(request, timeout=_RPC_SECONDS)
        except grpc.RpcError as error:
            raise self._failed("WRITE_FAILED", error) from None
        self._names = _Names(p4info)
        return True

    def read_entries(self, switch_name: str) -> set[SwitchEntry]:
        """All entries that the switch holds; ``switch_name`` is what they are told by."""
        names = self._known_names()
        request = p4runtime_pb2.ReadRequest(device_id=self._client.device_id)
        request.entities.add().table_entry.table_id = 0
        try:
            return {
                names.from_wire(switch_name, entity.table_entry)
                for response in self._client.stub.Read(request, timeout=_RPC_SECONDS)
                for entity in response.entities
            }
        except grpc.RpcError as error:
            raise self._failed("READ_FAILED", error) from None

    def write(self, difference: Difference) -> list[Failure]:
        """Write a difference: what is new first, what goes last, each kind in its own requests.

        An update that fails is tried again alone. Returns those that failed twice, with the
        switch's own words; all others are written.
        """
        if not difference:
            return []
        self._must_be_primary()
        names = self._known_names()
        failures: list[Failure] = []
        kinds = p4runtime_pb2.Update
        for kind, entries in (
            (kinds.INSERT, difference.insert),
            (kinds.MODIFY, difference.modify),
            (kinds.DELETE, difference.delete),
        ):
            for start in range(0, len(entries), _BATCH):
                failures += self._write_batch(names, kind, entries[start : start + _BATCH])
        return failures

    def _write_batch(
        self, names: _Names, kind: int, entries: Sequence[SwitchEntry]
    ) -> list[Failure]:
        failures: list[Failure] = []
        updates: list[tuple[SwitchEntry, Any]] = []
        for entry in entries:
            try:
                updates.append((entry, names.to_wire(entry)))
            except SwitchError as error:
                failures.append((entry, error.message))
        for position, _ in self._write_once(kind, [wire for _, wire in updates]):
            entry, wire = updates[position]
            again = self._write_once(kind, [wire])
            if again:
                failures.append((entry, again[0][1]))
        return failures

    def _write_once(self, kind: int, entries: Sequence[Any]) -> list[tuple[int, str]]:
        """One Write; positions that the switch refused, and why."""
        if not entries:
            return []
        request = p4runtime_pb2.WriteRequest(device_id=self._client.device_id)
        self._sign(request)
        for entry in entries:
            update = request.updates.add()
            update.type = kind
            update.entity.table_entry.CopyFrom(entry)
        try:
            self._client.stub.Write(request, timeout=_RPC_SECONDS)
        except grpc.RpcError as error:
            refused = _refused_updates(error)
            if refused is None:
                raise self._failed("WRITE_FAILED", error) from None
            return refused
        return []

    def _running(self) -> p4info_pb2.P4Info | None:
        kinds = p4runtime_pb2.GetForwardingPipelineConfigRequest
        request = kinds(device_id=self._client.device_id, response_type=kinds.P4INFO_AND_COOKIE)
        try:
            answer = self._client.stub.GetForwardingPipelineConfig(request, timeout=_RPC_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise self._failed("READ_FAILED", error) from None
        return answer.config.p4info

    def _known_names(self) -> _Names:
        if self._names is None:
            p4info = self._running()
            if p4info is None:
                raise SwitchError(
                    "READ_FAILED", f"{self._client.where} runs no program yet: set its pipeline"
                )
            self._names = _Names(p4info)
        return self._names

    def _sign(self, request: Any) -> None:
        request.election_id.high, request.election_id.low = self._client.election_id

    def _must_be_primary(self) -> None:
        if not self.is_primary:
            if self._client.stream.done():
                raise _unreachable(self._client, "the connection broke off")
            raise SwitchError(
                "NOT_PRIMARY",
                f"{self._client.where} is written by another client with a higher election id",
                address=self._client.address,
            )

    def _failed(self, what: str, error: Any) -> SwitchError:
        code, words = error.code(), error.details()
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return _unreachable(self._client, words)
        if code == grpc.StatusCode.PERMISSION_DENIED:
            what = "NOT_PRIMARY"
        return SwitchError(
            what,
            f"{self._client.where} answered {code.name}: {words}",
            address=self._client.address,
            status=code.name,
        )


class _Names:
    """Entries by P4Info names to and from entries by ids."""

    def __init__(self, p4info: p4info_pb2.P4Info) -> None:
        self._tables = {table.preamble.name: table for table in p4info.tables}
        self._actions = {action.preamble.name: action for action in p4info.actions}
        self._table_by_id = {table.preamble.id: table for table in p4info.tables}
        self._action_by_id = {action.preamble.id: action for action in p4info.actions}

    def to_wire(self, entry: SwitchEntry) -> p4runtime_pb2.TableEntry:
        """Raises SwitchError ``WRITE_FAILED`` for a name that the program lacks."""
        table = _named(self._tables, entry.table, "table")
        fields = {field.name: field.id for field in table.match_fields}
        wire = p4runtime_pb2.TableEntry(table_id=table.preamble.id, priority=entry.priority)
        for name, kind, value in entry.match:
            if kind != "exact":
                raise SwitchError("WRITE_FAILED", f"{entry.key}: {kind} matches are unknown here")
            field = wire.match.add(field_id=_named(fields, name, f"field of {entry.table}"))
            field.exact.value = value
        action = _named(self._actions, entry.action, "action")
        wire.action.action.action_id = action.preamble.id
        params = {param.name: param.id for param in action.params}
        for name, value in entry.params:
            number = _named(params, name, f"parameter of {entry.action}")
            wire.action.action.params.add(param_id=number, value=value)
        return wire

    def from_wire(self, switch: str, wire: p4runtime_pb2.TableEntry) -> SwitchEntry:
        """Raises SwitchError ``READ_FAILED`` for an id that the program lacks."""
        try:
            table = self._table_by_id[wire.table_id]
            action = self._action_by_id[wire.action.action.action_id]
            values = {field.field_id: field.exact.value for field in wire.match}
            params = {param.param_id: param.value for param in wire.action.action.params}
            return SwitchEntry(
                switch,
                table.preamble.name,
                tuple(
                    (field.name, "exact", _canonical(values[field.id]))
                    for field in table.match_fields
                ),
                action.preamble.name,
                tuple((param.name, _canonical(params[param.id])) for param in action.params),
                wire.priority,
            )
        except KeyError as missing:
            raise SwitchError(
                "READ_FAILED",
                f"switch {switch!r} holds an entry with an id that its program lacks: {missing}",
            ) from None


def _channel(address: str, tls: SSLOptions) -> grpc.Channel:
    if tls.insecure:
        return grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
    pems: list[bytes | None] = []
    for path in (tls.cacert, tls.key, tls.cert):
        try:
            pems.append(Path(path).read_bytes() if path else None)
        except OSError as error:
            raise SwitchError("BAD_TLS", f"{path}: {error.strerror}", path=path) from None
    return grpc.secure_channel(
        address, grpc.ssl_channel_credentials(*pems), options=_CHANNEL_OPTIONS
    )


def _refused_updates(error: Any) -> list[tuple[int, str]] | None:
    """Position and reason of each update that failed; None if the answer does not say."""
    if error.code() != grpc.StatusCode.UNKNOWN:
        return None
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        refused = []
        for position, detail in enumerate(status_pb2.Status.FromString(value).details):
            update = p4runtime_pb2.Error()
            detail.Unpack(update)
            if update.canonical_code != code_pb2.OK:
                name = code_pb2.Code.Name(update.canonical_code)
                refused.append((position, f"{name}: {update.message}"))
        return refused or None
    return None


def _unreachable(client: _Client, why: str) -> SwitchError:
    return SwitchError("UNREACHABLE", f"{client.where}: {why}", address=client.address)


def _named(known: Any, name: str, what: str) -> Any:
    if name not in known:
        raise SwitchError("WRITE_FAILED", f"the switch's program has no {what} called {name!r}")
    return known[name]


def _canonical(value: bytes) -> bytes:
    return canonical(int.from_bytes(value, "big"))
