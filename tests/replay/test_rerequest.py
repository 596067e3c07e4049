"""Hosts ask again for what they lost, and are told why they got what: real Kafka, Spark, Delta."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from crash_world import ROOT, Program
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition
from pcap_deployment import MODEL, PUBLISHER, RULES, Deployment, fill, records
from ports import free_port
from pyspark.sql import SparkSession
from rerequesting import (
    HOSTS,
    PATIENCE,
    Client,
    Service,
    check,
    count_of,
    frames,
    received,
    repaired,
    sent,
    sequence_of,
)

from cli.explain import text_of
from jobs.adapters.planning import formats
from jobs.adapters.replay.explanation import SentExplanation
from jobs.adapters.tables.tables import Tables
from lab.up.broker import Broker
from udfs.errors import ReplayError
from udfs.filters.meaning.evaluate import matches
from udfs.filters.subscriptions import Subscription
from udfs.filters.subscriptions import check as check_rules
from udfs.messages.reference import read_message, read_packet
from udfs.messages.sequence import session_id, split_sequence
from udfs.messages.summaries import GONE, Summary, is_summary, request, unpack
from udfs.messages.summary_keys import HostKeys, SummaryKey
from udfs.stacks.dissect import Dissection, dissect

pytestmark = pytest.mark.integration

#: Of the streams' summaries.
KEY = SummaryKey(7, b"\x5a" * 32)


@pytest.fixture(scope="module")
def stream(
    spark: SparkSession,
    broker: Broker,
    empty_tables: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Deployment:
    """A stream that ran twice, with edits of rules and of the network while it ran."""
    folder = tmp_path_factory.mktemp("stream")
    shutil.copytree(empty_tables, folder / "tables")
    fill(Tables(spark, str(folder / "tables")))
    made = Deployment(
        spark,
        broker.bootstrap_servers,
        folder,
        max_offsets_per_trigger=30,
        rerequest_identify="name",
        summary_keys=str(key_file(folder / "keys", KEY)),
    )
    packets = records()
    quarter = len(packets) // 4

    def edit_rules() -> None:
        made.sql("UPDATE {} SET filter = 'price > 20' WHERE id = 'high'", "subscriptions")
        made.publish(packets[quarter : 2 * quarter])

    def edit_network() -> None:
        made.sql("UPDATE {} SET state = 'retiring'", "virtual_trees")
        made.sql("UPDATE {} SET up = false WHERE neighbor = 'h4'", "links")
        made.publish(packets[2 * quarter : 3 * quarter])

    made.publish(packets[:quarter])
    made.run(edit_rules, edit_network)
    made.sql("UPDATE {} SET up = true WHERE neighbor = 'h4'", "links")
    # From here on rules keep state. What was sent before has the bytes of the settings of then.
    (rule, *_) = made.tables.rows("subscriptions")
    counting = {"id": "many", "subscriber": "h4", "filter": "count(60000000000) > 9 and price > 0"}
    made.tables.append("subscriptions", [rule | counting])
    made.set(mtu=600)
    made.publish(packets[3 * quarter :])
    made.run()
    return made


def key_file(path: Path, key: SummaryKey) -> Path:
    path.touch(0o600)
    path.write_text(f"{key.id} {key.secret.hex()}\n")
    return path


@pytest.fixture(scope="module")
def service(stream: Deployment) -> Iterator[Service]:
    """One for all who ask by name: what one has asked for, it knows when the next one does."""
    made = Service(stream)
    yield made
    made.close()


@pytest.fixture
def counting_service(stream: Deployment) -> Iterator[Service]:
    """One that nobody has asked before."""
    made = Service(stream)
    yield made
    made.close()


def sessions(stream: Deployment) -> list[bytes]:
    return [session_id(stream.settings.topic, partition) for partition in range(2)]


# The first, as the service that others share writes into that table, too.
def test_what_each_host_asked_for_again_is_on_record_when_the_service_has_ended(stream):
    session = sessions(stream)[0]
    service = Service(stream)
    client = Client(service.rerequests)
    mine = sent(stream)["h1", session]
    for _ in range(3):
        client.ask("h1", session, 0, 65535)
    client.ask("h2", session, 2**64 - 1)
    assert service.counts("answered", 3) and service.counts("ahead", 1)
    registry = service.metrics.registry
    told = registry.get_sample_value("stackcast_host_rerequests_total", {"host": "h1"})
    service.close()
    (row,) = _summed(stream.tables.rows("rerequest_statistics"))
    assert (row["subscriber"], row["requests"], told) == ("h1", 3, 3)
    assert row["notifications"] % 3 == 0 and 0 < row["notifications"] // 3 <= len(mine)
    first = row["notifications"] // 3
    assert row["bytes"] == 3 * sum(map(len, mine[:first]))
    assert (row["gone"], row["refused"]) == (0, 0)


def _summed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Rows of a host together: they are written every few seconds."""
    sums: dict[object, dict[str, object]] = {}
    for row in rows:
        into = sums.setdefault(row["subscriber"], {"subscriber": row["subscriber"]})
        for name in ("requests", "notifications", "bytes", "gone", "refused"):
            into[name] = into.get(name, 0) + row[name]
    return list(sums.values())


def test_answers_are_byte_for_byte_what_the_stream_sent_to_that_host(stream, service):
    expected = sent(stream)
    assert len({tuple(sorted(row["versions"].items())) for row in stream.ledger}) >= 4
    assert {row["settings"]["mtu"] for row in stream.ledger} == {"1500", "600"}
    client = Client(service.rerequests)
    for host in HOSTS:
        for session in sessions(stream):
            assert client.all(host, session) == expected.get((host, session), [])
    # Nobody subscribed for one of them: it is told so, and gets nothing of the others.
    assert not any(host == "h3" for host, _ in expected)
    assert all(len(expected[h, s]) > 10 for h in ("h1", "h2", "h4") for s in sessions(stream))


def test_an_answer_holds_as_many_messages_as_were_asked_for_and_one_notification_at_least(
    stream, service
):
    session = sessions(stream)[0]
    mine = sent(stream)["h1", session]
    client = Client(service.rerequests)
    for count in (0, 1, 5, 40):
        for first in range(0, len(mine) - 1, 7):
            found, summary = client.ask("h1", session, sequence_of(mine[first]), count)
            check(found, summary)
            assert found == mine[first : first + len(found)]
            held = sum(map(count_of, found))
            following = mine[first + len(found) : first + len(found) + 1]
            assert len(found) == 1 or held <= count
            if following:
                assert summary.until == sequence_of(following[0])
                assert held + count_of(following[0]) > count
    assert client.all("h1", session, 3) == mine


def test_what_the_ledger_has_not_yet_is_answered_with_an_empty_range(stream, counting_service):
    session = sessions(stream)[1]
    end = max(p["until_offset"] for r in stream.ledger for p in r["partitions"][1:]) << 26
    for sequence in (end, end + 12345, 2**64 - 1):
        found, summary = Client(counting_service.rerequests).ask("h1", session, sequence)
        assert not found and summary == Summary(session, sequence, sequence, 0, 0, 0)
    assert counting_service.counts("ahead", 3)


def test_strangers_and_nonsense_are_counted_and_get_no_answer(stream, counting_service):
    client = Client(counting_service.rerequests)
    session = sessions(stream)[0]
    client.send(request(session, 0, 1, "stranger"))
    client.send(request(session, 0, 1))
    client.send(request(b"NOSESSION1", 0, 1, "h1"))
    for nonsense in (b"", b"x" * 19, b"x" * 276, session + bytes(10) + b"\xff\xfe"):
        client.send(nonsense)
    # Whoever asks behind them is answered, and is the only one.
    found, _ = client.ask("h1", session, 0, 1)
    assert found == sent(stream)["h1", session][:1]
    client.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.socket.recv(65536)
    assert counting_service.ended("unknown_host") == 2
    assert counting_service.ended("unknown_session") == 1
    assert counting_service.ended("malformed") == 4


def test_a_host_is_known_by_its_address_whatever_name_it_gives(stream):
    for number, host in enumerate(HOSTS[:2], 2):
        stream.sql(f"UPDATE {{}} SET ipv4 = '127.0.0.{number}' WHERE host = '{host}'", "hosts")
    service = Service(stream, rerequest_identify="address")
    session = sessions(stream)[0]
    try:
        for number, host in enumerate(HOSTS[:2], 2):
            client = Client(service.rerequests, f"127.0.0.{number}")
            assert client.all("h4", session) == sent(stream)[host, session]
        Client(service.rerequests, "127.0.0.9").send(request(session, 0, 1, "h1"))
        assert service.counts("unknown_host", 1)
    finally:
        service.close()


def test_ten_thousand_hosts_that_ask_at_once_cost_one_pass_or_two(stream, counting_service):
    session = sessions(stream)[0]
    names = [f"guest{number}" for number in range(10_000)]
    row = stream.tables.rows("hosts")[0]
    stream.tables.append(
        "hosts",
        [
            row | {"host": name, "ipv4": f"10.9.{number >> 8}.{number & 255}", "mac": number}
            for number, name in enumerate(names)
        ],
    )
    client = Client(counting_service.rerequests)
    client.ask("h1", session, 2**64 - 1)
    rows = len(stream.ledger)
    answers = 0
    for begin in range(0, len(names), 500):
        for name in names[begin : begin + 500]:
            client.send(request(session, 0, 65535, name))
        for _ in range(500):
            found, summary = client.answer()
            check(found, summary)
            assert not found and summary.until > 0
            answers += 1
    assert answers == len(names)
    assert 0 < counting_service.rerequests.computed <= 2 * rows


def test_a_receiver_that_loses_a_tenth_ends_with_exactly_its_own(stream, service):
    lost = 0
    for host in ("h1", "h4"):
        datagrams = received(stream)[host]
        kept = [d for number, d in enumerate(datagrams) if (number * 7919 + 13) % 10]
        lost += len(datagrams) - len(kept)
        ends = {
            s: max(unpack(d).until for d in datagrams if is_summary(d) and d[:10] == s)
            for s in sessions(stream)
        }
        keys = HostKeys([KEY.for_host(host)])
        delivered, receiver = repaired(service.rerequests, host, kept, ends, keys)
        mine = [d for (h, _), each in sent(stream).items() if h == host for d in each]
        assert sorted(delivered) == sorted(mine)
        # All that stream and service had to say bore this host's tag.
        assert receiver.statistics.summaries > 2 and not receiver.unproven()
        assert receiver.statistics.forged == 0
    assert lost > 20


def test_neither_stream_nor_service_says_anything_of_one_host_that_another_could_have_made(
    stream, service
):
    for host, datagrams in received(stream).items():
        told = [d for d in datagrams if is_summary(d)]
        client = Client(service.rerequests)
        client.send(request(sessions(stream)[0], 0, name=host))
        while not is_summary(found := client.socket.recv(65536)):
            client.takes_cookie(found)
        # No rule names h3, so the stream has nothing to say to it.
        assert len({datagram[:10] for datagram in told}) == (0 if host == "h3" else 2)
        for other in HOSTS:
            keys = HostKeys([KEY.for_host(other)])
            assert {keys.proves(datagram) for datagram in [*told, found]} == {other == host}


def test_keys_are_in_nothing_that_a_stream_leaves_behind(stream):
    left = [
        path
        for folder in (stream.settings.checkpoint, stream.settings.tables)
        for path in Path(folder).rglob("*")
        if path.is_file()
    ]
    secrets = [KEY.secret, *(KEY.for_host(host).secret for host in HOSTS)]
    words = [form for secret in secrets for form in (secret, secret.hex().encode())]
    assert len(left) > 50
    assert not [path for path in left if any(word in path.read_bytes() for word in words)]
    spark_settings = str(stream.spark.sparkContext.getConf().getAll())
    assert KEY.secret.hex() not in f"{stream.settings!r} {spark_settings}"


def conf(values: dict[str, object]) -> str:
    """Settings as ``PYSPARK_SUBMIT_ARGS`` takes them."""
    own = {f"spark.stackcast.{key}": value for key, value in values.items()}
    # The tests' sessions have the other cores, and their own warehouses.
    own |= {"spark.master": "local[1]", "spark.driver.memory": "1g"}
    return " ".join(f"--conf {key}={value}" for key, value in own.items()) + " pyspark-shell"


def test_service_and_receiver_as_programs_bring_back_what_was_lost(stream, tmp_path):
    """The job and the command, each in a process of its own, until SIGTERM ends them."""
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
    for host in ("h1", "h3", "h4"):
        at = free_port()
        (tmp_path / host / "receipts").mkdir(parents=True)
        written = tmp_path / host / "receipts" / f"{host}.mold"
        options = f"--listen 127.0.0.1:{at} --summary-port 0 --rerequest 127.0.0.1:{port}"
        options += f" --name {host} --order sequence --drop 0.1 --receipts {written} --json"
        if host != "h3":
            own = key_file(tmp_path / host / "keys", KEY.for_host(host))
            options += f" --key-file {own}"
        trial = Program(
            tmp_path,
            "-m",
            *("cli.main", "receive", *options.split()),
            *("--topic", settings.topic, "--partitions", "2", "--from-start"),
        )
        trial.until("listening")
        hosts[host] = trial, at, written
    try:
        service.until("re-requests are taken at")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
            for host, (_, at, _) in hosts.items():
                for number, datagram in enumerate(received(stream)[host]):
                    wire.sendto(datagram, ("127.0.0.1", at))
                    if number % 50 == 49:
                        time.sleep(0.01)
        for host, (trial, _, written) in hosts.items():
            mine = [d for (h, _), each in sent(stream).items() if h == host for d in each]
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline and len(whole(written)) < len(mine):
                time.sleep(0.1)
            assert sorted(whole(written)) == sorted(mine), trial.output
            trial.process.send_signal(signal.SIGTERM)
            assert trial.end() == 0
            counts = json.loads(trial.output.splitlines()[-1])["statistics"]
            assert counts["delivered"] == len(mine) and counts["losses"] == 0
            assert counts["forged"] == 0
            if mine:
                assert counts["repaired"] > 0
        service.process.send_signal(signal.SIGTERM)
        assert service.end() == 0, service.output[-4000:]
    finally:
        for each in (service, *(trial for trial, _, _ in hosts.values())):
            each.kill()


def whole(file: Path) -> list[bytes]:
    """The datagrams of a file that is being written."""
    content, at, found = file.read_bytes() if file.exists() else b"", 0, []
    while at + 2 <= len(content):
        end = at + 2 + int.from_bytes(content[at : at + 2])
        if end > len(content):
            break
        found.append(content[at + 2 : end])
        at = end
    return found


def test_events_of_attributes_are_answered_for_and_explained(spark, broker, empty_tables, tmp_path):
    """Names get their ids while the stream runs; what was sent is computed with the ids of then."""
    shutil.copytree(empty_tables, tmp_path / "tables")
    tables = Tables(spark, str(tmp_path / "tables"))
    rules = {"warm": ("h1", "temp > 20"), "damp": ("h2", "hum > 15 and temp < 25")}
    fill(tables, rules, "attributes")
    made = Deployment(
        spark,
        broker.bootstrap_servers,
        tmp_path,
        format="attributes",
        attributes_unknown="register",
        rerequest_identify="name",
        given=frozenset({"topic", "deadLetter.topic", "checkpoint"}),
    )
    made.settings = formats.of_settings(made.settings, "attributes")
    events = [json.dumps({"temp": n % 40, "hum": n % 30}).encode() for n in range(120)]

    def later() -> None:
        made.sql("UPDATE {} SET filter = 'wind > 3' WHERE id = 'damp'", "subscriptions")
        made.publish([json.dumps({"temp": 1, "wind": n}).encode() for n in range(60)])

    made.publish([*events, b'{"temp": '])
    made.run(later)
    expected = sent(made)
    assert {host for host, _ in expected} == {"h1", "h2"}
    service = Service(made)
    try:
        client = Client(service.rerequests)
        for host in HOSTS:
            for session in sessions(made):
                assert client.all(host, session) == expected.get((host, session), [])
    finally:
        service.close()
    frame = next(f for f in reversed(frames(made)) if dissect(f).summary is None)
    told = explained(made, frame)
    (rule,) = told["rules"]
    assert (rule["id"], rule["filter"]) == ("damp", "wind > 3")
    assert [event["wind"] for event in told["events"]]


@pytest.fixture(scope="module")
def counting(
    spark: SparkSession,
    broker: Broker,
    empty_tables: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Deployment:
    """A stream of two batches, with a rule that counts over both."""
    folder = tmp_path_factory.mktemp("counting")
    shutil.copytree(empty_tables, folder / "tables")
    rules = RULES | {"many": ("h3", "count(60000000000) > 150 and price > 0")}
    fill(Tables(spark, str(folder / "tables")), rules)
    made = Deployment(
        spark,
        broker.bootstrap_servers,
        folder,
        max_offsets_per_trigger=len(records()) // 2 + 2,
        rerequest_identify="name",
    )
    made.publish(records())
    made.run()
    return made


def test_rules_with_state_are_answered_for_from_the_first_batch_on(counting):
    assert [row["batch_id"] for row in counting.ledger] == [0, 1]
    expected = sent(counting)
    service = Service(counting)
    try:
        client = Client(service.rerequests)
        for host in HOSTS:
            for session in sessions(counting):
                assert client.all(host, session, 9) == expected.get((host, session), [])
    finally:
        service.close()
    assert {host for host, _ in expected} == {"h1", "h2", "h3", "h4"}


def test_without_its_state_a_batch_with_rules_that_keep_some_is_gone(counting):
    state = Path(counting.settings.checkpoint) / "stackcast-state" / "0.bin"
    hidden = state.rename(state.with_suffix(".hidden"))
    session = sessions(counting)[0]
    border = next(p["from_offset"] for p in counting.ledger[1]["partitions"] if not p["partition"])
    service = Service(counting)
    try:
        client = Client(service.rerequests)
        found, summary = client.ask("h1", session, border << 26)
        assert not found and summary.gone and summary.until > border << 26
        # The batch before it began with none, and goes on into it.
        found, summary = client.ask("h1", session, 0)
        check(found, summary)
        assert found == sent(counting)["h1", session]
    finally:
        service.close()
        hidden.rename(state)


def explained(stream: Deployment, frame: bytes, host: str = "") -> dict:
    parts = dissect(frame)
    explanation = SentExplanation(stream.spark, stream.settings, stream.tables)
    return explanation.explain(parts.session.decode(), parts.sequence, host)


def test_a_notification_is_explained_by_its_rule_its_versions_and_its_way(stream, itch):
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
    # Those before rules kept state, whose matches a plain reading can tell.
    plain = [n for n, (row, _) in by_batch.items() if row["settings"]["mtu"] == "1500"]
    first, last = by_batch[min(plain)], by_batch[max(plain)]
    assert first[0]["versions"] != last[0]["versions"]
    for row, frame in (first, last):
        parts = dissect(frame)
        told = explained(stream, frame)
        assert told["batch"] == row["batch_id"]
        assert told["versions"] == row["versions"]
        assert (told["offset"], told["session"]) == (
            parts.sequence >> 26,
            parts.session.decode(),
        )
        delivered = MODEL.deliver(PUBLISHER, parts.labels)
        mine = next(each for each in told["frames"] if each["hex"] == frame.hex())
        assert set(mine["receivers"]) == set(delivered.hosts)
        hops = {(u, v) for u, v, _ in delivered.links}
        for host, path in mine["paths"].items():
            assert (path[0], path[-1]) == (PUBLISHER, host)
            assert set(pairwise(path)) <= hops
        # The rules of that version that a plain reading says match, and no others.
        rows = stream.tables.rows("subscriptions", row["versions"]["subscriptions"])
        subscriptions = [Subscription(r["id"], r["subscriber"], r["filter"]) for r in rows]
        rules, _ = check_rules(subscriptions, itch, set(HOSTS), PUBLISHER)
        events = [read_message(itch, message) for message in parts.messages]
        assert {rule["id"] for rule in told["rules"]} == {
            rule.id for rule in rules for event in events if matches(rule.condition, event)
        }
        filters = {r["id"]: r["filter"] for r in rows}
        assert all(filters[rule["id"]] == rule["filter"] for rule in told["rules"])
        assert [e["add_order.price"] for e in told["events"] if "add_order.price" in e] == [
            itch.field("add_order.price").render(e["add_order.price"])
            for e in events
            if "add_order.price" in e
        ]
        text = text_of(told)
        assert f"batch         {row['batch_id']}," in text
        assert all(rule["filter"] in text for rule in told["rules"])


def test_what_was_not_sent_is_explained_too(stream):
    explanation = SentExplanation(stream.spark, stream.settings, stream.tables)
    session = sessions(stream)[0].decode()
    told = {s >> 13 for d in frames(stream) for s in places(dissect(d), stream)}
    offset, index = next(
        (offset, index)
        for offset in range(40)
        for index, message in enumerate(read_packet(records()[2 * offset])[2])
        if message and (offset << 13 | index) not in told
    )
    with pytest.raises(ReplayError, match="NOBODY"):
        explanation.explain(session, offset << 26 | index << 13)
    with pytest.raises(ReplayError, match="NOT_SENT"):
        explanation.explain(session, offset << 26 | 8000 << 13)
    with pytest.raises(ReplayError, match="NOT_ON_RECORD"):
        explanation.explain(session, 1_000_000 << 26)
    with pytest.raises(ReplayError, match="NO_SESSION"):
        explanation.explain("NOSESSION1", 0)


def places(parts: Dissection, stream: Deployment) -> list[int]:
    """The number of a frame, where it is of the first session."""
    mine = parts.summary is None and parts.session == sessions(stream)[0]
    return [parts.sequence] if mine else []


def test_a_host_sees_what_decided_and_one_that_got_nothing_which_predicate_failed(stream):
    frame = next(f for f in frames(stream) if dissect(f).summary is None)
    everybody = explained(stream, frame)
    receivers = everybody["receivers"]
    mine = [rule for rule in everybody["rules"] if receivers[0] in rule["receivers"]]
    assert mine and explained(stream, frame, receivers[0])["rules"] == mine
    other = next(host for host in ("h1", "h2") if host not in receivers)
    told = explained(stream, frame, other)
    assert told["received"] is False
    assert (failed := told["rules"]) and all(other in rule["receivers"] for rule in failed)
    assert not any(rule["matches"] for rule in failed)
    assert all(
        any(p["truth"] != "true" for p in v["predicates"]) for r in failed for v in r["verdicts"]
    )


def test_what_the_topic_lost_is_gone_and_the_rest_is_there(stream):
    """The last of the file: what the topic loses does not come back."""
    session = sessions(stream)[0]
    expected = sent(stream)["h1", session]
    # Some of what the host was sent goes, and some stays.
    first = split_sequence(sequence_of(expected[3]))[0] + 1
    admin = KafkaAdminClient(bootstrap_servers=stream.servers)
    admin.delete_records({TopicPartition(stream.settings.topic, 0): first})
    admin.close()
    service = Service(stream)
    try:
        client = Client(service.rerequests)
        found, summary = client.ask("h1", session, 0)
        assert not found
        assert summary == Summary(session, 0, first << 26, GONE, 0, 0)
        assert service.counts("gone", 1)
        left, at = [], summary.until
        while True:
            found, summary = client.ask("h1", session, at)
            check(found, summary)
            if summary.until == at:
                break
            left += found
            at = summary.until
        assert left == [d for d in expected if sequence_of(d) >= first << 26]
        assert 0 < len(left) < len(expected)
    finally:
        service.close()
