"""The encoding that would load links least with what was published: offered beside better trees.

Only encodings whose rows follow the network alone take part. `tree` and `hybrid` need rows for each
set of receivers, so a record says little of what they would cost next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.encodings import ROUTES, WIDE_FORMS
from stackcast.udfs.network.labels import LabelFormat
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.source_routes import SOURCE_ROUTES
from stackcast.udfs.network.stored_routes import STORED_ROUTES
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.retuning.costs import FrameReplayer, PublicationCosts, replayer_of
from stackcast.udfs.trees.publications import Publication

ENCODINGS = (
    *(name for name, form in SOURCE_ROUTES.items() if not form.reactive),
    *(name for name, form in STORED_ROUTES.items() if not form.trees),
)
MOST_PUBLICATIONS = 200
"""Publications that are encoded again, those of the most bytes first."""
MOST_ROWS = 1_000_000
"""Above so many rows in all switches an encoding is not tried."""
MOST_LINKS = 20_000
"""Above so many directed links none is but virtual trees."""


@dataclass(frozen=True)
class EncodingCosts:
    """Holds what the heaviest publications on record take in one encoding.

    bytes: on all links, Ethernet headers among them. frames: that publishers send. rows: of labels,
    in the switch that has the most. error: why switches or labels have no room; the rest is 0 then.
    bits: of a label.
    """

    encoding: str
    bytes: int = 0
    frames: int = 0
    rows: int = 0
    error: str = ""
    bits: int = 0


def encoding_costs(
    network: Network,
    trees: Iterable[VirtualTree],
    publications: Sequence[Publication],
    room: Mapping[str, int],
) -> list[EncodingCosts]:
    """Returns the costs of the network's own encoding with these stored trees, then of `ENCODINGS`.

    room: rows that each switch has for labels. Publications that the first cannot carry are left
    out of all. Of a network of over `MOST_LINKS` the first alone.
    """
    heaviest = sorted(
        publications,
        key=lambda each: (-each.datagram_bytes * len(each.receivers), each.publisher),
    )[:MOST_PUBLICATIONS]
    now = replayer_of(network, tuple(trees)).replay(heaviest)
    carried = [each for at, each in enumerate(heaviest) if at not in now.skipped]
    own = network.labels
    found = [EncodingCosts(own.encoding, *_taken(now), bits=own.bits)]
    for encoding in ENCODINGS if len(network.links) <= MOST_LINKS else ():
        found.append(_costs(network, encoding, carried, room))
    return found


def least(costs: Sequence[EncodingCosts]) -> EncodingCosts:
    """Returns the one with the fewest bytes on links that there is room for, the first of
    equals."""
    return min((each for each in costs if not each.error), key=lambda each: each.bytes)


def _costs(
    network: Network, encoding: str, publications: Sequence[Publication], room: Mapping[str, int]
) -> EncodingCosts:
    """Returns the costs in the narrowest labels that there is room for."""
    found = EncodingCosts(encoding)
    for form in (ROUTES[encoding], *(w for w in WIDE_FORMS.values() if w.encoding == encoding)):
        try:
            found = _costs_in(network, form, publications, room)
        except NetworkError as error:
            found = EncodingCosts(encoding, error=str(error))
        if not found.error:
            break
    return found


def _costs_in(
    network: Network,
    form: LabelFormat,
    publications: Sequence[Publication],
    room: Mapping[str, int],
) -> EncodingCosts:
    if form.to_hosts and len(network.hosts) * len(network.switches) > MOST_ROWS:
        return EncodingCosts(form.encoding, error=f"it needs more than {MOST_ROWS:,} rows")
    made = Network.from_rows(network.switches.values(), network.hosts.values(), network.links, form)
    replayer = FrameReplayer(made, ())
    rows = {name: len(held.trees) + len(held.own) for name, held in replayer.tables.items()}
    full = [name for name, count in rows.items() if count > room.get(name, 0)]
    if full:
        return EncodingCosts(
            form.encoding,
            error=(
                f"switch {full[0]!r} needs {rows[full[0]]} rows, but has room for "
                f"{room.get(full[0], 0)}"
            ),
        )
    costs = replayer.replay(publications)
    if costs.skipped:
        return EncodingCosts(form.encoding, error=next(iter(costs.skipped.values())))
    return EncodingCosts(form.encoding, *_taken(costs), max(rows.values()), bits=form.bits)


def _taken(costs: PublicationCosts) -> tuple[int, int]:
    """Returns the bytes on links, and the frames that publishers send."""
    return int(costs.bytes_on_links.sum()), int((costs.parts * costs.notifications).sum())
