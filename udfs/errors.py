"""Every error that Stackcast raises on purpose.

One root, one class an area, and a stable code ``AREA.WHAT`` that scripts and
alerts may rely on. The message says where the fault is and what to do about it;
typed fields carry the same facts for programs. `excerpt`, `nearest` and `printable` are how
a message shows its place in a text, finds the name that was meant, and harms no terminal.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar


class StackcastError(Exception):
    """Base of all errors. Its ``code`` is stable.

    Args:
        what: the second half of the code, upper case (``UNKNOWN_FIELD``).
        message: one sentence or more: where it is, what is wrong, what to do.
        **fields: facts for programs, which are attributes too.

    Example:
        >>> error = StackcastError("BAD_PORT", "port 70000 is too large", port=70000)
        >>> error.code, error.port
        ('STACKCAST.BAD_PORT', 70000)
    """

    area: ClassVar[str] = "STACKCAST"

    def __init__(self, what: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.what = what
        self.message = message
        self.fields = fields

    @property
    def code(self) -> str:
        return f"{self.area}.{self.what}"

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})
        if name in fields:
            return fields[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Spark workers), so they must survive pickling.
        return _rebuild, (type(self), self.what, self.message, self.fields)


def _rebuild(
    kind: type[StackcastError], what: str, message: str, fields: dict[str, Any]
) -> StackcastError:
    return kind(what, message, **fields)


class RequirementError(StackcastError):
    """A version of Python, Java, Spark or pandas is not supported, or an extra is missing."""

    area = "REQUIREMENT"


class SettingsError(StackcastError):
    """A ``spark.stackcast.*`` property is unknown or malformed."""

    area = "SETTINGS"


class SpecificationError(StackcastError):
    """A message format specification cannot be read, or a field is asked of it that it lacks."""

    area = "SPECIFICATION"


class MessageError(StackcastError):
    """A packet or message cannot be read. ``what`` in lower case is the dead letter's reason."""

    area = "MESSAGE"


class SubscriptionError(StackcastError):
    """A subscription does not compile. Fields: ``line``, ``column`` (1-based)."""

    area = "SUBSCRIPTION"


class EventError(StackcastError):
    """An event given as text is not one of its format."""

    area = "EVENT"


class AttributeTableError(StackcastError):
    """Table ``attributes`` is not a registry, or is full."""

    area = "ATTRIBUTE"


class FilterError(StackcastError):
    """A set of subscriptions cannot be compiled to tables within the limits."""

    area = "FILTER"


class NetworkError(StackcastError):
    """The network cannot be built or does not fit the label format."""

    area = "NETWORK"


class StackError(StackcastError):
    """A header stack or frame is malformed."""

    area = "STACK"


class TableError(StackcastError):
    """A Delta table is missing or does not have the expected form."""

    area = "TABLE"


class KafkaError(StackcastError):
    """A broker or topic cannot be used."""

    area = "KAFKA"


class StreamError(StackcastError):
    """A stream has ended by itself."""

    area = "STREAM"


class ReplayError(StackcastError):
    """Notifications that were sent cannot be computed again."""

    area = "REPLAY"


class SinkError(StackcastError):
    """Frames cannot be put on the wire."""

    area = "SINK"


class ReceiveError(StackcastError):
    """A receiver cannot open its sockets or join its groups."""

    area = "RECEIVE"


class StateError(StackcastError):
    """A message of replicated state cannot be written or read."""

    area = "STATE"


class SwitchError(StackcastError):
    """A switch cannot be reached or refuses an entry."""

    area = "SWITCH"


class ConsoleError(StackcastError):
    """The console cannot do what a page asks for."""

    area = "CONSOLE"


class LabError(StackcastError):
    """The embedded lab cannot be brought up or does not answer."""

    area = "LAB"


MAX_NAME = 64
"""Characters of a name that are compared with others, and that a message shows."""
_EXCERPT = 72


def excerpt(text: str, line: int, column: int) -> str:
    """Returns the line of a text, cut to 72 characters around the column, with a caret under it.

    ``line`` and ``column`` are 1-based. Two lines, each indented by two blanks; characters that
    do not print are shown as blanks.
    """
    lines = text.split("\n", line)
    content = lines[line - 1] if 0 < line <= len(lines) else ""
    start = max(0, min(column - 1, len(content)) - _EXCERPT // 2)
    # One character stays one column, whatever it is, so that the caret stands right.
    shown = "".join(c if c.isprintable() else " " for c in content[start : start + _EXCERPT])
    return f"  {shown}\n  {' ' * (column - 1 - start)}^"


def printable(text: str) -> str:
    r"""Returns the text for a terminal: what does not print is written as ``\x1b``, ``\u202e``.

    Names and texts of messages come from others, and escape sequences in them would be obeyed.
    """
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Returns the name most like ``name``, or None if none is near."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(names, reverse=True)}
    found = difflib.get_close_matches(name.lower()[:MAX_NAME], by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None
