"""The forwarding model of source routes (WERNECKE 3.3, 4.2.1).

A stack is a delivery tree in preorder. A switch takes off what stands before its own labels. A run
of own labels names ports; each gets what stands between this run and the next own label, which is
the next subtree (predictive pruning). So labels that name several ports of a switch at once lead
each of them the rest of their subtrees, and none is sent where it has nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping

from udfs.network.source_routes import SourceRoute

Copies = list[tuple[int, tuple[int, ...] | None]]


def forward_route(
    form: SourceRoute,
    own: Mapping[int, int],
    host_ports: frozenset[int],
    ingress_port: int,
    stack: tuple[int, ...],
) -> Copies:
    """Returns the copies that a switch sends, by ascending port: ``(port, labels left)``.

    own: what its labels are looked up by → the ports that they may name. ``None`` for the labels: a
    host port. Nothing goes back by the ingress port, nor to a switch for which no label is left.
    """
    copies: Copies = []
    at, end = 0, len(stack)
    while at < end:
        ports = 0
        while at < end and (known := own.get(form.id_of(stack[at]))) is not None:
            ports |= form.named(stack[at]) & known
            at += 1
        begin = at
        while at < end and form.id_of(stack[at]) not in own:
            at += 1
        ports &= ~(1 << ingress_port - 1)
        copies += _copies(ports, host_ports, stack[begin:at])
    return sorted(copies, key=lambda copy: copy[0])


def _copies(ports: int, host_ports: frozenset[int], left: tuple[int, ...]) -> Copies:
    found: Copies = []
    for port in range(1, ports.bit_length() + 1):
        if ports >> port - 1 & 1:
            if port in host_ports:
                found.append((port, None))
            elif left:
                found.append((port, left))
    return found
