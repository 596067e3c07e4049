"""The faults of a network's rows: `Network` raises the first, a check of files lists all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.names import name_fault
from stackcast.udfs.network.encodings import can_widen, with_room
from stackcast.udfs.network.labels import MAX_PORT, LabelFormat
from stackcast.udfs.network.parts import Host, Link, Switch

MAX_WEIGHT = 1e12


@dataclass(frozen=True)
class Fault:
    """A fault of a network.

    Attributes:
        error: the error that `Network` raises for it.
        part: the switch, host or link with the fault; None if the network has no switch.
        column: column of the part's table that has the wrong value.
    """

    error: NetworkError
    part: Switch | Host | Link | None
    column: str


def faults(
    switches: Sequence[Switch], hosts: Sequence[Host], links: Sequence[Link], labels: LabelFormat
) -> Iterator[Fault]:
    """Yield all faults of the rows of a network, for labels of this format.

    One mistake may be several faults: if two links leave a switch by the same port, one of them has
    no link back.
    """
    if not switches:
        error = NetworkError("NO_SWITCH", "a network needs at least one switch")
        yield Fault(error, None, "switch")
        return
    yield from _name_faults(switches, hosts)
    yield from _device_faults(switches)
    yield from _address_faults(hosts)
    yield from _label_faults(switches, links, labels)
    yield from _link_id_faults(links, labels)
    yield from _end_faults(switches, hosts, links)
    yield from _port_faults(switches, links)
    yield from _host_faults(switches, hosts, links)
    yield from _connection_faults(switches, links)
    yield from _tunnel_faults(hosts, links)


def _fault(
    code: str, part: Switch | Host | Link, column: str, message: str, **fields: Any
) -> Fault:
    return Fault(NetworkError(code, message, **fields), part, column)


def _name_faults(switches: Sequence[Switch], hosts: Sequence[Host]) -> Iterator[Fault]:
    nodes: list[Switch | Host] = [*switches, *hosts]
    for node in nodes:
        kind = "switch" if isinstance(node, Switch) else "host"
        if fault := name_fault(node.name):
            text = f"the name of a {kind} {fault}"
            yield _fault("BAD_NAME", node, kind, text, name=node.name)
    earlier: set[str] = set()
    for node in nodes:
        if node.name in earlier:
            kind = "switch" if isinstance(node, Switch) else "host"
            text = f"two nodes are named {node.name!r}"
            yield _fault("DUPLICATE_NAME", node, kind, text, name=node.name)
        earlier.add(node.name)


def _device_faults(switches: Sequence[Switch]) -> Iterator[Fault]:
    earlier: set[int] = set()
    for switch in switches:
        number = switch.device_id
        if number in earlier:
            text = f"two switches have device id {number}"
            yield _fault("DUPLICATE_DEVICE_ID", switch, "device_id", text, device_id=number)
        earlier.add(number)
    for switch in switches:
        if not 0 <= switch.device_id < 1 << 64:
            text = (
                f"switch {switch.name!r} has device id {switch.device_id}, but device ids of "
                "P4Runtime are unsigned 64-bit numbers"
            )
            yield _fault("BAD_DEVICE_ID", switch, "device_id", text, switch=switch.name)


def _address_faults(hosts: Sequence[Host]) -> Iterator[Fault]:
    for column, bits in (("ipv4", 32), ("mac", 48)):
        sharing: dict[int, list[str]] = {}
        for host in hosts:
            value: int = getattr(host, column)
            sharing.setdefault(value, []).append(host.name)
            if not 0 <= value < 1 << bits:
                text = f"host {host.name!r} has {column} {value}, which does not fit in {bits} bits"
                yield _fault("BAD_ADDRESS", host, column, text, host=host.name)
        earlier: set[int] = set()
        for host in hosts:
            value = getattr(host, column)
            if value in earlier:
                names = sharing[value]
                text = f"hosts {', '.join(names)} have the same {column}"
                yield _fault("DUPLICATE_ADDRESS", host, column, text, hosts=names)
            earlier.add(value)


def _label_faults(
    switches: Sequence[Switch], links: Sequence[Link], labels: LabelFormat
) -> Iterator[Fault]:
    """Yield switches and ports that labels have no room for."""
    advice = _roomier(switches, links, labels)
    for switch in switches:
        if not labels.names(switch.device_id):
            text = (
                f"switch {switch.name!r} has device id {switch.device_id}: {advice()}, or use "
                f"device ids 1..{labels.max_device}"
            )
            yield _fault("NO_LABEL", switch, "device_id", text, switch=switch.name)
    for link in links:
        if link.port <= MAX_PORT and not labels.reaches(link.port, link.id):
            text = f"link {link.id} leaves {link.switch!r} by port {link.port}: {advice()}"
            yield _fault("NO_LABEL", link, "port", text, switch=link.switch, port=link.port)


def _roomier(
    switches: Sequence[Switch], links: Sequence[Link], labels: LabelFormat
) -> Callable[[], str]:
    """Return a function that says what to choose where labels have no room for these."""

    @cache
    def advice() -> str:
        names = with_room(
            [switch.device_id for switch in switches], [(link.port, link.id) for link in links]
        )
        width = "set spark.stackcast.label.bits to 32, or " if labels.encoding in names else ""
        choices = ", ".join(name for name in names if name != labels.encoding)
        return (
            f"{labels.bits}-bit labels of encoding {labels.encoding} cannot represent it: "
            f"{width}set spark.stackcast.encoding to one of {choices}"
        )

    return advice


def _link_id_faults(links: Sequence[Link], labels: LabelFormat) -> Iterator[Fault]:
    largest = labels.max_id
    advice = "; 32-bit labels allow more" if can_widen(labels) else ""
    # The largest first: it shows how many ids the network needs.
    outside = [link for link in links if not 0 < link.id <= largest]
    for link in sorted(outside, key=lambda link: -link.id):
        text = (
            f"directed link id {link.id} does not fit in a label: ids are 1..{largest} "
            f"({largest.bit_length()} bits), and the network has {len(links)} directed "
            f"links{advice}"
        )
        yield _fault("TOO_MANY_LINKS", link, "link_id", text, link=link.id)
    earlier: set[int] = set()
    for link in links:
        if link.id in earlier:
            text = f"two links have the id {link.id}"
            yield _fault("DUPLICATE_LINK", link, "link_id", text, link=link.id)
        earlier.add(link.id)


def _end_faults(
    switches: Sequence[Switch], hosts: Sequence[Host], links: Sequence[Link]
) -> Iterator[Fault]:
    switch_names = {switch.name for switch in switches}
    names = switch_names | {host.name for host in hosts}
    for link in links:
        if link.switch not in switch_names:
            text = f"link {link.id} leaves {link.switch!r}, which is not a switch of the network"
            fields = {"link": link.id, "switch": link.switch}
            yield _fault("UNKNOWN_SWITCH", link, "switch", text, **fields)
        if link.neighbor == link.switch or link.neighbor not in names:
            text = (
                f"link {link.id} of {link.switch!r} leads to {link.neighbor!r}, which is "
                "neither another switch nor a host of the network"
            )
            fields = {"link": link.id, "switch": link.neighbor}
            yield _fault("UNKNOWN_SWITCH", link, "neighbor", text, **fields)
        if not 0 < link.port <= MAX_PORT:
            text = (
                f"link {link.id} uses port {link.port} of {link.switch!r}, but ports are "
                f"1..{MAX_PORT}"
            )
            fields = {"link": link.id, "switch": link.switch, "port": link.port}
            yield _fault("TOO_MANY_PORTS", link, "port", text, **fields)
        if not 0 < link.weight <= MAX_WEIGHT:
            text = (
                f"link {link.id} of {link.switch!r} has weight {link.weight}, but a weight "
                f"must be above 0 and at most {MAX_WEIGHT:g}"
            )
            yield _fault("BAD_WEIGHT", link, "weight", text, link=link.id)


def _port_faults(switches: Sequence[Switch], links: Sequence[Link]) -> Iterator[Fault]:
    names = {switch.name for switch in switches}
    earlier: set[tuple[str, int]] = set()
    for link in links:
        if (link.switch, link.port) in earlier:
            text = f"two links use port {link.port} of {link.switch!r}"
            fields = {"switch": link.switch, "port": link.port}
            yield _fault("DUPLICATE_PORT", link, "port", text, **fields)
        earlier.add((link.switch, link.port))
    by_port = {(link.switch, link.port): link for link in links}
    for link in links:
        if link.switch not in names or link.neighbor not in names:
            continue
        back = by_port.get((link.neighbor, link.neighbor_port or 0))
        if back is None or (back.neighbor, back.neighbor_port) != (link.switch, link.port):
            text = (
                f"link {link.id} leads from {link.switch}:{link.port} to "
                f"{link.neighbor}:{link.neighbor_port}, but there is no link in the opposite "
                "direction between these ports"
            )
            yield _fault("ONE_WAY_LINK", link, "neighbor_port", text, link=link.id)


def _host_faults(
    switches: Sequence[Switch], hosts: Sequence[Host], links: Sequence[Link]
) -> Iterator[Fault]:
    names = {switch.name for switch in switches}
    links_to: dict[str, list[Link]] = {host.name: [] for host in hosts}
    for link in links:
        if link.neighbor in links_to:
            links_to[link.neighbor].append(link)
    for host in hosts:
        attached = links_to[host.name]
        if len(attached) > 1:
            text = f"host {host.name!r} is attached to more than one port"
            yield _fault("UNATTACHED_HOST", host, "port", text, host=host.name)
            continue
        ends = [(link.switch, link.port, link.neighbor_port) for link in attached]
        if ends != [(host.switch, host.port, None)]:
            text = (
                f"host {host.name!r} must be attached to {host.switch}:{host.port} by exactly "
                "one link, without neighbor_port"
            )
            if host.switch not in names:
                text += f"; {host.switch!r} is not a switch of the network"
            column = "port" if ends and ends[0][0] == host.switch else "switch"
            yield _fault("UNATTACHED_HOST", host, column, text, host=host.name)


def _connection_faults(switches: Sequence[Switch], links: Sequence[Link]) -> Iterator[Fault]:
    """Yield the first switch of each part that is not connected to the first switch."""
    # Failed links count here: a network that lost a link is still the same network.
    neighbors: dict[str, list[str]] = {switch.name: [] for switch in switches}
    for link in links:
        if link.switch in neighbors and link.neighbor in neighbors:
            neighbors[link.switch].append(link.neighbor)
            neighbors[link.neighbor].append(link.switch)
    start = switches[0]
    reached: set[str] = set()
    for switch in switches:
        if switch.name in reached:
            continue
        if switch is not start:
            text = (
                f"there is no path from switch {start.name!r} to {switch.name!r}, even over "
                "failed links"
            )
            yield _fault("DISCONNECTED", switch, "switch", text, switch=switch.name)
        reached.add(switch.name)
        waiting = [switch.name]
        while waiting:
            for name in neighbors[waiting.pop()]:
                if name not in reached:
                    reached.add(name)
                    waiting.append(name)


def _tunnel_faults(hosts: Sequence[Host], links: Sequence[Link]) -> Iterator[Fault]:
    by_name = {host.name: host for host in hosts}
    by_port = {(link.switch, link.port): link for link in links}
    for link in links:
        back = by_port.get((link.neighbor, link.neighbor_port or 0))
        if link.tunnel is None:
            if back is not None and back.tunnel is not None:
                yield _tunnel_fault(
                    link, "the link in the opposite direction is a tunnel, but this one is not"
                )
            continue
        for name, value, bits in (
            ("ipv4", link.tunnel.ipv4, 32),
            ("mac", link.tunnel.mac, 48),
            ("next_hop", link.tunnel.next_hop, 48),
        ):
            if not 0 < value < 1 << bits:
                text = (
                    f"the {name} of its tunnel is {value}, but must be above 0 and have at most "
                    f"{bits} bits"
                )
                yield _tunnel_fault(link, text, f"tunnel.{name}")
        host = by_name.get(link.neighbor)
        if host is not None:
            if host.role != "publisher":
                yield _tunnel_fault(
                    link, f"it is a tunnel, but host {host.name!r} is not a publisher"
                )
        elif back is not None and back.tunnel is not None and back.tunnel.ipv4 == link.tunnel.ipv4:
            yield _tunnel_fault(link, "both ends of its tunnel have the same ipv4", "tunnel.ipv4")


def _tunnel_fault(link: Link, fault: str, column: str = "tunnel") -> Fault:
    text = f"link {link.id} of {link.switch!r} to {link.neighbor!r}: {fault}"
    return _fault("BAD_TUNNEL", link, column, text, link=link.id)
