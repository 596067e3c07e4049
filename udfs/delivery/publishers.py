"""Publishers of a stream with several publishers: the publisher of each message, and the links by
which frames enter.

Publishers have different paths, but the same filter: one matcher returns the receivers for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stackcast.udfs.errors import NetworkError, SettingsError
from stackcast.udfs.messages.buffers import Batch
from stackcast.udfs.messages.moldudp64 import Messages
from stackcast.udfs.messages.readers import NO_PUBLISHER, UNKNOWN_PUBLISHER
from stackcast.udfs.messages.specification import Field, Specification
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.publishers import PARTITION, listed, sending

_SETTING = "spark.stackcast.publisher"


@dataclass(frozen=True)
class Publishers:
    """The publishers of a stream, and the links by which their frames enter. Picklable.

    A *sender* is a pair of a publisher and an ingress. Its number is that of the publisher, plus
    the number of publishers times that of the ingress. Ingress 0 is the publisher's own link.

    Attributes:
        names: publishers that the network has, by number.
        listed: publishers of the setting, in its order.
        turns: int32[], number of each listed publisher, or -1 if the network does not have it.
        by: what names the publisher of a record: ``partition``, whose number modulo the length of
            the list is its place there, ``header`` or ``field``.
        columns: int32[256], column of the field that names the publisher, by message type, or -1.
        raw: uint64[], values of this field, ascending.
        number: int32[], publisher of each of these values.
        ingresses: hosts by whose links all frames from some executors enter.
        switches: switch of each publisher and ingress.
    """

    names: tuple[str, ...]
    listed: tuple[str, ...]
    turns: NDArray[np.int32]
    by: str
    columns: NDArray[np.int32] | None = None
    raw: NDArray[np.uint64] | None = None
    number: NDArray[np.int32] | None = None
    ingresses: tuple[str, ...] = ()
    switches: Mapping[str, str] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """True if there is a single publisher, so that records need not name it."""
        return len(self.listed) == 1

    @property
    def links(self) -> tuple[str, ...]:
        """Hosts by whose links frames enter, by number: the publishers come first."""
        return tuple(dict.fromkeys((*self.names, *self.ingresses)))

    @property
    def attached(self) -> tuple[tuple[str, str], ...]:
        """The host of each link, and its switch."""
        return tuple((name, self.switches[name]) for name in self.links)

    @property
    def link(self) -> NDArray[np.int32]:
        """The number of each sender's link, int32[]."""
        number = {name: link for link, name in enumerate(self.links)}
        by_ingress = [np.full(len(self.names), number[name], np.int32) for name in self.ingresses]
        return np.concatenate((np.arange(len(self.names), dtype=np.int32), *by_ingress))

    @property
    def by_sender(self) -> tuple[str, ...]:
        """The publisher of each sender."""
        return self.names * (1 + len(self.ingresses))

    def first_sender(self, ingress: str) -> int:
        """Return the first sender with an ingress, the sum of which and a publisher is a sender.

        Args:
            ingress: an ingress, or nothing for the publisher's own link.
        """
        return len(self.names) * (1 + self.ingresses.index(ingress)) if ingress else 0

    def senders(self, batch: Batch, messages: Messages) -> tuple[NDArray[np.int32], Messages]:
        """Return the publisher of each message, int32[m], and the messages.

        Records and messages of unknown publishers count as unreadable.
        """
        if self.by == "field":
            return self._by_field(messages), messages
        if self.by == PARTITION:
            publisher = self.turns[batch.partition % len(self.turns)]
            reason = np.where(publisher < 0, np.uint8(UNKNOWN_PUBLISHER), np.uint8(0))
        else:
            publisher, reason = self._by_header(batch)
        if reason.any():
            messages = messages.without(reason)
        return publisher[messages.packet], messages

    def of_partition(self, partition: int) -> int:
        """Return the number of the publisher that sends the summaries of a partition."""
        return max(0, int(self.turns[partition % len(self.turns)]))

    def named(self, batch: Batch, record: int) -> str | None:
        """Return the publisher that a record names, which may be unknown; None if fields do."""
        if self.by == PARTITION:
            return self.listed[int(batch.partition[record]) % len(self.listed)]
        name = None if batch.publisher is None else batch.publisher[record].as_py()
        return None if name is None else name.decode("latin-1")

    def _by_header(self, batch: Batch) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        count = len(batch)
        if batch.publisher is None:
            return np.full(count, -1, np.int32), np.full(count, NO_PUBLISHER, np.uint8)
        names = pa.array([name.encode() for name in self.names], batch.publisher.type)
        publisher = pc.index_in(batch.publisher, value_set=names).fill_null(-1).to_numpy()
        reason = np.where(publisher < 0, np.uint8(UNKNOWN_PUBLISHER), np.uint8(0))
        reason[np.asarray(batch.publisher.is_null())] = NO_PUBLISHER
        return publisher.astype(np.int32), reason

    def _by_field(self, messages: Messages) -> NDArray[np.int32]:
        assert self.columns is not None and self.raw is not None and self.number is not None
        column = self.columns[messages.message_type]
        present = column >= 0
        cell = np.where(present, column, 0), np.arange(len(column))
        raw = messages.values[cell]
        if messages.present is not None:
            present &= messages.present[cell]
        place = np.minimum(np.searchsorted(self.raw, raw), len(self.raw) - 1)
        valid = present & (self.raw[place] == raw)
        reason = np.where(present, np.uint8(UNKNOWN_PUBLISHER), np.uint8(NO_PUBLISHER))
        invalid = ~valid & (messages.message_reason == 0)
        messages.message_reason[invalid] = reason[invalid]
        return np.where(valid, self.number[place], -1).astype(np.int32)


def publishers_of(
    network: Network, text: str, by: str, ingresses: Sequence[str] = ()
) -> Publishers:
    """Return the publishers of a setting. Records of those that `sending` omits are dead letters.

    Args:
        network: the network.
        text: value of the setting ``publisher``.
        by: value of the setting ``publisher.by``, such as ``header:NAME``.
        ingresses: hosts by whose links frames may enter.

    Raises:
        NetworkError: see `sending`; NO_PUBLISHER for an ingress without this role, whose frames
            switches would drop.
    """
    for name in ingresses:
        if name not in network.hosts or network.hosts[name].role != "publisher":
            raise NetworkError(
                "NO_PUBLISHER",
                f"{name!r} in table ingresses is not a host with role publisher, but switches "
                "accept events only from publishers: give it this role in table hosts, or name "
                "another host",
                host=name,
            )
    names = listed(text) or network.publishers()
    number = {name: place for place, name in enumerate(sending(network, text))}
    return Publishers(
        tuple(number),
        tuple(names),
        np.array([number.get(name, -1) for name in names], np.int32),
        by.partition(":")[0],
        ingresses=tuple(dict.fromkeys(ingresses)),
        switches={name: network.hosts[name].switch for name in (*number, *ingresses)},
    )


def naming_fields(by: str, specification: Specification) -> tuple[Field, ...]:
    """Return the fields that name the publisher of a message, one per message type that has one.

    Args:
        by: value of the setting ``publisher.by``. Without ``field:NAME`` there are no such fields.
        specification: message format.

    Raises:
        SettingsError: BAD_VALUE if no field has this name, or it cannot contain names or positions.
    """
    kind, _, name = by.partition(":")
    if kind != "field":
        return ()
    fields = tuple(
        field for field in specification.fields.values() if name in (field.name, field.qualified)
    )
    if not fields or any(field.kind == "decimal" or field.bits > 64 for field in fields):
        raise SettingsError(
            "BAD_VALUE",
            f"{_SETTING}.by is {by!r}, but must name a field of {specification.name} that "
            "contains host names or positions in the list, counted from 1",
            key=f"{_SETTING}.by",
        )
    return fields


def with_fields(
    publishers: Publishers,
    specification: Specification,
    fields: Sequence[Field],
    columns: Sequence[int],
) -> Publishers:
    """Return publishers that are named by fields.

    Args:
        publishers: the publishers.
        specification: message format.
        fields: result of `naming_fields`.
        columns: column of each field.
    """
    types = {header.name: header.message_type for header in specification.headers}
    by_type = np.full(256, -1, np.int32)
    for naming, column in zip(fields, columns, strict=True):
        by_type[types[naming.header] or 0] = column
    raw = {}
    for place, name in enumerate(publishers.listed):
        value = fields[0].parse(name, quoted=True)[0] if fields[0].kind == "string" else place + 1
        if publishers.turns[place] >= 0:
            raw[value] = int(publishers.turns[place])
    return replace(
        publishers,
        columns=by_type,
        raw=np.array(sorted(raw), np.uint64),
        number=np.array([raw[value] for value in sorted(raw)], np.int32),
    )
