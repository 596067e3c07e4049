"""Hosts request lost notifications again, and explanations of others: real Kafka, Spark, Delta."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from crash_world import ROOT, Program
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition
from kafka_topics import kafka_topic
from pcap_deployment import (
    MODEL,
    PUBLISHER,
    RULES,
    Deployment,
    attribute_deployment,
    fill,
    records,
)
from ports import free_port
from pyspark.sql import SparkSession
from rerequesting import (
    HOSTS,
    WAIT_S,
    Client,
    Service,
    check,
    count_of,
    everything,
    frames,
    received,
    repaired,
    sent,
    sent_to,
    sequence_of,
)
from waiting import until

from stackcast.cli.explain import text_of
from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.jobs.adapters.replay.recorded_settings import with_recorded
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.lab.up.broker import Broker
from stackcast.udfs.errors import ReplayError
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.filters.subscriptions import check as check_rules
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.sequence import session_id, split_sequence
from stackcast.udfs.messages.summaries import GONE, Summary, is_summary, request, unpack
from stackcast.udfs.messages.summary_keys import HostKeys, SummaryKey
from stackcast.udfs.stacks.dissect import Dissection, dissect

pytestmark = pytest.mark.integration

#: Key of the summaries.
KEY = SummaryKey(7, b"\x5a" * 32)


@pytest.fixture(scope="module")
def stream(
    spark: SparkSession,
    broker: Broker,
    empty_tables: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Deployment:
    """Returns a stream that ran twice, with edits of rules and of the network while it ran."""
    folder = tmp_path_factory.mktemp("stream")
    shutil.copytree(empty_tables, folder / "tables")
    fill(open_tables(spark, str(folder / "tables")))
    deployment = Deployment(
        spark,
        broker.bootstrap_servers,
        folder,
        max_offsets_per_trigger=60,
        rerequest_identify="name",
        summary_keys=str(key_file(folder / "keys", KEY)),
    )
    packets = records()

    def edit_rules() -> None:
        deployment.change("subscriptions", {"id": "high"}, filter="price > 20")
        deployment.publish(packets[60:150])

    def edit_network() -> None:
        deployment.change("virtual_trees", {}, state="retiring")
        deployment.change("links", {"neighbor": "h4"}, up=False)
        deployment.publish(packets[150:200])

    deployment.publish(packets[:60])
    deployment.run(edit_rules, edit_network)
    deployment.change("links", {"neighbor": "h4"}, up=True)
    # From here on a rule keeps state. Frames that were sent before keep the earlier settings.
    (rule, *_) = deployment.tables.rows("subscriptions")
    counting = {"id": "many", "subscriber": "h4", "filter": "count(60000000000) > 9 and price > 0"}
    deployment.tables.append("subscriptions", [rule | counting])
    deployment.set(mtu=600)
    deployment.publish(packets[200:])
    deployment.run()
    return deployment


def key_file(path: Path, key: SummaryKey) -> Path:
    path.touch(0o600)
    path.write_text(f"{key.id} {key.secret.hex()}\n")
    return path


@pytest.fixture(scope="module")
def service(stream: Deployment) -> Iterator[Service]:
    """Returns a service that several tests use, and which has computed their ranges before."""
    started = Service(stream)
    yield started
    started.close()


@pytest.fixture
def counting_service(stream: Deployment) -> Iterator[Service]:
    """Returns a new service."""
    started = Service(stream)
    yield started
    started.close()


def sessions(stream: Deployment) -> list[bytes]:
    topic = kafka_topic(stream.settings)
    return [session_id(topic, partition) for partition in range(2)]


# This is the first test, because the service that others share writes into the same table.
def test_a_service_records_the_requests_of_each_host(stream):
    session = sessions(stream)[0]
    service = Service(stream)
    client = Client(service.rerequests)
    notifications = sent(stream)["h1", session]
    for _ in range(3):
        client.ask("h1", session, 0, 65535)
    client.ask("h2", session, 2**64 - 1)
    assert service.counts("answered", 3) and service.counts("ahead", 1)
    registry = service.metrics.registry
    requests = registry.get_sample_value("stackcast_host_rerequests_total", {"host": "h1"})
    service.close()
    (row,) = _summed(stream.tables.rows("rerequest_statistics"))
    assert (row["subscriber"], row["requests"], requests) == ("h1", 3, 3)
    assert row["notifications"] % 3 == 0 and 0 < row["notifications"] // 3 <= len(notifications)
    first = row["notifications"] // 3
    assert row["bytes"] == 3 * sum(map(len, notifications[:first]))
    assert (row["unavailable"], row["rejected"]) == (0, 0)


def _summed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Returns the sum of the rows of each host; the service adds rows every few seconds."""
    sums: dict[object, dict[str, object]] = {}
    for row in rows:
        into = sums.setdefault(row["subscriber"], {"subscriber": row["subscriber"]})
        for name in ("requests", "notifications", "bytes", "unavailable", "rejected"):
            into[name] = into.get(name, 0) + row[name]
    return list(sums.values())


def test_answers_are_byte_for_byte_what_the_stream_sent_to_that_host(stream, service):
    expected = sent(stream)
    assert len({tuple(sorted(row["versions"].items())) for row in stream.ledger}) >= 4
    assert {row["settings"]["mtu"] for row in stream.ledger} == {"1500", "600"}
    answers = everything(service.rerequests, HOSTS, sessions(stream))
    assert {key: answer for key, answer in answers.items() if answer} == expected
    # The host without a subscription gets no notification of the other hosts.
    assert not any(host == "h3" for host, _ in expected)
    assert all(len(expected[h, s]) > 10 for h in ("h1", "h2", "h4") for s in sessions(stream))


def test_an_answer_has_the_requested_number_of_messages_and_at_least_one_notification(
    stream, service
):
    session = sessions(stream)[0]
    notifications = sent(stream)["h1", session]
    client = Client(service.rerequests)
    for count in (0, 1, 5, 40):
        for first in range(0, len(notifications) - 1, 7):
            sequence = sequence_of(notifications[first])
            answer, summary = client.ask("h1", session, sequence, count)
            check(answer, summary)
            assert answer == notifications[first : first + len(answer)]
            messages = sum(map(count_of, answer))
            following = notifications[first + len(answer) : first + len(answer) + 1]
            assert len(answer) == 1 or messages <= count
            if following:
                assert summary.until == sequence_of(following[0])
                assert messages + count_of(following[0]) > count
    assert client.all("h1", session, 3) == notifications


def test_a_request_beyond_the_ledger_gets_an_empty_range(stream, counting_service):
    session = sessions(stream)[1]
    end = max(p["until_offset"] for r in stream.ledger for p in r["partitions"][1:]) << 26
    for sequence in (end, end + 12345, 2**64 - 1):
        answer, summary = Client(counting_service.rerequests).ask("h1", session, sequence)
        assert not answer and summary == Summary(session, sequence, sequence, 0, 0, 0)
    assert counting_service.counts("ahead", 3)


def test_a_service_that_is_ready_has_the_newest_notifications_of_all_hosts(
    stream, counting_service
):
    rerequests = counting_service.rerequests
    until(lambda: rerequests.ready, seconds=WAIT_S)
    computed = rerequests.computed
    assert computed == 1
    partition, newest = rerequests._replay.ledger.ranges.last_sent()
    session = sessions(stream)[partition]
    begin = newest.last
    answers = []
    for host in HOSTS:
        answer, _ = Client(rerequests).ask(host, session, begin)
        assert answer == [
            d for d in sent(stream).get((host, session), []) if sequence_of(d) >= begin
        ]
        answers += answer
    assert answers
    assert rerequests.computed == computed


def test_strangers_and_nonsense_are_counted_and_get_no_answer(stream, counting_service):
    client = Client(counting_service.rerequests)
    session = sessions(stream)[0]
    client.send(request(session, 0, 1, "stranger"))
    client.send(request(session, 0, 1))
    client.send(request(b"NOSESSION1", 0, 1, "h1"))
    for nonsense in (b"", b"x" * 19, b"x" * 276, session + bytes(10) + b"\xff\xfe"):
        client.send(nonsense)
    # The service answers the next valid request, and no other.
    answer, _ = client.ask("h1", session, 0, 1)
    assert answer == sent(stream)["h1", session][:1]
    assert counting_service.counts("unknown_host", 2)
    assert counting_service.counts("unknown_session", 1)
    assert counting_service.counts("malformed", 4)
    client.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.socket.recv(65536)


def test_requests_that_the_kernel_dropped_unread_are_counted(stream):
    service = Service(stream, serve=False)
    client = Client(service.rerequests)
    # More than the receive buffer holds, before anybody reads.
    for _ in range(30_000):
        client.send(b"x" * 19)
    service.thread.start()
    try:
        until(lambda: service.ended("malformed") + service.ended("dropped") == 30_000)
        assert service.ended("dropped") > 1_000
    finally:
        service.close()


def test_a_service_identifies_hosts_by_address_and_ignores_their_names(stream):
    for number, host in enumerate(HOSTS[:2], 2):
        stream.change("hosts", {"host": host}, ipv4=f"127.0.0.{number}")
    service = Service(stream, rerequest_identify="address")
    session = sessions(stream)[0]
    try:
        clients = [Client(service.rerequests, f"127.0.0.{number}") for number in (2, 3)]
        with ThreadPoolExecutor(len(clients)) as pool:
            answers = pool.map(lambda client: client.all("h4", session), clients)
            assert [*answers] == [sent(stream)[host, session] for host in HOSTS[:2]]
        Client(service.rerequests, "127.0.0.9").send(request(session, 0, 1, "h1"))
        assert service.counts("unknown_host", 1)
    finally:
        service.close()


@pytest.mark.parametrize("hosts", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_requests_of_thousands_of_hosts_at_once_cost_one_or_two_passes(
    stream, counting_service, hosts
):
    session = sessions(stream)[0]
    names = [f"{hosts}guest{number}" for number in range(hosts)]
    row = stream.tables.rows("hosts")[0]
    stream.tables.append(
        "hosts",
        [
            row | {"host": name, "ipv4": f"10.9.{number >> 8}.{number & 255}", "mac": number}
            for number, name in enumerate(names)
        ],
    )
    client = Client(counting_service.rerequests)

    def knows_hosts() -> bool:
        """Whether the service has read the new hosts; it does so once a second at most."""
        client.ask("h1", session, 2**64 - 1)
        return bool(counting_service.rerequests._hosts.identify("", names[-1]))

    until(knows_hosts, seconds=WAIT_S)
    rows = len(stream.ledger)
    answers = 0
    for begin in range(0, len(names), 500):
        for name in names[begin : begin + 500]:
            client.send(request(session, 0, 65535, name))
        for _ in range(500):
            answer, summary = client.answer()
            check(answer, summary)
            assert not answer and summary.until > 0
            answers += 1
    assert answers == len(names)
    assert 0 < counting_service.rerequests.computed <= 2 * rows


def test_a_receiver_that_loses_a_tenth_ends_with_all_its_notifications(stream, service):
    losses = 0
    for host in ("h1", "h4"):
        datagrams = received(stream)[host]
        remaining = [d for number, d in enumerate(datagrams) if (number * 7919 + 13) % 10]
        losses += len(datagrams) - len(remaining)
        ends = {
            s: max(unpack(d).until for d in datagrams if is_summary(d) and d[:10] == s)
            for s in sessions(stream)
        }
        keys = HostKeys([KEY.for_host(host)])
        delivered, receiver = repaired(service.rerequests, host, remaining, ends, keys)
        assert sorted(delivered) == sorted(sent_to(stream, host))
        # All summaries of the stream and of the service have the tag of this host.
        assert receiver.statistics.summaries > 2 and not receiver.unproven()
        assert receiver.statistics.forged == 0
    assert losses > 20


def test_only_the_key_of_a_host_proves_its_summaries(stream, service):
    for host, datagrams in received(stream).items():
        summaries = [d for d in datagrams if is_summary(d)]
        client = Client(service.rerequests)
        client.send(request(sessions(stream)[0], 0, name=host))
        while not is_summary(datagram := client.socket.recv(65536)):
            client.takes_cookie(datagram)
        # No rule names h3, so the stream sends it no summary.
        assert len({summary[:10] for summary in summaries}) == (0 if host == "h3" else 2)
        for owner in HOSTS:
            keys = HostKeys([KEY.for_host(owner)])
            assert {keys.proves(summary) for summary in [*summaries, datagram]} == {owner == host}


def test_no_file_of_a_stream_contains_keys(stream):
    files = [
        path
        for folder in (stream.settings.checkpoint, stream.settings.tables)
        for path in Path(folder).rglob("*")
        if path.is_file()
    ]
    secrets = [KEY.secret, *(KEY.for_host(host).secret for host in HOSTS)]
    words = [form for secret in secrets for form in (secret, secret.hex().encode())]
    assert len(files) > 50
    assert not [path for path in files if any(word in path.read_bytes() for word in words)]
    spark_settings = str(stream.spark.sparkContext.getConf().getAll())
    assert KEY.secret.hex() not in f"{stream.settings!r} {spark_settings}"


def conf(values: dict[str, object]) -> str:
    """Returns settings in the form of ``PYSPARK_SUBMIT_ARGS``."""
    own = {f"spark.stackcast.{key}": value for key, value in values.items()}
    own |= {"spark.master": "local[1]", "spark.driver.memory": "1g"}
    return " ".join(f"--conf {key}={value}" for key, value in own.items()) + " pyspark-shell"


@pytest.mark.long
def test_service_and_receivers_as_programs_repair_losses(stream, tmp_path):
    """Run the job and the command in their own processes, until SIGTERM ends them."""
    settings = stream.settings
    port = free_port()
    service = Program(
        tmp_path,
        str(ROOT / "jobs" / "rerequest.py"),
        PYSPARK_SUBMIT_ARGS=conf(
            {
                "kafka.bootstrap.servers": stream.servers,
                "topic": settings.topic,
                "tables": settings.tables,
                "checkpoint": settings.checkpoint,
                "publisher": settings.publisher,
                "mtu": settings.mtu,
                "rerequest.listen": f"127.0.0.1:{port}",
                "rerequest.identify": "name",
                "summary.keys": settings.summary_keys,
                "metrics.port": 0,
            }
        ),
    )
    hosts = {}
    for host in ("h1", "h3"):
        host_port = free_port()
        (tmp_path / host / "receipts").mkdir(parents=True)
        written = tmp_path / host / "receipts" / f"{host}.mold"
        options = f"--listen 127.0.0.1:{host_port} --summary-port 0 --rerequest 127.0.0.1:{port}"
        options += f" --name {host} --order sequence --drop 0.1 --receipts {written} --json"
        if host != "h3":
            options += f" --key-file {key_file(tmp_path / host / 'keys', KEY.for_host(host))}"
        receiver = Program(
            tmp_path,
            "-m",
            *("stackcast.cli.main", "receive", *options.split()),
            *("--topic", settings.topic, "--topic-id", kafka_topic(settings).id),
            *("--partitions", "2", "--from-start"),
        )
        receiver.until("listening")
        hosts[host] = receiver, host_port, written
    try:
        service.until(f"ready: re-requests are answered at 127.0.0.1:{port}")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            for host, (_, host_port, _) in hosts.items():
                for number, datagram in enumerate(received(stream)[host]):
                    wire.sendto(datagram, ("127.0.0.1", host_port))
                    # The socket's buffer holds some hundred datagrams; more would be lost.
                    if number % 50 == 49:
                        time.sleep(0.01)
        for host, (receiver, _, written) in hosts.items():
            notifications = sent_to(stream, host)
            until(partial(has_notifications, written, len(notifications)), receiver, service)
            assert sorted(complete(written)) == sorted(notifications), receiver.output
            until(partial(has_caught_up, receiver), receiver, service)
            receiver.process.send_signal(signal.SIGTERM)
            code = receiver.end()
            report = json.loads(receiver.output.splitlines()[-1])
            # The last range of a session may have nothing for this host, and not be confirmed yet.
            is_open = any(row["complete"] < row["announced"] for row in report["sessions"])
            assert code == is_open, receiver.output[-4000:]
            counts = report["statistics"]
            assert counts["delivered"] == len(notifications) and counts["losses"] == 0
            assert counts["forged"] == 0
            if notifications:
                assert counts["repaired"] > 0
        service.process.send_signal(signal.SIGTERM)
        assert service.end() == 0, service.output[-4000:]
    finally:
        for program in (service, *(receiver for receiver, _, _ in hosts.values())):
            program.kill()


def has_notifications(file: Path, count: int) -> bool:
    """Returns whether a receiver has written that number of notifications."""
    return len(complete(file)) >= count


def has_caught_up(receiver: Program) -> bool:
    """Returns whether a receiver has everything that was sent in both sessions before."""
    return receiver.output.count("caught up") == 2


def complete(file: Path) -> list[bytes]:
    """Returns the complete datagrams of a file that a receiver writes."""
    content = file.read_bytes() if file.exists() else b""
    datagrams: list[bytes] = []
    begin = 0
    while begin + 2 <= len(content):
        end = begin + 2 + int.from_bytes(content[begin : begin + 2])
        if end > len(content):
            break
        datagrams.append(content[begin + 2 : end])
        begin = end
    return datagrams


@pytest.mark.long
def test_events_of_attributes_are_sent_again_and_explained(spark, broker, empty_tables, tmp_path):
    """The stream registers names while it runs; answers use the ids that a batch used."""
    rules = {"warm": ("h1", "temp > 20"), "damp": ("h2", "hum > 15 and temp < 25")}
    servers = broker.bootstrap_servers
    deployment = attribute_deployment(spark, servers, tmp_path, empty_tables, rules)
    events = [json.dumps({"temp": n % 40, "hum": n % 30}).encode() for n in range(120)]

    def edit_and_publish() -> None:
        deployment.change("subscriptions", {"id": "damp"}, filter="wind > 3")
        deployment.publish([json.dumps({"temp": 1, "wind": n}).encode() for n in range(60)])

    deployment.publish([*events, b'{"temp": '])
    deployment.run(edit_and_publish)
    expected = sent(deployment)
    assert {host for host, _ in expected} == {"h1", "h2"}
    service = Service(deployment)
    try:
        answers = everything(service.rerequests, HOSTS, sessions(deployment))
        assert {key: answer for key, answer in answers.items() if answer} == expected
    finally:
        service.close()
    frame = next(f for f in reversed(frames(deployment)) if dissect(f).summary is None)
    explanation = explained(deployment, frame)
    (rule,) = explanation["rules"]
    assert (rule["id"], rule["filter"]) == ("damp", "wind > 3")
    assert [event["wind"] for event in explanation["events"]]


@pytest.fixture(scope="module")
def counting(
    spark: SparkSession,
    broker: Broker,
    empty_tables: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Deployment:
    """Returns a stream that sent two batches, with a rule that counts over both."""
    folder = tmp_path_factory.mktemp("counting")
    shutil.copytree(empty_tables, folder / "tables")
    rules = RULES | {"many": ("h3", "count(60000000000) > 150 and price > 0")}
    fill(open_tables(spark, str(folder / "tables")), rules)
    deployment = Deployment(
        spark,
        broker.bootstrap_servers,
        folder,
        max_offsets_per_trigger=len(records()) // 2 + 2,
        rerequest_identify="name",
    )
    deployment.publish(records())
    deployment.run()
    return deployment


def test_notifications_of_rules_with_state_are_sent_again(counting):
    assert [row["batch_id"] for row in counting.ledger] == [0, 1]
    expected = sent(counting)
    service = Service(counting)
    try:
        answers = everything(service.rerequests, HOSTS, sessions(counting), 9)
        assert {key: answer for key, answer in answers.items() if answer} == expected
    finally:
        service.close()
    assert {host for host, _ in expected} == {"h1", "h2", "h3", "h4"}


def test_a_batch_of_rules_with_state_is_gone_without_its_state(counting):
    state = Path(counting.settings.checkpoint) / "stackcast-state" / "0.bin"
    hidden = state.rename(state.with_suffix(".hidden"))
    session = sessions(counting)[0]
    border = next(p["from_offset"] for p in counting.ledger[1]["partitions"] if not p["partition"])
    service = Service(counting)
    try:
        client = Client(service.rerequests)
        answer, summary = client.ask("h1", session, border << 26)
        assert not answer and summary.gone and summary.until > border << 26
        # The first batch started without state, and its state is that of the second one.
        answer, summary = client.ask("h1", session, 0)
        check(answer, summary)
        assert answer == sent(counting)["h1", session]
    finally:
        service.close()
        hidden.rename(state)


def explained(stream: Deployment, frame: bytes, host: str = "") -> dict:
    parts = dissect(frame)
    session = parts.session.decode()
    # The ledger has the topic of the session, so properties need not name it.
    nameless = dataclasses.replace(stream.settings, topic="itch.raw", given=frozenset())
    settings = with_recorded(nameless, stream.tables, session)
    explanation = SentExplanation(stream.spark, settings, stream.tables)
    return explanation.explain(session, parts.sequence, host)


def test_an_explanation_has_the_rules_the_versions_and_the_paths(stream, itch):
    by_batch = {}
    ledger = stream.ledger
    for frame in frames(stream):
        parts = dissect(frame)
        if parts.summary is None:
            offset = parts.sequence >> 26
            partition = sessions(stream).index(parts.session)
            row = next(
                r
                for r in ledger
                for p in r["partitions"]
                if p["partition"] == partition and p["from_offset"] <= offset < p["until_offset"]
            )
            by_batch[row["batch_id"]] = row, frame
    # Batches before a rule kept state, whose matches need no earlier events.
    plain = [n for n, (row, _) in by_batch.items() if row["settings"]["mtu"] == "1500"]
    first, last = by_batch[min(plain)], by_batch[max(plain)]
    assert first[0]["versions"] != last[0]["versions"]
    for row, frame in (first, last):
        parts = dissect(frame)
        explanation = explained(stream, frame)
        assert explanation["batch"] == row["batch_id"]
        assert explanation["versions"] == row["versions"]
        assert (explanation["offset"], explanation["session"]) == (
            parts.sequence >> 26,
            parts.session.decode(),
        )
        delivered = MODEL.deliver(PUBLISHER, parts.labels)
        (same_frame,) = [f for f in explanation["frames"] if f["hex"] == frame.hex()]
        assert set(same_frame["receivers"]) == set(delivered.hosts)
        hops = {(u, v) for u, v, _ in delivered.links}
        for host, path in same_frame["paths"].items():
            assert (path[0], path[-1]) == (PUBLISHER, host)
            assert set(pairwise(path)) <= hops
        # The explanation lists exactly the rules of that version that match.
        rows = stream.tables.rows("subscriptions", row["versions"]["subscriptions"])
        subscriptions = [Subscription(r["id"], r["subscriber"], r["filter"]) for r in rows]
        rules, _ = check_rules(subscriptions, itch, set(HOSTS), PUBLISHER)
        events = [read_message(itch, message) for message in parts.messages]
        assert {rule["id"] for rule in explanation["rules"]} == {
            rule.id for rule in rules for event in events if matches(rule.condition, event)
        }
        filters = {r["id"]: r["filter"] for r in rows}
        explained_rules = explanation["rules"]
        assert all(filters[rule["id"]] == rule["filter"] for rule in explained_rules)
        explained_events = explanation["events"]
        assert [e["add_order.price"] for e in explained_events if "add_order.price" in e] == [
            itch.field("add_order.price").render(e["add_order.price"])
            for e in events
            if "add_order.price" in e
        ]
        text = text_of(explanation)
        assert f"batch         {row['batch_id']}," in text
        assert all(rule["filter"] in text for rule in explained_rules)


def test_a_message_that_was_not_sent_is_explained_by_a_code(stream):
    explanation = SentExplanation(stream.spark, stream.settings, stream.tables)
    session = sessions(stream)[0].decode()
    sent_places = {s >> 13 for d in frames(stream) for s in places(dissect(d), stream)}
    offset, index = next(
        (offset, index)
        for offset in range(40)
        for index, message in enumerate(read_packet(records()[2 * offset])[2])
        if message and (offset << 13 | index) not in sent_places
    )
    with pytest.raises(ReplayError, match="NO_RECEIVER"):
        explanation.explain(session, offset << 26 | index << 13)
    with pytest.raises(ReplayError, match="NOT_SENT"):
        explanation.explain(session, offset << 26 | 8000 << 13)
    with pytest.raises(ReplayError, match="NOT_RECORDED"):
        explanation.explain(session, 1_000_000 << 26)
    with pytest.raises(ReplayError, match="NO_SESSION"):
        explanation.explain("NOSESSION1", 0)


def places(parts: Dissection, stream: Deployment) -> list[int]:
    """Returns the sequence number of a notification of the first session, or an empty list."""
    is_first = parts.summary is None and parts.session == sessions(stream)[0]
    return [parts.sequence] if is_first else []


def test_an_explanation_for_a_host_has_its_rules_or_the_predicates_that_failed(stream):
    frame = next(f for f in frames(stream) if dissect(f).summary is None)
    for_all_hosts = explained(stream, frame)
    receivers = for_all_hosts["receivers"]
    rules = [rule for rule in for_all_hosts["rules"] if receivers[0] in rule["receivers"]]
    assert rules and explained(stream, frame, receivers[0])["rules"] == rules
    excluded = next(host for host in ("h1", "h2") if host not in receivers)
    explanation = explained(stream, frame, excluded)
    assert explanation["received"] is False
    failed = explanation["rules"]
    assert failed and all(excluded in rule["receivers"] for rule in failed)
    assert not any(rule["matches"] for rule in failed)
    assert all(
        any(p["truth"] != "true" for p in v["predicates"]) for r in failed for v in r["verdicts"]
    )


def test_records_that_the_topic_lost_are_gone_and_later_ones_are_sent_again(stream):
    """This is the last test of the file, because it removes records from the topic."""
    session = sessions(stream)[0]
    expected = sent(stream)["h1", session]
    # Kafka deletes the records of some notifications of the host, and keeps others.
    first = split_sequence(sequence_of(expected[3]))[0] + 1
    admin = KafkaAdminClient(bootstrap_servers=stream.servers)
    admin.delete_records({TopicPartition(stream.settings.topic, 0): first})
    admin.close()
    service = Service(stream)
    try:
        client = Client(service.rerequests)
        answer, summary = client.ask("h1", session, 0)
        assert not answer
        assert summary == Summary(session, 0, first << 26, GONE, 0, 0)
        assert service.counts("gone", 1)
        remaining: list[bytes] = []
        sequence = summary.until
        while True:
            answer, summary = client.ask("h1", session, sequence)
            check(answer, summary)
            if summary.until == sequence:
                break
            remaining += answer
            sequence = summary.until
        assert remaining == [d for d in expected if sequence_of(d) >= first << 26]
        assert 0 < len(remaining) < len(expected)
    finally:
        service.close()
