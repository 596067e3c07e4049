"""Frame headers of a plan's routes, each made when a batch first needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stackcast.udfs.delivery.routes import Route
from stackcast.udfs.stacks.frame import FrameTemplates
from stackcast.udfs.trees.header_stacks import HeaderStacks, Receivers, Stack, Stacks


class StacksHandle(Protocol):
    """Broadcast header stacks; ``value`` loads them once a worker, when it is first read."""

    @property
    def value(self) -> HeaderStacks: ...


class FrameHeaders:
    """Holds templates by route: those whose stacks the driver knew, and the others by and by.

    A worker keeps what it makes for as long as it keeps the plan. The numbers of templates that are
    there stay as they are; those of later ones differ from worker to worker, and their bytes do
    not. It pickles as the driver made it.

    Parameters
    ----------
    routes: by number; a worker may add to them. stacks: of each route that the plan has, None where
    they are not known.
    template: from a sender and a stack to a template
    (:func:`stackcast.udfs.stacks.frame.header_template`); pickles. link: int32[], by sender, the
    number of the link that it sends by; None where there is one sender. A route's publisher is a
    sender, as `stackcast.udfs.delivery.publishers` numbers them.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        stacks: Sequence[Stacks | None],
        template: Callable[[int, Stack], bytes],
        link: NDArray[np.int32] | None = None,
    ) -> None:
        self._routes = routes
        self._link = np.zeros(1, np.int32) if link is None else link
        self._template = template
        self._shipped = FrameTemplates.build(
            [
                None if each is None else self._bytes(routes[number].publisher, each)
                for number, each in enumerate(stacks)
            ]
        )
        self._all = self._shipped
        # Of one publisher all frames enter by its link, and nobody asks.
        self._entry = np.zeros(self._shipped.templates, np.int32)
        known = {number: each for number, each in enumerate(stacks) if each is not None}
        self._shipped_parts = self._parts(known)
        self._made_parts: dict[int, Receivers] = {}

    def __getstate__(self) -> dict[str, Any]:
        entry = self._entry[: self._shipped.templates]
        return self.__dict__ | {"_all": self._shipped, "_entry": entry, "_made_parts": {}}

    @property
    def entry(self) -> NDArray[np.int32]:
        """The link by which frames of a template enter the network, int32[t]."""
        return self._entry

    @property
    def templates(self) -> FrameTemplates:
        """All templates that are there by now."""
        return self._all

    def templates_for(
        self, route: NDArray[np.int32], header_stacks: StacksHandle
    ) -> FrameTemplates:
        """Returns templates that hold those of these routes; works out those that are missing."""
        self._all = self._all.grown(len(self._routes))
        lacking = self._all.lacking(route)
        if lacking:
            stacks = header_stacks.value
            routes = {number: self._routes[number] for number in lacking}
            link = {n: int(self._link[each.publisher]) for n, each in routes.items()}
            made = {n: stacks.of(each.receivers, link[n]) for n, each in routes.items()}
            self._all = self._all.with_leaves(
                {n: self._bytes(routes[n].publisher, each) for n, each in made.items()}
            )
            self._made_parts |= self._parts(made)
            entry = [
                link[n] if part.entry is None else part.entry
                for n, each in made.items()
                for part in each.parts
            ]
            self._entry = np.concatenate((self._entry, np.array(entry, np.int32)))
        return self._all

    def with_stacks(self, stacks: Sequence[Stacks | None]) -> FrameHeaders:
        """Returns headers for the same routes, as if these stacks had been known."""
        return FrameHeaders(self._routes, stacks, self._template, self._link)

    def receivers(self, template: int) -> Receivers:
        """Returns the hosts that a template reaches: all of its route, or those of one stack."""
        for parts in (self._shipped_parts, self._made_parts):
            if template in parts:
                return parts[template]
        return self._routes[int(self._all.leaf[template])].receivers

    def part(self, template: int) -> Receivers | None:
        """Returns the hosts that a template reaches if these are not all of its route, else
        None."""
        return self._shipped_parts.get(template) or self._made_parts.get(template)

    def met(self, template: int) -> Receivers | None:
        """Returns all receivers of a template's route if the plan has no such route, else None."""
        route = int(self._all.leaf[template])
        return None if route < self._shipped.leaves else self._routes[route].receivers

    @property
    def shipped(self) -> int:
        """The number of templates that came with the plan; those after them were made here."""
        return self._shipped.templates

    def _parts(self, stacks: Mapping[int, Stacks]) -> dict[int, Receivers]:
        """Returns by template the receivers of those that do not reach all of their route."""
        return {
            int(self._all.first[number]) + place: part.receivers
            for number, each in stacks.items()
            for place, part in enumerate(each.parts)
            if part.receivers != self._routes[number].receivers
        }

    def _bytes(self, publisher: int, stacks: Stacks) -> list[bytes]:
        return [self._template(publisher, part) for part in stacks.parts]
