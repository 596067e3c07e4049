"""Networks with labels of another encoding."""

from __future__ import annotations

from udfs.network.labels import LabelFormat
from udfs.network.network import Network


def relabelled(network: Network, form: LabelFormat) -> Network:
    """The same network, whose stacks have labels of this format.

    Raises NetworkError where these cannot name a switch or a link of it.
    """
    return Network.from_rows(network.switches.values(), network.hosts.values(), network.links, form)
