"""A connection to a switch: sets its program, reads and writes entries by the names of a P4Info."""

from __future__ import annotations

import contextlib
import copy
import logging
import queue
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import grpc

from stackcast.jobs.adapters.switches.client import Client, halves, unreachable
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.messages import Names, UpdateError, refused_updates
from stackcast.jobs.adapters.switches.program import P4Program
from stackcast.schemas.p4runtime import p4info_pb2, p4runtime_pb2
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches import ordering
from stackcast.udfs.switches.entry import GROUPS, Difference, SwitchEntry

log = logging.getLogger(__name__)

_BATCH = 500
#: By default a server accepts messages of up to 4 MB.
_BATCH_BYTES = 1 << 20
#: A step sends refused updates again one by one until this number with one status code was
#: refused twice. A full switch would otherwise get a request per entry.
_MAX_REFUSALS = 10
_RPC_SECONDS = 15.0
_ALL_TABLES = ""
#: A target may compile its program first.
_CONFIG_SECONDS = 60.0
_CONNECT_SECONDS = 5.0
_SetConfig = p4runtime_pb2.SetForwardingPipelineConfigRequest
_KINDS = {
    "insert": p4runtime_pb2.Update.INSERT,
    "modify": p4runtime_pb2.Update.MODIFY,
    "delete": p4runtime_pb2.Update.DELETE,
}

Change = Literal["set", "reconciled", "replaced"]


@dataclass(frozen=True)
class RefusedUpdate:
    """An update that was not written.

    Attributes:
        entry: the entry to insert, modify or delete.
        message: the reason, in the words of the switch.
        status: the gRPC status code of the switch, for example ``RESOURCE_EXHAUSTED``; empty if the
            update was not sent.
    """

    entry: SwitchEntry
    message: str
    status: str = ""

    def __str__(self) -> str:
        reason = f"{self.status}: {self.message}" if self.status else self.message
        return f"{self.entry.key}: {reason}"


class SwitchConnection:
    """A connection to one switch, as a context manager; :meth:`connect` opens it.

    Errors are ``SwitchError``: ``UNREACHABLE`` (the switch does not answer, or no longer; retrying
    may help), ``BAD_TLS``, ``BAD_MESSAGE`` (the switch sent something that cannot be parsed),
    ``NOT_PRIMARY`` (another client writes this switch), ``WRITE_FAILED`` and ``READ_FAILED`` (the
    switch refused the whole request), ``NO_ROLE`` and ``NOT_ALLOWED`` (the switch does not have the
    configured role, or the role does not permit this).
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: Names | None = None
        #: Number of entries by the id of a table that the program does not have, as last logged.
        self._unknown_tables: Counter[int] = Counter()

    @classmethod
    def connect(
        cls,
        address: str,
        device_id: int,
        election_id: int = 0,
        credentials: Credentials | None = None,
        timeout: float = _CONNECT_SECONDS,
        name: str = "",
    ) -> SwitchConnection:
        """Connect, and request mastership.

        The connection can only read if another client has a higher election id, and also with
        election id 0, which requests no mastership.

        Args:
            address: ``host:port``.
            device_id: P4Runtime's number of the switch at that address.
            election_id: unsigned integer of at most 128 bits.
            credentials: those of this switch (``Credentials.for_switch``). By default the
                connection is not encrypted and uses the default role, which may write all tables
                except those that the program assigns to another role.
            timeout: seconds to wait for each answer.
            name: name of the switch, for errors.
        """
        credentials = credentials or Credentials()
        return cls(Client(address, device_id, election_id, credentials, timeout, name))

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
        """Close the connection, within a second."""
        self._client.close()

    @property
    def is_primary(self) -> bool:
        """Whether this connection may write, as far as the switch has reported."""
        return self._client.poll_arbitration()

    @property
    def rivals(self) -> tuple[int, bool]:
        """The highest election id that the switch has seen, and whether some client is primary."""
        self._client.poll_arbitration()
        return self._client.highest, self._client.taken

    @property
    def election_id(self) -> int:
        """The election id of this connection."""
        return self._client.own

    @property
    def terms(self) -> int:
        """How often this connection became primary."""
        self._client.poll_arbitration()
        return self._client.terms

    @property
    def alive(self) -> bool:
        """Whether the stream to the switch is intact, as far as is known."""
        return self._client.stream is not None and not self._client.stream.done()

    def ask_again(self, election_id: int) -> bool:
        """Request mastership with another election id; return whether this is the primary now."""
        before = self._client.election_id
        self._client.election_id = halves(election_id)
        self._client.request_mastership()
        if not self.alive:
            self._client.election_id = before
            raise self._client.stream_error() or unreachable(self._client, "the stream ended")
        return self.is_primary

    def probe(self) -> Any:
        """Start a call that shows whether the switch still answers; return its gRPC future."""
        return self._client.stub.Capabilities.future(
            p4runtime_pb2.CapabilitiesRequest(), timeout=_CONNECT_SECONDS
        )

    def break_off(self) -> None:
        """Cancel the stream, because the switch does not answer; `alive` is False from then on."""
        if self._client.stream is not None:
            self._client.stream.cancel()

    def abort(self) -> None:
        """Cancel all calls, from any thread. Later calls raise ValueError."""
        self._client.channel.close()

    def ensure_pipeline(self, program: P4Program | str, device_config: bytes = b"") -> bool:
        """Set the program unless the switch already runs it; return whether it was set.

        Table entries stay if the running program has the same P4Info and the switch supports that.
        Otherwise the switch is empty afterwards. Multicast groups are deleted in both cases.

        Args:
            program: the program, or its P4Info in text format.
            device_config: what the target loads, if ``program`` is a text.
        """
        if isinstance(program, str):
            program = P4Program("", program, device_config)
        running = self._running()
        change = self._change(running, program)
        if change is None:
            self._names = Names(running.p4info, self._client.role_name)
            return False
        self._must_be_primary()
        groups = [] if change == "set" else list(self._groups())
        self._write_groups("delete", groups)
        try:
            if not (change == "reconciled" and self._reconcile(program)):
                self._replace(program)
                level = logging.DEBUG if change == "set" else logging.INFO
                log.log(
                    level,
                    "%s now runs program %s and has no entries",
                    self._client.where,
                    program.name,
                )
        except SwitchError:
            with contextlib.suppress(SwitchError):
                self._write_groups("insert", groups)
            raise
        self._names = Names(program.p4info, self._client.role_name)
        return True

    def change_to(self, program: P4Program) -> Change | None:
        """Return what :meth:`ensure_pipeline` would do.

        Returns:
            ``set`` if the switch runs no program, ``reconciled`` if it runs another program with
            the same P4Info, ``replaced`` if it runs one with another P4Info, None if it already
            runs this program.
        """
        return self._change(self._running(), program)

    def _change(self, running: Any, program: P4Program) -> Change | None:
        if running is None:
            return "set"
        if running.p4info.SerializeToString(deterministic=True) != program.serialized:
            return "replaced"
        same = running.cookie.cookie == program.cookie or self._loaded(program)
        return None if same else "reconciled"

    @property
    def names(self) -> Names:
        """The names of the running program. Raises SwitchError ``READ_FAILED`` without one."""
        if self._names is None:
            running = self._running()
            if running is None:
                raise SwitchError(
                    "READ_FAILED", f"{self._client.where} runs no program: set its pipeline"
                )
            self._names = Names(running.p4info, self._client.role_name)
        return self._names

    def read_entries(self, switch_name: str, *tables: str) -> set[SwitchEntry]:
        """Read the entries and multicast groups of the switch.

        Constant entries, default actions and tables of another role are left out. Entries of tables
        that the program does not have cannot be used by it; they are left out and logged.

        Args:
            switch_name: value of `SwitchEntry.switch`.
            tables: read only these, `GROUPS` for multicast groups; by default everything.
        """
        names = self.names
        unknown: Counter[int] = Counter()
        entries: set[SwitchEntry] = set()
        count = 0
        for table in tables or (_ALL_TABLES, GROUPS):
            for entity in self._groups() if table == GROUPS else self._read_table(table):
                count += 1
                if count > names.max_entries:
                    raise SwitchError(
                        "READ_FAILED",
                        f"{self._client.where} returned more than {names.max_entries:,} entries, "
                        "which is more than its program can hold",
                    )
                entries.update(names.from_wire(switch_name, entity, unknown))
        if unknown != self._unknown_tables and not tables:
            self._unknown_tables = unknown
            if unknown:
                log.warning(
                    "%s has %d entries of tables that its program does not contain (%s); they "
                    "are ignored",
                    self._client.where,
                    unknown.total(),
                    ", ".join(map(str, sorted(unknown))),
                )
        return entries

    def read_drops(self) -> Counter[int]:
        """Return the number of packets that the program has dropped, by the index of the reason.

        Reasons without packets are left out.
        """
        packets: Counter[int] = Counter()
        for counter in self.names.drop_counters:
            wildcard = p4runtime_pb2.Entity()
            wildcard.counter_entry.counter_id = counter
            for entity in self._read(wildcard):
                cell = entity.counter_entry
                packets[cell.index.index] += cell.data.packet_count
        return +packets

    def packet_in(self, timeout: float) -> tuple[dict[str, int], bytes] | None:
        """Wait for a packet that the program sends to its controller.

        Args:
            timeout: seconds.

        Returns:
            The metadata by name, and the frame; None after the timeout.

        Raises:
            SwitchError: ``UNREACHABLE`` or ``BAD_MESSAGE``, if the stream has ended.
        """
        try:
            packet = self._client.packets.get(timeout=timeout)
        except queue.Empty:
            if not self.alive:
                raise self._broken() from None
            return None
        return self.names.packet_in(packet)

    def packet_out(self, metadata: Mapping[str, int], frame: bytes) -> None:
        """Send a packet to the program. The log has the answer if the switch refuses it.

        Raises:
            SwitchError: ``WRITE_FAILED``, if the program does not have this metadata.
        """
        self._client.send_packet(self.names.packet_out(metadata, frame))

    def write(self, difference: Difference) -> list[RefusedUpdate]:
        """Write a difference, make before break
        (:func:`stackcast.udfs.switches.ordering.write_steps`).

        Returns:
            The updates that the switch refused. All others are written.
        """
        if not difference:
            return []
        self._must_be_primary()
        return [
            refused
            for step in ordering.write_steps(difference, self.names.tables)
            for refused in self.write_step(step)
        ]

    def write_step(
        self, step: ordering.WriteStep, refusals: Counter[str] | None = None
    ) -> list[RefusedUpdate]:
        """Write one step in requests of at most 500 updates and 1 MB.

        If several updates of a request are refused, each is sent again alone, because some switches
        refuse valid updates together with invalid ones. If the switch refuses a whole request
        without naming updates, its halves are sent. Both end after `_MAX_REFUSALS` refusals with
        one status code.

        Args:
            step: the updates.
            refusals: number of updates that were refused alone, by status code; it is updated. By
                default it counts those of this step only.

        Returns:
            The updates that the switch refused. All others are written.
        """
        refused: list[RefusedUpdate] = []
        updates: list[tuple[SwitchEntry, Any]] = []
        for entry in step.entries:
            try:
                updates.append((entry, self.names.to_wire(entry, step.kind == "delete")))
            except SwitchError as error:
                refused.append(RefusedUpdate(entry, error.message))
        refusals = Counter() if refusals is None else refusals
        for batch in _batches(updates):
            answers = self._write_batch(step.kind, [message for _, message in batch], refusals)
            refused += [RefusedUpdate(batch[n][0], reason, code) for n, code, reason in answers]
        return refused

    def _write_batch(
        self, kind: str, entities: Sequence[Any], refusals: Counter[str]
    ) -> list[UpdateError]:
        """Write a batch, and send refused parts of it again.

        Args:
            kind: key of `_KINDS`.
            entities: messages.
            refusals: number of updates of the step that were refused alone, by status code.
        """
        try:
            refused = self._write_once(kind, entities)
        except SwitchError as error:
            if error.what != "WRITE_FAILED":
                raise
            if len(entities) > 1 and refusals[error.status] < _MAX_REFUSALS:
                middle = len(entities) // 2
                first = self._write_batch(kind, entities[:middle], refusals)
                second = self._write_batch(kind, entities[middle:], refusals)
                return first + [(middle + n, code, reason) for n, code, reason in second]
            refused = [(n, error.status, error.details) for n in range(len(entities))]
        final: list[UpdateError] = []
        for position, code, reason in refused:
            if len(refused) == 1 or refusals[code] >= _MAX_REFUSALS:
                refusals[code] += 1
                final.append((position, code, reason))
            else:
                again = self._write_batch(kind, [entities[position]], refusals)
                final += [(position, code, reason) for _, code, reason in again]
        return final

    def _write_once(self, kind: str, entities: Sequence[Any]) -> list[UpdateError]:
        """Send one Write; return the refused updates."""
        self._must_be_primary()
        request = p4runtime_pb2.WriteRequest(device_id=self._client.device_id)
        self._sign(request)
        for entity in entities:
            request.updates.add(type=_KINDS[kind]).entity.CopyFrom(entity)
        try:
            self._client.stub.Write(request, timeout=_RPC_SECONDS)
        except grpc.RpcError as error:
            refused = refused_updates(error, len(entities))
            if refused is None:
                raise self._failed("WRITE_FAILED", error) from None
            return refused
        return []

    def _read(self, wildcard: Any) -> Iterator[Any]:
        client = self._client
        request = p4runtime_pb2.ReadRequest(
            device_id=client.device_id, role=client.role_name, entities=[wildcard]
        )
        try:
            yield from client.read(request)
        except grpc.RpcError as error:
            # A switch that does not support groups has none.
            if error.code() != grpc.StatusCode.UNIMPLEMENTED or wildcard.HasField("table_entry"):
                raise self._failed("READ_FAILED", error) from None

    def _running(self) -> Any:
        """P4Info and cookie of the running program, or None."""
        config = self._config("P4INFO_AND_COOKIE")
        return config if config is not None and config.p4info != p4info_pb2.P4Info() else None

    def _loaded(self, program: P4Program) -> bool:
        """Whether the switch runs this program, by its bytes: some switches keep no cookies."""
        config = self._config("ALL")
        return config is not None and config.p4_device_config == program.device_config

    def _config(self, kind: str) -> Any:
        kinds = p4runtime_pb2.GetForwardingPipelineConfigRequest
        request = kinds(
            device_id=self._client.device_id, response_type=kinds.ResponseType.Value(kind)
        )
        try:
            answer = self._client.stub.GetForwardingPipelineConfig(request, timeout=_RPC_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                return None
            raise self._failed("READ_FAILED", error) from None
        return answer.config

    def _reconcile(self, program: P4Program) -> bool:
        """Set a program with the same tables, so that entries stay; return False if that fails."""
        try:
            self._set(_SetConfig.RECONCILE_AND_COMMIT, program)
        except SwitchError as error:
            if error.what != "WRITE_FAILED":
                raise
            log.warning(
                "%s cannot keep its entries when its program changes: %s",
                self._client.where,
                error.message,
            )
            return False
        return True

    def _read_table(self, table: str) -> Iterator[Any]:
        wildcard = p4runtime_pb2.Entity()
        wildcard.table_entry.table_id = 0 if table == _ALL_TABLES else self.names.table_id(table)
        return self._read(wildcard)

    def _groups(self) -> Iterator[Any]:
        wildcard = p4runtime_pb2.Entity()
        wildcard.packet_replication_engine_entry.multicast_group_entry.multicast_group_id = 0
        return self._read(wildcard)

    def _write_groups(self, kind: str, groups: list[Any]) -> None:
        """Delete groups before the program changes, or insert them again.

        BMv2 keeps the groups of the program before, but reports that it has none. Each time that a
        group is inserted again, its copies would leave once more.
        """
        entities = copy.deepcopy(groups)
        if kind == "delete":
            for entity in entities:
                group = entity.packet_replication_engine_entry.multicast_group_entry
                group.ClearField("replicas")
        for start in range(0, len(entities), _BATCH):
            batch = entities[start : start + _BATCH]
            for position, code, reason in self._write_batch(kind, batch, Counter()):
                log.warning(
                    "%s rejected the request to %s group %s: %s: %s",
                    self._client.where,
                    kind,
                    groups[start + position],
                    code,
                    reason,
                )

    def _replace(self, program: P4Program) -> None:
        try:
            self._set(_SetConfig.VERIFY_AND_COMMIT, program)
        except SwitchError as error:
            if error.what != "WRITE_FAILED":
                raise
            # If BMv2 cannot reconcile, it stops half-way and accepts no other program until
            # that one is committed.
            try:
                self._set(_SetConfig.COMMIT, None)
            except SwitchError:
                raise error from None
            self._set(_SetConfig.VERIFY_AND_COMMIT, program)

    def _set(self, action: int, program: P4Program | None) -> None:
        request = _SetConfig(device_id=self._client.device_id, action=action)
        self._sign(request)
        if program is not None:
            request.config.p4info.MergeFromString(program.serialized)
            request.config.p4_device_config = program.device_config
            request.config.cookie.cookie = program.cookie
        try:
            self._client.stub.SetForwardingPipelineConfig(request, timeout=_CONFIG_SECONDS)
        except grpc.RpcError as error:
            raise self._failed("WRITE_FAILED", error) from None

    def _sign(self, request: Any) -> None:
        request.election_id.high, request.election_id.low = self._client.election_id
        request.role = self._client.role_name

    def _must_be_primary(self) -> None:
        if not self.is_primary:
            if self._client.stream is not None and self._client.stream.done():
                raise self._broken()
            raise SwitchError(
                "NOT_PRIMARY",
                f"{self._client.where}: {self._client.not_ours}",
                address=self._client.address,
            )

    def _broken(self) -> SwitchError:
        return self._client.stream_error() or unreachable(self._client, "the connection was lost")

    def _failed(self, what: str, error: Any) -> SwitchError:
        code, words = error.code(), error.details()
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return unreachable(self._client, words)
        if (bad_message := self._client.error_of(error)) is not None:
            return bad_message
        if code == grpc.StatusCode.PERMISSION_DENIED:
            if self._client.poll_arbitration() and self._client.role_name:
                return SwitchError(
                    "NOT_ALLOWED",
                    f"{self._client.where}: {words}; our role is {self._client.role_name!r}",
                    address=self._client.address,
                )
            what, words = "NOT_PRIMARY", f"{words}; {self._client.not_ours}"
        return SwitchError(
            what,
            f"{self._client.where} answered {code.name}: {words}",
            address=self._client.address,
            status=code.name,
            details=error.details(),
        )


def _batches(
    updates: Sequence[tuple[SwitchEntry, Any]],
) -> Iterator[list[tuple[SwitchEntry, Any]]]:
    """Yield the updates in batches of at most `_BATCH` updates and `_BATCH_BYTES`."""
    batch: list[tuple[SwitchEntry, Any]] = []
    size = 0
    for update in updates:
        length = update[1].ByteSize()
        if batch and (len(batch) == _BATCH or size + length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(update)
        size += length
    if batch:
        yield batch
