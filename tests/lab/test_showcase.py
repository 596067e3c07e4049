"""The samples on a report's map: from all of a run, and one at least for each rule that matched."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import relabelled
from paths import ROOT

from stackcast.lab.proof.verification import Batch, expected
from stackcast.lab.report import showcase
from stackcast.lab.report.showcase import Showcase
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.nodes import Forward, Rule
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.reference import build_packet, read_message
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.encodings import ROUTES
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.unit

ITCH = parse_specification((ROOT / "schemas" / "messages" / "itch.spec").read_text(), "itch")
NETWORK = fabric(1, 2, 2, 1, 1)
TEXTS = (
    "stock == GOOGL",
    "stock == AAPL and shares > 3",
    "price > 2",
    "shares == 5",
    "stock == MSFT",
    "count(10s) > 4",
    "stock == AAPL and sum(shares, 10s) > 9",
)


def rules_of(texts):
    hosts = NETWORK.subscribers()
    rows = [Subscription(f"s{n}", hosts[n % len(hosts)], text) for n, text in enumerate(texts)]
    rules, rejections = check(rows, ITCH, set(hosts), "feed1")
    assert rejections == []
    return rules


def order(stock, price, shares):
    head = b"A" + bytes(10)
    body = struct.pack(">Q1sI", 7, b"B", shares) + stock.ljust(8).encode()
    return head + body + struct.pack(">I", price * 10_000)


def samples_of(records, rules):
    made = Showcase(NETWORK, broadcast_trees(NETWORK), ITCH, "feed1", 20)
    batches = [Batch(0, {p: (0, 1 << 40) for p in (0, 1)}, rules)]
    owed = expected(records, batches, ITCH, Topic("t"))
    return made.notifications(records, rules, owed), owed


def matched(records, rules):
    """By message, the rules that match it, by the interpreter over all rules at once."""
    plain = [Rule(r.condition, (Forward(r.receivers), *r.updates)) for r in rules]
    found = {}
    for partition in (0, 1):
        world = Interpreter(plain, ITCH, None)
        for own, offset, messages in records:
            for index, message in enumerate(messages if own == partition else ()):
                result = world.step(read_message(ITCH, message))
                found[partition, offset, index] = [rules[n].id for n in result.rules]
    return found


ORDERS = st.builds(
    order, st.sampled_from(("GOOGL", "AAPL", "IBM")), st.integers(0, 4), st.integers(1, 6)
)


@examples(60)
@given(st.lists(st.lists(ORDERS, max_size=4), max_size=30), st.sampled_from((1, 5, 300)))
def test_each_rule_that_matched_has_a_sample_and_its_count(packets, most):
    rules = rules_of(TEXTS)
    plain = [(n % 2, n, messages) for n, messages in enumerate(packets)]
    records = [(p, n, build_packet(b"SESSION001", 1, messages)) for p, n, messages in plain]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(showcase, "SAMPLES", most)
        samples, owed = samples_of(records, rules)
    truth = matched(plain, rules)
    counts = Counter(name for names in truth.values() for name in names)
    assert {name: each.count for name, each in owed.matches.items() if each.count} == counts
    assert {name for sample in samples for name in sample["subscriptions"]} == set(counts)
    assert len(samples) <= max(most, len(counts))
    hosts = {rule.id: set(rule.receivers) for rule in rules}
    for sample in samples:
        place = sample["partition"], sample["offset"], sample["message"]
        assert sorted(sample["subscriptions"]) == sorted(truth[place])
        assert set(sample["receivers"]) == set.union(*(hosts[name] for name in truth[place]))
        assert read_message(ITCH, plain[place[1]][2][place[2]]).keys() == sample["event"].keys()


def test_samples_are_of_all_of_a_run():
    """Each rule matches all the time, so any of its messages would do."""
    stocks = [f"S{n}" for n in range(20)]
    rules = rules_of([f"stock == {stock}" for stock in stocks])
    messages = [order(stock, 1, 1) for stock in stocks]
    records = [(0, n, build_packet(b"SESSION001", 1, messages)) for n in range(1_000)]
    samples, owed = samples_of(records, rules)
    assert {each.count for each in owed.matches.values()} == {1_000}
    for part in range(3):
        here = [s for s in samples if 333 * part <= s["offset"] <= 333 * (part + 1)]
        assert len(here) >= len(samples) / 5


@pytest.mark.parametrize("encoding", ["port_reactive", "mixed", "hops", "destinations", "hybrid"])
def test_labels_of_any_encoding_are_worded(encoding):
    network = relabelled(NETWORK, ROUTES[encoding])
    made = Showcase(network, (), ITCH, "feed1", 64)
    rules = rules_of(["price > 0"])
    records = [(0, 0, build_packet(b"SESSION001", 1, [order("GOOGL", 1, 1)]))]
    owed = expected(records, [Batch(0, {0: (0, 1)}, rules)], ITCH, Topic("t"))
    (sample,) = made.notifications(records, rules, owed)
    assert sample["receivers"]
    kinds = {label["kind"] for label in sample["labels"]}
    assert kinds == {
        {"port_reactive": "switch", "mixed": "switch", "destinations": "host"}.get(encoding, "hop")
    }
    if encoding == "hops":
        assert [label["link"] for label in sample["labels"]] == sample["edges"][1:]
