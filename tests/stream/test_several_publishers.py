"""A stream of several publishers on real parts: what it sends, writes down and explains of each."""

from __future__ import annotations

import json
import socket
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from kafka import KafkaProducer
from paths import P4
from pcap_deployment import RULES, Deployment, records
from rerequesting import Client, Service

from jobs import retune_trees
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.replay import subscription_matches
from jobs.adapters.replay.explanation import SentExplanation
from jobs.adapters.replay.history import History
from jobs.adapters.retune.record import read_record
from jobs.adapters.wire import Opener, SinkOptions, sink_options
from jobs.embedded.kinds import SessionRun
from jobs.embedded.recorded_batches import RecordedBatches
from lab.proof import verification
from udfs.errors import MessageError, SettingsError, SinkError
from udfs.filters.language.rule import parse_rule
from udfs.filters.meaning.evaluate import matches
from udfs.messages.reference import read_message, read_packet
from udfs.messages.sequence import session_id
from udfs.messages.specification import Specification
from udfs.network.labels import TREE
from udfs.network.network import Network
from udfs.network.rows import network_from_rows, tree_from_row
from udfs.stacks.dissect import dissect
from udfs.stacks.forwarding import ForwardingModel, network_tables
from udfs.stop_request import StopRequest

pytestmark = pytest.mark.integration

#: What headers say in turn; nobody is no host, and h4 no publisher.
TOLD = ("feed1", "h3", "feed1", "nobody", None, "h4", "h3")


def publish(deployment: Deployment) -> None:
    producer = KafkaProducer(bootstrap_servers=deployment.servers, acks="all")
    for number, packet in enumerate(records()):
        told = TOLD[number % len(TOLD)]
        headers = [("from", b"feed9"), ("from", told.encode())] if told else [("to", b"feed1")]
        producer.send(deployment.settings.topic, packet, partition=number % 2, headers=headers)
    producer.flush()
    producer.close()


def received(
    network: Network, model: ForwardingModel, frames: list[bytes]
) -> tuple[dict[str, list[verification.Receipt]], Counter[tuple[str, str]]]:
    """What each host gets, and how many notifications each publisher sends it."""
    address = {host.ipv4: host.name for host in network.hosts.values()}
    hosts: dict[str, list[verification.Receipt]] = {name: [] for name in network.hosts}
    sent: Counter[tuple[str, str]] = Counter()
    for frame in frames:
        found = dissect(frame)
        sender = address[found.ipv4.source]
        receipt = verification.Receipt(found.session, found.sequence, found.messages)
        for host, copies in model.deliver(sender, found.labels).hosts.items():
            hosts[host] += [receipt] * copies
            sent[sender, host] += copies
    return hosts, sent


def proved(deployment: Deployment, itch: Specification) -> verification.Expectation:
    """What each host is owed, by the ledger and by brute force."""
    made = RecordedBatches(deployment.settings, deployment.tables, SessionRun(), itch)
    topics = deployment.topics
    found = topics.read_all()
    made.told = topics.publishers
    return verification.expected(
        found, made.batches, itch, deployment.settings.topic, read=made.read
    )


def matched(deployment: Deployment, itch: Specification) -> dict[str, int]:
    """Messages that each rule is true of, one by one, in records whose publisher may send."""
    rules = {name: parse_rule(text, itch).condition for name, (_, text) in RULES.items()}
    topics = deployment.topics
    found = dict.fromkeys(rules, 0)
    for partition, offset, value in topics.read_all():
        if topics.publishers.get((partition, offset)) not in ("feed1", "h3"):
            continue
        for message in read_packet(value)[2]:
            with suppress(MessageError):
                event = read_message(itch, message)
                for name, condition in rules.items():
                    found[name] += matches(condition, event)
    return found


def test_each_publishers_records_are_its_own_from_the_header_to_the_statistics(
    deployment: Deployment, itch: Specification, tmp_path: Any
):
    deployment.sql("UPDATE {} SET role = 'publisher' WHERE host = 'h3'", "hosts")
    deployment.set(publisher="feed1,h3,nobody", publisher_by="header:from", mtu=1400)
    publish(deployment)
    deployment.run()

    network = network_of(deployment)
    model = model_of(deployment, network)
    frames = deployment.frames()
    hosts, sent = received(network, model, frames)
    owed = proved(deployment, itch)
    # By the ways of two publishers, in whose order nothing is said.
    assert owed.total > 50
    tallies = verification.compare(owed, hosts)
    assert (tallies.missing, tallies.extra, tallies.duplicates, tallies.misnumbered) == (0,) * 4
    assert {sender for sender, _ in sent} == {"feed1", "h3"}

    ledger = deployment.ledger
    assert sum(row["dead_letters"] for row in ledger) == owed.dead_letters.total()
    assert set(owed.dead_letters) == {"unknown_publisher", "no_publisher"}
    counted: Counter[tuple[str, str]] = Counter()
    for row in deployment.tables.rows("delivery_statistics"):
        counted[row["publisher"], row["subscriber"]] += row["notifications"]
    assert counted == sent
    published = {row["publisher"] for row in deployment.tables.rows("publication_statistics")}
    assert published == {"feed1", "h3"}

    # What each rule has matched, of records that may be sent.
    subscription_matches.define(deployment.spark, deployment.tables, deployment.settings)
    view = deployment.spark.sql("SELECT id, messages FROM subscription_matches").collect()
    told = {row["id"]: row["messages"] for row in view}
    assert told == matched(deployment, itch) and min(told.values()) > 10

    # The table has the stacks of who sent to whom, and their way begins at the publisher.
    stacks = deployment.tables.rows("header_stacks")
    pairs = {(row["publisher"], tuple(row["receivers"])) for row in stacks}
    for row in deployment.tables.rows("publication_statistics"):
        assert (row["publisher"], tuple(row["receivers"])) in pairs
    for row in stacks:
        went = model.deliver(row["publisher"], tuple(row["labels"]))
        assert set(went.hosts) == set(row["part_receivers"])

    # Computed again, each frame is the same, and its way begins at its publisher.
    explanation = SentExplanation(deployment.spark, deployment.settings, deployment.tables)
    chosen = {}
    for frame in frames:
        chosen.setdefault(dissect(frame).ipv4.source, frame)
    assert len(chosen) == 2
    for source, frame in chosen.items():
        parts = dissect(frame)
        told = explanation.explain(parts.session.decode(), parts.sequence)
        same = [each for each in told["frames"] if each["hex"] == frame.hex()]
        assert len(same) == 1
        assert network.hosts[same[0]["publisher"]].ipv4 == source
        assert same[0]["entry"] == same[0]["publisher"]
        assert set(same[0]["paths"]) == set(model.deliver(same[0]["publisher"], parts.labels).hosts)

    # One subscription over the past: all that its host had by it, of both publishers.
    deployment.set(pcap_path=str(tmp_path / "history"))
    history = History(deployment.spark, deployment.settings, deployment.tables, "side")
    whole = {partition: (0, end) for partition, end in deployment.topics.end_offsets().items()}
    history.deliver(whole, StopRequest())
    again, by_whom = received(network, model, deployment.frames())
    assert {sender for sender, _ in by_whom} == {"feed1", "h3"}
    had, has = (
        Counter((each.session, message) for each in found["h2"] for message in each.messages)
        for found in (hosts, again)
    )
    assert had == has


def test_what_enters_where_executors_are_is_on_record_and_explained_so(
    deployment: Deployment, itch: Specification
):
    """One publisher, and executors of this machine send by the link of another host."""
    deployment.sql("UPDATE {} SET role = 'publisher' WHERE host = 'h3'", "hosts")
    deployment.set(
        publisher="feed1",
        mtu=1400,
        sink_ingresses=f"{socket.gethostname()}=h3,elsewhere=feed1",
        rerequest_identify="name",
    )
    deployment.publish(records()[::2])
    deployment.run()
    entered = deployment.frames()
    deployment.set(sink_ingresses="")
    deployment.publish(records()[1::2])
    deployment.run()
    whole = deployment.frames()

    network = network_of(deployment)
    model = model_of(deployment, network)
    hosts: dict[str, list[verification.Receipt]] = {name: [] for name in network.hosts}
    for link, frames in (("h3", entered), ("feed1", whole[len(entered) :])):
        for frame in frames:
            found = dissect(frame)
            assert found.ipv4.source == network.hosts["feed1"].ipv4
            receipt = verification.Receipt(found.session, found.sequence, found.messages)
            for host, copies in model.deliver(link, found.labels).hosts.items():
                hosts[host] += [receipt] * copies
    tallies = verification.compare(proved(deployment, itch), hosts)
    assert (tallies.missing, tallies.extra, tallies.duplicates, tallies.misnumbered) == (0,) * 4

    # Its records are feed1's, and trees begin where they enter: that is what retuning weighs.
    statistics = deployment.tables.rows("delivery_statistics")
    assert {row["publisher"] for row in statistics} == {"feed1"}
    publications = deployment.tables.rows("publication_statistics")
    assert {row["publisher"] for row in publications} == {"feed1", "h3"}
    record = read_record(deployment.tables, 1000)
    assert {each.publisher for each in record.publications} == {"feed1", "h3"}
    assert record.covered == 1
    for row in deployment.tables.rows("header_stacks"):
        assert set(model.deliver(row["publisher"], tuple(row["labels"])).hosts) == set(
            row["part_receivers"]
        )

    # Each is explained by the link that it took then, whatever is set now.
    explanation = SentExplanation(deployment.spark, deployment.settings, deployment.tables)
    for link, frame in (("h3", entered[0]), ("feed1", whole[-1])):
        parts = dissect(frame)
        told = explanation.explain(parts.session.decode(), parts.sequence)
        (same,) = [each for each in told["frames"] if each["hex"] == frame.hex()]
        assert (same["publisher"], same["entry"]) == ("feed1", link)
        assert all(path[0] == link for path in same["paths"].values())

    service = Service(deployment)
    try:
        client = Client(service.rerequests)
        for host in ("h1", "h2", "h4"):
            for partition in range(2):
                session = session_id(deployment.settings.topic, partition)
                again = [read_packet(each) for each in client.all(host, session)]
                had = [each for each in hosts[host] if each.session == session]
                assert [(s, n, tuple(m)) for s, n, m in again] == sorted(map(tuple, had))
    finally:
        service.close()


def test_hosts_get_again_what_they_lost_of_each_and_trees_follow_what_all_publish(
    deployment: Deployment, itch: Specification, tmp_path: Any
):
    deployment.sql("UPDATE {} SET role = 'publisher' WHERE host = 'h3'", "hosts")
    deployment.set(
        publisher="feed1,h3", mtu=1400, rerequest_identify="name", p4_folder=str(P4), wait_seconds=5
    )
    deployment.publish(records()[::2])
    deployment.run()
    network = network_of(deployment)
    frames = deployment.frames()
    hosts, sent = received(network, model_of(deployment, network), frames)
    assert {sender for sender, _ in sent} == {"feed1", "h3"}

    # Each asks for all that it had, of the session of each publisher.
    service = Service(deployment)
    try:
        client = Client(service.rerequests)
        asked = 0
        for host in ("h1", "h2", "h4"):
            for partition in range(2):
                session = session_id(deployment.settings.topic, partition)
                again = [read_packet(each) for each in client.all(host, session)]
                had = [each for each in hosts[host] if each.session == session]
                assert [(s, n, tuple(m)) for s, n, m in again] == sorted(map(tuple, had))
                asked += len(had)
        assert asked == sum(sent.values()) > 50
    finally:
        service.close()

    # Trees for what both have published, on switches with room for one: the old goes first.
    def retune() -> int:
        given = ["--strategies", "hops,relation", "--rules", "1", "--min-saving", "0"]
        given += ["--report", str(tmp_path / "report")]
        asked = retune_trees.parser().parse_args(given)
        return retune_trees.work(asked, deployment.settings, Lifecycle())

    old = {row["tree_id"] for row in deployment.tables.rows("virtual_trees")}
    assert retune() == retune_trees.MORE
    moved = {number: ("retiring", "retired") for number in old}
    deployment.tables.move("virtual_trees", "tree_id", "state", moved)
    assert retune() == retune_trees.DONE
    report = json.loads((tmp_path / "report" / "retune.json").read_text())
    assert report["record"]["publications"] > len({host for _, host in sent})
    new = {row["tree_id"] for row in deployment.tables.rows("virtual_trees")} - old
    assert new
    installed = {number: ("installing", "active") for number in new}
    deployment.tables.move("virtual_trees", "tree_id", "state", installed)

    deployment.publish(records()[1::2])
    deployment.run()
    after = deployment.frames()[len(frames) :]
    more, by_whom = received(network, model_of(deployment, network), after)
    for host, receipts in more.items():
        hosts[host] += receipts
    owed = proved(deployment, itch)
    tallies = verification.compare(owed, hosts)
    assert (tallies.missing, tallies.extra, tallies.duplicates, tallies.misnumbered) == (0,) * 4
    assert {sender for sender, _ in by_whom} == {"feed1", "h3"}
    # Both use the new trees, and no old one.
    labels = {"feed1": set(), "h3": set()}
    address = {host.ipv4: host.name for host in network.hosts.values()}
    for frame in after:
        found = dissect(frame)
        labels[address[found.ipv4.source]] |= {
            number for kind, number in map(network.labels.split, found.labels) if kind == TREE
        }
    assert all(used and used <= new for used in labels.values())


def network_of(deployment: Deployment) -> Network:
    return network_from_rows(
        *(deployment.tables.rows(name) for name in ("switches", "hosts", "links"))
    )


def model_of(deployment: Deployment, network: Network) -> ForwardingModel:
    """By the trees that switches hold now."""
    trees = map(tree_from_row, deployment.tables.rows("virtual_trees"))
    held = [tree for tree in trees if tree.state != "retired"]
    return ForwardingModel(network, network_tables(network, held))


def test_each_publisher_has_a_way_or_an_error_that_says_how_to_name_one():
    def opener(**values: Any) -> Opener:
        return Opener(sink_options(Settings(publisher="feed1,feed2", **values)))

    named = opener(sink_publishers="feed1=10.0.0.1:1,feed2=[::1]:2", udp_window=3)
    expected = SinkOptions("udp", "[::1]:2", 3, path=Settings().pcap_path, alone=False)
    assert named.way("feed2", "s2") == expected
    by_switch = opener(udp_endpoint="{switch}.example:9", sink_publishers="feed1=far:1")
    ways = [by_switch.way(*each).endpoint for each in (("feed1", "s1"), ("feed2", "s2"))]
    assert ways == ["far:1", "s2.example:9"]
    raw = opener(sink="af_packet", interface="to-{publisher}")
    assert raw.way("feed2", "s2").interface == "to-feed2"
    files = opener(sink="pcap")
    assert files.way("feed1", "s1") == files.way("feed2", "s2")
    with pytest.raises(SinkError, match=r"NO_WAY.*'feed2'.*sink\.publishers"):
        opener(udp_endpoint="far:1", sink_publishers="feed1=near:1").way("feed2", "s2")
    with pytest.raises(SettingsError, match=r"BAD_VALUE.*sink\.udp\.endpoint"):
        opener(sink_publishers="feed1=near:1")
    with pytest.raises(SettingsError, match=r"BAD_VALUE.*names one"):
        sink_options(Settings(udp_endpoint="far:1", sink_publishers="feed1=near:1"))


def test_a_setting_that_tells_publishers_apart_asks_for_several():
    with pytest.raises(SettingsError, match=r"publisher\.by is 'header:from'.*names one host"):
        Settings.read([("spark.stackcast.publisher.by", "header:from")])
