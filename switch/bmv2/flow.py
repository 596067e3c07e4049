"""Directed acyclic graphs of control flow as nested Python: pipelines, and jumps within actions.

Between a branching node and the first node that all its branches come to again (its immediate
postdominator), each branch is one nested block. A part that two branches share without being that
node, and one that lies too deep for Python, becomes a function of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from stackcast.switch.bmv2.source import PythonSource, refuse

Node = TypeVar("Node", int, str)

# Python takes 100 levels of indentation.
DEEPEST = 24


class Flow(Generic[Node]):
    """Writes the code of a graph.

    ``next_of``: the successors of each node, None where the flow ends. ``write(node, follow)``
    writes one node; if it has several successors it calls ``follow(successor)`` within the block
    of each. ``functions``: lines of the functions that were made aside. ``arguments``: what is
    handed to those, ``P, F`` and what else the nodes' code names. A function of its own returns
    True if the packet is to leave the pipeline at once.
    """

    def __init__(
        self,
        source: PythonSource,
        what: str,
        next_of: Mapping[Node, Sequence[Node | None]],
        write: Callable[[Node, Callable[[Node | None], None]], None],
        functions: list[list[str]],
        arguments: str = "P, F",
    ) -> None:
        self.source = source
        self.next_of: dict[Node, tuple[Node | None, ...]] = {
            node: tuple(dict.fromkeys(after)) for node, after in next_of.items()
        }
        self._write: Callable[[Node, Callable[[Node | None], None]], None] = write
        self._functions = functions
        self._arguments = arguments
        self._order: list[Node] = self._sorted(what)
        self._meets: dict[Node, Node | None] = self._postdominators()
        self._shared: dict[tuple[Node, Node | None], int] = {}
        self._made: dict[tuple[Node, Node | None], str] = {}

    def write(self, start: Node | None) -> None:
        """Write all that runs from ``start`` to the end."""
        self._shared = self._count(start)
        self._region(start, None, 0)

    def _sorted(self, what: str) -> list[Node]:
        """Nodes so that each comes before its successors."""
        state: dict[Node, int] = {}
        order: list[Node] = []
        for root in self.next_of:
            if root in state:
                continue
            state[root] = 1
            path = [(root, iter(self.next_of[root]))]
            while path:
                node, after = path[-1]
                for follower in after:
                    if follower is None or state.get(follower) == 2:
                        continue
                    if state.get(follower) == 1:
                        raise refuse(what, "its control flow has a cycle")
                    if follower not in self.next_of:
                        raise refuse(what, f"it continues at {follower!r}, which does not exist")
                    state[follower] = 1
                    path.append((follower, iter(self.next_of[follower])))
                    break
                else:
                    state[node] = 2
                    order.append(node)
                    path.pop()
        return order[::-1]

    def _postdominators(self) -> dict[Node, Node | None]:
        """Returns the node where the branches of each node meet; None: at the end."""
        rank = {node: number for number, node in enumerate(self._order)}
        meets: dict[Node, Node | None] = {}

        def common(one: Node | None, other: Node | None) -> Node | None:
            while one != other:
                if one is None or other is None:
                    return None
                if rank[one] < rank[other]:
                    one = meets[one]
                else:
                    other = meets[other]
            return one

        for node in reversed(self._order):
            after = self.next_of[node]
            meet = after[0] if after else None
            for other in after[1:]:
                meet = common(meet, other)
            meets[node] = meet
        return meets

    def _count(self, start: Node | None) -> dict[tuple[Node, Node | None], int]:
        """Counts the entries into each part (from a node to where it meets the others)."""
        counts: dict[tuple[Node, Node | None], int] = {}
        todo: list[tuple[Node | None, Node | None]] = [(start, None)]
        while todo:
            node, stop = todo.pop()
            if node is None or node == stop:
                continue
            counts[node, stop] = counts.get((node, stop), 0) + 1
            if counts[node, stop] > 1:
                continue
            here: Node | None = node
            while here is not None and here != stop:
                after = self.next_of[here]
                meet = self._meets[here]
                if len(after) > 1:
                    todo.extend((follower, meet) for follower in after)
                here = meet
        return counts

    def _region(self, node: Node | None, stop: Node | None, depth: int) -> None:
        if node is None or node == stop:
            return
        if depth and (self._shared[node, stop] > 1 or depth % DEEPEST == 0):
            self._call(node, stop, depth)
            return
        self._run(node, stop, depth)

    def _run(self, node: Node, stop: Node | None, depth: int) -> None:
        here: Node | None = node
        while here is not None and here != stop:
            meet: Node | None = self._meets[here]
            self._write(here, partial(self._branch, meet, depth))
            here = meet

    def _branch(self, meet: Node | None, depth: int, follower: Node | None) -> None:
        self._region(follower, meet, depth + 1)

    def _call(self, node: Node, stop: Node | None, depth: int) -> None:
        name = self._made.get((node, stop))
        if name is None:
            name = self._made[node, stop] = self.source.fresh("part")
            head = f"def {name}({self._arguments}):"
            with self.source.aside() as lines, self.source.block(head):
                self._run(node, stop, depth + 1)
            self._functions.append(lines)
        with self.source.block(f"if {name}({self._arguments}):"):
            self.source.line("return True")
