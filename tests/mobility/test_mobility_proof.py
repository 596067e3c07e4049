"""The city of the use case, the verdict on a run of it, and the page."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from city import City
from expected_movements import expected
from mobility_report import MobilityReport, print_table, render_html
from movements import movements, neighbours, touching
from sightings import KEPT_MS, Sightings
from stackcast.udfs.network.topology import fabric
from verdict import prove, staleness

pytestmark = pytest.mark.unit

CITY = City(3, 2, 7)
PLACES = CITY.places()
NEIGHBOURS = neighbours(PLACES.values(), 450)
REPORTS = CITY.reports(4)
WANTED = expected(
    {n: (p.edge, p.x, p.y) for n, p in PLACES.items()},
    [(report.scanner, report.devices) for _, report in REPORTS],
    KEPT_MS,
)


def told() -> dict[str, Any]:
    """What trackers write that got all, each update 5 ms after it was published."""
    own = {edge: Sightings() for edge in NEIGHBOURS}
    published: dict[str, list[list[int]]] = {edge: [] for edge in NEIGHBOURS}
    for at, report in REPORTS:
        edge = PLACES[report.scanner].edge
        own[edge].add(report)
        size = len(own[edge].pack(0))
        published[edge].append([len(published[edge]) + 1, size, int(at * 1e9)])
    found = {}
    for edge, others in NEIGHBOURS.items():
        known = [own[name].of for name in (edge, *others)]
        mine = touching(movements(known, PLACES), edge, PLACES)
        found[edge] = {
            "held": {name: own[name].of for name in (edge, *others)},
            "movements": [dataclasses.asdict(each) for each in mine],
            "published": published[edge],
            "came": {
                other: [[n, size, at, at + 5_000_000] for n, size, at in published[other]]
                for other in others
            },
        }
    return json.loads(json.dumps(found))


def of_city() -> list[dict[str, Any]]:
    known = [WANTED.held[edge] for edge in NEIGHBOURS]
    return [dataclasses.asdict(each) for each in movements(known, PLACES)]


def test_scanners_report_10_to_50_devices_every_20_seconds_by_hashes() -> None:
    times = Counter(report.scanner for _, report in REPORTS)
    assert times == Counter(dict.fromkeys(PLACES, 4))
    of_one = [at for at, report in REPORTS if report.scanner == "edge1-scanner1"]
    assert {round(b - a, 6) for a, b in pairwise(of_one)} == {20}
    for at, report in REPORTS:
        names = [device for device, _ in report.devices]
        assert 10 <= len(names) <= 50 and len(set(names)) == len(names)
        assert all(len(name) == 16 and int(name, 16) >= 0 for name in names)
        assert all(at - 20 <= seen / 1000 < at for _, seen in report.devices)
    assert CITY.reports(4) == REPORTS
    assert {d for _, r in City(3, 2, 8).reports(1) for d, _ in r.devices}.isdisjoint(
        d for _, r in REPORTS for d, _ in r.devices
    )


def test_devices_move_between_all_edges_that_are_beside_each_other() -> None:
    ways = {(PLACES[a].edge, PLACES[b].edge) for _, _, a, b in WANTED.movements(list(NEIGHBOURS))}
    assert ways >= {(a, b) for a, others in NEIGHBOURS.items() for b in others}


def test_a_run_that_got_all_is_exact() -> None:
    verdict = prove(WANTED, NEIGHBOURS, told(), of_city(), True)
    assert verdict.exact
    assert verdict.latency == {"p50_ms": 5.0, "p99_ms": 5.0, "max_ms": 5.0}
    assert max(verdict.staleness["worst_ms"]) <= 5.0
    assert sum(flow["count"] for flow in verdict.flows) == len(of_city()) > 0


def test_whatever_is_wrong_is_found() -> None:
    right = told()

    def exact(change, city=None, converged=True) -> bool:
        made = copy.deepcopy(right)
        change(made)
        return prove(WANTED, NEIGHBOURS, made, city or of_city(), converged).exact

    def stale(made) -> None:
        next(iter(made["edge1"]["held"]["edge2"].values())).pop()

    assert exact(lambda made: None)
    assert not exact(lambda made: None, converged=False)
    assert not exact(lambda made: None, city=of_city()[1:])
    assert not exact(stale)
    assert not exact(lambda made: made["edge1"]["held"].pop("edge2"))
    assert not exact(lambda made: made["edge2"]["movements"].pop())
    assert not exact(lambda made: made["edge2"]["movements"].append(made["edge2"]["movements"][0]))


def test_a_replica_is_as_stale_as_the_oldest_update_that_it_lacks() -> None:
    second = 1_000_000_000
    told = {
        "a": {"published": [[n, 1, n * second] for n in (1, 2, 3)], "came": {}},
        "b": {
            "published": [],
            # The second is lost, and all come with the third.
            "came": {"a": [[1, 1, second, second], [3, 1, 3 * second, 5 * second]]},
        },
    }
    found = staleness(told, {"a": (), "b": ("a",)})
    at = dict(zip(found["seconds"], found["worst_ms"], strict=True))
    assert max(ms for s, ms in at.items() if s <= 1) == 0
    assert max(found["worst_ms"]) == pytest.approx(3_000, abs=40)
    assert found["worst_ms"][-1] == 0


def report(verdict) -> MobilityReport:
    network = fabric(2, 1, 1, 1, 1, 4)
    *hosts, controller = network.publishers()
    runs_on = dict(zip(NEIGHBOURS, hosts, strict=True)) | {"controller": controller}
    status = {"link_bytes": {"a->b": 7}, "drops": {"loss": 3}}
    return MobilityReport(
        dataclasses.asdict(verdict), network, PLACES, runs_on, status, {"loss": 1}, 1.0
    )


def test_the_page_shows_the_way_of_each_state_and_says_what_was_found() -> None:
    good = report(prove(WANTED, NEIGHBOURS, told(), of_city(), True))
    page = render_html(good)
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert data["verdict"]["exact"] and "Converged" in data["verdict"]["sentence"]
    for state in data["found"]["states"]:
        way = {tuple(link) for link in data["ways"][state["edge"]]}
        reached = {v for _, v in way}
        assert {data["runsOn"][holder] for holder in state["holders"]} <= reached
        assert data["runsOn"]["controller"] in reached
    made = told()
    made["edge1"]["movements"].pop()
    bad = report(prove(WANTED, NEIGHBOURS, made, of_city(), True))
    assert bad.sentence == "Not converged: 1 movements missing."
    lines = io.StringIO()
    print_table(bad, lines)
    assert bad.sentence in lines.getvalue() and "edge3" in lines.getvalue()
