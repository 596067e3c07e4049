"""The drawing of a network: its switches and hosts in rows by layer, or by their distances."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.network.network import Network

Place = tuple[float, float]
Floats = NDArray[np.float64]

_ROUNDS = 80
_HOST_DISTANCE = 0.35
#: Between the hosts of two switches of a row, by the distance of two hosts of one switch.
_GAP = 0.6
#: Turns from one host of a switch to the next: no two of them meet.
_GOLDEN = math.pi * (3 - math.sqrt(5))


def drawing(
    network: Network, geography: Mapping[str, Place] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Returns the network as the map of a report takes it (`stackcast.udfs.report`); all of it is
    JSON.

    ``nodes``: id, kind (``switch``, ``host`` or ``publisher``), layer of a switch or None, x and y
    as `layout` has them. ``links``: u, v and up, each link once, those to hosts too.
    """
    places = layout(network, geography)
    kinds = {name: ("switch", switch.layer) for name, switch in network.switches.items()}
    for name, host in network.hosts.items():
        kinds[name] = ("publisher" if host.role == "publisher" else "host", None)
    return {
        "nodes": [
            {"id": name, "kind": kind, "layer": layer, "x": places[name][0], "y": places[name][1]}
            for name, (kind, layer) in kinds.items()
        ],
        "links": [{"u": u, "v": v, "up": up} for (u, v), up in cables(network).items()],
    }


def cables(network: Network) -> dict[tuple[str, str], bool]:
    """Returns the links of a drawing in its order, u before v, and whether each can be used; of
    parallel ones, whether any can."""
    found: dict[tuple[str, str], bool] = {}
    for x in network.links:
        ends = min(x.switch, x.neighbor), max(x.switch, x.neighbor)
        found[ends] = found.get(ends, False) or network.usable(x)
    return dict(sorted(found.items()))


def layout(network: Network, geography: Mapping[str, Place] | None = None) -> dict[str, Place]:
    """Returns a place in the unit square for each switch and host; y grows downwards.

    Deterministic. geography: longitude and latitude of switches, in degrees. If at least half of
    the switches are in it, they are placed as on a map, the other switches next to their neighbors,
    and hosts around their switches.

    Where all switches have a layer, they stand in rows, those nearest to hosts lowest, and hosts in
    a row below them. Else switches stand as far apart as there are links between them, as well as a
    plane allows (stress majorization; quadratic in switches), and hosts around their switches.
    """
    known = {name: place for name, place in (geography or {}).items() if name in network.switches}
    if known and 2 * len(known) >= len(network.switches):
        return _with_hosts(network, _with_neighbors(network, _on_earth(known)))
    if all(switch.layer for switch in network.switches.values()):
        return _fitted(_rows(network), even=False)
    names = list(network.switches)
    distance = _distances(network)
    at = _majorized(distance, _scaled(distance))
    places = {name: (float(x), float(y)) for name, (x, y) in zip(names, at, strict=True)}
    return _with_hosts(network, places)


def _on_earth(degrees: Mapping[str, Place]) -> dict[str, Place]:
    """Plate carrée, true to scale in the middle; the mean distance to the nearest is about 1."""
    middle = sum(latitude for _, latitude in degrees.values()) / len(degrees)
    wide = math.cos(math.radians(middle))
    places = {name: (x * wide, -y) for name, (x, y) in degrees.items()}
    at = np.array(list(places.values()))
    apart = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
    np.fill_diagonal(apart, np.inf)
    nearest = apart.min(axis=1)
    unit = float(nearest[np.isfinite(nearest)].mean()) if len(at) > 1 else 0.0
    return {name: (x / (unit or 1.0), y / (unit or 1.0)) for name, (x, y) in places.items()}


def _with_neighbors(network: Network, switches: Mapping[str, Place]) -> dict[str, Place]:
    """Adds the switches without a place, each near the middle of its neighbors that have one."""
    places = dict(switches)
    neighbors: dict[str, set[str]] = {name: set() for name in network.switches}
    for link in network.links:
        if link.neighbor in neighbors:
            neighbors[link.switch].add(link.neighbor)
    while missing := [name for name in network.switches if name not in places]:
        for turn, name in enumerate(missing):
            near = [places[other] for other in sorted(neighbors[name]) if other in places]
            if near:
                # Switches with the same neighbors get different places, outside of their hosts'.
                angle = turn * _GOLDEN
                x, y = (sum(values) / len(near) for values in zip(*near, strict=True))
                places[name] = (
                    x + 2 * _HOST_DISTANCE * math.cos(angle),
                    y + 2 * _HOST_DISTANCE * math.sin(angle),
                )
    return places


def _with_hosts(network: Network, switches: Mapping[str, Place]) -> dict[str, Place]:
    places = dict(switches)
    hanging: dict[str, int] = {}
    for host in network.hosts.values():
        turn = hanging[host.switch] = hanging.get(host.switch, 0) + 1
        x, y = places[host.switch]
        angle = turn * _GOLDEN
        places[host.name] = (
            x + _HOST_DISTANCE * math.cos(angle),
            y + _HOST_DISTANCE * math.sin(angle),
        )
    return _fitted(places, even=True)


def _rows(network: Network) -> dict[str, Place]:
    layers: dict[str, list[str]] = {}
    for switch in network.switches.values():
        layers.setdefault(switch.layer or "", []).append(switch.name)
    above = _above_hosts(network)
    order = sorted(
        layers,
        key=lambda layer: (-sum(above[n] for n in layers[layer]) / len(layers[layer]), layer),
    )
    switch_at = {name: n for n, name in enumerate(network.switches)}
    hosts = sorted(network.hosts.values(), key=lambda host: (switch_at[host.switch], host.port))
    # Of each switch the places of its hosts, from the left.
    own: dict[str, list[float]] = {}
    right = 0.0
    for host in hosts:
        right += 1 if host.switch in own else 1 + _GAP
        own.setdefault(host.switch, []).append(right)
    wide = right or 1.0
    places: dict[str, Place] = {}
    for y, layer in enumerate(order):
        names = layers[layer]
        above_own = y == len(order) - 1 and own.keys() >= set(names)
        for n, name in enumerate(names):
            x = sum(own[name]) / len(own[name]) if above_own else (n + 0.5) * wide / len(names)
            places[name] = (x, float(y))
    for host in hosts:
        places[host.name] = (own[host.switch].pop(0), float(len(order)))
    return places


def _neighbors(network: Network) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in network.switches}
    for link in network.links:
        if link.neighbor in found:
            found[link.switch].append(link.neighbor)
    return found


def _reached(neighbors: Mapping[str, Sequence[str]], starts: Sequence[str]) -> dict[str, int]:
    """Links from the nearest of ``starts``, by name."""
    found = dict.fromkeys(starts, 0)
    waiting = deque(starts)
    while waiting:
        name = waiting.popleft()
        for other in neighbors[name]:
            if other not in found:
                found[other] = found[name] + 1
                waiting.append(other)
    return found


def _above_hosts(network: Network) -> dict[str, int]:
    with_hosts = list(dict.fromkeys(host.switch for host in network.hosts.values()))
    return dict.fromkeys(network.switches, 0) | _reached(_neighbors(network), with_hosts)


def _distances(network: Network) -> Floats:
    neighbors = _neighbors(network)
    place = {name: n for n, name in enumerate(network.switches)}
    found = np.zeros((len(place), len(place)))
    for name, row in place.items():
        for other, links in _reached(neighbors, [name]).items():
            found[row, place[other]] = links
    return found


def _scaled(distance: Floats) -> Floats:
    """Classical scaling: the plane that keeps most of the distances' squares."""
    number = len(distance)
    centered = np.eye(number) - 1 / number
    _, vectors = np.linalg.eigh(-0.5 * centered @ distance**2 @ centered)
    at = vectors[:, ::-1][:, :2]
    if at.shape[1] < 2:
        return np.zeros((number, 2))
    # Eigenvectors have no sign of their own.
    at = at * np.where(at[np.abs(at).argmax(axis=0), [0, 1]] < 0, -1, 1)
    turns = np.arange(number) * _GOLDEN
    # Switches that look alike from everywhere would stand on each other.
    found: Floats = at * distance.max()
    return found + 0.01 * np.stack([np.cos(turns), np.sin(turns)], axis=1)


def _majorized(distance: Floats, at: Floats) -> Floats:
    """Moved so that the stress, weighted by the distances' inverse squares, is low."""
    if len(at) < 3:
        return np.array([[float(n), 0.0] for n in range(len(at))])
    weight = 1 / np.where(distance > 0, distance, 1) ** 2
    np.fill_diagonal(weight, 0)
    for _ in range(_ROUNDS):
        apart = at[:, None] - at[None]
        length = np.sqrt((apart**2).sum(axis=2))
        pull = weight * distance / np.maximum(length, 1e-9)
        at = (weight @ at + (pull[:, :, None] * apart).sum(axis=1)) / weight.sum(axis=1)[:, None]
    return at


def _fitted(places: Mapping[str, Place], even: bool) -> dict[str, Place]:
    """Into the unit square; ``even``: by the same factor both ways."""
    left, top = (min(place[axis] for place in places.values()) for axis in (0, 1))
    wide, high = (
        max(place[axis] for place in places.values()) - least
        for axis, least in ((0, left), (1, top))
    )
    if even:
        wide = high = max(wide, high)
    return {
        name: (
            round((x - left) / wide, 4) if wide else 0.5,
            round((y - top) / high, 4) if high else 0.5,
        )
        for name, (x, y) in places.items()
    }
