"""Attribute/value events as people read them: names, and values in their units."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from udfs.messages.attributes.events import Events
from udfs.messages.attributes.registry import Registry
from udfs.messages.specification import Field

KEY = 18
"""Bytes of the key behind a header that we published: session, and a number, as in MoldUDP64."""

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


def render(events: Events, chosen: NDArray[np.intp], registry: Registry) -> list[str]:
    """The chosen events as JSON objects, attributes by ascending id, values in their units."""
    parts: list[list[str]] = [[] for _ in chosen]
    mask = events.mask[chosen]
    for number, field in _fields(registry).items():
        there = np.flatnonzero(mask >> np.uint32(number) & 1)
        values, places = np.unique(events.values[number, chosen[there]], return_inverse=True)
        texts = [f"{json.dumps(field.name)}: {_json(field.render(raw))}" for raw in values.tolist()]
        for at, place in zip(there.tolist(), places.tolist(), strict=True):
            parts[at].append(texts[place])
    return ["{" + ", ".join(part) + "}" for part in parts]


def texts_of(values: Mapping[int, int], registry: Registry) -> dict[str, str]:
    """Names and values in their units of one event's raw values by id; ``id 9`` if it has none."""
    fields = _fields(registry)
    return {
        fields[number].name if number in fields else f"id {number}": (
            fields[number].render(raw) if number in fields else str(raw)
        )
        for number, raw in values.items()
    }


def _fields(registry: Registry) -> dict[int, Field]:
    """The field of each id, ids ascending."""
    fields = [header.fields[0] for header in registry.specification().headers]
    return dict(sorted(zip(registry.ids_of(fields), fields, strict=True), key=itemgetter(0)))


def _json(text: str) -> str:
    """A rendered value: a number as one, whatever its digits, else text."""
    return text if _NUMBER.fullmatch(text) else json.dumps(text)
