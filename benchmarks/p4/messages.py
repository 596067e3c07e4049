"""The program of packet subscriptions in the software switch, and its size beside virtual trees."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from p4_products import digest, products, sources
from pruning_model import DroppedError, Model, checksum, datagram

from benchmarks.compile import say
from benchmarks.p4.passes import tables_of
from benchmarks.p4.workloads import (
    PUBLISHER,
    SESSION_MESSAGES,
    default_rules,
    itch,
    ports_of_switch,
)
from benchmarks.support.measuring import side_by_side
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.filters.compiler.compile import compile_rules
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.subscriptions import CheckedRule
from stackcast.udfs.messages.moldudp64 import decode
from stackcast.udfs.messages.reference import build_packet
from stackcast.udfs.network.network import Network
from stackcast.udfs.network_match.filters import NetworkFilters
from stackcast.udfs.network_match.routing import ports_towards
from stackcast.udfs.switches.entry import GROUPS, SwitchEntry
from stackcast.udfs.switches.ports import port_groups
from stackcast.udfs.switches.routes import ROUTE, routes
from stackcast.udfs.switches.sources import sources as allowed_sources
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees

SIZES = (1, 4, 12, 35, 64)
"""Messages a packet."""
MESSAGES = 3000
"""Messages of a run, at least."""
RUNS = 7


def messages(network: Network) -> None:
    """New orders of the lab's session through the publisher's switch, with the lab's rules."""
    made = NetworkFilters(itch(), PUBLISHER).entries(network, default_rules(network), {})
    refused = {rejection.id for rejection in made.rejections}
    rules = [rule for rule in default_rules(network) if rule.id not in refused]
    entries = with_groups_and_routes(network, made.entries)
    sizes(network, entries, len(rules))
    name = network.hosts[PUBLISHER].switch
    port = network.hosts[PUBLISHER].port
    switch = SimpleSwitch(cached=False)
    switch.load(products("packet_subscriptions")[1].read_bytes())
    switch.apply({entry.key: entry for entry in entries[name]})
    assert switch.cache is None
    orders = list(islice(new_orders(), MESSAGES + SIZES[-1]))
    model = Model(wanted(network, rules, orders), lengths())
    for size in SIZES:
        packets = [datagram(orders[at : at + size]) for at in range(0, MESSAGES, size)]
        copies, passes, kept = Counter[str](), switch.passes, 0
        for packet in packets:
            found = sorted(switch.process(port, packet))
            assert found == sorted(expected(model, port, packet))
            copies["copies"] += len(found)
            kept += sum(int.from_bytes(copy[60:62], "big") for _, copy in found)
        passes = switch.passes - passes
        say_packets(switch, port, packets, size, passes, copies["copies"], kept)


def say_packets(
    switch: SimpleSwitch,
    port: int,
    packets: list[bytes],
    size: int,
    passes: int,
    copies: int,
    kept: int,
) -> None:
    made: list[int] = []
    _, seconds, ratio = side_by_side(
        lambda: [checksum(packet) for packet in packets],
        lambda: made.append(sum(len(switch.process(port, packet)) for packet in packets)),
        RUNS,
    )
    assert set(made) == {copies}, "copies are missing, or there are too many"
    median = statistics.median(seconds)
    say(
        "packet subscriptions",
        messages_a_packet=size,
        packets=len(packets),
        packets_a_second=round(len(packets) / median),
        messages_a_second=round(size * len(packets) / median),
        passes_a_packet=passes / len(packets),
        copies_a_packet=copies / len(packets),
        messages_a_copy=kept / max(1, copies),
        to="checksum of the frames in plain Python",
        ratio=ratio,
    )


def new_orders() -> Iterator[bytes]:
    """As in the session, in its order; all else of it is for nobody in the network."""
    return (m for m in TradingSession(SESSION_MESSAGES, 1, 200) if m[:1] == b"A")


def lengths() -> dict[int, int]:
    return {h.message_type: h.length for h in itch().headers if h.message_type is not None}


def wanted(
    network: Network, rules: list[CheckedRule], orders: list[bytes]
) -> Callable[[bytes], set[int]]:
    """Returns ports of the publisher's switch by message, as the stream would match it."""
    towards = ports_towards(network, PUBLISHER)[network.hosts[PUBLISHER].switch]
    matcher = Matcher(compile_rules(rules, itch()))
    fields = [itch().field(name) for name in matcher.fields]
    data = [build_packet(b"BENCHMARK1", 1, [message]) for message in orders]
    borders = np.concatenate(([0], np.cumsum([len(packet) for packet in data])))
    read = decode(itch(), borders.astype(np.int32), np.frombuffer(b"".join(data), np.uint8), fields)
    leaves = matcher.match(read.message_type, read.values).tolist()
    found = {
        message: {towards[host] for host in matcher.receivers[leaf]}
        for message, leaf in zip(orders, leaves, strict=True)
    }
    return found.__getitem__


def expected(model: Model, port: int, packet: bytes) -> list[tuple[int, bytes]]:
    try:
        return model.process(port, packet)
    except DroppedError:
        return []


def with_groups_and_routes(
    network: Network, filters: Mapping[str, Sequence[SwitchEntry]]
) -> dict[str, list[SwitchEntry]]:
    """Returns all that each switch holds where switches match."""
    allowed, onward = allowed_sources(network), routes(network)
    return {
        name: [
            *port_groups(name, ports_of_switch(network, name)),
            *allowed[name],
            *onward[name],
            *filters.get(name, ()),
        ]
        for name in network.switches
    }


def sizes(network: Network, filters: dict[str, list[SwitchEntry]], rules: int) -> None:
    """Reports the sizes of both programs, and the entries for them in the lab's default network."""
    stacks: dict[str, list[SwitchEntry]] = {name: [] for name in network.switches}
    for entry in switch_entries(network, broadcast_trees(network)):
        stacks[entry.switch].append(entry)
    held = {"virtual_trees": stacks, "packet_subscriptions": filters}
    for name, entries in held.items():
        info, program = products(name)
        rows = entries.values()
        own = [sum(e.table not in (GROUPS, ROUTE) for e in switch) for switch in rows]
        whole = [len(switch) for switch in rows]
        say(
            f"size of {name}",
            json_bytes=program.stat().st_size,
            p4info_bytes=info.stat().st_size,
            tables=len(tables_of(program.read_bytes())),
            sha256=digest(program)[:12],
            source_lines=sum(len(f.read_text().splitlines()) for f in sources(name)),
            network="16 hosts, racks of 2",
            rules=rules if name == "packet_subscriptions" else "any",
            entries_mean=sum(whole) / len(whole),
            entries_most=max(whole),
            own_entries_mean=sum(own) / len(own),
            own_entries_most=max(own),
            groups_most=max(sum(e.table == GROUPS for e in switch) for switch in rows),
        )
