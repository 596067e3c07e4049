"""An explanation finds format and topic of the stream by the session that a host saw."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.replay.recorded_settings import with_recorded
from stackcast.udfs.messages.sequence import Topic, session_id

pytestmark = pytest.mark.unit


def row(minute: int, topic: str, form: str | None, partitions: int = 1) -> dict[str, Any]:
    return {
        "topic": topic,
        "topic_id": f"id of {topic}",
        "generation": 0,
        "started_at": datetime(2026, 3, 1, 12, minute, tzinfo=UTC),
        "partitions": [{"partition": number} for number in range(partitions)],
        "settings": None if form is None else {"format": form, "mtu": "1500"},
    }


class Ledger:
    """Tables with a ledger alone."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = list(rows)

    def rows(self, name: str) -> list[dict[str, Any]]:
        assert name == "egress_ledger"
        return self._rows


LEDGER = Ledger(
    row(1, "attributes.raw", "attributes", 3),
    row(2, "orders", "itch"),
    row(3, "itch.raw", "itch", 2),
    row(0, "old", None),
)


def stream_of(session: str = "", **values: str) -> tuple[str, str, str]:
    pairs = ((f"spark.stackcast.{key}", value) for key, value in values.items())
    settings = with_recorded(Settings.read(pairs), LEDGER, session)  # type: ignore[arg-type]
    return settings.format, settings.topic, settings.checkpoint.rpartition("checkpoint/")[2]


def session_of(topic: str, partition: int) -> str:
    return session_id(Topic(topic, f"id of {topic}"), partition).decode()


def test_the_stream_that_sent_the_session_is_meant():
    events = ("attributes", "attributes.raw", "attributes")
    assert stream_of(session_of("attributes.raw", 2)) == events
    assert stream_of(session_of("orders", 0)) == ("itch", "orders", "itch")
    assert stream_of(session_of("old", 0)) == ("itch", "old", "itch")


def test_without_a_session_the_stream_of_the_newest_batch_is_meant():
    assert stream_of() == ("itch", "itch.raw", "itch")
    assert stream_of(format="attributes") == ("attributes", "attributes.raw", "attributes")
    assert stream_of(topic="orders") == ("itch", "orders", "itch")


def test_what_is_configured_stays():
    configured = {"format": "itch", "topic": "mine"}
    assert stream_of(session_of("attributes.raw", 0), **configured) == ("itch", "mine", "itch")
    assert stream_of("NOSESSION0") == ("itch", "itch.raw", "itch")
    assert stream_of(session_of("attributes.raw", 0), checkpoint="/c/checkpoint/x") == (
        "attributes",
        "attributes.raw",
        "x",
    )
