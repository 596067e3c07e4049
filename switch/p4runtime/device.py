"""One switch as P4Runtime sees it: its program, what it holds, and who may write it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from google.rpc import code_pb2

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.switch.data_plane import DataPlane
from stackcast.switch.p4runtime.arbitration import Arbitration, Client
from stackcast.switch.p4runtime.batch import WriteBatch
from stackcast.switch.p4runtime.files import parse_p4info
from stackcast.switch.p4runtime.fit import check_fit
from stackcast.switch.p4runtime.holdings import Holdings
from stackcast.switch.p4runtime.p4info import P4InfoIndex, Parameter
from stackcast.switch.p4runtime.packet_io import MOST_WAITING, packet_in, packet_out
from stackcast.switch.p4runtime.program import read_program
from stackcast.switch.p4runtime.reading import EntityReader
from stackcast.switch.p4runtime.refusal import Refusal, invalid, unimplemented
from stackcast.switch.p4runtime.roles import Roles
from stackcast.udfs.errors import StackcastError, SwitchError

_Config = p4runtime_pb2.SetForwardingPipelineConfigRequest
_Write = p4runtime_pb2.WriteRequest

MOST_UPDATES = 10_000
"""Updates of one Write: others wait for the switch meanwhile."""

_CHECK_EACH = 64


class Device:
    """The control side of one switch. All methods may be called by any thread.

    What cannot be done raises `Refusal` with the code that the P4Runtime specification asks for.
    A switch without a program forwards nothing.

    ``arbitration`` is that of the default role, which may write all. Tables that the program gives
    to another role may be written by its clients, too, and they write no others; a role that is in
    ``roles`` and not the program's has all but these tables. What the program sends to its
    controller goes to the primary clients of the program's roles, where nobody has joined in one to
    those of the others.

    roles: what the switch's owner says of roles, and who may take them. inject: takes what a client
    sends out, to be processed as from `CPU_PORT`; none: it is refused.
    """

    def __init__(
        self,
        name: str,
        device_id: int,
        data_plane: DataPlane,
        inject: Callable[[bytes], None] | None = None,
        roles: Roles | None = None,
    ) -> None:
        self.name = name
        self.roles = roles or Roles()
        self.lock = threading.RLock()
        self.arbitration = Arbitration(device_id)
        self._inject = inject
        self._arbitrations = {"": self.arbitration}
        self._data_plane = data_plane
        self._running: Holdings | None = None
        self._saved: Holdings | None = None

    def install(self, p4info: str, device_config: bytes) -> None:
        """Run a program from the start, as if a client had committed it.

        Parameters
        ----------
        p4info: in text format. device_config: BMv2 JSON.

        Raises SwitchError ``WRONG_PROGRAM``, naming what cannot be read or does not fit.
        """
        config = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=device_config)
        config.p4info.CopyFrom(parse_p4info(p4info, "P4Info"))
        try:
            with self.lock:
                self._commit(self._verified(config))
        except Refusal as refusal:
            raise SwitchError("WRONG_PROGRAM", refusal.message) from None

    def config(self) -> p4runtime_pb2.ForwardingPipelineConfig:
        """Returns the config that runs; ``FAILED_PRECONDITION`` before there is one."""
        with self.lock:
            if self._running is None:
                raise self._no_program()
            return self._running.config

    def set_config(
        self,
        action: int,
        config: p4runtime_pb2.ForwardingPipelineConfig | None,
        election_id: int | None,
        role: str = "",
    ) -> None:
        """SetForwardingPipelineConfig.

        VERIFY_AND_SAVE: from now on Write and Read are about the saved program, and frames are
        still forwarded by the one that runs, until COMMIT puts the saved one and what was written
        for it into its place. VERIFY_AND_COMMIT begins with empty tables, groups, counters and
        registers. RECONCILE_AND_COMMIT keeps them all, or refuses, naming what has no place; the
        same program goes on without a pause.
        """
        with self.lock:
            if role and (role not in self.roles or role in self._program_roles()):
                raise Refusal(
                    code_pb2.PERMISSION_DENIED, f"role {role!r}: it may not set the program"
                )
            self._must_be_primary(election_id, role)
            if action == _Config.COMMIT:
                if config is not None:
                    raise invalid("COMMIT applies the saved config: it must not contain one")
                if self._saved is None:
                    raise Refusal(code_pb2.NOT_FOUND, "there is no saved config to commit")
                self._commit(self._saved)
                return
            if action not in (
                _Config.VERIFY,
                _Config.VERIFY_AND_SAVE,
                _Config.VERIFY_AND_COMMIT,
                _Config.RECONCILE_AND_COMMIT,
            ):
                raise invalid(f"unknown action {action}")
            if config is None:
                raise invalid("a config is required")
            kept = p4runtime_pb2.ForwardingPipelineConfig()
            kept.CopyFrom(config)
            if action == _Config.RECONCILE_AND_COMMIT:
                self._reconcile(kept)
                return
            verified = self._verified(kept)
            if action == _Config.VERIFY_AND_COMMIT:
                self._commit(verified)
                return
            try:
                self._data_plane.verify(kept.p4_device_config)
            except StackcastError as error:
                raise invalid(error.message) from None
            if action == _Config.VERIFY_AND_SAVE:
                self._saved = verified

    def arbitration_of(self, role: str) -> Arbitration:
        """Returns the arbitration among a role's clients. Call it under the lock.

        Raises `Refusal` NOT_FOUND for a role that is not configured and that no table of the
        program is of.
        """
        if role not in self._arbitrations:
            if role not in self.roles and role not in self._program_roles():
                raise Refusal(
                    code_pb2.NOT_FOUND,
                    f"role {role!r}: no table has this role, and no such role is configured",
                )
            arbitration = Arbitration(self.arbitration.device_id, role=role)
            # Replaced, not changed: the thread of frames reads it without the lock.
            self._arbitrations = {**self._arbitrations, role: arbitration}
        return self._arbitrations[role]

    def _program_roles(self) -> frozenset[str]:
        current = self._saved or self._running
        return current.index.roles if current is not None else frozenset()

    def packet_out(self, packet: p4runtime_pb2.PacketOut, client: Client, role: str) -> None:
        """Send what a client gives out, as the program says."""
        with self.lock:
            if self.arbitration_of(role).primary is not client:
                raise Refusal(code_pb2.PERMISSION_DENIED, "only a primary client may send packets")
            if self._inject is None:
                raise unimplemented("this switch does not accept packets of a controller")
            if self._running is None:
                raise self._no_program()
            data = packet_out(self._running.index.packet_out, packet)
        self._inject(data)

    def _punt(self, fields: tuple[Parameter, ...], own_roles: frozenset[str], data: bytes) -> bool:
        """Tell the primary clients of what the program sends them; False if there is none."""
        message = packet_in(fields, data)
        by_role = self._arbitrations
        theirs = own_roles & by_role.keys() or by_role.keys()
        primaries = [by_role[role].primary for role in theirs]
        told = [each for each in primaries if each is not None and each.qsize() < MOST_WAITING]
        for client in told:
            client.put(message)
        return bool(told)

    def write(
        self,
        updates: Sequence[p4runtime_pb2.Update],
        atomicity: int,
        election_id: int | None,
        wanted: Callable[[], bool] = lambda: True,
        role: str = "",
    ) -> list[Refusal | None]:
        """Apply updates in order; the answer to each is None, or why it was refused.

        ``wanted``: whether the client still waits; once it does not, the Write ends and changes
        nothing (``CANCELLED``). More than `MOST_UPDATES` are refused together.

        With ``CONTINUE_ON_ERROR`` the others take effect, with the other two modes none does
        (they are ``ABORTED``). Either way frames see the tables as before or as after. A group
        may be deleted while entries name it: frames for it are then dropped, as in BMv2.
        """
        if len(updates) > MOST_UPDATES:
            raise Refusal(
                code_pb2.RESOURCE_EXHAUSTED,
                f"{len(updates)} updates in one Write, but this switch accepts {MOST_UPDATES} at "
                "most: split them into several",
            )
        with self.lock:
            self._must_be_primary(election_id, role)
            holdings = self._current()
            if atomicity not in _Write.Atomicity.values():
                raise invalid(f"unknown atomicity {atomicity}")
            batch = WriteBatch(holdings, self._live(holdings))
            answers: list[Refusal | None] = []
            for position, update in enumerate(updates):
                if not position % _CHECK_EACH and not wanted():
                    raise Refusal(code_pb2.CANCELLED, "the client no longer waits for the Write")
                try:
                    self._must_be_of(role, holdings, update)
                    batch.update(update)
                    answers.append(None)
                except Refusal as refusal:
                    answers.append(refusal)
            if any(answers) and atomicity != _Write.CONTINUE_ON_ERROR:
                aborted = Refusal(code_pb2.ABORTED, "another update of the batch was rejected")
                return [answer or aborted for answer in answers]
            batch.commit()
            return answers

    def read(
        self, wanted: Iterable[p4runtime_pb2.Entity]
    ) -> tuple[list[p4runtime_pb2.Entity], list[Refusal | None]]:
        """Returns what a Read finds, all at one moment, and the answer to each entity asked for."""
        with self.lock:
            holdings = self._current()
            reader = EntityReader(holdings, self._live(holdings))
            found: list[p4runtime_pb2.Entity] = []
            answers: list[Refusal | None] = []
            for entity in wanted:
                try:
                    found += list(reader.read(entity))
                    answers.append(None)
                except Refusal as refusal:
                    answers.append(refusal)
            return found, answers

    def _current(self) -> Holdings:
        """Returns the program of Write and Read: the saved one if there is one, else what runs."""
        current = self._saved or self._running
        if current is None:
            raise self._no_program()
        return current

    def _live(self, holdings: Holdings) -> DataPlane | None:
        return self._data_plane if holdings is self._running else None

    def _no_program(self) -> Refusal:
        return Refusal(
            code_pb2.FAILED_PRECONDITION,
            f"switch {self.name!r} does not have a program yet: set its forwarding pipeline config",
        )

    def _must_be_primary(self, election_id: int | None, role: str = "") -> None:
        if not self.arbitration_of(role).is_primary(election_id):
            raise Refusal(
                code_pb2.PERMISSION_DENIED,
                f"election id {election_id} is not that of the primary client of switch "
                f"{self.name!r}",
            )

    def _must_be_of(self, role: str, holdings: Holdings, update: p4runtime_pb2.Update) -> None:
        """Refuse what is not the role's to write."""
        if not role:
            return
        entity, of = update.entity, ""
        if entity.HasField("table_entry"):
            table = holdings.index.tables.get(entity.table_entry.table_id)
            of = table.role if table is not None else ""
        if of != (role if role in holdings.index.roles else ""):
            raise Refusal(code_pb2.PERMISSION_DENIED, f"role {role!r} may not write this")

    def _verified(self, config: p4runtime_pb2.ForwardingPipelineConfig) -> Holdings:
        """The config read and compared, holding nothing but the program's own entries."""
        if not config.HasField("p4info"):
            raise invalid("the config has no P4Info")
        index = P4InfoIndex(config.p4info)
        program = read_program(config.p4_device_config)
        check_fit(index, program)
        return Holdings(self.name, config, index, program)

    def _commit(self, holdings: Holdings) -> None:
        """Run a program with what is held for it; raises `Refusal` and changes nothing."""
        before = self._running
        self._load(holdings)
        try:
            self._data_plane.apply(holdings.written())
        except StackcastError as error:
            if before is not None:
                self._load(before)
                self._data_plane.apply(before.written())
            raise invalid(error.message) from None
        self._running, self._saved = holdings, None
        fields = holdings.index.packet_in
        punt = partial(self._punt, fields, holdings.index.roles)
        self._data_plane.punt = punt if fields else None

    def _load(self, holdings: Holdings) -> None:
        try:
            self._data_plane.load(holdings.config.p4_device_config)
        except StackcastError as error:
            raise invalid(error.message) from None

    def _reconcile(self, config: p4runtime_pb2.ForwardingPipelineConfig) -> None:
        verified = self._verified(config)
        running = self._running
        if running is not None:
            old = running.config
            same = old.p4_device_config == config.p4_device_config and old.p4info == config.p4info
            if same:
                running.config, self._saved = config, None
                return
            verified.take_over(running)
        kept = _Cells(running, self._data_plane)
        self._commit(verified)
        kept.restore(verified)


class _Cells:
    """Registers and counters as they are, to be set again after a change of the program."""

    def __init__(self, holdings: Holdings | None, data_plane: DataPlane) -> None:
        self._data_plane = data_plane
        self._registers: dict[tuple[str, int, int], list[int]] = {}
        self._counters: dict[tuple[str, int], list[tuple[int, int]]] = {}
        self._direct: dict[tuple[str, str], tuple[int, int]] = {}
        if holdings is None:
            return
        for each in holdings.index.registers.values():
            self._registers[each.name, each.size, each.bits] = list(data_plane.register(each.name))
        for each in holdings.index.counters.values():
            self._counters[each.name, each.size] = [
                data_plane.counter(each.name, index) for index in range(each.size)
            ]
        for table in holdings.index.tables.values():
            if table.counted and table.name not in holdings.fixed:
                for held in holdings.of_table(table.name):
                    key = held.entry.key
                    self._direct[table.name, key] = data_plane.direct_counter(table.name, key)

    def restore(self, holdings: Holdings) -> None:
        """Set what has a place of the same name and form."""
        for register in holdings.index.registers.values():
            values = self._registers.get((register.name, register.size, register.bits), [])
            for index, value in enumerate(values):
                if value:
                    self._data_plane.write_register(register.name, index, value)
        for counter in holdings.index.counters.values():
            for index, counts in enumerate(self._counters.get((counter.name, counter.size), [])):
                if any(counts):
                    self._data_plane.write_counter(counter.name, index, *counts)
        for (table, key), counts in self._direct.items():
            form = holdings.index.tables_by_name.get(table)
            if any(counts) and form is not None and form.counted and key in holdings.held:
                self._data_plane.write_direct_counter(table, key, *counts)
