"""Bytes that one notification puts on the links of a network, counted by the forwarding model."""

from collections import Counter

from udfs.network.network import Network
from udfs.stacks.forwarding import COUNT_BYTES, ETHERNET_BYTES, ForwardingResult


def bytes_on_links(
    network: Network, sent: ForwardingResult, datagram_bytes: int
) -> Counter[tuple[str, str]]:
    """Counts bytes by directed link ``(u, v)``.

    ``datagram_bytes`` is the length of the IPv4 datagram. A frame is Ethernet (14), label count
    (2) and labels (2 each, wide ones 4), datagram; towards a host Ethernet and datagram.
    """
    total: Counter[tuple[str, str]] = Counter()
    for u, v, labels in sent.links:
        stack = 0 if v in network.hosts else COUNT_BYTES + network.labels.size * labels
        total[u, v] += ETHERNET_BYTES + stack + datagram_bytes
    return total
