"""Multicast groups, clone sessions, counters and registers over P4Runtime."""

from __future__ import annotations

from typing import Any

import pytest
from control_plane import (
    CELLS,
    SEEN,
    Remembering,
    entity,
    exact,
    group,
    read,
    refusal,
    running,
    session,
    updates,
    write,
)
from google.rpc import code_pb2
from hypothesis import given
from hypothesis import strategies as st

from stackcast.schemas.p4runtime import p4runtime_pb2
from stackcast.udfs.switches.entry import (
    group_entry,
    group_id,
    replicas,
    session_entry,
    session_length,
)

pytestmark = pytest.mark.unit

Counter = p4runtime_pb2.CounterEntry
Register = p4runtime_pb2.RegisterEntry
Replication = p4runtime_pb2.PacketReplicationEngineEntry
Index = p4runtime_pb2.Index


@given(
    st.integers(1, 65535),
    st.sets(st.tuples(st.integers(0, 511), st.integers(0, 65535)), max_size=70),
    st.booleans(),
    st.binary(max_size=4),
)
def test_a_group_is_read_back_as_it_was_written(
    number: int, ports: set[tuple[int, int]], old: bool, metadata: bytes
) -> None:
    pipeline = Remembering()
    device = running(pipeline)
    ports -= {(0, instance) for _, instance in ports}
    wire = group(number, *sorted(ports), old=old, metadata=metadata)
    assert write(device, "INSERT", wire) == ["OK"]
    assert read(device, group(0)) == [wire] == read(device, group(number))
    (entry,) = pipeline.entries.values()
    assert entry == group_entry("s1", number, ports)
    assert (group_id(entry), set(replicas(entry))) == (number, ports)


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (group(0, (1, 0)), "INVALID_ARGUMENT"),
        (group(1 << 16, (1, 0)), "OUT_OF_RANGE"),
        (group(1, (1, 0), (1, 0)), "INVALID_ARGUMENT"),
        (group(1, (512, 0)), "OUT_OF_RANGE"),
        (group(1, (512, 0), old=True), "OUT_OF_RANGE"),
        (group(1, (1, 1 << 16)), "INVALID_ARGUMENT"),
        (session(0, (1, 0)), "INVALID_ARGUMENT"),
        (session(1 << 15, (1, 0)), "INVALID_ARGUMENT"),
        (session(1, (1, 0), (1, 0)), "INVALID_ARGUMENT"),
        (session(1, (1, 0), class_of_service=3), "UNIMPLEMENTED"),
        (session(1, (1, 0), packet_length_bytes=-1), "INVALID_ARGUMENT"),
        (session(1, (1, 0), packet_length_bytes=1 << 16), "INVALID_ARGUMENT"),
        (Replication(), "INVALID_ARGUMENT"),
    ],
)
def test_a_group_or_session_that_cannot_be_is_refused(wire: Any, code: str) -> None:
    pipeline = Remembering()
    assert write(running(pipeline), "INSERT", wire) == [code]
    assert not pipeline.entries


def test_a_replica_without_a_port_is_refused() -> None:
    wire = group(1)
    wire.multicast_group_entry.replicas.add(instance=3)
    assert write(running(), "INSERT", wire) == ["INVALID_ARGUMENT"]


@pytest.mark.parametrize("kind", ["multicast_group_entry", "clone_session_entry"])
def test_replicas_with_backup_replicas_are_refused_because_the_switch_would_ignore_them(
    kind: str,
) -> None:
    """P4Runtime 1.5 added field 4, ``backup_replicas``, to replicas."""
    wire = group(1, (1, 0)) if kind == "multicast_group_entry" else session(1, (1, 0))
    backup_replicas = b"\x22\x03\x0a\x01\x02"
    getattr(wire, kind).replicas[0].MergeFromString(backup_replicas)
    assert write(running(), "INSERT", wire) == ["UNIMPLEMENTED"]


def test_groups_and_sessions_live_side_by_side_and_change_like_entries() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    five, clone = group(5, (1, 0), (2, 0)), session(5, (3, 1), packet_length_bytes=60)
    assert write(device, "MODIFY", five, clone) == ["NOT_FOUND"] * 2
    assert write(device, "INSERT", five, clone, five, clone) == ["OK"] * 2 + ["ALREADY_EXISTS"] * 2
    assert pipeline.entries["clone_session|session=05"] == session_entry("s1", 5, [(3, 1)], 60)
    assert session_length(pipeline.entries["clone_session|session=05"]) == 60
    assert write(device, "MODIFY", group(5), session(5)) == ["OK"] * 2
    assert read(device, group(0)) == [group(5)] and read(device, session(0)) == [session(5)]
    # An entry may still point at a group that goes.
    assert write(device, "DELETE", group(5), session(5)) == ["OK"] * 2
    assert write(device, "DELETE", group(5)) == ["NOT_FOUND"]
    assert not pipeline.entries
    assert refusal(device, group(5)) == refusal(device, session(5)) == "NOT_FOUND"
    assert refusal(device, Replication()) == "INVALID_ARGUMENT"


def counter(index: int | None = None, number: int = SEEN, **counts: int) -> Any:
    wire = Counter(counter_id=number)
    if index is not None:
        wire.index.index = index
    if counts:
        wire.data.CopyFrom(p4runtime_pb2.CounterData(**counts))
    return wire


def test_counters_are_read_and_written_by_cell_or_all_together() -> None:
    device = running()
    assert write(device, "MODIFY", counter(3, packet_count=4, byte_count=9)) == ["OK"]
    assert read(device, counter(3)) == [counter(3, packet_count=4, byte_count=9)]
    for wildcard in (counter(), counter(number=0)):
        cells = read(device, wildcard)
        assert [each.index.index for each in cells] == list(range(8))
        assert [each.data.packet_count for each in cells] == [0, 0, 0, 4, 0, 0, 0, 0]
        assert all(each.HasField("data") and each.HasField("index") for each in cells)
    assert write(device, "MODIFY", counter(3)) == ["OK"]  # without data it is left alone
    assert read(device, counter(3))[0].data.packet_count == 4
    assert write(device, "MODIFY", counter(packet_count=2)) == ["OK"]
    assert [each.data.packet_count for each in read(device, counter())] == [2] * 8


@pytest.mark.parametrize("kind", ["INSERT", "DELETE"])
def test_cells_are_always_there_and_can_only_be_modified(kind: str) -> None:
    device = running()
    assert write(device, kind, counter(1), register(1, b"\1")) == ["INVALID_ARGUMENT"] * 2


def register(index: int | None = None, value: bytes | None = None, number: int = CELLS) -> Any:
    wire = Register(register_id=number)
    if index is not None:
        wire.index.index = index
    if value is not None:
        wire.data.bitstring = value
    return wire


def test_registers_are_read_and_written_by_cell_or_all_together() -> None:
    device = running()
    top = b"\xff" * 6
    assert write(device, "MODIFY", register(3, b"\0\0\x12"), register(15, top)) == ["OK"] * 2
    assert read(device, register(3)) == [register(3, b"\x12")]
    cells = read(device, register())
    assert [each.index.index for each in cells] == list(range(16))
    assert cells[15].data.bitstring == top and cells[0].data.bitstring == b"\0"
    assert len(read(device, register(number=0))) == 16
    assert write(device, "MODIFY", register(None, b"\7")) == ["OK"]
    assert {each.data.bitstring for each in read(device, register())} == {b"\7"}


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (counter(-1, packet_count=1), "INVALID_ARGUMENT"),
        (counter(8, packet_count=1), "OUT_OF_RANGE"),
        (counter(1 << 40, packet_count=1), "OUT_OF_RANGE"),
        (counter(1, packet_count=-1), "INVALID_ARGUMENT"),
        (counter(1, number=77), "INVALID_ARGUMENT"),
        (counter(1, number=0, packet_count=1), "INVALID_ARGUMENT"),
        (register(-1, b"\1"), "INVALID_ARGUMENT"),
        (register(16, b"\1"), "OUT_OF_RANGE"),
        (register(1, b""), "INVALID_ARGUMENT"),
        (register(1, b"\1" + bytes(6)), "OUT_OF_RANGE"),
        (register(1), "INVALID_ARGUMENT"),
        (register(1, b"\1", number=77), "INVALID_ARGUMENT"),
    ],
)
def test_a_cell_that_is_not_there_or_cannot_hold_the_value_is_refused(wire: Any, code: str) -> None:
    device = running()
    assert write(device, "MODIFY", wire) == [code]
    assert {each.data.packet_count for each in read(device, counter())} == {0}
    assert {each.data.bitstring for each in read(device, register())} == {b"\0"}


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (counter(8), "OUT_OF_RANGE"),
        (counter(-1), "INVALID_ARGUMENT"),
        (counter(number=77), "INVALID_ARGUMENT"),
        (register(16), "OUT_OF_RANGE"),
        (register(number=77), "INVALID_ARGUMENT"),
    ],
)
def test_a_cell_that_is_not_there_cannot_be_read(wire: Any, code: str) -> None:
    assert refusal(running(), wire) == code


def test_a_refused_batch_that_must_be_whole_leaves_counters_and_registers_alone() -> None:
    pipeline = Remembering()
    device = running(pipeline)
    batch = updates("MODIFY", counter(1, packet_count=5), register(1, b"\5"), exact(b"\1"))
    answers = device.write(batch, p4runtime_pb2.WriteRequest.ROLLBACK_ON_ERROR, 1)
    assert [answer and code_pb2.Code.Name(answer.code) for answer in answers] == [
        "ABORTED",
        "ABORTED",
        "NOT_FOUND",
    ]
    assert pipeline.counter("ingress.seen", 1) == (0, 0) and not any(
        pipeline.register("ingress.cells")
    )


OTHERS = [
    p4runtime_pb2.ExternEntry(),
    p4runtime_pb2.ActionProfileMember(),
    p4runtime_pb2.ActionProfileGroup(),
    p4runtime_pb2.MeterEntry(),
    p4runtime_pb2.DirectMeterEntry(),
    p4runtime_pb2.ValueSetEntry(),
    p4runtime_pb2.DigestEntry(),
]


@pytest.mark.parametrize("part", OTHERS, ids=lambda part: part.DESCRIPTOR.name)
def test_other_entities_are_refused_by_name_and_there_are_none_to_read(part: Any) -> None:
    device = running()
    (answer,) = device.write(updates("INSERT", part), 0, 1)
    assert answer is not None and answer.code == code_pb2.UNIMPLEMENTED
    assert str(entity(part).WhichOneof("entity")) in answer.message
    assert read(device, part) == []


def test_an_update_of_no_kind_or_of_nothing_is_refused() -> None:
    device = running()
    nothing = p4runtime_pb2.Update(type=p4runtime_pb2.Update.INSERT)
    unspecified = p4runtime_pb2.Update(entity=entity(exact(b"\1")))
    answers = device.write([nothing, unspecified], 0, 1)
    assert [answer and answer.code for answer in answers] == [code_pb2.INVALID_ARGUMENT] * 2
