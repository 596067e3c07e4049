"""Ingresses: the links and transports by which the frames of executors enter the network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Ingresses:
    """The rows of one version of table ``ingresses``.

    Places without rows of their own use the rows of the place ``""``.

    Attributes:
        transports: transport for a pair of place and publisher. The publisher ``""`` stands for
            every publisher, and the transport ``""`` for the setting of the sink.
    """

    transports: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Ingresses:
        """Return the ingresses of rows of the table."""
        transports = {
            (row["place"] or "", row["publisher"] or ""): row["transport"] or "" for row in rows
        }
        return cls(dict(sorted(transports.items())))

    @classmethod
    def at_host(cls, host: str) -> Ingresses:
        """Return ingresses that send all frames through the link of a host."""
        return cls({("", host): ""})

    @property
    def shared_hosts(self) -> tuple[str, ...]:
        """Hosts through whose links all frames of some place enter, sorted."""
        places = {place for place, _ in self.transports}
        return tuple(sorted({self.shared_host(place) for place in places} - {""}))

    def shared_host(self, place: str) -> str:
        """Return the host through whose link all frames of a place enter.

        The result is empty if each frame enters through the link of its publisher: if there are no
        rows for the place, or they name several publishers, or every publisher.
        """
        publishers = list(self._rows_of(place))
        return publishers[0] if len(publishers) == 1 else ""

    def transport(self, place: str, host: str) -> str:
        """Return the transport from a place to the link of a host; empty for the sink's setting.

        All frames of a place may enter through the link of one host. Frames for this host itself
        then enter through another link, because switches do not send a frame out of the port on
        which it arrived. They use the transport to that link from another place.
        """
        rows = self._rows_of(place)
        for publisher in (host, ""):
            if publisher in rows:
                return rows[publisher]
        if self.shared_host(place):
            return next((way for (_, name), way in self.transports.items() if name == host), "")
        return ""

    def _rows_of(self, place: str) -> dict[str, str]:
        """Return the transports by publisher of a place, or of the places without rows."""
        for name in (place, ""):
            rows = {host: way for (at, host), way in self.transports.items() if at == name}
            if rows:
                return rows
        return {}


#: Ingresses of an empty table: all frames enter through the link of their publisher.
NO_INGRESSES = Ingresses()
