"""Summaries of one task for each receiver of notifications: counted by template, sent by host.

No Python statement runs per frame: frames are tallied by the template that they have, and a
template's tallies go to all of its receivers at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from udfs.delivery.frame_headers import FrameHeaders, StacksHandle
from udfs.delivery.kernels import tally
from udfs.messages.buffers import read_only
from udfs.messages.sequence import OFFSET_SHIFT
from udfs.messages.summaries import summary_rows
from udfs.stacks.frame import Frames, address_datagrams
from udfs.trees.header_stacks import Receivers


class SummaryHosts:
    """Knows the hosts that a plan sends summaries to; pickles without what it remembers.

    Parameters
    ----------
    receiver_sets: by delivery; among them each host alone. port: UDP port of summaries.
    """

    def __init__(self, receiver_sets: Sequence[Receivers], port: int) -> None:
        self._sets = receiver_sets
        self.port = port
        self.names = tuple(sorted({host for receivers in receiver_sets for host in receivers}))
        alone = {
            receivers[0]: d for d, receivers in enumerate(receiver_sets) if len(receivers) == 1
        }
        #: int32[h]: the delivery of each host alone.
        self.delivery = np.array([alone[host] for host in self.names], np.int32)
        self._numbers: dict[str, int] = {}
        self._of_delivery: dict[int, NDArray[np.int32]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_numbers": {}, "_of_delivery": {}}

    def numbers(self, headers: FrameHeaders, template: int) -> NDArray[np.int32]:
        """Returns the hosts that a template reaches, int32[], as places in ``names``."""
        delivery = int(headers.templates.leaf[template])
        receivers = headers.receivers(template)
        if receivers is not self._sets[delivery]:
            return self._places(receivers)
        if delivery not in self._of_delivery:
            self._of_delivery[delivery] = self._places(receivers)
        return self._of_delivery[delivery]

    def _places(self, receivers: Receivers) -> NDArray[np.int32]:
        if not self._numbers:
            self._numbers = {host: number for number, host in enumerate(self.names)}
        return np.array([self._numbers[host] for host in receivers], np.int32)


class ReceiverSummaries:
    """Tallies notifications, last number and digest of one task by template, for each partition."""

    def __init__(
        self, hosts: SummaryHosts, headers: FrameHeaders, header_stacks: StacksHandle
    ) -> None:
        self._hosts = hosts
        self._headers = headers
        self._header_stacks = header_stacks
        self._counted: dict[int, _Counted] = {}

    def add(self, partition: int, frames: Frames, chosen: NDArray[np.bool_] | None) -> None:
        """Counts the frames of a partition, which are the ``chosen`` ones, bool[f]; None: all."""
        templates = self._headers.templates.templates
        counted = self._counted.get(partition, _Counted.none()).grown(templates)
        self._counted[partition] = counted
        template, sequence, messages = frames.template, frames.sequence, frames.messages
        if chosen is not None:
            template, sequence, messages = template[chosen], sequence[chosen], messages[chosen]
        tally(
            read_only(template, np.int32),
            read_only(sequence, np.uint64),
            read_only(messages, np.int32),
            *counted,
        )

    def frames(
        self,
        offsets: Mapping[int, tuple[int, int]],
        sessions: Mapping[int, NDArray[np.uint8]],
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Makes frames with a summary for each host and partition: bytes, and borders int64[f+1].

        offsets: by partition, (from, until) of the records that were read. Hosts that no stack
        leads to get none.
        """
        hosts = self._hosts
        templates = self._headers.templates_for(hosts.delivery, self._header_stacks)
        reached = templates.count[hosts.delivery] > 0
        rows = [
            summary_rows(
                sessions[partition].tobytes(),
                offsets[partition][0] << OFFSET_SHIFT,
                offsets[partition][1] << OFFSET_SHIFT,
                *self._by_host(partition),
            )[reached]
            for partition in sorted(offsets)
        ]
        template = np.tile(templates.first[hosts.delivery[reached]], len(rows))
        return address_datagrams(templates, template, np.concatenate(rows), hosts.port)

    def _by_host(self, partition: int) -> _Counted:
        """Returns the tallies of a partition by host, in the order of ``names``."""
        result = _Counted.none().grown(len(self._hosts.names))
        counted = self._counted.get(partition, _Counted.none())
        used = np.flatnonzero(counted.notifications)
        numbers = [self._hosts.numbers(self._headers, template) for template in used.tolist()]
        if numbers:
            host = np.concatenate(numbers)
            sizes = [each.size for each in numbers]
            np.add.at(result.notifications, host, np.repeat(counted.notifications[used], sizes))
            np.maximum.at(result.last, host, np.repeat(counted.last[used], sizes))
            np.add.at(result.digest, host, np.repeat(counted.digest[used], sizes))
        return result


class _Counted(NamedTuple):
    """Tallies by template or by host: notifications, the largest sequence number, and the
    digest."""

    notifications: NDArray[np.int64]
    last: NDArray[np.uint64]
    digest: NDArray[np.uint64]

    @classmethod
    def none(cls) -> _Counted:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.uint64))

    def grown(self, size: int) -> _Counted:
        """Returns the same with zeros behind, ``size`` in all."""
        more = (0, size - self.last.size)
        if not more[1]:
            return self
        return _Counted(
            np.pad(self.notifications, more), np.pad(self.last, more), np.pad(self.digest, more)
        )
