"""Switches over P4Runtime: programs set, entries and groups read and written by P4Info names."""

from __future__ import annotations

import contextlib
import copy
import logging
import queue
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import grpc
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2

from jobs.adapters.switches.client import Client, halves, unreachable
from jobs.adapters.switches.credentials import Credentials
from jobs.adapters.switches.messages import Names, refused_updates
from jobs.adapters.switches.program import P4Program
from udfs.errors import SwitchError
from udfs.switches import ordering
from udfs.switches.entry import Difference, SwitchEntry

log = logging.getLogger(__name__)

_BATCH = 500
# A server takes 4 MB in one message unless told otherwise.
_BATCH_BYTES = 1 << 20
_RPC_SECONDS = 15.0
# A target may compile its program first.
_CONFIG_SECONDS = 60.0
_CONNECT_SECONDS = 5.0
_SetConfig = p4runtime_pb2.SetForwardingPipelineConfigRequest
_KINDS = {
    "insert": p4runtime_pb2.Update.INSERT,
    "modify": p4runtime_pb2.Update.MODIFY,
    "delete": p4runtime_pb2.Update.DELETE,
}

Failure = tuple[SwitchEntry, str]
Change = Literal["set", "reconciled", "replaced"]


class SwitchConnection:
    """One switch, connected. A context manager; :meth:`connect` makes it.

    Errors are ``SwitchError``: ``UNREACHABLE`` (nothing answers, or stopped answering: retrying
    can help), ``BAD_TLS``, ``NOT_PRIMARY`` (another client writes this switch), ``WRITE_FAILED``
    and ``READ_FAILED`` (the switch refused the whole request, in its own words), ``NO_ROLE`` and
    ``NOT_ALLOWED`` (it does not have our role, or that may not do this).
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: Names | None = None

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
        """Connect and take part in the switch's arbitration.

        A lower election id than another client's gives a connection that can only read, and so
        does 0, without part in the arbitration.

        Parameters
        ----------
        address: ``host:port``. election_id: at most 128 bits.
        credentials: of this switch (``Credentials.for_switch``); by default plain text, and the
            role that writes all tables but those that the program gives to another.
        timeout: seconds. name: of the switch, for errors.
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
        """End the connection; takes a second at most."""
        self._client.close()

    @property
    def is_primary(self) -> bool:
        """Says whether this connection may write, as far as the switch has told."""
        return self._client.poll_arbitration()

    @property
    def rivals(self) -> tuple[int, bool]:
        """The highest election id that the switch has seen, and whether a client is primary."""
        self._client.poll_arbitration()
        return self._client.highest, self._client.taken

    @property
    def election_id(self) -> int:
        """The id that this connection takes part with."""
        return self._client.own

    @property
    def terms(self) -> int:
        """Counts how often this connection became primary."""
        self._client.poll_arbitration()
        return self._client.terms

    @property
    def alive(self) -> bool:
        """Says whether the stream to the switch is unbroken, as far as is known."""
        return self._client.stream is not None and not self._client.stream.done()

    def ask_again(self, election_id: int) -> bool:
        """Take part in the arbitration with another id; returns whether we are primary now."""
        before = self._client.election_id
        self._client.election_id = halves(election_id)
        self._client.ask()
        if not self.alive:
            self._client.election_id = before
            raise unreachable(self._client, "the stream ended")
        return self.is_primary

    def probe(self) -> Any:
        """Begin to ask whether the switch still answers; returns a future of gRPC."""
        return self._client.stub.Capabilities.future(
            p4runtime_pb2.CapabilitiesRequest(), timeout=_CONNECT_SECONDS
        )

    def break_off(self) -> None:
        """Take the switch for gone: it is not alive any more."""
        if self._client.stream is not None:
            self._client.stream.cancel()

    def abort(self) -> None:
        """Cancel all calls, from any thread; later ones raise ValueError."""
        self._client.channel.close()

    def ensure_pipeline(self, program: P4Program | str, device_config: bytes = b"") -> bool:
        """See to it that the switch runs this program; returns whether it had to be set.

        ``program`` is a `P4Program`, or P4Info in text format beside ``device_config``. Entries of
        tables are kept where the program that runs has the same P4Info and the switch can do that;
        else the switch begins empty. Groups are gone in any case, unless no program is set.
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
                    level, "%s was given program %s, and is empty", self._client.where, program.name
                )
        except SwitchError:
            with contextlib.suppress(SwitchError):
                self._write_groups("insert", groups)
            raise
        self._names = Names(program.p4info, self._client.role_name)
        return True

    def change_to(self, program: P4Program) -> Change | None:
        """Tells what :meth:`ensure_pipeline` would do to make the switch run this program.

        ``set``: it runs none. ``reconciled``: it runs another of the same P4Info. ``replaced``:
        one of another P4Info. None: it runs this one.
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
        """Returns the names of the program that runs. Raises SwitchError ``READ_FAILED``."""
        if self._names is None:
            running = self._running()
            if running is None:
                raise SwitchError(
                    "READ_FAILED", f"{self._client.where} runs no program yet: set its pipeline"
                )
            self._names = Names(running.p4info, self._client.role_name)
        return self._names

    def read_entries(self, switch_name: str, table: str = "") -> set[SwitchEntry]:
        """All entries and groups that the switch holds; ``switch_name`` is what they are told by.

        What the program itself fixes (constant entries, default actions) is not among them, nor is
        what belongs to another role. ``table``: of this table alone.
        """
        tables = p4runtime_pb2.Entity()
        names = self.names
        tables.table_entry.table_id = names.table_id(table) if table else 0
        return {
            entry
            for entity in (*self._read(tables), *(() if table else self._groups()))
            for entry in names.from_wire(switch_name, entity)
        }

    def read_drops(self) -> Counter[int]:
        """Returns packets that the program has dropped since it was set, by its reasons' indexes;
        those of none are left out."""
        found: Counter[int] = Counter()
        for counter in self.names.drop_counters:
            wildcard = p4runtime_pb2.Entity()
            wildcard.counter_entry.counter_id = counter
            for entity in self._read(wildcard):
                cell = entity.counter_entry
                found[cell.index.index] += cell.data.packet_count
        return +found

    def packet_in(self, timeout: float) -> tuple[dict[str, int], bytes] | None:
        """Waits for what the program sends its controller: metadata by name, and the frame.

        Returns None after ``timeout`` seconds. Raises SwitchError ``UNREACHABLE`` once the stream
        has ended.
        """
        try:
            packet = self._client.packets.get(timeout=timeout)
        except queue.Empty:
            if not self.alive:
                raise unreachable(self._client, "the connection broke off") from None
            return None
        return self.names.packet_in(packet)

    def packet_out(self, metadata: Mapping[str, int], frame: bytes) -> None:
        """Gives the program a frame to send; what the switch says against it is in the log.

        Raises SwitchError ``WRITE_FAILED`` for metadata that the program lacks.
        """
        request = p4runtime_pb2.StreamMessageRequest()
        request.packet.CopyFrom(self.names.packet_out(metadata, frame))
        self._client.stream_out_q.put(request)

    def write(self, difference: Difference) -> list[Failure]:
        """Write a difference make before break, see :func:`udfs.switches.ordering.write_steps`.

        Returns the updates that failed twice, with the switch's own words; all others are written.
        """
        if not difference:
            return []
        self._must_be_primary()
        return [
            failure
            for step in ordering.write_steps(difference, self.names.tables)
            for failure in self.write_step(step)
        ]

    def write_step(self, step: ordering.WriteStep, batch: int = _BATCH) -> list[Failure]:
        """Write one step in as many requests as needed, of at most ``batch`` updates.

        An update that fails is tried again alone. Returns those that failed twice.
        """
        failures: list[Failure] = []
        updates: list[tuple[SwitchEntry, Any]] = []
        for entry in step.entries:
            try:
                updates.append((entry, self.names.to_wire(entry, step.kind == "delete")))
            except SwitchError as error:
                failures.append((entry, error.message))
        for part in _batches(updates, batch):
            for position, _ in self._write_once(step.kind, [wire for _, wire in part]):
                entry, wire = part[position]
                again = self._write_once(step.kind, [wire])
                if again:
                    failures.append((entry, again[0][1]))
        return failures

    def _write_once(self, kind: str, entities: Sequence[Any]) -> list[tuple[int, str]]:
        """One Write; positions that the switch refused, and why."""
        self._must_be_primary()
        request = p4runtime_pb2.WriteRequest(device_id=self._client.device_id)
        self._sign(request)
        for entity in entities:
            request.updates.add(type=_KINDS[kind]).entity.CopyFrom(entity)
        try:
            self._client.stub.Write(request, timeout=_RPC_SECONDS)
        except grpc.RpcError as error:
            refused = refused_updates(error)
            if refused is not None:
                return refused
            failure = self._failed("WRITE_FAILED", error)
            if failure.what != "WRITE_FAILED" or len(entities) > 1:
                raise failure from None
            return [(0, f"{failure.status}: {error.details()}")]
        return []

    def _read(self, wildcard: Any) -> Iterator[Any]:
        client = self._client
        request = p4runtime_pb2.ReadRequest(
            device_id=client.device_id, role=client.role_name, entities=[wildcard]
        )
        try:
            yield from client.read(request)
        except grpc.RpcError as error:
            # A switch without groups has none.
            if error.code() != grpc.StatusCode.UNIMPLEMENTED or wildcard.HasField("table_entry"):
                raise self._failed("READ_FAILED", error) from None

    def _running(self) -> Any:
        """P4Info and cookie of the program that runs; None if none does."""
        config = self._config("P4INFO_AND_COOKIE")
        return config if config is not None and config.p4info != p4info_pb2.P4Info() else None

    def _loaded(self, program: P4Program) -> bool:
        """Tells by its bytes whether just this is loaded: not all switches keep cookies."""
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
        """Set a program of the same tables so that their entries stay; False if that fails."""
        try:
            self._set(_SetConfig.RECONCILE_AND_COMMIT, program)
        except SwitchError as error:
            if error.what != "WRITE_FAILED":
                raise
            log.warning("%s cannot keep its entries: %s", self._client.where, error.message)
            return False
        return True

    def _groups(self) -> Iterator[Any]:
        wildcard = p4runtime_pb2.Entity()
        wildcard.packet_replication_engine_entry.multicast_group_entry.multicast_group_id = 0
        return self._read(wildcard)

    def _write_groups(self, kind: str, groups: list[Any]) -> None:
        """Deletes groups before any change of the program, or makes them again.

        After the change, even one that keeps entries, BMv2 says that it has none, and keeps them:
        each copy would leave once more for every time that a group is made again.
        """
        entities = copy.deepcopy(groups)
        if kind == "delete":
            for entity in entities:
                group = entity.packet_replication_engine_entry.multicast_group_entry
                group.ClearField("replicas")
        for start in range(0, len(entities), _BATCH):
            for position, why in self._write_once(kind, entities[start : start + _BATCH]):
                at = groups[start + position]
                log.warning("%s: no %s of %s: %s", self._client.where, kind, at, why)

    def _replace(self, program: P4Program) -> None:
        try:
            self._set(_SetConfig.VERIFY_AND_COMMIT, program)
        except SwitchError as error:
            if error.what != "WRITE_FAILED":
                raise
            # BMv2 stops half-way where it cannot reconcile, and takes no other program until
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
                raise unreachable(self._client, "the connection broke off")
            raise SwitchError(
                "NOT_PRIMARY",
                f"{self._client.where}: {self._client.not_ours}",
                address=self._client.address,
            )

    def _failed(self, what: str, error: Any) -> SwitchError:
        code, words = error.code(), error.details()
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            return unreachable(self._client, words)
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
        )


def _batches(
    updates: Sequence[tuple[SwitchEntry, Any]], most: int
) -> Iterator[list[tuple[SwitchEntry, Any]]]:
    """Parts of at most ``most`` updates and `_BATCH_BYTES`."""
    part: list[tuple[SwitchEntry, Any]] = []
    size = 0
    for update in updates:
        length = update[1].ByteSize()
        if part and (len(part) == most or size + length > _BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(update)
        size += length
    if part:
        yield part
