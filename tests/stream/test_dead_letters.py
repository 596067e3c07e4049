"""Dead letters name the invalid field, and batches without a valid record name the cause."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pcap_deployment import SLICES, Deployment, records
from ports import free_port

from stackcast import schemas
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.stream.dead_letters import DeadLetters
from stackcast.jobs.adapters.stream.health import Observation, health_of
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.report import BatchReport, readable
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.udfs.messages.specification import parse_specification

ITCH = Settings(topic="itch.raw")
JSON = Settings(topic="attributes.raw", format="attributes")
JSON_EVENT = b'{"device": "truck-0042", "temp": 25.5}'


@dataclass
class Topic:
    """A topic of dead letters in memory."""

    letters: list[dict[str, Any]] = field(default_factory=list)

    def write_dead_letters(self, letters: list[dict[str, Any]]) -> None:
        self.letters += letters


class Stream:
    """A stream that only writes dead letters."""

    def __init__(self, settings: Settings = ITCH) -> None:
        self.metrics, self.topic = StreamMetrics(), Topic()
        self._letters = DeadLetters(settings, self.topic, self.metrics)  # type: ignore[arg-type]
        specification = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
        plan = SimpleNamespace(specification=specification)
        self._compilation: Any = SimpleNamespace(versions={}, plan=plan)
        self._batch = -1

    def batch(self, good: int, bad: list[bytes], reason: str, fault: str = "") -> None:
        """Add a batch whose samples are the bad records."""
        self._batch += 1
        none = dict.fromkeys(("from_offset", "until_offset", "first_sequence", "last_sequence"))
        rows: list[dict[str, Any]] = [
            {"kind": "partition", "partition": 0, "packets": good + len(bad), **none}
        ]
        if bad:
            firsts = Counter(record[0] for record in bad if record)
            first, same = firsts.most_common(1)[0]
            rows.append({"kind": "reason", "reason": reason, "count": len(bad)})
            rows.append(
                {"kind": "dead", "count": len(bad), "length": same, "sample": bytes([first])}
            )
        rows += [
            {"kind": "sample", "partition": 0, "from_offset": n, "reason": reason}
            | {"field": fault or None, "length": len(record), "sample": record[:256]}
            for n, record in enumerate(bad)
        ]
        self._letters.put(self._batch, self._compilation, BatchReport(rows, []))

    def health(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        health = health_of(Observation(0.0, True, 0.0), self.metrics.status, 0.0)
        return health.problems, health.remarks


@pytest.mark.unit
def test_a_batch_without_a_valid_record_is_a_problem_until_one_arrives(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    stream = Stream()
    stream.batch(500, [], "")
    assert stream.health() == ((), ())
    stream.batch(0, [JSON_EVENT] * 500, "too_many_messages")
    (problem,), _ = stream.health()
    assert problem == (
        "all 500 records of batch 1 are dead letters (too_many_messages 500): all of them "
        "begin with `{`: does topic itch.raw contain attribute/value events? "
        "Use jobs/attribute_stream.py to deliver them"
    )
    assert problem in caplog.messages
    caplog.clear()
    stream.batch(0, [JSON_EVENT] * 1_000, "too_many_messages")
    assert "all 1,500 records of batches 1 to 2" in stream.health()[0][0]
    assert not any("does topic" in message for message in caplog.messages), "same cause"
    stream.batch(1, [JSON_EVENT] * 1_000, "too_many_messages")
    assert stream.health() == ((), ())
    assert "batch 3 contains valid records again" in caplog.messages


@pytest.mark.unit
def test_one_dead_record_is_a_remark_and_two_are_a_problem():
    stream = Stream(JSON)
    stream.batch(0, [JSON_EVENT], "unknown_attribute", "device")
    problems, (remark,) = stream.health()
    assert not problems
    assert remark.startswith("the only record of batch 0 is a dead letter (unknown_attribute): ")
    assert "unknown_attribute: device" in remark
    stream.batch(0, [], "")
    stream.batch(0, [JSON_EVENT], "unknown_attribute", "device")
    (problem,), remarks = stream.health()
    assert "all 2 records of batches 0 to 2" in problem and not remarks


PACKETS = records()[:20]
MESSAGES = list(TradingSession(messages=1_200, seed=3, symbols=20))[:20]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("settings", "bad", "reason", "cause"),
    [
        (ITCH, MESSAGES, "too_many_messages", "messages without a MoldUDP64 packet around them"),
        (ITCH, [b"\x1f\x8b\x08\0", b"\x1f\x8b\x08\1"], "truncated_header", "gzip"),
        (
            ITCH,
            [b"", b"x", b"yy"],
            "truncated_header",
            "run 'stackcast dead-letters' to see samples",
        ),
        (
            JSON,
            PACKETS,
            "malformed_json",
            "MoldUDP64 packets: does topic attributes.raw contain ITCH",
        ),
        (JSON, [b"[1]", b"[2]"], "malformed_json", "one JSON object, not a list"),
        (JSON, [b"\0\0\0\0\1ab"] * 2, "malformed_json", "schema registry"),
        (JSON, [b"\1\0\0\0\1\0"] * 2, "malformed_json", "id_pairs or bitmask"),
        (
            JSON,
            [JSON_EVENT] * 2,
            "unknown_attribute",
            "the most frequent ones are unknown_attribute: device",
        ),
        (
            replace(JSON, attributes_input="bitmask"),
            [JSON_EVENT] * 2,
            "unknown_attribute",
            "set spark.stackcast.attributes.input to json",
        ),
    ],
)
def test_the_likely_cause_is_named(settings: Settings, bad: list[bytes], reason: str, cause: str):
    stream = Stream(settings)
    stream.batch(0, bad, reason, "device" if reason == "unknown_attribute" else "")
    ((problem,), _) = stream.health()
    assert cause in problem


@pytest.mark.unit
def test_a_letter_contains_the_field_and_the_text():
    stream = Stream(JSON)
    stream.batch(1, [JSON_EVENT], "unknown_attribute", "device")
    stream.batch(1, [b"\0\1\2"], "malformed_json")
    text, binary = stream.topic.letters
    assert (text["reason"], text["field"]) == ("unknown_attribute", "device")
    assert text["text"] == JSON_EVENT.decode() and text["sample"] == JSON_EVENT.hex()
    assert binary["sample"] == "000102" and not {"field", "text"} & binary.keys()


@pytest.mark.unit
@given(st.text(min_size=1, max_size=200), st.integers(1, 256))
def test_text_is_readable_at_any_length_of_the_sample(text: str, size: int):
    content = text.encode("utf-8", "replace")
    is_text = all(c.isprintable() or c in "\t\r\n" for c in content.decode())
    whole_text = readable(content, len(content))
    assert whole_text == (content.decode() if is_text else None)
    if is_text and (cut := readable(content[:size], len(content))) is not None:
        assert content.decode().startswith(cut)
        assert len(cut.encode()) > min(size, len(content)) - 4


@pytest.mark.unit
def test_binary_is_not_readable():
    for content in (b"", b"\xff\xfe", b"abc\0", b"\x1b[31m", "\u202eabc".encode()):
        assert readable(content, len(content)) is None
    assert readable("ä".encode()[:1], 1) is None, "the sample is complete, and it is not text"


def health(port: int) -> list[str]:
    """Return the problems that /health reports."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            return json.load(answer)["problems"]
    except urllib.error.HTTPError as error:
        return json.load(error)["problems"]


@pytest.mark.integration
@pytest.mark.parametrize("mode", [{}, SLICES], ids=["micro-batches", "real time"])
def test_health_names_the_cause_until_valid_packets_arrive(
    deployment: Deployment, mode: dict[str, str]
):
    port = free_port()
    deployment.set(metrics_port=port, metrics_host="127.0.0.1", **mode)
    problems: list[list[str]] = []

    def look_and_publish_packets() -> None:
        problems.append(health(port))
        deployment.publish(records()[:40])

    deployment.publish([JSON_EVENT] * 50)
    deployment.run(look_and_publish_packets, lambda: problems.append(health(port)))
    dead, alive = problems
    (problem,) = [text for text in dead if "dead letters" in text]
    assert "all of them begin with `{`" in problem and "jobs/attribute_stream.py" in problem
    assert not any("dead letters" in text for text in alive)
    assert sum(row["frames"] for row in deployment.ledger) > 0
