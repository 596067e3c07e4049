"""The verdict on a run must be right both ways.

A perfect delivery passes; one datagram too few, too many, changed, doubled, out of order or under
a wrong number does not. What must arrive is checked here against plain Python on the values that
the messages were made from.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from stackcast.lab.proof.verification import (
    Batch,
    Expectation,
    Receipt,
    broadcast_bytes,
    compare,
    expected,
    receipt_bytes,
    receipts,
    unicast_bytes,
)
from stackcast.udfs.errors import LabError
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.messages.sequence import Topic, sequence_number, session_id
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network.topology import fabric

pytestmark = pytest.mark.unit

TOPIC = Topic("itch.raw")
STOCKS = ("GOOGL", "AAPL")


@pytest.fixture(scope="module")
def specification() -> Specification:
    path = ROOT / "schemas" / "messages" / "itch.spec"
    return parse_specification(path.read_text(encoding="utf-8"), "itch")


@dataclass(frozen=True)
class Order:
    """An add-order message by its values; ``price`` in ten-thousandths of a dollar."""

    stock: str
    price: int
    shares: int
    side: str

    def encode(self) -> bytes:
        head = b"A" + bytes(10)
        body = struct.pack(">Q1sI", 7, self.side.encode(), self.shares)
        return head + body + self.stock.ljust(8).encode() + struct.pack(">I", self.price)


DELETION = b"D" + bytes(18)
ORDERS = st.builds(
    Order,
    st.sampled_from(STOCKS),
    st.integers(499_998, 500_002),
    st.integers(99, 101),
    st.sampled_from("BS"),
)
EARLY = {
    "h1": ("stock == GOOGL", lambda o: o.stock == "GOOGL"),
    "h2": ("price > 50 and not shares < 100", lambda o: o.price > 500_000 and o.shares >= 100),
    "h3": ("not stock == GOOGL", lambda o: o.stock != "GOOGL"),
}
LATE = EARLY | {
    "h3": ("buy_sell == S or price < 50.0", lambda o: o.side == "S" or o.price < 500_000)
}


def rules_of(table: dict, specification: Specification) -> Sequence[CheckedRule]:
    rows = [Subscription(f"s-{host}", host, text) for host, (text, _) in table.items()]
    # A second rule of the same host that matches the same events owes it nothing twice.
    rows.append(Subscription("s-again", "h1", "stock == GOOGL and shares > 0"))
    rules, rejections = check(rows, specification, {"h1", "h2", "h3"}, "feed1")
    assert rejections == []
    return rules


@examples(40)
@given(st.lists(st.lists(ORDERS | st.none(), max_size=4), max_size=12), st.integers(0, 12))
def test_hosts_are_owed_what_their_rules_say(
    specification: Specification, packets: list[list[Order | None]], change: int
) -> None:
    """None stands for an order deletion: it has neither stock nor price, so it goes to nobody."""
    records, owed = [], {host: Counter() for host in EARLY}
    for offset, orders in enumerate(packets):
        messages = [order.encode() if order else DELETION for order in orders]
        records.append((offset % 2, offset, build_packet(b"SESSION001", 1, messages)))
        session = session_id(TOPIC, offset % 2)
        for host, (_, wants) in (EARLY if offset < change else LATE).items():
            owed[host].update(
                (session, offset, order.encode()) for order in orders if order and wants(order)
            )
    random.Random(change).shuffle(records)
    batches = [
        Batch(0, dict.fromkeys((0, 1), (0, change)), rules_of(EARLY, specification)),
        Batch(1, dict.fromkeys((0, 1), (change, 99)), rules_of(LATE, specification)),
    ]
    found = expected(records, batches, specification, TOPIC)
    assert {host: found.deliveries.get(host, Counter()) for host in EARLY} == owed
    assert found.messages_in == sum(map(len, packets))
    assert found.total == sum(counter.total() for counter in owed.values())
    assert found.unprocessed == 0


def test_rules_with_state_are_owed_what_the_interpreter_says(specification: Specification) -> None:
    """More than two of a stock's orders within 10 microseconds, source by source."""
    text = "stock == GOOGL and count(10) >= 2"

    def checked(*texts: str) -> Sequence[CheckedRule]:
        rows = [Subscription(text, f"h{n}", text) for n, text in enumerate(texts, 1)]
        return check(rows, specification, {"h1", "h2", "h3"}, "feed1")[0]

    def at(time: int, stock: str = "GOOGL") -> bytes:
        plain = Order(stock, 500_000, 100, "B").encode()
        return plain[:5] + (time * 1000).to_bytes(6) + plain[11:]

    packets = {
        (0, 0): [at(100), at(101), at(101, "AAPL"), at(102)],
        (1, 0): [at(100), at(101)],
        (0, 1): [at(109), at(110)],
        (1, 1): [at(103), at(103)],
        (0, 2): [at(111), at(112)],
        (1, 2): [at(104)],
    }
    records = [
        (partition, offset, build_packet(b"SESSION001", 1, messages))
        for (partition, offset), messages in packets.items()
    ]
    batches = [
        Batch(0, {0: (0, 1), 1: (0, 1)}, checked(text)),
        Batch(1, {0: (1, 2)}, checked(text, "price > 99")),
        Batch(2, {1: (1, 2)}, checked(text, "stock == AAPL")),
        Batch(3, {0: (2, 3)}, checked("price > 99")),
        Batch(4, {1: (2, 3)}, checked(text)),
    ]
    found = expected(records, batches, specification, TOPIC)
    assert not any(found.deliveries[host] for host in ("h2", "h3"))
    first, second = (session_id(TOPIC, partition) for partition in (0, 1))
    # The cell is kept through batches that a partition is not in, and through edits of other
    # rules; it is gone after a batch whose rules do not name it.
    assert found.deliveries["h1"] == Counter(
        [(first, 0, at(102)), (first, 1, at(109)), (second, 1, at(103)), (second, 1, at(103))]
    )
    assert found.messages_matched == 4


def test_damage_is_counted_and_harms_no_neighbour(specification: Specification) -> None:
    order = Order("GOOGL", 500_000, 100, "B").encode()
    sound = build_packet(b"SESSION001", 1, [order])
    records = [
        (0, 0, b""),
        (0, 1, sound[:-1]),
        (0, 2, build_packet(b"SESSION001", 1, [b"?what", order, order[:-1]])),
        (0, 3, sound),
        (0, 4, sound),
    ]
    found = expected(
        records, [Batch(0, {0: (0, 4)}, rules_of(EARLY, specification))], specification, TOPIC
    )
    session = session_id(TOPIC, 0)
    assert found.deliveries["h1"] == Counter({(session, 2, order): 1, (session, 3, order): 1})
    assert found.dead_letters.total() == 4
    assert found.unprocessed == 1, "no batch took offset 4"


# --- the comparison -----------------------------------------------------------------------------


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[Expectation, dict[str, list[Receipt]]]:
    """A session of packets and a perfect delivery of it: one receipt or more at each host."""
    hosts = ("h1", "h2", "h10")
    expectation = Expectation()
    received: dict[str, list[Receipt]] = {host: [] for host in hosts}
    packets = draw(
        st.lists(st.lists(st.binary(max_size=2), min_size=1, max_size=4), min_size=2, max_size=8)
    )
    for offset, messages in enumerate(packets):
        session = session_id(TOPIC, offset % 2)
        expectation.packets[session, offset] = tuple(messages)
        for host in hosts:
            leaves = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
            # Messages of different leaves come in different frames; leaf 0 is nobody.
            for leaf in (1, 2):
                places = [i for i in range(len(messages)) if leaves[i] == leaf or not offset]
                if not places or (leaf == 2 and not offset):
                    continue
                chosen = tuple(messages[i] for i in places)
                sequence = int(sequence_number(offset, places[0]))
                received[host].append(Receipt(session, sequence, chosen))
                expectation.deliveries[host].update((session, offset, one) for one in chosen)
    return expectation, received


CASES = examples(60)
#: Behind a message, what makes it none of the session: they have two bytes at most.
LONGER = b"\xff\xff\xff"


@CASES
@given(deliveries())
def test_a_perfect_delivery_passes(case: tuple[Expectation, dict[str, list[Receipt]]]) -> None:
    expectation, received = case
    outcome = compare(expectation, received)
    assert outcome.exact
    assert outcome.expected == outcome.received == expectation.total
    assert list(outcome.hosts) == ["h1", "h2", "h10"]
    assert [row["host"] for row in outcome.rows()] == ["h1", "h2", "h10"]
    assert sum(row["received"] for row in outcome.rows()) == outcome.received


@CASES
@given(deliveries(), st.data())
def test_one_receipt_removed_is_missing(case: tuple, data: st.DataObject) -> None:
    expectation, received = case
    host = data.draw(st.sampled_from(sorted(received)))
    gone = received[host].pop(data.draw(st.integers(0, len(received[host]) - 1)))
    outcome = compare(expectation, received)
    assert not outcome.exact
    assert outcome.missing == outcome.hosts[host].missing == len(gone.messages)
    assert (outcome.extra, outcome.duplicates) == (0, 0)


@CASES
@given(deliveries(), st.data())
def test_one_receipt_doubled_is_counted_so(case: tuple, data: st.DataObject) -> None:
    expectation, received = case
    host = data.draw(st.sampled_from(sorted(received)))
    place = data.draw(st.integers(0, len(received[host]) - 1))
    received[host].insert(place, received[host][place])
    outcome = compare(expectation, received)
    assert not outcome.exact
    assert outcome.duplicates == len(received[host][place].messages)
    assert (outcome.missing, outcome.extra) == (0, 0)


@CASES
@given(deliveries(), st.data())
def test_one_receipt_at_a_host_that_did_not_ask_is_extra(case: tuple, data: st.DataObject) -> None:
    expectation, received = case
    stray = data.draw(st.sampled_from([one for each in received.values() for one in each]))
    received["h3"] = [stray]
    outcome = compare(expectation, received)
    assert not outcome.exact
    assert outcome.extra == outcome.hosts["h3"].extra == len(stray.messages)
    assert (outcome.missing, outcome.duplicates) == (0, 0)


@CASES
@given(deliveries(), st.data())
def test_one_receipt_changed_is_missing_and_extra(case: tuple, data: st.DataObject) -> None:
    expectation, received = case
    host = data.draw(st.sampled_from(sorted(received)))
    place = data.draw(st.integers(0, len(received[host]) - 1))
    session, sequence, messages = received[host][place]
    received[host][place] = Receipt(session, sequence, (messages[0] + LONGER, *messages[1:]))
    outcome = compare(expectation, received)
    assert not outcome.exact
    assert (outcome.missing, outcome.extra, outcome.duplicates) == (1, 1, 0)


@CASES
@given(deliveries(), st.data())
def test_a_wrong_number_is_noticed(case: tuple, data: st.DataObject) -> None:
    expectation, received = case
    host = data.draw(st.sampled_from(sorted(received)))
    place = data.draw(st.integers(0, len(received[host]) - 1))
    session, sequence, messages = received[host][place]
    wrong = sequence + data.draw(st.sampled_from([1, 4_000 << 13]))
    received[host][place] = Receipt(session, wrong, messages)
    outcome = compare(expectation, received)
    assert not outcome.exact
    assert outcome.misnumbered == 1
    assert (outcome.missing, outcome.extra) == (0, 0), "the messages themselves are the right ones"


def test_offsets_never_go_back_within_a_session() -> None:
    expectation = Expectation()
    received = []
    for offset in range(3):
        for session in (b"AAAAAAAAAA", b"BBBBBBBBBB"):
            expectation.packets[session, offset] = (b"m",)
            expectation.deliveries["h1"][session, offset, b"m"] = 1
            received.append(Receipt(session, int(sequence_number(offset, 0)), (b"m",)))
    one_after_the_other = sorted(received)
    assert compare(expectation, {"h1": received}).exact
    assert compare(expectation, {"h1": one_after_the_other}).exact
    received[0], received[2] = received[2], received[0]
    outcome = compare(expectation, {"h1": received})
    assert not outcome.exact
    assert (outcome.out_of_order, outcome.missing, outcome.extra) == (1, 0, 0)


# --- receipts on disk ---------------------------------------------------------------------------


@examples(20)
@given(case=deliveries())
def test_receipts_come_back_as_the_hosts_wrote_them(
    tmp_path_factory: pytest.TempPathFactory, case: tuple
) -> None:
    _, received = case
    folder = tmp_path_factory.mktemp("lab")
    (folder / "receipts").mkdir()
    for host, rows in received.items():
        (folder / "receipts" / f"{host}.mold").write_bytes(b"".join(map(receipt_bytes, rows)))
    assert receipts(folder) == received


def test_noise_at_a_host_is_extra_and_heartbeats_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    folder.mkdir()
    heartbeat = receipt_bytes(Receipt(b"AAAAAAAAAA", 5, ()))
    (folder / "h1.mold").write_bytes(heartbeat + b"\x00\x05noise")
    (folder / "h2.mold").write_bytes(b"")
    outcome = compare(Expectation(), receipts(tmp_path))
    assert outcome.hosts["h1"].extra == 1
    assert outcome.hosts["h2"].exact


def test_receipts_that_cannot_be_trusted_say_so(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"LAB\.NO_RECEIPTS"):
        receipts(tmp_path)
    (tmp_path / "receipts").mkdir()
    (tmp_path / "receipts" / "h1.mold").write_bytes(b"\x00\x09cut")
    with pytest.raises(LabError, match=r"LAB\.TRUNCATED_RECEIPTS.*byte 0"):
        receipts(tmp_path)


# --- other ways of delivery ---------------------------------------------------------------------


def test_bytes_that_unicast_and_broadcast_would_take() -> None:
    network = fabric(pods=1, racks=2, hosts=2, planes=1, spines=1)
    session = session_id(TOPIC, 0)
    expectation = Expectation()
    expectation.packets[session, 0] = (b"12345", b"678")
    expectation.packets[session, 1] = (b"12345",)
    expectation.payload_bytes = (20 + 7 + 5) + (20 + 7)
    near, far = (b"12345", b"678"), (b"12345",)
    expectation.deliveries["h1"].update((session, 0, message) for message in near)
    expectation.deliveries["h3"].update((session, 1, message) for message in far)
    # h1 hangs on the publisher's own rack (2 links), h3 on the other one, over the fabric (4).
    assert unicast_bytes(network, "feed1", expectation) == 2 * (42 + 20 + 7 + 5) + 4 * (42 + 20 + 7)
    # feed1, h1, h2 | rack1, fabric1, rack2 | h3, h4: five hosts' links and two between switches.
    assert broadcast_bytes(network, expectation) == 7 * (42 + 32 + 42 + 27)
