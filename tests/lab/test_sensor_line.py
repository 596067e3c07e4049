"""Sensors on the testbed of KUNDEL IV: frames into three switches, receipts of six hosts."""

from __future__ import annotations

import pytest
from program_switches import fill, open_ports

from stackcast.lab.fabric.hosts import LabHost, NetworkCard
from stackcast.lab.fabric.switches import Fabric
from stackcast.lab.proof.attribute_reader import frame_reader
from stackcast.lab.proof.receipts import event_receipt, receipts
from stackcast.lab.proof.verification import Batch, compare, expected
from stackcast.lab.traffic import sensors
from stackcast.lab.traffic.feed import event_frames
from stackcast.lab.traffic.packets import SESSION
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.network.programs import ATTRIBUTES
from stackcast.udfs.network.topology import line
from stackcast.udfs.network_match.generic.network import AttributeFilters

pytestmark = pytest.mark.integration

NETWORK = line(3, 2)
REGISTRY = sensors.registry()
FILTERS = AttributeFilters(REGISTRY, "feed1")


@pytest.fixture(scope="module")
def rules():
    hosts = NETWORK.subscribers()
    rows = [Subscription(**row) for row in sensors.subscriptions(hosts, 20, coarse=True)]
    found, rejections = check(rows, FILTERS.specification, set(hosts), "feed1")
    assert not rejections
    return found


@pytest.fixture(scope="module")
def switches(rules):
    running = {name: SimpleSwitch() for name in NETWORK.switches}
    devices = [Device(n, s.device_id, running[n]) for n, s in NETWORK.switches.items()]
    server = P4RuntimeServer(devices).start()
    filtered = FILTERS.entries(NETWORK, rules, {})
    assert not filtered.rejections
    for name, switch in NETWORK.switches.items():
        groups = open_ports(name, [link.port for link in NETWORK.links if link.switch == name])
        fill(server.address, switch, [*groups, *filtered.entries[name]], ATTRIBUTES)
    yield running
    server.stop()


@pytest.mark.parametrize("encodings", [["id_pairs"], ["bitmask"], ["id_pairs", "bitmask"]])
def test_hosts_receive_exactly_what_they_subscribed_to(rules, switches, tmp_path, encodings):
    (tmp_path / "receipts").mkdir()
    card = NetworkCard()
    hosts = {
        name: LabHost(name, tmp_path / "receipts" / f"{name}.mold")
        for name in NETWORK.subscribers()
    }
    fabric = Fabric(
        NETWORK, switches, lambda name, frame: hosts[name].take(card.read(frame) or b"")
    )
    sent = list(
        event_frames(sensors.events(500), NETWORK.host("feed1"), REGISTRY, encodings, SESSION)
    )
    for one in sent:
        fabric.send("feed1", one.frame)
    for host in hosts.values():
        host.close()
    owed = expected(
        [(0, one.sequence, one.frame) for one in sent],
        [Batch(0, {0: (0, 1 << 40)}, rules, REGISTRY)],
        FILTERS.specification,
        Topic(""),
        lambda _: SESSION,
        read=frame_reader(),
    )
    outcome = compare(owed, receipts(tmp_path, event_receipt), pruned=True)
    assert outcome.exact
    assert outcome.received > 100
    assert sum(tally.received > 0 for tally in outcome.hosts.values()) > 3
    assert not card.drops
