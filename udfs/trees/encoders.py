"""The encoder of each encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stackcast.udfs.network.labels import MAX_LABELS, LabelFormat, VirtualTrees
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.source_routes import HopLabels, SourceRoute, SwitchLabels
from stackcast.udfs.network.stored_routes import (
    BitmapLabels,
    DestinationLabels,
    HybridLabels,
    TreeLabels,
)
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.encode import Encoder
from stackcast.udfs.trees.source_routes import RouteEncoder
from stackcast.udfs.trees.stored_routes import (
    DestinationsEncoder,
    HybridEncoder,
    PortBitmapEncoder,
    StoredRouteEncoder,
    TreeEncoder,
)

AnyEncoder = Encoder | RouteEncoder | StoredRouteEncoder


def _route(
    network: Network, publisher: str, _trees: Sequence[VirtualTree], max_labels: int
) -> AnyEncoder:
    assert isinstance(network.labels, SourceRoute)
    return RouteEncoder(network, publisher, network.labels, max_labels)


_ENCODERS: Mapping[
    type[LabelFormat], Callable[[Network, str, Sequence[VirtualTree], int], AnyEncoder]
] = {
    VirtualTrees: Encoder,
    SwitchLabels: _route,
    HopLabels: _route,
    DestinationLabels: DestinationsEncoder,
    BitmapLabels: PortBitmapEncoder,
    TreeLabels: TreeEncoder,
    HybridLabels: HybridEncoder,
}


def encoder_of(
    network: Network,
    publisher: str,
    trees: Sequence[VirtualTree],
    max_labels: int = MAX_LABELS,
) -> AnyEncoder:
    """Returns the encoder for a network's labels; some leave its stored trees alone.

    Raises NetworkError as :class:`stackcast.udfs.trees.encode.Encoder` does.
    """
    return _ENCODERS[type(network.labels)](network, publisher, trees, max_labels)
