"""The registry of encodings, each a way to say in a frame where it goes (WERNECKE 3-5)."""

from __future__ import annotations

from collections.abc import Iterable

from stackcast.udfs.errors import NetworkError
from stackcast.udfs.network.labels import FORMATS, NARROW, WIDE, LabelFormat
from stackcast.udfs.network.source_routes import SOURCE_ROUTES, WIDE_SOURCE_ROUTES
from stackcast.udfs.network.stored_routes import STORED_ROUTES

ROUTES: dict[str, LabelFormat] = {**SOURCE_ROUTES, **STORED_ROUTES}
"""All but virtual trees, by name, in their narrow form."""

WIDE_FORMS: dict[str, LabelFormat] = {WIDE.encoding: WIDE, **WIDE_SOURCE_ROUTES}
"""The encodings that have labels of 32 bits, too, by name."""

ENCODINGS = (NARROW.encoding, *ROUTES)
"""The names of all encodings."""

ALL: tuple[LabelFormat, ...] = (*FORMATS.values(), *ROUTES.values(), *WIDE_SOURCE_ROUTES.values())
"""All encodings, once for each width of their labels."""

BY_ETHER_TYPE: dict[int, LabelFormat] = {form.ether_type: form for form in ALL}


def label_format(encoding: str, bits: int) -> LabelFormat:
    """Returns the format of an encoding's labels; ``bits``: 16 for the narrow one, which has more
    bits in some, 32 for the wide one.

    Raises KeyError for another encoding or width, NetworkError ``NO_WIDE_LABELS`` for one that
    has no wide form.
    """
    if bits == NARROW.bits:
        return NARROW if encoding == NARROW.encoding else ROUTES[encoding]
    if bits != WIDE.bits or encoding not in ENCODINGS:
        raise KeyError(encoding, bits)
    if encoding not in WIDE_FORMS:
        raise NetworkError(
            "NO_WIDE_LABELS",
            f"encoding {encoding} does not support labels of {bits} bits: use one of "
            f"{', '.join(WIDE_FORMS)}",
        )
    return WIDE_FORMS[encoding]


def label_bits(form: LabelFormat) -> int:
    """Returns the width by which `label_format` finds a format of this registry: 16 or 32."""
    return WIDE.bits if WIDE_FORMS.get(form.encoding) == form else NARROW.bits


def can_widen(form: LabelFormat) -> bool:
    """Returns True for the narrow form of an encoding that has a wide one."""
    return form.encoding in WIDE_FORMS and WIDE_FORMS[form.encoding] != form


def with_room(devices: Iterable[int], ends: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    """Returns the encodings of which some width can name all of these device ids, and of ``ends``
    each port by which a link leaves."""
    devices, ends = list(devices), list(ends)
    fit = {
        form.encoding
        for form in ALL
        if all(form.names(device) for device in devices)
        and all(form.reaches(port, link) for port, link in ends)
    }
    return tuple(name for name in ENCODINGS if name in fit)
