"""Wireshark shows frames as `stackcast frames dissect` reads them, faults included."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import ROOT
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Dot1Q, Ether
from scapy.packet import Raw
from scapy_captures import write_pcap
from tunnels import in_tunnel
from typer.testing import CliRunner

from stackcast.cli import frames as command
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.jobs.adapters.wire.pcap import read_pcap
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.errors import StateError
from stackcast.udfs.messages.attributes.encodings import ENCODINGS
from stackcast.udfs.messages.attributes.events import ETHERTYPE, Widths
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import sequence_number
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.messages.summaries import GONE, Summary
from stackcast.udfs.messages.summary_keys import SummaryKey
from stackcast.udfs.network.encodings import ROUTES
from stackcast.udfs.network.labels import NARROW, WIDE, LabelFormat, TypedLabels
from stackcast.udfs.network.source_routes import WIDE_SOURCE_ROUTES, SwitchLabels
from stackcast.udfs.network.stored_routes import BitmapLabels
from stackcast.udfs.network.tunnel import Tunnel, TunnelEnd
from stackcast.udfs.states import messages as states
from stackcast.udfs.states.messages import (
    MessageKind,
    Signal,
    SignalKind,
    SignalReader,
    StateHeader,
)

TSHARK = shutil.which("tshark")
EDITCAP = shutil.which("editcap")
MERGECAP = shutil.which("mergecap")
DISSECTOR = ROOT / "schemas" / "messages" / "stackcast.lua"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not TSHARK, reason="needs tshark: apt-get install tshark"),
]

Seen = dict[str, Any]
SESSION = b"8ZY63T0000"
SIGNAL = "stackcast_signal"
#: Of IPv4 and UDP, Wireshark tells in its own words.
IPV4_FAULTS = {"BAD_IPV4", "FRAGMENT", "IPV4_CHECKSUM", "NOT_UDP", "BAD_UDP", "UDP_CHECKSUM"}


def datagram(payload: bytes, port: int = 26400) -> bytes:
    """IPv4 and UDP from a publisher to a group."""
    udp = UDP(sport=26400, dport=port) / Raw(payload)
    return bytes(IP(src="10.64.0.1", dst="233.54.12.1", flags="DF") / udp)


def frame(behind: bytes, ethertype: int = 0x0800, destination: str = "01:00:5e:36:0c:01") -> bytes:
    return bytes(Ether(src="02:00:0a:40:00:01", dst=destination, type=ethertype)) + behind


def stacked(form: LabelFormat, labels: list[int], payload: bytes) -> bytes:
    return frame(form.pack(labels) + datagram(payload), form.ether_type)


def drawn(source: random.Random, form: LabelFormat) -> int:
    """A label that some switch may read."""
    if isinstance(form, TypedLabels):
        return form.label(source.choice(list(form.kinds)), source.randint(1, form.max_id))
    if isinstance(form, BitmapLabels):
        some = source.randint(1, 16_383)
        return source.choice([some, form.switch(some), 3 << 14 | some | 1])
    if not isinstance(form, SwitchLabels):
        return source.randint(1, form.max_id)
    value = source.randint(1, 255 if form.bits == 16 else 65535)
    return form.label(source.randint(1, form.max_device), form.tag or source.randint(1, 3), value)


def mutated(content: bytes, source: random.Random) -> bytes:
    """A byte or two changed, or the end cut off."""
    changed = bytearray(content)
    for _ in range(source.randint(0, 2)):
        changed[source.randrange(len(changed))] = source.choice((0, 1, 3, 64, 255))
    return bytes(changed[: source.choice((len(changed), source.randint(1, len(changed))))])


def deliveries(itch: Specification) -> Iterator[bytes]:
    """Notifications of every kind of message, stacks of both widths, summaries, and damage."""
    source, routes = random.Random(5), random.Random(6)
    kinds = [
        bytes((header.message_type, *source.choices(b"0189AZaz", k=header.length - 1)))
        for header in itch.headers
        if header.message_type is not None
    ]
    messages = [*TradingSession(messages=100, seed=3, symbols=5), *kinds]
    for number in range(150):
        form = source.choice((NARROW, WIDE))
        chosen = source.sample(messages, source.randint(1, 5))
        packet = build_packet(SESSION, sequence_number(number << 20, number), chosen)
        labels = [
            form.label(source.randint(1, 3), source.randint(1, form.max_id))
            for _ in range(source.randint(1, 64))
        ]
        yield stacked(form, labels, packet)
        yield frame(datagram(packet)) + bytes(number % 3)
        yield frame(datagram(SESSION + mutated(packet[10:], source)))
        stack = mutated(form.pack(labels), source)
        yield frame(stack + datagram(packet), form.ether_type)
        yield frame(stack[:-1], form.ether_type)
        route = routes.choice([*ROUTES.values(), *WIDE_SOURCE_ROUTES.values()])
        labels = [drawn(routes, route) for _ in range(routes.randint(1, 64))]
        yield stacked(route, labels, packet)
        yield frame(mutated(route.pack(labels), routes) + datagram(packet), route.ether_type)
    yield stacked(NARROW, [], build_packet(SESSION, 1, [b"S"]))
    for kind in kinds:
        yield frame(datagram(build_packet(SESSION, 1, [kind, kind[:-1], kind + b"x", b""])))
    for notifications in (0, 7, GONE):
        summary = Summary(SESSION, 60 << 26, 62 << 26, notifications, 60 << 26, 2**63 + 1)
        yield stacked(NARROW, [0x4001, 0xC002], summary.pack())
        yield stacked(NARROW, [0x4001, 0xC002], SummaryKey(7, bytes(32)).sign(summary.pack()))
    yield frame(datagram(struct.pack(">10sQHQQQQ", SESSION, 1, 0, 2, 3, 4, 5)))
    for count in (0, 0xFFFF):
        yield frame(datagram(struct.pack(">10sQH", SESSION, 9, count)))


def events(widths: Widths) -> Iterator[tuple[str, bytes]]:
    """Encoding and record: whole ones, and such as are cut off or changed."""
    source = random.Random(7)
    for number in range(120):
        ids = source.sample(range(widths.bitmask), source.randint(1, min(widths.bitmask, 9)))
        values = {id: source.getrandbits(32) for id in ids}
        for encoding in ("id_pairs", "bitmask"):
            record = write_event(values, encoding, source.randbytes(number % 30), widths)
            yield encoding, record
            yield encoding, mutated(record, source)
    yield "bitmask", bytes(widths.bitmask // 8)
    pair = (1).to_bytes(widths.id // 8) + b"seen"
    yield "id_pairs", pair + pair + bytes(widths.id // 8)


def capture(path: Path, frames: list[bytes]) -> Path:
    """Frames as the sink of the stream writes them."""
    sink = open_sink(SinkOptions("pcap", path=str(path)))
    ends = np.cumsum([0, *map(len, frames)], dtype=np.int64)
    sink.send(np.frombuffer(b"".join(frames), np.uint8), ends)
    sink.close()
    return path


def tshark(path: Path, *options: str) -> list[ET.Element]:
    """Packets of a capture, by the dissector."""
    script = f"lua_script:{DISSECTOR}"
    ran = subprocess.run(
        [str(TSHARK), "-X", script, "-r", str(path), "-T", "pdml", *options],
        capture_output=True,
        check=True,
    )
    assert b"Lua Error" not in ran.stdout and b"Lua" not in ran.stderr, ran.stderr
    return ET.fromstring(ran.stdout.decode(errors="replace")).findall("packet")


def texts(tree: ET.Element, name: str, attribute: str = "show") -> list[str]:
    return [str(field.get(attribute)) for field in tree.iter("field") if field.get("name") == name]


def faults(tree: ET.Element) -> list[str]:
    own = [text.split(":") for text in texts(tree, "_ws.expert.message")]
    return [words[0] for words in own if words[0].isupper()]


def fields(message: ET.Element) -> dict[str, str]:
    """Name and text of each field of a message."""
    named = [f.get("showname", "") for f in message if f.get("name", "").startswith("itch.")]
    return dict(text.split(": ", 1) if ": " in text else (text[:-1], "") for text in named)


def dissected(path: Path, *options: str) -> list[Seen]:
    result = CliRunner().invoke(command.app, ["dissect", "--json", str(path), *options])
    return [json.loads(line) for line in result.output.splitlines()]


def codes(row: Seen) -> list[str]:
    return [error["code"].partition(".")[2] for error in row["errors"]]


def pairs(tree: ET.Element) -> dict[int, int]:
    ids, values = (texts(tree, f"stackcast.event.{name}") for name in ("id", "value"))
    return {int(id): int(value) for id, value in zip(ids, values, strict=True)}


def test_notifications_and_summaries_are_shown_as_the_command_reads_them(
    tmp_path: Path, itch: Specification
) -> None:
    path = capture(tmp_path / "frames.pcap", list(deliveries(itch)))
    rows = dissected(path)
    packets = tshark(path)
    assert len(packets) == len(rows) > 600
    seen: set[str] = set()
    tagged = 0
    for packet, row in zip(packets, rows, strict=True):
        seen.update(codes(row))
        if "count" not in row:
            # The command stops at the first fault, Wireshark goes on.
            (error,) = row["errors"]
            ours = "IPv4" not in error["message"] and codes(row)[0] not in IPV4_FAULTS
            assert not ours or codes(row)[0] in faults(packet), row
            continue
        # Wireshark does not check checksums of UDP by default.
        assert faults(packet) == [code for code in codes(row) if code != "UDP_CHECKSUM"]
        assert texts(packet, "stackcast.label") == row["labels"]
        for name, key in (
            ("session", "session"),
            ("sequence", "sequence"),
            ("offset", "kafka_offset"),
            ("index", "message_index"),
            ("count", "count"),
        ):
            assert texts(packet, f"stackcast.{name}") == [str(row[key])]
        shown = [f for f in packet.iter("field") if f.get("name") == "stackcast.message"]
        assert len(shown) == len(row["messages"])
        for message, read in zip(shown, row["messages"], strict=True):
            if "hex" not in read:
                assert texts(message, "stackcast.message.type") == [read.pop("type")]
                assert message.get("showname") == f"Message: {read.pop('name')}"
                shown_fields = fields(message)
                assert shown_fields.keys() == read.keys()
                # Wireshark writes other characters in its own way.
                plain = {
                    name for name, text in read.items() if text.isascii() and text.isprintable()
                }
                assert {name: shown_fields[name] for name in plain} == {
                    name: read[name] for name in plain
                }
        if "summary" in row:
            told = row["summary"]
            assert texts(packet, "stackcast.summary.last") == [str(told["last"])]
            assert texts(packet, "stackcast.summary.digest") == [told["digest"]]
            (number,) = texts(packet, "stackcast.summary.notifications", "showname")
            assert str(told["notifications"]) in number
            assert texts(packet, "stackcast.summary.key") == [
                str(told[name]) for name in ("key",) if name in told
            ]
            tag = "".join(texts(packet, "stackcast.summary.tag")).replace(":", "")
            assert tag == told.get("tag", "")
            tagged += bool(tag)
    assert seen >= {
        *("EMPTY_STACK", "TOO_MANY_LABELS", "BAD_LABEL", "TRUNCATED_HEADER", "TRUNCATED_MESSAGE"),
        *("TOO_MANY_MESSAGES", "TRAILING_BYTES", "UNKNOWN_MESSAGE_TYPE", "WRONG_MESSAGE_LENGTH"),
        "BAD_SUMMARY",
    }
    assert tagged == 3


@pytest.mark.parametrize("widths", [Widths(), Widths(16, 64)], ids=["8/32", "16/64"])
def test_attribute_value_frames_are_shown_by_id_in_either_encoding(
    tmp_path: Path, widths: Widths
) -> None:
    frames = [
        frame(record, ETHERTYPE, ENCODINGS[encoding].group.to_bytes(6).hex(":"))
        for encoding, record in events(widths)
    ]
    path = capture(tmp_path / "events.pcap", frames)
    (tmp_path / "no_names").touch()
    bits = f"{widths.id}/{widths.bitmask}"
    rows = dissected(path, "--widths", bits, "--attributes", str(tmp_path / "no_names"))
    options = [f"stackcast_event.id:{widths.id}", f"stackcast_event.bitmask:{widths.bitmask}"]
    packets = tshark(path, *(word for option in options for word in ("-o", option)))
    seen: set[str] = set()
    for packet, row in zip(packets, rows, strict=True):
        seen.update(codes(row))
        assert faults(packet) == codes(row)
        if row["errors"]:
            continue
        shown = {f"id {id}": str(value) for id, value in pairs(packet).items()}
        assert shown == row["attributes"]
        payload = texts(packet, "stackcast.event.payload")
        assert "".join(payload).replace(":", "") == row.get("payload", "")
        assert texts(packet, "stackcast.event.encoding") == [row["encoding"]]
    assert seen >= {"TRUNCATED_EVENT", "EMPTY_EVENT", "ID_TWICE", "UNKNOWN_ATTRIBUTE"}


@pytest.mark.parametrize("encoding", ["id_pairs", "bitmask"])
def test_events_in_notifications_are_shown_once_wireshark_is_told_their_encoding(
    tmp_path: Path, encoding: str
) -> None:
    record = write_event({1: 5, 4: 77}, encoding, b"seen")
    path = capture(
        tmp_path / "events.pcap", [stacked(NARROW, [0x4001], build_packet(SESSION, 1, [record]))]
    )
    number = {"id_pairs": "id pairs", "bitmask": "bitmask"}[encoding]
    (packet,) = tshark(path, "-o", f"stackcast_moldudp64.messages:{number}")
    assert pairs(packet) == {1: 5, 4: 77} and faults(packet) == []
    assert texts(packet, "stackcast.event.payload") == [b"seen".hex(":")]


def test_a_request_names_what_is_missing_and_who_asks(tmp_path: Path) -> None:
    request = struct.pack(">10sQH", SESSION, 60 << 26, 0xFFFF) + b"h3"
    path = capture(tmp_path / "requests.pcap", [frame(datagram(request, 26402))])
    (packet,) = tshark(path)
    assert texts(packet, "stackcast.offset") == ["60"]
    assert texts(packet, "stackcast.count") == ["65535"]
    assert texts(packet, "stackcast.request.host") == ["h3"] and faults(packet) == []
    # The service of another deployment listens elsewhere.
    (packet,) = tshark(path, "-o", "stackcast_moldudp64.rerequest:9")
    assert texts(packet, "stackcast.request.host") == []


def test_frames_in_the_tunnel_are_shown_as_those_on_a_link(tmp_path: Path) -> None:
    inner = stacked(WIDE, [WIDE.label(1, 1 << 20)], build_packet(SESSION, 1, [b"S"]))
    tunnelled = [frame(datagram(inner, 7000)), frame(datagram(struct.pack(">Q", 12), 7000))]
    path = capture(tmp_path / "tunnel.pcap", tunnelled)
    first, second = tshark(path, "-d", "udp.port==7000,stackcast_tunnel")
    assert texts(first, "stackcast.label") == [f"tree {1 << 20}"]
    assert texts(second, "stackcast.tunnel.frames") == ["12"]
    way = Tunnel(TunnelEnd(0x0A090001, 1, 2), 0x0A090002, sends=True)
    (between_switches,) = tshark(capture(tmp_path / "islands.pcap", [in_tunnel(way, inner)]))
    assert texts(between_switches, "stackcast.label") == texts(first, "stackcast.label")


def state_messages(source: random.Random) -> Iterator[tuple[int, bytes]]:
    """Address and payload of datagrams of states: of every kind, and damaged ones."""
    for number in range(200):
        kind = MessageKind(number % 4)
        total = source.choice((1, 7, states.MOST_SEGMENTS)) if kind is MessageKind.PUBLISH else 0
        header = StateHeader(
            source.randint(0, states.MOST_VNF),
            source.randrange(states.UPDATES),
            total,
            source.randint(min(total, 1), total),
        )
        content = header.pack() + source.randbytes(number % 30 if total else 0)
        state = source.choice((1, 2047, states.MOST_STATE, source.randint(1, states.MOST_STATE)))
        yield states.group_of(kind, state), content
        yield states.group_of(kind, state), mutated(content, source)
    yield states.PROTO_ID << 24, content
    for size in (1400, 1401):
        yield states.group_of(MessageKind.PUBLISH, 9), StateHeader(3, 4, 1, 1).pack() + bytes(size)


def test_messages_of_states_are_shown_with_kind_and_state_of_their_address(tmp_path: Path) -> None:
    messages = list(state_messages(random.Random(8)))
    frames = []
    for address, content in messages:
        udp = UDP(sport=40000, dport=states.STATES_PORT) / Raw(content)
        target = ".".join(map(str, address.to_bytes(4)))
        frames.append(frame(bytes(IP(src="10.0.0.1", dst=target) / udp)))
    seen = 0
    packets = tshark(capture(tmp_path / "states.pcap", frames))
    for packet, (address, content) in zip(packets, messages, strict=True):
        try:
            kind, state = states.read_group(address)
            header, data = states.read_message(content)
        except StateError as error:
            assert faults(packet) == [error.what], error
            seen += 1
            continue
        assert faults(packet) == []
        (told,) = texts(packet, "stackcast.states.kind")
        assert told.upper().endswith(kind.name)
        named = {"state": state, **vars(header)}
        for name, value in named.items():
            assert texts(packet, f"stackcast.states.{name}") == [str(value)], name
        assert "".join(texts(packet, "stackcast.states.data")).replace(":", "") == data.hex()
    assert seen > 20


def test_signals_of_states_are_shown_wherever_segments_of_tcp_cut_them(tmp_path: Path) -> None:
    source = random.Random(9)
    signals = [
        Signal(
            kind,
            source.randint(0, states.MOST_VNF),
            source.randint(0, states.MOST_STATE),
            source.randrange(states.UPDATES),
            source.randint(0, 4095),
            source.randint(0, 4095),
            source.randbytes(source.choice((0, 5, 3000))),
        )
        for kind in SignalKind
        for _ in range(3)
    ]
    content = b"".join(signal.pack() for signal in signals)
    bad = bytearray(Signal(SignalKind.LEASE, 3).pack())
    bad[4] = 99
    content += bytes(bad)
    frames, at = [], 0
    while at < len(content):
        part = content[at : at + source.randint(1, 900)]
        tcp = TCP(sport=40000, dport=states.CONTROLLER_PORT, flags="A", seq=1 + at) / Raw(part)
        frames.append(frame(bytes(IP(src="10.0.0.1", dst="10.0.0.9") / tcp)))
        at += len(part)
    packets = tshark(capture(tmp_path / "signals.pcap", frames))
    shown = [tree for p in packets for tree in p.iter("proto") if tree.get("name") == SIGNAL]
    assert len(shown) == len(signals) + 1
    for tree, signal in zip(shown, signals, strict=False):
        assert texts(tree, "stackcast.signal.kind") == [signal.kind.name]
        for name in ("vnf", "state", "update", "segment", "count"):
            assert texts(tree, f"stackcast.signal.{name}") == [str(getattr(signal, name))]
        data = "".join(texts(tree, "stackcast.signal.data"))
        assert data.replace(":", "") == signal.data.hex()
    assert faults(shown[-1]) == ["BAD_MESSAGE"]
    with pytest.raises(StateError, match="BAD_MESSAGE"):
        SignalReader().feed(bytes(bad))


def test_filters_find_what_a_person_asks_for(tmp_path: Path, itch: Specification) -> None:
    path = capture(tmp_path / "frames.pcap", list(deliveries(itch))[:200])
    rows = dissected(path)
    wanted = [
        row["frame"]
        for row in rows
        if not row["errors"]
        and any(float(message.get("price", 0)) > 100 for message in row["messages"])
        and any(label.startswith("stop") for label in row["labels"])
    ]
    asked = 'itch.price > 100 and stackcast.label matches "^stop" and not _ws.malformed'
    found = tshark(path, "-Y", f"{asked} and not stackcast.fault")
    assert wanted and [int(texts(packet, "frame.number")[0]) for packet in found] == wanted


@pytest.mark.parametrize("kind", ["pcapng", "nsecpcap", "pcap"])
def test_captures_as_wireshark_writes_them_are_read(tmp_path: Path, kind: str) -> None:
    frames = [frame(datagram(build_packet(SESSION, n, [b"S" * n]))) for n in range(1, 9)]
    ours = capture(tmp_path / "ours.pcap", frames)
    theirs = tmp_path / "theirs"
    subprocess.run([str(EDITCAP), "-F", kind, str(ours), str(theirs)], check=True)
    written, read = (list(read_pcap(path.open("rb"))) for path in (ours, theirs))
    assert [record.frame for record in read] == frames
    assert [record.time for record in read] == pytest.approx([r.time for r in written], abs=1e-6)


def in_tags(source: random.Random, ethertype: int, content: bytes) -> tuple[int, bytes, list[int]]:
    """Up to three VLAN tags before a content: EtherType of the outermost, bytes, and VLANs."""
    vlans: list[int] = []
    for _ in range(source.randint(0, 3)):
        vlans.insert(0, source.randint(0, 4095))
        content = bytes(Dot1Q(vlan=vlans[0], type=ethertype)) + content
        ethertype = 0x8100
    return ethertype, content, vlans


@pytest.mark.skipif(not MERGECAP, reason="needs mergecap: apt-get install tshark")
def test_captures_of_several_links_and_with_tags_are_read_as_wireshark_reads_them(
    tmp_path: Path,
) -> None:
    source = random.Random(11)
    heads = {
        1: lambda kind: Ether(src="02:00:0a:40:00:01", dst="01:00:5e:36:0c:01", type=kind),
        113: lambda kind: CookedLinux(lladdrtype=1, lladdrlen=6, src=b"\2\0\n@\0\1", proto=kind),
        276: lambda kind: CookedLinuxV2(lladdrtype=1, lladdrlen=6, src=b"\2\0\n@\0\1", proto=kind),
        101: None,
    }
    parts, wanted = [], {}
    for number, (link_type, head) in enumerate(heads.items()):
        frames, vlans_of_frames = [], []
        for sequence in range(20):
            content = datagram(build_packet(SESSION, sequence << 13, [b"S" * 12]))
            ethertype, vlans = 0x0800, []
            if head is not None:
                if source.randint(0, 1):
                    ethertype, content = NARROW.ether_type, NARROW.pack([0x4001, 0xC002]) + content
                ethertype, content, vlans = in_tags(source, ethertype, content)
                content = bytes(head(ethertype)) + content
            frames.append(content)
            vlans_of_frames.append(vlans)
        parts.append(tmp_path / f"{link_type}.pcap")
        # The times of the files alternate, so that mergecap mixes their frames.
        times = write_pcap(parts[-1], frames, link_type, begin_ns=10**18 + number)
        wanted |= dict(zip(times, vlans_of_frames, strict=True))
    merged = tmp_path / "merged.pcapng"
    subprocess.run([str(MERGECAP), "-w", str(merged), *map(str, parts)], check=True)
    rows, packets = dissected(merged), tshark(merged)
    assert len(rows) == len(packets) == 80
    assert {row.get("link") for row in rows} == {None, "linux_sll", "linux_sll2", "raw_ip"}
    for row, packet in zip(rows, packets, strict=True):
        assert row["errors"] == [] == faults(packet)
        assert texts(packet, "stackcast.label") == row["labels"]
        assert texts(packet, "stackcast.sequence") == [str(row["sequence"])]
        vlans = [tag["id"] for tag in row.get("vlan", ())]
        assert texts(packet, "vlan.id") == list(map(str, vlans))
        (epoch,) = texts(packet, "frame.time_epoch")
        assert Decimal(epoch) * 10**9 == row["time_ns"]
        assert wanted[row["time_ns"]] == vlans
