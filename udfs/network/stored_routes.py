"""Labels of routes that switches hold, chosen by the sender (WERNECKE 4.2.2, 4.2.3, 4.3).

``destinations`` name a host, by the directed link that leads to it: each switch has a row for each.
``tree`` names a stored tree that leads to exactly some hosts. ``hybrid`` names a stored tree for
most of the receivers and, for each switch where others branch off, the switch (``root``) and hops:
what follows a root is its subtree, up to the next root.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from udfs.network.labels import HOP, TREE, IdLabels, LabelFormat, TypedLabels

ROOT = 0


class StoredRoute(LabelFormat):
    """Labels some of which name what switches hold: ``split`` says of a label which."""

    @abstractmethod
    def split(self, value: int) -> tuple[int, int]:
        """Splits a label into its kind (TREE for all that is stored) and its id.

        Raises StackError ``BAD_LABEL``.
        """


class StoredIds(IdLabels, StoredRoute):
    """Labels that all name what is stored: a destination or a tree."""

    def split(self, value: int) -> tuple[int, int]:
        self.check(value)
        return TREE, value


class HybridLabels(TypedLabels, StoredRoute):
    """Labels of a type and an id: the root of a subtree by its device id, a tree, a hop."""

    kinds: ClassVar[Mapping[int, str]] = {ROOT: "root", TREE: "tree", HOP: "hop"}

    @property
    def max_device(self) -> int:
        return self.max_id


DESTINATIONS = StoredIds(16, 0x99A9, "destinations", "host")
TREES = StoredIds(16, 0x99AA, "tree", "tree")
HYBRID = HybridLabels(16, 0x99AB, "hybrid")
STORED_ROUTES: dict[str, StoredRoute] = {
    form.encoding: form for form in (DESTINATIONS, TREES, HYBRID)
}
