"""Every statement of the program of packet subscriptions is reached, both ways where it decides."""

from __future__ import annotations

from collections.abc import Iterator

import packet_cases as cases
import pytest
from program_switches import OPEN
from pruning_model import datagram

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.network_match.layout import key_table, program_layout, take
from stackcast.udfs.switches.entry import SwitchEntry, canonical
from stackcast.udfs.switches.match import Match
from stackcast.udfs.switches.ports import port_groups
from stackcast.udfs.switches.sources import receiving_port, trusted_ports

pytestmark = pytest.mark.unit

SUBSCRIPTIONS = "ingress.subscriptions"
CELLS = f"{SUBSCRIPTIONS}.cells"
PROGRAM = program_layout(cases.ITCH)
EXACT = ("price == 50 : fwd(1)", "stock == X and shares == 100 : fwd(2)")
FAR = 10**14
"""Nanoseconds that are more than a window away from all others here."""


def entry(table: str, match: list[Match], action: str, **params: int) -> SwitchEntry:
    return SwitchEntry(
        "s",
        table,
        tuple((m.name, m.kind, m.joined()) for m in match),
        action,
        tuple((name, canonical(value)) for name, value in params.items()),
        1 if any(m.kind == "range" for m in match) else 0,
    )


def exact(name: str, value: int) -> Match:
    return Match(name, "exact", canonical(value))


STATE = exact("state", 1)


def starting() -> list[SwitchEntry]:
    """All events are in state 1 from the beginning to the end."""
    return [
        entry(f"{SUBSCRIPTIONS}.start", [exact("feed", 1)], f"{SUBSCRIPTIONS}.set_state", next=1),
        entry(
            f"{SUBSCRIPTIONS}.delivery.leaf",
            [STATE],
            f"{SUBSCRIPTIONS}.delivery.deliver",
            ports=1,
        ),
    ]


def cells(function: int, action: str, known: str, block: int = 0) -> Iterator[SwitchEntry]:
    """In state 1 every position reads a cell and updates it; ``known``: the table that hits."""
    for position in range(1, 5):
        place = {"block": block, "slot": position, "function": function, "window": 10**9}
        place["tag"] = 7
        yield entry(f"{CELLS}.load_{position}", [STATE], f"{CELLS}.{action}", **place)
        yield entry(f"{CELLS}.update_{position}", [STATE], f"{CELLS}.{action}", **place)
        match = {
            "exact": [STATE, exact("value", 0)],
            "range": [STATE, Match("value", "range", b"\0", b"\xff" * 8)],
            "otherwise": [STATE, exact("known", 0)],
            "nothing": [STATE, exact("known", 7 % 2)],
        }[known]
        table = "otherwise" if known == "nothing" else known
        yield entry(f"{CELLS}.{table}_{position}", match, f"{CELLS}.set_state", next=1)


def pass_stateful(switch: SimpleSwitch) -> None:
    """Functions, operands, windows, and the values of a cell from end to end."""
    messages = [
        cases.order("GOOGL", 5, 7, at=FAR),
        cases.order("GOOGL", 9, 7, at=FAR),
        cases.order("GOOGL", 2, 7, at=FAR),
        *(
            bytes([kind]) + bytes(4) + FAR.to_bytes(6, "big") + bytes(size - 11)
            for kind, size in cases.LENGTHS.items()
        ),
    ]
    actions = ["load", *(operand.action for operand in PROGRAM.operands)]
    held: dict[str, SwitchEntry] = {}
    for function in range(6):
        for number, action in enumerate(actions):
            for known in ("exact", "range", "otherwise", "nothing"):
                if number and known != "nothing" and function:
                    continue
                made = [*starting(), *cells(function, action, known, block=number % 2)]
                wanted = {row.key: row for row in made}
                switch.apply({key: None for key in held if key not in wanted} | wanted)
                held = wanted
                for count, value, start in (
                    (0, 0, 0),
                    (1, 2**64 - 1, FAR),
                    (3, 0, FAR),
                    (1, 5, FAR + 1),
                ):
                    state = {"owner": 7, "start": start, "count": count, "value": value}
                    for name, cell in state.items():
                        for slot in range(1, 5):
                            switch.write_register(f"{CELLS}.recent_{name}", slot, cell)
                    for message in messages[: 4 if number or function else None]:
                        switch.process(1, datagram([message]))
    switch.apply(dict.fromkeys(held))


def pass_plain(switch: SimpleSwitch) -> None:
    """Rules, sets of ports, counts of messages, other traffic, and what is wrong."""
    held = port_groups("s", cases.PORTS) + cases.rows([*cases.PLAIN, *EXACT])
    held += [cases.routed(route) for route in cases.ROUTES]
    switch.apply({row.key: row for row in held})
    wanted = [cases.order("GOOGL", 500_001), cases.order("MSFT")]
    for count in range(1, 66):
        for first in (0, 1):
            switch.process(12, datagram([wanted[(n + first) % 2] for n in range(count)]))
    for stock in ("GOOGL", "MSFT", "IBM", "AAPL", "NFLX", "X"):
        for price in (1, 200_000, 500_000, 500_001, 990_001):
            for side in "BS":
                frame = datagram([cases.order(stock, price, 100, side)])
                for port in (12, 300):
                    switch.process(port, frame)
    for kind, size in cases.LENGTHS.items():
        switch.process(1, datagram([bytes([kind]) * size, b"?", b""]))
    for address, ttl in (("10.1.9.9", 9), ("10.1.2.3", 9), ("10.9.9.9", 9), ("10.1.2.3", 1)):
        switch.process(1, cases.other(address, ttl))
    switch.process(1, cases.other("10.1.2.3", fragment=1))
    switch.process(1, cases.other("224.0.0.1"))
    short = cases.other("10.1.2.3", protocol=6)
    switch.process(1, short[:40])
    switch.process(1, cases.right_sums(short[:16] + b"\0\1" + short[18:]))
    plain = datagram([cases.order("GOOGL")] * 2)
    for count in (0, 1, 3, 0xFFFF):
        switch.process(1, datagram([cases.order("GOOGL")] * 2, count=count))
    switch.process(1, datagram([]))
    switch.process(1, datagram([], count=0xFFFF))
    # A host that may only receive, and a port with nothing behind it.
    other = cases.other("10.1.2.3")
    receiving = [receiving_port("s", 2, int.from_bytes(other[26:30])), receiving_port("s", 3, 1)]
    switch.apply({entry.key: entry for entry in receiving})
    for port in (2, 3, 500):
        switch.process(port, plain)
        switch.process(port, other)
        switch.process(port, plain[:12] + b"\x08\x06" + plain[14:])
    switch.apply({entry.key: entry for entry in trusted_ports("s", (2, 3))})
    switch.process(1, datagram([b"?" * 1501]))
    switch.process(1, plain[:-1])
    switch.process(1, plain[:-1] + b"!")
    switch.process(1, bytes(64))
    switch.process(1, plain[:14] + b"\x44" + plain[15:])
    switch.process(1, cases.other("10.1.2.3", options=cases.ALERT))
    switch.apply({row.key: None for row in held})


def pass_groups(switch: SimpleSwitch) -> None:
    """Rules as bit vectors that ask for each field and allow single values, ranges, all others."""
    apart = [f"{field} == 7 : fwd(1)" for field in ("stock", "price", "shares", "buy_sell")]
    apart += [f"{field} > 7 and buy_sell == S : fwd(2)" for field in ("price", "shares")]
    rows = cases.rows([], [*apart, *cases.APART])
    switch.apply({row.key: row for row in rows})
    for messages in (["IBM"], ["7", "X", "IBM"]):
        for price, shares in ((70_000, 7), (1, 1), (990_000, 99)):
            several = [cases.order(stock, price, shares, "S") for stock in messages]
            switch.process(12, datagram(several))
    for kind, size in cases.LENGTHS.items():
        switch.process(1, datagram([bytes([kind]) * size]))
    switch.apply({row.key: None for row in rows})


def pass_keys(switch: SimpleSwitch) -> None:
    """In all tables of keys each field at each place, with a key that is there."""
    message = cases.order("X", 5, 7, "S")
    fields = cases.fields_of(message)
    options = PROGRAM.options
    for place in range(1, options.key_fields + 1):
        for stage in PROGRAM.stages:
            held = starting()
            for number in range(1, options.conjunctions + 1):
                keys = [exact(f"value_{n + 1}", 0) for n in range(options.key_fields)]
                asked = {1: PROGRAM.stages[0], place: stage}
                for at, taken in asked.items():
                    table, action = key_table(number, f"field_{at}"), take(taken, at)
                    held.append(entry(table, [STATE], key_table(number, action)))
                    keys[at - 1] = exact(f"value_{at}", fields.get(taken.field, message[0]))
                action = key_table(number, "deliver")
                held.append(entry(key_table(number, "keys"), [STATE, *keys], action, ports=2))
            switch.apply({row.key: row for row in held})
            switch.process(1, datagram([message]))
            switch.process(1, datagram([cases.order("X", 6, 8, "B")]))
            switch.apply({row.key: None for row in held})


def pass_subsets(switch: SimpleSwitch) -> None:
    """Each subset of the ports alone, and none of them."""
    ports = range(1, 65)
    switch.apply({row.key: row for row in port_groups("s", ports[::8])})
    for port in ports[::8]:
        rows = cases.rows([f"stock == GOOGL : fwd({port})", "stock == X : fwd(1, 17)"])
        switch.apply({row.key: row for row in rows})
        for messages in (["GOOGL"], ["X"], ["GOOGL", "X"], ["GOOGL", "IBM"]):
            switch.process(64, datagram([cases.order(stock) for stock in messages]))
        frame = datagram([cases.order("GOOGL"), cases.order("IBM")], udp_sum=False)
        switch.process(2, frame)
        switch.apply({row.key: None for row in rows})


def test_every_statement_is_reached():
    switch = SimpleSwitch(cached=False, coverage=True)
    switch.load(cases.JSON)
    switch.apply({entry.key: entry for entry in trusted_ports("s", OPEN)})
    switch.process(1, datagram([cases.order("GOOGL")]))
    pass_stateful(switch)
    pass_plain(switch)
    pass_groups(switch)
    pass_keys(switch)
    pass_subsets(switch)
    program = switch.program
    assert program is not None
    missed = [
        text for number, text in program.coverage_points.items() if number not in program.covered
    ]
    assert not missed
