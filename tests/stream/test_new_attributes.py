"""Log lines about new attributes contain their steps, and warn about rounded values."""

from __future__ import annotations

import logging

import pytest

from stackcast.jobs.adapters.stream.new_attributes import report_registration
from stackcast.udfs.messages.attributes.steps import Steps
from stackcast.udfs.messages.attributes.unknown_names import NewName

pytestmark = pytest.mark.unit


def lines(caplog: pytest.LogCaptureFixture, steps: str, rounded: int) -> list[tuple[str, str]]:
    latitude = Steps.parse(steps).attribute(5, "latitude", "decimal")
    with caplog.at_level(logging.INFO):
        report_registration(3, latitude, NewName("decimal", 10, rounded))
    messages = [(record.levelname, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return messages


def test_a_registration_logs_type_range_and_step(caplog: pytest.LogCaptureFixture):
    registered = "batch 3: registered attribute latitude with id 5: decimal, from "
    assert lines(caplog, "0.01", 0) == [
        ("INFO", f"{registered}-21474836.48 to 21474836.47 in steps of 0.01")
    ]
    assert lines(caplog, "latitude=0.0000001", 0) == [
        ("INFO", f"{registered}-214.7483648 to 214.7483647 in steps of 0.0000001")
    ]


def test_a_registration_that_rounds_values_logs_a_warning_with_a_remedy(
    caplog: pytest.LogCaptureFixture,
):
    _, (level, message) = lines(caplog, "0.01", 8)
    assert level == "WARNING"
    assert "8 of 10 values of attribute latitude are between two steps of 0.01" in message
    assert "first add NAME=STEP to spark.stackcast.attributes.steps" in message
