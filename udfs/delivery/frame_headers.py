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
    """Broadcast header stacks. A worker loads ``value`` when it first reads it."""

    @property
    def value(self) -> HeaderStacks: ...


class FrameHeaders:
    """Frame templates by route.

    The driver creates the templates of the stacks that it knows, and a worker creates others when
    it needs them, and keeps them as long as the plan. Their numbers differ between workers, but
    their bytes do not. Only the templates of the driver are pickled.

    Args:
        routes: routes by number, to which a worker may add.
        stacks: stacks of each route of the plan; None if they are not known.
        template: returns the template for a sender and a stack
            (:func:`stackcast.udfs.stacks.frame.header_template`). Picklable.
        link: int32[], number of the link of each sender; None if there is one sender. The publisher
            of a route is a sender, see `stackcast.udfs.delivery.publishers`.
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
                None if known is None else self._bytes(routes[number].publisher, known)
                for number, known in enumerate(stacks)
            ]
        )
        self._all = self._shipped
        # With one publisher, all frames enter by its link, so this is not read.
        self._entry = np.zeros(self._shipped.templates, np.int32)
        self._shipped_parts = self._parts(
            {number: known for number, known in enumerate(stacks) if known is not None}
        )
        self._added_parts: dict[int, Receivers] = {}

    def __getstate__(self) -> dict[str, Any]:
        entry = self._entry[: self._shipped.templates]
        return self.__dict__ | {"_all": self._shipped, "_entry": entry, "_added_parts": {}}

    @property
    def entry(self) -> NDArray[np.int32]:
        """int32[t], number of the link by which the frames of a template enter the network."""
        return self._entry

    @property
    def templates(self) -> FrameTemplates:
        """All templates that exist so far."""
        return self._all

    def templates_for(
        self, route: NDArray[np.int32], header_stacks: StacksHandle
    ) -> FrameTemplates:
        """Return the templates, including those of these routes, and create missing ones.

        Args:
            route: int32[m], routes that are used.
            header_stacks: stacks for missing templates.
        """
        self._all = self._all.grown(len(self._routes))
        missing = self._all.lacking(route)
        if missing:
            header_stacks_of = header_stacks.value.of
            routes = {number: self._routes[number] for number in missing}
            links = {n: int(self._link[new.publisher]) for n, new in routes.items()}
            stacks = {n: header_stacks_of(new.receivers, links[n]) for n, new in routes.items()}
            self._all = self._all.with_leaves(
                {n: self._bytes(routes[n].publisher, new) for n, new in stacks.items()}
            )
            self._added_parts |= self._parts(stacks)
            entry = [
                links[n] if part.entry is None else part.entry
                for n, new in stacks.items()
                for part in new.parts
            ]
            self._entry = np.concatenate((self._entry, np.array(entry, np.int32)))
        return self._all

    def with_stacks(self, stacks: Sequence[Stacks | None]) -> FrameHeaders:
        """Return the headers of the same routes with these known stacks."""
        return FrameHeaders(self._routes, stacks, self._template, self._link)

    def receivers(self, template: int) -> Receivers:
        """Return the hosts that a template reaches: those of its route, or of one of its stacks."""
        for parts in (self._shipped_parts, self._added_parts):
            if template in parts:
                return parts[template]
        return self._routes[int(self._all.leaf[template])].receivers

    def part(self, template: int) -> Receivers | None:
        """Return the hosts that a template reaches, or None if it reaches those of its route."""
        return self._shipped_parts.get(template) or self._added_parts.get(template)

    def met(self, template: int) -> Receivers | None:
        """Return the receivers of the route of a template, or None if the plan has this route."""
        route = int(self._all.leaf[template])
        return None if route < self._shipped.leaves else self._routes[route].receivers

    @property
    def shipped(self) -> int:
        """Number of templates of the plan. Later ones were created by this worker."""
        return self._shipped.templates

    def _parts(self, stacks: Mapping[int, Stacks]) -> dict[int, Receivers]:
        """Return by template the receivers of each part of a route that has several parts."""
        return {
            int(self._all.first[number]) + place: part.receivers
            for number, route_stacks in stacks.items()
            for place, part in enumerate(route_stacks.parts)
            if part.receivers != self._routes[number].receivers
        }

    def _bytes(self, publisher: int, stacks: Stacks) -> list[bytes]:
        return [self._template(publisher, part) for part in stacks.parts]
