"""The publisher of each message, and whether it advertises the message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.delivery.publishers import Publishers, naming_fields, with_fields
from stackcast.udfs.filters.advertisements import Advertisement, Announced
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.moldudp64 import Messages
from stackcast.udfs.messages.readers import OUTSIDE
from stackcast.udfs.messages.specification import Field, Specification

Gate = tuple[Announced, tuple[int, ...]]
"""The advertisements of a publisher, and the columns that they read."""


@dataclass(frozen=True)
class Senders:
    """Finds the publisher of each message, and messages that it has not advertised. Picklable.

    Attributes:
        publishers: publishers of the stream; None if there is one.
        advertised: advertisements by number of the publisher. Publishers that may publish
            everything have none.
        fields: fields of the first columns of messages.
    """

    publishers: Publishers | None = None
    advertised: Mapping[int, Gate] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()

    @property
    def plain(self) -> bool:
        """True if all readable messages are published, and by the same publisher."""
        alone = self.publishers is None or self.publishers.alone
        return alone and not self.advertised

    def of(self, batch: Batch, messages: Messages) -> tuple[Messages, NDArray[np.int32] | None]:
        """Return messages and their publishers.

        Returns:
            The messages, which have a reason if they are not advertised, without packets of unknown
            publishers; and int32[m], the number of the publisher of each, or None if there is one.
        """
        senders = None
        if self.publishers is not None:
            senders, messages = self.publishers.senders(batch, messages)
        present = {0} if senders is None else set(np.unique(senders).tolist())
        for sender in present & self.advertised.keys():
            rows = slice(None) if senders is None else np.flatnonzero(senders == sender)
            messages.message_reason[rows] = self._reasons(sender, messages, rows)
        return messages, senders

    def _reasons(
        self, sender: int, messages: Messages, rows: NDArray[np.int64] | slice
    ) -> NDArray[np.uint8]:
        announced, columns = self.advertised[sender]
        present = None
        if messages.present is not None:
            present = messages.present[list(columns)][:, rows]
        values = messages.values[list(columns)][:, rows]
        reason = messages.message_reason[rows]
        inside = announced.of(messages.message_type[rows], values, present)
        return np.where(inside | (reason != 0), reason, np.uint8(OUTSIDE))


def senders_of(
    names: Sequence[str],
    publishers: Publishers | None,
    publisher_by: str,
    announced: Mapping[str, Sequence[Advertisement]],
    specification: Specification,
    fields: tuple[Field, ...],
) -> Senders:
    """Return the senders of a stream.

    Args:
        names: names of the publishers by number.
        publishers: publishers of the stream; None if there is one.
        publisher_by: how records name their publisher.
        announced: advertisements by publisher. A message of such a publisher counts as published if
            one of them matches.
        specification: message format.
        fields: fields that messages are read with. The result has more if it needs them.

    Raises:
        SettingsError: see `stackcast.udfs.delivery.publishers.naming_fields`.
    """
    advertised: dict[int, Gate] = {}
    gates: dict[tuple[str, ...], Announced] = {}
    for number, name in enumerate(names):
        if own := announced.get(name):
            texts = tuple(advertisement.filter for advertisement in own)
            if texts not in gates:
                gates[texts] = Announced(own, specification)
            fields, columns = with_columns(fields, gates[texts].fields)
            advertised[number] = gates[texts], columns
    if publishers is not None and (naming := naming_fields(publisher_by, specification)):
        fields, columns = with_columns(fields, naming)
        publishers = with_fields(publishers, specification, naming, columns)
    return Senders(publishers, advertised, fields)


def with_columns(
    fields: tuple[Field, ...], required: Sequence[Field]
) -> tuple[tuple[Field, ...], tuple[int, ...]]:
    """Return the fields extended by the required ones, and the places of these."""
    fields += tuple(field for field in required if field not in fields)
    return fields, tuple(fields.index(field) for field in required)
