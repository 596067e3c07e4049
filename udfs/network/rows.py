"""Network and trees to and from plain rows of the Delta tables.

A row that is read is any mapping of column names (``dict``, Spark's ``Row``), one that is made a
dict. The columns are those of ``schemas/tables``; IPv4 addresses are dotted text there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import AddressValueError, IPv4Address
from typing import Any, Protocol

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import NARROW, LabelFormat
from stackcast.udfs.network.network import Host, Link, Network, Switch
from stackcast.udfs.network.programs import check_labels
from stackcast.udfs.network.tunnel import TunnelEnd
from stackcast.udfs.network.virtual_tree import VirtualTree


class Row(Protocol):
    """One row of a table that is read: a mapping from column names to values."""

    def __getitem__(self, column: str, /) -> Any: ...

    def __contains__(self, column: object, /) -> bool: ...


def host_to_row(host: Host) -> dict[str, Any]:
    return {
        "host": host.name,
        "switch": host.switch,
        "port": host.port,
        "mac": host.mac,
        "ipv4": str(IPv4Address(host.ipv4)),
        "role": host.role,
    }


def host_from_row(row: Row) -> Host:
    """Reads a host. Raises NetworkError ``BAD_ADDRESS``."""
    address = _address(f"host {row['host']!r}", row["ipv4"])
    return Host(row["host"], row["switch"], row["port"], row["mac"], address, row["role"])


def switch_to_row(
    switch: Switch,
    address: str,
    pipeline: str = "virtual_trees",
    max_rules: int | None = None,
    max_groups: int | None = None,
) -> dict[str, Any]:
    """Writes a switch. ``address``: its P4Runtime address, ``host:port``; None: no known limit."""
    return {
        "switch": switch.name,
        "device_id": switch.device_id,
        "address": address,
        "pipeline": pipeline,
        "layer": switch.layer,
        "max_rules": max_rules,
        "max_groups": max_groups,
    }


def switch_from_row(row: Row) -> Switch:
    return Switch(row["switch"], row["device_id"], row["layer"])


def link_to_row(link: Link) -> dict[str, Any]:
    """Writes a link; column ``tunnel`` is left out where it is none."""
    end = link.tunnel
    tunnel = end and {
        "ipv4": str(IPv4Address(end.ipv4)),
        "mac": end.mac,
        "next_hop": end.next_hop,
    }
    return {
        "link_id": link.id,
        "switch": link.switch,
        "port": link.port,
        "neighbor": link.neighbor,
        "neighbor_port": link.neighbor_port,
        "weight": link.weight,
        "up": link.up,
        **({"tunnel": tunnel} if tunnel else {}),
    }


def link_from_row(row: Row) -> Link:
    """Reads a link; a table may lack column ``tunnel``. Raises NetworkError ``BAD_ADDRESS``,
    ``BAD_TUNNEL``."""
    return Link(
        row["link_id"],
        row["switch"],
        row["port"],
        row["neighbor"],
        row["neighbor_port"],
        row["weight"],
        row["up"],
        _tunnel_end(row),
    )


def _tunnel_end(row: Row) -> TunnelEnd | None:
    if "tunnel" not in row or row["tunnel"] is None:
        return None
    link, tunnel = row["link_id"], row["tunnel"]
    # Delta does not hold what is inside a struct to NOT NULL.
    for name in ("ipv4", "mac", "next_hop"):
        if tunnel[name] is None:
            raise NetworkError("BAD_TUNNEL", f"the tunnel of link {link} has no {name}", link=link)
    address = _address(f"the tunnel of link {link}", tunnel["ipv4"])
    return TunnelEnd(address, tunnel["mac"], tunnel["next_hop"])


def _address(whose: str, text: str) -> int:
    try:
        return int(IPv4Address(text))
    except AddressValueError:
        raise NetworkError(
            "BAD_ADDRESS", f"{whose} has {text!r}, which is not an IPv4 address"
        ) from None


def with_states(links: Iterable[dict[str, Any]], now: Iterable[Row]) -> list[dict[str, Any]]:
    """Returns rows of ``links`` with column ``up`` of the same links in other rows of the table.

    The same: of that id, by those ports. Other columns stay as in ``links``. Raises NetworkError
    ``DUPLICATE_LINK`` if there are two rows of a link, one of which may be up and the other down.
    """
    ends = ("link_id", "switch", "port", "neighbor", "neighbor_port")
    up: dict[tuple[Any, ...], bool] = {}
    for row in now:
        link = tuple(row[name] for name in ends)
        if link in up:
            number = row["link_id"]
            raise NetworkError("DUPLICATE_LINK", f"two links have the id {number}", link=number)
        up[link] = row["up"]
    return [row | {"up": up.get(tuple(row[name] for name in ends), row["up"])} for row in links]


def network_from_rows(
    switches: Iterable[Row],
    hosts: Iterable[Row],
    links: Iterable[Row],
    labels: LabelFormat = NARROW,
) -> Network:
    """Builds the network of three tables, rows in any order; ``labels``: the format of its stacks.

    Raises NetworkError, also where the program of a switch reads other labels.
    """
    switch_rows = list(switches)
    check_labels({row["switch"]: row["pipeline"] for row in switch_rows}, labels)
    return Network.from_rows(
        map(switch_from_row, switch_rows),
        map(host_from_row, hosts),
        map(link_from_row, links),
        labels,
    )


def network_to_rows(
    network: Network, addresses: Mapping[str, str], pipeline: str | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Writes rows of ``switches``, ``hosts`` and ``links``; addresses: switch → P4Runtime address.

    ``pipeline`` is the shipped program for the network's labels by default.
    """
    pipeline = pipeline or network.labels.program
    return {
        "switches": [
            switch_to_row(switch, addresses[switch.name], pipeline)
            for switch in network.switches.values()
        ],
        "hosts": [host_to_row(host) for host in network.hosts.values()],
        "links": [link_to_row(link) for link in network.links],
    }


def tree_to_row(tree: VirtualTree) -> dict[str, Any]:
    return {
        "tree_id": tree.id,
        "edges": [{"u": u, "v": v} for u, v in sorted(tree.edges)],
        "strategy": tree.strategy,
        "state": tree.state,
    }


def tree_from_row(row: Row) -> VirtualTree:
    """Reads a tree; edges may be written either way round. Raises NetworkError as VirtualTree
    does."""
    ends = [(e["u"], e["v"]) if e is not None else (None, None) for e in row["edges"]]
    # Delta does not hold what is inside an array to NOT NULL.
    if any(u is None or v is None for u, v in ends):
        raise NetworkError(
            "NOT_A_TREE",
            f"virtual tree {row['tree_id']} has an edge with only one end",
            tree=row["tree_id"],
        )
    edges = frozenset((min(pair), max(pair)) for pair in ends)
    return VirtualTree(row["tree_id"], edges, row["strategy"], row["state"])
