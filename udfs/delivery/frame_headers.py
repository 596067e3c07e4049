"""Frame headers of a plan's receiver sets, each made when a batch first needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from udfs.stacks.frame import FrameTemplates
from udfs.trees.header_stacks import HeaderStacks, Receivers, Stacks


class StacksHandle(Protocol):
    """Broadcast header stacks; ``value`` loads them once a worker, when it is first read."""

    @property
    def value(self) -> HeaderStacks: ...


class FrameHeaders:
    """Holds templates by delivery: those whose stacks the driver knew, and the others by and by.

    A worker keeps what it makes for as long as it keeps the plan. The numbers of templates that are
    there stay as they are; those of later ones differ from worker to worker, and their bytes do
    not. It pickles as the driver made it.

    Parameters
    ----------
    receiver_sets: by delivery; a worker may add to them. stacks: of each set that the plan has,
    None where they are not known.
    template: from labels to a template (:func:`udfs.stacks.frame.header_template`); pickles.
    """

    def __init__(
        self,
        receiver_sets: Sequence[Receivers],
        stacks: Sequence[Stacks | None],
        template: Callable[[Sequence[int]], bytes],
    ) -> None:
        self._sets = receiver_sets
        self._template = template
        self._shipped = FrameTemplates.build(
            [None if each is None else self._bytes(each) for each in stacks]
        )
        self._all = self._shipped
        known = {number: each for number, each in enumerate(stacks) if each is not None}
        self._shipped_parts = self._parts(known)
        self._made_parts: dict[int, Receivers] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_all": self._shipped, "_made_parts": {}}

    @property
    def templates(self) -> FrameTemplates:
        """All templates that are there by now."""
        return self._all

    def templates_for(
        self, delivery: NDArray[np.int32], header_stacks: StacksHandle
    ) -> FrameTemplates:
        """Returns templates that hold those of these deliveries; works out those that are
        missing."""
        self._all = self._all.grown(len(self._sets))
        lacking = self._all.lacking(delivery)
        if lacking:
            made = {number: header_stacks.value.of(self._sets[number]) for number in lacking}
            self._all = self._all.with_leaves({n: self._bytes(each) for n, each in made.items()})
            self._made_parts |= self._parts(made)
        return self._all

    def with_stacks(self, stacks: Sequence[Stacks | None]) -> FrameHeaders:
        """Returns headers for the same receiver sets, as if these stacks had been known."""
        return FrameHeaders(self._sets, stacks, self._template)

    def receivers(self, template: int) -> Receivers:
        """Returns the hosts that a template reaches: all of its delivery, or those of one stack."""
        for parts in (self._shipped_parts, self._made_parts):
            if template in parts:
                return parts[template]
        return self._sets[int(self._all.leaf[template])]

    def part(self, template: int) -> Receivers | None:
        """Returns the hosts that a template reaches if these are not all of its delivery, else
        None."""
        return self._shipped_parts.get(template) or self._made_parts.get(template)

    def met(self, template: int) -> Receivers | None:
        """Returns all receivers of a template's delivery if the plan has no such set, else None."""
        delivery = int(self._all.leaf[template])
        return None if delivery < self._shipped.leaves else self._sets[delivery]

    @property
    def shipped(self) -> int:
        """The number of templates that came with the plan; those after them were made here."""
        return self._shipped.templates

    def _parts(self, stacks: Mapping[int, Stacks]) -> dict[int, Receivers]:
        """Returns by template the receivers of those that do not reach all of their delivery."""
        return {
            int(self._all.first[number]) + place: part.receivers
            for number, each in stacks.items()
            for place, part in enumerate(each.parts)
            if part.receivers != self._sets[number]
        }

    def _bytes(self, stacks: Stacks) -> list[bytes]:
        return [self._template(part.labels) for part in stacks.parts]
