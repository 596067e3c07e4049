"""The lab's P4Runtime server over gRPC, as p4runtime-shell's client and our own adapter see it."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import certificates
import control_plane
import grpc
import pytest
from control_plane import (
    INFO,
    INFO_FILE,
    JSON,
    JSON_FILE,
    Remembering,
    Set,
    config,
    entity,
    exact,
    group,
    table_entry,
    updates,
)
from google.rpc import code_pb2, status_pb2
from paths import COMPILED_P4
from waiting import until

from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.switches.shell import register_messages
from stackcast.schemas.p4runtime import p4runtime_pb2, p4runtime_pb2_grpc
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import MOST_UPDATES, Device
from stackcast.switch.p4runtime.endpoint import ServerCredentials
from stackcast.switch.p4runtime.refusal import Refusal, batch_status, invalid
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.errors import LabError, SwitchError
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.switches.entry import (
    Difference,
    SwitchEntry,
    canonical,
    difference,
    group_entry,
)
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[P4RuntimeServer]:
    """Devices 1 and 2."""
    devices = [Device(f"s{number}", number, Remembering()) for number in (1, 2)]
    running = P4RuntimeServer(devices).start()
    yield running
    running.stop()


@pytest.fixture
def stub(server: P4RuntimeServer) -> Iterator[Any]:
    with grpc.insecure_channel(server.address) as channel:
        yield p4runtime_pb2_grpc.P4RuntimeStub(channel)


class Stream:
    """A client's stream; `read` gives messages, and the error that ended it."""

    def __init__(
        self, stub: Any, device: int = 1, election_id: int | None = 1, role: str = ""
    ) -> None:
        self.out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.call = stub.StreamChannel(iter(self.out.get, None))
        self.ask(device, election_id, role)

    def ask(self, device: int = 1, election_id: int | None = 1, role: str = "") -> None:
        message = p4runtime_pb2.StreamMessageRequest()
        message.arbitration.device_id = device
        message.arbitration.role.name = role
        if election_id is not None:
            message.arbitration.election_id.SetInParent()
            message.arbitration.election_id.low = election_id
        self.out.put(message)

    def read(self) -> Any:
        return next(self.call)

    def code(self) -> str:
        """The status of the next notice."""
        return str(code_pb2.Code.Name(self.read().arbitration.status.code))

    def end(self) -> tuple[str, str]:
        """Code and words of the error that ends the stream."""
        with pytest.raises(grpc.RpcError) as error:
            while True:
                self.read()
        return error.value.code().name, error.value.details()

    def close(self) -> None:
        self.out.put(None)


def write_request(*parts: Any, device: int = 1, election_id: int | None = 1, **options: Any) -> Any:
    request = p4runtime_pb2.WriteRequest(device_id=device, updates=parts, **options)
    if election_id is not None:
        request.election_id.SetInParent()
        request.election_id.low = election_id
    return request


def set_request(device: int = 1, election_id: int = 1, **options: Any) -> Any:
    request = Set(device_id=device, action=Set.VERIFY_AND_COMMIT, config=config(), **options)
    request.election_id.low = election_id
    return request


def refused(call: Callable[[], Any]) -> tuple[str, list[str]]:
    """Code of an RPC that must fail, and of each of its parts."""
    with pytest.raises(grpc.RpcError) as error:
        call()
    parts = []
    for key, value in error.value.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            assert (status.code, status.message) == (code_pb2.UNKNOWN, error.value.details())
            for detail in status.details:
                part = p4runtime_pb2.Error()
                assert detail.Unpack(part)
                parts.append(code_pb2.Code.Name(part.canonical_code))
    return error.value.code().name, parts


def read_all(stub: Any, *parts: Any, device: int = 1, role: str = "") -> list[Any]:
    request = p4runtime_pb2.ReadRequest(device_id=device, role=role, entities=map(entity, parts))
    return [each for response in stub.Read(request, timeout=600) for each in response.entities]


def test_p4runtime_shells_own_client_sets_writes_and_reads(server: P4RuntimeServer) -> None:
    register_messages()
    p4runtime_sh = import_module("p4runtime_sh.p4runtime")
    shell = p4runtime_sh.P4RuntimeClient(2, server.address, (0, 5))
    try:
        assert shell.api_version() == "1.4.0"
        shell.set_fwd_pipe_config(str(INFO_FILE), str(JSON_FILE))
        assert shell.get_p4info() == INFO
        (update,) = updates("INSERT", exact(b"\0\x40\1"))
        shell.write_update(update)
        with pytest.raises(p4runtime_sh.P4RuntimeWriteException) as answer:
            shell.write_update(update)
        assert answer.value.errors[0][1].canonical_code == code_pb2.ALREADY_EXISTS
        (response,) = shell.read_one(entity(exact(b"\x40\1")))
        (entry,) = response.entities
        assert entry.table_entry.match[0].exact.value == b"\x40\1"  # canonical when read back
    finally:
        shell.tear_down()


def test_a_config_comes_back_as_it_was_set_or_in_parts(stub: Any) -> None:
    get = p4runtime_pb2.GetForwardingPipelineConfigRequest
    assert refused(lambda: stub.GetForwardingPipelineConfig(get(device_id=1))) == (
        "FAILED_PRECONDITION",
        [],
    )
    stream = Stream(stub)
    assert stream.code() == "OK"
    stub.SetForwardingPipelineConfig(set_request())
    whole = stub.GetForwardingPipelineConfig(get(device_id=1)).config
    assert whole == config()
    parts = {
        get.COOKIE_ONLY: (False, b""),
        get.P4INFO_AND_COOKIE: (True, b""),
        get.DEVICE_CONFIG_AND_COOKIE: (False, JSON),
    }
    for kind, (info, program) in parts.items():
        part = stub.GetForwardingPipelineConfig(get(device_id=1, response_type=kind)).config
        assert (part.HasField("p4info"), part.p4_device_config) == (info, program)
        assert part.cookie.cookie == 7
    assert refused(lambda: stub.GetForwardingPipelineConfig(get(device_id=9)))[0] == "NOT_FOUND"


def test_checks_come_in_the_order_of_the_specification(stub: Any) -> None:
    update = updates("INSERT", exact(b"\1"))

    def write(**options: Any) -> str:
        return refused(lambda: stub.Write(write_request(*update, **options)))[0]

    assert write(device=9) == "NOT_FOUND"
    assert write(role="other") == "NOT_FOUND"
    assert write() == write(election_id=None) == "PERMISSION_DENIED"
    stream = Stream(stub)
    assert stream.code() == "OK"
    assert write() == "FAILED_PRECONDITION"
    assert refused(lambda: read_all(stub)) == ("FAILED_PRECONDITION", [])
    stub.SetForwardingPipelineConfig(set_request())
    assert write(election_id=None) == write(election_id=2) == "PERMISSION_DENIED"
    assert write(atomicity=7) == "INVALID_ARGUMENT"
    assert refused(lambda: read_all(stub, role="other"))[0] == "NOT_FOUND"
    stub.Write(write_request(*update))


def test_each_update_and_each_part_of_a_read_has_its_own_answer(stub: Any) -> None:
    stream = Stream(stub)
    assert stream.code() == "OK"
    stub.SetForwardingPipelineConfig(set_request())
    batch = updates("INSERT", exact(b"\1"), exact(b"\1"), table_entry("keyless"), group(1, (1, 0)))
    assert refused(lambda: stub.Write(write_request(*batch))) == (
        "UNKNOWN",
        ["OK", "ALREADY_EXISTS", "INVALID_ARGUMENT", "OK"],
    )
    found: list[Any] = []
    request = p4runtime_pb2.ReadRequest(
        device_id=1,
        entities=[entity(exact(b"\1")), p4runtime_pb2.Entity(), entity(group(0))],
    )

    def read() -> None:
        for response in stub.Read(request):
            found.extend(response.entities)

    assert refused(read) == ("UNKNOWN", ["OK", "INVALID_ARGUMENT", "OK"])
    assert len(found) == 2


def test_thousands_of_entries_are_written_and_read_in_pieces(stub: Any) -> None:
    stream = Stream(stub)
    assert stream.code() == "OK"
    stub.SetForwardingPipelineConfig(set_request())
    many = [group(number, (1, 0), metadata=bytes(2000)) for number in range(1, 4001)]
    stub.Write(write_request(*updates("INSERT", *many)))  # 8 MB in one message
    held = read_all(stub, group(0))
    assert [each.packet_replication_engine_entry for each in held] == many


def test_devices_behind_one_port_know_nothing_of_each_other(stub: Any) -> None:
    streams = [Stream(stub, device, 5) for device in (1, 2)]
    assert [stream.code() for stream in streams] == ["OK", "OK"]
    for device in (1, 2):
        stub.SetForwardingPipelineConfig(set_request(device, 5))
    stub.Write(write_request(*updates("INSERT", exact(b"\1")), election_id=5))
    assert len(read_all(stub, exact(b"\1"))) == 1
    assert read_all(stub, exact(b"\1"), device=2) == []
    assert streams[0].ask(2, 5) is None
    assert streams[0].end()[0] == "FAILED_PRECONDITION"  # a stream cannot change its device


@pytest.mark.parametrize(
    ("device", "election_id", "role", "code", "later"),
    [
        (9, 1, "", "NOT_FOUND", "FAILED_PRECONDITION"),
        (2, 1, "", "", "FAILED_PRECONDITION"),
        (1, 1, "other", "NOT_FOUND", "FAILED_PRECONDITION"),
        (1, 5, "", "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    ],
)
def test_a_stream_that_cannot_join_ends_with_the_reason_and_others_go_on(
    stub: Any, device: int, election_id: int, role: str, code: str, later: str
) -> None:
    first = Stream(stub, 1, 5)
    assert first.code() == "OK"
    if code:
        assert Stream(stub, device, election_id, role).end()[0] == code
    second = Stream(stub, 1, None)
    assert second.code() == "ALREADY_EXISTS"
    second.ask(device, election_id, role)
    assert second.end()[0] == later
    first.ask(1, 5)
    assert first.code() == "OK"


def test_what_a_stream_cannot_carry_is_answered_and_the_stream_lives(stub: Any) -> None:
    stream = Stream(stub)
    assert stream.code() == "OK"
    message = p4runtime_pb2.StreamMessageRequest()
    message.packet.payload = b"frame"
    stream.out.put(message)
    error = stream.read().error
    assert error.canonical_code == code_pb2.UNIMPLEMENTED and "packet" in error.message
    assert error.packet_out.packet_out.payload == b"frame"
    message = p4runtime_pb2.StreamMessageRequest()
    message.digest_ack.digest_id = 3
    stream.out.put(message)
    assert stream.read().error.digest_list_ack.digest_list_ack.digest_id == 3
    stream.out.put(p4runtime_pb2.StreamMessageRequest())
    assert stream.read().error.canonical_code == code_pb2.INVALID_ARGUMENT
    stream.ask()
    assert stream.code() == "OK"


def test_a_stream_begins_with_arbitration(stub: Any) -> None:
    message = p4runtime_pb2.StreamMessageRequest()
    message.packet.payload = b"frame"
    with pytest.raises(grpc.RpcError) as error:
        list(stub.StreamChannel(iter([message])))
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_a_stream_that_never_begins_gives_its_place_back() -> None:
    server = P4RuntimeServer([Device("s1", 1, Remembering())], patience=0.3).start()
    try:
        with grpc.insecure_channel(server.address) as channel:
            stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
            first = Stream(stub)
            assert first.code() == "OK"
            silent: list[Any] = [queue.SimpleQueue() for _ in range(30)]
            for call in [stub.StreamChannel(iter(each.get, None)) for each in silent]:
                with pytest.raises(grpc.RpcError) as error:
                    next(call)
                assert error.value.code().name in ("FAILED_PRECONDITION", "RESOURCE_EXHAUSTED")
            # It was accepted before them. Later streams are accepted again.
            first.ask(1, 2)
            assert first.code() == "OK"
            assert Stream(stub, 1, 1).code() == "ALREADY_EXISTS"
            for each in silent:
                each.put(None)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("count", "refusals", "parts"),
    [
        (2, 1, 2),
        (100, 100, 100),
        (150, 150, 150),
        (340, 300, 340),
        (500, 500, 0),
        (MOST_UPDATES, MOST_UPDATES, 0),
    ],
)
def test_a_client_with_usual_limits_hears_why_a_batch_of_any_size_was_refused(
    stub: Any, count: int, refusals: int, parts: int
) -> None:
    stream = Stream(stub)
    assert stream.code() == "OK"
    stub.SetForwardingPipelineConfig(set_request())
    fine = [group(number, (1, 0)) for number in range(1, count - refusals + 1)]
    wrong = [table_entry("keyless")] * refusals
    request = write_request(*updates("INSERT", *fine, *wrong))
    code, answers = refused(lambda: stub.Write(request, timeout=600))
    assert (code, len(answers)) == ("UNKNOWN", parts)
    assert not parts or answers == ["OK"] * len(fine) + ["INVALID_ARGUMENT"] * refusals
    assert len(read_all(stub, group(0))) == len(fine)


def test_a_status_has_the_words_of_each_part_as_long_as_they_have_room() -> None:
    def words(answers: list[Refusal | None]) -> list[str]:
        status = batch_status(answers)
        assert status.ByteSize() + len(status.message.encode()) <= 7_000
        found = []
        for detail in status.details:
            part = p4runtime_pb2.Error()
            assert detail.Unpack(part)
            found.append(part.message)
        return found

    why = invalid("table 'ingress.one' has no action with id 7, and that is a long word of it")
    assert words([None, why]) == ["", why.message]
    assert words([why] * 65) == [f"{why.message[:57]}..."] * 65
    assert words([None, why] * 40)[1].startswith("table 'ingress.one'")
    assert words([why] * 300) == [""] * 300
    assert words([why] * 5_000) == []
    assert words([invalid("ä" * 100_000)]) == ["ä" * 397 + "..."]


def test_a_server_that_stops_ends_a_long_write() -> None:
    pipeline = Remembering()
    begun = threading.Event()

    def check(entry: SwitchEntry) -> None:
        begun.set()
        time.sleep(0.005)

    pipeline.check = check  # type: ignore[method-assign]
    server = P4RuntimeServer([Device("s1", 1, pipeline)]).start()
    with grpc.insecure_channel(server.address) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        stream = Stream(stub)
        assert stream.code() == "OK"
        stub.SetForwardingPipelineConfig(set_request())
        many = [group(number, (1, 0)) for number in range(1, 5_001)]
        answer = stub.Write.future(write_request(*updates("INSERT", *many)))
        assert begun.wait(600)
        server.stop()
        with pytest.raises(grpc.RpcError):
            answer.result(600)
    time.sleep(1)
    assert pipeline.entries == {}


def test_streams_without_end_do_not_keep_others_from_their_calls(stub: Any) -> None:
    streams = [Stream(stub, 1, None) for _ in range(16)]
    assert {stream.code() for stream in streams} == {"NOT_FOUND"}
    assert Stream(stub, 1, None).end()[0] == "RESOURCE_EXHAUSTED"
    other = Stream(stub, 2, 1)
    assert other.code() == "OK"
    silent: list[Any] = [queue.SimpleQueue() for _ in range(60)]
    calls = [stub.StreamChannel(iter(each.get, None)) for each in silent]
    until(lambda: any(call.done() for call in calls))
    assert stub.Capabilities(p4runtime_pb2.CapabilitiesRequest(), timeout=600)
    for each in silent:
        each.put(None)
    streams[0].close()

    def welcome() -> bool:
        try:
            return Stream(stub, 1, None).code() == "NOT_FOUND"
        except grpc.RpcError:
            return False

    until(welcome)


class Slow(Remembering):
    """A pipeline whose changes wait until the test lets them through."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.slow = False

    def apply(self, changes: Any) -> None:
        if self.slow:
            self.begun.set()
            assert self.go_on.wait(600)
        super().apply(changes)


def test_a_write_that_has_begun_is_finished_before_another_client_is_primary() -> None:
    pipeline = Slow()
    server = P4RuntimeServer([Device("s1", 1, pipeline)]).start()
    try:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(grpc.insecure_channel(server.address))
        old = Stream(stub, 1, 1)
        assert old.code() == "OK"
        stub.SetForwardingPipelineConfig(set_request())
        pipeline.slow = True
        answer = stub.Write.future(write_request(*updates("INSERT", exact(b"\1"))))
        assert pipeline.begun.wait(600)
        new = Stream(stub, 1, 2)
        notice = new.call
        waiting: list[str] = []
        reader = threading.Thread(target=lambda: waiting.append(new.code()))
        reader.start()
        time.sleep(0.2)
        assert not waiting and not notice.done()  # not primary during the write
        pipeline.go_on.set()
        assert answer.result(600) == p4runtime_pb2.WriteResponse()
        reader.join(600)
        assert waiting == ["OK"] and old.code() == "ALREADY_EXISTS"
        pipeline.slow = False
        stale = write_request(*updates("INSERT", exact(b"\2")))
        assert refused(lambda: stub.Write(stale))[0] == "PERMISSION_DENIED"
        stub.Write(write_request(*updates("DELETE", exact(b"\1")), election_id=2))
    finally:
        pipeline.go_on.set()
        server.stop()


def test_a_primary_whose_stream_dies_writes_nothing_any_more(
    server: P4RuntimeServer, stub: Any
) -> None:
    backup = Stream(stub, 1, 1)
    assert backup.code() == "OK"
    channel = grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)])
    primary = Stream(p4runtime_pb2_grpc.P4RuntimeStub(channel), 1, 2)
    assert primary.code() == "OK" and backup.code() == "ALREADY_EXISTS"
    stub.SetForwardingPipelineConfig(set_request(election_id=2))
    channel.close()  # no goodbye
    assert backup.code() == "NOT_FOUND"
    for number in (1, 2):
        orphan = write_request(*updates("INSERT", exact(b"\1")), election_id=number)
        assert refused(lambda one=orphan: stub.Write(one))[0] == "PERMISSION_DENIED"
    backup.ask(1, 2)
    assert backup.code() == "OK"
    stub.Write(write_request(*updates("INSERT", exact(b"\1")), election_id=2))


# --- TLS


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.make(tmp_path_factory.mktemp("tls"))


def channel(address: str, pems: Path, ca: str, who: str | None) -> grpc.Channel:
    own = [(pems / f"{who}.{kind}").read_bytes() if who else None for kind in ("key", "pem")]
    credentials = grpc.ssl_channel_credentials((pems / ca).read_bytes(), *own)
    return grpc.secure_channel(address, credentials)


def answers(made: grpc.Channel) -> bool:
    with made:
        try:
            stub = p4runtime_pb2_grpc.P4RuntimeStub(made)
            stub.Capabilities(p4runtime_pb2.CapabilitiesRequest(), timeout=600)
        except grpc.RpcError:
            return False
        return True


def test_with_a_ca_only_clients_with_its_certificates_come_in(pems: Path) -> None:
    tls = ServerCredentials(pems / "server.pem", pems / "server.key", pems / "ca.pem")
    server = P4RuntimeServer([Device("s1", 1, Remembering())], tls=tls).start()
    try:
        address = server.address
        assert answers(channel(address, pems, "ca.pem", "client"))
        assert not answers(channel(address, pems, "ca.pem", "stranger"))
        assert not answers(channel(address, pems, "ca.pem", None))
        assert not answers(channel(address, pems, "other.pem", "client"))
        assert not answers(grpc.insecure_channel(address))
        shown = Credentials(*(str(pems / name) for name in ("ca.pem", "client.pem", "client.key")))
        with SwitchConnection.connect(address, 1, 1, shown) as switch:
            assert switch.is_primary
    finally:
        server.stop()


def test_without_a_ca_the_server_proves_itself_and_takes_any_client(pems: Path) -> None:
    tls = ServerCredentials(pems / "server.pem", pems / "server.key")
    server = P4RuntimeServer([Device("s1", 1, Remembering())], tls=tls).start()
    try:
        assert answers(channel(server.address, pems, "ca.pem", None))
        assert not answers(channel(server.address, pems, "other.pem", None))
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("certificate", "key", "ca", "words"),
    [
        ("none.pem", "server.key", "ca.pem", "none.pem: No such file"),
        ("server.pem", "none.key", "ca.pem", "none.key: No such file"),
        ("server.pem", "server.key", "none", "none: No such file"),
        ("server.pem", "client.key", "ca.pem", "cannot be used for TLS: KEY_VALUES_MISMATCH"),
        ("names", "server.key", "ca.pem", "names"),
        ("server.pem", "names", "ca.pem", "names"),
        ("server.pem", "server.key", "names", "names cannot be used for TLS"),
        ("server.pem", "locked.key", "ca.pem", "has a password"),
        ("server.pem", "server.key", ".", "Is a directory"),
    ],
)
def test_a_file_that_is_no_use_for_tls_is_named(
    pems: Path, certificate: str, key: str, ca: str, words: str
) -> None:
    tls = ServerCredentials(pems / certificate, pems / key, pems / ca)
    with pytest.raises(LabError, match=words) as error:
        P4RuntimeServer([], tls=tls)
    assert error.value.code == "LAB.BAD_TLS"


def test_a_port_that_is_taken_is_named() -> None:
    server = P4RuntimeServer([])
    try:
        with pytest.raises(LabError) as error:
            P4RuntimeServer([], server.address)
        assert error.value.code == "LAB.PORT_TAKEN"
        assert server.address.rpartition(":")[2] in error.value.message
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("nonsense", "expected HOST:PORT"),
        (":9559", "expected HOST:PORT"),
        ("127.0.0.1:70000", "expected HOST:PORT"),
        ("127.0.0.1:22:1", "'127.0.0.1:22' is not a host"),
        ("::1:9559", "in brackets"),
        ("[::x]:9559", "'::x' is not an IPv6 address"),
        ("no such host:0", "host 'no such host' was not found"),
        # Kept for documentation, so that no machine has it.
        ("203.0.113.1:9559", "'203.0.113.1' is not an address of this machine"),
    ],
)
def test_an_address_to_listen_at_that_cannot_be_is_told(listen: str, words: str) -> None:
    with pytest.raises(LabError, match=re.escape(words)) as error:
        P4RuntimeServer([], listen)
    assert error.value.code == "LAB.BAD_ADDRESS" and listen in error.value.message


# --- our own adapter, and the software switch behind the server


@pytest.fixture
def trees() -> Iterator[SwitchConnection]:
    """A connection to a switch that runs the program of virtual trees."""
    server = P4RuntimeServer([Device("pod1-rack1", 1, SimpleSwitch())]).start()
    with SwitchConnection.connect(server.address, 1, 10) as connection:
        info, program = (COMPILED_P4 / f"virtual_trees.{kind}" for kind in ("p4info.txtpb", "json"))
        assert connection.ensure_pipeline(info.read_text(), program.read_bytes())
        assert not connection.ensure_pipeline(info.read_text(), program.read_bytes())
        yield connection
    server.stop()


def rack(start: int) -> list[SwitchEntry]:
    network = fabric(2, 2, 2, 1, 1)
    entries = switch_entries(network, broadcast_trees(network, 1, start))
    return [entry for entry in entries if entry.switch == "pod1-rack1"]


def test_all_entries_of_a_network_are_held_as_written_and_a_difference_is_enough(
    trees: SwitchConnection,
) -> None:
    first, second = rack(1), rack(2)
    assert trees.write(difference(first, ())) == []
    assert trees.read_entries("pod1-rack1") == set(first)
    step = difference(second, trees.read_entries("pod1-rack1"))
    assert step.insert and step.delete
    assert trees.write(step) == []
    assert trees.read_entries("pod1-rack1") == set(second)


def test_a_bad_update_is_reported_in_the_switchs_words_and_all_others_are_written(
    trees: SwitchConnection,
) -> None:
    groups = [group_entry("pod1-rack1", number, [(1, 0)]) for number in range(1, 400)]
    wide = group_entry("pod1-rack1", 400, [(512, 0)])
    label = (("label", "exact", canonical(1 << 14 | 1)),)
    nowhere = SwitchEntry("pod1-rack1", "ingress.acl", label, "ingress.drop", ())
    trees.write(Difference((groups[7],), (), ()))
    refused = trees.write(Difference((*groups, wide, nowhere), (), ()))
    failures = {update.entry: str(update) for update in refused}
    assert failures.keys() == {groups[7], wide, nowhere}
    assert failures[groups[7]].startswith(f"{groups[7].key}: ALREADY_EXISTS")
    assert "port 512" in failures[wide] or "0x200" in failures[wide]
    assert "ingress.acl" in failures[nowhere]
    assert trees.read_entries("pod1-rack1") == set(groups)


def test_a_switch_that_goes_away_is_told_as_such_and_closing_is_quick() -> None:
    threads = threading.active_count()
    server = P4RuntimeServer([Device("s1", 1, Remembering())]).start()
    switch = SwitchConnection.connect(server.address, 1, 1)
    switch.ensure_pipeline(control_plane.INFO_TEXT, JSON)
    server.stop()
    with pytest.raises(SwitchError) as failed:
        switch.write(Difference((group_entry("s1", 1, [(1, 0)]),), (), ()))
    assert failed.value.code == "SWITCH.UNREACHABLE"
    began = time.monotonic()
    switch.close()
    assert time.monotonic() - began < 2
    until(lambda: threading.active_count() <= threads)
