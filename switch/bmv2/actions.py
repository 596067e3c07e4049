"""Actions as Python statements: their primitives one after the other, and jumps among these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stackcast.switch.bmv2.expressions import Expressions
from stackcast.switch.bmv2.flow import Flow
from stackcast.switch.bmv2.primitives import Primitives
from stackcast.switch.bmv2.source import Coverage, PythonSource
from stackcast.switch.bmv2.values import Value

Json = Mapping[str, Any]
# How often an action may jump back before it is given up.
ROUNDS = 1 << 16
_JUMPS = ("_jump", "_jump_if_zero")


class Actions:
    """Writes actions in place; what must be a function of its own goes to ``functions``."""

    def __init__(
        self,
        source: PythonSource,
        primitives: Primitives,
        coverage: Coverage,
        functions: list[list[str]],
    ) -> None:
        self._source = source
        self._primitives = primitives
        self._expressions: Expressions = primitives.expressions
        self._coverage = coverage
        self._functions = functions

    def write(self, action: Json, params: Sequence[Value]) -> None:
        """Write an action's body; ``params`` are the values of its parameters."""
        primitives = action["primitives"]
        self._coverage.mark("action", action["name"], action)
        self._expressions.params = params
        last = len(primitives)
        next_of: dict[int, list[int | None]] = {}
        for number, primitive in enumerate(primitives):
            targets = [number + 1]
            if primitive["op"] in _JUMPS:
                target = int(primitive["parameters"][-1]["value"], 16)
                targets = [target] if primitive["op"] == "_jump" else [number + 1, target]
            next_of[number] = [None if target >= last else target for target in targets]
        if any(after is not None and after <= at for at, way in next_of.items() for after in way):
            self._loops(action, params, next_of)
            return
        arguments = "P, F, e" if params and any(not _literal(value) for value in params) else "P, F"

        def step(number: int, follow: Callable[[int | None], None]) -> None:
            primitive = primitives[number]
            self._expressions.params = params
            branches = len(set(next_of[number])) > 1
            if primitive["op"] in _JUMPS and not branches:
                return
            self._coverage.mark(primitive["op"], action["name"], primitive)
            if branches:
                test = self._expressions.data(primitive["parameters"][0])
                self._primitives.note_reads()
                with self._source.block(f"if {test.code}:"):
                    follow(next_of[number][0])
                with self._source.block("else:"):
                    follow(next_of[number][1])
            else:
                self._primitives.write(primitive)

        flow: Flow[int] = Flow(
            self._source, f"action {action['name']!r}", next_of, step, self._functions, arguments
        )
        flow.write(0 if primitives else None)
        self._expressions.params = ()

    def _loops(
        self, action: Json, params: Sequence[Value], next_of: Mapping[int, Sequence[int | None]]
    ) -> None:
        """Write an action that jumps back: blocks under ``if j <= start``, in a loop.

        After a jump ``j`` is where to go on: blocks before it are left out in this round.
        """
        primitives = action["primitives"]
        starts = {0} | {at for way in next_of.values() if len(way) > 1 for at in way if at}
        for number, way in next_of.items():
            if primitives[number]["op"] in _JUMPS:
                starts |= {at for at in (*way, number + 1) if at is not None}
        bounds = sorted(start for start in starts if start < len(primitives))
        line = self._source.line
        line("j = 0")
        with self._source.block(f"for _ in range({ROUNDS}):"):
            for start, end in zip(bounds, [*bounds[1:], len(primitives)], strict=True):
                with self._source.block(f"if j <= {start}:"):
                    for number in range(start, end):
                        primitive = primitives[number]
                        self._expressions.params = params
                        if primitive["op"] not in _JUMPS:
                            self._coverage.mark(primitive["op"], action["name"], primitive)
                            self._primitives.write(primitive)
                        else:
                            self._jump(number, next_of[number][-1], primitive)
            line("break")
        self._expressions.params = ()

    def _jump(self, number: int, target: int | None, primitive: Json) -> None:
        test = None
        if primitive["op"] == "_jump_if_zero":
            test = f"not {self._primitives.as_number(primitive['parameters'][0]).code}"
            self._primitives.note_reads()
        with self._source.only_if(test):
            if target is None:
                self._source.line("break")
            else:
                self._source.line(f"j = {target}")
                if target <= number:
                    self._source.line("continue")


def _literal(value: Value) -> bool:
    return value.low is not None and value.low == value.high
