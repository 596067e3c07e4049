"""Who sent each message, and whether that publisher advertises it: what counts as published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.delivery.publishers import Publishers, telling, with_fields
from stackcast.udfs.filters.advertisements import Advertisement, Announced
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.moldudp64 import Messages
from stackcast.udfs.messages.readers import OUTSIDE
from stackcast.udfs.messages.specification import Field, Specification

Gate = tuple[Announced, tuple[int, ...]]
"""What a publisher announces, with the columns that this takes."""


@dataclass(frozen=True)
class Senders:
    """Finds the messages that count, and the publisher of each. Picklable.

    publishers: None where there is one. advertised: by publisher's number; none of those that may
    publish everything. fields: of the columns of messages; others may stand behind them.
    """

    publishers: Publishers | None = None
    advertised: Mapping[int, Gate] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()

    @property
    def plain(self) -> bool:
        """True where every message that can be read counts, and is the same publisher's."""
        alone = self.publishers is None or self.publishers.alone
        return alone and not self.advertised

    def of(self, batch: Batch, messages: Messages) -> tuple[Messages, NDArray[np.int32] | None]:
        """Returns the messages, those that do not count with the reason why, or left out with their
        packet; and the number of each one's publisher, int32[m], None where there is one."""
        senders = None
        if self.publishers is not None:
            senders, messages = self.publishers.senders(batch, messages)
        there = {0} if senders is None else set(np.unique(senders).tolist())
        for sender in there & self.advertised.keys():
            mine = slice(None) if senders is None else np.flatnonzero(senders == sender)
            messages.message_reason[mine] = self._reasons(sender, messages, mine)
        return messages, senders

    def _reasons(
        self, sender: int, messages: Messages, mine: NDArray[np.int64] | slice
    ) -> NDArray[np.uint8]:
        announced, columns = self.advertised[sender]
        present = None
        if messages.present is not None:
            present = messages.present[list(columns)][:, mine]
        values = messages.values[list(columns)][:, mine]
        reason = messages.message_reason[mine]
        inside = announced.of(messages.message_type[mine], values, present)
        return np.where(inside | (reason != 0), reason, np.uint8(OUTSIDE))


def senders_of(
    names: Sequence[str],
    publishers: Publishers | None,
    publisher_by: str,
    announced: Mapping[str, Sequence[Advertisement]],
    specification: Specification,
    fields: tuple[Field, ...],
) -> Senders:
    """Returns the senders of a stream; ``fields`` are those given, and behind them what it takes.

    names: of the publishers, by number. announced: by name; a message of whoever is in it counts
    where one of these holds. Raises as `stackcast.udfs.delivery.publishers.telling`.
    """
    advertised: dict[int, Gate] = {}
    gates: dict[tuple[str, ...], Announced] = {}
    for number, name in enumerate(names):
        if own := announced.get(name):
            texts = tuple(each.filter for each in own)
            if texts not in gates:
                gates[texts] = Announced(own, specification)
            fields, columns = with_columns(fields, gates[texts].fields)
            advertised[number] = gates[texts], columns
    if publishers is not None and (told := telling(publisher_by, specification)):
        fields, columns = with_columns(fields, told)
        publishers = with_fields(publishers, specification, told, columns)
    return Senders(publishers, advertised, fields)


def with_columns(
    fields: tuple[Field, ...], asked: Sequence[Field]
) -> tuple[tuple[Field, ...], tuple[int, ...]]:
    """Returns the fields with those behind them that are asked for too, and places of these."""
    fields += tuple(field for field in asked if field not in fields)
    return fields, tuple(fields.index(field) for field in asked)
