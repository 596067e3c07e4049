"""What tests of the P4Runtime server share: a program, messages, a pipeline that remembers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import text_format
from google.rpc import code_pb2
from paths import COMPILED_TEST_P4

from stackcast.schemas.p4runtime import p4info_pb2, p4runtime_pb2
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.refusal import Refusal
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import SwitchEntry

INFO_FILE = COMPILED_TEST_P4 / "control_plane.p4info.txtpb"
JSON_FILE = COMPILED_TEST_P4 / "control_plane.json"
INFO_TEXT = INFO_FILE.read_text()
INFO = text_format.Parse(INFO_TEXT, p4info_pb2.P4Info())
JSON = JSON_FILE.read_bytes()

TABLES = {table.preamble.alias: table for table in INFO.tables}
ACTIONS = {action.preamble.alias: action for action in INFO.actions}
SEEN = INFO.counters[0].preamble.id
CELLS = INFO.registers[0].preamble.id

Set = p4runtime_pb2.SetForwardingPipelineConfigRequest
WriteRequest = p4runtime_pb2.WriteRequest
Entity = p4runtime_pb2.Entity


class Remembering:
    """A pipeline that forwards nothing and remembers what it was told.

    ``entries``: by key; ``bad``: tables whose entries it refuses; ``history``: what was applied.
    """

    def __init__(self) -> None:
        self.drops: Counter[str] = Counter()
        self.program: Any = None
        self.entries: dict[str, SwitchEntry] = {}
        self.history: list[dict[str, SwitchEntry | None]] = []
        self.bad: set[str] = set()
        self.loads = 0
        self._counters: dict[tuple[str, int], tuple[int, int]] = {}
        self._direct: dict[str, tuple[int, int]] = {}
        self._registers: dict[str, list[int]] = {}

    def verify(self, config: bytes) -> None:
        if json.loads(config).get("program") == "cannot run":
            raise SwitchError("WRONG_PROGRAM", "primitive 'fly' is unknown")

    def load(self, config: bytes) -> None:
        self.verify(config)
        self.program = json.loads(config)
        self.loads += 1
        self.entries, self._counters, self._direct = {}, {}, {}
        self._registers = {
            each["name"]: [0] * each["size"] for each in self.program["register_arrays"]
        }

    def check(self, entry: SwitchEntry) -> None:
        if entry.table in self.bad:
            raise SwitchError("BAD_ENTRY", f"{entry.key}: not here")

    def apply(self, changes: Mapping[str, SwitchEntry | None]) -> None:
        for entry in changes.values():
            if entry is not None:
                self.check(entry)
        self.history.append(dict(changes))
        for key, entry in changes.items():
            if entry is None:
                self.entries.pop(key, None)
                self._direct.pop(key, None)
            else:
                assert entry.key == key
                self.entries[key] = entry

    def counter(self, name: str, index: int) -> tuple[int, int]:
        return self._counters.get((name, index), (0, 0))

    def write_counter(self, name: str, index: int, packets: int, size: int) -> None:
        self._counters[name, index] = packets, size

    def direct_counter(self, table: str, key: str) -> tuple[int, int]:
        assert key.startswith(table)
        return self._direct.get(key, (0, 0))

    def write_direct_counter(self, table: str, key: str, packets: int, size: int) -> None:
        assert key.startswith(table)
        self._direct[key] = packets, size

    def register(self, name: str) -> list[int]:
        return self._registers[name]

    def write_register(self, name: str, index: int, value: int) -> None:
        self._registers[name][index] = value


class Inbox(list[Any]):
    """A client's view of arbitration: what it was told."""

    put = list[Any].append
    __hash__ = object.__hash__

    @property
    def told(self) -> list[str]:
        return [code_pb2.Code.Name(each.arbitration.status.code) for each in self]


def config(info: Any = INFO, program: bytes = JSON, cookie: int = 7) -> Any:
    """A config; ``cookie`` 0 is none."""
    made = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=program)
    made.p4info.CopyFrom(info)
    if cookie:
        made.cookie.cookie = cookie
    return made


def running(pipeline: Any = None) -> Device:
    """A device that runs the program; election id 1 may write it."""
    device = Device("s1", 1, pipeline or Remembering())
    device.arbitration.join(Inbox(), 1)
    device.set_config(Set.VERIFY_AND_COMMIT, config(), 1)
    return device


def table_entry(
    table: str,
    match: Mapping[int, tuple[Any, ...]] | None = None,
    action: str = "",
    params: Iterable[bytes] = (),
    priority: int = 0,
    **options: Any,
) -> Any:
    """``match`` by field id: ``("lpm", value, length)``, ``("exact", value)`` and so on."""
    wire = p4runtime_pb2.TableEntry(
        table_id=TABLES[table].preamble.id, priority=priority, **options
    )
    for field, (kind, *values) in (match or {}).items():
        part = wire.match.add(field_id=field)
        names = {"lpm": ("value", "prefix_len"), "range": ("low", "high")}
        for name, value in zip(names.get(kind, ("value", "mask")), values, strict=False):
            setattr(getattr(part, kind), name, value)
    if action:
        wire.action.action.action_id = ACTIONS[action].preamble.id
        for number, value in enumerate(params, 1):
            wire.action.action.params.add(param_id=number, value=value)
    return wire


def exact(tag: bytes, port: bytes = b"\1", out: bytes = b"\3", **options: Any) -> Any:
    """An entry of the exact table."""
    return table_entry(
        "exact_table", {1: ("exact", tag), 2: ("exact", port)}, "send", [out], **options
    )


def lpm(value: bytes = b"\x0a\0\0\0", length: int = 8, out: bytes = b"\1", **options: Any) -> Any:
    """An entry of the lpm table, which has a direct counter; length 0 matches all."""
    match = {1: ("lpm", value, length)} if length else {}
    return table_entry("lpm_table", match, "send", [out], **options)


def group(number: int, *ports: tuple[int, int], old: bool = False, **options: Any) -> Any:
    """A multicast group of ``(port, instance)``; ``old``: ports as the older API has them."""
    wire = p4runtime_pb2.PacketReplicationEngineEntry()
    entry = wire.multicast_group_entry
    entry.multicast_group_id = number
    for port, instance in ports:
        if old:
            entry.replicas.add(egress_port=port, instance=instance)
        else:
            entry.replicas.add(port=port.to_bytes(2, "big").lstrip(b"\0"), instance=instance)
    for name, value in options.items():
        setattr(entry, name, value)
    return wire


def session(number: int, *ports: tuple[int, int], **options: Any) -> Any:
    """A clone session of ``(port, instance)``."""
    wire = p4runtime_pb2.PacketReplicationEngineEntry()
    entry = wire.clone_session_entry
    entry.session_id = number
    for port, instance in ports:
        entry.replicas.add(egress_port=port, instance=instance)
    for name, value in options.items():
        setattr(entry, name, value)
    return wire


def entity(part: Any) -> Any:
    """Any part of an Entity as one."""
    made = Entity()
    for field in Entity.DESCRIPTOR.fields:
        if field.message_type is part.DESCRIPTOR:
            getattr(made, field.name).CopyFrom(part)
            getattr(made, field.name).SetInParent()
    return made


def updates(kind: str, *parts: Any) -> list[Any]:
    """Updates of one kind: INSERT, MODIFY or DELETE."""
    number = p4runtime_pb2.Update.Type.Value(kind)
    return [p4runtime_pb2.Update(type=number, entity=entity(part)) for part in parts]


def write(device: Device, kind: str, *parts: Any, mode: int = 0, as_id: int = 1) -> list[str]:
    """A Write; the code of each update."""
    return codes(device.write(updates(kind, *parts), mode, as_id))


def codes(answers: Iterable[Refusal | None]) -> list[str]:
    """``OK`` or the name of a refusal's code."""
    return [code_pb2.Code.Name(answer.code) if answer else "OK" for answer in answers]


def read(device: Device, *parts: Any) -> list[Any]:
    """A Read that must not be refused: the parts found."""
    found, answers = device.read([entity(part) for part in parts])
    assert answers == [None] * len(parts), [str(answer) for answer in answers]
    return [getattr(each, each.WhichOneof("entity")) for each in found]


def refusal(device: Device, part: Any) -> str:
    """The code of a Read that must be refused."""
    found, answers = device.read([entity(part)])
    assert not found
    return codes(answers)[0]
