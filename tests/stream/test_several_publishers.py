"""A stream of several publishers sends, records and explains the notifications of each."""

from __future__ import annotations

import json
import socket
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka_topics import kafka_topic
from paths import COMPILED_P4
from pcap_deployment import RULES, Deployment, records
from rerequesting import Client, Service

from stackcast.jobs import retune_trees
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.replay import subscription_matches
from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.jobs.adapters.replay.history import History
from stackcast.jobs.adapters.retune.record import read_record
from stackcast.jobs.adapters.tables.edits import change_tree_states
from stackcast.jobs.embedded.kinds import SessionRun
from stackcast.jobs.embedded.recorded_batches import RecordedBatches
from stackcast.lab.proof import verification
from stackcast.udfs.errors import MessageError, SettingsError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.sequence import session_id
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network.labels import TREE
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.rows import network_from_rows, tree_from_row
from stackcast.udfs.stacks.dissect import dissect
from stackcast.udfs.stacks.forwarding import ForwardingModel, network_tables
from stackcast.udfs.stop_request import StopRequest

pytestmark = pytest.mark.integration

#: Publishers that the headers name in turn; "unknown" is not a host, and h4 is not a publisher.
HEADERS = ("feed1", "h3", "feed1", "unknown", None, "h4", "h3")


def publish(deployment: Deployment) -> None:
    producer = KafkaProducer(bootstrap_servers=deployment.servers, acks="all")
    for number, packet in enumerate(records()):
        name = HEADERS[number % len(HEADERS)]
        headers = [("from", b"feed9"), ("from", name.encode())] if name else [("to", b"feed1")]
        producer.send(deployment.settings.topic, packet, partition=number % 2, headers=headers)
    producer.flush()
    producer.close()


def received(
    network: Network, model: ForwardingModel, frames: list[bytes]
) -> tuple[dict[str, list[verification.Receipt]], Counter[tuple[str, str]]]:
    """Return the receipts of each host, and the number of notifications by publisher and host."""
    address = {host.ipv4: host.name for host in network.hosts.values()}
    hosts: dict[str, list[verification.Receipt]] = {name: [] for name in network.hosts}
    sent: Counter[tuple[str, str]] = Counter()
    for frame in frames:
        parts = dissect(frame)
        sender = address[parts.ipv4.source]
        receipt = verification.Receipt(parts.session, parts.sequence, parts.messages)
        for host, copies in model.deliver(sender, parts.labels).hosts.items():
            hosts[host] += [receipt] * copies
            sent[sender, host] += copies
    return hosts, sent


def proved(deployment: Deployment, itch: Specification) -> verification.Expectation:
    """Return the messages that each host must receive, by the ledger and by brute force."""
    recorded = RecordedBatches(deployment.settings, deployment.tables, SessionRun(), itch)
    topics = deployment.topics
    all_records = topics.read_all()
    recorded.told = topics.publishers
    return verification.expected(
        all_records, recorded.batches, itch, recorded.topic, read=recorded.read
    )


def matched(deployment: Deployment, itch: Specification) -> dict[str, int]:
    """Return the number of messages that each rule matches, in records of known publishers."""
    rules = {name: parse_rule(text, itch).condition for name, (_, text) in RULES.items()}
    topics = deployment.topics
    counts = dict.fromkeys(rules, 0)
    for partition, offset, value in topics.read_all():
        if topics.publishers.get((partition, offset)) not in ("feed1", "h3"):
            continue
        for message in read_packet(value)[2]:
            with suppress(MessageError):
                event = read_message(itch, message)
                for name, condition in rules.items():
                    counts[name] += matches(condition, event)
    return counts


def test_records_belong_to_their_publisher_from_the_header_to_the_statistics(
    deployment: Deployment, itch: Specification, tmp_path: Any
):
    deployment.change("hosts", {"host": "h3"}, role="publisher")
    deployment.set(publisher="feed1,h3,unknown", publisher_by="header:from", mtu=1400)
    publish(deployment)
    deployment.run()

    network = network_of(deployment)
    model = model_of(deployment, network)
    frames = deployment.frames()
    hosts, sent = received(network, model, frames)
    expectation = proved(deployment, itch)
    # The paths of two publishers differ, so nothing is promised about the order.
    assert expectation.total > 50
    tallies = verification.compare(expectation, hosts)
    assert (tallies.missing, tallies.extra, tallies.duplicates, tallies.misnumbered) == (0,) * 4
    assert {sender for sender, _ in sent} == {"feed1", "h3"}

    ledger = deployment.ledger
    assert sum(row["dead_letters"] for row in ledger) == expectation.dead_letters.total()
    assert set(expectation.dead_letters) == {"unknown_publisher", "no_publisher"}
    counted: Counter[tuple[str, str]] = Counter()
    for row in deployment.tables.rows("delivery_statistics"):
        counted[row["publisher"], row["subscriber"]] += row["notifications"]
    assert counted == sent
    published = {row["publisher"] for row in deployment.tables.rows("publication_statistics")}
    assert published == {"feed1", "h3"}

    # The view counts the matches of each rule in records of known publishers.
    subscription_matches.define(deployment.spark, deployment.tables, deployment.settings)
    view = deployment.spark.sql("SELECT id, messages FROM subscription_matches").collect()
    counts = {row["id"]: row["messages"] for row in view}
    assert counts == matched(deployment, itch) and min(counts.values()) > 10

    # The table has the stacks by publisher and receivers, and their paths start at the publisher.
    stacks = deployment.tables.rows("header_stacks")
    pairs = {(row["publisher"], tuple(row["receivers"])) for row in stacks}
    for row in deployment.tables.rows("publication_statistics"):
        assert (row["publisher"], tuple(row["receivers"])) in pairs
    for row in stacks:
        delivery = model.deliver(row["publisher"], tuple(row["labels"]))
        assert set(delivery.hosts) == set(row["part_receivers"])

    # An explanation computes the same frame again, and its path starts at its publisher.
    explanation = SentExplanation(deployment.spark, deployment.settings, deployment.tables)
    chosen = {}
    for frame in frames:
        chosen.setdefault(dissect(frame).ipv4.source, frame)
    assert len(chosen) == 2
    for source, frame in chosen.items():
        parts = dissect(frame)
        explained = explanation.explain(parts.session.decode(), parts.sequence)
        (same,) = [f for f in explained["frames"] if f["hex"] == frame.hex()]
        assert network.hosts[same["publisher"]].ipv4 == source
        assert same["entry"] == same["publisher"]
        assert set(same["paths"]) == set(model.deliver(same["publisher"], parts.labels).hosts)

    # One subscription over all past records gets what its host received, from both publishers.
    deployment.set(pcap_path=str(tmp_path / "history"))
    history = History(deployment.spark, deployment.settings, deployment.tables, "side")
    spans = {partition: (0, end) for partition, end in deployment.topics.end_offsets().items()}
    history.deliver(spans, StopRequest())
    again, sent_again = received(network, model, deployment.frames())
    assert {sender for sender, _ in sent_again} == {"feed1", "h3"}
    first, second = (
        Counter((r.session, message) for r in host_receipts["h2"] for message in r.messages)
        for host_receipts in (hosts, again)
    )
    assert first == second


@pytest.mark.long
def test_frames_that_enter_at_the_executors_place_are_recorded_and_explained(
    deployment: Deployment, itch: Specification
):
    """There is one publisher; the executors of this machine send by the link of another host."""
    deployment.change("hosts", {"host": "h3"}, role="publisher")
    deployment.set(
        publisher="feed1",
        mtu=1400,
        rerequest_identify="name",
    )
    rows = ((socket.gethostname(), "h3"), ("elsewhere", "feed1"))
    names = ("place", "publisher", "transport")
    ingresses = [dict(zip(names, (*row, None), strict=True)) for row in rows]
    deployment.tables.append("ingresses", ingresses)
    deployment.publish(records()[::2])
    deployment.run()
    entered = deployment.frames()
    deployment.tables.overwrite("ingresses", [])
    deployment.publish(records()[1::2])
    deployment.run()
    frames_of_both = deployment.frames()

    network = network_of(deployment)
    model = model_of(deployment, network)
    hosts: dict[str, list[verification.Receipt]] = {name: [] for name in network.hosts}
    for link, frames in (("h3", entered), ("feed1", frames_of_both[len(entered) :])):
        for frame in frames:
            parts = dissect(frame)
            assert parts.ipv4.source == network.hosts["feed1"].ipv4
            receipt = verification.Receipt(parts.session, parts.sequence, parts.messages)
            for host, copies in model.deliver(link, parts.labels).hosts.items():
                hosts[host] += [receipt] * copies
    tallies = verification.compare(proved(deployment, itch), hosts)
    assert (tallies.missing, tallies.extra, tallies.duplicates, tallies.misnumbered) == (0,) * 4

    # The records belong to feed1. Their trees start where they enter, which retuning weighs.
    statistics = deployment.tables.rows("delivery_statistics")
    assert {row["publisher"] for row in statistics} == {"feed1"}
    publications = deployment.tables.rows("publication_statistics")
    assert {row["publisher"] for row in publications} == {"feed1", "h3"}
    record = read_record(deployment.tables, 1000)
    assert {publication.publisher for publication in record.publications} == {"feed1", "h3"}
    assert record.covered == 1
    for row in deployment.tables.rows("header_stacks"):
        assert set(model.deliver(row["publisher"], tuple(row["labels"])).hosts) == set(
            row["part_receivers"]
        )

    # An explanation has the link that the frame took, not that of the current settings.
    explanation = SentExplanation(deployment.spark, deployment.settings, deployment.tables)
    for link, frame in (("h3", entered[0]), ("feed1", frames_of_both[-1])):
        parts = dissect(frame)
        explained = explanation.explain(parts.session.decode(), parts.sequence)
        (same,) = [f for f in explained["frames"] if f["hex"] == frame.hex()]
        assert (same["publisher"], same["entry"]) == ("feed1", link)
        assert all(path[0] == link for path in same["paths"].values())

    service = Service(deployment)
    try:
        client = Client(service.rerequests)
        for host in ("h1", "h2", "h4"):
            for partition in range(2):
                session = session_id(kafka_topic(deployment.settings), partition)
                again = [read_packet(packet) for packet in client.all(host, session)]
                first = [receipt for receipt in hosts[host] if receipt.session == session]
                assert [(s, n, tuple(m)) for s, n, m in again] == sorted(map(tuple, first))
    finally:
        service.close()


@pytest.mark.long
def test_hosts_repair_losses_and_trees_are_retuned_for_all_publishers(
    deployment: Deployment, itch: Specification, tmp_path: Any
):
    deployment.change("hosts", {"host": "h3"}, role="publisher")
    deployment.set(
        publisher="feed1,h3",
        mtu=1400,
        rerequest_identify="name",
        p4_folder=str(COMPILED_P4),
        wait_seconds=5,
    )
    deployment.publish(records()[::2])
    deployment.run()
    network = network_of(deployment)
    frames = deployment.frames()
    hosts, sent = received(network, model_of(deployment, network), frames)
    assert {sender for sender, _ in sent} == {"feed1", "h3"}

    # Each host requests all its notifications again, from the session of each publisher.
    service = Service(deployment)
    try:
        client = Client(service.rerequests)
        count = 0
        for host in ("h1", "h2", "h4"):
            for partition in range(2):
                session = session_id(kafka_topic(deployment.settings), partition)
                again = [read_packet(packet) for packet in client.all(host, session)]
                first = [receipt for receipt in hosts[host] if receipt.session == session]
                assert [(s, n, tuple(m)) for s, n, m in again] == sorted(map(tuple, first))
                count += len(first)
        assert count == sum(sent.values()) > 50
    finally:
        service.close()

    # Switches have space for one tree: the old one is removed before the trees for both publishers.
    def retune() -> int:
        arguments = ["--strategies", "hops,relation", "--max-rules", "1", "--min-saving", "0"]
        arguments += ["--report", str(tmp_path / "report")]
        options = retune_trees.parser().parse_args(arguments)
        return retune_trees.work(options, deployment.settings, Lifecycle())

    old = {row["tree_id"] for row in deployment.tables.rows("virtual_trees")}
    assert retune() == retune_trees.MORE
    moved = {number: ("retiring", "retired") for number in old}
    change_tree_states(deployment.tables, moved)
    assert retune() == retune_trees.DONE
    report = json.loads((tmp_path / "report" / "retune.json").read_text())
    assert report["record"]["publications"] > len({host for _, host in sent})
    new = {row["tree_id"] for row in deployment.tables.rows("virtual_trees")} - old
    assert new
    installed = {number: ("installing", "active") for number in new}
    change_tree_states(deployment.tables, installed)

    deployment.publish(records()[1::2])
    deployment.run()
    after = deployment.frames()[len(frames) :]
    later, sent_later = received(network, model_of(deployment, network), after)
    for host, receipts in later.items():
        hosts[host] += receipts
    expectation = proved(deployment, itch)
    tallies = verification.compare(expectation, hosts)
    assert (tallies.missing, tallies.extra, tallies.duplicates, tallies.misnumbered) == (0,) * 4
    assert {sender for sender, _ in sent_later} == {"feed1", "h3"}
    # Frames of both publishers use the new trees only.
    labels = {"feed1": set(), "h3": set()}
    address = {host.ipv4: host.name for host in network.hosts.values()}
    for frame in after:
        parts = dissect(frame)
        labels[address[parts.ipv4.source]] |= {
            number for kind, number in map(network.labels.split, parts.labels) if kind == TREE
        }
    assert all(numbers and numbers <= new for numbers in labels.values())


def network_of(deployment: Deployment) -> Network:
    return network_from_rows(
        *(deployment.tables.rows(name) for name in ("switches", "hosts", "links"))
    )


def model_of(deployment: Deployment, network: Network) -> ForwardingModel:
    """Return the forwarding model with the trees that the switches have now."""
    trees = map(tree_from_row, deployment.tables.rows("virtual_trees"))
    installed = [tree for tree in trees if tree.state != "retired"]
    return ForwardingModel(network, network_tables(network, installed))


def test_a_setting_that_distinguishes_publishers_needs_several():
    with pytest.raises(SettingsError, match=r"publisher\.by is 'header:from'.*names one host"):
        Settings.read([("spark.stackcast.publisher.by", "header:from")])
