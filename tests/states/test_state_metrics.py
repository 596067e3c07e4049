"""What /health of the jobs of replicated states says."""

from __future__ import annotations

import time

import pytest

from jobs.adapters.states import metrics
from jobs.adapters.states.metrics import ControllerMetrics, PublisherMetrics

pytestmark = pytest.mark.unit


def test_tables_that_stand_still_are_told_though_facts_go_on(monkeypatch: pytest.MonkeyPatch):
    made = ControllerMetrics()
    made.recorded()
    assert made.health().status == "ok"
    monkeypatch.setattr(metrics, "LATE_SECONDS", 0.01)
    time.sleep(0.02)
    made.recorded()
    assert made.health().status == "unhealthy"
    made.merged(2)
    assert made.health().status == "ok"


def test_updates_that_nobody_confirms_are_told(monkeypatch: pytest.MonkeyPatch):
    made = PublisherMetrics()
    monkeypatch.setattr(metrics, "LATE_SECONDS", 0.01)
    assert made.health().status == "ok"
    made.published(7)
    time.sleep(0.02)
    made.published(7)
    assert made.health().status == "unhealthy"
    made.confirmed()
    assert made.health().status == "ok"
