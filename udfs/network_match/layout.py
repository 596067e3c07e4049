"""The layout of the generated P4 program: headers, stages, registers, and their names.

The program's text (``stackcast.udfs.p4_program``), its entries (``entries``) and the report
(``resources``) are made from this one description, so they cannot disagree. Source: CAMUS 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as member
from types import MappingProxyType

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.meaning.normal_form import MESSAGE_TYPE, is_message_type
from stackcast.udfs.filters.meaning.state import clock_of
from stackcast.udfs.messages.specification import Field, Header, Specification
from stackcast.udfs.network_match.framing import Repetition, repetition
from stackcast.udfs.switches.ports import NARROW_PORTS

PREFIX = "ingress.subscriptions"
"""The control of the program that the tables of subscriptions stand in."""

STATE_BITS = 32
PORT_BITS = 9
MASK_BITS = NARROW_PORTS
"""Ports of a switch that matches; bit p - 1 of a mask is port p."""
MAX_EXPANDED = 256
"""Values of a range that become rows of their own where a table matches exactly."""
GROUP_BITS = 16
SLOT_BITS = 32
TAG_BITS = 96
OPTIONS = "options"
"""The header of IPv4 options."""
VALUE_BITS = 64
FUNCTIONS = ("count", "sum", "avg", "min", "max", "moved")
"""Position is the number that the program's tables give."""

_KEYWORDS = frozenset(
    [
        "abstract",
        "action",
        "actions",
        "apply",
        "bit",
        "bool",
        "const",
        "control",
        "counter",
        "default",
        "else",
        "entries",
        "enum",
        "error",
        "exit",
        "extern",
        "exact",
        "false",
        "header",
        "header_union",
        "hdr",
        "if",
        "in",
        "inout",
        "int",
        "key",
        "list",
        "lpm",
        "match_kind",
        "meta",
        "metadata",
        "out",
        "package",
        "packet",
        "packet_in",
        "packet_out",
        "parser",
        "priority",
        "pragma",
        "range",
        "register",
        "return",
        "select",
        "set",
        "size",
        "state",
        "string",
        "struct",
        "switch",
        "table",
        "ternary",
        "this",
        "transition",
        "true",
        "tuple",
        "type",
        "typedef",
        "valueset",
        "varbit",
        "verify",
        "void",
        "accept",
        "reject",
        "optional",
        "selector",
        "start",
    ]
)


@dataclass(frozen=True)
class NamedAction:
    """An action that rules may name besides ``fwd``.

    ``widths``: bits of each argument. ``body``: P4 statements over ``hdr``, ``meta``,
    ``standard_metadata`` and the arguments ``a1``, ``a2``...; without one the action is counted.
    ``meta.ports`` are the ports that the event will go to, the lowest bit being port 1.
    """

    name: str
    widths: tuple[int, ...] = ()
    body: str = ""


@dataclass(frozen=True)
class ProgramOptions:
    """Options of a program that its specification leaves open.

    port: UDP port of the events; everything else is routed by its IPv4 address.
    variables: cells of state that a path through the tables may read.
    updates: cells that one event may update. calls: named actions that one event may cause.
    actions: named actions beside that of ``@query_default_action``.
    resolution: qualified name to bits of the smaller domain that its values are mapped on.
    rows: most rows of a table of entries; ``stackcast.udfs.p4_program.stages`` has those that hold
    fewer.
    cell_rows: rows of a table that reads cells of state. routes: IPv4 prefixes.
    words: terms to a port that one pass of an event matches side by side. conjunctions: tables of
    keys in a pass, each for other fields, at most ``key_fields`` of them. passes: groups of rules,
    one after the other, that an event may meet.
    messages: most of a datagram; message_bytes, datagram_bytes: most of a message, and of a
    datagram of several, with its UDP header. BMv2 takes 64 messages.
    """

    port: int = 26_400
    variables: int = 4
    updates: int = 4
    calls: int = 2
    actions: tuple[NamedAction, ...] = ()
    resolution: Mapping[str, int] = member(default_factory=lambda: MappingProxyType({}))
    rows: int = 65_536
    cell_rows: int = 8_192
    routes: int = 4_096
    words: int = 4
    conjunctions: int = 8
    key_fields: int = 4
    passes: int = 8
    messages: int = 64
    message_bytes: int = 1_500
    datagram_bytes: int = 9_000


@dataclass(frozen=True)
class Layer:
    """A header of the program. ``parts``: role of a field in the program to its P4 name."""

    name: str
    header: Header
    parts: Mapping[str, str] = member(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Stage:
    """The tables of one field, or of one lane of a wide field.

    name: P4 identifier. field: as in ``CompiledFilter.fields``. value: P4 expression.
    header: P4 expression of the header that must be there; empty for the message type.
    kinds: tables in the order in which they are asked: exact, then range, or lpm.
    optional: True if an event may lack the field. code_bits: width of the codes that stand for
    values, 0 where the values themselves are matched.
    """

    name: str
    field: str
    bits: int
    value: str
    header: str
    kinds: tuple[str, ...]
    optional: bool = False
    code_bits: int = 0

    @property
    def key_bits(self) -> int:
        """The bits that the exact and range tables match beside the state."""
        return self.code_bits or self.bits

    def table(self, kind: str) -> str:
        """Returns the full name of a table: one of ``kinds``, ``map`` or ``otherwise``."""
        return f"{PREFIX}.{self.name}.{kind}"

    @property
    def set_state(self) -> str:
        return f"{PREFIX}.{self.name}.set_state"

    @property
    def require(self) -> str:
        return f"{PREFIX}.{self.name}.require"


def key_table(number: int, name: str) -> str:
    """Returns the full name of a table, or action, of conjunctions; ``number``: from 1 on."""
    return f"{PREFIX}.conjunctions_{number}.{name}"


def take(stage: Stage, place: int) -> str:
    """Returns the name of the action that takes a field into a key, as its value ``place``."""
    return f"take_{stage.name}_{place}"


@dataclass(frozen=True)
class Block:
    """The registers of one ``@query_counter``, for cells with its window and for changes."""

    number: int
    name: str
    counter: str
    microseconds: int
    slots: int


@dataclass(frozen=True)
class Operand:
    """A field whose values update state, or are compared with it."""

    action: str
    field: str
    value: str
    header: str


@dataclass(frozen=True)
class ProgramLayout:
    """Describes the whole program, in the order in which a packet meets it.

    other_types: first byte and length of the messages of which the program reads no field.
    repetition: the framing of several messages a datagram; None for formats of one event a packet.
    """

    name: str
    options: ProgramOptions
    stack: tuple[Layer, ...]
    framing: tuple[Layer, ...]
    messages: tuple[Layer, ...]
    other_types: tuple[tuple[int, int], ...]
    stages: tuple[Stage, ...]
    blocks: tuple[Block, ...]
    operands: tuple[Operand, ...]
    actions: tuple[NamedAction, ...]
    default: tuple[str, tuple[str, ...]]
    clock_units: int
    clocks: tuple[tuple[str, str], ...]
    start_bits: int
    repetition: Repetition | None = None

    @property
    def typed(self) -> bool:
        """True if events are told by their first byte."""
        return bool(self.messages or self.other_types)

    @property
    def own(self) -> bool:
        """True if the format has headers behind UDP."""
        return bool(self.framing or self.typed)

    @property
    def always_clocked(self) -> bool:
        """True if each event has a clock of its own, in its message."""
        clocked = {header for header, _ in self.clocks}
        messages = {f"hdr.{layer.name}" for layer in self.messages}
        return self.typed and not self.other_types and clocked == messages

    @property
    def takes_time_along(self) -> bool:
        """True if a packet that comes in again must know the time of its arrival."""
        timed = bool(self.blocks) and not self.always_clocked
        return self.repetition is not None and timed

    def place(self, role: str, part: str) -> str:
        """Returns the P4 expression of a part of a standard header."""
        layer = self.layer(role)
        return f"hdr.{layer.name}.{layer.parts[part]}"

    def layer(self, role: str) -> Layer:
        """Returns the standard header of this role; KeyError if the program has none."""
        for layer in self.stack:
            if layer.parts.get("role") == role:
                return layer
        raise KeyError(role)


def program_layout(
    specification: Specification, options: ProgramOptions | None = None
) -> ProgramLayout:
    """Describes the program of a specification.

    Raises FilterError NO_TABLE (a resolution for a field that is not queried or not
    matched by ranges) or BAD_ACTION (``@query_default_action``).
    """
    return _Description(specification, options or ProgramOptions()).layout()


def parse_call(text: str) -> tuple[str, tuple[str, ...]]:
    """Parses ``answerDNS(10.0.0.97)`` as name and arguments; a bare name has none.

    Raises FilterError BAD_ACTION.
    """
    found = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*", text)
    if found is None:
        raise FilterError("BAD_ACTION", f"{text!r} is not an action: write name(argument, ...)")
    arguments = found.group(2) or ""
    return found.group(1), tuple(a.strip() for a in arguments.split(",") if a.strip())


# Offset and width of the fields that the program itself needs, by role.
_ROLES: Mapping[str, tuple[int, Mapping[str, tuple[int, int]]]] = {
    "ethernet": (112, {"dst": (0, 48), "src": (48, 48), "type": (96, 16)}),
    "ipv4": (
        160,
        {
            "length": (16, 16),
            "ttl": (64, 8),
            "protocol": (72, 8),
            "checksum": (80, 16),
            "src": (96, 32),
            "dst": (128, 32),
        },
    ),
    "ipv6": (320, {"next": (48, 8), "src": (64, 128), "dst": (192, 128)}),
    "udp": (64, {"src": (0, 16), "dst": (16, 16), "length": (32, 16), "checksum": (48, 16)}),
}
_NAMES = {"ethernet": "ethernet", "ip": "ipv4", "ipv4": "ipv4", "ip6": "ipv6", "ipv6": "ipv6"}
_NAMES["udp"] = "udp"
_OWN: Mapping[str, str] = {
    "ethernet": "dst:48 src:48 type:16",
    "ipv4": "version:4 ihl:4 tos:8 length:16 id:16 flags:3 offset:13 ttl:8 protocol:8 checksum:16 "
    "src:32 dst:32",
    "udp": "src_port:16 dst_port:16 length:16 checksum:16",
}


_OWN_NAMES = frozenset([OPTIONS, "wanted", "wanted_now", "examined", "rest", "blocks"])
"""Headers of the program that are in no specification."""


def _own_header(role: str) -> Header:
    fields, at = [], 0
    for item in _OWN[role].split():
        name, bits = item.split(":")
        fields.append(Field(role, name, int(bits), at))
        at += int(bits)
    return Header(role, f"{role}_t", tuple(fields))


def p4_name(text: str) -> str:
    """Returns a field's or header's name as the program has it."""
    return f"{text}_" if text in _KEYWORDS else text


class _Description:
    def __init__(self, specification: Specification, options: ProgramOptions) -> None:
        self._specification = specification
        self._options = options
        self._taken: set[str] = set()
        fields = [f for f in specification.order() if f.query or not specification.queries]
        types = {h.name: h.message_type for h in specification.headers}
        self._fields = [f for f in fields if not is_message_type(f, types[f.header])]

    def layout(self) -> ProgramLayout:
        specification = self._specification
        standard = {
            _NAMES[h.name]: h
            for h in specification.headers
            if h.name in _NAMES and _fits(h, _NAMES[h.name])
        }
        stack = [
            _standard_layer(role, standard.get(role) or _own_header(role))
            for role in _ROLES
            if role in standard or role in _OWN
        ]
        self._taken = {layer.name for layer in stack} | _OWN_NAMES
        read = {f.header for f in self._fields}
        if specification.counters:
            read |= {f.header for f in specification.fields.values() if f.clock}
        framing, messages, others = [], [], []
        for header in specification.headers:
            if header in standard.values():
                continue
            if header.message_type is None:
                framing.append(Layer(self._unique(p4_name(header.name)), header))
            elif header.name in read:
                messages.append(Layer(self._unique(p4_name(header.name)), header))
            else:
                others.append((header.message_type, header.length))
        self._layers = {layer.header.name: layer for layer in [*stack, *framing, *messages]}
        typed = bool(messages or others)
        # An event of types has all framing; else one that ends early lacks the last headers.
        always = {h.name for h in specification.headers if h.message_type is not None}
        always |= {layer.header.name for layer in (framing if typed else framing[:1])}
        always |= {h.name for role, h in standard.items() if role == "ethernet"}
        if framing or messages:
            always |= {h.name for role, h in standard.items() if role == "udp"}
        if "ipv6" not in standard and "ipv4" in standard:
            always.add(standard["ipv4"].name)
        stages = self._stages(typed, always)
        units, clocks, start_bits = self._clock(typed)
        name, arguments = parse_call(specification.default_action or "drop")
        if name == "fwd" and not (len(arguments) == 1 and _is_port(arguments[0])):
            raise FilterError(
                "BAD_ACTION",
                f"the default action fwd requires a single port number from 1 to {MASK_BITS}",
            )
        actions = {action.name: action for action in self._options.actions}
        if name not in ("drop", "fwd") and name not in actions:
            actions[name] = NamedAction(name, tuple(_width(a) for a in arguments))
        if name in actions and len(actions[name].widths) != len(arguments):
            raise FilterError(
                "BAD_ACTION",
                f"the default action {name} takes {len(actions[name].widths)} arguments, but "
                f"{len(arguments)} are given",
                action=name,
            )
        return ProgramLayout(
            name=specification.name,
            options=self._options,
            stack=tuple(stack),
            framing=tuple(framing),
            messages=tuple(messages),
            other_types=tuple(others),
            stages=stages,
            blocks=tuple(
                Block(
                    number,
                    self._unique(p4_name(counter.name)),
                    counter.name,
                    counter.window,
                    max(1, counter.slots),
                )
                for number, counter in enumerate(specification.counters)
            ),
            operands=tuple(
                Operand(
                    f"load_with_{stage.name}",
                    f.qualified,
                    stage.value,
                    stage.header,
                )
                for f in self._fields
                if f.bits <= VALUE_BITS
                for stage in stages
                if stage.field == f.qualified
            ),
            actions=tuple(actions.values()),
            default=(name, arguments),
            clock_units=units,
            clocks=clocks,
            start_bits=start_bits,
            # The length of IPv6 would have to be fixed too.
            repetition=None
            if "ipv6" in standard
            else repetition([layer.header for layer in framing], typed),
        )

    def _stages(self, typed: bool, always: set[str]) -> tuple[Stage, ...]:
        stages = []
        if typed:
            name = self._unique(MESSAGE_TYPE)
            stages.append(Stage(name, MESSAGE_TYPE, 8, "meta.message_type", "", ("exact",)))
        resolution = {f.qualified: f.resolution for f in self._fields if f.resolution}
        resolution |= dict(self._options.resolution)
        for qualified in resolution:
            if not any(f.qualified == qualified and f.match == "range" for f in self._fields):
                raise FilterError(
                    "NO_TABLE",
                    f"{qualified} cannot have a resolution, because the program does not match "
                    "ranges of it; annotate it with @query_field",
                    field=qualified,
                )
        for one in self._fields:
            layer = self._layers[one.header]
            for lane in one.lanes():
                base = re.sub(r"\W+", "_", lane.name).strip("_")
                value = p4_name(one.name) + lane.name[len(one.name) :]
                bits = resolution.get(one.qualified, 0)
                kinds = {"exact": ("exact",), "lpm": ("lpm",)}.get(one.match, ("exact", "range"))
                stages.append(
                    Stage(
                        self._unique(f"{layer.name}_{base}"),
                        lane.qualified,
                        lane.bits,
                        f"hdr.{layer.name}.{value}",
                        f"hdr.{layer.name}",
                        kinds,
                        one.header not in always,
                        bits if bits < lane.bits else 0,
                    )
                )
        return tuple(stages)

    def _clock(self, typed: bool) -> tuple[int, tuple[tuple[str, str], ...], int]:
        """Returns units a microsecond, (header, time in units) by precedence, bits of a start."""
        clock = clock_of(self._specification)
        fields = [f for f in clock.fields if f.header in self._layers]
        clocks = []
        for f in fields:
            layer = self._layers[f.header].name
            times = f" * {clock.units // f.clock}" if f.clock < clock.units else ""
            clocks.append((f"hdr.{layer}", f"(bit<64>) hdr.{layer}.{p4_name(f.name)}{times}"))
        timed = {f.header for f in fields if f.clock == clock.units and f.bits <= 48}
        headers = [h for h in self._specification.headers if h.message_type is not None]
        # A time that is multiplied does not fit the 48 bits of the switch's own.
        narrow = clock.units == 1 or (typed and all(h.name in timed for h in headers))
        narrow = narrow and all(f.bits <= 48 for f in fields)
        return clock.units, tuple(clocks), 48 if narrow else 64

    def _unique(self, name: str) -> str:
        candidate, number = name, 2
        while candidate in self._taken:
            candidate, number = f"{name}_{number}", number + 1
        self._taken.add(candidate)
        return candidate


def _standard_layer(role: str, header: Header) -> Layer:
    at = {(f.bit_offset, f.bits): p4_name(f.name) for f in header.fields}
    parts = {part: at[place] for part, place in _ROLES[role][1].items()}
    return Layer(p4_name(header.name), header, MappingProxyType(parts | {"role": role}))


def _fits(header: Header, role: str) -> bool:
    bits, parts = _ROLES[role]
    places = {(f.bit_offset, f.bits) for f in header.fields}
    return (
        header.message_type is None and header.length * 8 == bits and places >= set(parts.values())
    )


def _is_port(argument: str) -> bool:
    return argument.isdecimal() and len(argument) < 4 and 1 <= int(argument) <= MASK_BITS


def _width(argument: str) -> int:
    if argument.count(":") == 5:
        return 48
    return 128 if ":" in argument else 32
