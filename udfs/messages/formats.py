"""A message format: headers, their fields, counters of state, and the order of the tables."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import lcm

from stackcast.udfs.errors import SpecificationError
from stackcast.udfs.messages.fields import Field


@dataclass(frozen=True)
class Header:
    """One header instance. ``message_type`` is the first byte of a message, None for framing."""

    name: str
    type_name: str
    fields: tuple[Field, ...]
    message_type: int | None = None

    @property
    def length(self) -> int:
        """The bytes of the header."""
        return sum(f.bits for f in self.fields) // 8


@dataclass(frozen=True)
class Counter:
    """A state variable (@query_counter): window in microseconds, number of slots.

    A slot is room for one cell: the variable of one owner, or a macro with this window. ``owner``
    is the subscriber whose variable it is; rules without subscribers have one owner, ``""``.
    """

    name: str
    window: int
    slots: int = 1
    owner: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Specification:
    """One message format. Fields are found by `field`; tables stand in the order of `order`.

    ``default_action`` is the text of @query_default_action: a name, maybe with arguments.
    ``optional``: an event may lack any header, even the only one. ``hints``: by name of something
    that is not a field, why it is not, and what to do.
    """

    name: str
    headers: tuple[Header, ...]
    queries: tuple[str, ...] = ()
    counters: tuple[Counter, ...] = ()
    default_action: str | None = None
    optional: bool = False
    hints: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False, hash=False)
    _cache: dict[str, Field] = field(default_factory=dict, repr=False, compare=False, hash=False)

    @cached_property
    def fields(self) -> dict[str, Field]:
        """All fields by qualified name."""
        return {f.qualified: f for h in self.headers for f in h.fields}

    @cached_property
    def _typed(self) -> frozenset[str]:
        return frozenset(h.name for h in self.headers if h.message_type is not None)

    @cached_property
    def _in_messages(self) -> dict[str, tuple[Field, ...]]:
        found: dict[str, tuple[Field, ...]] = {}
        for each in (f for h in self.headers if h.message_type is not None for f in h.fields):
            found[each.name] = (*found.get(each.name, ()), each)
        return found

    @cached_property
    def _of_type(self) -> dict[int, Header]:
        return {h.message_type: h for h in self.headers if h.message_type is not None}

    def field(self, name: str) -> Field:
        """Returns the field of a name, qualified or short.

        A short name must be unique among all fields, or else among the query fields.
        Raises SpecificationError UNKNOWN_FIELD or AMBIGUOUS_FIELD, with ``suggestions``.
        """
        if name in self._cache:
            return self._cache[name]
        found = self.fields.get(name) or self._by_short_name(name)
        self._cache[name] = found
        return found

    def hint(self, name: str) -> str | None:
        """Returns the hint for a name that is not a field, or for what it names a part of."""
        while name not in self.hints and "." in name:
            name = name.rpartition(".")[0]
        return self.hints.get(name)

    def in_messages(self, name: str) -> tuple[Field, ...]:
        """Returns the field of this short name of each message type that has one, as declared."""
        return self._in_messages.get(name, ())

    def header_of_type(self, byte: int) -> Header | None:
        """Returns the message that begins with this byte."""
        return self._of_type.get(byte)

    @cached_property
    def words(self) -> frozenset[str]:
        """Names of fields, qualified and short, and of variables."""
        short = (f.name for f in self.fields.values())
        return frozenset((*self.fields, *short, *(c.name for c in self.counters)))

    def counter(self, name: str) -> Counter | None:
        """Returns the state variable of a name."""
        return next((c for c in self.counters if c.name == name), None)

    def clock(self, header: str) -> Field | None:
        """Returns the field of a header that tells the time (@clock)."""
        return self._clocks.get(header)

    @cached_property
    def clock_units(self) -> int:
        """Parts of a microsecond in which all times are whole: 1 without a clock."""
        return lcm(*(f.clock for f in self._clocks.values()))

    def is_optional(self, field: Field) -> bool:
        """Returns True if an event that reaches the field's table may lack it.

        Not so where its header has a message type, as the type is looked at first, and not in the
        only header of a specification, without which there is no event.
        """
        return field.header not in self._typed and (self.optional or len(self.headers) > 1)

    @cached_property
    def _clocks(self) -> dict[str, Field]:
        return {f.header: f for f in self.fields.values() if f.clock}

    def order(self) -> tuple[Field, ...]:
        """Returns the order of the tables: query fields as annotated, then others as declared."""
        first = tuple(self.fields[name] for name in self.queries)
        return first + tuple(f for f in self.fields.values() if not f.query)

    @cached_property
    def framing(self) -> frozenset[str]:
        """Names of headers that frame messages: those without a message type, next to headers with
        one. Rules on messages cannot ask for their fields."""
        untyped = frozenset(h.name for h in self.headers if h.message_type is None)
        return untyped if len(untyped) < len(self.headers) else frozenset()

    @cached_property
    def rule_fields(self) -> tuple[Field, ...]:
        """Fields that rules on messages may ask for, in the order of the tables."""
        return tuple(f for f in self.order() if f.header not in self.framing)

    def _by_short_name(self, name: str) -> Field:
        same = [f for f in self.fields.values() if f.name == name]
        asked = [f for f in same if f.query]
        if len(same) == 1 or len(asked) == 1:
            return (asked or same)[0]
        if same:
            names = [f.qualified for f in same]
            raise SpecificationError(
                "AMBIGUOUS_FIELD",
                f"several headers have a field {name!r}: write one of {', '.join(names)}",
                suggestions=names,
            )
        known = list(self.fields) + [f.name for f in self.fields.values()]
        near = difflib.get_close_matches(name, dict.fromkeys(known), n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise SpecificationError(
            "UNKNOWN_FIELD", f"format {self.name} has no field {name!r}{hint}", suggestions=near
        )
