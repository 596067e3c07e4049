"""The slots of a program's headers, metadata, stacks and unions in the list of a packet's fields.

Every field is one slot. A field of variable length is two: its value, then its length in bits. The
last slot of a header says whether it is valid (1 or 0). The elements of a stack follow one another,
so that element i of stack s has its slots at ``s.base + i * s.stride``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stackcast.switch.bmv2.source import refuse

INTRINSIC = (
    "standard_metadata.ingress_port",
    "standard_metadata.packet_length",
    "standard_metadata.instance_type",
    "standard_metadata.egress_spec",
    "standard_metadata.egress_port",
    "standard_metadata.parser_error",
    "standard_metadata.checksum_error",
    "intrinsic_metadata.ingress_global_timestamp",
    "intrinsic_metadata.egress_global_timestamp",
    "intrinsic_metadata.mcast_grp",
    "intrinsic_metadata.egress_rid",
    "intrinsic_metadata.priority",
    "queueing_metadata.enq_timestamp",
    "queueing_metadata.enq_qdepth",
    "queueing_metadata.deq_timedelta",
    "queueing_metadata.deq_qdepth",
    "queueing_metadata.qid",
)
"""Fields that simple_switch itself reads or writes, by the names that it gives them."""

VOLATILE = tuple(
    name for name in INTRINSIC if "timestamp" in name or "_q" in name or "_time" in name
)
"""Those that differ from frame to frame, whatever is in the frame."""

ANY_LENGTH = "*"


@dataclass(frozen=True)
class Field:
    """A field of a header type: the offset of its slot, its width in bits (0: variable)."""

    name: str
    offset: int
    width: int
    signed: bool = False
    saturating: bool = False
    variable: bool = False


@dataclass(frozen=True)
class HeaderType:
    """``size``: slots, the last of which is the validity; ``bits``: of all but a variable field;
    ``max_bytes``: of the whole header, 0 if nothing is said."""

    name: str
    fields: tuple[Field, ...]
    size: int
    bits: int
    max_bytes: int
    by_name: Mapping[str, Field] = field(compare=False)

    @property
    def valid(self) -> int:
        return self.size - 1

    @property
    def variable(self) -> Field | None:
        return next((each for each in self.fields if each.variable), None)


@dataclass(eq=False)
class Header:
    """An instance; ``siblings`` are the other members of its union."""

    name: str
    type: HeaderType
    base: int
    metadata: bool
    siblings: list[Header] = field(default_factory=list)

    @property
    def valid(self) -> int:
        return self.base + self.type.valid


@dataclass(eq=False)
class Union:
    name: str
    members: dict[str, Header]

    @property
    def base(self) -> int:
        return min(header.base for header in self.members.values())

    @property
    def size(self) -> int:
        return sum(header.type.size for header in self.members.values())


@dataclass(eq=False)
class Stack:
    """A stack of headers, or of unions; ``next`` is the slot of the number of elements in use."""

    name: str
    elements: list[Header] | list[Union]
    base: int
    stride: int
    next: int

    @property
    def size(self) -> int:
        return len(self.elements)

    @property
    def headers(self) -> list[Header]:
        return [
            header
            for element in self.elements
            for header in (
                [element] if isinstance(element, Header) else list(element.members.values())
            )
        ]


class Layout:
    """All that a program has fields for; ``template`` is the field list of a fresh packet."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.types = {each["name"]: _header_type(each) for each in config["header_types"]}
        self.headers: dict[str, Header] = {}
        self.stacks: dict[str, Stack] = {}
        self.unions: dict[str, Union] = {}
        self.union_stacks: dict[str, Stack] = {}
        self.template: list[int] = []
        self._instances = {each["id"]: each for each in config["headers"]}
        for each in config.get("header_stacks", ()):
            self._add_stack(each)
        self._add_unions(config)
        for each in config["headers"]:
            if each["name"] not in self.headers:
                self._add_header(each)
        self.aliases = {alias: tuple(target) for alias, target in config.get("field_aliases", ())}
        self.slots = {name: self._intrinsic(name) for name in INTRINSIC}
        self.volatile = {self.slots[name] for name in VOLATILE}
        self.metadata = tuple(
            slot
            for header in self.headers.values()
            if header.metadata
            for slot in range(header.base, header.valid)
        )

    def header(self, name: str) -> Header:
        try:
            return self.headers[name]
        except KeyError:
            raise refuse(f"header {name!r}", "it is used but not declared") from None

    def field(self, header: str, name: str) -> tuple[int, Field]:
        """Slot and form of a field; ``$valid$`` is one too."""
        owner = self.header(header)
        if name == "$valid$":
            return owner.valid, Field(name, owner.type.valid, 1)
        form = owner.type.by_name.get(name)
        if form is None:
            raise refuse(f"field {header}.{name}", "it is used but not declared")
        return owner.base + form.offset, form

    def _room(self, slots: int) -> int:
        base = len(self.template)
        self.template.extend([0] * slots)
        return base

    def _add_header(self, instance: Mapping[str, Any]) -> Header:
        name = instance["name"]
        type_ = self.types.get(instance["header_type"])
        if type_ is None:
            raise refuse(f"header {name!r}", f"unknown type {instance['header_type']!r}")
        header = Header(name, type_, self._room(type_.size), bool(instance.get("metadata")))
        # Metadata is always there.
        self.template[header.valid] = int(header.metadata)
        self.headers[name] = header
        return header

    def _add_stack(self, each: Mapping[str, Any]) -> None:
        headers = [self._add_header(self._instances[number]) for number in each["header_ids"]]
        self.stacks[each["name"]] = Stack(
            each["name"], headers, headers[0].base, headers[0].type.size, self._room(1)
        )

    def _add_unions(self, config: Mapping[str, Any]) -> None:
        types = {each["name"]: each["headers"] for each in config.get("header_union_types", ())}
        unions = {each["id"]: each for each in config.get("header_unions", ())}
        for each in config.get("header_union_stacks", ()):
            elements = [
                self._add_union(unions.pop(number), types) for number in each["header_union_ids"]
            ]
            self.union_stacks[each["name"]] = Stack(
                each["name"], elements, elements[0].base, elements[0].size, self._room(1)
            )
        for each in unions.values():
            self._add_union(each, types)

    def _add_union(self, each: Mapping[str, Any], types: Mapping[str, Any]) -> Union:
        names = [name for name, _ in types[each["union_type"]]]
        headers = [self._add_header(self._instances[number]) for number in each["header_ids"]]
        for header in headers:
            header.siblings.extend(other for other in headers if other is not header)
        union = self.unions[each["name"]] = Union(
            each["name"], dict(zip(names, headers, strict=True))
        )
        return union

    def _intrinsic(self, name: str) -> int:
        header, _, member = name.partition(".")
        owner, member = self.aliases.get(name, (header, member))
        if owner in self.headers and member in self.headers[owner].type.by_name:
            return self.field(owner, member)[0]
        return self._room(1)


def _header_type(each: Mapping[str, Any]) -> HeaderType:
    name = each["name"]
    fields: list[Field] = []
    offset = bits = 0
    for member, width, *flags in each["fields"]:
        variable = width == ANY_LENGTH
        signed, saturating = (bool(flag) for flag in (*flags, False, False)[:2])
        fields.append(Field(member, offset, 0 if variable else width, signed, saturating, variable))
        offset += 2 if variable else 1
        bits += 0 if variable else width
    if sum(each.variable for each in fields) > 1:
        raise refuse(f"header type {name!r}", "it has more than one field of variable length")
    return HeaderType(
        name,
        tuple(fields),
        offset + 1,
        bits,
        each.get("max_length") or 0,
        {form.name: form for form in fields},
    )
