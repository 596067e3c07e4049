"""Alerts as one look at metrics tells them, by the file that Prometheus is given."""

from __future__ import annotations

import pytest
from paths import ROOT

from stackcast.jobs.adapters.console.alerts import read_alerts, read_metrics

pytestmark = pytest.mark.unit

ALERTS = ROOT / "conf" / "prometheus-alerts.yml"


def states(text: str, **others: list[float]) -> dict[str, str]:
    metrics = read_metrics(text) | others
    return {alert.name: alert.state(metrics) for alert in read_alerts(ALERTS)}


def test_thresholds_are_those_of_the_file():
    found = states(
        "stackcast_healthy 0\nstackcast_batch_running_seconds 120\n"
        "stackcast_plan_pending_seconds 30.5\nstackcast_versions_rejected 0\n",
        up=[1.0],
    )
    assert found["StackcastDown"] == "quiet" and found["StackcastUnhealthy"] == "fires"
    assert found["StackcastBatchTooLong"] == "quiet" and found["StackcastPlanNotLive"] == "fires"
    assert found["StackcastVersionsRejected"] == "quiet"


def test_one_of_two_conditions_and_one_of_several_series_are_enough():
    found = states(
        "stackcast_journal_reports 1\nstackcast_journal_oldest_seconds 61\n"
        'stackcast_disk_free_bytes{path="a"} 90\nstackcast_disk_free_bytes{path="b"} 4\n'
        'stackcast_disk_size_bytes{path="a"} 100\nstackcast_disk_size_bytes{path="b"} 100\n'
    )
    assert found["StackcastJournalBacklog"] == found["StackcastDiskFull"] == "fires"


def test_what_lasts_or_is_not_measured_is_not_told():
    found = states("stackcast_lag_records 100000\n")
    assert found["StackcastLagGrows"] == found["StackcastUnhealthy"] == "not told"
    assert len(found) > 15


def test_without_the_project_there_are_none(tmp_path):
    assert read_alerts(tmp_path / "prometheus-alerts.yml") == []
