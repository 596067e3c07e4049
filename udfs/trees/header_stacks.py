"""Header stacks from publishers to any receiver set, even if single receivers cannot be reached."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stackcast.udfs.errors import NetworkError, StackError
from stackcast.udfs.network.labels import MAX_LABELS
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.trees.encoders import encoder_of

#: Memory for the stacks of receiver sets that are remembered, in each process: they live as long as
#: network and trees stand, while edited subscriptions bring ever new sets.
REMEMBERED_BYTES = 128 << 20
#: The same where a plan's stacks are learnt, which nobody works out again while it is in use.
LEARNT_BYTES = 512 << 20
#: Bytes of an entry beside its parts, of a part beside its labels, and of a label.
_ENTRY, _PART, _LABEL = 300, 120, 40
#: Receivers that an error names at most.
_NAMED = 10

Receivers = tuple[str, ...]
"""Sorted names of hosts, each once."""


@dataclass(frozen=True, slots=True)
class Stack:
    """One header stack: its labels, and the receivers it brings a notification to.

    entry: the publisher, by number, by whose link it enters the network if that is another than the
    sender's: no switch sends out of the port that a frame came in by.
    """

    labels: tuple[int, ...]
    receivers: Receivers
    entry: int | None = None


@dataclass(frozen=True, slots=True)
class Stacks:
    """All that a receiver set needs: one stack or, where that would be too long, several.

    parts: stacks of disjoint receivers. cut_off: ``(host, reason)``, those whom no stack leads to;
    with ``parts`` they are the whole set.
    """

    parts: tuple[Stack, ...]
    cut_off: tuple[tuple[str, str], ...] = ()


_NOBODY = Stacks(())


class HeaderStacks:
    """Works out the stacks of receiver sets, and remembers them. Raises as `encoder_of` does.

    It remembers `REMEMBERED_BYTES`, or as much as it learnt, up to `LEARNT_BYTES`; it forgets first
    what was used longest ago. The answer to a receiver set is the same in any process. It pickles
    without what it remembers. Any thread may ask what is known, learn and retain.

    publishers: one, or several that are told apart by their numbers: hosts by whose links
    notifications enter the network.
    """

    def __init__(
        self,
        network: Network,
        publishers: str | Sequence[str],
        trees: Iterable[VirtualTree],
        max_labels: int = MAX_LABELS,
    ) -> None:
        self._publishers = (publishers,) if isinstance(publishers, str) else tuple(publishers)
        self._first = encoder_of(network, self._publishers[0], tuple(trees), max_labels)
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, Receivers], Stacks] = OrderedDict()
        self._bytes, self._limit = 0, REMEMBERED_BYTES
        self._encoders = {0: self._first}

    def __getstate__(self) -> dict[str, Any]:
        return {"_publishers": self._publishers, "_first": self._first}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget()

    def of(self, receivers: Receivers, publisher: int = 0) -> Stacks:
        """Returns the stacks of a receiver set. Never raises for receivers that cannot be reached.

        Raises StackError NOT_ENCODED, which names the set, where the encoder itself fails.
        """
        try:
            return self._remembered(receivers, publisher)
        except Exception as error:
            # Left out, they would lose their events in silence.
            named = ", ".join(receivers[:_NAMED])
            if len(receivers) > _NAMED:
                named += f" and {len(receivers) - _NAMED} more"
            raise StackError(
                "NOT_ENCODED",
                f"the header stacks from {self._publishers[publisher]!r} to the receivers {named} "
                f"cannot be computed: {error!r}. This is a defect: report it with the network and "
                "its virtual trees",
                publisher=self._publishers[publisher],
                receivers=receivers,
            ) from error

    def known(self, receivers: Receivers, publisher: int = 0) -> Stacks | None:
        """Returns the stacks of a receiver set if they are remembered; works nothing out."""
        return self._known.get((publisher, receivers)) if receivers else _NOBODY

    def remembered(self) -> list[tuple[int, Receivers, Stacks]]:
        """Returns the stacks that are remembered, each with its publisher and receiver set."""
        with self._lock:
            return [(*route, stacks) for route, stacks in self._known.items()]

    def learn(self, stacks: Mapping[Receivers, Stacks]) -> bool:
        """Remembers stacks of the first publisher that another process has worked out, as far as
        there is room; returns whether there was for all."""
        with self._lock:
            for receivers, each in stacks.items():
                route = 0, receivers
                if route not in self._known:
                    if self._bytes + _bytes(receivers, each) > LEARNT_BYTES:
                        return False
                    self._keep(route, each)
                    self._limit = max(self._limit, self._bytes)
        return True

    def retain(self, receiver_sets: Sequence[Receivers]) -> None:
        """Forgets all but these, if there are too many to remember."""
        with self._lock:
            if self._bytes > REMEMBERED_BYTES:
                kept = set(receiver_sets)
                known, self._known, self._bytes = self._known, OrderedDict(), 0
                for route, stacks in known.items():
                    if route[1] in kept:
                        self._keep(route, stacks)
                self._limit = max(REMEMBERED_BYTES, self._bytes)

    def _remembered(self, receivers: Receivers, publisher: int) -> Stacks:
        route = publisher, receivers
        with self._lock:
            found = self._known.get(route)
            if found is not None:
                self._known.move_to_end(route)
                return found
        found = self._work_out(receivers, publisher)
        with self._lock:
            self._keep(route, found)
            while self._bytes > self._limit and len(self._known) > 1:
                (_, forgotten), stacks = self._known.popitem(last=False)
                self._bytes -= _bytes(forgotten, stacks)
        return found

    def _keep(self, route: tuple[int, Receivers], stacks: Stacks) -> None:
        if route not in self._known:
            self._known[route] = stacks
            self._bytes += _bytes(route[1], stacks)

    def _work_out(self, receivers: Receivers, publisher: int) -> Stacks:
        sender = self._publishers[publisher]
        if sender in receivers and len(self._publishers) > 1:
            others = tuple(host for host in receivers if host != sender)
            first = self._remembered(others, publisher) if others else _NOBODY
            own = self._to_itself(publisher)
            return Stacks(first.parts + own.parts, first.cut_off + own.cut_off)
        try:
            return Stacks(self._parts(receivers, publisher))
        except NetworkError as error:
            if len(receivers) == 1:
                return Stacks((), ((receivers[0], str(error)),))
        # One receiver that cannot be reached must not cost the others their events.
        alone = [self._remembered((host,), publisher) for host in receivers]
        cut_off = dict(cut for each in alone for cut in each.cut_off)
        reached = tuple(part for each in alone for part in each.parts)
        left = tuple(host for host in receivers if host not in cut_off)
        try:
            parts = self._parts(left, publisher)
        except NetworkError:
            parts = reached  # dearer, and as right
        return Stacks(parts, tuple(cut_off.items()))

    def _to_itself(self, publisher: int) -> Stacks:
        """Returns the stack to a publisher of what it sends, by the link of the next one that leads
        there."""
        name, count = self._publishers[publisher], len(self._publishers)
        for step in range(1, count):
            entry = (publisher + step) % count
            found = self._remembered((name,), entry)
            if found.parts:
                return Stacks((Stack(found.parts[0].labels, (name,), entry),))
        return Stacks((), ((name, f"no other publisher can reach {name!r}"),))

    def _parts(self, receivers: Receivers, publisher: int) -> tuple[Stack, ...]:
        encoder = self._encoders.get(publisher)
        if encoder is None:
            encoder = self._encoders[publisher] = self._first.of(self._publishers[publisher])
        encodings = encoder.encode(frozenset(receivers))
        if len(encodings) == 1:
            return (Stack(encodings[0].labels, receivers),)
        return tuple(Stack(each.labels, each.receivers) for each in encodings)


class PlainFrames(HeaderStacks):
    """Stands in where switches match and frames have no stack: each host alone is reached without
    labels, and a set of several, whose packets differ, by no frame.

    publishers: by number, where there are several. What one gets of its own comes in by another's
    link, as no switch sends out of the port that a frame came in by.
    """

    def __init__(self, publishers: Sequence[str] = ()) -> None:
        self.publishers = tuple(publishers)

    def __getstate__(self) -> dict[str, Any]:
        return {"publishers": self.publishers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state

    def of(self, receivers: Receivers, publisher: int = 0) -> Stacks:
        """Returns the one part of a host alone, which has no labels."""
        if len(receivers) != 1:
            return _NOBODY
        names = self.publishers
        own = publisher < len(names) and names[publisher] == receivers[0]
        entry = (publisher + 1) % len(names) if own else None
        return Stacks((Stack((), receivers, entry=entry),))

    known = of

    def remembered(self) -> list[tuple[int, Receivers, Stacks]]:
        """Returns nothing: there is nothing to work out."""
        return []

    def learn(self, stacks: Mapping[Receivers, Stacks]) -> bool:
        """Learns nothing, and has room for all."""
        return True

    def retain(self, receiver_sets: Sequence[Receivers]) -> None:
        """Forgets nothing."""


def _bytes(receivers: Receivers, stacks: Stacks) -> int:
    """Returns about how many bytes the stacks of a receiver set take; all share names of hosts."""
    size = _ENTRY + sys.getsizeof(receivers)
    for part in stacks.parts:
        size += _PART + _LABEL * len(part.labels)
        size += 0 if part.receivers is receivers else sys.getsizeof(part.receivers)
    return size + sum(_PART + sys.getsizeof(why) for _, why in stacks.cut_off)


def warm_up() -> None:
    """Loads the encoder's kernels into this process; compiles them if no cache has them."""
    network = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
    (publisher,) = network.publishers()
    # Four labels to both hosts: a stack is worked out, and cut.
    stacks = HeaderStacks(network, publisher, (), max_labels=3)
    stacks.of(network.subscribers())
