"""Message format specifications: headers, fields, and those that rules may ask for.

The syntax is CAMUS Fig. 2: ``header_type`` with widths in bits, ``header`` instances, and
``@query_field`` (``_exact``, ``_range``, ``_lpm``), ``@query_counter``, ``@query_default_action``,
also written ``@pragma query_field(...)``. Ours are, before a field,

* ``@string``: ASCII, padded with blanks, or ``@string(zero)``, with zero bytes;
* ``@decimals(n)``: 1 to 18 implied decimals;
* ``@clock(n)``: the time of its header, in units of which a microsecond has n; once in a header.
  Times and windows, in the least unit that all clocks share, stay below 2^63;
* ``@time_of_day(ns)``, alone or beside a clock: the time since midnight in ns, us, ms or s, which
  rules may write as 09:30:00;
* ``@resolution(n)``, beside one of these too: a switch maps it on n bits, 1 to 16;

Headers may be written as in P4_16, too, ``header order_t { bit<32> shares; bit<64> stock; }``,
with ``typedef``, and instances as members of a ``struct``, or as above; where there are none, each
header is its own, called like its type without ``_t``. Without any header a specification is a list
of ``@query_field(car.lat, 16)``, each with its width: these are the fields, in this order.

Before an instance ``@message_type("A")``: the header is a whole message, told from others by
its first byte. A query field may repeat its width, ``@query_field(h.f, 32)``; a counter has a
window in microseconds and a number of slots; the default action may have arguments. Comments are
``//``, ``#`` and ``/* */``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from stackcast.udfs.errors import SpecificationError, nearest
from stackcast.udfs.messages.fields import MAX_VALUE_BITS, Field, Kind, Match
from stackcast.udfs.messages.formats import Counter, Header, Specification
from stackcast.udfs.messages.specification_errors import (
    FIELD_ANNOTATIONS,
    HEADER_ANNOTATIONS,
    specification_error,
    syntax_error,
)

__all__ = [
    "MAX_VALUE_BITS",
    "Counter",
    "Field",
    "Header",
    "Kind",
    "Match",
    "Specification",
    "parse_specification",
]

MAX_FIELD_BITS = 2048
"""Bits of the widest field."""
MAX_SLOTS = 1 << 20
"""Slots of one counter: registers that a switch sets aside."""

MAX_TIME = (1 << 63) - 1
"""Greatest time and window, in the unit that all clocks share: what int64 holds."""

_MAX_ARRIVAL = 1 << 52
"""Microseconds from 1970 to 2112: an event without a clock has the time at which it arrived."""

#: Words that rules read as something else where a variable would stand.
_RESERVED = frozenset(
    ("and", "or", "not", "in", "between", "fwd", "count", "sum", "avg", "min", "max")
)
_MAX_DIGITS = 15

_DECIMALS = frozenset(map(str, range(1, 19)))
_RESOLUTIONS = frozenset(map(str, range(1, 17)))
_BESIDE = ("resolution", "time_of_day")
"""Annotations that stand beside others."""
_PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_MATCHES: dict[str, Match] = {
    "query_field": "range",
    "query_field_range": "range",
    "query_field_exact": "exact",
    "query_field_lpm": "lpm",
}


def parse_specification(text: str, name: str, source: str | None = None) -> Specification:
    """Reads a specification; errors call it ``name``, and its text ``source`` if that is given.

    Raises SpecificationError SYNTAX, EMPTY, UNKNOWN_TYPE, UNKNOWN_FIELD, DUPLICATE, BAD_WIDTH,
    BAD_ANNOTATION or MESSAGE_TYPE, with ``line``, ``column`` and ``suggestion``; the message shows
    the line, with a caret.
    """
    source = source or name
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        raise syntax_error(text, source, error) from None
    return _Reader(text, name, source).read(tree)


@cache
def _parser() -> Lark:
    grammar = files(__package__).joinpath("specification.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True)


class _Reader:
    """Walks the parse tree."""

    def __init__(self, text: str, name: str, source: str) -> None:
        self._text = text
        self._name = name
        self._source = source
        self._types: dict[str, list[Field]] = {}
        # Of P4_16: headers with the annotations before them, and what typedef calls a width.
        self._p4_headers: dict[str, tuple[Token, list[Tree[Token]]]] = {}
        self._p4_types: dict[str, Token] = {}
        self._headers: dict[str, Header] = {}
        self._queries: dict[str, tuple[Match, Token, Token | None]] = {}
        self._counters: dict[str, tuple[Counter, Token]] = {}
        self._clocks: dict[tuple[str, str], Token] = {}
        self._default: str | None = None

    def read(self, tree: Tree[Token]) -> Specification:
        visit = {
            "header_type": self._header_type,
            "header": self._header,
            "p4_type": self._p4_type,
            "p4_header": self._p4_header,
            "p4_struct": self._p4_struct,
            "query": self._query,
            "default_action": self._default_action,
        }
        for node in _trees(tree):
            visit[node.data](node)
        if not self._headers:
            for name, marks in self._p4_headers.values():
                self._instance(name, name.update(value=name.removesuffix("_t")), marks)
        if not self._types:
            self._bare_queries()
        self._check_counters()
        if not self._headers:
            why = (
                "the specification defines no header: add a header_type, and a header of this type"
            )
            raise specification_error("EMPTY", self._text, self._source, (1, 1), why)
        headers = tuple(map(self._finished, self._headers.values()))
        fields = {f.qualified: f for h in headers for f in h.fields}
        for path, (match, token, width) in self._queries.items():
            if path not in fields:
                why = f"unknown field {path}"
                raise self._error("UNKNOWN_FIELD", token, why, nearest(path, fields))
            bits = fields[path].bits
            if width is not None and width.value != str(bits):
                raise self._error(
                    "BAD_WIDTH", width, f"{path} has {bits} bits, but the annotation says {width}"
                )
            if fields[path].resolution and match != "range":
                why = f"{path} has a @resolution, which requires range matching: use @query_field"
                raise self._error("BAD_ANNOTATION", token, why)
        made = Specification(
            self._name,
            headers,
            tuple(self._queries),
            tuple(counter for counter, _ in self._counters.values()),
            self._default,
        )
        self._check_times(made)
        return made

    def _header_type(self, node: Tree[Token]) -> None:
        items = [(item, _tokens(item)[0], _tokens(item)[1]) for item in _trees(node)]
        self._fields(_tokens(node)[0], items)

    def _p4_type(self, node: Tree[Token]) -> None:
        (name,), (bits,) = _tokens(node), _trees(node)
        self._p4_types[name.value] = self._p4_width(bits)

    def _p4_width(self, bits: Tree[Token]) -> Token:
        (token,) = _tokens(bits)
        if token.type == "NUMBER":
            return token
        if token.value not in self._p4_types:
            why = f"unknown type {token}: a field needs bit<n>, or a name defined by typedef"
            raise self._error("UNKNOWN_TYPE", token, why, nearest(token, self._p4_types))
        return self._p4_types[token.value]

    def _p4_header(self, node: Tree[Token]) -> None:
        (name,) = _tokens(node)
        items = []
        for item in _trees(node):
            if item.data == "p4_field":
                bits = next(part for part in _trees(item) if part.data == "p4_bits")
                items.append((item, _tokens(item)[0], self._p4_width(bits)))
        self._fields(name, items)
        marks = [item for item in _trees(node) if item.data == "annotation"]
        self._p4_headers[name.value] = name, marks

    def _p4_struct(self, node: Tree[Token]) -> None:
        for item in _trees(node):
            *marks, bits = _trees(item)
            (kind,), (name,) = _tokens(bits), _tokens(item)
            # What is no header is metadata, which no message has.
            if kind.value in self._p4_headers:
                self._instance(kind, name, marks or self._p4_headers[kind.value][1])

    def _bare_queries(self) -> None:
        """Makes headers of the query fields, each with its width, where nothing else does."""
        bare: dict[str, list[tuple[Token, Token]]] = {}
        for path, (_, token, width) in self._queries.items():
            header, _, name = path.partition(".")
            if width is None:
                why = (
                    "the specification defines no header, so the annotation needs a width: write "
                    "@query_field(car.lat, 16)"
                )
                raise self._error("UNKNOWN_FIELD", token, why)
            bare.setdefault(header, []).append((token.update(value=name), width))
        for header, fields in bare.items():
            token = fields[0][0].update(value=header)
            self._fields(token, [(None, name, width) for name, width in fields])
            self._instance(token, token, [])

    def _fields(
        self, token: Token, items: Sequence[tuple[Tree[Token] | None, Token, Token]]
    ) -> None:
        """Makes a header type of fields: each with its annotations, its name and its width."""
        if token.value in self._types:
            raise self._error("DUPLICATE", token, f"header type {token} is defined twice")
        fields: list[Field] = []
        at = 0
        for item, name, width in items:
            bits = int(width) if len(width) < 6 else 0
            if not 0 < bits <= MAX_FIELD_BITS:
                raise self._error(
                    "BAD_WIDTH",
                    width,
                    f"{name} has {width[:40]} bits, but a field must have 1 to {MAX_FIELD_BITS}",
                )
            if any(f.name == name.value for f in fields):
                raise self._error("DUPLICATE", name, f"{token} contains field {name} twice")
            made = Field("", name.value, bits, at)
            if item is not None:
                made = self._annotated(item, name, made)
            if made.clock and any(f.clock for f in fields):
                raise self._error(
                    "DUPLICATE", name, f"{token} has two clocks, but a header may have only one"
                )
            if made.clock:
                self._clocks[token.value, name.value] = name
            fields.append(made)
            at += bits
        if at % 8:
            raise self._error(
                "BAD_WIDTH", token, f"{token} has {at} bits, which is not a whole number of bytes"
            )
        self._types[token.value] = fields

    def _annotated(self, node: Tree[Token], name: Token, plain: Field) -> Field:
        annotations = list(self._annotations(_trees(node)))
        names = [a if a in _BESIDE else "kind" for a, _ in annotations]
        for number, (annotation, _) in enumerate(annotations):
            if names[number] in names[:number]:
                raise self._error(
                    "BAD_ANNOTATION",
                    annotation,
                    f"{name} has conflicting annotations: keep only one",
                )
        made = plain
        for annotation, arguments in annotations:
            made = self._annotated_with(annotation, arguments, name, made)
        if made.day_units and made.kind != "integer":
            why = "@time_of_day requires an integer field, and can be combined only with @clock"
            raise self._error("BAD_ANNOTATION", name, why)
        return made

    def _annotated_with(
        self, annotation: Token, arguments: list[Token], name: Token, plain: Field
    ) -> Field:
        values = [argument.value for argument in arguments]
        if annotation == "string" and values in ([], ["blank"], ["zero"]):
            if plain.bits % 8:
                raise self._error(
                    "BAD_WIDTH",
                    name,
                    f"the width of text field {name} is not a whole number of bytes",
                )
            return replace(plain, kind="string", padding="\0" if values == ["zero"] else " ")
        if annotation == "decimals":
            if len(values) != 1 or values[0] not in _DECIMALS:
                raise self._error(
                    "BAD_ANNOTATION", annotation, "@decimals requires a number from 1 to 18"
                )
            return replace(plain, kind="decimal", decimals=int(values[0]))
        if annotation == "clock":
            unit = values[0] if len(values) == 1 else ""
            if not (unit.isdigit() and len(unit) < 10 and int(unit)):
                raise self._error(
                    "BAD_ANNOTATION",
                    annotation,
                    "@clock requires the number of clock units in a microsecond",
                )
            if plain.bits > MAX_TIME.bit_length():
                raise self._error(
                    "BAD_WIDTH", name, f"clock {name} is wider than {MAX_TIME.bit_length()} bits"
                )
            return replace(plain, clock=int(unit))
        if annotation == "time_of_day":
            if len(values) != 1 or values[0] not in _PER_SECOND:
                why = "@time_of_day requires a unit: s, ms, us or ns"
                raise self._error("BAD_ANNOTATION", annotation, why)
            if plain.bits > MAX_VALUE_BITS:
                why = f"time {name} is wider than {MAX_VALUE_BITS} bits"
                raise self._error("BAD_WIDTH", name, why)
            return replace(plain, day_units=_PER_SECOND[values[0]])
        if annotation == "resolution":
            if len(values) != 1 or values[0] not in _RESOLUTIONS:
                raise self._error(
                    "BAD_ANNOTATION", annotation, "@resolution requires a number from 1 to 16"
                )
            if not int(values[0]) < plain.bits <= MAX_VALUE_BITS:
                raise self._error(
                    "BAD_WIDTH",
                    name,
                    f"{name} has {plain.bits} bits, but @resolution({values[0]}) requires "
                    f"{int(values[0]) + 1} to {MAX_VALUE_BITS}",
                )
            return replace(plain, resolution=int(values[0]))
        if annotation == "string":
            raise self._error(
                "BAD_ANNOTATION", annotation, "@string takes no argument, blank or zero"
            )
        raise self._misplaced(annotation, "a field", FIELD_ANNOTATIONS)

    def _header(self, node: Tree[Token]) -> None:
        marks = [item for item in _trees(node) if item.data == "annotation"]
        type_name, name = _tokens(node)
        self._instance(type_name, name, marks)

    def _instance(self, type_name: Token, name: Token, marks: Sequence[Tree[Token]]) -> None:
        if type_name.value not in self._types:
            why = f"unknown header_type {type_name}"
            raise self._error("UNKNOWN_TYPE", type_name, why, nearest(type_name, self._types))
        if name.value in self._headers:
            raise self._error("DUPLICATE", name, f"header {name} is defined twice")
        message_type: int | None = None
        for annotation, arguments in self._annotations(marks):
            if annotation != "message_type":
                raise self._misplaced(annotation, "a header", HEADER_ANNOTATIONS)
            if len(arguments) != 1:
                why = '@message_type requires one character, as in @message_type("A")'
                raise self._error("BAD_ANNOTATION", annotation, why)
            text = arguments[0].strip('"')
            if len(text) != 1 or not text.isascii():
                raise self._error(
                    "MESSAGE_TYPE", arguments[0], "a message type must be a single ASCII character"
                )
            message_type = ord(text)
            if any(h.message_type == message_type for h in self._headers.values()):
                raise self._error("DUPLICATE", arguments[0], f"message type {text} is used twice")
        fields = tuple(replace(f, header=name.value) for f in self._types[type_name.value])
        if message_type is not None and (not fields or fields[0].bits != 8):
            raise self._error(
                "MESSAGE_TYPE", name, "the first field of a message must be its type, with 8 bits"
            )
        self._headers[name.value] = Header(name.value, type_name.value, fields, message_type)

    def _query(self, node: Tree[Token]) -> None:
        what = _tokens(node)[0]
        arguments = [_tokens(item)[0] for item in _trees(node)]
        if what.value in _MATCHES and 1 <= len(arguments) <= 2 and arguments[0].type == "PATH":
            path = arguments[0].value
            if path in self._queries:
                raise self._error(
                    "DUPLICATE", arguments[0], f"{path} is annotated as a query field twice"
                )
            width = arguments[1] if len(arguments) == 2 else None
            self._queries[path] = (_MATCHES[what.value], arguments[0], width)
        elif what.value in _MATCHES and len(arguments) == 1:
            known = [f"{h.name}.{f.name}" for h in self._headers.values() for f in h.fields]
            same = [path for path in known if path.endswith(f".{arguments[0]}")]
            raise self._error(
                "BAD_ANNOTATION",
                arguments[0],
                f"@{what} requires a field together with its header, as in header.field",
                same[0] if same else None,
            )
        elif what == "query_counter" and len(arguments) in (2, 3) and arguments[0].type == "NAME":
            self._counter(*arguments)
        else:
            takes = (
                "a name, a window and a number of slots"
                if what == "query_counter"
                else "header.field"
            )
            why = f"@{what} has the wrong arguments: it takes {takes}"
            raise self._error("BAD_ANNOTATION", what, why)

    def _counter(self, name: Token, window: Token, slots: Token | None = None) -> None:
        if name.lower() in _RESERVED:
            why = f"{name} is a reserved word of the rule language: give the counter another name"
            raise self._error("BAD_ANNOTATION", name, why)
        sizes = []
        for token, thing in ((window, "the window"), (slots, "the number of slots")):
            if token is None:
                continue
            if token.type != "NUMBER" or len(token) > _MAX_DIGITS:
                why = f"{thing} must be a whole number of at most {_MAX_DIGITS} digits"
                raise self._error("BAD_ANNOTATION", token, why)
            if int(token) < 1:
                raise self._error("BAD_ANNOTATION", token, f"{thing} must be at least 1")
            sizes.append(int(token))
        counter = Counter(name.value, *sizes)
        if slots is not None and counter.slots > MAX_SLOTS:
            raise self._error(
                "BAD_ANNOTATION", slots, f"a counter can have at most {MAX_SLOTS} slots"
            )
        if counter.name in self._counters:
            raise self._error("DUPLICATE", name, f"counter {name} is declared twice")
        self._counters[counter.name] = counter, name

    def _default_action(self, node: Tree[Token]) -> None:
        what, action = _tokens(node)
        if self._default is not None:
            raise self._error("DUPLICATE", what, "the specification has two default actions")
        self._default = action.strip('"').strip()

    def _check_counters(self) -> None:
        names = {f.name for h in self._headers.values() for f in h.fields}
        for counter, token in self._counters.values():
            if counter.name in names:
                raise self._error(
                    "DUPLICATE",
                    token,
                    f"{token} is already the name of a field: give the counter another name",
                )

    def _check_times(self, made: Specification) -> None:
        units = made.clock_units
        for header in made.headers:
            clock = made.clock(header.name)
            if clock is None:
                continue
            factor = units // clock.clock
            if ((1 << clock.bits) - 1) * factor > MAX_TIME:
                raise self._error(
                    "BAD_WIDTH",
                    self._clocks[header.type_name, clock.name],
                    f"clock {clock.name} has {clock.bits} bits and is multiplied by {factor} so "
                    f"that all clocks have the same unit, which exceeds {MAX_TIME.bit_length()} "
                    "bits",
                )
            bare = any(made.clock(other.name) is None for other in made.headers)
            if bare and units * _MAX_ARRIVAL > MAX_TIME:
                raise self._error(
                    "BAD_ANNOTATION",
                    self._clocks[header.type_name, clock.name],
                    f"with {units} units per microsecond, the arrival time of events without a "
                    "clock would overflow: annotate a clock in every header, or use at most "
                    f"{MAX_TIME // _MAX_ARRIVAL} units",
                )
        for counter, token in self._counters.values():
            if counter.window * units > MAX_TIME:
                raise self._error(
                    "BAD_ANNOTATION",
                    token,
                    f"the window of {token} exceeds {MAX_TIME // units} microseconds, the maximum "
                    f"with {units} clock units per microsecond",
                )

    def _finished(self, header: Header) -> Header:
        """Returns the header with the annotations of its fields that stand elsewhere."""
        # Who says which fields are text has said that the others are not.
        says = any(f.kind == "string" for fields in self._types.values() for f in fields)
        fields = tuple(replace(f, takes_text=not says) for f in header.fields)
        return replace(
            header,
            fields=tuple(
                replace(f, query=True, match=self._queries[f.qualified][0])
                if f.qualified in self._queries
                else f
                for f in fields
            ),
        )

    def _annotations(self, items: Iterable[Tree[Token]]) -> Iterator[tuple[Token, list[Token]]]:
        for item in items:
            if item.data == "annotation":
                yield _tokens(item)[0], [_tokens(argument)[0] for argument in _trees(item)]

    def _misplaced(
        self, annotation: Token, where: str, known: tuple[str, ...]
    ) -> SpecificationError:
        why = f"@{annotation} cannot annotate {where}"
        return self._error("BAD_ANNOTATION", annotation, why, nearest(annotation, known))

    def _error(
        self, what: str, token: Token, why: str, suggestion: str | None = None
    ) -> SpecificationError:
        place = token.line or 1, token.column or 1
        return specification_error(what, self._text, self._source, place, why, suggestion)


def _tokens(node: Tree[Token]) -> list[Token]:
    return [child for child in node.children if isinstance(child, Token)]


def _trees(node: Tree[Token]) -> list[Tree[Token]]:
    return [child for child in node.children if isinstance(child, Tree)]
