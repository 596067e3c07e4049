"""One switch as P4Runtime sees it: its program, its table entries, and who may write them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence

from google.rpc import code_pb2
from p4.v1 import p4runtime_pb2

from lab.arbitration import Arbitration
from lab.p4info import P4InfoIndex, Refusal
from lab.switch import Pipeline
from udfs.errors import StackcastError
from udfs.switches.entry import SwitchEntry

_Held = tuple[SwitchEntry, p4runtime_pb2.TableEntry]
_Config = p4runtime_pb2.SetForwardingPipelineConfigRequest
_Write = p4runtime_pb2.WriteRequest
_Update = p4runtime_pb2.Update


class Device:
    """The control side of one switch. All methods may be called by any thread.

    What cannot be done raises :class:`Refusal` with the code that the P4Runtime specification
    asks for.
    """

    def __init__(self, name: str, device_id: int, pipeline: Pipeline) -> None:
        self.name = name
        self.lock = threading.RLock()
        self.arbitration = Arbitration(device_id)
        self._pipeline = pipeline
        self._saved: p4runtime_pb2.ForwardingPipelineConfig | None = None
        self._config: p4runtime_pb2.ForwardingPipelineConfig | None = None
        self._index: P4InfoIndex | None = None
        self._entries: dict[str, _Held] = {}

    def config(self) -> p4runtime_pb2.ForwardingPipelineConfig:
        """The program that runs; ``FAILED_PRECONDITION`` before there is one."""
        with self.lock:
            self._running()
            assert self._config is not None
            return self._config

    def set_config(
        self, action: int, config: p4runtime_pb2.ForwardingPipelineConfig, election_id: int
    ) -> None:
        """SetForwardingPipelineConfig; a committed program starts with empty tables.

        ``RECONCILE_AND_COMMIT`` keeps the tables, and is possible for the program that runs.
        """
        with self.lock:
            self._must_be_primary(election_id)
            if action == _Config.COMMIT:
                if self._saved is None:
                    raise Refusal(code_pb2.FAILED_PRECONDITION, "no saved config to commit")
                self._commit(self._saved)
                return
            if not config.HasField("p4info"):
                raise Refusal(code_pb2.INVALID_ARGUMENT, "the config has no P4Info")
            if action == _Config.RECONCILE_AND_COMMIT:
                if self._config is None or config.p4info != self._config.p4info:
                    raise Refusal(
                        code_pb2.UNIMPLEMENTED, "only the P4Info that runs can be reconciled with"
                    )
                self._config = config
            elif action == _Config.VERIFY_AND_COMMIT:
                self._commit(config)
            elif action in (_Config.VERIFY, _Config.VERIFY_AND_SAVE):
                self._verify(config)
                if action == _Config.VERIFY_AND_SAVE:
                    self._saved = config
            else:
                raise Refusal(code_pb2.INVALID_ARGUMENT, f"unknown action {action}")

    def write(
        self, updates: Sequence[p4runtime_pb2.Update], atomicity: int, election_id: int
    ) -> list[Refusal | None]:
        """Apply updates in order; the answer to each is None, or why it was refused.

        With ``CONTINUE_ON_ERROR`` the others take effect, with the other two modes none does
        (they are ``ABORTED``). Either way frames see the tables as before or as after.
        """
        with self.lock:
            self._must_be_primary(election_id)
            index = self._running()
            changes: dict[str, _Held | None] = {}
            sizes = Counter(entry.table for entry, _ in self._entries.values())
            answers: list[Refusal | None] = []
            for update in updates:
                try:
                    self._update(index, update, changes, sizes)
                    answers.append(None)
                except Refusal as refusal:
                    answers.append(refusal)
            if any(answers) and atomicity != _Write.CONTINUE_ON_ERROR:
                aborted = Refusal(code_pb2.ABORTED, "another update of the batch was refused")
                return [answer or aborted for answer in answers]
            for key, held in changes.items():
                if held is None:
                    self._entries.pop(key, None)
                else:
                    self._entries[key] = held
            self._pipeline.apply({key: held and held[0] for key, held in changes.items()})
            return answers

    def read(self, entity: p4runtime_pb2.Entity) -> Iterator[p4runtime_pb2.TableEntry]:
        """Table entries: all (table id 0), of one table, or the one of a given match."""
        with self.lock:
            index = self._running()
            if entity.WhichOneof("entity") != "table_entry":
                raise Refusal(
                    code_pb2.UNIMPLEMENTED, f"this switch has no {entity.WhichOneof('entity')}"
                )
            wanted = entity.table_entry
            if wanted.is_default_action:
                return
            if wanted.match:
                key = index.read_entry(self.name, wanted, with_action=False)[0].key
                found = self._entries.get(key)
                if found is None:
                    raise Refusal(code_pb2.NOT_FOUND, f"no entry {key}")
                yield found[1]
                return
            if wanted.table_id:
                index.table(wanted.table_id)
            for _, entry in list(self._entries.values()):
                if wanted.table_id in (0, entry.table_id):
                    yield entry

    def _update(
        self,
        index: P4InfoIndex,
        update: p4runtime_pb2.Update,
        changes: dict[str, _Held | None],
        sizes: Counter[str],
    ) -> None:
        kind = update.entity.WhichOneof("entity")
        if kind != "table_entry":
            raise Refusal(code_pb2.UNIMPLEMENTED, f"this switch has no {kind}")
        if update.type not in (_Update.INSERT, _Update.MODIFY, _Update.DELETE):
            raise Refusal(code_pb2.INVALID_ARGUMENT, f"unknown type of update {update.type}")
        wire = update.entity.table_entry
        held = index.read_entry(self.name, wire, with_action=update.type != _Update.DELETE)
        entry = held[0]
        key = entry.key
        present = (changes[key] if key in changes else self._entries.get(key)) is not None
        if update.type == _Update.INSERT:
            if present:
                raise Refusal(code_pb2.ALREADY_EXISTS, f"entry {key} is there already")
            size = index.table(wire.table_id).size
            if size and sizes[entry.table] >= size:
                raise Refusal(
                    code_pb2.RESOURCE_EXHAUSTED, f"table {entry.table!r} is full: {size} entries"
                )
        elif not present:
            raise Refusal(code_pb2.NOT_FOUND, f"no entry {key}")
        if update.type == _Update.DELETE:
            changes[key] = None
            sizes[entry.table] -= 1
            return
        try:
            self._pipeline.check(entry)
        except StackcastError as error:
            raise Refusal(code_pb2.INVALID_ARGUMENT, error.message) from None
        changes[key] = held
        sizes[entry.table] += not present

    def _running(self) -> P4InfoIndex:
        if self._index is None:
            raise Refusal(
                code_pb2.FAILED_PRECONDITION,
                f"switch {self.name!r} runs no program yet: set its forwarding pipeline config",
            )
        return self._index

    def _must_be_primary(self, election_id: int) -> None:
        if not self.arbitration.is_primary(election_id):
            raise Refusal(
                code_pb2.PERMISSION_DENIED,
                f"election id {election_id} is not the primary client's of switch {self.name!r}",
            )

    def _verify(self, config: p4runtime_pb2.ForwardingPipelineConfig) -> P4InfoIndex:
        index = P4InfoIndex(config.p4info)
        try:
            self._pipeline.fits(index.program())
        except StackcastError as error:
            raise Refusal(code_pb2.INVALID_ARGUMENT, error.message) from None
        return index

    def _commit(self, config: p4runtime_pb2.ForwardingPipelineConfig) -> None:
        index = self._verify(config)
        self._pipeline.load(index.program())
        self._index, self._config, self._saved = index, config, None
        self._entries.clear()
