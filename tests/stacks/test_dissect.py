"""Reading frames back: dissect, and the command that shows frames to people."""

from __future__ import annotations

import gzip
import json
import socket
import struct
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy_captures import write_pcap, write_pcapng
from typer.testing import CliRunner

from stackcast.cli import frame_dissection
from stackcast.cli import frames as command
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.udfs.errors import SinkError, StackError
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import sequence_number
from stackcast.udfs.network.labels import HOP, NARROW, STOP, TREE, WIDE
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.frame import FrameTemplates, build_frames, header_template

pytestmark = pytest.mark.unit

MAC, ADDRESS, GROUP, PORT = 0x020000000001, 0x0A000001, 0xEF9F0203, 26400
STACK = (NARROW.label(TREE, 7), NARROW.label(HOP, 17), NARROW.label(STOP, 3))

# Add Order, ITCH 5.0: buy 300 GOOGL at 50.2500.
ADD_ORDER = (
    b"A"
    + struct.pack(">HH", 11, 0)
    + (34_200_000_000_001).to_bytes(6)
    + struct.pack(">Qc I8sI", 42, b"B", 300, b"GOOGL   ", 502_500)
)


class Positions:
    """Positions of the messages of one packet that holds nothing else."""

    def __init__(self, messages: list[bytes]) -> None:
        lengths = np.array([len(message) for message in messages], np.int32)
        self.packet = np.zeros(len(messages), np.int32)
        self.index = np.arange(len(messages), dtype=np.int32)
        self.start = (np.cumsum(lengths) - lengths).astype(np.int64)
        self.length = lengths


def frame_of(messages: list[bytes], labels=STACK, offset: int = 5, form=NARROW) -> bytes:
    template = header_template(labels, MAC, ADDRESS, GROUP, PORT, label_format=form)
    frames = build_frames(
        FrameTemplates.build([[], [template]]),
        np.ones(len(messages), np.int32),
        Positions(messages),
        np.frombuffer(b"".join(messages), np.uint8),
        np.array([offset], np.int64),
        np.frombuffer(b"SESSION001", np.uint8).reshape(1, 10),
        9_000,
    )
    return frames.data.tobytes()


def host_frame(payload: bytes) -> bytes:
    return bytes(
        Ether(src="02:00:00:00:00:01", dst="01:00:5e:1f:02:03")
        / IP(src="10.0.0.1", dst="239.159.2.3", flags="DF")
        / UDP(sport=PORT, dport=PORT)
        / Raw(payload)
    )


FRAME = frame_of([ADD_ORDER, ADD_ORDER])
WIDE_STACK = (WIDE.label(TREE, 1 << 29), WIDE.label(HOP, 17))
WIDE_FRAME = frame_of([ADD_ORDER], WIDE_STACK, form=WIDE)
IPV4_AT = 16 + 2 * len(STACK)
UDP_AT = IPV4_AT + 20


@examples(60)
@given(
    st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=20),
    st.lists(st.integers(1, 0x3FFF), min_size=1, max_size=64),
    st.sampled_from([(NARROW, 0x9999, 0x4000), (WIDE, 0x999A, 0xFFFF_0000)]),
    st.integers(0, 2**38 - 1),
)
def test_a_frame_comes_apart_into_what_it_was_made_of(messages, numbers, width, offset):
    form, ethertype, high = width
    labels = tuple(high | number for number in numbers)
    frame = frame_of(messages, labels, offset, form)
    parts = dissect(frame)
    assert parts.ethertype == ethertype and parts.labels == labels
    assert parts.label_format == form
    assert (parts.source_mac, parts.destination_mac) == (MAC, 0x01005E1F0203)
    assert (parts.ipv4.source, parts.ipv4.destination) == (ADDRESS, GROUP)
    assert (parts.udp.source_port, parts.udp.destination_port) == (PORT, PORT)
    assert parts.session == b"SESSION001" and parts.count == len(messages)
    assert parts.sequence == sequence_number(offset, 0)
    assert list(parts.messages) == messages and parts.padding == 0
    for position, message in zip(parts.positions, messages, strict=True):
        assert frame[position : position + len(message)] == message


def test_what_a_host_receives_has_no_stack_and_may_be_padded():
    parts = dissect(host_frame(build_packet(b"SESSION001", 9, [b"S"])) + b"\0\0\0")
    assert parts.ethertype == 0x0800 and parts.labels == ()
    assert parts.messages == (b"S",) and parts.sequence == 9 and parts.padding == 3


@pytest.mark.parametrize("count", [0, 0xFFFF])
def test_heartbeat_and_end_of_session_are_frames_without_messages(count):
    parts = dissect(host_frame(b"SESSION001" + struct.pack(">QH", 1, count)))
    assert parts.count == count and parts.messages == ()


def changed(at: int, content: bytes) -> bytes:
    return FRAME[:at] + content + FRAME[at + len(content) :]


@pytest.mark.parametrize(
    ("frame", "code", "offset"),
    [
        (b"", "TRUNCATED_FRAME", 0),
        (FRAME[:13], "TRUNCATED_FRAME", 13),
        (FRAME[:15], "TRUNCATED_FRAME", 15),
        (FRAME[:20], "TRUNCATED_FRAME", 20),
        (FRAME[:30], "TRUNCATED_FRAME", 30),
        (FRAME[:-1], "TRUNCATED_FRAME", len(FRAME) - 1),
        (changed(12, b"\x86\xdd"), "UNKNOWN_ETHERTYPE", 12),
        (changed(14, b"\0\0"), "EMPTY_STACK", 14),
        (changed(14, b"\0\x41"), "TOO_MANY_LABELS", 14),
        (changed(18, b"\0\x11"), "BAD_LABEL", 18),
        (WIDE_FRAME[:20], "TRUNCATED_FRAME", 20),
        (WIDE_FRAME[:20] + b"\0" + WIDE_FRAME[21:], "BAD_LABEL", 20),
        (changed(IPV4_AT, b"\x65"), "BAD_IPV4", IPV4_AT),
        (changed(IPV4_AT + 2, b"\0\x10"), "BAD_IPV4", IPV4_AT + 2),
        (changed(IPV4_AT + 8, b"\x01"), "IPV4_CHECKSUM", IPV4_AT + 10),
        (changed(UDP_AT + 4, b"\0\x07"), "BAD_UDP", UDP_AT + 4),
        (changed(UDP_AT + 4, b"\xff\xff"), "BAD_UDP", UDP_AT + 4),
        (changed(UDP_AT + 40, b"\xff"), "UDP_CHECKSUM", UDP_AT + 6),
    ],
)
def test_a_malformed_frame_is_told_with_code_and_byte(frame, code, offset):
    with pytest.raises(StackError) as error:
        dissect(frame)
    assert (error.value.code, error.value.offset) == (f"STACK.{code}", offset)


def test_datagrams_that_are_no_notification_are_told():
    ethernet = Ether(src="02:00:00:00:00:01", dst="01:00:5e:1f:02:03")
    for packet, code in (
        (IP(proto=6) / Raw(b"x" * 20), "NOT_UDP"),
        (IP(frag=3) / Raw(b"x" * 20), "FRAGMENT"),
        (IP(proto=17) / Raw(b"x" * 7), "BAD_UDP"),
    ):
        with pytest.raises(StackError) as error:
            dissect(bytes(ethernet / packet))
        assert error.value.code == f"STACK.{code}"


def test_a_damaged_payload_is_told_where_it_begins():
    with pytest.raises(StackError) as error:
        dissect(host_frame(build_packet(b"SESSION001", 1, [b"S"])[:-1]))
    assert error.value.code == "STACK.TRUNCATED_MESSAGE"
    assert error.value.offset == 14 + 20 + 8


@examples(300)
@given(st.data())
def test_any_bytes_give_parts_or_an_error_with_an_offset(data):
    frame = bytearray(FRAME)
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    for candidate in (frame, data.draw(st.binary(max_size=80))):
        try:
            dissect(candidate)
        except StackError as error:
            assert 0 <= error.offset <= len(candidate)


def shown(*arguments: str, given: bytes | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(command.app, ["dissect", *arguments], input=given)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_wide_labels_are_shown_by_their_ids():
    code, text = shown(WIDE_FRAME.hex())
    assert code == 0
    assert f"tree {1 << 29}, hop 17\n" in text and "0x999a" in text


def test_the_command_shows_a_frame_readably():
    code, text = shown(FRAME.hex())
    assert code == 0
    for part in (
        "frame 1: ",
        "tree 7, hop 17, stop 3",
        "10.0.0.1:26400 > 239.159.2.3:26400",
        "02:00:00:00:00:01 > 01:00:5e:1f:02:03",
        "SESSION001",
        "offset 5, message 0",
        "2 messages",
        "A add_order",
        "stock=GOOGL",
        "price=50.2500",
        "shares=300",
    ):
        assert part in text


@pytest.mark.parametrize("written", [FRAME.hex(" "), FRAME.hex(":"), "0x" + FRAME.hex().upper()])
def test_hex_is_read_as_people_write_it(written):
    assert shown(written)[0] == 0
    assert shown(given=f"{written}\n\n{written}\n".encode())[1].count("stack ") == 2


def test_a_pcap_of_ours_is_shown_from_a_file_and_from_standard_input(tmp_path):
    path = tmp_path / "out.pcap"
    sink = open_sink(SinkOptions("pcap", path=str(path)))
    sink.send(np.frombuffer(FRAME * 3, np.uint8), np.arange(4, dtype=np.int64) * len(FRAME))
    sink.close()
    code, text = shown("--json", str(path))
    rows = [json.loads(line) for line in text.splitlines()]
    assert code == 0 and [row["frame"] for row in rows] == [1, 2, 3]
    assert rows[0]["labels"] == ["tree 7", "hop 17", "stop 3"]
    assert rows[0]["kafka_offset"] == 5 and rows[0]["errors"] == []
    assert rows[0]["messages"][1]["stock"] == "GOOGL"
    assert shown("--json", given=path.read_bytes()) == (code, text)


HOST_PACKET = build_packet(b"SESSION001", 9, [ADD_ORDER])
DATAGRAM = IP(src="10.0.0.1", dst="239.159.2.3") / UDP(sport=PORT, dport=PORT) / Raw(HOST_PACKET)
MACS = {"src": "02:00:00:00:00:01", "dst": "01:00:5e:1f:02:03"}
COOKED = {"lladdrtype": 1, "lladdrlen": 6, "src": MAC.to_bytes(6) + b"\0\0"}
#: A packet of each link type that users capture, and how the command names the link.
CAPTURED: list[tuple[str, Packet]] = [
    ("ethernet", Ether(**MACS) / DATAGRAM),
    ("linux_sll", CookedLinux(**COOKED) / DATAGRAM),
    ("linux_sll2", CookedLinuxV2(**COOKED) / DATAGRAM),
    ("ipv4", DATAGRAM),
]


def rows_of(*arguments: str, given: bytes | None = None, code: int = 0) -> list[dict]:
    ended, text = shown("--json", *arguments, given=given)
    assert ended == code, text
    return [json.loads(line) for line in text.splitlines()]


def test_a_capture_of_interfaces_of_several_link_types_is_read_whole(tmp_path):
    path = tmp_path / "several.pcapng"
    write_pcapng(path, [(f"eth-{name}", packet.copy()) for name, packet in CAPTURED * 2])
    rows = rows_of(str(path))
    assert [row.get("link", "ethernet") for row in rows] == [name for name, _ in CAPTURED] * 2
    for row in rows:
        (message,) = row["messages"]
        assert (message["stock"], row["sequence"], row["remarks"]) == ("GOOGL", 9, [])
    macs = [(row["source_mac"], row["destination_mac"]) for row in rows[:4]]
    assert macs == [tuple(MACS.values()), *[(MACS["src"], None)] * 2, (None, None)]
    text = shown(str(path))[1]
    for line in (
        "  ethernet   02:00:00:00:00:01 > 01:00:5e:1f:02:03  0x0800",
        "  linux_sll  from 02:00:00:00:00:01  0x0800",
        "  linux_sll2 from 02:00:00:00:00:01  0x0800",
        "  ipv4       0x0800",
    ):
        assert line in text.splitlines()


def test_an_interface_that_cannot_be_read_harms_no_frame_of_another(tmp_path):
    from scapy.layers.dot11 import Dot11  # noqa: PLC0415

    path = tmp_path / "wireless.pcapng"
    packets = [CAPTURED[0], ("wlan", Dot11()), CAPTURED[0]]
    write_pcapng(path, [(name, packet.copy()) for name, packet in packets])
    rows = rows_of(str(path), code=1)
    assert [[e["code"] for e in row["errors"]] for row in rows] == [[], ["STACK.LINK_TYPE"], []]


def test_tags_are_shown_with_what_is_behind_them(tmp_path):
    tags = Dot1Q(vlan=100, prio=5, type=0x8100) / Dot1Q(vlan=7, type=0x0800)
    path = tmp_path / "tagged.pcap"
    write_pcap(path, [bytes(Ether(**MACS, type=0x88A8) / tags / DATAGRAM)])
    (row,) = rows_of(str(path))
    assert row["vlan"] == [
        {"protocol": "802.1ad", "id": 100, "priority": 5, "drop_eligible": False},
        {"protocol": "802.1Q", "id": 7, "priority": 0, "drop_eligible": False},
    ]
    assert row["ethertype"] == "0x0800" and row["messages"][0]["stock"] == "GOOGL"
    assert "  vlan       802.1ad 100 priority 5, 802.1Q 7 priority 0\n" in shown(str(path))[1]


@pytest.mark.integration
def test_what_the_kernel_leaves_to_the_network_card_is_shown_with_a_remark():
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        try:
            capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        except PermissionError:
            pytest.skip("captures need CAP_NET_RAW")
        with capture:
            capture.bind(("lo", 0x0800))
            receiver.bind(("127.0.0.1", 0))
            sender.sendto(HOST_PACKET, receiver.getsockname())
            port = receiver.getsockname()[1].to_bytes(2)
            while (frame := capture.recv(65_535))[36:38] != port:
                pass
    (row,) = rows_of(frame.hex())
    assert row["messages"][0]["stock"] == "GOOGL" and row["errors"] == []
    remark = "the UDP checksum at byte 40 was left to the sender's network card"
    assert row["remarks"] == [remark]
    assert f"  remark     {remark}\n" in shown(frame.hex())[1]


def test_a_frame_with_a_wrong_checksum_is_shown_and_is_an_error():
    frame = changed(UDP_AT + 6, b"\x12\x34")
    (row,) = rows_of(frame.hex(), code=1)
    assert [message["stock"] for message in row["messages"]] == ["GOOGL", "GOOGL"]
    (error,) = row["errors"]
    assert (error["code"], error["offset"]) == ("STACK.UDP_CHECKSUM", UDP_AT + 6)


def test_a_checksum_of_ipv4_that_is_left_out_is_a_remark():
    frame = changed(IPV4_AT + 10, b"\0\0")
    with pytest.raises(StackError, match="IPV4_CHECKSUM"):
        dissect(frame)
    (row,) = rows_of(frame.hex())
    assert [message["stock"] for message in row["messages"]] == ["GOOGL", "GOOGL"]
    place = f"the IPv4 checksum at byte {IPV4_AT + 10}"
    assert row["remarks"] == [f"{place} was left to the sender's network card"]


def test_json_keeps_the_nanoseconds_of_a_capture(tmp_path):
    path = tmp_path / "nanoseconds.pcap"
    times = write_pcap(path, [FRAME] * 5)
    rows = rows_of(str(path))
    assert [row["time_ns"] for row in rows] == times
    assert [row["time"] for row in rows] == pytest.approx([time / 1e9 for time in times])


def test_a_packed_capture_is_read_under_any_name_and_from_standard_input(tmp_path):
    path = tmp_path / "capture"
    write_pcap(path, [FRAME] * 3)
    plain = shown("--json", str(path))
    assert plain[0] == 0 and plain[1].count("\n") == 3
    packed = gzip.compress(path.read_bytes())
    path.write_bytes(packed)
    assert shown("--json", str(path)) == plain
    assert shown("--json", given=packed) == plain


@pytest.mark.parametrize("damage", [lambda c: c[:-30], lambda c: c[:3] + b"\xff" + c[4:]])
def test_a_packed_capture_that_is_damaged_is_an_error_of_ours(tmp_path: Path, damage):
    path = tmp_path / "capture"
    write_pcap(path, [FRAME] * 3)
    content = damage(gzip.compress(path.read_bytes()))
    path.write_bytes(content)
    for rows in (rows_of(str(path), code=1), rows_of(given=content, code=1)):
        assert rows[-1]["errors"][0]["code"] in ("STACK.TRUNCATED_CAPTURE", "STACK.NOT_HEX")


def test_errors_are_told_by_frame_and_the_others_are_still_shown():
    lines = [FRAME.hex(), FRAME[:30].hex(), "not hex", FRAME.hex()]
    code, text = shown("--json", given="\n".join(lines).encode())
    rows = [json.loads(line) for line in text.splitlines()]
    assert code == 1
    assert [[error["code"] for error in row["errors"]] for row in rows] == [
        [],
        ["STACK.TRUNCATED_FRAME"],
        ["STACK.NOT_HEX"],
        [],
    ]
    assert rows[1]["errors"][0]["offset"] == 30
    code, text = shown(FRAME[:30].hex())
    assert code == 1 and "error STACK.TRUNCATED_FRAME at byte 30" in text


def test_a_message_that_cannot_be_read_harms_none_beside_it():
    code, text = shown("--json", frame_of([b"?what", ADD_ORDER]).hex())
    (row,) = map(json.loads, text.splitlines())
    assert code == 1 and len(row["errors"]) == 1
    assert row["errors"][0]["offset"] == UDP_AT + 8 + 22
    assert row["messages"][0] == {"type": "?", "hex": b"?what".hex()}
    assert row["messages"][1]["name"] == "add_order"


def test_a_capture_that_ends_early_shows_what_it_holds(tmp_path):
    path = tmp_path / "cut.pcap"
    sink = open_sink(SinkOptions("pcap", path=str(path)))
    sink.send(np.frombuffer(FRAME * 2, np.uint8), np.arange(3, dtype=np.int64) * len(FRAME))
    sink.close()
    path.write_bytes(path.read_bytes()[:-5])
    code, text = shown(str(path))
    assert code == 1 and "add_order" in text and "STACK.TRUNCATED_CAPTURE" in text


def test_an_error_of_ours_is_one_line_and_exit_code_2(monkeypatch, capsys):
    from stackcast.cli import main  # noqa: PLC0415

    def fail() -> None:
        raise SinkError("PERMISSION", "first line\n  second line")

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "SINK.PERMISSION: first line second line\n"


def test_what_a_frame_carries_reaches_no_terminal_as_an_escape_sequence():
    row = {"type": "A", "name": "add_order", "stock": "\x1b[2J\u202e"}
    shown = frame_dissection.text_of(
        {"frame": 1, "length": 9, "labels": ["hop\x1b 1"], "count": 1, "messages": [row]}
        | dict.fromkeys(
            ("source_mac", "destination_mac", "ethertype", "source", "destination"), "x"
        )
        | {"session": "S\x07", "sequence": 1, "kafka_offset": 0, "message_index": 0, "errors": []}
    )
    assert all(line.isprintable() for line in shown.split("\n"))
    assert r"stock=\x1b[2J\u202e" in shown and r"session S\x07" in shown
