"""A BMv2 JSON compiled into Python functions."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Mapping
from functools import lru_cache
from itertools import compress
from typing import Any

from stackcast.switch.bmv2 import hashes
from stackcast.switch.bmv2.calculations import Calculations
from stackcast.switch.bmv2.deparsing import Deparsing
from stackcast.switch.bmv2.expressions import Expressions
from stackcast.switch.bmv2.forms import TableForm, action_ids
from stackcast.switch.bmv2.layout import ANY_LENGTH, INTRINSIC, Layout
from stackcast.switch.bmv2.packet import Packet
from stackcast.switch.bmv2.parsing import Parsing
from stackcast.switch.bmv2.pipelines import Pipelines
from stackcast.switch.bmv2.primitives import Primitives
from stackcast.switch.bmv2.source import Coverage, PythonSource, reading, refuse
from stackcast.switch.bmv2.state import SwitchState

__all__ = ["INTRINSIC", "Program", "load_program"]

# The format that is understood; later minor versions only add to it, and old JSON says none.
_MAJOR = 2


class Program:
    """A compiled program; see `load_program`. Tables and registers are in a `SwitchState`.

    ``source``: the Python that was made of it. ``slots``: index in `Packet.fields` of each field
    that the switch itself reads or writes (``standard_metadata.egress_spec``,
    ``intrinsic_metadata.mcast_grp``, ...; all of `INTRINSIC` are there, those that the program
    lacks at slots of their own that nobody else uses). ``field_lists``: slots by number of a field
    list. ``learn_lists``: slots by number of a digest. ``tables``: what is known of each, by name.
    ``covered``: with ``coverage=True`` the keys of ``coverage_points`` that ran.
    """

    def __init__(self, config: Mapping[str, Any], *, coverage: bool) -> None:
        layout = Layout(config)
        self._layout = layout
        self.slots: Mapping[str, int] = layout.slots
        self.metadata_slots = layout.metadata
        self.field_lists = _slot_lists(layout, config.get("field_lists", ()))
        self.learn_lists = _slot_lists(layout, config.get("learn_lists", ()))
        self._write(config, layout, coverage)
        self._port = layout.slots["standard_metadata.ingress_port"]
        self._length = layout.slots["standard_metadata.packet_length"]

    def _write(self, config: Mapping[str, Any], layout: Layout, wanted: bool) -> None:
        if config.get("extern_instances"):
            name = config["extern_instances"][0].get("name")
            raise refuse(f"extern {name!r}", "extern objects are not supported")
        source = PythonSource()
        functions: list[list[str]] = []
        coverage = Coverage(source, wanted)
        registers = config.get("register_arrays", ())
        names = {each["name"]: f"register{number}" for number, each in enumerate(registers)}
        expressions = Expressions(layout, source, names)
        calculations = Calculations(config, layout, source, functions)
        primitives = Primitives(config, layout, source, expressions, calculations)
        parsing = Parsing(config, layout, source, primitives, coverage)
        pipelines = Pipelines(config, layout, source, primitives, coverage, functions)
        deparsing = Deparsing(config, layout, source, primitives)
        # The length that headers add up to is seen in egress alone.
        primitives.tracks_length = _mentions_length(config)
        for name in ("ingress", "egress"):
            pipelines.write(name)
        with source.aside() as lines:
            with source.block("def parse(P):"):
                parsing.write()
                deparsing.verify()
            with source.block("def deparse(P):"):
                deparsing.write()
        functions.append(lines)
        self.tables: Mapping[str, TableForm] = pipelines.tables
        self.coverage_points = coverage.points
        self.covered: set[int] = set()
        self._arrays(config, parsing)
        with source.block("def bind(S):"):
            self._bindings(source, primitives, parsing)
            for part in functions:
                for text in part:
                    source.line(text[4:] if text.startswith("    ") else text)
            source.line("return parse, ingress, egress, deparse")
        self.source = source.text()
        self._bind = self._compiled(source)

    def _arrays(self, config: Mapping[str, Any], parsing: Parsing) -> None:
        self._counters = {
            each["name"]: each["size"]
            for each in config.get("counter_arrays", ())
            if not each.get("is_direct")
        }
        self._registers = {
            each["name"]: (each["size"], each["bitwidth"])
            for each in config.get("register_arrays", ())
        }
        self._meters = {
            each["name"]: (each.get("size") or 0, each.get("type") == "bytes")
            for each in config.get("meter_arrays", ())
            if not each.get("is_direct")
        }
        self._vsets = parsing.vsets
        self._shadows = parsing.used_vsets

    def _bindings(self, source: PythonSource, primitives: Primitives, parsing: Parsing) -> None:
        line = source.line
        line("defaults = S.defaults")
        for name, form in self.tables.items():
            line(f"get{form.number} = S.tables[{name!r}].get")
            if form.ranked:
                line(f"find{form.number} = S.tables[{name!r}].find")
        for name, (local, _) in primitives.counters.items():
            if name in self._counters:
                line(f"{local} = S.counters[{name!r}]")
        for name, (local, _) in primitives.registers.items():
            line(f"{local} = S.registers[{name!r}]")
        for name, (local, _) in primitives.meters.items():
            if name in self._meters:
                line(f"{local} = S.meters[{name!r}]")
        for local in parsing.used_vsets:
            line(f"{local} = S.vsets[{local!r}]")

    def _compiled(self, source: PythonSource) -> Any:
        names: dict[str, Any] = {
            "compress": compress,
            "covered": self.covered.add,
            "randint": random.randint,
            **{name: getattr(hashes, name) for name in _HELPERS},
            **source.constants,
        }
        exec(compile(self.source, "<compiled P4 program>", "exec"), names)
        return names["bind"]

    def packet(self, data: bytes, ingress_port: int) -> Packet:
        """Returns a packet as it comes in: all metadata 0 but ingress port and packet length."""
        fields = self._layout.template[:]
        fields[self._port] = ingress_port
        fields[self._length] = len(data)
        return Packet(data, ingress_port, fields)

    def reset_metadata(self, packet: Packet) -> None:
        """Set all metadata to 0, as for a copy that begins anew."""
        fields = packet.fields
        for slot in self.metadata_slots:
            fields[slot] = 0

    def keep(self, source: Packet, target: Packet, field_list: int) -> None:
        """Copy the fields of a field list from packet to packet; an unknown list is empty."""
        to, of = target.fields, source.fields
        for slot in self.field_lists.get(field_list, ()):
            to[slot] = of[slot]

    def new_state(self) -> SwitchState:
        """Empty tables (but const entries), registers and counters at 0."""
        state = SwitchState(
            self.tables, self._counters, self._registers, self._meters, self._vsets, self._shadows
        )
        state.parse, state.ingress, state.egress, state.deparse = self._bind(state)
        return state

    # The same as methods of State (state.parse(packet), ...), which save a call.
    def parse(self, packet: Packet, state: SwitchState) -> None:
        """Fill the fields from ``packet.data``; sets ``parser_error`` and ``checksum_error``."""
        state.parse(packet)

    def ingress(self, packet: Packet, state: SwitchState) -> None:
        """Run the ingress pipeline."""
        state.ingress(packet)

    def egress(self, packet: Packet, state: SwitchState) -> None:
        """Run the egress pipeline."""
        state.egress(packet)

    def deparse(self, packet: Packet, state: SwitchState) -> bytes:
        """Update checksums; the frame as it leaves: valid headers, then the payload."""
        return state.deparse(packet)

    def field_slot(self, header: str, field: str) -> int:
        """Index in `Packet.fields` of a field by its names in the JSON."""
        return self._layout.field(header, field)[0]


_HELPERS = ("clamp", "shift_left", "shift_right", "quotient", "remainder", "push", "pop")


def _slot_lists(layout: Layout, lists: Any) -> dict[int, tuple[int, ...]]:
    found = {}
    for each in lists:
        slots: list[int] = []
        for element in each["elements"]:
            if element["type"] != "field":
                raise refuse(
                    f"field list {each.get('name')!r}",
                    f"elements of type {element['type']} are not supported",
                )
            slot, form = layout.field(*element["value"])
            slots += [slot, slot + 1] if form.variable else [slot]
        found[each["id"]] = tuple(slots)
    return found


def _mentions_length(config: Mapping[str, Any]) -> bool:
    """True if ``packet_length`` can be read after headers came or went."""
    name = ("standard_metadata", "packet_length")
    aliases = {alias: tuple(target) for alias, target in config.get("field_aliases", ())}
    wanted = [*aliases.get(".".join(name), name)]

    def mentioned(node: Any) -> bool:
        if isinstance(node, dict):
            return any(mentioned(each) for key, each in node.items() if key != "source_info")
        if isinstance(node, list):
            return node == wanted or any(mentioned(each) for each in node)
        return False

    pipelines = {each["name"]: each for each in config["pipelines"]}
    egress = pipelines.get("egress", {})
    tables = egress.get("tables", ())
    ids = {number for table in tables for number in action_ids(table, config["actions"])}
    actions = [each for each in config["actions"] if each["id"] in ids]
    return mentioned([egress, actions, config.get("checksums"), config.get("calculations")])


_NUMBERS = ("id", "size", "bitwidth", "action_id", "max_length", "compressed_bitwidth", "priority")
# Cells of a register array or counter; what is larger is a slip, or meant to fill the memory.
_MOST_CELLS = 1 << 26
_MOST_BITS = 1 << 16


def _no_float(text: str) -> None:
    raise ValueError(f"it contains {text}, but only integers are supported")


def _check_numbers(config: Any) -> None:
    """Refuses a JSON in which anything is no number that goes into the Python source as one."""
    todo = [config]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            for key in _NUMBERS:
                number = each.get(key, 0)
                if number is not None and type(number) is not int:
                    raise refuse(f"{key} {number!r}", "it is not an integer")
                if key == "size" and number is not None and number > _MOST_CELLS:
                    raise refuse(f"{each.get('name')!r}", f"it has more than {_MOST_CELLS} cells")
            todo += each.values()
        elif isinstance(each, list):
            todo += each


def _check_widths(config: Any) -> None:
    """Fields have bits, and headers whole bytes: else values would not fit the frame."""
    bits = {}
    for each in config["header_types"]:
        name = each["name"]
        bits[name] = 0
        for member, width, *_ in each["fields"]:
            if width == ANY_LENGTH:
                continue
            if type(width) is not int or not 0 < width <= _MOST_BITS:
                raise refuse(f"header type {name!r}", f"field {member!r} has {width!r} bits")
            bits[name] += width
    for header in config["headers"]:
        if not header.get("metadata") and bits[header["header_type"]] % 8:
            raise refuse(f"header {header['name']!r}", "its fields do not add up to whole bytes")


def load_program(config: bytes, *, coverage: bool = False) -> Program:
    """Compile a BMv2 JSON. Raises SwitchError ``WRONG_PROGRAM`` naming the part that cannot run."""
    try:
        parsed = json.loads(config, parse_float=_no_float, parse_constant=_no_float)
    except (ValueError, RecursionError) as error:
        raise refuse("BMv2 JSON", f"it is not valid JSON ({error})") from None
    if not isinstance(parsed, dict):
        raise refuse("BMv2 JSON", "it is not an object")
    with reading("BMv2 JSON: __meta__"):
        version = list((parsed.get("__meta__") or {}).get("version") or [_MAJOR])
    if version[0] != _MAJOR:
        raise refuse("BMv2 JSON", f"it has format {version} instead of {_MAJOR}.x")
    _check_numbers(parsed)
    with reading("BMv2 JSON"):
        _check_widths(parsed)
        program = Program(parsed, coverage=coverage)
    # Entries of the program itself are put into tables once it runs; nothing may be wrong then.
    for name, form in program.tables.items():
        with reading(f"table {name!r}"):
            table = form.empty()
            for match, priority, row in form.constant_rows():
                table.insert(match, priority, row)
    return program


_lock = threading.Lock()
# As many as a change of programs needs at once, and some; a program may take megabytes.
_load = lru_cache(maxsize=4)(load_program)


def shared_program(config: bytes) -> Program:
    """As `load_program`, but the same bytes give the same object. May be called by any thread.

    What a switch holds is not in it, so switches can run it at the same time.
    """
    # Callers that come together, as refreshed switches do, wait for the first one's.
    with _lock:
        return _load(config)
