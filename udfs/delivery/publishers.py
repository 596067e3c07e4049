"""Publishers of a stream that has several: whose each message is, and where its frames enter.

What differs by publisher is the way, not the filter: one matcher finds the receivers of all.
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
_INGRESSES = "spark.stackcast.sink.ingresses"


@dataclass(frozen=True)
class Publishers:
    """Knows whose messages are, and by whose link they enter the network. Picklable.

    names: by number, those that the network has. ingresses: hosts by whose links all enters that is
    sent from some places, whosever it is. switches: by host, of all these. listed: those of the
    setting, in its order. turns: int32[], by place there, the number, -1 for one that
    the network lacks. by: ``partition`` (its number modulo the list's length is the place),
    ``header`` or ``field``. columns: int32[256], by message type, the column of values that tells,
    -1 without; raw, number: raw values that it may have, ascending, and whose they are.

    A *sender* is a publisher with an ingress, by number: that of the publisher, and for each
    ingress before it one more than there are publishers; ingress 0 is the publisher's own link.
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
        """True where there is one, who needs not be told."""
        return len(self.listed) == 1

    @property
    def links(self) -> tuple[str, ...]:
        """Hosts by whose links frames enter, by number: first the publishers."""
        return tuple(dict.fromkeys((*self.names, *self.ingresses)))

    @property
    def attached(self) -> tuple[tuple[str, str], ...]:
        """The host of each link, and its switch."""
        return tuple((name, self.switches[name]) for name in self.links)

    @property
    def link(self) -> NDArray[np.int32]:
        """The number of each sender's link, int32[]."""
        number = {name: at for at, name in enumerate(self.links)}
        others = [np.full(len(self.names), number[name], np.int32) for name in self.ingresses]
        return np.concatenate((np.arange(len(self.names), dtype=np.int32), *others))

    @property
    def by_sender(self) -> tuple[str, ...]:
        """The publisher of each sender."""
        return self.names * (1 + len(self.ingresses))

    def first_sender(self, ingress: str) -> int:
        """Returns the number of the first publisher's sender with this ingress, by default its own
        link: what is to be added to the numbers of publishers."""
        return len(self.names) * (1 + self.ingresses.index(ingress)) if ingress else 0

    def senders(self, batch: Batch, messages: Messages) -> tuple[NDArray[np.int32], Messages]:
        """Returns the number of each message's publisher, int32[m], and the messages that count.

        Records of an unknown publisher are as if they could not be read, and so are messages.
        """
        if self.by == "field":
            return self._by_field(messages), messages
        if self.by == PARTITION:
            found = self.turns[batch.partition % len(self.turns)]
            reason = np.where(found < 0, np.uint8(UNKNOWN_PUBLISHER), np.uint8(0))
        else:
            found, reason = self._by_header(batch)
        if reason.any():
            messages = messages.without(reason)
        return found[messages.packet], messages

    def of_partition(self, partition: int) -> int:
        """Returns the number of the publisher that sends summaries of a partition."""
        return max(0, int(self.turns[partition % len(self.turns)]))

    def told(self, batch: Batch, record: int) -> str | None:
        """Returns the publisher that a record names, known or not; None where fields tell."""
        if self.by == PARTITION:
            return self.listed[int(batch.partition[record]) % len(self.listed)]
        name = None if batch.publisher is None else batch.publisher[record].as_py()
        return None if name is None else name.decode("latin-1")

    def _by_header(self, batch: Batch) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        count = len(batch)
        if batch.publisher is None:
            return np.full(count, -1, np.int32), np.full(count, NO_PUBLISHER, np.uint8)
        names = pa.array([name.encode() for name in self.names], batch.publisher.type)
        found = pc.index_in(batch.publisher, value_set=names).fill_null(-1).to_numpy()
        reason = np.where(found < 0, np.uint8(UNKNOWN_PUBLISHER), np.uint8(0))
        reason[np.asarray(batch.publisher.is_null())] = NO_PUBLISHER
        return found.astype(np.int32), reason

    def _by_field(self, messages: Messages) -> NDArray[np.int32]:
        assert self.columns is not None and self.raw is not None and self.number is not None
        column = self.columns[messages.message_type]
        there = column >= 0
        at = np.where(there, column, 0), np.arange(len(column))
        raw = messages.values[at]
        if messages.present is not None:
            there &= messages.present[at]
        place = np.minimum(np.searchsorted(self.raw, raw), len(self.raw) - 1)
        known = there & (self.raw[place] == raw)
        reason = np.where(there, np.uint8(UNKNOWN_PUBLISHER), np.uint8(NO_PUBLISHER))
        wrong = ~known & (messages.message_reason == 0)
        messages.message_reason[wrong] = reason[wrong]
        return np.where(known, self.number[place], -1).astype(np.int32)


def publishers_of(
    network: Network, text: str, by: str, ingresses: Sequence[str] = ()
) -> Publishers:
    """Returns the publishers of a setting; `by`: as the setting has it, ``header:NAME``. Records of
    those that `sending` leaves out are dead letters, and those of others go on.

    Raises NetworkError as `sending`, and NO_PUBLISHER for an ingress that is none: switches would
    drop what enters there.
    """
    for name in ingresses:
        if name not in network.hosts or network.hosts[name].role != "publisher":
            raise NetworkError(
                "NO_PUBLISHER",
                f"{name!r} in {_INGRESSES} is not a host with role publisher, but switches accept "
                "events only from publishers: give it this role in table hosts, or name another "
                "host",
                host=name,
            )
    names = listed(text) or network.publishers()
    number = {name: at for at, name in enumerate(sending(network, text))}
    return Publishers(
        tuple(number),
        tuple(names),
        np.array([number.get(name, -1) for name in names], np.int32),
        by.partition(":")[0],
        ingresses=tuple(dict.fromkeys(ingresses)),
        switches={name: network.hosts[name].switch for name in (*number, *ingresses)},
    )


def telling(by: str, specification: Specification) -> tuple[Field, ...]:
    """Returns the fields of the name that the setting has, as ``field:NAME``, one of each message
    type that has it; none where no field tells.

    Raises SettingsError BAD_VALUE where no field has that name, or it holds neither names nor
    places.
    """
    kind, _, name = by.partition(":")
    if kind != "field":
        return ()
    found = tuple(
        field for field in specification.fields.values() if name in (field.name, field.qualified)
    )
    if not found or any(field.kind == "decimal" or field.bits > 64 for field in found):
        raise SettingsError(
            "BAD_VALUE",
            f"{_SETTING}.by is {by!r}, but must name a field of {specification.name} that "
            "contains host names or positions in the list, counted from 1",
            key=f"{_SETTING}.by",
        )
    return found


def with_fields(
    publishers: Publishers,
    specification: Specification,
    fields: Sequence[Field],
    columns: Sequence[int],
) -> Publishers:
    """Returns the publishers, told by ``fields`` (:func:`telling`), which stand in ``columns``."""
    types = {header.name: header.message_type for header in specification.headers}
    by_type = np.full(256, -1, np.int32)
    for each, column in zip(fields, columns, strict=True):
        by_type[types[each.header] or 0] = column
    raw = {}
    for place, name in enumerate(publishers.listed):
        told = fields[0].parse(name, quoted=True)[0] if fields[0].kind == "string" else place + 1
        if publishers.turns[place] >= 0:
            raw[told] = int(publishers.turns[place])
    return replace(
        publishers,
        columns=by_type,
        raw=np.array(sorted(raw), np.uint64),
        number=np.array([raw[told] for told in sorted(raw)], np.int32),
    )
