"""Header stacks of any receiver set of one publisher, even if single receivers cannot be
reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from udfs.errors import NetworkError, StackError
from udfs.network.labels import MAX_LABELS
from udfs.network.network import Network
from udfs.network.topology import fabric
from udfs.network.virtual_tree import VirtualTree
from udfs.trees.broadcast import broadcast_trees
from udfs.trees.encode import Encoder

#: Receiver sets that are remembered at most beyond those in use.
_REMEMBERED = 200_000
#: Receivers that an error names at most.
_NAMED = 10

Receivers = tuple[str, ...]
"""Sorted names of hosts, each once."""


@dataclass(frozen=True)
class Stack:
    """One header stack: its labels, and the receivers it brings a notification to."""

    labels: tuple[int, ...]
    receivers: Receivers


@dataclass(frozen=True)
class Stacks:
    """All that a receiver set needs: one stack or, where that would be too long, several.

    parts: stacks of disjoint receivers. cut_off: ``(host, reason)``, those whom no stack leads to;
    with ``parts`` they are the whole set.
    """

    parts: tuple[Stack, ...]
    cut_off: tuple[tuple[str, str], ...] = ()


_NOBODY = Stacks(())


class HeaderStacks:
    """Works out the stacks of receiver sets, and remembers them. Raises as :class:`Encoder` does.

    The answer to a receiver set is the same in any process. It pickles without what it remembers.
    """

    def __init__(
        self,
        network: Network,
        publisher: str,
        trees: Iterable[VirtualTree],
        max_labels: int = MAX_LABELS,
    ) -> None:
        self._publisher = publisher
        self._encoder = Encoder(network, publisher, trees, max_labels)
        self._known: dict[Receivers, Stacks] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}}

    def of(self, receivers: Receivers) -> Stacks:
        """Returns the stacks of a receiver set. Never raises for receivers that cannot be reached.

        Raises StackError NOT_ENCODED, which names the set, where the encoder itself fails.
        """
        found = self._known.get(receivers)
        if found is None:
            try:
                found = self._work_out(receivers)
            except Exception as error:
                # Left out, they would lose their events in silence.
                named = ", ".join(receivers[:_NAMED])
                if len(receivers) > _NAMED:
                    named += f" and {len(receivers) - _NAMED} more"
                raise StackError(
                    "NOT_ENCODED",
                    f"the header stacks from {self._publisher!r} to the receivers {named} cannot "
                    f"be worked out: {error!r}. No setting mends it: report it, with the network "
                    "and its virtual trees",
                    publisher=self._publisher,
                    receivers=receivers,
                ) from error
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[receivers] = found
        return found

    def known(self, receivers: Receivers) -> Stacks | None:
        """Returns the stacks of a receiver set if they are remembered; works nothing out."""
        return self._known.get(receivers) if receivers else _NOBODY

    def learn(self, stacks: Mapping[Receivers, Stacks]) -> None:
        """Remembers stacks that another process has worked out."""
        self._known.update(stacks)

    def retain(self, receiver_sets: Sequence[Receivers]) -> None:
        """Forgets all but these, if there are too many to remember."""
        if len(self._known) > _REMEMBERED:
            known = self._known
            self._known = {r: known[r] for r in receiver_sets if r in known}

    def _work_out(self, receivers: Receivers) -> Stacks:
        try:
            return Stacks(self._parts(receivers))
        except NetworkError:
            # One receiver that cannot be reached must not cost the others their events.
            cut_off: dict[str, str] = {}
            reached: list[Stack] = []
            for host in receivers:
                try:
                    reached += self._parts((host,))
                except NetworkError as error:
                    cut_off[host] = str(error)
        left = tuple(host for host in receivers if host not in cut_off)
        try:
            parts = self._parts(left)
        except NetworkError:
            parts = tuple(reached)  # dearer, and as right
        return Stacks(parts, tuple(cut_off.items()))

    def _parts(self, receivers: Receivers) -> tuple[Stack, ...]:
        encodings = self._encoder.encode(frozenset(receivers))
        return tuple(Stack(each.labels, each.receivers) for each in encodings)


def warm_up() -> None:
    """Loads the encoder's kernels into this process; compiles them if no cache has them."""
    network = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
    (publisher,) = network.publishers()
    stacks = HeaderStacks(network, publisher, broadcast_trees(network))
    stacks.of(network.subscribers())
