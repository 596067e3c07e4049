"""Summaries of one task for each receiver of notifications: counted by template, sent by host.

No Python statement runs per frame: frames are tallied by the template that they have, and a
template's tallies go to all of its receivers at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.delivery.counts import Counts
from stackcast.udfs.delivery.frame_headers import FrameHeaders, StacksHandle
from stackcast.udfs.delivery.kernels import by_host
from stackcast.udfs.delivery.publishers import Publishers
from stackcast.udfs.delivery.routes import Routes
from stackcast.udfs.delivery.told import Telling, Told
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, session_id
from stackcast.udfs.messages.summaries import summary_rows
from stackcast.udfs.messages.summary_keys import SummaryKey, SummarySigner
from stackcast.udfs.stacks.frame import address_datagrams
from stackcast.udfs.trees.header_stacks import Receivers

#: A host is told by the batch with which it is owed word of so many notifications: the summaries
#: of whoever gets few take a quarter of what the notifications do at most.
ENOUGH = 4
#: Of so large a share of all hosts a batch may as well tell all, and nobody keeps who was told.
MOST = 0.75
#: Hosts that may wait for word, as what they are owed is kept with each batch.
MOST_WAITING = 1_000


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
        self._places: dict[str, int] = {}
        self._forget(None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("port", "names", "delivery", "signer")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._places = {}
        self._forget(None)

    @property
    def places(self) -> dict[str, int]:
        """By name, the place of a host in ``names``."""
        if not self._places:
            self._places = {host: place for place, host in enumerate(self.names)}
        return self._places

    def _forget(self, headers: FrameHeaders | None) -> None:
        self._headers = headers
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
        sets = [headers.receivers(template) for template in templates.tolist()]
        places = [self.places[host] for receivers in sets for host in receivers]
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


class _Summaries(NamedTuple):
    """Summaries of a partition: whom to tell, bool[h]; from where, int64[h], and what, by host; and
    how far all are told then."""

    told: NDArray[np.bool_]
    begins: NDArray[np.int64]
    tallies: tuple[NDArray[Any], ...]
    after: Told


class ReceiverSummaries:
    """Makes the summaries of a task by what it has counted by template: ``counts``. first_sender:
    as of `stackcast.udfs.delivery.task.Task`."""

    def __init__(
        self,
        plan: _Plan,
        hosts: SummaryHosts,
        header_stacks: StacksHandle,
        counts: Counts,
        telling: Telling,
        first_sender: int = 0,
    ) -> None:
        self._plan = plan
        self._hosts = hosts
        self._headers = plan.headers
        self._header_stacks = header_stacks
        self._counts = counts
        self._telling = telling
        telling.ask(self._after)
        self._first_sender = first_sender
        #: By partition, how far hosts are told with the summaries that were made.
        self.told: dict[int, Told] = {}

    def frames(
        self,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]] | None:
        """Makes frames with summaries, one a host that is told of a partition: bytes, borders
        int64[f+1] and templates int32[f]; None if there are none.

        Hosts that no stack leads to get none.
        """
        rows, template = [], []
        for partition, each in sorted(self._all().items()):
            self.told[partition] = each.after
            route = self._routes(partition)
            templates = self._headers.templates_for(route, self._header_stacks)
            reached = np.flatnonzero(each.told & (templates.count[route] > 0))
            summaries = summary_rows(
                session_id(self._counts.topic, partition),
                each.begins[reached] << OFFSET_SHIFT,
                each.after.until << OFFSET_SHIFT,
                *(tally[reached] for tally in each.tallies),
            )
            if self._hosts.signer is not None:
                summaries = self._hosts.signer.sign(summaries, reached.tolist())
            rows.append(summaries)
            template.append(templates.first[route[reached]])
        if not sum(map(len, rows)):
            return None
        chosen = np.concatenate(template)
        templates = self._headers.templates
        made = address_datagrams(templates, chosen, np.concatenate(rows), self._hosts.port)
        return *made, chosen

    def _all(self) -> dict[int, _Summaries]:
        """Returns the summaries to send by partition; none of one of which nothing is to be
        said."""
        counted = self._counts.partitions.tolist()
        found = {partition: self._counted(partition) for partition in counted}
        if self._telling.everyone:
            for partition in self._telling.partitions.difference(counted):
                before = self._telling.told.get(partition)
                if before is not None and not before.whole:
                    found[partition] = self._uncounted(before)
        return found

    def _after(self, partition: int) -> Told | None:
        if partition in self._counts.partitions:
            return self._counted(partition).after
        before = self._telling.told.get(partition)
        everyone = self._telling.everyone and partition in self._telling.partitions
        return Told.all(before.until) if before is not None and everyone else before

    def _counted(self, partition: int) -> _Summaries:
        """Of a partition that had records. A range begins where the one before ended, so that
        there is no hole between them where offsets have one."""
        row = int(np.flatnonzero(self._counts.partitions == partition)[0])
        from_, until = self._counts.span(row)
        before = self._telling.told.get(partition, Told.all(from_))
        places = self._hosts.places
        owed, new = before.owes(places), self._by_host(row)
        tallies = owed[0] + new[0], np.maximum(owed[1], new[1]), owed[2] + new[2]
        told = tallies[0] >= ENOUGH
        waiting = np.flatnonzero((tallies[0] > 0) & ~told)
        if waiting.size > MOST_WAITING:
            told, waiting = tallies[0] > 0, waiting[:0]
        if self._telling.everyone or np.count_nonzero(told) >= MOST * told.size:
            told, after = np.ones_like(told), Told.all(until)
        else:
            names = self._hosts.names
            after = before.after(
                until,
                [names[place] for place in np.flatnonzero(told).tolist()],
                dict(
                    zip(
                        [names[place] for place in waiting.tolist()],
                        zip(*(tally[waiting].tolist() for tally in tallies), strict=True),
                        strict=True,
                    )
                ),
            )
        return _Summaries(told, before.begins(places), tallies, after)

    def _uncounted(self, before: Told) -> _Summaries:
        """Of a partition that had none, for hosts that do not know yet how far it went."""
        places = self._hosts.places
        begins = before.begins(places)
        return _Summaries(
            begins < before.until, begins, before.owes(places), Told.all(before.until)
        )

    def _routes(self, partition: int) -> NDArray[np.int32]:
        """Returns the route of each host's summaries, from the publisher that they come from."""
        delivery = self._hosts.delivery
        if self._plan.publishers is None:
            return delivery
        sender = self._first_sender + self._plan.publishers.of_partition(partition)
        return self._plan.routes.numbers(np.full(delivery.size, sender, np.int32), delivery)

    def _by_host(self, row: int) -> tuple[NDArray[Any], ...]:
        """Returns notifications, last number and digest of a partition by host, in the order of
        ``names``."""
        counts = self._counts
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
