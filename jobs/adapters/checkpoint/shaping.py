"""The settings that shape the bytes of notifications, as pins and ledger keep them.

With them, the versions of a batch and its offsets, its frames can be computed again; wherever the
frames leave to, and whatever other settings say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from jobs.adapters.app.settings import Settings
from jobs.adapters.checkpoint.identity import specification_digest

#: Their keys, without the prefix of settings.
KEYS = (
    "publisher",
    "multicast.group",
    "multicast.port",
    "mtu",
    "maxLabels",
    "label.bits",
    "format",
    "attributes.input",
    "attributes.encoding",
    "filters.order",
)
SPECIFICATION = "specification"


def shaping(settings: Settings) -> dict[str, str]:
    """The values of these settings, as text, and a digest of the format as ``specification``."""
    named = {f.metadata["key"]: f.name for f in fields(Settings) if f.metadata}
    found = {key: str(getattr(settings, named[key])) for key in KEYS}
    return found | {SPECIFICATION: specification_digest(settings)}


def changed(before: Mapping[str, str] | None, now: Mapping[str, str]) -> dict[str, str]:
    """Of those that differ, the value that each had; none where what was is not on record."""
    return {key: value for key, value in (before or {}).items() if now.get(key, value) != value}
