"""Dashboard, alerts and runbook speak of the metrics that the jobs have, and of all of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from paths import ROOT
from prometheus_client import CollectorRegistry

from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.app.metrics_server import told_by_metrics
from stackcast.jobs.adapters.console.link_metrics import LinkMetrics
from stackcast.jobs.adapters.replay.metrics import RerequestMetrics
from stackcast.jobs.adapters.retune.metrics import RetuneMetrics
from stackcast.jobs.adapters.states.metrics import ControllerMetrics, PublisherMetrics
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.switches.metrics import SwitchMetrics
from stackcast.udfs.states.controller import Controller

pytestmark = pytest.mark.unit

DASHBOARD = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text())
RULES = yaml.safe_load((ROOT / "conf" / "prometheus-alerts.yml").read_text())
RUNBOOK = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
METRICS = (ROOT / "docs" / "reference" / "metrics.md").read_text()

#: Not a recorded name, which has colons, and no part of another word.
NAME = re.compile(r"(?<![\w:])(?:stackcast|process)_[a-z0-9_]+(?![\w:])")
RECORDED = re.compile(r"\w+(?::\w+)+")
ROWS = [
    "Health",
    "Flow",
    "Hosts",
    "Links",
    "Latency",
    "Tables",
    "Switches",
    "Retuning",
    "Re-request",
    "States",
]
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
MATCHED = {"(": ")", "[": "]", "{": "}"}
DURATION = re.compile(r"(\d+(ms|[smhdwy]))+")


def families() -> Iterator[Any]:
    of_controller = ControllerMetrics()
    of_controller.watch(SimpleNamespace(controller=Controller()))  # type: ignore[arg-type]
    jobs = (StreamMetrics(), SwitchMetrics(), RerequestMetrics(), RetuneMetrics())
    others = (LinkMetrics(), PublisherMetrics(), of_controller)
    for made in (*jobs, *others):
        yield from made.registry.collect()
    served = CollectorRegistry()
    told_by_metrics(served, Health)
    yield from served.collect()


#: Names that a query may have, of each metric, by its name.
EXPORTED = {
    family.name: {family.name + suffix for suffix in SUFFIXES[family.type]} for family in families()
}


def rules(kind: str) -> list[dict[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"] if kind in rule]


def panels(kind: str = "") -> list[dict[str, Any]]:
    return [p for p in DASHBOARD["panels"] if (p["type"] == "row") == (kind == "row")]


def queries() -> list[str]:
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*shown, *(rule["expr"] for rule in [*rules("alert"), *rules("record")])]


def without_strings(query: str) -> str:
    return re.sub(r'"[^"]*"', '""', query)


def test_every_metric_of_a_panel_or_alert_is_one_that_a_job_has():
    known = set().union(*EXPORTED.values())
    used = {name for query in queries() for name in NAME.findall(without_strings(query))}
    assert len(used) > 40
    assert used - known == set()
    recorded = {name for query in queries() for name in RECORDED.findall(without_strings(query))}
    assert recorded == {"instance:stackcast_bytes_saved:rate5m"}
    assert recorded <= {rule["record"] for rule in rules("record")}


def test_every_metric_that_a_job_has_is_in_a_panel_or_alert():
    used = {name for query in queries() for name in NAME.findall(without_strings(query))}
    ours = {name: samples for name, samples in EXPORTED.items() if name.startswith("stackcast_")}
    assert len(ours) > 40
    assert {name for name, samples in ours.items() if not samples & used} == set()


@pytest.mark.parametrize("query", queries())
def test_every_query_is_whole(query: str):
    """Not a parser of PromQL, but what an edit by hand breaks: brackets, durations, rates."""
    assert query.count('"') % 2 == 0
    text, opened = without_strings(query), []
    for sign in text:
        if sign in MATCHED:
            opened.append(MATCHED[sign])
        elif sign in MATCHED.values():
            assert opened and opened.pop() == sign
    assert not opened
    for span in re.findall(r"\[([^\]]*)\]", text):
        assert span == "$__rate_interval" or DURATION.fullmatch(span), span
    types = {sample: f.type for f in families() for sample in EXPORTED[f.name]}
    # Of a counter only its rate means something, and a gauge has none.
    for name in NAME.findall(text):
        rated = re.search(rf"(rate|increase)\({name}(\{{[^}}]*\}})?\[", text)
        assert bool(rated) == (types[name] in ("counter", "histogram")), name


def test_no_metric_is_named_against_the_conventions_of_prometheus():
    for family in families():
        assert family.documentation, family.name
        assert re.fullmatch(r"(stackcast|process)_[a-z_]+", family.name)
        assert not re.search(r"_(milliseconds|ms|kb|mb|minutes|percent)\b", family.name)


def test_the_dashboard_can_be_imported_with_any_data_source():
    variables = {v["name"]: v for v in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    for panel in panels():
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert DASHBOARD["id"] is None if "id" in DASHBOARD else True
    assert [row["title"] for row in panels("row")] == ROWS
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    titles = [panel["title"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids) and len(set(titles)) == len(titles)
    assert all(panel["description"] for panel in panels())


def test_no_panel_lies_on_another():
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [
        (x, y)
        for p in places
        for x in range(p["x"], p["x"] + p["w"])
        for y in range(p["y"], p["y"] + p["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_every_alert_has_what_prometheus_wants_and_its_section_in_the_runbook():
    assert set(RULES) == {"groups"}
    names = [group["name"] for group in RULES["groups"]]
    assert len(set(names)) == len(names)
    alerts = {rule["alert"]: rule for rule in rules("alert")}
    assert len(alerts) == len(rules("alert")) > 15
    for name, rule in alerts.items():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"Stackcast[A-Za-z]+", name)
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook.md#{name.lower()}"
        assert "for" not in rule or DURATION.fullmatch(rule["for"])
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            # A label that the sum took away would be an empty word.
            grouped = re.search(r"sum by \(([^)]*)\)", rule["expr"])
            kept = grouped[1].replace(" ", "").split(",") if grouped else [label]
            assert label in kept, (name, label)
    for rule in rules("record"):
        assert set(rule) == {"record", "expr"}
    headings = re.findall(r"^## (Stackcast\w+)$", RUNBOOK, re.MULTILINE)
    assert headings == list(alerts)


def test_every_section_of_the_runbook_says_what_why_and_what_to_do():
    sections = re.split(r"^## (?=Stackcast)", RUNBOOK, flags=re.MULTILINE)[1:]
    for section in sections:
        for part in ("**Meaning.**", "**Diagnosis.**", "**Action.**", "**Urgency.**"):
            assert section.count(part) == 1, section.splitlines()[0]


def test_the_documents_speak_only_of_metrics_that_are_there():
    known = set().union(*EXPORTED.values()) | set(EXPORTED)
    for text in (RUNBOOK, METRICS):
        named = re.findall(r"`((?:stackcast|process)_[a-z0-9_]+)", text)
        assert named and set(named) <= known, set(named) - known


def test_every_metric_is_explained_to_operators():
    explained = set(re.findall(r"`(stackcast_[a-z0-9_]+)`", METRICS))
    for name, samples in EXPORTED.items():
        if name.startswith("stackcast_"):
            assert explained & ({name} | samples), name
