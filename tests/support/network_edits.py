"""What may happen to messages while the rules of switches that match are edited."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from lab.proof.verification import Key, Receipt
from udfs.network.network import Network


def by_old_or_new(
    network: Network,
    received: Mapping[str, Sequence[Receipt]],
    old: Mapping[str, Mapping[Key, int]],
    new: Mapping[str, Mapping[Key, int]],
    settled: int,
) -> Counter[str]:
    """Hold what hosts received against what the old and the new rules owe them.

    All hosts of one switch go by the same rules, message by message; from number ``settled`` on, by
    the new ones. Nothing comes twice or late. Returns how many messages that the rules differ on
    went by which, counted at each switch.
    """
    got: dict[str, set[Key]] = defaultdict(set)
    for host, receipts in received.items():
        numbers = [receipt.sequence for receipt in receipts]
        assert numbers == sorted(set(numbers)), f"{host}: doubled or out of order"
        got[host] = {(r.session, r.sequence, m) for r in receipts for m in r.messages}
    racks: dict[str, list[str]] = defaultdict(list)
    for host in network.subscribers():
        racks[network.hosts[host].switch].append(host)
    went: Counter[str] = Counter()
    for switch, hosts in racks.items():
        keys = {key for side in (old, new, got) for host in hosts for key in side.get(host, ())}
        for key in keys:
            before, after, now = (
                {host for host in hosts if key in side.get(host, ())} for side in (old, new, got)
            )
            assert now in (before, after), f"{switch}: {key} is of neither: {now}"
            if key[1] >= settled:
                assert now == after, f"{switch}: {key} still goes by the old rules"
            elif before != after:
                went["old" if now == before else "new"] += 1
    return went
