"""Summaries of one task for each receiver of notifications: counted by template, sent by host.

No Python statement runs per frame: frames are tallied by the template that they have, and a
template's tallies go to all of its receivers at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from udfs.delivery.counts import Counts
from udfs.delivery.frame_headers import FrameHeaders, StacksHandle
from udfs.delivery.kernels import by_host
from udfs.delivery.publishers import Publishers
from udfs.delivery.routes import Routes
from udfs.messages.sequence import OFFSET_SHIFT
from udfs.messages.summaries import summary_rows
from udfs.messages.summary_keys import SummaryKey, SummarySigner
from udfs.stacks.frame import address_datagrams
from udfs.trees.header_stacks import Receivers


class SummaryHosts:
    """Knows the hosts that a plan sends summaries to; pickles without what it remembers.

    Parameters
    ----------
    receiver_sets: by delivery; among them each host alone. port: UDP port of summaries. key: the
    master key that authenticates them, of which only the hosts' own keys are kept.
    """

    def __init__(
        self, receiver_sets: Sequence[Receivers], port: int, key: SummaryKey | None = None
    ) -> None:
        self.port = port
        self.names = tuple(sorted({host for receivers in receiver_sets for host in receivers}))
        alone = {
            receivers[0]: d for d, receivers in enumerate(receiver_sets) if len(receivers) == 1
        }
        #: int32[h]: the delivery of each host alone.
        self.delivery = np.array([alone[host] for host in self.names], np.int32)
        self.signer = None if key is None else SummarySigner(key, self.names)
        self._forget(None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("port", "names", "delivery", "signer")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget(None)

    def _forget(self, headers: FrameHeaders | None) -> None:
        self._headers = headers
        self._numbers: dict[str, int] = {}
        # Template t reaches the hosts ``_pool[_start[t]:_end[t]]``; -1 where that is not known.
        self._start = self._end = np.zeros(0, np.int64)
        self._pool = np.zeros(0, np.int32)

    def reach(
        self, headers: FrameHeaders, templates: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
        """Returns the hosts that these templates reach, as places in ``names``: those of template t
        are ``pool[start[t]:end[t]]`` of the arrays start, end and pool."""
        if headers is not self._headers:
            # A plan with another network has the same hosts and other templates.
            self._forget(headers)
        more = headers.templates.templates - self._start.size
        if more:
            unknown = np.full(more, -1)
            self._start = np.concatenate((self._start, unknown))
            self._end = np.concatenate((self._end, unknown))
        new = templates[self._start[templates] < 0]
        if new.size:
            self._learn(headers, new)
        return self._start, self._end, self._pool

    def _learn(self, headers: FrameHeaders, templates: NDArray[np.int64]) -> None:
        if not self._numbers:
            self._numbers = {host: number for number, host in enumerate(self.names)}
        sets = [headers.receivers(template) for template in templates.tolist()]
        places = [self._numbers[host] for receivers in sets for host in receivers]
        sizes = np.array([len(receivers) for receivers in sets])
        self._end[templates] = self._pool.size + np.cumsum(sizes)
        self._start[templates] = self._end[templates] - sizes
        self._pool = np.concatenate((self._pool, np.array(places, np.int32)))


class _Plan(Protocol):
    @property
    def headers(self) -> FrameHeaders: ...
    @property
    def publishers(self) -> Publishers | None: ...
    @property
    def routes(self) -> Routes: ...


class ReceiverSummaries:
    """Makes the summaries of a task by what it has counted by template. first_sender: as of
    `udfs.delivery.task.Task`."""

    def __init__(
        self, plan: _Plan, hosts: SummaryHosts, header_stacks: StacksHandle, first_sender: int = 0
    ) -> None:
        self._plan = plan
        self._hosts = hosts
        self._headers = plan.headers
        self._header_stacks = header_stacks
        self._first_sender = first_sender

    def frames(
        self, counts: Counts, ranges: Sequence[tuple[int, int]]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]]:
        """Makes frames with a summary for each host and partition: bytes, borders int64[f+1] and
        templates int32[f].

        ranges: offsets by partition of the counts, (from, until) of the records that were read.
        Hosts that no stack leads to get none.
        """
        rows, template = [], []
        for row in np.argsort(counts.partitions).tolist():
            route = self._routes(int(counts.partitions[row]))
            templates = self._headers.templates_for(route, self._header_stacks)
            reached = np.flatnonzero(templates.count[route] > 0)
            summaries = summary_rows(
                counts.sessions[row].tobytes(),
                ranges[row][0] << OFFSET_SHIFT,
                ranges[row][1] << OFFSET_SHIFT,
                *self._by_host(counts, row),
            )
            if self._hosts.signer is None:
                rows.append(summaries[reached])
            else:
                rows.append(self._hosts.signer.sign(summaries[reached], reached.tolist()))
            template.append(templates.first[route[reached]])
        chosen = np.concatenate(template)
        templates = self._headers.templates
        made = address_datagrams(templates, chosen, np.concatenate(rows), self._hosts.port)
        return *made, chosen

    def _routes(self, partition: int) -> NDArray[np.int32]:
        """Returns the route of each host's summaries, from the publisher that they come from."""
        delivery = self._hosts.delivery
        if self._plan.publishers is None:
            return delivery
        sender = self._first_sender + self._plan.publishers.of_partition(partition)
        return self._plan.routes.numbers(np.full(delivery.size, sender, np.int32), delivery)

    def _by_host(self, counts: Counts, row: int) -> tuple[NDArray[Any], ...]:
        """Returns notifications, last number and digest of a partition by host, in the order of
        ``names``."""
        notifications = counts.by_template[row, :, 0]
        used = np.flatnonzero(notifications)
        reach = self._hosts.reach(self._headers, used)
        tallies: tuple[NDArray[Any], ...] = by_host(
            used,
            notifications,
            counts.last[row],
            counts.digest[row],
            *reach,
            len(self._hosts.names),
        )
        return tallies
