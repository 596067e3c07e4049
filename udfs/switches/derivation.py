"""Derivation of the entries that switches should hold from network and trees, by P4 program.

A new program needs an entry in `DERIVATIONS` under its name, that of column ``pipeline`` of
``switches``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from stackcast.udfs.errors import NetworkError, SwitchError
from stackcast.udfs.network.labels import MAX_PORT
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import ATTRIBUTES, EVENT, FILTERING, REPLICATING, STACKS
from stackcast.udfs.network.virtual_tree import VirtualTree, stored
from stackcast.udfs.switches.bridge import bridging
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry
from stackcast.udfs.switches.ports import NARROW_PORTS, port_groups
from stackcast.udfs.switches.rollout import DesiredEntries, NetworkVersion, rewired, together
from stackcast.udfs.switches.routes import ROUTE, routes
from stackcast.udfs.switches.sources import sources
from stackcast.udfs.switches.stack_entries import LABELS_A_PASS, positions_of, switch_entries
from stackcast.udfs.switches.state_entries import TREE, state_entries

_START = "ingress.subscriptions.start"

Entries = Callable[[Network, list[VirtualTree], Collection[str]], list[SwitchEntry]]


#: Entries of versions in use, by all that decides them: to be kept between calls.
Memo = dict[Hashable, list[SwitchEntry]]


@dataclass(frozen=True)
class Derivation:
    """Derives the entries of one program.

    entries: of all switches, from a network, the trees that switches hold, and the tables' names of
    the program as it was compiled (none: as it is shipped). kept: whether a stack may need the
    entry, so that it must stay while stacks of older versions are made. ports: those that an entry
    sends to or is about, bit port - 1. most_ports: the highest port that the program can send to.
    tunnels: whether its switches can be ends of tunnels.
    """

    entries: Entries
    kept: Callable[[SwitchEntry], bool]
    ports: Callable[[SwitchEntry], int]
    most_ports: int = MAX_PORT
    tunnels: bool = False


def _stacks(
    network: Network, trees: list[VirtualTree], tables: Collection[str]
) -> list[SwitchEntry]:
    positions = positions_of(tables) if tables else LABELS_A_PASS
    return switch_entries(network, trees, positions)


def _without_filters(
    network: Network, _trees: list[VirtualTree], tables: Collection[str]
) -> list[SwitchEntry]:
    """Makes groups and routes: filters are made of subscriptions, from one version to the next."""
    _check_program(FILTERING, _START, tables)
    return _of_ports(network)


def _without_passes(
    network: Network, _trees: list[VirtualTree], tables: Collection[str]
) -> list[SwitchEntry]:
    """Makes the same for events of attributes, beside which ARP and IPv6 pass."""
    _check_program(ATTRIBUTES, EVENT, tables)
    bridged = bridging(network)
    return [*_of_ports(network), *(entry for entries in bridged.values() for entry in entries)]


def _of_states(
    network: Network, _trees: list[VirtualTree], tables: Collection[str]
) -> list[SwitchEntry]:
    _check_program(REPLICATING[0], TREE, tables)
    return state_entries(network)


def _of_ports(network: Network) -> list[SwitchEntry]:
    """Makes the groups of any set of ports, who may send by which, and routes."""
    ports: dict[str, list[int]] = {name: [] for name in network.switches}
    for link in network.links:
        ports[link.switch].append(link.port)
    allowed = sources(network)
    return [
        entry
        for switch, onward in routes(network).items()
        for entry in (*port_groups(switch, ports[switch]), *allowed[switch], *onward)
    ]


def _check_program(name: str, table: str, tables: Collection[str]) -> None:
    """Checks by its tables that a program is the one of this name; without any it is believed."""
    if tables and table not in tables:
        raise SwitchError(
            "WRONG_PROGRAM",
            f"the program of the switch has no table {table!r}, so it is not {name}.p4",
            table=table,
        )


def _named_by_stacks(entry: SwitchEntry) -> bool:
    """Keeps all but routes: those are for other traffic, and old ones beside new send it astray."""
    return entry.table != ROUTE


def _never(_: SwitchEntry) -> bool:
    """Keeps nothing: no stack comes here."""
    return False


def _ports(entry: SwitchEntry) -> int:
    if entry.table == GROUPS:
        return 0
    mask = 0
    values = [(name, value) for name, _, value in entry.match] + list(entry.params)
    for name, value in values:
        number = int.from_bytes(value, "big")
        if name == "ports":
            mask |= number
        elif name == "port" and number:
            mask |= 1 << number - 1
    return mask


DERIVATIONS: Mapping[str, Derivation] = {
    **dict.fromkeys(STACKS, Derivation(_stacks, _named_by_stacks, _ports, tunnels=True)),
    FILTERING: Derivation(_without_filters, _never, _ports, NARROW_PORTS),
    ATTRIBUTES: Derivation(_without_passes, _never, _ports, NARROW_PORTS),
    **dict.fromkeys(REPLICATING, Derivation(_of_states, _never, _ports, NARROW_PORTS)),
}


def derive(
    source: NetworkVersion,
    older: Iterable[NetworkVersion],
    pipelines: Mapping[str, str],
    tables: Mapping[str, Collection[str]],
    filters: Iterable[SwitchEntry] = (),
    standing: Iterable[SwitchEntry] = (),
    memo: Memo | None = None,
) -> DesiredEntries:
    """Derives the entries of all switches: those of the newest tables, and all that stacks in use
    may name.

    older: the other versions in use. pipelines: program of each switch; those whose program is
    unknown here get nothing. tables: names of the tables of each program. filters: entries of the
    newest subscriptions, for switches that match. standing: entries that switches hold for versions
    in use that nobody can read any more; those that a stack may need stay. memo: makes the next
    call with it cheaper; holds the entries that this one needed.

    `check_meaning` comes before this. Raises NetworkError for a tree's edge that is no link and
    ``TOO_MANY_PORTS`` for a port that a switch's program cannot send to, ``NO_TUNNELS`` for a link
    that is a tunnel and leaves a switch whose program knows none, SwitchError
    ``WRONG_PROGRAM`` where tables are not those of the program.
    """
    check_programs(source.network, pipelines)
    newest = list(filters)
    # While a stream stands still, versions pile up in which only links failed and came back.
    distinct: dict[Hashable, NetworkVersion] = {}
    for other in older:
        distinct.setdefault(_decides(other), other)
    decisive, others = list(distinct), list(distinct.values())
    known: Memo = {} if memo is None else memo
    made: Memo = {}
    kept: list[list[SwitchEntry]] = [[] for _ in others]
    elsewhere = [rewired(source.network, other.network) for other in others]
    lost: set[SwitchEntry] = set()
    unknown: list[SwitchEntry] = []
    standing = list(standing)
    for name in sorted(set(pipelines.values())):
        derivation = DERIVATIONS.get(name)
        if derivation is None:
            continue
        names = tables.get(name, ())
        newest += [
            entry
            for entry in derivation.entries(source.network, stored(source.trees), names)
            if pipelines.get(entry.switch) == name
        ]
        unknown += [
            entry
            for entry in standing
            if pipelines.get(entry.switch) == name and derivation.kept(entry)
        ]
        for number, other in enumerate(others):
            key = name, tuple(names), decisive[number]
            if key not in known:
                entries = derivation.entries(other.network, other.named, names)
                known[key] = [entry for entry in entries if derivation.kept(entry)]
            made[key] = known[key]
            for entry in made[key]:
                if pipelines.get(entry.switch) == name:
                    kept[number].append(entry)
                    if derivation.ports(entry) & elsewhere[number].get(entry.switch, 0):
                        lost.add(entry)
    if memo is not None:
        memo.clear()
        memo.update(made)
    return together(newest, [*kept, unknown], lost.__contains__)


def check_programs(network: Network, pipelines: Mapping[str, str]) -> None:
    """Check that programs can send to the ports of their switches, and know tunnels if they have
    any. Unknown programs are not checked.

    Args:
        network: the network.
        pipelines: program of each switch.

    Raises:
        NetworkError: ``TOO_MANY_PORTS``, ``NO_TUNNELS``.
    """
    for name in sorted(set(pipelines.values()) & DERIVATIONS.keys()):
        derivation = DERIVATIONS[name]
        _check_ports(network, name, pipelines, derivation.most_ports)
        if not derivation.tunnels:
            _check_no_tunnel(network, name, pipelines)


def _check_ports(network: Network, program: str, pipelines: Mapping[str, str], most: int) -> None:
    for link in network.links:
        if link.port > most and pipelines.get(link.switch) == program:
            raise NetworkError(
                "TOO_MANY_PORTS",
                f"link {link.id} uses port {link.port} of {link.switch!r}, but program {program}, "
                f"which the switch runs, supports only ports 1..{most}",
                link=link.id,
                switch=link.switch,
                port=link.port,
            )


def _check_no_tunnel(network: Network, program: str, pipelines: Mapping[str, str]) -> None:
    for number in network.tunnels:
        link = network.link_by_id[number]
        if pipelines.get(link.switch) == program:
            raise NetworkError(
                "NO_TUNNELS",
                f"link {link.id} of {link.switch!r} is a tunnel, but program {program}, which the "
                "switch runs, does not support tunnels: use a program for header stacks",
                link=link.id,
                switch=link.switch,
            )


def _decides(source: NetworkVersion) -> Hashable:
    """Returns all of a version in use that decides which entries stacks made from it may name.

    Whether a link is up, and what crossing it costs, decide routes alone, which are not kept.
    """
    return (
        source.network.labels,
        tuple(source.network.switches.values()),
        tuple(source.network.hosts.values()),
        tuple(replace(link, up=True, weight=1.0) for link in source.network.links),
        frozenset((tree.id, tree.edges) for tree in source.named),
    )
