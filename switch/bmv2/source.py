"""Python source under construction, marks of what ran, and the refusal of what cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from typing import Any

from stackcast.udfs.errors import SwitchError


def refuse(part: str, why: str) -> SwitchError:
    """Returns the error for a part of a BMv2 JSON that does not run here."""
    return SwitchError("WRONG_PROGRAM", f"{part}: {why}", part=part)


MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    RecursionError,
    SyntaxError,
)
"""Errors that Python raises where a JSON is not of the form that the code expects."""


@contextmanager
def reading(part: str) -> Iterator[None]:
    """Refuses, by the name of the part, whatever a malformed JSON raises inside."""
    try:
        yield
    except SwitchError:
        raise
    except MALFORMED as error:
        raise refuse(part, f"it is malformed ({type(error).__name__}: {error})") from error


class PythonSource:
    """Lines of Python with their indentation, and the constants that they name.

    ``constants`` become global names of the compiled source.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self._depth = 0
        self._numbers = count()
        self._named: dict[Any, str] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Writes lines under ``head``; an empty block gets a ``pass``, an empty ``else`` goes."""
        self.line(head)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            if head == "else:":
                self.lines.pop()
            else:
                self.line("pass")
        self._depth -= 1

    def only_if(self, condition: str | None) -> AbstractContextManager[None]:
        """Returns a block under a condition, or nothing if there is none."""
        return nullcontext() if condition is None else self.block(f"if {condition}:")

    def fresh(self, prefix: str) -> str:
        """Returns a name that nothing else has."""
        return f"{prefix}{next(self._numbers)}"

    def constant(self, prefix: str, key: Any, value: Any) -> str:
        """Returns the global name of ``value``; values of equal ``key`` share one."""
        name = self._named.get((prefix, key))
        if name is None:
            name = self._named[prefix, key] = self.fresh(prefix)
            self.constants[name] = value
        return name

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """Sends lines written meanwhile to the list given, at the depth of a function's body."""
        lines, depth = self.lines, self._depth
        self.lines, self._depth = [], 1
        try:
            yield self.lines
        finally:
            self.lines, self._depth = lines, depth

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class Coverage:
    """Marks, in the compiled form of a program, of the statements that ran, if ``wanted``.

    ``points``: what each number stands for, as ``file:line: kind name (text)``.
    """

    def __init__(self, source: PythonSource, wanted: bool) -> None:
        self.points: dict[int, str] = {}
        self._source = source
        self.wanted = wanted
        self._numbers: dict[tuple[str, str, int], int] = {}

    def mark(self, kind: str, name: str, node: Mapping[str, Any]) -> None:
        """Note here that ``node`` of the JSON ran. The same node always has one number."""
        if not self.wanted:
            return
        key = (kind, name, id(node))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.points)
            self.points[number] = f"{_where(node)}{kind} {name}"
        self._source.line(f"covered({number})")


def _where(node: Mapping[str, Any]) -> str:
    info = node.get("source_info")
    if not info:
        return ""
    text = " ".join(str(info.get("source_fragment", "")).split())
    return f"{info.get('filename', '')}:{info.get('line', '')}: ({text}) "
