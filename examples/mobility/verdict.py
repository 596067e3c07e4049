"""The verdict on a run of trackers: replicas and movements compared with brute force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from expected_movements import Expected, Place, differences

#: Number of points in time for which staleness is computed.
_POINTS = 120


@dataclass(frozen=True)
class Verdict:
    """Results of a run.

    Attributes:
        exact: whether all replicas and movements are right.
        states: row per state: name, edge, updates, bytes of the last update, holders.
        replicas: row per replica: edge, holder, received updates, whether the content is right
            (``held``), and the latency of updates in milliseconds (p50, p99, largest).
        movements: row per tracker, and one for the stream of the whole city: who, expected,
            missing, extra and wrong movements.
        flows: number and mean speed of the movements between each pair of edges.
        staleness: see `staleness`.
        latency: latency of all updates in milliseconds (p50, p99, largest).
    """

    exact: bool
    states: Sequence[Mapping[str, Any]]
    replicas: Sequence[Mapping[str, Any]]
    movements: Sequence[Mapping[str, Any]]
    flows: Sequence[Mapping[str, Any]]
    staleness: Mapping[str, Sequence[float]]
    latency: Mapping[str, float]


def prove(
    brute_force: Expected,
    neighbours: Mapping[str, Sequence[str]],
    results: Mapping[str, Mapping[str, Any]],
    city_movements: Iterable[Mapping[str, Any]],
    converged: bool,
) -> Verdict:
    """Compare the results of a run with brute force.

    Args:
        brute_force: states and movements by brute force.
        neighbours: edges whose states each tracker replicates.
        results: result that each tracker has written.
        city_movements: movements in the whole city.
        converged: whether each tracker had the last update of all its neighbours in time.
    """
    states = [
        {
            "state": f"sightings/{edge}",
            "edge": edge,
            "updates": len(each["published"]),
            "bytes": each["published"][-1][1] if each["published"] else 0,
            "holders": sorted(e for e, others in neighbours.items() if edge in others),
        }
        for edge, each in results.items()
    ]
    replicas = []
    for holder, others in neighbours.items():
        for edge in (holder, *others):
            came = results[holder]["came"].get(edge, [])
            waits = [(here - published) / 1e6 for _, _, published, here in came]
            replicas.append(
                {
                    "holder": holder,
                    "edge": edge,
                    "own": edge == holder,
                    "updates": len(came),
                    "held": _same(results[holder]["held"].get(edge, {}), brute_force.held[edge]),
                    **_spread(waits),
                }
            )
    movements = []
    for holder, others in neighbours.items():
        correct = brute_force.movements([holder, *others], touching=holder)
        counts = differences(correct, results[holder]["movements"])
        movements.append({"who": holder, "expected": len(correct), **counts})
    rows = list(city_movements)
    correct = brute_force.movements(list(neighbours))
    movements.append({"who": "city", "expected": len(correct), **differences(correct, rows)})
    waits = [
        (here - published) / 1e6
        for each in results.values()
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
        _flows(rows, brute_force.places),
        staleness(results, neighbours),
        _spread(waits),
    )


def _same(
    held: Mapping[str, Sequence[Sequence[Any]]], brute_force: Mapping[str, list[tuple[int, str]]]
) -> bool:
    state = {name: sorted((int(time), s) for time, s in seen) for name, seen in held.items()}
    return state == dict(brute_force)


def _spread(waits: Sequence[float]) -> dict[str, float]:
    if not waits:
        return {"p50_ms": 0.0, "p99_ms": 0.0, "max_ms": 0.0}
    p50, p99 = np.percentile(waits, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "max_ms": float(max(waits))}


def staleness(
    results: Mapping[str, Mapping[str, Any]], neighbours: Mapping[str, Sequence[str]]
) -> dict[str, list[float]]:
    """Return the staleness of the replicas over time.

    The staleness of a replica is the age of the oldest published update that is newer than its own
    newest update; it is 0 if the replica is up to date. A replica may skip updates, because each
    update contains the whole state.

    Returns:
        ``seconds`` since the first update, and for each of these times the staleness of the worst
        replica, ``worst_ms``, and the mean of all, ``mean_ms``.
    """
    published = {e: sorted(at for _, _, at in each["published"]) for e, each in results.items()}
    times = [at for each in published.values() for at in each]
    if not times:
        return {"seconds": [], "worst_ms": [], "mean_ms": []}
    start = min(times)
    end = max(
        [here for each in results.values() for came in each["came"].values() for *_, here in came]
        + [max(times)]
    )
    points = np.linspace(start, end, _POINTS)
    of_all = []
    for holder, others in neighbours.items():
        for edge in others:
            came = results[holder]["came"].get(edge, [])
            arrivals = np.array([here for *_, here in came], np.int64)
            newest = np.maximum.accumulate(np.array([0, *(at for _, _, at, _ in came)], np.int64))
            has = newest[np.searchsorted(arrivals, points, "right")]
            sent = np.array([*published[edge], np.iinfo(np.int64).max], np.int64)
            missing = sent[np.searchsorted(sent, has, "right")]
            of_all.append(np.maximum(0.0, points - missing) / 1e6)
    return {
        "seconds": ((points - start) / 1e9).round(3).tolist(),
        "worst_ms": np.max(of_all, axis=0).round(3).tolist(),
        "mean_ms": np.mean(of_all, axis=0).round(3).tolist(),
    }


def _flows(rows: Iterable[Mapping[str, Any]], places: Mapping[str, Place]) -> list[dict[str, Any]]:
    speeds: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        edges = places[row["origin"]][0], places[row["target"]][0]
        speeds.setdefault(edges, []).append(row["speed"])
    return [
        {"from": a, "to": b, "count": len(values), "speed": sum(values) / len(values)}
        for (a, b), values in sorted(speeds.items())
    ]
