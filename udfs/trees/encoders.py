"""The encoder of each encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from udfs.network.labels import MAX_LABELS, LabelFormat
from udfs.network.network import Network
from udfs.network.source_routes import SourceRoute
from udfs.network.stored_routes import DESTINATIONS, HYBRID, PORT_BITMAPS, TREES
from udfs.network.virtual_tree import VirtualTree
from udfs.trees.encode import Encoder
from udfs.trees.source_routes import RouteEncoder
from udfs.trees.stored_routes import (
    DestinationsEncoder,
    HybridEncoder,
    PortBitmapEncoder,
    StoredRouteEncoder,
    TreeEncoder,
)

_STORED: Mapping[LabelFormat, type[StoredRouteEncoder]] = {
    DESTINATIONS: DestinationsEncoder,
    TREES: TreeEncoder,
    HYBRID: HybridEncoder,
    PORT_BITMAPS: PortBitmapEncoder,
}

AnyEncoder = Encoder | RouteEncoder | StoredRouteEncoder


def encoder_of(
    network: Network,
    publisher: str,
    trees: Sequence[VirtualTree],
    max_labels: int = MAX_LABELS,
) -> AnyEncoder:
    """Returns the encoder for a network's labels; some leave its stored trees alone.

    Raises NetworkError as :class:`udfs.trees.encode.Encoder` does.
    """
    if isinstance(network.labels, SourceRoute):
        return RouteEncoder(network, publisher, network.labels, max_labels)
    stored = _STORED.get(network.labels)
    if stored is not None:
        return stored(network, publisher, trees, max_labels)
    return Encoder(network, publisher, trees, max_labels)
