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
from stackcast.udfs.delivery.summary_progress import SummaryChannel, SummaryProgress
from stackcast.udfs.messages.sequence import OFFSET_SHIFT, session_id
from stackcast.udfs.messages.summaries import summary_rows
from stackcast.udfs.messages.summary_keys import SummaryKey, SummarySigner
from stackcast.udfs.stacks.frame import address_datagrams
from stackcast.udfs.trees.header_stacks import Receivers

#: Pending notifications of a host at which a batch sends it a summary: then summaries stay below a
#: quarter of the traffic.
ENOUGH = 4
#: Share of all hosts at which a batch sends summaries to all of them, which makes the progress
#: complete.
MOST = 0.75
#: Maximum number of hosts with pending notifications, which are recorded with each batch.
MOST_PENDING = 1_000


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
    """Summaries of a partition.

    Attributes:
        due: whether a host gets a summary: bool[h].
        starts: offset at which the summary of a host begins: int64[h].
        tallies: contents of the summaries, as of `SummaryProgress.tallies`.
        progress: progress after the summaries.
    """

    due: NDArray[np.bool_]
    starts: NDArray[np.int64]
    tallies: tuple[NDArray[Any], ...]
    progress: SummaryProgress


class ReceiverSummaries:
    """Builds the summaries of a task from its counts by template.

    Args:
        plan: plan of the task.
        hosts: hosts that the plan sends summaries to.
        header_stacks: header stacks that the plan does not contain.
        counts: counts of the task.
        channel: connection to the source of the task's records.
        first_sender: number of the first sender of the task's ingress.
    """

    def __init__(
        self,
        plan: _Plan,
        hosts: SummaryHosts,
        header_stacks: StacksHandle,
        counts: Counts,
        channel: SummaryChannel,
        first_sender: int = 0,
    ) -> None:
        self._plan = plan
        self._hosts = hosts
        self._headers = plan.headers
        self._header_stacks = header_stacks
        self._counts = counts
        self._channel = channel
        channel.connect(self)
        self._first_sender = first_sender
        #: By partition, the progress after the summaries of `frames`.
        self.progress: dict[int, SummaryProgress] = {}

    def frames(
        self,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]] | None:
        """Build the frames of the summaries, one per host and partition.

        Hosts without a header stack get none.

        Returns:
            Bytes, borders int64[f+1] and templates int32[f]; None if there are no summaries.
        """
        rows, template = [], []
        for partition, summaries in sorted(self._all().items()):
            self.progress[partition] = summaries.progress
            route = self._routes(partition)
            templates = self._headers.templates_for(route, self._header_stacks)
            reached = np.flatnonzero(summaries.due & (templates.count[route] > 0))
            datagrams = summary_rows(
                session_id(self._counts.topic, partition),
                summaries.starts[reached] << OFFSET_SHIFT,
                summaries.progress.until << OFFSET_SHIFT,
                *(tally[reached] for tally in summaries.tallies),
            )
            if self._hosts.signer is not None:
                datagrams = self._hosts.signer.sign(datagrams, reached.tolist())
            rows.append(datagrams)
            template.append(templates.first[route[reached]])
        if not sum(map(len, rows)):
            return None
        chosen = np.concatenate(template)
        datagrams = np.concatenate(rows)
        return (
            *address_datagrams(self._headers.templates, chosen, datagrams, self._hosts.port),
            chosen,
        )

    def progress_after(self, partition: int) -> SummaryProgress | None:
        """Return the progress with the summaries of all records so far; None if it is unknown."""
        if partition in self._counts.partitions:
            return self._counted(partition).progress
        before = self._channel.before(partition)
        if before is None or not self._channel.everyone or partition not in self._channel.claimed:
            return before
        return SummaryProgress.complete(before.until)

    def _all(self) -> dict[int, _Summaries]:
        """Return the summaries to send, by partition."""
        counted = self._counts.partitions.tolist()
        summaries = {partition: self._counted(partition) for partition in counted}
        if self._channel.everyone:
            for partition in self._channel.claimed.difference(counted):
                before = self._channel.before(partition)
                if before is not None and not before.is_complete:
                    summaries[partition] = self._uncounted(before)
        return summaries

    def _counted(self, partition: int) -> _Summaries:
        """Return the summaries of a partition with records.

        Their ranges begin where the previous ones ended, even if there are offsets without records
        in between.
        """
        row = int(np.flatnonzero(self._counts.partitions == partition)[0])
        first, until = self._counts.span(row)
        before = self._channel.before(partition) or SummaryProgress.complete(first)
        numbers = self._hosts.places
        old, new = before.tallies(numbers), self._by_host(row)
        tallies = old[0] + new[0], np.maximum(old[1], new[1]), old[2] + new[2]
        due = tallies[0] >= ENOUGH
        pending = np.flatnonzero((tallies[0] > 0) & ~due)
        if pending.size > MOST_PENDING:
            due, pending = tallies[0] > 0, pending[:0]
        if self._channel.everyone or np.count_nonzero(due) >= MOST * due.size:
            due, progress = np.ones_like(due), SummaryProgress.complete(until)
        else:
            names = self._hosts.names
            contents = zip(*(tally[pending].tolist() for tally in tallies), strict=True)
            progress = before.advanced(
                until,
                [names[number] for number in np.flatnonzero(due).tolist()],
                dict(zip([names[number] for number in pending.tolist()], contents, strict=True)),
            )
        return _Summaries(due, before.starts(numbers), tallies, progress)

    def _uncounted(self, before: SummaryProgress) -> _Summaries:
        """Return the summaries of a partition without records, for hosts that lack one."""
        numbers = self._hosts.places
        starts = before.starts(numbers)
        progress = SummaryProgress.complete(before.until)
        return _Summaries(starts < before.until, starts, before.tallies(numbers), progress)

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
