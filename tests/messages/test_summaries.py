"""Summaries and requests: their bytes, and a digest that tells sets of notifications apart."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from stackcast.udfs.errors import MessageError
from stackcast.udfs.messages.reference import read_packet
from stackcast.udfs.messages.summaries import (
    GONE,
    Request,
    Summary,
    challenge,
    cookie_of,
    digest,
    is_summary,
    read_request,
    request,
    splitmix64,
    unpack,
)
from stackcast.udfs.stacks.dissect import dissect

pytestmark = pytest.mark.unit

M = (1 << 64) - 1
NUMBERS = st.integers(0, M)
SESSIONS = st.binary(min_size=10, max_size=10)


def plain_splitmix64(z: int) -> int:
    z = (z + 0x9E3779B97F4A7C15) & M
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
    return z ^ (z >> 31)


def plain_digest(notifications: list[tuple[int, int]]) -> int:
    return sum(plain_splitmix64((s + c) & M) for s, c in notifications) & M


@pytest.mark.parametrize(
    ("seed", "outputs"),
    [
        # The values by which implementations of the generator are known.
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]),
    ],
)
def test_splitmix64_gives_the_published_values(seed: int, outputs: list[int]):
    states = [(seed + n * 0x9E3779B97F4A7C15) & M for n in range(len(outputs))]
    assert splitmix64(np.array(states, np.uint64)).tolist() == outputs
    assert [plain_splitmix64(state) for state in states] == outputs


@given(st.lists(st.tuples(NUMBERS, st.integers(1, 8191)), max_size=40))
def test_the_digest_is_the_sum_of_the_plain_one_in_any_order(notifications: list[tuple[int, int]]):
    sequence = np.array([s for s, _ in notifications], np.uint64)
    count = np.array([c for _, c in notifications], np.int32)
    assert digest(sequence, count) == plain_digest(notifications)
    assert digest(sequence[::-1], count[::-1]) == plain_digest(notifications)


def test_a_notification_less_more_or_longer_is_another_digest():
    sequence = np.arange(5, dtype=np.uint64) << np.uint64(26)
    count = np.array([1, 2, 3, 1, 1])
    seen = {digest(sequence, count), digest(sequence[1:], count[1:]), 0}
    seen.add(digest(sequence, count + np.array([0, 0, 0, 0, 1])))
    seen.add(digest(sequence + np.uint64(1 << 13), count))
    assert len(seen) == 5


def test_a_summary_has_these_bytes():
    summary = Summary(b"8ZY63T0000", 60 << 26, 61 << 26, 2, (60 << 26) + 8192, 0x0123456789ABCDEF)
    assert summary.pack().hex(" ") == (
        "38 5a 59 36 33 54 30 30 30 30 00 00 00 00 f4 00 00 00 00 00 00 00 00 00 f0 00 00 00 "
        "00 00 00 00 00 00 00 02 00 00 00 00 f0 00 20 00 01 23 45 67 89 ab cd ef"
    )
    assert is_summary(summary.pack())


@given(SESSIONS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_a_summary_comes_back(session, a, b, notifications, last, digest):
    summary = Summary(session, min(a, b), max(a, b), notifications, last, digest)
    assert unpack(summary.pack()) == summary
    assert summary.gone == (notifications == GONE)


def test_a_client_of_moldudp64_takes_the_head_of_a_summary_for_a_heartbeat():
    packed = Summary(b"8ZY63T0000", 1, 5, 0, 0, 0).pack()
    assert read_packet(packed[:20]) == (b"8ZY63T0000", 5, [])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"session": b"short"}, "BAD_SESSION"),
        ({"digest": 1 << 64}, "BAD_SEQUENCE"),
        ({"last": -1}, "BAD_SEQUENCE"),
        ({"from_": 6}, "BAD_SUMMARY"),
    ],
)
def test_what_no_summary_can_say_is_refused(change: dict, what: str):
    with pytest.raises(MessageError) as refused:
        replace(Summary(b"8ZY63T0000", 1, 5, 0, 0, 0), **change).pack()
    assert refused.value.what == what


@given(st.binary(max_size=80) | st.binary(min_size=72, max_size=72))
def test_what_is_no_summary_is_told(datagram: bytes):
    try:
        summary = unpack(datagram)
    except MessageError as error:
        assert error.what == "BAD_SUMMARY"
    else:
        assert len(datagram) in (52, 72)
        assert summary.pack() == datagram[:52]


def test_a_range_that_ends_before_it_begins_is_no_summary():
    packed = bytearray(Summary(b"8ZY63T0000", 1, 5, 0, 0, 0).pack())
    packed[10:18] = bytes(8)
    with pytest.raises(MessageError, match="BAD_SUMMARY"):
        unpack(bytes(packed))
    packed[10:20] = (5).to_bytes(8) + b"\0\1"
    with pytest.raises(MessageError, match="BAD_SUMMARY"):
        unpack(bytes(packed))


NAMES = st.text(st.characters(categories=["L", "N", "P"]), max_size=60)


@given(SESSIONS, NUMBERS, st.integers(0, 65535), NAMES)
def test_a_request_comes_back(session: bytes, sequence: int, count: int, name: str):
    packed = request(session, sequence, count, name)
    assert len(packed) == 20 + len(name.encode())
    assert read_request(packed) == Request(session, sequence, count, name)


def test_a_request_without_a_name_is_moldudp64s():
    assert request(b"8ZY63T0000", 60 << 26, 9).hex(" ") == (
        "38 5a 59 36 33 54 30 30 30 30 00 00 00 00 f0 00 00 00 00 09"
    )


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((b"8ZY63T0000", 1 << 64, 1), "BAD_SEQUENCE"),
        ((b"8ZY63T00001", 1, 1), "BAD_SESSION"),
        ((b"8ZY63T0000", 1, 65536), "BAD_REQUEST"),
        ((b"8ZY63T0000", 1, -1), "BAD_REQUEST"),
        ((b"8ZY63T0000", 1, 1, "é" * 128), "BAD_REQUEST"),
    ],
)
def test_what_no_request_can_ask_is_refused(arguments: tuple, what: str):
    with pytest.raises(MessageError) as refused:
        request(*arguments)
    assert refused.value.what == what


@pytest.mark.parametrize("tail", [b"\xff", b"h1\n", b"x" * 256], ids=["utf8", "line", "long"])
def test_a_request_with_no_name_behind_it_is_told(tail: bytes):
    with pytest.raises(MessageError, match="BAD_REQUEST"):
        read_request(request(b"8ZY63T0000", 1, 1) + tail)
    with pytest.raises(MessageError, match="BAD_REQUEST"):
        read_request(b"8ZY63T0000")


def hex_dumps(text: str) -> list[bytes]:
    """Bytes of each block of lines ``    0010  40 01 ...`` of a document."""
    blocks = re.findall(r"(?:^    [0-9a-f]{4}  [0-9a-f ]+\n)+", text, re.MULTILINE)
    return [bytes.fromhex("".join(re.sub(r"^ +\S+ +", "", b, flags=re.M).split())) for b in blocks]


def test_the_bytes_in_the_documents_are_those_of_the_example():
    folder = ROOT / "docs" / "reference"
    text = (folder / "sessions-and-summaries.md").read_text()
    summary, tag = hex_dumps(text)
    (asked,) = hex_dumps((folder / "re-request-protocol.md").read_text())
    (frame,) = hex_dumps((folder / "frame-format.md").read_text())
    sent = dissect(frame)
    sequence, count = sent.sequence, sent.count
    assert (
        summary
        == Summary(
            sent.session, 60 << 26, 62 << 26, 1, sequence, plain_splitmix64(sequence + count)
        ).pack()
    )
    of_host = blake2b(b"host h3", key=bytes(range(32)), digest_size=32)
    assert of_host.hexdigest() in text.replace(" ", "")
    of_session = blake2b(b"session " + sent.session, key=of_host.digest(), digest_size=32).digest()
    assert tag[:4] == (7).to_bytes(4)
    assert tag[4:] == blake2b(summary + tag[:4], key=of_session, digest_size=16).digest()
    assert read_request(asked) == Request(sent.session, sequence, 65535)
    assert f"`{summary[44:].hex(' ')}`" in text


def test_whoever_asks_without_a_cookie_is_sent_less_than_twice_what_it_sent():
    asked = request(b"8ZY63T0000", 0, name="h3")
    assert len(challenge(read_request(asked), bytes(16))) <= 2 * len(asked)


@given(cookie=st.binary(min_size=16, max_size=16), name=st.sampled_from(["", "h3", "x" * 255]))
def test_a_request_comes_back_with_its_cookie(cookie: bytes, name: str):
    asked = read_request(request(b"8ZY63T0000", 7, 9, name, cookie))
    assert asked == Request(b"8ZY63T0000", 7, 9, name, cookie)
    told = challenge(asked, cookie)
    assert cookie_of(told) == cookie
    # No receiver takes it for a summary, and no client of MoldUDP64 for more than a heartbeat.
    assert not is_summary(told) and read_packet(told[:20])[2] == []
    assert cookie_of(told[:-1]) == cookie_of(asked.session) == b""
