"""``stackcast receive`` as a process, with real sockets, real loss and a service that answers."""

from __future__ import annotations

import json
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from lossy_network import Stream, notification, summary_bytes
from paths import ROOT
from ports import free_port
from typer.testing import CliRunner
from waiting import until

from stackcast.cli.main import app
from stackcast.lab.proof.receipts import Receipt, receipts
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.errors import SinkError
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.reference import build_packet, read_packet
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.messages.summary_keys import SummaryKey

pytestmark = pytest.mark.integration

TOPIC = Topic("itch.raw")
TOPIC_OPTIONS = ["--topic", TOPIC.name, "--topic-id", ""]
SESSIONS = [session_id(TOPIC, 0), session_id(TOPIC, 1)]
#: Only against hangs.
DEADLINE = 600.0


class Service(Thread):
    """Answers requests with the notifications of streams, over a network with this loss."""

    def __init__(self, streams: list[Stream], loss: float = 0.0, name: str = "") -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.1)
        self.address = f"127.0.0.1:{self.socket.getsockname()[1]}"
        #: Sessions and the first numbers of requests.
        self.requests: set[tuple[bytes, int]] = set()
        self._streams = {stream.session: stream for stream in streams}
        self._dice, self._loss, self._name = random.Random(5), loss, name
        self._over = Event()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                datagram, asker = self.socket.recvfrom(2048)
            except TimeoutError:
                continue
            session, sequence, count = struct.unpack_from(">10sQH", datagram)
            self.requests.add((session, sequence))
            if datagram[20:].decode() != self._name:
                continue
            for answer in self._streams[session].answer(sequence, count):
                if self._dice.random() >= self._loss:
                    self.socket.sendto(answer, asker)

    def close(self) -> None:
        self._over.set()
        self.join()
        self.socket.close()


@contextmanager
def serving(*arguments, **named) -> Iterator[Service]:
    service = Service(*arguments, **named)
    service.start()
    try:
        yield service
    finally:
        service.close()


class Host:
    """The command as a process that listens at a port of this machine."""

    def __init__(self, folder: Path, *arguments: str, listen: bool = True) -> None:
        self.port, self.summary_port = free_port(), free_port()
        self.out = folder / "out"
        self.errors = folder / "errors"
        where = ["--listen", f"127.0.0.1:{self.port}"] if listen else ["--port", f"{self.port}"]
        command = [*where, "--summary-port", str(self.summary_port), *arguments]
        with self.out.open("wb") as out, self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stackcast.cli.main", "receive", *command],
                cwd=ROOT,
                stdout=out,
                stderr=errors,
            )
        self.wait_until(lambda: "listening" in self.errors.read_text())

    @property
    def output(self) -> str:
        return self.errors.read_text()

    def wait_until(self, condition: Callable[[], object]) -> None:
        until(condition, self, seconds=DEADLINE)

    def has_read(self) -> bool:
        """Whether no datagram waits in its sockets."""
        rows = [row.split() for row in Path("/proc/net/udp").read_text().splitlines()]
        ports = tuple(f":{port:04X}" for port in (self.port, self.summary_port))
        queues = [row[4].partition(":")[2] for row in rows if row[1].endswith(ports)]
        return len(queues) >= len(ports) and set(queues) == {"00000000"}

    def lines(self) -> int:
        """Returns the number of lines that it has printed."""
        return self.out.read_bytes().count(b"\n")

    def end(self, code: int = 0, number: int = signal.SIGTERM) -> list[str]:
        """Send a signal; returns the lines that the command printed."""
        self.process.send_signal(number)
        assert self.process.wait(DEADLINE) == code, self.errors.read_text()
        return self.out.read_text().splitlines()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def host(tmp_path) -> Iterator[Callable[..., Host]]:
    with ExitStack() as stack:

        def start(*arguments, listen: bool = True) -> Host:
            it = Host(tmp_path, *(str(a) for a in arguments), listen=listen)
            stack.callback(it.close)
            return it

        yield start


@pytest.fixture
def wire() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        it.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        yield it


def streams(batches: int, offsets: int = 40) -> list[Stream]:
    """Returns two sessions of this number of batches, which no host has received."""
    dice = random.Random(8)
    streams = [Stream(session) for session in SESSIONS]
    for number in range(batches):
        for stream in streams:
            begin = stream.ends[-1] >> 26
            sent = {
                (offset << 26) | (index << 13): dice.choice([1, 2, 5])
                for offset in range(begin, begin + offsets)
                for index in dice.sample(range(9), dice.choice([0, 1, 2]))
            }
            stream.append(sent, (begin + offsets) << 26)
            # The ledger is one batch behind, except at the end.
            stream.ledger = stream.ends[-1 if number + 1 == batches else -2]
    return streams


def send_all(
    wire: socket.socket,
    host: Host,
    sent: list[Stream],
    to: str = "127.0.0.1",
    summaries_to: str = "",
) -> None:
    """Send batches: notifications in random order, some of them twice, then a summary."""
    dice = random.Random(4)
    for number in range(len(sent[0].batches)):
        for stream in sent:
            *notifications, summary = stream.datagrams(number)
            notifications += dice.sample(notifications, len(notifications) // 20)
            dice.shuffle(notifications)
            for datagram in notifications:
                wire.sendto(datagram, (to, host.port))
            wire.sendto(summary, (summaries_to or to, host.summary_port))
        # A faster sender would overflow the buffers of sockets.
        host.wait_until(host.has_read)


def expected(sent: list[Stream]) -> list[Receipt]:
    return [
        Receipt(*read_part(notification(stream.session, s, count)))
        for stream in sent
        for s, count in sorted(stream.sent.items())
    ]


def read_part(datagram: bytes) -> tuple[bytes, int, tuple[bytes, ...]]:
    session, sequence, messages = read_packet(datagram)
    return session, sequence, tuple(messages)


def receipts_file(folder: Path) -> Path:
    (folder / "receipts").mkdir()
    return folder / "receipts" / "h1.mold"


@pytest.mark.parametrize("order", ["arrival", "sequence"])
def test_ten_percent_loss_in_both_directions_recovers_to_exactly_the_expected_set(
    order, host, wire, tmp_path
):
    sent = streams(20)
    file = receipts_file(tmp_path)
    owed_receipts = expected(sent)
    size = sum(22 + sum(2 + len(m) for m in r.messages) for r in owed_receipts)
    with serving(sent, loss=0.1, name="h1") as service:
        options = ["--rerequest", service.address, "--name", "h1", "--drop", 0.1, "--seed", 3]
        options += [*TOPIC_OPTIONS, "--partitions", 2, "--from-start", "--order", order]
        it = host(*options, "--receipts", file, "--silence", 0.3, "--json")
        send_all(wire, it, sent)
        it.wait_until(lambda: file.stat().st_size >= size)
        # It asks behind the last message of each stream to learn that the stream has ended.
        ends = {(s.session, s.ends[-1]) for s in sent}
        it.wait_until(lambda: ends <= service.requests and it.output.count("caught up") == 2)
        last = it.end()[-1]
    received = receipts(tmp_path)["h1"]
    assert Counter(received) == Counter(owed_receipts)
    if order == "sequence":
        assert [r for s in SESSIONS for r in received if r.session == s] == owed_receipts
    report = json.loads(last)
    counts = report["statistics"]
    assert counts["delivered"] == len(owed_receipts)
    assert counts["messages"] == sum(len(r.messages) for r in owed_receipts)
    assert counts["repaired"] > 0 and counts["duplicates"] + counts["late"] > 0
    assert counts["losses"] == counts["malformed"] == counts["unexpected"] == 0
    assert counts["requests"] > 0 and counts["thrown"] > 0
    complete = {row["session"]: row["complete"] for row in report["sessions"]}
    assert complete == {s.session.decode(): s.ends[-1] for s in sent}
    assert "discarding 10% of all datagrams" in it.errors.read_text()


def test_a_host_that_received_nothing_gets_everything_from_the_start(host, tmp_path):
    sent = streams(5)
    with serving(sent) as service:
        it = host(
            *["--rerequest", service.address, *TOPIC_OPTIONS, "--partitions", 2],
            *["--from-start", "--hex"],
        )
        owed_receipts = expected(sent)
        lines = sum(len(r.messages) for r in owed_receipts)
        it.wait_until(lambda: it.lines() >= lines and it.output.count("caught up") == 2)
        printed = it.end(number=signal.SIGINT)
    assert Counter(printed) == Counter(
        f"{r.session.decode()} {r.sequence + place} {message.hex()}"
        for r in owed_receipts
        for place, message in enumerate(r.messages)
    )


def test_the_command_fails_if_earlier_messages_never_arrive(host):
    options = [*TOPIC_OPTIONS, "--from-start"]
    assert host("--rerequest", f"127.0.0.1:{free_port()}", *options).end(code=1) == []


def test_messages_are_printed_as_the_other_commands_print_them(host, wire):
    messages = list(TradingSession(50, seed=2, symbols=5))
    it = host("--seconds", 60)
    wire.sendto(build_packet(SESSIONS[0], 7 << 26, messages[:20]), ("127.0.0.1", it.port))
    wire.sendto(build_packet(SESSIONS[0], 8 << 26, [b"?"]), ("127.0.0.1", it.port))
    it.wait_until(lambda: it.lines() == 21)
    *lines, unreadable = it.end()
    assert lines[0] == f"{SESSIONS[0].decode()} {7 << 26}  03:00:00.000000000  S system_event  " + (
        "event_code=O"
    )
    assert [line.split()[3] for line in lines] == [chr(m[0]) for m in messages[:20]]
    assert [int(line.split()[1]) for line in lines] == [(7 << 26) + n for n in range(20)]
    assert unreadable == f"{SESSIONS[0].decode()} {8 << 26}  3f"
    assert "2 notifications (21 messages): 2 received" in it.errors.read_text()


def test_json_has_a_line_for_each_message_and_one_for_the_statistics(host, wire):
    messages = list(TradingSession(50, seed=2, symbols=5))[:3]
    it = host("--json", "--seconds", 60)
    for _ in range(2):
        wire.sendto(build_packet(SESSIONS[0], 7 << 26, messages), ("127.0.0.1", it.port))
    it.wait_until(lambda: it.lines() == 3)
    it.wait_until(it.has_read)
    *rows, last = [json.loads(line) for line in it.end()]
    assert [(r["session"], r["sequence"], r["type"]) for r in rows] == [
        (SESSIONS[0].decode(), (7 << 26) + n, chr(m[0])) for n, m in enumerate(messages)
    ]
    assert last["statistics"]["delivered"] == last["statistics"]["duplicates"] == 1
    assert last["sessions"] == [
        {"session": SESSIONS[0].decode(), "state": "unheard", "complete": 0, "announced": 0}
    ]


def test_each_datagram_is_forwarded_once_with_its_bytes(host, wire):
    sent = streams(2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.settimeout(DEADLINE)
        it = host("--forward", f"127.0.0.1:{client.getsockname()[1]}")
        send_all(wire, it, sent)
        owed_receipts = [notification(s.session, n, c) for s in sent for n, c in s.sent.items()]
        received = [client.recv(65535) for _ in owed_receipts]
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(65535)
        it.end()
    assert sorted(received) == sorted(owed_receipts)


def test_without_a_service_a_loss_is_reported_and_the_exit_code_is_1(host, wire):
    it = host("--hex")
    sent = {1 << 26: 1, 2 << 26: 1, 3 << 26: 1}
    to = "127.0.0.1", it.port
    wire.sendto(notification(SESSIONS[0], 2 << 26, 1), to)
    for begin, end in ((0, 4 << 26), (4 << 26, 5 << 26)):  # the second one confirms the first
        summary = summary_bytes(SESSIONS[0], begin, end, sent)
        wire.sendto(summary, ("127.0.0.1", it.summary_port))
    it.wait_until(lambda: "lost" in it.errors.read_text())
    assert len(it.end(code=1)) == 1
    assert (
        f"session {SESSIONS[0].decode()}: 2 notifications lost from 0 up to {4 << 26}: unanswered"
        in it.errors.read_text()
    )


def test_a_summary_far_ahead_with_the_hosts_own_key_costs_nothing(host, wire, tmp_path):
    key = SummaryKey(1, bytes([1]) * 32).for_host("h1")
    file = tmp_path / "h1.keys"
    file.touch(0o600)
    file.write_text(f"1 {key.secret.hex()}\n")
    it = host("--hex", "--order", "sequence", "--key-file", file, "--silence", 1)
    stream = Stream(SESSIONS[0])

    def send_batch() -> None:
        begin = stream.ends[-1]
        number = stream.append({begin: 1, begin + (1 << 26): 2}, begin + (2 << 26))
        *notifications, summary = stream.datagrams(number)
        for datagram in notifications:
            wire.sendto(datagram, ("127.0.0.1", it.port))
        wire.sendto(key.sign(summary), ("127.0.0.1", it.summary_port))

    send_batch()
    it.wait_until(lambda: it.lines() == 3)
    begin = (1 << 63) - (1 << 40)
    far_ahead = summary_bytes(SESSIONS[0], begin, begin + (5 << 26), {begin: 1})
    wire.sendto(key.sign(far_ahead), ("127.0.0.1", it.summary_port))
    sent = time.monotonic()

    def stream_continues() -> bool:
        send_batch()
        return time.monotonic() - sent > 2.5

    it.wait_until(stream_continues)
    it.wait_until(lambda: it.lines() == 3 * len(stream.batches))
    numbers = [int(line.split()[1]) for line in it.end()]
    assert numbers == [first + n for first, count in stream.sent.items() for n in range(count)]
    assert "lost from" not in it.errors.read_text()


def test_keys_change_without_a_restart_and_without_a_loss(host, wire, tmp_path):
    """New keys are distributed first, then they sign, then the old keys are removed."""
    old, new = (SummaryKey(n, bytes([n]) * 32).for_host("h1") for n in (1, 2))
    file = tmp_path / "keys"

    def give(*keys: SummaryKey) -> None:
        file.touch(0o600)
        file.write_text("".join(f"{key.id} {key.secret.hex()}\n" for key in keys))
        if it is not None:
            number[0] += 1
            it.wait_until(lambda: it.errors.read_text().count("were read again") == number[0])

    def send(begin: int, key: SummaryKey) -> None:
        summary = summary_bytes(SESSIONS[0], begin << 26, begin + 1 << 26, {begin << 26: 1})
        wire.sendto(notification(SESSIONS[0], begin << 26, 1), ("127.0.0.1", it.port))
        wire.sendto(key.sign(summary), ("127.0.0.1", it.summary_port))
        it.wait_until(lambda: it.lines() == begin)

    it, number = None, [0]
    give(old)
    it = host("--json", "--key-file", file)
    send(1, old)
    give(old, new)
    send(2, old)
    send(3, new)
    give(new)
    send(4, new)
    it.wait_until(it.has_read)
    *_, last = it.end()
    report = json.loads(last)
    assert report["statistics"]["forged"] == 0
    assert report["sessions"][0]["complete"] == 5 << 26


def test_without_the_right_key_the_exit_code_is_1(host, wire, tmp_path):
    file = tmp_path / "keys"
    file.touch(0o600)
    file.write_text(f"1 {'ab' * 32}\n")
    it = host("--hex", "--key-file", file)
    # All notifications are lost, and the summary of the stream is refused.
    signed = SummaryKey(1, bytes(32)).sign(summary_bytes(SESSIONS[0], 0, 4 << 26, {1 << 26: 1}))
    for _ in range(2):
        wire.sendto(signed, ("127.0.0.1", it.summary_port))
    it.wait_until(it.has_read)
    assert it.end(code=1) == []
    assert "2 summaries without a valid tag" in it.errors.read_text()


def test_a_group_is_joined_on_the_interface_that_is_named(host, wire):
    sent = streams(2)
    group = "239.254.12.9"
    it = host("--group", group, "--interface", "127.0.0.1", "--hex", listen=False)
    send_all(wire, it, sent, to=group)
    lines = sum(len(r.messages) for r in expected(sent))
    it.wait_until(lambda: it.lines() >= lines)
    it.wait_until(it.has_read)
    assert len(it.end()) == lines


def test_group_and_encoding_of_events_are_read_from_the_properties_of_the_stream(
    host, wire, tmp_path
):
    group = "239.254.12.10"
    properties, attributes = tmp_path / "mine.conf", tmp_path / "attributes.jsonl"
    properties.write_text(
        f"spark.stackcast.multicast.group {group}\n"
        "spark.stackcast.format attributes\n"
        "spark.stackcast.attributes.encoding id_pairs\n"
    )
    attributes.write_text(
        '{"id": 1, "name": "temp", "type": "decimal", "scale": 0.1, "offset": -100}\n'
    )
    options = ["--properties-file", properties, "--attributes", attributes]
    it = host(*options, "--interface", "127.0.0.1", listen=False)
    event = write_event({1: 1255}, "id_pairs")
    wire.sendto(build_packet(SESSIONS[0], 7 << 26, [event]), (group, it.port))
    it.wait_until(lambda: it.lines() == 1)
    assert it.end() == [f'{SESSIONS[0].decode()} {7 << 26}  {{"temp": 25.5}}']


def test_where_switches_match_summaries_come_to_the_hosts_own_address(host, wire):
    sent = streams(2)
    group, own = "239.254.12.10", "127.0.0.1"
    listen = ["--group", group, "--interface", own, "--summary-address", own]
    it = host(*listen, "--hex", "--order", "sequence", listen=False)
    send_all(wire, it, sent, to=group, summaries_to=own)
    # In order of sequence, messages wait for a summary that announces them as complete.
    lines = sum(len(r.messages) for r in expected(sent))
    it.wait_until(lambda: it.lines() >= lines)
    assert len(it.end()) == lines


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from-start"], "--rerequest"),
        (["--group", "10.0.0.1"], "multicast"),
        (["--forward", "127.0.0.1:9", "--receipts", "x"], "give either --forward or --receipts"),
        (["--topic", "t"], "--topic needs --topic-id"),
        (["--topic", "\udcff", "--topic-id", "x"], "--topic contains the non-printable character"),
        (["--topic-id", "x"], "--topic-id needs --topic"),
        (["--generation", "1"], "--generation needs --topic"),
        (["--partitions", "2"], "--partitions needs --topic"),
        (["--summary-address", "127.0.0.1", "--listen", "127.0.0.1:9"], "--summary-address cannot"),
        (["--summary-address", "127.0.0.1", "--summary-port", "0"], "other than 0"),
        (["--name", "\udcff"], "--name contains the non-printable character"),
        (["--name", "h" * 256], "--name has 256 bytes, but at most 255 are allowed"),
        (["--receipts", ""], "--receipts '': give a file"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_impossible_options_are_refused_with_a_remedy(arguments, words):
    result = CliRunner().invoke(app, ["receive", *arguments])
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "127.0.0.1:70000"], "--listen 127.0.0.1:70000: the port must be 1 to 65535"),
        (["--listen", "127.0.0.1:0"], "--listen 127.0.0.1:0: the port must be 1 to 65535"),
        (["--listen", "x"], "--listen 'x' must have the form host:port"),
        (["--rerequest", "x", "--listen", "127.0.0.1:0"], "--listen"),
    ],
)
def test_errors_of_addresses_name_the_option(arguments, words):
    result = CliRunner().invoke(app, ["receive", *arguments])
    assert isinstance(result.exception, SinkError) and words in str(result.exception)
