"""Metrics of jobs are correct, bounded in number, and readable by the parser of Prometheus."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from stackcast.jobs.adapters.replay.metrics import OUTCOMES, RerequestMetrics
from stackcast.jobs.adapters.stream.metrics import StreamMetrics, unicast_bytes
from stackcast.jobs.adapters.stream.report import BatchReport
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.jobs.adapters.switches.results import RefreshResult
from stackcast.udfs.errors import NetworkError, SinkError, SwitchError
from stackcast.udfs.messages.readers import REASONS

pytestmark = pytest.mark.unit

ETHERNET = 14


def read(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Return the samples that Prometheus reads, by name and values of labels."""
    text = generate_latest(registry).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_counters_are_the_sums_over_the_reports_of_tasks():
    counts = {"packets": 10, "messages": 70, "matched": 7, "frames": 5, "bytes": 900}
    offsets = {"from_offset": 0, "until_offset": 10, "first_sequence": 1, "last_sequence": 2}
    rows = [
        {"kind": "partition", "partition": 0, **offsets, **counts},
        {"kind": "partition", "partition": 1, **offsets, **counts},
        {"kind": "reason", "reason": "empty_record", "count": 3},
        {"kind": "reason", "reason": "empty_record", "count": 1},
        {
            "kind": "template",
            "delivery": 0,
            "part": 0,
            "frames": 10,
            "messages": 14,
            "bytes": 1800,
            "datagram_bytes": 1500,
        },
    ]
    metrics = StreamMetrics()
    report = BatchReport(rows, [[["h1", "h2", "h3"]]])
    metrics.delivered(report, {"subscriptions": 4})
    metrics.delivered(report, {"subscriptions": 5})
    samples = read(metrics.registry)
    assert samples["stackcast_packets_total",] == 40
    assert samples["stackcast_messages_total",] == 280
    assert samples["stackcast_matched_messages_total",] == 28
    assert samples["stackcast_frames_total",] == 20
    assert samples["stackcast_frame_bytes_total",] == 3600
    # Three hosts, twice, each with ten datagrams of 150 bytes and an Ethernet header.
    assert samples["stackcast_unicast_bytes_total",] == 2 * 3 * 10 * (150 + ETHERNET)
    assert samples["stackcast_dead_letters_total", "empty_record"] == 8
    assert samples["stackcast_dead_letters_total", "trailing_bytes"] == 0
    assert {k[1] for k in samples if k[0] == "stackcast_dead_letters_total"} == set(
        REASONS.values()
    )
    assert samples["stackcast_table_version", "subscriptions"] == 5


SETS = st.sets(st.sampled_from("abcdef"), min_size=1)


@given(st.lists(st.tuples(SETS, st.lists(st.integers(28, 1500), min_size=1)), max_size=5))
def test_unicast_sends_a_frame_for_each_host_and_datagram(sent):
    publications = [
        {"receivers": sorted(hosts), "notifications": len(sizes), "datagram_bytes": sum(sizes)}
        for hosts, sizes in sent
    ]
    frames = [size + ETHERNET for hosts, sizes in sent for _ in hosts for size in sizes]
    assert unicast_bytes(publications) == sum(frames)


class Plan:
    """A plan in use, with rules that were rejected for these codes."""

    def __init__(self, versions: dict[str, int], rules: int, *codes: str) -> None:
        self.versions = versions
        self.rules = range(rules)
        self.rejections = [type("Rejection", (), {"code": code}) for code in codes]


def test_rejected_rules_and_versions_are_those_of_the_plan_in_use():
    metrics = StreamMetrics()
    metrics.planned(Plan({"links": 1}, 5, "SUBSCRIPTION.SYNTAX", "SUBSCRIPTION.SYNTAX"), 0.2)
    metrics.planned(Plan({"links": 2}, 7, "SUBSCRIPTION.UNKNOWN_FIELD"), 0.3)
    samples = read(metrics.registry)
    rejected = {k[1]: v for k, v in samples.items() if k[0] == "stackcast_rejected_rules"}
    assert rejected == {"SUBSCRIPTION.UNKNOWN_FIELD": 1}
    assert samples["stackcast_rules",] == 7
    assert samples["stackcast_table_version", "links"] == 2
    assert samples["stackcast_plan_seconds_count",] == 2
    assert samples["stackcast_plan_seconds_sum",] == pytest.approx(0.5)


def test_refused_tables_are_exported_until_a_newer_plan_is_in_use():
    metrics = StreamMetrics()
    metrics.refused({"links": 3})
    assert read(metrics.registry)["stackcast_versions_rejected",] == 1
    metrics.planned(Plan({"links": 4}, 1), 0.1)
    assert read(metrics.registry)["stackcast_versions_rejected",] == 0


def test_a_failed_batch_is_counted_by_its_code_and_not_as_delivered():
    metrics = StreamMetrics()
    with metrics.batch(0):
        assert metrics.status.running is not None and metrics.status.running.number == 0
    with pytest.raises(SinkError), metrics.batch(1):
        raise SinkError("NO_INTERFACE", "there is no veth9")
    # Spark passes on an error of a worker as a text that contains the code.
    with pytest.raises(RuntimeError), metrics.batch(1):
        raise RuntimeError(
            "PythonException:\n stackcast.udfs.errors.SinkError: SINK.SEND_FAILED: down\n at"
        )
    with pytest.raises(ValueError, match="odd"), metrics.batch(1):
        raise ValueError("odd")
    samples = read(metrics.registry)
    failures = {k[1]: v for k, v in samples.items() if k[0] == "stackcast_batch_failures_total"}
    assert failures == {"SINK.NO_INTERFACE": 1, "SINK.SEND_FAILED": 1, "UNKNOWN": 1}
    assert samples["stackcast_batches_total",] == samples["stackcast_batch_seconds_count",] == 1
    assert samples["stackcast_last_batch_id",] == 0
    assert metrics.status.running is None and metrics.status.failure == "UNKNOWN"
    with metrics.batch(1):
        pass
    assert metrics.status.failure == ""


def test_lag_is_the_number_of_records_that_were_not_sent():
    metrics = StreamMetrics()
    metrics.processed({0: 70, 1: 40})
    metrics.spans({0: (10, 100), 1: (50, 60), 2: (5, 25)}, {2: 5})
    samples = read(metrics.registry)
    assert [samples["stackcast_lag_records", p] for p in "012"] == [30, 20, 20]
    # Kafka deleted ten records of partition 1 that were never read.
    assert [samples["stackcast_retention_margin_records", p] for p in "012"] == [60, -10, 0]


def test_the_number_of_series_is_independent_of_rules_hosts_and_batches():
    metrics = StreamMetrics()

    def batch(number: int) -> None:
        with metrics.batch(number), metrics.stage("deliver"):
            rows = [
                {"kind": "template", "delivery": 0, "part": 0, "frames": 1}
                | {"messages": 1, "bytes": 1, "datagram_bytes": 1}
            ]
            hosts = [f"h{number}-{n}" for n in range(100)]
            metrics.delivered(BatchReport(rows, [[hosts]]), {"subscriptions": number})
        metrics.planned(Plan({"subscriptions": number}, number, "SUBSCRIPTION.SYNTAX"), 0.1)

    batch(0)
    series = set(read(metrics.registry))
    for number in range(1, 20):
        batch(number)
    assert set(read(metrics.registry)) == series


def test_hosts_have_series_only_if_there_are_few():
    metrics = StreamMetrics(hosts=3)
    counts = {"frames": 2, "messages": 3, "bytes": 400, "datagram_bytes": 300}
    rows = [{"kind": "template", "delivery": n, "part": 0, **counts} for n in (0, 1)]

    def deliver(*sets: list[str]) -> dict[tuple[str, ...], float]:
        metrics.delivered(BatchReport(rows[: len(sets)], [[hosts] for hosts in sets]), {})
        return {
            key: samples
            for key, samples in read(metrics.registry).items()
            if key[0].startswith("stackcast_host_") and key[0].endswith("_total")
        }

    deliver(["h1"], ["h1", "h2"])
    samples = deliver(["h1", "h2"])
    assert samples == {
        ("stackcast_host_notifications_total", "h1"): 6,
        ("stackcast_host_notifications_total", "h2"): 4,
        ("stackcast_host_bytes_total", "h1"): 1200,
        ("stackcast_host_bytes_total", "h2"): 800,
    }
    # The fourth host exceeds the limit, and the series do not come back.
    assert deliver(["h3"], ["h4"]) == {} == deliver(["h1"])


def test_series_of_a_switch_end_with_its_row():
    metrics = SwitchMetrics()
    metrics.polled(True)
    metrics.refreshed(
        {
            "s1": RefreshResult(8, True, [], 0.3, written=8),
            "s2": RefreshResult(None, False, ["no answer"], 2.0),
            "s3": RefreshResult(4, True, [], 0.1),
        },
        over_capacity=["s3"],
    )
    metrics.behind({"s2", "s3"}, {"s1", "s2", "s3"})
    samples = read(metrics.registry)
    assert [samples["stackcast_switch_in_sync", s] for s in ("s1", "s2", "s3")] == [1, 0, 0]
    failures = [samples["stackcast_switch_refresh_failures_total", s] for s in ("s1", "s2", "s3")]
    assert failures == [0, 1, 1]
    assert samples["stackcast_switch_entries_written_total", "s1"] == 8
    assert samples["stackcast_switch_entries", "s1"] == 8
    assert ("stackcast_switch_entries", "s2") not in samples
    assert samples["stackcast_switch_refresh_seconds_sum", "s2"] == 2.0
    assert metrics.out_of_sync == {"s2": "no answer", "s3": "it has more entries than it can hold"}
    health = metrics.health()
    assert (health.status, health.problems) == ("degraded", ())
    assert health.facts["out_of_sync"]["s2"] == "no answer"
    metrics.behind(set(), {"s1"})
    samples = read(metrics.registry)
    of_switches = [key for key in samples if key[0].startswith("stackcast_switch_")]
    assert of_switches and all("s1" in key for key in of_switches)
    assert metrics.health().status == "ok"


def test_tables_that_cannot_be_used_are_exported_but_not_the_loss_of_the_primary_role():
    metrics = SwitchMetrics()
    metrics.polled(True)
    with pytest.raises(SwitchError), metrics.deriving():
        raise SwitchError("NOT_PRIMARY", "another leads")
    assert metrics.health().status == "ok"
    with metrics.deriving():
        metrics.refused(NetworkError("ONE_WAY_LINK", "s1 to s2"))
    assert metrics.health().status == "degraded"
    samples = read(metrics.registry)
    assert samples["stackcast_versions_rejected",] == 1
    assert samples["stackcast_derive_failures_total",] == 2
    with metrics.deriving():
        metrics.derived(7, ["active", "active", "retiring"])
    samples = read(metrics.registry)
    assert metrics.health().status == "ok" and samples["stackcast_versions_rejected",] == 0
    trees = {k[1]: v for k, v in samples.items() if k[0] == "stackcast_virtual_trees"}
    assert trees == {"installing": 0, "active": 2, "retiring": 1}


def test_a_refresher_that_does_not_poll_is_unhealthy(monkeypatch: pytest.MonkeyPatch):
    metrics = SwitchMetrics()
    assert metrics.health().status == "unhealthy"
    metrics.polled(False)  # a standby is healthy
    assert metrics.health().status == "ok"
    assert read(metrics.registry)["stackcast_refresher_primary",] == 0
    monkeypatch.setattr("stackcast.jobs.adapters.switches.metrics.SILENT_SECONDS", -1.0)
    assert metrics.health().status == "unhealthy"


def test_requests_are_counted_by_outcome():
    metrics = RerequestMetrics()
    for outcome in (*OUTCOMES, "answered"):
        metrics.answered(outcome, datagrams=2, octets=300, seconds=0.01)
    metrics.waiting(3)
    samples = read(metrics.registry)
    ended = {k[1]: v for k, v in samples.items() if k[0] == "stackcast_rerequests_total"}
    assert ended == Counter(OUTCOMES) + Counter(["answered"])
    assert samples["stackcast_rerequest_notifications_total",] == 2 * (len(OUTCOMES) + 1)
    assert samples["stackcast_rerequest_bytes_total",] == 300 * (len(OUTCOMES) + 1)
    assert samples["stackcast_rerequest_seconds_count",] == len(OUTCOMES) + 1
    assert samples["stackcast_rerequests_pending",] == 3
