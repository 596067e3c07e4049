"""Bytes of both headers by number of attributes: KUNDEL's Fig. 5, and as implemented."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.compile import say
from benchmarks.support.plot import Curve, Panel, svg
from stackcast.udfs.messages.attributes.encodings import ENCODINGS, header_bytes, type_bits
from stackcast.udfs.messages.attributes.events import WIDTHS, Events

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "attribute_headers.svg"
ATTRIBUTES = WIDTHS.bitmask
COUNTS = range(1, ATTRIBUTES + 1)
NARROW, BUILT = 4, 8
"""Bits of an id: in Fig. 5, and as implemented."""


def first_smaller(id_bits: int) -> int:
    """Returns the least number of attributes from which on a header with a bitmask is the smaller
    one.
    """
    return min(
        count
        for count in COUNTS
        if all(
            type_bits(more, "bitmask") < type_bits(more, "id_pairs", id_bits)
            for more in range(count, ATTRIBUTES + 1)
        )
    )


def built(encoding: str) -> dict[int, int]:
    """Returns bytes of a header of 1 to 32 attributes as the codec writes it.

    The attributes are those of least id: which they are does not matter to the size.
    """
    count = np.arange(1, ATTRIBUTES + 1)
    nothing = np.zeros(ATTRIBUTES, np.int64)
    events = Events(
        ((1 << count) - 1).astype(np.uint64),
        np.zeros((ATTRIBUTES, ATTRIBUTES), np.uint32),
        np.zeros(ATTRIBUTES, np.uint8),
        nothing,
        nothing,
    )
    offsets, _ = ENCODINGS[encoding].encode(events, np.zeros(0, np.uint8))
    return dict(zip(COUNTS, np.diff(offsets).tolist(), strict=True))


def headers() -> dict[str, dict[str, Curve]]:
    """Curves by panel; prints them, and from where on the bitmask is smaller."""
    for name in ENCODINGS:
        assert built(name) == {count: header_bytes(count, name) for count in COUNTS}
    for bits in (NARROW, BUILT):
        say(
            "header bytes",
            id_bits=bits,
            attributes=list(COUNTS),
            id_pairs=[header_bytes(count, "id_pairs", bits) for count in COUNTS],
            bitmask=[header_bytes(count, "bitmask") for count in COUNTS],
            bitmask_smaller_from=first_smaller(bits),
        )
    return {
        "List of attributes": {
            "id pairs, ids of 4 bits": _types("id_pairs", NARROW),
            "id pairs, ids of 8 bits": _types("id_pairs", BUILT),
            "bitmask of 32 bits": _types("bitmask", BUILT),
        },
        "Whole header, as implemented": {
            "id pairs": list(built("id_pairs").items()),
            "bitmask": list(built("bitmask").items()),
        },
    }


def _types(encoding: str, id_bits: int) -> Curve:
    """Bytes against attributes, values left out."""
    return [(count, type_bits(count, encoding, id_bits) / 8) for count in COUNTS]


def draw(panels: dict[str, dict[str, Curve]]) -> None:
    """Draw the picture of docs/results/attributes.md."""
    PICTURE.write_text(
        svg(
            "Bytes of both headers by number of attributes",
            "Left: the list of attributes. With ids of 4 bits, as in the paper, the bitmask is "
            f"smaller from {first_smaller(NARROW)} attributes on; with ids of 8 bits, as "
            f"implemented, from {first_smaller(BUILT)} on. "
            "Right: the whole header with its values, as implemented.",
            [
                Panel(title, "attributes of an event", "bytes", curves)
                for title, curves in panels.items()
            ],
        ),
        "utf-8",
    )
    say("picture", path=f"docs/pictures/{PICTURE.name}")
