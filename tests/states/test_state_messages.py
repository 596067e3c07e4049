"""Messages of replicated state: Table I, bytes, numbers that go round, signals over TCP."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.udfs.errors import StateError
from stackcast.udfs.states.messages import (
    MOST_BYTES,
    MOST_SEGMENTS,
    MOST_STATE,
    SEGMENT_BYTES,
    UPDATES,
    MessageKind,
    Signal,
    SignalKind,
    SignalReader,
    StateHeader,
    group_of,
    is_later,
    multicast_mac,
    read_group,
    read_message,
)

pytestmark = pytest.mark.unit

STATES = st.integers(1, MOST_STATE)
HEADERS = st.integers(0, MOST_SEGMENTS).flatmap(
    lambda total: st.builds(
        StateHeader,
        st.integers(0, (1 << 16) - 1),
        st.integers(0, UPDATES - 1),
        st.just(total),
        st.integers(min(total, 1), total),
    )
)


def test_kinds_are_those_of_table_1():
    table = {"00": "publish", "01": "SUB-ack", "10": "SUB-remove", "11": "SUB-register"}
    names = {"PUBLISH": "publish", "ACK": "SUB-ack", "REMOVE": "SUB-remove"}
    said = {f"{kind:02b}": names.get(kind.name, "SUB-register") for kind in MessageKind}
    assert said == table


@pytest.mark.parametrize(
    ("kind", "state", "address"),
    [
        (MessageKind.PUBLISH, 1, "239.0.0.1"),
        (MessageKind.ACK, 1, "239.64.0.1"),
        (MessageKind.REMOVE, 1, "239.128.0.1"),
        (MessageKind.REGISTER, 1, "239.192.0.1"),
        (MessageKind.PUBLISH, MOST_STATE, "239.63.255.255"),
    ],
)
def test_addresses_are_protocol_kind_and_state(kind, state, address):
    assert IPv4Address(group_of(kind, state)) == IPv4Address(address)
    assert read_group(int(IPv4Address(address))) == (kind, state)


def test_two_kinds_share_a_mac_address():
    macs = {kind: multicast_mac(group_of(kind, 5)) for kind in MessageKind}
    assert macs[MessageKind.PUBLISH] == macs[MessageKind.REMOVE] == 0x01005E000005
    assert macs[MessageKind.ACK] == macs[MessageKind.REGISTER] == 0x01005E400005


@pytest.mark.parametrize("address", ["239.0.0.0", "239.192.0.0", "238.0.0.1", "10.0.0.1"])
def test_other_addresses_are_of_no_state(address):
    with pytest.raises(StateError) as error:
        read_group(int(IPv4Address(address)))
    assert error.value.code == "STATE.BAD_MESSAGE"


@pytest.mark.parametrize("state", [0, -1, MOST_STATE + 1])
def test_a_state_without_an_address_is_refused(state):
    with pytest.raises(StateError) as error:
        group_of(MessageKind.PUBLISH, state)
    assert error.value.code == "STATE.BAD_ID"


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (StateHeader(5001, 1, 1, 1), "1389 000001 001 001"),
        (StateHeader(0xABCD, 0x123456, 0x789, 0x012), "abcd 123456 789 012"),
        (StateHeader(65535, UPDATES - 1, 4095, 4095), "ffff ffffff fff fff"),
        (StateHeader(5002, 7), "138a 000007 000 000"),
    ],
)
def test_a_header_is_these_bytes(header, data):
    packed = bytes.fromhex(data.replace(" ", ""))
    assert header.pack() == packed
    assert read_message(packed + b"segment") == (header, b"segment")


@examples(200)
@given(HEADERS, st.binary(max_size=SEGMENT_BYTES))
def test_what_is_packed_is_read_again(header, segment):
    assert read_message(header.pack() + segment) == (header, segment)


@pytest.mark.parametrize(
    "data",
    [b"", bytes(7), bytes.fromhex("1389000001001002"), bytes.fromhex("1389000001001000")],
)
def test_a_malformed_message_is_refused(data):
    with pytest.raises(StateError) as error:
        read_message(data)
    assert error.value.code == "STATE.BAD_MESSAGE"


def test_a_segment_that_is_too_long_is_refused():
    with pytest.raises(StateError):
        read_message(StateHeader(1, 1, 1, 1).pack() + bytes(SEGMENT_BYTES + 1))


@examples(200)
@given(st.integers(0, UPDATES - 1), st.integers(1, UPDATES // 2 - 1))
def test_a_number_is_later_than_those_before_it_though_numbers_go_round(update, ahead):
    after = (update + ahead) % UPDATES
    assert is_later(after, update)
    assert not is_later(update, after)
    assert not is_later(update, update)


def test_a_signal_is_these_bytes():
    signal = Signal(SignalKind.RECOVER, 5001, 3, 0x010203, 4, 5, b"xy")
    data = bytes.fromhex("00000011 06 1389 00000003 00010203 0004 0005".replace(" ", "")) + b"xy"
    assert signal.pack() == data
    assert [kind.name for kind in SignalKind] == [
        *("INIT_VNF", "INIT_PUB", "PUBLISH", "SUB_REG", "SUB_REM", "STATE_ID_REQ", "RECOVER"),
        *("ACKNOWLEDGED", "TRUNCATED", "LEASE", "SUMMARY", "LIVE"),
    ]


SIGNALS = st.builds(
    Signal,
    st.sampled_from(SignalKind),
    st.integers(0, (1 << 16) - 1),
    st.integers(0, MOST_STATE),
    st.integers(0, UPDATES - 1),
    st.integers(0, MOST_SEGMENTS),
    st.integers(0, MOST_SEGMENTS),
    st.binary(max_size=40),
)


@examples(100)
@given(st.lists(SIGNALS, max_size=5), st.randoms(use_true_random=False))
def test_signals_are_read_however_the_connection_cuts_them(signals, rng):
    data = b"".join(signal.pack() for signal in signals)
    reader, found, at = SignalReader(), [], 0
    while at < len(data):
        step = rng.randint(1, 30)
        found += reader.feed(data[at : at + step])
        at += step
    assert found == signals


@pytest.mark.parametrize(
    "data",
    ["00000001", "7fffffff", "0000000f 0c 0000 00000000 00000000 0000 0000"],
)
def test_a_connection_of_something_else_is_given_up(data):
    with pytest.raises(StateError) as error:
        SignalReader().feed(bytes.fromhex(data.replace(" ", "")))
    assert error.value.code == "STATE.BAD_MESSAGE"


def test_the_longest_update_fits_into_one_signal():
    (signal,) = SignalReader().feed(Signal(SignalKind.PUBLISH, data=bytes(MOST_BYTES)).pack())
    assert len(signal.data) == MOST_BYTES == 4095 * 1400
