"""`stackcast dead-letters` prints what a stream could not deliver."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import stackcast
from kafka import KafkaProducer
from paths import ROOT
from waiting import until

from stackcast.cli.dead_letter_reader import json_line, letter_of, text_of, topics_of
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up.broker import Broker

TIME = "2026-03-01T12:00:00.000Z"
EVENT = '{"device": "truck-0042", "temp": 25.5}'
LETTER = {
    "topic": "attributes.raw",
    "partition": 1,
    "offset": 12,
    "index": None,
    "reason": "unknown_attribute",
    "field": "device",
    "length": len(EVENT),
    "text": EVENT,
    "sample": EVENT.encode().hex(),
}


@pytest.mark.unit
def test_a_dead_letter_is_a_line_with_field_and_text():
    place = f"{TIME}  attributes.raw partition 1 offset 12"
    letter = {"time": TIME, **LETTER}
    assert text_of(letter) == f"{place}  unknown_attribute: device  {EVENT}"
    long = text_of(letter | {"length": 4_096})
    assert long == f"{place}  unknown_attribute: device  {EVENT}... (4,096 bytes)"
    escaping = text_of(letter | {"text": "a\n\x1b[31m"})
    assert escaping.endswith("a\\n\\x1b[31m") and "\n" not in escaping


@pytest.mark.unit
def test_binary_is_shown_as_hex_with_the_message():
    letter = {"time": TIME, "topic": "itch.raw", "partition": 0, "offset": 7, "index": 3}
    letter |= {"reason": "unknown_message_type", "field": "type Z", "publisher": "feed2"}
    letter |= {"length": 100, "sample": bytes(range(100)).hex()}
    assert text_of(letter) == (
        f"{TIME}  itch.raw partition 0 offset 7 message 3  unknown_message_type: type Z "
        f"(publisher feed2)  {bytes(range(48)).hex()}... (100 bytes)"
    )
    # Other programs may write to the topic as well.
    place = {"topic": "itch.dead", "partition": 1, "offset": 7}
    for value in (b"[" * 100_000, b'{"a": 1}', b"text"):
        letter = letter_of(SimpleNamespace(value=value, timestamp=0, **place))
        assert " itch.dead partition 1 offset 7  not a dead letter of a stream " in text_of(letter)
    # An empty record has no sample; earlier versions wrote neither field nor text.
    bare = {"time": TIME, "topic": "t", "partition": 0, "offset": 0, "index": None}
    bare |= {"reason": "empty_record", "length": 0, "sample": ""}
    assert text_of(bare) == f"{TIME}  t partition 0 offset 0  empty_record"


@pytest.mark.unit
def test_numbers_that_json_does_not_have_are_null():
    place = {"topic": "t", "partition": 0, "offset": 0}
    value = b'{"reason": "x", "length": Infinity, "more": [NaN, 1.5]}'
    letter = letter_of(SimpleNamespace(value=value, timestamp=0, **place))
    line = json_line(letter)
    assert json.loads(line, parse_constant=pytest.fail)["length"] is None
    assert json.loads(line)["more"] == [None, 1.5]


@pytest.mark.unit
def test_the_topic_is_that_of_the_settings_or_of_both_formats():
    def topics(**values: str) -> list[str]:
        pairs = ((f"spark.stackcast.{key.replace('_', '.')}", v) for key, v in values.items())
        return topics_of(Settings.read(pairs))

    assert topics() == ["itch.dead", "attributes.dead"]
    assert topics(format="itch") == ["itch.dead"]
    assert topics(format="attributes") == ["attributes.dead"]
    assert topics(deadLetter_topic="mine") == ["mine"]
    assert topics(mtu="300") == ["itch.dead"], "no stream of events has such an MTU"


def send(broker: Broker, topic: str, letters: list[bytes]) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all") as producer:
        for number, letter in enumerate(letters):
            producer.send(topic, letter, partition=number % 2, timestamp_ms=1_000 * number + 1)


@pytest.mark.integration
def test_the_newest_are_printed_in_the_order_of_their_times(broker: Broker, tmp_path: Path):
    topic = f"dead.{tmp_path.name}"
    file = tmp_path / "mine.conf"
    file.write_text(
        f"spark.stackcast.kafka.bootstrap.servers {broker.bootstrap_servers}\n"
        f"spark.stackcast.deadLetter.topic {topic}\n"
    )
    missing = stackcast("dead-letters", "--properties-file", file)
    assert missing.code == 2 and f"has no topic {topic}" in missing.stderr
    ensure_topic(broker.bootstrap_servers, topic, 2)
    empty = stackcast("dead-letters", "--properties-file", file)
    assert (empty.code, empty.stdout) == (0, "") and "no dead letters" in empty.stderr

    letters = [json.dumps(LETTER | {"offset": number}).encode() for number in range(50)]
    send(broker, topic, [*letters, b"no letter"])
    newest = stackcast("dead-letters", "--properties-file", file, "--limit", 3)
    first, second, third = newest.stdout.splitlines()
    assert " offset 48 " in first and " offset 49 " in second
    assert first.startswith("1970-01-01T00:00:48.001Z")
    assert "not a dead letter of a stream" in third
    everything = stackcast("dead-letters", "--properties-file", file, "--limit", 0, "--json")
    rows = [json.loads(line) for line in everything.stdout.splitlines()]
    assert sorted(row["offset"] for row in rows if "length" in row and "text" in row) == list(
        range(50)
    )
    letter = next(row for row in rows if row.get("offset") == 7)
    assert letter == {"time": "1970-01-01T00:00:07.001Z"} | LETTER | {"offset": 7}


@pytest.mark.integration
def test_new_ones_are_followed_until_the_command_is_stopped(broker: Broker, tmp_path: Path):
    topic = f"dead.{tmp_path.name}"
    ensure_topic(broker.bootstrap_servers, topic, 2)
    send(broker, topic, [json.dumps(LETTER).encode()])
    out = tmp_path / "out"
    command = [sys.executable, "-m", "stackcast.cli.main", "dead-letters", "--follow"]
    options = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", topic]
    with out.open("wb") as stream:
        process = subprocess.Popen([*command, *options], cwd=ROOT, stdout=stream)
    try:
        until(lambda: len(out.read_text().splitlines()) == 1)
        send(broker, topic, [json.dumps(LETTER | {"offset": n}).encode() for n in (13, 14)])
        until(lambda: len(out.read_text().splitlines()) == 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0
    finally:
        process.kill()
    last = out.read_text().splitlines()[1:]
    assert all(" offset 13 " in line or " offset 14 " in line for line in last)
