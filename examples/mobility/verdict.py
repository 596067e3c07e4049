"""The verdict on a run of trackers: replicas and movements held against brute force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expected_movements import Expected, Place, differences

#: Points in time at which staleness is told.
_POINTS = 120


@dataclass(frozen=True)
class Verdict:
    """What was found. ``exact``: all of it is right.

    states: a row a state: name, edge, updates, bytes of the last, segments. replicas: a row a
    replica: edge, holder, updates that came, ``held`` (whether it is what it should be), latency
    p50, p99 and largest in milliseconds. movements: a row a tracker and one for the whole city, by
    the stream: who, expected, missing, extra, wrong. staleness: seconds since the first update, and
    at each how old the oldest update is that the worst replica, and the mean one, lacks,
    milliseconds. flows: movements of the city
    between edges, with their mean speed.
    """

    exact: bool
    states: Sequence[Mapping[str, Any]]
    replicas: Sequence[Mapping[str, Any]]
    movements: Sequence[Mapping[str, Any]]
    flows: Sequence[Mapping[str, Any]]
    staleness: Mapping[str, Sequence[float]]
    latency: Mapping[str, float]


def prove(
    wanted: Expected,
    neighbours: Mapping[str, Sequence[str]],
    told: Mapping[str, Mapping[str, Any]],
    of_city: Iterable[Mapping[str, Any]],
    converged: bool,
) -> Verdict:
    """Compares.

    neighbours: whose states each holds. told: what each tracker wrote at its end. of_city: rows of
    movements of the whole city. converged: whether each had the last update of all in time.
    """
    states = [
        {
            "state": f"sightings/{edge}",
            "edge": edge,
            "updates": len(each["published"]),
            "bytes": each["published"][-1][1] if each["published"] else 0,
            "holders": sorted(e for e, others in neighbours.items() if edge in others),
        }
        for edge, each in told.items()
    ]
    replicas = []
    for holder, others in neighbours.items():
        for edge in (holder, *others):
            came = told[holder]["came"].get(edge, [])
            waits = [(here - published) / 1e6 for _, _, published, here in came]
            replicas.append(
                {
                    "holder": holder,
                    "edge": edge,
                    "own": edge == holder,
                    "updates": len(came),
                    "held": _same(told[holder]["held"].get(edge, {}), wanted.held[edge]),
                    **_spread(waits),
                }
            )
    movements = []
    for holder, others in neighbours.items():
        right = wanted.movements([holder, *others], touching=holder)
        found = differences(right, told[holder]["movements"])
        movements.append({"who": holder, "expected": len(right), **found})
    rows = list(of_city)
    right = wanted.movements(list(neighbours))
    movements.append({"who": "city", "expected": len(right), **differences(right, rows)})
    waits = [
        (here - published) / 1e6
        for each in told.values()
        for came in each["came"].values()
        for _, _, published, here in came
    ]
    exact = (
        converged
        and all(row["held"] for row in replicas)
        and not any(row[key] for row in movements for key in ("missing", "extra", "wrong"))
        and any(row["expected"] for row in movements)
    )
    return Verdict(
        exact,
        states,
        replicas,
        movements,
        _flows(rows, wanted.places),
        staleness(told, neighbours),
        _spread(waits),
    )


def _same(
    held: Mapping[str, Sequence[Sequence[Any]]], wanted: Mapping[str, list[tuple[int, str]]]
) -> bool:
    found = {name: sorted((int(at), s) for at, s in seen) for name, seen in held.items()}
    return found == dict(wanted)


def _spread(waits: Sequence[float]) -> dict[str, float]:
    if not waits:
        return {"p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}
    half, most = np.percentile(waits, [50, 99])
    return {"p50_ms": float(half), "p99_ms": float(most), "max_ms": float(max(waits))}


def staleness(
    told: Mapping[str, Mapping[str, Any]], neighbours: Mapping[str, Sequence[str]]
) -> dict[str, list[float]]:
    """Returns ``seconds`` since the first update and at each ``worst_ms`` and ``mean_ms``.

    A replica is as stale as the oldest update is, published by then, after its newest one; one that
    has all is not. A replica that skips an update has it by the next.
    """
    published = {e: sorted(at for _, _, at in each["published"]) for e, each in told.items()}
    times = [at for each in published.values() for at in each]
    if not times:
        return {"seconds": [], "worst_ms": [], "mean_ms": []}
    began = min(times)
    ends = max(
        [here for each in told.values() for came in each["came"].values() for *_, here in came]
        + [max(times)]
    )
    points = np.linspace(began, ends, _POINTS)
    of_all = []
    for holder, others in neighbours.items():
        for edge in others:
            came = told[holder]["came"].get(edge, [])
            heard = np.array([here for *_, here in came], np.int64)
            newest = np.maximum.accumulate(np.array([0, *(at for _, _, at, _ in came)], np.int64))
            has = newest[np.searchsorted(heard, points, "right")]
            sent = np.array([*published[edge], np.iinfo(np.int64).max], np.int64)
            lacks = sent[np.searchsorted(sent, has, "right")]
            of_all.append(np.maximum(0.0, points - lacks) / 1e6)
    return {
        "seconds": ((points - began) / 1e9).round(3).tolist(),
        "worst_ms": np.max(of_all, axis=0).round(3).tolist(),
        "mean_ms": np.mean(of_all, axis=0).round(3).tolist(),
    }


def _flows(found: Iterable[Mapping[str, Any]], places: Mapping[str, Place]) -> list[dict[str, Any]]:
    speeds: dict[tuple[str, str], list[float]] = {}
    for row in found:
        way = places[row["origin"]][0], places[row["target"]][0]
        speeds.setdefault(way, []).append(row["speed"])
    return [
        {"from": a, "to": b, "count": len(each), "speed": sum(each) / len(each)}
        for (a, b), each in sorted(speeds.items())
    ]
