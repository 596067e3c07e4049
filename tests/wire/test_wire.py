"""Sinks: all send the same bytes, report each loss, and have helpful errors."""

from __future__ import annotations

import errno
import io
import pickle
import socket
import struct
import threading
import time
from contextlib import closing
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import rdpcap
from waiting import until

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire import (
    Opener,
    SinkOptions,
    check_ingresses,
    open_sink,
    sink_options,
)
from stackcast.jobs.adapters.wire.pcap import read_ethernet, read_pcap
from stackcast.jobs.adapters.wire.sendmmsg import BATCH, FrameSender
from stackcast.udfs.errors import SettingsError, SinkError, StackError
from stackcast.udfs.network.ingresses import Ingresses

pytestmark = pytest.mark.integration


def buffer(frames: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.zeros(len(frames) + 1, np.int64)
    np.cumsum([len(frame) for frame in frames], out=offsets[1:])
    return np.frombuffer(b"".join(frames), np.uint8), offsets


def some_frames(count: int, seed: int = 1) -> list[bytes]:
    random = np.random.default_rng(seed)
    return [
        number.to_bytes(4) + random.bytes(int(size))
        for number, size in enumerate(random.integers(60, 200, count))
    ]


class FarEnd(threading.Thread):
    """The far end of a tunnel: reads datagrams and answers with the number of those processed."""

    def __init__(self, *, answers=True, receive_buffer=1 << 20, pause_every=0, already=0):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.05)
        self.endpoint = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.received: list[bytes] = []
        self.pauses = 0
        self.answers, self.pause_every, self.already = answers, pause_every, already
        self.stopping = threading.Event()
        self.start()

    def run(self):
        while not self.stopping.is_set():
            try:
                datagram, sender = self.socket.recvfrom(65_536)
            except TimeoutError:
                self.pauses += 1
                continue
            self.received.append(datagram)
            if self.pause_every and len(self.received) % self.pause_every == 0:
                time.sleep(0.01)
            if self.answers:
                self.socket.sendto((self.already + len(self.received)).to_bytes(8), sender)

    def wait_for(self, count: int) -> list[bytes]:
        until(lambda: len(self.received) >= count)
        return self.received

    def wait_until_idle(self) -> None:
        """Wait until no datagram is in the buffer of the socket."""
        pauses = self.pauses
        until(lambda: self.pauses > pauses)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.join()
        self.socket.close()


def test_tunnel_and_pcap_send_the_same_bytes(tmp_path):
    frames = some_frames(BATCH + 300)
    data, offsets = buffer(frames)
    path = tmp_path / "out.pcap"
    with FarEnd() as far_end:
        for options in (
            SinkOptions("udp", endpoint=far_end.endpoint, window=64),
            SinkOptions("pcap", path=str(path)),
        ):
            sink = open_sink(pickle.loads(pickle.dumps(options)))
            # In two parts: a sink takes any slice of the borders.
            assert sink.send(data, offsets[:101]) == 100
            assert sink.send(data, offsets[100:]) == len(frames) - 100
            sink.flush()
            sink.close()
            sink.close()
        assert far_end.received == frames
    assert [record.frame for record in read_pcap(io.BytesIO(path.read_bytes()))] == frames
    assert [bytes(packet) for packet in rdpcap(str(path))] == frames


def ingresses(*rows: tuple[str, str, str]) -> Ingresses:
    """Return the ingresses of rows: place, publisher and transport, "" for null."""
    names = ("place", "publisher", "transport")
    return Ingresses.from_rows(
        dict(zip(names, (value or None for value in row), strict=True)) for row in rows
    )


def test_an_executor_uses_the_transport_of_its_place(monkeypatch):
    """The place is a name that its node sets, or the node's host name."""
    frame = buffer([b"x" * 60])
    with FarEnd() as rack, FarEnd() as node, FarEnd() as default:
        rows = ingresses(("rack1", "", rack.endpoint), (socket.gethostname(), "", node.endpoint))
        opener = Opener(sink_options(Settings(udp_endpoint=default.endpoint)))
        for place, far_end in (("rack1", rack), ("", node), ("rack2", default)):
            monkeypatch.setenv("STACKCAST_PLACE", place)
            with closing(opener(opener.way(rows, "feed1", "s1"))) as sink:
                sink.send(*frame)
            assert far_end.wait_for(1) == [b"x" * 60]


def test_each_of_several_publishers_has_a_transport_at_each_place(monkeypatch):
    """The row of the publisher counts before the row for all, and both before the setting."""
    with FarEnd() as at_rack1, FarEnd() as near, FarEnd() as named, FarEnd() as default:
        ports = [int(each.endpoint.rpartition(":")[2]) for each in (near, default)]
        rows = ingresses(
            ("rack1", "feed2", at_rack1.endpoint),
            ("rack1", "feed4", "127.0.0.1:9"),
            ("rack2", "", f"127.0.0.{{publisher}}:{ports[0]}"),
            ("", "feed2", named.endpoint),
            ("", "", ""),
        )
        settings = Settings(publisher="1,feed2,feed3", udp_endpoint="{switch}:" + str(ports[1]))
        options = sink_options(settings)
        check_ingresses(rows, options)
        opener = pickle.loads(pickle.dumps(Opener(options)))
        for place, publisher, far_end in (
            ("rack1", "feed2", at_rack1),
            ("rack1", "feed3", default),
            ("rack2", "1", near),
            ("rack3", "feed2", named),
        ):
            monkeypatch.setenv("STACKCAST_PLACE", place)
            with closing(opener(opener.way(rows, publisher, "127.0.0.1"))) as sink:
                sink.send(*buffer([publisher.encode() * 60]))
            assert far_end.wait_for(1) == [publisher.encode() * 60]
        # The row for all other publishers at other places has no transport.
        assert opener.way(rows, "feed3", "127.0.0.1").endpoint == default.endpoint


@pytest.mark.parametrize(
    ("publishers", "endpoint", "row", "error"),
    [
        ("feed1", "", None, r"BAD_VALUE.*sink\.udp\.endpoint is empty"),
        ("feed1", "far:1", ("rack1", "feed1", "near"), "BAD_ENDPOINT.*'rack1'.*'near'"),
        ("feed1,feed2", "", ("rack1", "", "near:1"), "NO_TRANSPORT.*'rack1'.*'near:1'"),
        ("feed1", "", ("rack1", "", "near:1"), ""),
        ("feed1,feed2", "", ("rack1", "", "{switch}:1"), ""),
        ("feed1,feed2", "", ("", "feed1", "near:1"), ""),
    ],
)
def test_rows_that_do_not_fit_the_sink_are_refused(publishers, endpoint, row, error):
    options = sink_options(Settings(publisher=publishers, udp_endpoint=endpoint))
    rows = ingresses(*([row] if row else []))
    if not error:
        check_ingresses(rows, options)
        return
    with pytest.raises((SettingsError, SinkError), match=error):
        check_ingresses(rows, options)


def test_frames_of_all_publishers_enter_through_the_shared_host_of_their_place(monkeypatch):
    """Frames for the shared host itself enter through another link. At places with rows for
    several publishers, or for all, each publisher uses its own link."""
    rows = ingresses(
        ("rack1", "feed1", "near:1"),
        ("rack2", "feed2", "near:2"),
        ("rack3", "feed9", "near:3"),
        ("rack4", "feed4", ""),
        ("rack5", "feed1", "near:5"),
        ("rack5", "", "{publisher}:5"),
    )
    assert rows.shared_hosts == ("feed1", "feed2", "feed4", "feed9")
    settings = Settings(publisher="feed1,feed2", udp_endpoint="{switch}:1")
    opener = pickle.loads(pickle.dumps(Opener(sink_options(settings))))
    for place, shared, host, endpoint in (
        ("rack1", "feed1", "feed1", "near:1"),
        ("rack1", "feed1", "feed2", "near:2"),
        ("rack3", "feed9", "feed9", "near:3"),
        ("rack4", "feed4", "feed4", "s7:1"),
        ("rack5", "", "feed1", "near:5"),
        ("rack5", "", "feed2", "feed2:5"),
        ("rack6", "", "feed2", "s7:1"),
    ):
        monkeypatch.setenv("STACKCAST_PLACE", place)
        assert rows.shared_host(opener.place()) == shared
        assert opener.way(rows, host, "s7").endpoint == endpoint
    # The interface of each machine leads to its own switch.
    raw = Settings(sink="af_packet", interface="eth1", publisher="feed1,feed2")
    own = ingresses(("rack1", "feed1", ""), ("rack2", "feed2", ""))
    monkeypatch.setenv("STACKCAST_PLACE", "rack2")
    assert Opener(sink_options(raw)).way(own, "feed2", "s2").interface == "eth1"
    monkeypatch.setenv("STACKCAST_PLACE", "rack3")
    with pytest.raises(SinkError, match=r"NO_TRANSPORT.*'feed2'.*'rack3'"):
        Opener(sink_options(raw)).way(own, "feed2", "s2")


def test_a_place_may_have_an_interface(monkeypatch):
    monkeypatch.setenv("STACKCAST_PLACE", "rack1")
    opener = Opener(sink_options(Settings(sink="af_packet", interface="eth1")))
    with pytest.raises(SinkError, match="no-such"):
        opener(opener.way(ingresses(("rack1", "", "no-such")), "feed1", "s1"))


def test_files_contain_the_frames_of_all_publishers():
    options = sink_options(Settings(sink="pcap", publisher="feed1,feed2"))
    rows = ingresses(("", "feed1", "near:1"))
    assert Opener(options).way(rows, "feed1", "s1") == options


def test_a_plain_tunnel_expects_no_answer():
    frames = some_frames(50)
    with FarEnd(answers=False) as far_end:
        sink = open_sink(SinkOptions("udp", endpoint=far_end.endpoint))
        assert sink.send(*buffer(frames)) == 50
        sink.flush()
        assert far_end.wait_for(50) == frames
        sink.close()


def test_a_window_loses_nothing_to_a_slow_far_end_with_a_small_buffer():
    frames = some_frames(5_000)
    with FarEnd(receive_buffer=16_384, pause_every=100) as far_end:
        sink = open_sink(SinkOptions("udp", endpoint=far_end.endpoint, window=12))
        assert sink.send(*buffer(frames)) == 5_000
        sink.flush()
        assert far_end.received == frames, "flush returns when all are processed"
        sink.close()


def test_without_a_window_the_same_far_end_would_lose_frames():
    # The measure of the test above: its far end is really too slow for its buffer.
    with FarEnd(answers=False, receive_buffer=16_384, pause_every=100) as far_end:
        sink = open_sink(SinkOptions("udp", endpoint=far_end.endpoint))
        sink.send(*buffer(some_frames(5_000)))
        far_end.wait_until_idle()
        assert len(far_end.received) < 5_000
        sink.close()


def test_a_count_that_began_before_this_sink_is_no_credit():
    # Ports are used again, so the far end may have counted frames of an earlier sink.
    frames = some_frames(200)
    with FarEnd(already=1_000_000, pause_every=50) as far_end:
        sink = open_sink(SinkOptions("udp", endpoint=far_end.endpoint, window=16))
        sink.send(*buffer(frames))
        sink.flush()
        assert far_end.received == frames
        sink.close()


def test_a_silent_far_end_is_an_error_and_not_a_hang():
    with FarEnd(answers=False) as far_end:
        sink = open_sink(SinkOptions("udp", endpoint=far_end.endpoint, window=4, patience=0.2))
        with pytest.raises(SinkError, match="NO_CREDIT") as error:
            sink.send(*buffer(some_frames(10)))
        assert error.value.unanswered == 1
        sink.close()


@pytest.mark.parametrize("window", [0, 4])
def test_a_far_end_that_is_away_is_unreachable(window):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{closed.getsockname()[1]}"
    sink = open_sink(SinkOptions("udp", endpoint=endpoint, window=window))
    with pytest.raises(SinkError, match="UNREACHABLE"):
        for _ in range(3):
            sink.send(*buffer(some_frames(2)))
            sink.flush()
    sink.close()


def test_a_frame_that_no_datagram_holds_is_refused_and_those_before_it_are_out():
    frames = [b"a" * 100, b"b" * 100, b"c" * 70_000]
    with FarEnd(answers=False) as far_end:
        sink = open_sink(SinkOptions("udp", endpoint=far_end.endpoint))
        with pytest.raises(SinkError, match="FRAME_TOO_LARGE") as error:
            sink.send(*buffer(frames))
        assert error.value.sent == 2
        assert far_end.wait_for(2) == frames[:2]
        sink.close()


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN, errno.ENOBUFS])
def test_partial_sends_and_full_queues_lose_and_repeat_nothing(code, monkeypatch):
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender = FrameSender(near, "test", patience=60)
    real, calls = sender._sendmmsg, []

    def reluctant(descriptor, address, count, flags):
        calls.append(count)
        if len(calls) % 2:
            monkeypatch.setattr("ctypes.get_errno", lambda: code)
            return -1
        return real(descriptor, address, min(count, 3), flags)

    sender._sendmmsg = reluctant
    frames = some_frames(8)
    assert sender.send(*buffer(frames)) == 8
    assert [far.recv(4096) for _ in frames] == frames
    assert calls == [8, 8, 5, 5, 2, 2]
    near.close()
    far.close()


def frames_alike(count: int) -> list[bytes]:
    """Frames of few sizes, similar to those of a stream."""
    random = np.random.default_rng(2)
    return [
        number.to_bytes(4) + random.bytes(int(size))
        for number, size in enumerate(
            random.choice([60, 62, 90, 1400], count, p=[0.1, 0.7, 0.1, 0.1])
        )
    ]


def counted(sender: FrameSender) -> list[int]:
    """Returns a list to which each call adds the number of messages that the kernel accepted."""
    real, accepted = sender._sendmmsg, []

    def spy(*arguments):
        accepted.append(real(*arguments))
        return accepted[-1]

    sender._sendmmsg = spy
    return accepted


@pytest.mark.parametrize("window", [0, 100])
def test_frames_of_one_size_go_together_and_arrive_apart(window):
    frames = frames_alike(3 * BATCH)
    with FarEnd(receive_buffer=1 << 24) as far_end:
        with closing(
            open_sink(SinkOptions("udp", endpoint=far_end.endpoint, window=window))
        ) as sink:
            accepted = counted(sink._sender)
            assert sink.send(*buffer(frames)) == len(frames)
            sink.flush()
        assert far_end.wait_for(len(frames)) == frames
    assert sum(accepted) < len(frames) / 2


@pytest.mark.parametrize("code", [errno.EIO, errno.EINVAL])
@pytest.mark.parametrize("accepted", [0, 7])
def test_where_the_kernel_segments_nothing_frames_are_sent_one_by_one(code, accepted, monkeypatch):
    """An interface that computes no checksums may refuse at once, or after some messages."""
    frames = frames_alike(2 * BATCH)
    with FarEnd(answers=False, receive_buffer=1 << 24) as far_end:
        sink = open_sink(SinkOptions("udp", endpoint=far_end.endpoint))
        real, sender = sink._sender._sendmmsg, sink._sender
        remaining = [accepted]

        def refuses(descriptor, address, count, flags):
            first = (address - sender._messages.ctypes.data) // sender._messages.itemsize
            segmented = sender._messages["header"]["control_length"][first : first + count] > 0
            plain = int(segmented.argmax()) if segmented.any() else count
            if remaining[0]:
                plain, remaining[0] = min(remaining[0], count), 0
            if plain == 0:
                monkeypatch.setattr("ctypes.get_errno", lambda: code)
                return -1
            return real(descriptor, address, plain, flags)

        sender._sendmmsg = refuses
        assert sink.send(*buffer(frames)) == len(frames)
        sink.close()
        assert far_end.wait_for(len(frames)) == frames


def test_a_queue_that_stays_full_is_an_error_and_not_a_hang():
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with pytest.raises(SinkError, match="STALLED") as error:
        FrameSender(near, "test", patience=0.2).send(*buffer(some_frames(5_000)))
    assert 0 < error.value.sent < 5_000
    near.close()
    far.close()


@pytest.mark.parametrize("endpoint", ["", "host", "host:", ":1", "host:0", "host:99999", "h:1x"])
def test_a_malformed_endpoint_is_named(endpoint):
    with pytest.raises(SinkError, match="BAD_ENDPOINT"):
        open_sink(SinkOptions("udp", endpoint=endpoint))


def test_other_options_that_cannot_work_are_named(tmp_path):
    with pytest.raises(SinkError, match="BAD_WINDOW"):
        open_sink(SinkOptions("udp", endpoint="127.0.0.1:1", window=-1))
    with pytest.raises(SinkError, match="UNKNOWN_KIND"):
        open_sink(SinkOptions("carrier pigeon"))
    with pytest.raises(SinkError, match="BAD_PATH"):
        open_sink(SinkOptions("pcap", path=str(tmp_path / "{task}.pcap")))
    with pytest.raises(SinkError, match="BAD_PATH"):
        open_sink(SinkOptions("pcap"))


def test_every_pcap_sink_writes_a_file_of_its_own(tmp_path):
    options = SinkOptions("pcap", path=str(tmp_path / "new" / "frames-{partition}.pcap"))
    for number in range(3):
        sink = open_sink(options)
        sink.send(*buffer([]))
        sink.send(*buffer([bytes([number]) * 60]))
        sink.close()
    idle = open_sink(options)
    idle.flush()
    idle.close()
    files = {path.name: path for path in (tmp_path / "new").iterdir()}
    assert sorted(files) == ["frames-0-1.pcap", "frames-0-2.pcap", "frames-0.pcap"]
    for name, first in (("frames-0.pcap", 0), ("frames-0-1.pcap", 1), ("frames-0-2.pcap", 2)):
        with files[name].open("rb") as file:
            assert [record.frame for record in read_pcap(file)] == [bytes([first]) * 60]


@pytest.mark.parametrize("name", ["frames", "run.2024", "night.d"])
def test_a_pcap_path_that_does_not_end_in_pcap_is_a_folder(tmp_path, name):
    sink = open_sink(SinkOptions("pcap", path=str(tmp_path / name)))
    sink.send(*buffer([b"x" * 60]))
    sink.close()
    assert (tmp_path / name / "frames-0-0.pcap").is_file()


def test_a_pcap_is_valid_after_every_send_without_close(tmp_path):
    path = tmp_path / "live.pcap"
    sink = open_sink(SinkOptions("pcap", path=str(path)))
    frames = some_frames(20)
    for count in range(1, 21):
        sink.send(*buffer(frames[count - 1 : count]))
        with path.open("rb") as file:
            records = list(read_pcap(file))
        assert [record.frame for record in records] == frames[:count]
        assert abs(records[-1].time - time.time()) < 60
    sink.close()


def test_a_pcap_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    sink = open_sink(SinkOptions("pcap", path=str(tmp_path / "file" / "out.pcap")))
    with pytest.raises(SinkError, match="WRITE_FAILED"):
        sink.send(*buffer([b"x" * 60]))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "part", "unit"), [(0xA1B2C3D4, 5, 1e-6), (0xA1B23C4D, 5, 1e-9)])
def test_pcaps_of_either_order_and_resolution_are_read(order, magic, part, unit):
    content = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65_535, 1)
    content += struct.pack(f"{order}IIII", 100, part, 3, 3) + b"abc"
    (record,) = read_pcap(io.BytesIO(content))
    assert record.frame == b"abc" and record.time == pytest.approx(100 + part * unit, abs=1e-10)
    assert record.time_ns == 100 * 10**9 + round(part * unit * 1e9)


def block(order: str, kind: int, body: bytes) -> bytes:
    """A block of pcapng, filled up to four bytes."""
    body += b"\0" * (-len(body) % 4)
    return (
        struct.pack(f"{order}II", kind, 12 + len(body))
        + body
        + struct.pack(f"{order}I", 12 + len(body))
    )


def section(order: str, link_type: int = 1, options: bytes = b"") -> bytes:
    """A section header of pcapng, and an interface that records ten bytes per frame."""
    head = struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)
    interface = struct.pack(f"{order}HHI", link_type, 0, 10) + options
    return block(order, 0x0A0D0D0A, head) + block(order, 1, interface)


def enhanced(order: str, time: int, frame: bytes, interface: int = 0) -> bytes:
    head = struct.pack(f"{order}5I", interface, time >> 32, time % 2**32, len(frame), 99)
    return block(order, 6, head + frame)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("resolution", "unit"), [(b"", 1e-6), (b"\x09", 1e-9), (b"\x83", 1 / 8)], ids=str
)
def test_pcapng_of_either_order_and_any_resolution_is_read(order, resolution, unit):
    options = struct.pack(f"{order}HH4s", 9, 1, resolution) if resolution else b""
    options += struct.pack(f"{order}HHq", 14, 8, 50)
    content = section(order, options=options)
    content += block(order, 5, b"statistics, and other blocks")
    content += enhanced(order, 8 * 10**9, b"abc") + enhanced(order, 8, b"")
    # A section of the opposite byte order, with frames that have no time.
    opposite = {"<": ">", ">": "<"}[order]
    content += section(opposite) + block(
        opposite, 3, struct.pack(f"{opposite}I", 12) + b"0123456789"
    )
    records = list(read_pcap(io.BytesIO(content)))
    assert [record.frame for record in records] == [b"abc", b"", b"0123456789"]
    assert records[0].time == pytest.approx(50 + 8 * 10**9 * unit, abs=1e-6)
    assert records[2].time == 0
    for record in records[:2]:
        assert content[record.offset :][:4] == struct.pack(f"{order}I", 6)


@examples(100)
@given(
    st.integers(0, 2**64 - 1),
    st.one_of(st.none(), st.integers(0, 127), st.integers(128, 255)),
    st.integers(-(2**31), 2**31),
)
def test_times_of_pcapng_are_exact_to_the_nanosecond(units, resolution, offset):
    options = b"" if resolution is None else struct.pack("<HHB3x", 9, 1, resolution)
    options += struct.pack("<HHq", 14, 8, offset)
    (record,) = read_pcap(io.BytesIO(section("<", options=options) + enhanced("<", units, b"")))
    number = 6 if resolution is None else resolution
    unit = Fraction(1, 2 ** (number - 128) if number >= 128 else 10**number)
    assert record.time_ns == offset * 10**9 + floor(units * unit * 10**9)


def test_an_option_of_any_size_gives_a_time():
    options = struct.pack("<HH", 14, 60_000) + bytes([255]) * 59_999 + b"\x7f"
    (record,) = read_pcap(io.BytesIO(section("<", options=options) + enhanced("<", 5, b"")))
    assert abs(record.time) < 2**64


def test_interfaces_of_several_link_types_are_read_from_one_pcapng():
    content = section("<", link_type=276)
    for link_type in (105, 1):
        content += block("<", 1, struct.pack("<HHI", link_type, 0, 10))
    numbers = [2, 0, 1, 2]
    for number in numbers:
        content += enhanced("<", 5, bytes([number]), interface=number)
    records = list(read_pcap(io.BytesIO(content)))
    assert [record.link_type for record in records] == [1, 276, 105, 1]
    assert [record.frame for record in records] == [bytes([number]) for number in numbers]
    frames = read_ethernet(io.BytesIO(content))
    assert next(frames) == records[0]
    with pytest.raises(StackError, match="link type 276 is not supported: only Ethernet") as caught:
        next(frames)
    assert (caught.value.code, caught.value.offset) == ("STACK.LINK_TYPE", records[1].offset)


@pytest.mark.parametrize("order", ["<", ">"])
def test_frames_in_obsolete_blocks_of_pcapng_are_read(order):
    """As pcapng-2010 defines them: the interface has two bytes, and two count drops."""
    head = struct.pack(f"{order}HH4I", 1, 0xFFFF, 0, 7_000_000, 3, 99)
    second_interface = block(order, 1, struct.pack(f"{order}HHI", 1, 0, 10))
    content = section(order) + second_interface + block(order, 2, head + b"abc")
    (record,) = read_pcap(io.BytesIO(content))
    assert (record.frame, record.time) == (b"abc", pytest.approx(7.0))


def test_a_block_of_pcapng_with_two_lengths_is_reported_after_the_frames_before_it():
    content = section("<") + enhanced("<", 5, b"abc")
    damaged = bytearray(enhanced("<", 5, b"def"))
    damaged[-4] += 4
    frames = []
    with pytest.raises(StackError, match=f"block at byte {len(content)} begins with length 36"):
        for record in read_pcap(io.BytesIO(content + bytes(damaged) + enhanced("<", 5, b"ghi"))):
            frames.append(record.frame)
    assert frames == [b"abc"]


@examples(100)
@given(st.data())
def test_pcapng_that_is_damaged_gives_frames_or_an_error_of_ours(data):
    content = bytearray(section("<") + enhanced("<", 5, b"abcdef") + section(">") * 2)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(4, len(content)))]
    try:
        assert all(len(record.frame) <= 6 for record in read_pcap(io.BytesIO(bytes(content))))
    except StackError as error:
        assert 0 <= error.offset <= len(content)


def test_captures_that_cannot_be_read_say_why():
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 1)
    for content, code in (
        (b"", "NOT_PCAP"),
        (b"hello, world, this is text", "NOT_PCAP"),
        (head[:10], "TRUNCATED_CAPTURE"),
        (head[:20] + struct.pack("<I", 105), "LINK_TYPE"),
        (head + b"\0" * 7, "TRUNCATED_CAPTURE"),
        (head + struct.pack("<IIII", 0, 0, 9, 9) + b"short", "TRUNCATED_CAPTURE"),
        (head + struct.pack("<IIII", 0, 0, 2**32 - 1, 9) + bytes(99), "TRUNCATED_CAPTURE"),
        (b"\x0a\x0d\x0d\x0a" + b"\0" * 24, "TRUNCATED_CAPTURE"),
        (b"\x0a\x0d\x0d\x0a" + b"\xff" * 24, "TRUNCATED_CAPTURE"),
        (section("<") + enhanced("<", 0, b"abc")[:-5], "TRUNCATED_CAPTURE"),
        (section("<") + enhanced("<", 0, b"abc", interface=1), "TRUNCATED_CAPTURE"),
    ):
        with pytest.raises(StackError) as error:
            list(read_pcap(io.BytesIO(content)))
        assert error.value.code == f"STACK.{code}"
