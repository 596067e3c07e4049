"""The registry of encodings, each a way to say in a frame where it goes (WERNECKE 3-5)."""

from __future__ import annotations

from udfs.network.labels import FORMATS, LabelFormat
from udfs.network.source_routes import SOURCE_ROUTES
from udfs.network.stored_routes import STORED_ROUTES

ROUTES: dict[str, LabelFormat] = {**SOURCE_ROUTES, **STORED_ROUTES}
"""All but virtual trees, by name."""

ENCODINGS = ("virtual_trees", *ROUTES)
"""The names of all encodings."""

ALL: tuple[LabelFormat, ...] = (*FORMATS.values(), *ROUTES.values())
"""All encodings, virtual trees once for each width of labels."""

BY_ETHER_TYPE: dict[int, LabelFormat] = {form.ether_type: form for form in ALL}


def label_format(encoding: str, bits: int) -> LabelFormat:
    """Returns the format of an encoding's labels; ``bits``: their width in virtual trees."""
    return ROUTES.get(encoding) or FORMATS[bits]
