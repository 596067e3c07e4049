"""Publishers as settings name them: one, several, or all of a network."""

from __future__ import annotations

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.network import Network

#: In place of names: all hosts of the role, by their addresses.
ALL = "*"
PARTITION = "partition"


def listed(text: str) -> tuple[str, ...]:
    """Returns the names of a setting, as ``feed1,feed2``; none where it is `ALL`."""
    return () if text == ALL else tuple(name.strip() for name in text.split(","))


def several(text: str) -> bool:
    """Returns True if a setting names more than one publisher, or all."""
    return len(listed(text)) != 1


def sending(network: Network, text: str) -> tuple[str, ...]:
    """Returns the publishers of a setting that the network has, each once, in its order. Who is not
    there, or has another role, is left out.

    Raises NetworkError NO_PUBLISHER where it has none.
    """
    names = listed(text) or network.publishers()
    here = dict.fromkeys(name for name in names if name in network.hosts)
    found = tuple(name for name in here if network.hosts[name].role == "publisher")
    if not found:
        raise NetworkError(
            "NO_PUBLISHER",
            f"no host in spark.stackcast.publisher {text!r} is a publisher of the network: give "
            "one of them the role publisher in table hosts, or name other hosts",
        )
    return found


def receiving(network: Network, text: str) -> tuple[set[str], str]:
    """Returns the hosts that may receive, and the one that may not as it is the only publisher.

    Of several publishers each may receive, also what it sends: it comes in by another's link.
    """
    if several(text):
        return set(network.hosts), ""
    return set(network.subscribers()), text
