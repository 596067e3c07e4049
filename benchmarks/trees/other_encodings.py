"""Headers of other stateless multicast for the same publisher, receivers and network, in bytes.

- BIER: a bit for each possible receiver (RFC 8279), behind 12 bytes of encapsulation (RFC 8296).
- Port bitmaps as in Elmo (Shahbaz et al., SIGCOMM 2019): a bitmap of egress ports for switches on
  the delivery tree, one for all switches of a layer that have it in common.

Only the header at the publisher is counted. BIER routers need a row for each receiver, and Elmo's
switches their place in the fabric: neither needs stored trees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from stackcast.udfs.network.network import Network

#: RFC 8296, 2.1.2: lengths of a bit string that its header can name, in bits.
BIT_STRINGS = (64, 128, 256, 512, 1024, 2048, 4096)
#: RFC 8296, 2.2: the header before the bit string, in bytes, as MPLS and others have it alike.
ENCAPSULATION = 12


@dataclass(frozen=True)
class Headers:
    """Headers of the frames that one notification takes, in bytes."""

    sizes: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @property
    def largest(self) -> int:
        return max(self.sizes, default=0)


@dataclass(frozen=True)
class Spread:
    """Bytes of header by publication."""

    mean: float
    maximum: int


def spread(sizes: Iterable[int]) -> Spread:
    """Raises ValueError for no size at all."""
    values = list(sizes)
    if not values:
        raise ValueError("no publication, no mean")
    return Spread(fmean(values), max(values))


def bier(network: Network, receivers: Collection[str], bits: int | None = None) -> Headers:
    """BIER with a bit for each host, numbered from 1 in the network's order.

    bits: of the bit string; if None, the shortest that has room for all hosts, else the longest.
    Receivers whose numbers lie in different sets of ``bits`` take a frame each set (RFC 8279, 3).
    Raises ValueError for a length that RFC 8296 does not have.
    """
    if bits is None:
        bits = next((each for each in BIT_STRINGS if each >= len(network.hosts)), BIT_STRINGS[-1])
    if bits not in BIT_STRINGS:
        raise ValueError(f"a bit string of {bits} bits: RFC 8296 has {BIT_STRINGS}")
    number = {name: at for at, name in enumerate(network.hosts)}
    sets = {number[name] // bits for name in receivers}
    return Headers((ENCAPSULATION + bits // 8,) * len(sets))


def bare_bits(network: Network, receivers: Collection[str]) -> Headers:
    """Returns the least that a bit string can be: a bit for each host, in whole bytes, and nothing
    else.
    """
    return Headers((_bytes(len(network.hosts)),) if receivers else ())


def port_bitmaps(network: Network, edges: Iterable[tuple[str, str]]) -> Headers:
    """Port bitmaps on any network, for a delivery tree.

    edges: ``(u, v)`` as the notification flows (:class:`stackcast.udfs.trees.encode.Encoding`). A
    rule is a bitmap as wide as the layer's switch with the most ports, and the ids of the switches
    that it is for, which are numbered by layer; a bit behind each rule and each id says whether
    more follow. A switch without a layer is in one with all others of that kind.
    """
    ports: dict[str, int] = dict.fromkeys(network.switches, 0)
    for link in network.links:
        ports[link.switch] += 1
    masks: dict[str, int] = {}
    for u, v in edges:
        if u in network.switches:
            masks[u] = masks.get(u, 0) | 1 << network.link(u, v).port
    layers: dict[str | None, list[str]] = {}
    for switch in network.switches.values():
        layers.setdefault(switch.layer, []).append(switch.name)
    bits = 0
    for names in layers.values():
        rules = [masks[name] for name in names if name in masks]
        bits += _rules(rules, max(ports[name] for name in names), len(names))
    return Headers((_bytes(bits),) if masks else ())


def elmo(network: Network, publisher: str, receivers: Collection[str]) -> Headers:
    """Elmo's header on a fabric (:func:`stackcast.udfs.network.topology.fabric`), without
    redundancy: no copy goes where nobody listens, and no rule is left to the switches.

    On the way up, rules name no switch: the publisher's rack has a bitmap of its hosts, its pod one
    of the racks, the core one of the pods, and the first two a bit that says whether copies go up
    by any link. On the way down, pods share bitmaps of racks, and racks bitmaps of hosts. A pod's
    fabric switches are one, and all spines are one, as any of them will do.

    Raises ValueError if a host is not on a switch of layer ``rack`` called ``podN-rackM``.
    """
    if not receivers:
        return Headers(())
    place = {name: _place(network, host.switch) for name, host in network.hosts.items()}
    racks = {_place(network, s.name) for s in network.switches.values() if s.layer == "rack"}
    pods = {pod for pod, _ in racks}
    hosts_a_rack: dict[tuple[str, str], list[str]] = {rack: [] for rack in racks}
    for name, rack in place.items():
        hosts_a_rack[rack].append(name)
    racks_a_pod = {pod: sorted(rack for p, rack in racks if p == pod) for pod in pods}
    width_hosts = max(map(len, hosts_a_rack.values()))
    width_racks = max(map(len, racks_a_pod.values()))

    wanted = {rack: 0 for rack in racks}
    for name in receivers:
        wanted[place[name]] |= 1 << hosts_a_rack[place[name]].index(name)
    home = place[publisher]
    away = {rack for rack, mask in wanted.items() if mask and rack != home}
    bits = width_hosts + 1
    if away:
        bits += width_racks + 1
    if any(pod != home[0] for pod, _ in away):
        bits += len(pods)
    down: dict[str, int] = {}
    for pod, rack in away:
        if pod != home[0]:
            down[pod] = down.get(pod, 0) | 1 << racks_a_pod[pod].index(rack)
    bits += _rules(list(down.values()), width_racks, len(pods))
    bits += _rules([wanted[rack] for rack in away], width_hosts, len(racks))
    return Headers((_bytes(bits),))


def _place(network: Network, switch: str) -> tuple[str, str]:
    pod, _, rack = switch.partition("-")
    if network.switches[switch].layer != "rack" or not rack:
        raise ValueError(f"switch {switch!r} is no rack of a pod")
    return pod, rack


def _rules(masks: Sequence[int], width: int, switches: int) -> int:
    """Bits of a layer's rules: equal masks share one; an id tells the layer's switches apart."""
    rules = len(set(masks))
    identifier = max(switches - 1, 1).bit_length()
    return rules * (width + 1) + len(masks) * (identifier + 1)


def _bytes(bits: int) -> int:
    return -(-bits // 8)
