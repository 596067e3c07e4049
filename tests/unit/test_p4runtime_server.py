"""The lab's P4Runtime server, as p4runtime-shell's client and our own adapter see it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import text_format
from google.rpc import code_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc
from p4runtime_sh.p4runtime import P4RuntimeClient, P4RuntimeWriteException

from jobs.adapters.p4runtime import SwitchConnection
from lab.arbitration import Arbitration
from lab.device import Device
from lab.p4info import Refusal
from lab.p4runtime_server import P4RuntimeServer
from lab.switch import StackPipeline
from udfs.errors import SwitchError
from udfs.stacks.entries import switch_entries
from udfs.switches.entry import Difference, SwitchEntry, canonical, difference
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.topology import fabric

pytestmark = pytest.mark.unit

P4INFO_FILE = Path(__file__).resolve().parents[2] / "p4" / "virtual_trees.p4info.txtpb"
P4INFO = P4INFO_FILE.read_text()
TREE_TABLE, HOST_TABLE, TREE_ACTION = 33554433, 33554436, 16777217


@pytest.fixture
def server() -> Iterator[P4RuntimeServer]:
    devices = [Device(f"s{number}", number, StackPipeline()) for number in (1, 2)]
    running = P4RuntimeServer(devices).start()
    yield running
    running.stop()


@pytest.fixture
def switch(server: P4RuntimeServer) -> Iterator[SwitchConnection]:
    with SwitchConnection.connect(server.address, 1, 10) as connection:
        connection.ensure_pipeline(P4INFO)
        yield connection


def tree(number: int, ports: int, switch: str = "s1") -> SwitchEntry:
    return SwitchEntry(
        switch,
        "ingress.check_tree",
        (("label", "exact", canonical(1 << 14 | number)),),
        "ingress.set_tree_ports",
        (("ports", canonical(ports)),),
    )


def insert(*entries: SwitchEntry) -> Difference:
    return Difference(tuple(entries), (), ())


def wire_update(kind: str, value: bytes, ports: bytes = b"\x03") -> Any:
    update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.Type.Value(kind))
    entry = update.entity.table_entry
    entry.table_id = TREE_TABLE
    entry.match.add(field_id=1).exact.value = value
    entry.action.action.action_id = TREE_ACTION
    entry.action.action.params.add(param_id=1, value=ports)
    return update


@pytest.fixture
def shell(server: P4RuntimeServer) -> Iterator[P4RuntimeClient]:
    client = P4RuntimeClient(2, server.address, (0, 5))
    yield client
    client.tear_down()


def test_p4runtime_shells_own_client_sets_writes_and_reads(
    shell: P4RuntimeClient, tmp_path: Path
) -> None:
    (tmp_path / "device.json").write_bytes(b"{}")
    assert shell.api_version().startswith("1.")
    shell.set_fwd_pipe_config(str(P4INFO_FILE), str(tmp_path / "device.json"))
    assert shell.get_p4info() == text_format.Parse(P4INFO, p4info_pb2.P4Info())
    shell.write_update(wire_update("INSERT", b"\x00\x40\x01"))
    with pytest.raises(P4RuntimeWriteException) as refused:
        shell.write_update(wire_update("INSERT", b"\x40\x01"))
    assert refused.value.errors[0][1].canonical_code == code_pb2.ALREADY_EXISTS
    wildcard = p4runtime_pb2.Entity()
    wildcard.table_entry.table_id = 0
    (response,) = shell.read_one(wildcard)
    (entity,) = response.entities
    assert entity.table_entry.match[0].exact.value == b"\x40\x01"  # canonical when read back


def test_all_entries_of_a_network_are_held_as_written_and_a_difference_is_enough(
    switch: SwitchConnection,
) -> None:
    network = fabric(2, 2, 2, 1, 1)
    first, second = (
        [e for e in switch_entries(network, broadcast_trees(network, 1, start)) if e.switch == name]
        for name, start in (("pod1-rack1", 1), ("pod1-rack1", 2))
    )
    assert switch.write(difference(first, ())) == []
    assert switch.read_entries("pod1-rack1") == set(first)
    changed = [*second, tree(9, 1, "pod1-rack1")]
    step = difference(changed, switch.read_entries("pod1-rack1"))
    assert len(step.insert) == 2 and len(step.delete) == 1
    assert switch.write(step) == []
    assert switch.read_entries("pod1-rack1") == set(changed)
    assert switch.write(Difference((), (tree(9, 3, "pod1-rack1"),), ())) == []
    assert tree(9, 3, "pod1-rack1") in switch.read_entries("pod1-rack1")


def test_a_bad_update_is_reported_in_the_switchs_words_and_all_others_are_written(
    switch: SwitchConnection,
) -> None:
    good = [tree(number, 1) for number in range(1, 400)]
    wide = tree(500, 1 << 64)
    nowhere = SwitchEntry("s1", "ingress.acl", (), "ingress.drop", ())
    switch.write(insert(good[7]))
    failures = dict(switch.write(insert(*good, wide, nowhere)))
    assert failures.keys() == {good[7], wide, nowhere}
    assert failures[good[7]].startswith("ALREADY_EXISTS")
    assert "'ports'" in failures[wide] and "64 bits" in failures[wide]
    assert "ingress.acl" in failures[nowhere]
    assert switch.read_entries("s1") == set(good)


def test_even_a_batch_that_fails_as_a_whole_is_told_update_by_update(
    switch: SwitchConnection,
) -> None:
    missing = [tree(number, 1) for number in range(1, 301)]
    failures = switch.write(Difference((), (), tuple(missing)))
    assert [entry for entry, _ in failures] == missing
    assert all(words.startswith("NOT_FOUND") for _, words in failures)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (lambda e: setattr(e, "table_id", 99), "INVALID_ARGUMENT", "table"),
        (lambda e: e.ClearField("match"), "INVALID_ARGUMENT", "'label' is missing"),
        (lambda e: e.match.add(field_id=7), "INVALID_ARGUMENT", "id 7"),
        (lambda e: e.match.add(field_id=1), "INVALID_ARGUMENT", "twice"),
        (lambda e: setattr(e.match[0].exact, "value", b""), "INVALID_ARGUMENT", "one byte"),
        (lambda e: setattr(e.match[0].exact, "value", b"\1\0\0"), "OUT_OF_RANGE", "16 bits"),
        (lambda e: setattr(e.match[0].lpm, "value", b"\1"), "INVALID_ARGUMENT", "must be exact"),
        (lambda e: setattr(e.action.action, "action_id", 5), "INVALID_ARGUMENT", "no action"),
        (lambda e: e.action.action.ClearField("params"), "INVALID_ARGUMENT", "'ports' is missing"),
        (lambda e: e.ClearField("action"), "INVALID_ARGUMENT", "action is needed"),
        (lambda e: setattr(e, "priority", 3), "INVALID_ARGUMENT", "priority"),
        (lambda e: setattr(e, "is_default_action", True), "INVALID_ARGUMENT", "default action"),
        (lambda e: setattr(e.match[0].exact, "value", b"\x80\1"), "INVALID_ARGUMENT", "type"),
    ],
)
def test_an_entry_that_does_not_fit_the_p4info_is_refused_by_what_is_wrong(
    change: Any, code: str, words: str
) -> None:
    device = running_device()
    update = wire_update("INSERT", b"\x40\x01")
    change(update.entity.table_entry)
    (answer,) = device.write([update], p4runtime_pb2.WriteRequest.CONTINUE_ON_ERROR, 1)
    assert answer is not None
    assert code_pb2.Code.Name(answer.code) == code
    assert words in answer.message


def running_device() -> Device:
    device = Device("s1", 1, StackPipeline())
    device.arbitration.join(queue.SimpleQueue(), 1)
    config = p4runtime_pb2.ForwardingPipelineConfig()
    text_format.Parse(P4INFO, config.p4info)
    commit = p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
    device.set_config(commit, config, 1)
    return device


@pytest.mark.parametrize("mode", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_a_batch_that_must_be_whole_leaves_no_trace_when_one_update_fails(mode: str) -> None:
    device = running_device()
    atomicity = p4runtime_pb2.WriteRequest.Atomicity.Value(mode)
    batch = [wire_update("INSERT", b"\x40\x01"), wire_update("DELETE", b"\x40\x09")]
    answers = device.write(batch, atomicity, 1)
    assert [answer and code_pb2.Code.Name(answer.code) for answer in answers] == [
        "ABORTED",
        "NOT_FOUND",
    ]
    assert list(device.read(everything())) == []


def test_updates_of_one_batch_follow_each_other() -> None:
    device = running_device()
    kinds = ["INSERT", "MODIFY", "DELETE", "INSERT"]
    batch = [wire_update(kind, b"\x40\x01", bytes([n + 1])) for n, kind in enumerate(kinds)]
    assert device.write(batch, 0, 1) == [None] * 4
    (held,) = device.read(everything())
    assert held.action.action.params[0].value == b"\x04"


def test_a_full_table_refuses_more_and_takes_more_after_a_delete() -> None:
    device = running_device()
    ports = [host_port("INSERT", port) for port in range(1, 64)]
    assert device.write(ports, 0, 1) == [None] * 63
    config = device.config()
    for table in config.p4info.tables:
        table.size = 63
    commit = p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
    device.set_config(commit, config, 1)
    assert list(device.read(everything())) == []  # a committed program begins empty
    labels = [wire_update("INSERT", (0x4001 + n).to_bytes(2)) for n in range(64)]
    answers = device.write(labels, 0, 1)
    assert answers[:63] == [None] * 63
    assert answers[63] is not None and answers[63].code == code_pb2.RESOURCE_EXHAUSTED
    swap = [wire_update("DELETE", b"\x40\x01"), labels[63]]
    assert device.write(swap, 0, 1) == [None, None]


def host_port(kind: str, port: int) -> Any:
    update = p4runtime_pb2.Update(type=p4runtime_pb2.Update.Type.Value(kind))
    update.entity.table_entry.table_id = HOST_TABLE
    update.entity.table_entry.match.add(field_id=1).exact.value = bytes([port])
    update.entity.table_entry.action.action.action_id = 16777220
    return update


def everything(table_id: int = 0) -> Any:
    entity = p4runtime_pb2.Entity()
    entity.table_entry.table_id = table_id
    return entity


def test_a_read_can_ask_for_all_for_a_table_or_for_one_entry() -> None:
    device = running_device()
    device.write([wire_update("INSERT", b"\x40\x01"), host_port("INSERT", 3)], 0, 1)
    assert len(list(device.read(everything()))) == 2
    assert [entry.table_id for entry in device.read(everything(HOST_TABLE))] == [HOST_TABLE]
    one = everything(TREE_TABLE)
    one.table_entry.match.add(field_id=1).exact.value = b"\0\x40\x01"
    assert len(list(device.read(one))) == 1
    one.table_entry.match[0].exact.value = b"\x40\x02"
    for entity, code in ((one, code_pb2.NOT_FOUND), (everything(99), code_pb2.INVALID_ARGUMENT)):
        with pytest.raises(Refusal) as refused:
            list(device.read(entity))
        assert refused.value.code == code


def test_before_there_is_a_program_nothing_is_written_or_read(server: P4RuntimeServer) -> None:
    with SwitchConnection.connect(server.address, 1, 1) as switch:
        with pytest.raises(SwitchError, match="runs no program"):
            switch.read_entries("s1")
        stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(server.address))
        request = p4runtime_pb2.WriteRequest(device_id=1)
        request.election_id.low = 1
        with pytest.raises(grpc.RpcError) as refused:
            stub.Write(request, timeout=5)
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert switch.ensure_pipeline(P4INFO) is True
        assert switch.ensure_pipeline(P4INFO) is False


def test_a_program_that_the_switch_cannot_run_is_refused_by_name(server: P4RuntimeServer) -> None:
    with SwitchConnection.connect(server.address, 1, 1) as switch:
        with pytest.raises(SwitchError, match="check_stop") as refused:
            switch.ensure_pipeline(P4INFO.replace("ingress.check_stop", "ingress.check_end"))
        assert refused.value.code == "SWITCH.WRITE_FAILED"


def test_the_higher_election_id_writes_and_the_other_reads_until_it_is_gone(
    server: P4RuntimeServer,
) -> None:
    low = SwitchConnection.connect(server.address, 1, 1)
    low.ensure_pipeline(P4INFO)
    with SwitchConnection.connect(server.address, 1, 1 << 70) as high:
        eventually(lambda: not low.is_primary)
        assert high.is_primary
        with pytest.raises(SwitchError) as refused:
            low.write(insert(tree(1, 1)))
        assert refused.value.code == "SWITCH.NOT_PRIMARY"
        assert high.write(insert(tree(1, 1))) == []
        assert low.read_entries("s1") == {tree(1, 1)}
    # Nobody inherits: a client must ask again with an id that is high enough.
    time.sleep(0.1)
    assert not low.is_primary
    low.close()
    with SwitchConnection.connect(server.address, 1, 1 << 70) as again:
        assert again.is_primary


def test_the_switch_itself_turns_a_stale_primary_down(server: P4RuntimeServer) -> None:
    with (
        SwitchConnection.connect(server.address, 1, 1) as stale,
        SwitchConnection.connect(server.address, 1, 2) as primary,
    ):
        primary.ensure_pipeline(P4INFO)
        stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(server.address))
        request = p4runtime_pb2.WriteRequest(
            device_id=1, updates=[wire_update("INSERT", b"\x40\1")]
        )
        request.election_id.low = 1
        with pytest.raises(grpc.RpcError) as refused:
            stub.Write(request, timeout=5)
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
        assert stale.read_entries("s1") == set()


def test_an_election_id_in_use_is_refused_and_its_owner_stays(
    server: P4RuntimeServer, switch: SwitchConnection
) -> None:
    with pytest.raises(SwitchError, match="in use") as refused:
        SwitchConnection.connect(server.address, 1, 10)
    assert refused.value.code == "SWITCH.NOT_PRIMARY"
    assert switch.write(insert(tree(1, 1))) == []


def test_a_device_or_a_server_that_is_not_there_is_unreachable_and_soon() -> None:
    began = time.monotonic()
    with pytest.raises(SwitchError, match=r"127\.0\.0\.1:1 .*no answer") as refused:
        SwitchConnection.connect("127.0.0.1:1", 1, 1, timeout=0.5)
    assert refused.value.code == "SWITCH.UNREACHABLE"
    server = P4RuntimeServer([Device("s1", 1, StackPipeline())]).start()
    try:
        with pytest.raises(SwitchError, match="no device 5") as refused:
            SwitchConnection.connect(server.address, 5, 1)
        assert refused.value.code == "SWITCH.UNREACHABLE"
    finally:
        server.stop()
    assert time.monotonic() - began < 4


def test_a_switch_that_goes_away_is_told_as_such_and_closing_is_quick() -> None:
    threads = threading.active_count()
    server = P4RuntimeServer([Device("s1", 1, StackPipeline())]).start()
    switch = SwitchConnection.connect(server.address, 1, 1)
    switch.ensure_pipeline(P4INFO)
    server.stop()
    with pytest.raises(SwitchError) as failed:
        switch.write(insert(tree(1, 1)))
    assert failed.value.code == "SWITCH.UNREACHABLE"
    began = time.monotonic()
    switch.close()
    assert time.monotonic() - began < 1.5
    eventually(lambda: threading.active_count() <= threads)


def eventually(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Listener(list[int]):
    """A client's view of arbitration: the status codes that it was told."""

    put = list[Any].append

    @property
    def told(self) -> list[str]:
        return [code_pb2.Code.Name(each.arbitration.status.code) for each in self]

    __hash__ = object.__hash__


def test_clients_are_told_of_every_change_of_the_primary() -> None:
    first, second, reader = Listener(), Listener(), Listener()
    arbitration = Arbitration(1)
    arbitration.join(reader, 0)
    arbitration.join(first, 5)
    arbitration.join(second, 7)
    arbitration.leave(second)
    arbitration.join(first, 8)
    arbitration.join(first, 3)
    assert reader.told == [
        "NOT_FOUND",
        *["ALREADY_EXISTS"] * 2,
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "NOT_FOUND",
    ]
    assert first.told == ["OK", "ALREADY_EXISTS", "NOT_FOUND", "OK", "NOT_FOUND"]
    assert second.told == ["OK"]
    assert not arbitration.is_primary(3)
    assert [each.arbitration.election_id.low for each in reader] == [0, 5, 7, 7, 8, 8]
    with pytest.raises(Refusal):
        arbitration.join(second, 3)
