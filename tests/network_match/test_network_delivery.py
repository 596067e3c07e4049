"""A feed through switches that match: each host gets its messages, also while rules are edited.

Committed program, software switches, real frames; the oracle is brute force over the rules.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from threading import Event

import numpy as np
import pytest
from paths import COMPILED_P4
from program_switches import open_ports
from rollout_world import by_old_or_new

from stackcast import schemas
from stackcast.jobs import check_delivery, itch_stream
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded import network as embedded_network
from stackcast.jobs.embedded.feed import Share, feed
from stackcast.lab.fabric.hosts import udp_payload
from stackcast.lab.fabric.switches import Fabric
from stackcast.lab.proof import verification
from stackcast.lab.proof.verification import Receipt
from stackcast.lab.report.showcase import FilteredShowcase
from stackcast.lab.traffic.feed import feed_frames
from stackcast.lab.traffic.packets import new_packets
from stackcast.lab.traffic.subscriptions import subscriptions
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.filters.subscriptions import CheckedRule, Subscription, check
from stackcast.udfs.messages.reference import read_packet
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network_match.filters import NetworkFilters
from stackcast.udfs.switches.entry import SwitchEntry, difference
from stackcast.udfs.switches.ordering import write_steps

pytestmark = pytest.mark.unit

ITCH = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
JSON = (COMPILED_P4 / "packet_subscriptions.json").read_bytes()
NETWORK = fabric(2, 2, 2, 2, 1)
FIRST = NETWORK.hosts["feed1"].switch
NEAR = [h for h in NETWORK.subscribers() if NETWORK.hosts[h].switch == FIRST]
GROUP = int.from_bytes(bytes([233, 54, 12, 1]))


class Switches:
    """The switches of a network with the filters of one set of rules after the other."""

    def __init__(self, network: Network = NETWORK, publisher: str = "feed1") -> None:
        self._network = network
        self._filters = NetworkFilters(ITCH, publisher)
        self._held: dict[str, list[SwitchEntry]] = {}
        self.switches = {name: SimpleSwitch() for name in network.switches}
        for name, switch in self.switches.items():
            switch.load(JSON)
            ports = [link.port for link in network.links if link.switch == name]
            switch.apply({entry.key: entry for entry in open_ports(name, ports)})
        self.received: dict[str, list[Receipt]] = defaultdict(list)
        self._fabric = Fabric(network, self.switches, self._deliver)

    def updates(self, rules: Sequence[CheckedRule]) -> Iterable[None]:
        """Write the rules, entry by entry; yields after each."""
        made = self._filters.entries(self._network, rules, self._held)
        assert not made.rejections
        waiting = []
        for switch, entries in made.entries.items():
            changes = [
                (entry.key, None if step.kind == "delete" else entry)
                for step in write_steps(difference(entries, self._held.get(switch, ())))
                for entry in step.entries
            ]
            waiting.append((switch, changes))
        chance = random.Random(1)
        # Switches are written side by side.
        while waiting:
            switch, changes = waiting[chance.randrange(len(waiting))]
            if changes:
                key, entry = changes.pop(0)
                self.switches[switch].apply({key: entry})
                yield
            waiting = [one for one in waiting if one[1]]
        self._held = {switch: list(entries) for switch, entries in made.entries.items()}

    def write(self, rules: Sequence[CheckedRule]) -> None:
        for _ in self.updates(rules):
            pass

    def send(self, frame: bytes, publisher: str = "feed1") -> None:
        self._fabric.send(publisher, frame)

    def _deliver(self, host: str, frame: bytes) -> None:
        session, number, messages = read_packet(udp_payload(frame))
        self.received[host].append(Receipt(session, number, tuple(messages)))


class FabricSink:
    """The tunnel's place: frames go into the publisher's switch at once."""

    def __init__(self, switches: Switches, publisher: str = "feed1") -> None:
        self._switches, self._publisher = switches, publisher

    def send(self, data: np.ndarray, offsets: np.ndarray) -> int:
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            self._switches.send(data[start:end].tobytes(), self._publisher)
        return offsets.size - 1

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def lab_rules(seed: int, count: int = 60) -> list[CheckedRule]:
    rows = [
        Subscription(row["id"], row["subscriber"], row["filter"])
        for row in subscriptions(NETWORK.subscribers(), count, stock_count=12, seed=seed)
        if "trade" not in row["filter"] and "mpid" not in row["filter"]
    ]
    rules, rejected = check(rows, ITCH, set(NETWORK.subscribers()), "feed1")
    assert not rejected
    return list(rules)


STATE = (
    Subscription("count", NEAR[0], "stock == AAPL and count() >= 2"),
    Subscription("high", NEAR[-1], "price > 10 and max(shares, 1000000) > 500"),
)


def test_a_session_arrives_exactly_rules_with_state_included():
    state = check(STATE, ITCH, set(NEAR), "feed1")[0]
    rules = [*lab_rules(1), *state]
    switches = Switches()
    switches.write(rules)
    sink = FabricSink(switches)
    fed = feed(Settings(), NETWORK.hosts["feed1"], sink, TradingSession(1500, 3, 12), Event())
    assert fed.messages == 1500
    owed = embedded_network.expected(fed.packets, rules, ITCH)
    assert len(owed.deliveries) == len(NETWORK.subscribers())
    outcome = verification.compare(owed, switches.received, pruned=True)
    assert outcome.exact and outcome.received > 300, outcome
    # The verdict does not pass by itself.
    fewer = embedded_network.expected(fed.packets, rules[1:], ITCH)
    assert not verification.compare(fewer, switches.received, pruned=True).exact


SEVERAL = fabric(2, 2, 2, 2, 1, publishers=3)


def test_a_session_of_several_publishers_arrives_exactly_at_all_others():
    names = SEVERAL.publishers()
    rows = [
        Subscription(row["id"], row["subscriber"], row["filter"])
        for row in subscriptions(tuple(SEVERAL.hosts), 60, stock_count=12, seed=3)
        if "trade" not in row["filter"] and "mpid" not in row["filter"]
    ]
    rules, rejected = check(rows, ITCH, set(SEVERAL.hosts), "")
    assert not rejected
    switches = Switches(SEVERAL, "*")
    switches.write(list(rules))
    packets = []
    for number, name in enumerate(names):
        fed = feed(
            Settings(),
            SEVERAL.hosts[name],
            FabricSink(switches, name),
            TradingSession(1500, 3, 12),
            Event(),
            lambda *_: None,
            Share(number, len(names)),
        )
        assert fed.messages == 500
        packets += fed.packets
    owed = embedded_network.expected(packets, rules, ITCH, publishers=names)
    assert {name for name, keys in owed.deliveries.items() if keys} >= set(names)
    outcome = verification.compare(owed, switches.received, pruned=True)
    assert outcome.exact and outcome.received > 200, outcome
    # A publisher that wants what it sends is owed none of it.
    itself = embedded_network.expected(packets, rules, ITCH, publishers=names[::-1])
    assert not verification.compare(itself, switches.received, pruned=True).exact

    # The map shows the way of each from where it enters.
    showcase = FilteredShowcase(SEVERAL, ITCH, "*", sender=lambda place: names[place.partition])
    samples = showcase.notifications(packets, rules, owed)
    assert {sample["publisher"] for sample in samples} == set(names)
    for sample in samples:
        reached = {sample["publisher"]}
        for u, v in sample["edges"]:
            assert u in reached and v not in reached
            reached.add(v)
        ends = {v for _, v in sample["edges"]} - {u for u, _ in sample["edges"]}
        assert ends & set(SEVERAL.hosts) == set(sample["receivers"])


def test_a_session_that_is_stopped_ends_with_what_was_sent():
    stop = Event()
    stop.set()
    sink = FabricSink(Switches())
    fed = feed(Settings(), NETWORK.hosts["feed1"], sink, TradingSession(300, 3, 12), stop)
    assert (fed.messages, list(fed.packets)) == (0, [])


@pytest.mark.parametrize("edit", [(4, 5), (4, 4)], ids=["other rules", "the same rules"])
def test_while_rules_are_edited_each_message_goes_by_the_old_or_by_the_new_ones(edit):
    """Of one switch, all hosts go by the same; and after the last update all by the new ones."""
    before, after = lab_rules(edit[0]), lab_rules(edit[1])
    if edit[0] == edit[1]:
        after = after[::-1]
    switches = Switches()
    switches.write(before)
    publisher = NETWORK.hosts["feed1"]
    packets = list(new_packets(TradingSession(4000, 5, 12)))
    waiting = iter(packets)
    sent = []

    def send() -> None:
        packet, _ = next(waiting)
        switches.send(*feed_frames([packet], publisher, GROUP, 26400))
        sent.append((0, int.from_bytes(packet[10:18]), packet))

    send()
    changes = 0
    for _ in switches.updates(after):
        changes += 1
        if changes % 4 == 0:
            send()
    middle = len(sent)
    for _ in range(100):
        send()
    if edit[0] == edit[1]:
        assert changes == 0
    else:
        assert middle > 100
    old, new = (
        embedded_network.expected(sent, rules, ITCH).deliveries for rules in (before, after)
    )
    went = by_old_or_new(NETWORK, switches.received, old, new, sent[middle][1])
    if edit[0] != edit[1]:
        assert min(went["old"], went["new"]) > 0, "no packet came while the edit was on its way"


def test_the_map_shows_the_way_through_the_switches():
    rules = lab_rules(1)
    packets = [
        (0, int.from_bytes(packet[10:18]), packet)
        for packet, _ in new_packets(TradingSession(400, 3, 12))
    ]
    owed = embedded_network.expected(packets, rules, ITCH)
    samples = FilteredShowcase(NETWORK, ITCH, "feed1").notifications(packets, rules, owed)
    assert len(samples) > 20
    for sample in samples:
        assert sample["labels"] == []
        reached = {"feed1"}
        for u, v in sample["edges"]:
            assert u in reached and v not in reached
            reached.add(v)
        ends = {v for _, v in sample["edges"]} - {u for u, _ in sample["edges"]}
        assert ends - {FIRST} == set(sample["receivers"])


def test_where_the_switches_match_a_stream_without_summaries_has_nothing_to_do():
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    settings = Settings(match="network", summary_port=0, kafka=kafka)
    with pytest.raises(SettingsError) as refused:
        itch_stream.deliver(settings, Lifecycle())
    assert refused.value.code == "SETTINGS.MATCHED_IN_NETWORK"
    assert "refresh_switches" in refused.value.message
    with pytest.raises(SettingsError) as refused:
        check_delivery.work(argparse.Namespace(), settings, Lifecycle())
    assert refused.value.code == "SETTINGS.MATCHED_IN_NETWORK"
    assert "stackcast receive" in refused.value.message
