"""Only who has a host's key can make a summary that the host believes.

Oracle: the rule of docs/reference/frame-format.md, written down here by itself with hashlib.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lossy_network import notification, summary_bytes

from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.recovery.receiver import Receiver, ReceiverOptions, State
from stackcast.udfs.messages.summaries import Summary, authentication, is_summary, unpack
from stackcast.udfs.messages.summary_keys import HostKeys, SummaryKey, SummarySigner, read_keys

pytestmark = pytest.mark.unit

MASTER = SummaryKey(7, bytes(range(32)))
OTHER = SummaryKey(8, bytes(range(32, 64)))
SESSION = b"8ZY63T0000"
H3 = MASTER.for_host("h3")
SUMMARIES = st.builds(
    lambda session, a, b, rest: Summary(session, min(a, b), max(a, b), *rest).pack(),
    st.binary(min_size=10, max_size=10),
    *[st.integers(0, (1 << 64) - 1)] * 2,
    st.tuples(*[st.integers(0, (1 << 64) - 1)] * 3),
)


def by_the_rule(master: bytes, number: int, host: str, summary: bytes) -> bytes:
    """docs/reference/frame-format.md, Authenticated summaries."""
    of_host = blake2b(b"host " + host.encode(), key=master, digest_size=32).digest()
    of_session = blake2b(b"session " + summary[:10], key=of_host, digest_size=32).digest()
    head = summary + number.to_bytes(4)
    return head + blake2b(head, key=of_session, digest_size=16).digest()


def test_a_tag_has_these_bytes():
    signed = H3.sign(Summary(SESSION, 60 << 26, 62 << 26, 1, 60 << 26, 0xABC4AE436CF7E698).pack())
    assert signed[52:].hex(" ") == ("00 00 00 07 bb ee 66 88 1a 9b 17 a7 e9 5a 74 91 43 3d 16 73")
    assert len(signed) == 72


@given(st.binary(min_size=32, max_size=32), st.integers(0, (1 << 32) - 1), st.text(), SUMMARIES)
def test_tags_are_those_of_the_rule(secret: bytes, number: int, host: str, summary: bytes):
    key = SummaryKey(number, secret).for_host(host)
    signed = key.sign(summary)
    assert signed == by_the_rule(secret, number, host, summary)
    assert HostKeys([OTHER, key] if number != 8 else [key]).proves(signed)
    # Who has no key reads it all the same.
    assert is_summary(signed) and unpack(signed) == unpack(summary)
    assert authentication(signed) == (number, signed[56:]) and authentication(summary) is None


@given(SUMMARIES, st.integers(0, 72 * 8 - 1))
def test_no_changed_bit_is_accepted(summary: bytes, bit: int):
    # Even where the other id names the same key.
    keys = HostKeys(
        SummaryKey(number, H3.secret) for number in (7, *(7 ^ 1 << n for n in range(32)))
    )
    signed = bytearray(H3.sign(summary))
    assert keys.proves(bytes(signed))
    signed[bit // 8] ^= 1 << bit % 8
    assert not keys.proves(bytes(signed))


@given(st.binary(max_size=80))
def test_nothing_else_is_accepted(datagram: bytes):
    assert not HostKeys([H3]).proves(datagram)
    signed = H3.sign(Summary(SESSION, 0, 1, 0, 0, 0).pack())
    assert not HostKeys([H3]).proves(signed[: len(datagram)] if len(datagram) < 72 else datagram)
    assert not HostKeys([H3]).proves(signed + datagram[:1] * 2 + b"x")


@given(SUMMARIES)
def test_a_summary_is_for_one_host_one_session_and_one_key(summary: bytes):
    signed = H3.sign(summary)
    for key in (MASTER, MASTER.for_host("h4"), OTHER.for_host("h3"), replace(H3, id=8)):
        assert not HostKeys([key]).proves(signed)
    # A session's tag says nothing of another session with the same numbers.
    other = bytes([summary[0] ^ 1]) + summary[1:]
    assert not HostKeys([H3]).proves(other + signed[52:])


@given(
    st.lists(st.sampled_from(["h1", "h2", "h3", "h10"]), min_size=1, unique=True),
    st.lists(SUMMARIES, max_size=3),
    st.data(),
)
def test_many_are_signed_as_one_is(hosts: list[str], summaries: list[bytes], data: st.DataObject):
    signer = SummarySigner(MASTER, hosts)
    for summary in summaries:
        signer = data.draw(st.sampled_from([signer, pickle.loads(pickle.dumps(signer))]))
        places = data.draw(st.lists(st.integers(0, len(hosts) - 1), unique=True))
        rows = np.tile(np.frombuffer(summary, np.uint8), (len(places), 1))
        expected = [by_the_rule(MASTER.secret, 7, hosts[place], summary) for place in places]
        assert [row.tobytes() for row in signer.sign(rows, places)] == expected


def test_the_master_key_leaves_the_driver_in_nothing_and_no_key_is_shown():
    carried = pickle.dumps(SummarySigner(MASTER, ["h3"]))
    assert H3.secret in carried and MASTER.secret not in carried
    assert repr(MASTER) == "SummaryKey(id=7)" == str(H3)


def test_a_file_has_a_line_a_key_the_first_of_which_signs():
    text = (
        f"# keys\n\n 7 {bytes(range(32)).hex()}  # of May\n0008\t{OTHER.secret.hex().upper()}\r\n"
    )
    assert read_keys(text, "f") == [MASTER, OTHER]


SECRET = "ab" * 32


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("# nothing\n", 1),
        (f"1 {SECRET}\n{SECRET}\n", 2),
        (f"1 {SECRET} {SECRET}\n", 1),
        (f"one {SECRET}\n", 1),
        (f"-1 {SECRET}\n", 1),
        (f"4294967296 {SECRET}\n", 1),
        (f"{'9' * 5000} {SECRET}\n", 1),
        (f"1 {SECRET[2:]}\n", 1),
        (f"1 {SECRET[2:]}xy\n", 1),
        (f"\n1 {SECRET}\n01 {'cd' * 32}\n", 3),
    ],
)
def test_a_line_that_is_no_key_is_told_and_not_shown(text: str, line: int):
    with pytest.raises(SettingsError) as refused:
        read_keys(text, "/etc/keys")
    assert refused.value.code == "SETTINGS.BAD_KEYS"
    assert f"/etc/keys, line {line}: " in str(refused.value) and refused.value.line == line
    assert "abab" not in str(refused.value) and "cdcd" not in str(refused.value)


def at(offset: int) -> int:
    return offset << 26


def sent(*offsets: int) -> list[bytes]:
    return [notification(SESSION, at(offset), 1) for offset in offsets]


def summary(begin: int, until: int, gone: bool = False) -> bytes:
    """What the stream says of a range, of which it sent a message of each offset."""
    all_ = {at(offset): 1 for offset in range(begin, min(until, begin + 100))}
    return summary_bytes(SESSION, at(begin), at(until), all_, gone)


def forgeries(begin: int, until: int) -> list[bytes]:
    """What somebody without the key may send: of a range, that nothing was in it."""
    lies = [
        summary_bytes(SESSION, at(begin), end, {}) for end in (at(until), (1 << 64) - 1, at(begin))
    ]
    lies += [summary_bytes(SESSION, 0, at(until), {}), summary(begin, until, gone=True)]
    right = H3.sign(summary(begin, until))
    return [
        *lies,
        *(MASTER.for_host("h1").sign(lie) for lie in lies),
        *(OTHER.for_host("h3").sign(lie) for lie in lies),
        *(lie + right[52:] for lie in lies),
        *(lie + bytes(20) for lie in lies),
        right[:-1],
        right + b"\0",
        right[:18] + b"\xff\xff" + right[20:],
    ]


@pytest.mark.parametrize("answer", [False, True])
@pytest.mark.parametrize("asks", [False, True])
def test_a_forged_summary_of_any_form_is_left_alone_at_once(asks: bool, answer: bool):
    it = Receiver(ReceiverOptions(asks=asks), 0.0, seed=1, keys=HostKeys([H3]))
    honest = Receiver(ReceiverOptions(asks=asks), 0.0, seed=1, keys=HostKeys([H3]))
    forged = 0
    for offset in range(10, 40):
        now = float(offset)
        for lie in forgeries(offset, offset + 2):
            assert it.receive([lie], now, answer) == honest.time(now)
            forged += 1
        for each in (it, honest):
            each.receive([*sent(offset), H3.sign(summary(offset, offset + 1))], now)
        assert it.sessions() == honest.sessions()
        assert it.due() == honest.due()
    assert it.sessions()[SESSION] == (State.EVEN, at(40), at(40)) and not it.unproven()
    assert replace(it.statistics, forged=0) == honest.statistics
    assert it.statistics.forged == forged


def test_a_receiver_without_keys_takes_summaries_with_tags_and_without():
    it = Receiver(ReceiverOptions(), 0.0)
    it.receive([*sent(10), H3.sign(summary(10, 11)), *sent(11), summary(11, 12)], 1.0)
    assert it.sessions()[SESSION] == (State.EVEN, at(12), at(12))
    assert (it.statistics.summaries, it.statistics.forged, it.unproven()) == (2, 0, [])


def test_who_lacks_the_key_of_a_stream_never_ends_well():
    it = Receiver(ReceiverOptions(asks=False), 0.0, keys=HostKeys([OTHER.for_host("h3")]))
    it.receive([H3.sign(summary(10, 11))], 1.0)
    assert (it.sessions(), it.statistics.forged) == ({}, 1)
    it.receive(sent(11), 1.0)
    assert it.unproven() == [SESSION]
    # A key that came late is of use from then on; one that is taken away too early is missed.
    it.keys = HostKeys([OTHER.for_host("h3"), H3])
    it.receive([H3.sign(summary(11, 12))], 2.0)
    assert it.unproven() == [] and it.sessions()[SESSION] == (State.EVEN, at(12), at(12))
    it.keys = HostKeys([OTHER.for_host("h3")])
    it.receive([H3.sign(summary(12, 13))], 3.0)
    assert it.unproven() == [SESSION]


@given(st.lists(st.tuples(st.integers(0, 29), st.booleans()), max_size=20), st.booleans())
def test_right_summaries_of_before_do_no_more_harm_than_copies(
    replays: list[tuple[int, bool]], lost: bool
):
    """Of ranges and answers long past, sent again by the stream's way."""
    it = Receiver(ReceiverOptions(asks=True), 0.0, seed=1, keys=HostKeys([H3]))
    past: list[bytes] = []
    got: list[int] = []
    again = iter(replays)
    for offset in range(10, 40):
        now = float(offset)
        past += [
            H3.sign(each)
            for each in (
                summary(offset, offset + 1),
                # Answers of the service: a part of the range, and that there is nothing yet.
                summary_bytes(SESSION, at(offset) + 1, at(offset + 1), {}),
                summary_bytes(SESSION, at(offset), at(offset), {}),
            )
        ]
        missing = lost and offset == 30
        fresh = [*([] if missing else sent(offset)), past[-3]]
        old = next(again, None)
        if old is not None and old[0] < len(past) - 3:
            fresh[:0] = [past[old[0]]] * (1 + old[1])
        out = it.receive(fresh, now)
        got += [each.sequence for each in out.deliveries]
        for asked in [*out.requests, *it.time(now + 0.5).requests]:
            whole = {at(n): 1 for n in range(10, offset + 1)}
            answer = sent(*(n for n in range(10, offset + 1) if at(n) >= asked.sequence))
            answer.append(H3.sign(summary_bytes(SESSION, asked.sequence, at(offset + 1), whole)))
            got += [each.sequence for each in it.receive(answer, now + 0.6, True).deliveries]
    assert sorted(got) == [at(n) for n in range(10, 40)]
    assert it.sessions()[SESSION] == (State.EVEN, at(40), at(40))
    assert (it.statistics.losses, it.statistics.forged, it.statistics.disputed) == (0, 0, 0)
