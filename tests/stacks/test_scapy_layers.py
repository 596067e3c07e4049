"""The layers for scapy read the frames of the product, and build the same bytes again."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap
from scapy_layers import (
    EVENT_LAYERS,
    Cookie,
    HeaderStack,
    MoldUDP64,
    Request,
    RequestCookie,
    StateMessage,
    Summary,
    SummaryTag,
    VirtualTrees,
)

from stackcast.udfs.errors import StackError
from stackcast.udfs.messages import summaries
from stackcast.udfs.messages.attributes.reference import write_event
from stackcast.udfs.messages.reference import END_OF_SESSION_COUNT, HEADER, build_packet
from stackcast.udfs.network.encodings import ALL
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.stacks.frame import FrameTemplates, build_frames, header_template
from stackcast.udfs.states.frames import pack_frame
from stackcast.udfs.states.messages import MessageKind, StateHeader, group_of

pytestmark = pytest.mark.unit

MAC, ADDRESS, GROUP, PORT = 0x020000000001, 0x0A000001, 0xEF9F0203, 26400
SESSION = b"SESSION001"
MESSAGES = st.lists(st.binary(max_size=60), min_size=1, max_size=9)
NUMBERS = st.integers(0, 2**64 - 1)
VALUES = st.dictionaries(st.integers(1, 31), st.integers(0, 2**32 - 1), min_size=1)


def _typed(bits: int) -> Callable[[int], Mapping[str, int]]:
    return lambda label: {"type": label >> bits, "id": label & (1 << bits) - 1}


def _at_device(bits: int, name: str) -> Callable[[int], Mapping[str, int]]:
    return lambda label: {"device": label >> bits, name: label & (1 << bits) - 1}


def _group(label: int) -> Mapping[str, int]:
    return {"device": label >> 16, "subset": label >> 8 & 0xFF, "ports": label & 0xFF}


def _of_bitmaps(label: int) -> Mapping[str, int]:
    if label >> 15 == 0:
        return {"link": label}
    if label >> 14 == 2:
        return {"device": label & 0x3FFF}
    return {"block": label >> 11 & 7, "ports": label & 0x7FF}


#: By EtherType, the fields of a label as docs/reference/frame-format.md describe them.
FIELDS: Mapping[int, Callable[[int], Mapping[str, int]]] = {
    0x9999: _typed(14),
    0x999A: _typed(30),
    0x99A0: _at_device(8, "port"),
    0x99A1: _at_device(16, "ports"),
    0x99A2: _group,
    0x99A3: lambda n: {"device": n >> 24, "strategy": n >> 16 & 0xFF, "value": n & 0xFFFF},
    0x99A4: _at_device(8, "port"),
    0x99A8: lambda label: {"link": label},
    0x99A9: lambda label: {"link": label},
    0x99AA: lambda label: {"tree": label},
    0x99AB: _typed(14),
    0x99AC: _of_bitmaps,
    0x99B0: _at_device(16, "port"),
    0x99B2: _group,
    0x99B4: _at_device(16, "port"),
    0x99B8: lambda label: {"link": label},
}


#: Bytes of labels that are often valid: types, strategies, small and large ids, masks.
BYTES = st.sampled_from([0, 1, 2, 3, 0x40, 0x7F, 0x80, 0xC0, 0xFF])


def valid_labels(form: LabelFormat) -> st.SearchStrategy[list[int]]:
    """Return lists of 1 to 64 labels that the format accepts."""

    def is_valid(label: int) -> bool:
        try:
            form.check(label)
        except StackError:
            return False
        return True

    label = st.lists(BYTES, min_size=form.bits // 8, max_size=form.bits // 8)
    numbers = st.lists(label.map(lambda octets: int.from_bytes(bytes(octets))), max_size=64)
    return numbers.map(lambda drawn: [number for number in drawn if is_valid(number)]).filter(bool)


def frame_of(
    messages: Sequence[bytes], labels: Sequence[int], form: LabelFormat, offset: int
) -> bytes:
    """Return a frame with these messages, as the stream builds it."""
    lengths = np.array([len(message) for message in messages], np.int32)

    class Positions:
        packet = np.zeros(len(messages), np.int32)
        index = np.arange(len(messages), dtype=np.int32)
        start = (np.cumsum(lengths) - lengths).astype(np.int64)
        length = lengths

    template = header_template(labels, MAC, ADDRESS, GROUP, PORT, label_format=form)
    frames = build_frames(
        FrameTemplates.build([[], [template]]),
        np.ones(len(messages), np.int32),
        Positions(),
        np.frombuffer(b"".join(messages), np.uint8),
        np.array([offset], np.int64),
        np.frombuffer(SESSION, np.uint8).reshape(1, 10),
        9_000,
    )
    return frames.data.tobytes()


def rebuilt(packet: Packet) -> bytes:
    """Build a packet from its fields alone; scapy computes lengths, numbers and checksums again."""
    packet = packet.copy()
    packet.clear_cache()
    layer = packet
    while layer:
        for name in {"count", "len", "chksum"} & layer.fields.keys():
            computed = not isinstance(layer, Request) and layer.fields[name]
            if computed and computed != END_OF_SESSION_COUNT:
                layer.delfieldval(name)
        for message in getattr(layer, "messages", ()):
            message.delfieldval("length")
        layer = layer.payload
    return bytes(packet)


def datagram(payload: bytes, source: int = PORT, target: int = PORT) -> bytes:
    return bytes(
        Ether(src="02:00:00:00:00:01", dst="01:00:5e:1f:02:03")
        / IP(src="10.0.0.1", dst="239.159.2.3", flags="DF")
        / UDP(sport=source, dport=target)
        / Raw(payload)
    )


def test_every_encoding_has_a_layer():
    assert {form.ether_type for form in ALL} == FIELDS.keys()


@pytest.mark.parametrize("form", ALL, ids=lambda form: f"{form.encoding}-{form.bits}")
@examples(30)
@given(data=st.data(), messages=MESSAGES, offset=st.integers(0, 2**38 - 1))
def test_a_frame_of_the_stream_is_read_and_built_again(form, data, messages, offset):
    labels = data.draw(valid_labels(form))
    frame = frame_of(messages, labels, form, offset)
    packet = Ether(frame)
    stack = packet.payload
    assert isinstance(stack, HeaderStack) and stack.count == len(labels)
    for label, layer in zip(labels, stack.labels, strict=True):
        expected = FIELDS[form.ether_type](label)
        assert {name: layer.getfieldval(name) for name in expected} == expected
        assert bytes(layer) == label.to_bytes(form.bits // 8)
    mold = packet[MoldUDP64]
    assert [message.data for message in mold.messages] == messages
    assert mold.session == SESSION and mold.position == (offset, 0)
    assert rebuilt(packet) == frame


@examples(60)
@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.booleans())
def test_a_summary_is_read_with_its_tag(start, until, notifications, digest, keyed):
    summary = summaries.Summary(SESSION, min(start, until), max(start, until), 5, 9, digest)
    content = summary.pack()
    if keyed:
        content += (7).to_bytes(4) + bytes(range(16))
    frame = datagram(content, target=26401)
    packet = Ether(frame)
    layer = packet[Summary]
    assert packet[MoldUDP64].sequence == summary.until
    assert (layer.start, layer.notifications, layer.last, layer.digest) == (
        *(summary.from_, summary.notifications, summary.last, summary.digest),
    )
    assert (SummaryTag in packet) == keyed
    if keyed:
        assert (packet[SummaryTag].key, packet[SummaryTag].tag) == (7, bytes(range(16)))
    assert rebuilt(packet) == frame


@examples(60)
@given(NUMBERS, st.integers(0, 65_535), st.text("abc-", max_size=255), st.binary(max_size=16))
def test_a_request_is_read_with_its_cookie(sequence, count, host, start):
    cookie = start.ljust(16, b"\1") if start else b""
    content = summaries.request(SESSION, sequence, count, host, cookie)
    frame = datagram(content, 40_000, 26402)
    packet = Ether(frame)
    request = packet[Request]
    assert (request.session, request.sequence, request.count) == (SESSION, sequence, count)
    assert request.host.decode() == host
    assert (packet[RequestCookie].cookie if cookie else b"") == cookie
    assert rebuilt(packet) == frame


def test_answers_of_the_service_are_read():
    request = summaries.Request(SESSION, 60 << 26, 5)
    challenge = datagram(summaries.challenge(request, bytes(range(16))), 26402, 40_000)
    assert Ether(challenge)[Cookie].cookie == bytes(range(16))
    answer = datagram(build_packet(SESSION, 60 << 26, [b"one", b"two"]), 26402, 40_000)
    assert [message.data for message in Ether(answer)[MoldUDP64].messages] == [b"one", b"two"]
    for frame in (challenge, answer):
        assert rebuilt(Ether(frame)) == frame


@pytest.mark.parametrize("count", [0, END_OF_SESSION_COUNT])
def test_heartbeats_and_ends_of_session_have_no_messages(count):
    frame = datagram(HEADER.pack(SESSION, 9, count))
    packet = Ether(frame)
    assert packet[MoldUDP64].count == count and packet[MoldUDP64].messages == []
    assert rebuilt(packet) == frame


@pytest.mark.parametrize("encoding", EVENT_LAYERS)
@examples(60)
@given(values=VALUES, payload=st.binary(max_size=30))
def test_an_event_is_read_and_built_again(encoding, values, payload):
    address = {"id_pairs": "03:53:43:00:00:01", "bitmask": "03:53:43:00:00:02"}[encoding]
    head = bytes.fromhex(address.replace(":", "")) + MAC.to_bytes(6) + b"\x90\x01"
    frame = head + write_event(values, encoding) + payload
    packet = Ether(frame)
    layer = packet[EVENT_LAYERS[encoding]]
    assert layer.by_id == values and bytes(layer.payload) == payload
    assert rebuilt(packet) == frame
    built = Ether(src=packet.src, dst=address) / EVENT_LAYERS[encoding].of(values) / payload
    assert bytes(built) == frame


@examples(30)
@given(st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFF), st.integers(1, 4095), st.binary())
def test_a_message_of_replicated_state_is_read(vnf, update, total, segment):
    header = StateHeader(vnf, update, total, 1)
    frame = pack_frame(ADDRESS, group_of(MessageKind.PUBLISH, 7), header.pack() + segment)
    packet = Ether(frame)
    layer = packet[StateMessage]
    assert (layer.vnf, layer.update, layer.total, layer.segment) == (vnf, update, total, 1)
    assert bytes(layer.payload) == segment and rebuilt(packet) == frame


def test_a_frame_in_a_tunnel_between_switches_is_read():
    inner = frame_of([b"message"], [NARROW.label(1, 7)], NARROW, 5)
    packet = Ether(datagram(inner, 26403, 26403))
    assert packet[UDP].payload == Ether(inner)
    assert packet[VirtualTrees].labels[0].id == 7


def test_the_program_of_the_document_prints_what_the_document_shows(tmp_path, monkeypatch, capsys):
    """The frame is the example of the document."""
    text = (ROOT / "docs/reference/frame-format.md").read_text()
    dump = text.partition("## Example\n")[2].partition("\n| bytes")[0]
    lines = re.findall(r"^    [0-9a-f]{4}  (.+)$", dump, re.MULTILINE)
    frame = bytes.fromhex(" ".join(lines))
    guide = (ROOT / "docs/how-to/dissect-frames.md").read_text()
    section = guide.partition("## Use scapy\n")[2].partition("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    (output,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    wrpcap(str(tmp_path / "frames.pcap"), [Ether(frame)])
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert capsys.readouterr().out == output
