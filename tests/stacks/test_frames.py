"""Frames: the compiled builder against a plain one, and against scapy."""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from stackcast.udfs.errors import StackError
from stackcast.udfs.network.labels import NARROW, WIDE
from stackcast.udfs.stacks.frame import FrameTemplates, build_frames, header_template

pytestmark = pytest.mark.unit

MAC = 0x02_00_00_00_00_01
ADDRESS = 0x0A000001
GROUP = 0xEF9F0203
PORT = 26400
LABELS = 6  # of a stack, at most
MESSAGE = 40  # bytes, at most
SMALLEST_MTU = 2 + 4 * LABELS + 48 + 2 + MESSAGE  # holds any message under any stack


@dataclass
class Positions:
    packet: np.ndarray
    index: np.ndarray
    start: np.ndarray
    length: np.ndarray


def width(labels) -> int:
    """Bytes of a label of these; wide ones have bits that narrow ones lack."""
    return 4 if max(labels) > 0xFFFF else 2


def template(*labels: int) -> bytes:
    form = {2: NARROW, 4: WIDE}[width(labels)]
    return header_template(labels, MAC, ADDRESS, GROUP, PORT, label_format=form)


def internet_checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[i : i + 2]) for i in range(0, len(data), 2))
    while total > 0xFFFF:
        total = total % 0x10000 + total // 0x10000
    return 0xFFFF - total


def plain_frame(labels, session: bytes, sequence: int, messages: list[bytes]) -> bytes:
    """The frame of section 3 of the design, built by the book."""
    mold = session + struct.pack(">QH", sequence, len(messages))
    mold += b"".join(struct.pack(">H", len(m)) + m for m in messages)
    udp = struct.pack(">HHHH", PORT, PORT, 8 + len(mold), 0)
    pseudo = struct.pack(">IIBBH", ADDRESS, GROUP, 0, 17, len(udp) + len(mold))
    udp = udp[:6] + struct.pack(">H", internet_checksum(pseudo + udp + mold) or 0xFFFF)
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 28 + len(mold), 0, 0x4000, 64, 17, 0, ADDRESS, GROUP)
    ip = ip[:10] + struct.pack(">H", internet_checksum(ip)) + ip[12:]
    size = width(labels)
    ethernet = bytes.fromhex("01005e1f0203") + MAC.to_bytes(6)
    ethernet += {2: b"\x99\x99", 4: b"\x99\x9a"}[size]
    stack = len(labels).to_bytes(2) + b"".join(label.to_bytes(size) for label in labels)
    return ethernet + stack + ip + udp + mold


def plain_frames(stacks, packets, offsets, sessions, mtu):
    """(leaf, packet, number of messages, frame) in the promised order."""
    built = []
    for p, messages in enumerate(packets):
        groups: list[tuple[int, list[int]]] = []
        for i, (leaf, message) in enumerate(messages):
            if leaf == 0 or not stacks[leaf]:
                continue
            used = 2 + max(width(labels) * len(labels) for labels in stacks[leaf]) + 48
            mine = [members for at, members in groups if at == leaf][-1:]
            size = sum(2 + len(messages[j][1]) for j in mine[0]) if mine else 0
            if mine and used + size + 2 + len(message) <= mtu:
                mine[0].append(i)
            else:
                groups.append((leaf, [i]))
        for leaf, members in groups:
            sequence = (offsets[p] << 26) | (members[0] << 13)
            content = [messages[i][1] for i in members]
            for labels in stacks[leaf]:
                frame = plain_frame(labels, sessions[p], sequence, content)
                built.append((leaf, p, len(members), frame))
    return built


def arrays(packets):
    """What the decoder would say about packets of (leaf, message) pairs."""
    data, packet, index, start, length, leaf = bytearray(), [], [], [], [], []
    for p, messages in enumerate(packets):
        data += b"\xee" * 20
        for i, (at, message) in enumerate(messages):
            data += len(message).to_bytes(2)
            packet.append(p)
            index.append(i)
            start.append(len(data))
            length.append(len(message))
            leaf.append(at)
            data += message
    positions = Positions(
        np.array(packet, np.int32),
        np.array(index, np.int32),
        np.array(start, np.int64),
        np.array(length, np.int32),
    )
    return np.array(leaf, np.int32), positions, np.frombuffer(bytes(data), np.uint8)


def run(stacks, packets, offsets, sessions, mtu):
    templates = FrameTemplates.build([[template(*labels) for labels in leaf] for leaf in stacks])
    leaf, positions, data = arrays(packets)
    session_array = np.frombuffer(b"".join(sessions), np.uint8).reshape(-1, 10)
    frames = build_frames(
        templates, leaf, positions, data, np.array(offsets, np.int64), session_array, mtu
    )
    whole = frames.data.tobytes()
    return frames, [whole[a:b] for a, b in zip(frames.offsets, frames.offsets[1:], strict=False)]


def leaves_of(bits):
    """Stacks of each leaf, all with labels of this width."""
    kind = st.sampled_from([1, 2, 3])
    number = st.integers(1, (1 << bits - 2) - 1)
    label = st.builds(lambda kind, number: kind << bits - 2 | number, kind, number)
    stack = st.lists(label, min_size=1, max_size=LABELS).map(tuple)
    return st.lists(st.lists(stack, max_size=3), min_size=1, max_size=5)


leaves = st.sampled_from([16, 32]).flatmap(leaves_of)


@st.composite
def deliveries(draw):
    stacks = [[], *draw(leaves)]
    message = st.tuples(st.integers(0, len(stacks) - 1), st.binary(min_size=1, max_size=MESSAGE))
    packets = draw(st.lists(st.lists(message, max_size=12), min_size=1, max_size=6))
    offsets = draw(
        st.lists(st.integers(0, 2**38 - 1), min_size=len(packets), max_size=len(packets))
    )
    session = st.binary(min_size=10, max_size=10)
    sessions = draw(st.lists(session, min_size=len(packets), max_size=len(packets)))
    return stacks, packets, offsets, sessions, draw(st.integers(SMALLEST_MTU, 300))


@examples(150)
@given(deliveries())
def test_frames_are_those_of_a_plain_builder(delivery):
    stacks, packets, offsets, sessions, mtu = delivery
    frames, built = run(*delivery)
    expected = plain_frames(stacks, packets, offsets, sessions, mtu)
    assert built == [frame for *_, frame in expected]
    assert frames.leaf.tolist() == [leaf for leaf, *_ in expected]
    assert frames.packet.tolist() == [packet for _, packet, *_ in expected]
    assert frames.messages.tolist() == [count for _, _, count, _ in expected]
    assert all(len(frame) - 14 <= mtu for frame in built)
    assert len(frames) == len(built)
    pooled = [header for leaf in stacks for header in leaf]
    for number, frame in zip(frames.template.tolist(), built, strict=True):
        labels = pooled[number]
        assert frame.startswith(template(*labels)[: 16 + width(labels) * len(labels)])


@examples(40)
@given(deliveries())
def test_checksums_and_lengths_are_those_of_scapy(delivery):
    for frame in run(*delivery)[1]:
        entries = int.from_bytes(frame[14:16])
        size = {b"\x99\x99": 2, b"\x99\x9a": 4}[frame[12:14]]
        plain = Ether(frame[:12] + b"\x08\x00" + frame[16 + size * entries :])
        again = plain.copy()
        for layer, names in ((IP, ("len", "chksum")), (UDP, ("len", "chksum"))):
            for name in names:
                delattr(again[layer], name)
        assert bytes(again) == bytes(plain)
        assert plain[IP].flags == "DF" and plain[IP].ttl == 64 and plain[IP].dst == "239.159.2.3"
        assert plain.dst == "01:00:5e:1f:02:03"


def test_messages_of_nobody_are_not_sent():
    frames, built = run([[], [(0x4001,)]], [[(0, b"A"), (0, b"B")]], [7], [b"S" * 10], 1500)
    assert built == [] and frames.offsets.tolist() == [0] and len(frames) == 0


def test_no_messages_give_no_frames():
    assert run([[]], [[]], [0], [b"S" * 10], 1500)[1] == []


def test_all_packets_may_share_one_session():
    packets = [[(1, b"A")], [(1, b"B")]]
    stacks = [[], [(0x8001,)]]
    assert (
        run(stacks, packets, [1, 2], [b"SESSION   "], 1500)[1]
        == run(stacks, packets, [1, 2], [b"SESSION   "] * 2, 1500)[1]
    )


def test_sequence_numbers_of_frames_never_overlap():
    packets = [[(i % 3 + 1, bytes([65 + i])) for i in range(9)] for _ in range(3)]
    stacks = [[], [(0x4001,)], [(0x8001,)], [(0xC001,)]]
    frames, _ = run(stacks, packets, [10, 11, 12], [b"S" * 10], 90)
    used = [
        number
        for first, count in zip(frames.sequence.tolist(), frames.messages.tolist(), strict=True)
        for number in range(first, first + count)
    ]
    assert len(used) == 27 == len(set(used))


def test_a_udp_checksum_of_zero_is_written_as_ffff():
    # RFC 768: zero would say that there is none. A message of two bytes that brings the sum there.
    for value in range(0x10000):
        message = value.to_bytes(2)
        frame = plain_frame((0x4001,), b"S" * 10, 0, [message])
        if frame[14 + 4 + 26 : 14 + 4 + 28] == b"\xff\xff":
            break
    assert run([[], [(0x4001,)]], [[(1, message)]], [0], [b"S" * 10], 1500)[1] == [frame]
    assert frame[44:46] == b"\xff\xff"


def test_an_mtu_too_small_for_one_message_says_what_is_needed():
    with pytest.raises(StackError) as error:
        run([[], [(0x4001,)]], [[(1, b"x" * 50)]], [0], [b"S" * 10], 100)
    assert error.value.code == "STACK.MTU_TOO_SMALL"
    assert error.value.needed == 4 + 48 + 52
    _, (frame,) = run([[], [(0x4001,)]], [[(1, b"x" * 50)]], [0], [b"S" * 10], 104)
    assert len(frame) == 14 + 104


def test_wide_labels_take_twice_the_room():
    arguments = [[], [(0x40000001,) * 3]], [[(1, b"x" * 50)]], [0], [b"S" * 10]
    with pytest.raises(StackError, match="MTU_TOO_SMALL") as error:
        run(*arguments, 113)
    assert error.value.needed == 2 + 3 * 4 + 48 + 52
    _, (frame,) = run(*arguments, 114)
    assert len(frame) == 14 + 114


def test_leaves_without_templates_of_this_version_are_refused():
    with pytest.raises(StackError, match="UNKNOWN_LEAF"):
        run([[], [(0x4001,)]], [[(2, b"x")]], [0], [b"S" * 10], 1500)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"labels": ()}, "STACK.EMPTY_STACK"),
        ({"labels": (0x4001,) * 65}, "STACK.TOO_MANY_LABELS"),
        ({"labels": (0x0001,)}, "STACK.BAD_LABEL"),
        ({"labels": (0x14001,)}, "STACK.BAD_LABEL"),
        ({"labels": (0x4001,), "label_format": WIDE}, "STACK.BAD_LABEL"),
        ({"labels": (0x1_4000_0001,), "label_format": WIDE}, "STACK.BAD_LABEL"),
        ({"labels": (0x40000001,) * 65, "label_format": WIDE}, "STACK.TOO_MANY_LABELS"),
        ({"group_ipv4": ADDRESS}, "STACK.NOT_MULTICAST"),
    ],
)
def test_headers_that_no_switch_could_use_are_refused(change, code):
    arguments = {
        "labels": (0x4001,),
        "source_mac": MAC,
        "source_ipv4": ADDRESS,
        "group_ipv4": GROUP,
        "port": PORT,
    }
    with pytest.raises(StackError) as error:
        header_template(**(arguments | change))
    assert error.value.code == code


@examples(50)
@given(leaves, st.randoms(use_true_random=False))
def test_templates_may_be_worked_out_in_any_order(stacks, seed):
    made = [[], *([template(*labels) for labels in leaf] for leaf in stacks)]
    at_once = FrameTemplates.build(made)
    by_and_by = FrameTemplates.build([[], *[None] * len(stacks)])
    waiting = list(range(1, len(made)))
    seed.shuffle(waiting)
    while waiting:
        assert not by_and_by.complete
        assert by_and_by.lacking(np.arange(len(made), dtype=np.int32)) == sorted(waiting)
        some = [waiting.pop() for _ in range(min(len(waiting), seed.choice([1, 2])))]
        by_and_by = by_and_by.with_leaves({leaf: made[leaf] for leaf in some})
    assert at_once.complete and by_and_by.complete
    everyone = [[(leaf, b"message %d" % leaf) for leaf in range(len(made))]]
    sent = []
    for templates in (at_once, by_and_by):
        assert templates.longest.tolist() == [max(map(len, t), default=0) for t in made]
        leaf, positions, data = arrays(everyone)
        session = np.zeros((1, 10), np.uint8)
        frames = build_frames(templates, leaf, positions, data, np.zeros(1, np.int64), session, 999)
        assert frames.leaf.tolist() == templates.leaf[frames.template].tolist()
        sent.append(frames.data.tobytes())
    assert sent[0] == sent[1]


def test_a_leaf_that_is_not_worked_out_is_never_taken_for_one_without_receivers():
    templates = FrameTemplates.build([[], None, [template(0x4001)]])
    leaf, positions, data = arrays([[(2, b"known"), (1, b"unknown")]])
    with pytest.raises(StackError, match=r"UNKNOWN_LEAF.*leaf 1"):
        build_frames(
            templates,
            leaf,
            positions,
            data,
            np.zeros(1, np.int64),
            np.zeros((1, 10), np.uint8),
            999,
        )


def test_templates_travel_to_workers():
    templates = FrameTemplates.build([[], [template(0x4001), template(0x8001, 0xC002)]])
    copy = pickle.loads(pickle.dumps(templates))
    assert copy.longest.tolist() == [0, 14 + 2 + 4 + 28]
    assert copy.data.tobytes() == template(0x4001) + template(0x8001, 0xC002)
