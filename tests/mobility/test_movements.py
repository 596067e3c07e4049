"""Trackers find the same movements of devices as brute force over the scanners' reports."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from expected_movements import differences, expected
from movements import Scanner, movements, neighbours, touching
from sightings import Report, Sightings, read_report, read_state
from stackcast.udfs.errors import StateError

pytestmark = pytest.mark.unit

SCANNERS = {
    name: Scanner(name, edge, x, y)
    for name, edge, x, y in (
        ("a1", "a", 0.0, 0.0),
        ("a2", "a", 50.0, 0.0),
        ("b1", "b", 300.0, 400.0),
        ("b2", "b", 300.0, -100.0),
        ("c1", "c", -200.0, 0.0),
    )
}
PLACES = {name: (place.edge, place.x, place.y) for name, place in SCANNERS.items()}
EDGES = ("a", "b", "c")

times = st.integers(0, 3_000)
reports = st.lists(
    st.tuples(
        st.sampled_from(list(SCANNERS)),
        st.lists(st.tuples(st.sampled_from("uvwx"), times), unique_by=lambda d: d[0]),
    ),
    max_size=12,
)


@examples(200)
@given(reports, st.sampled_from([1_000, 10_000]))
def test_every_tracker_finds_the_movements_that_brute_force_finds(numbered_reports, window_ms):
    trackers = {edge: Sightings(window_ms) for edge in EDGES}
    for number, (scanner, devices) in enumerate(numbered_reports):
        line = Report(scanner, number, tuple(devices)).pack()
        trackers[SCANNERS[scanner].edge].add(read_report(line))
    oracle = expected(PLACES, numbered_reports, window_ms)
    replicas = {edge: read_state(sightings.pack(77)) for edge, sightings in trackers.items()}
    for edge, (published, sightings) in replicas.items():
        assert published == 77
        assert sightings == oracle.held[edge]
    for edge in EDGES:
        for neighbour_edges in ((), ("b",), EDGES):
            edges = {edge, *neighbour_edges}
            all_movements = movements([replicas[name][1] for name in sorted(edges)], SCANNERS)
            rows = [asdict(movement) for movement in touching(all_movements, edge, SCANNERS)]
            right = oracle.movements(edges, touching=edge)
            assert differences(right, rows) == {"missing": 0, "extra": 0, "wrong": 0}


def test_direction_and_speed_are_those_of_the_straight_line() -> None:
    sightings = {"device": [(1_000, "a1"), (2_000, "a2"), (52_000, "b1"), (52_000, "b2")]}
    (movement,) = movements([sightings], SCANNERS)
    assert (movement.origin, movement.target, movement.at) == ("a2", "b1", 52_000)
    assert movement.speed == pytest.approx((250**2 + 400**2) ** 0.5 / 50)
    assert movement.bearing == pytest.approx(32.005, abs=1e-3)  # north-north-east


def test_brute_force_reports_each_kind_of_fault() -> None:
    oracle = expected(PLACES, [("a1", [("d", 0)]), ("b1", [("d", 9_000)])], 10_000)
    right = oracle.movements(EDGES)
    ((key, (speed, bearing)),) = right.items()
    row = dict(zip(("device", "at", "origin", "target"), key, strict=True))
    good = {**row, "speed": speed, "bearing": bearing}
    assert differences(right, [good]) == {"missing": 0, "extra": 0, "wrong": 0}
    assert differences(right, []) == {"missing": 1, "extra": 0, "wrong": 0}
    assert differences(right, [good, good]) == {"missing": 0, "extra": 1, "wrong": 0}
    assert differences(right, [{**good, "speed": speed * 1.01}])["wrong"] == 1
    assert differences(right, [{**good, "bearing": bearing + 180}])["wrong"] == 1


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"scanner": 1, "number": 2, "devices": 3}'])
def test_bytes_that_are_no_report_or_state_are_refused(line: bytes) -> None:
    for read in (read_report, read_state):
        with pytest.raises(StateError, match=r"STATE\.BAD_SIGHTINGS"):
            read(line)


def test_only_edges_that_are_near_hold_replicas_of_each_other() -> None:
    assert neighbours(SCANNERS.values(), 330) == {"a": ("b", "c"), "b": ("a",), "c": ("a",)}
