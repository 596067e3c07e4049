"""Groups of rules in compiled programs of one to twelve fields: the software switch and brute force
agree."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from p4_products import compile_program
from p4_tables import entries_of
from packet_cases import right_sums
from program_switches import open_ports

from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.specification import Specification, parse_specification
from stackcast.udfs.network_match.layout import ProgramOptions
from stackcast.udfs.p4_program.program import generate

pytestmark = [pytest.mark.long, pytest.mark.p4c]

OPTIONS = ProgramOptions(words=2, passes=5, conjunctions=3, key_fields=3)
FROM = 64
WIDTHS = (16, 8, 32, 48, 64, 128)
KINDS = ("query_field", "query_field_exact", "query_field_lpm")
VALUES = (0, 1, 2, 7, 100, 101, 255)


def format_of(count: int, default: str) -> Specification:
    """So many fields of all widths and kinds of tables in two headers; the second may lack."""
    lines, queries = [], []
    for header, numbers in (("a", range(0, count, 2)), ("b", range(1, count, 2))):
        fields = " ".join(f"f{n}: {WIDTHS[n % len(WIDTHS)]};" for n in numbers)
        if fields:
            lines.append(f"header_type {header}_t {{ fields {{ {fields} }} }}")
            lines.append(f"header {header}_t {header};")
            queries += [f"@{KINDS[n % 3]}({header}.f{n})" for n in numbers]
    return parse_specification("\n".join([*lines, *queries, default]), f"fields{count}")


@dataclass(frozen=True)
class Program:
    """A compiled program and its format."""

    specification: Specification
    json: bytes
    default: tuple[int, ...]

    def switch(
        self, diagram: Sequence[str], apart: Sequence[str], keyed: Sequence[str]
    ) -> SimpleSwitch:
        made = entries_of(diagram, self.specification, OPTIONS, apart=apart, keyed=keyed)
        rows = [entry.on("s") for entry in made.entries]
        switch = SimpleSwitch()
        switch.load(self.json)
        held = [*open_ports("s", range(1, 65)), *rows]
        switch.apply({entry.key: entry for entry in held})
        return switch

    def frame(self, event: dict[str, int]) -> bytes:
        """A packet with the headers that the event has."""
        payload = b""
        for header in self.specification.headers:
            if all(field.qualified in event for field in header.fields):
                for field in header.fields:
                    payload += event[field.qualified].to_bytes(field.bits // 8, "big")
        udp = struct.pack("!HHHH", 5, OPTIONS.port, 8 + len(payload), 0) + payload
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 9, 17, 0, b"abcd", b"efgh")
        return right_sums(bytes(12) + b"\x08\0" + ip + udp)


@pytest.fixture(scope="module")
def program_of(pytestconfig: pytest.Config, tmp_path_factory) -> Callable[[int], Program]:
    made: dict[int, Program] = {}

    def compiled(count: int) -> Program:
        if count not in made:
            default = "@query_default_action(fwd(63))" if count % 2 else ""
            specification = format_of(count, default)
            source = Path(tmp_path_factory.mktemp("program"), "program.p4")
            source.write_text(generate(specification, OPTIONS))
            _, program = compile_program(str(pytestconfig.getoption("--p4c")), source)
            made[count] = Program(specification, program.encode(), (63,) if default else ())
        return made[count]

    return compiled


@st.composite
def conditions(draw: st.DrawFn, specification: Specification) -> str:
    def predicate() -> str:
        field = draw(st.sampled_from(sorted(specification.fields)))
        exact = specification.fields[field].match == "exact"
        operators = ["==", "!="] if exact else ["==", "!=", "<", ">="]
        return f"{field} {draw(st.sampled_from(operators))} {draw(st.sampled_from(VALUES))}"

    def node(depth: int) -> str:
        if not depth or draw(st.booleans()):
            return predicate()
        kind = draw(st.sampled_from(["and", "and", "or", "not"]))
        if kind == "not":
            return f"not ({node(depth - 1)})"
        return f"({node(depth - 1)}) {kind} ({node(depth - 1)})"

    return node(2)


@st.composite
def point_rules(draw: st.DrawFn, specification: Specification) -> str:
    """A rule that compares up to four fields with single values."""
    names = st.sampled_from(sorted(specification.fields))
    fields = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    parts = [f"{field} == {draw(st.sampled_from(VALUES))}" for field in fields]
    return f"{' and '.join(parts)} : fwd({draw(st.sampled_from([1, 2, 9, 33]))})"


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
@examples(60)
@given(data=st.data())
def test_random_rules_in_groups_equal_brute_force(program_of, count, data):
    program = program_of(count)
    specification = program.specification
    ports = st.lists(st.sampled_from([1, 2, 9, 33]), min_size=1, max_size=2, unique=True)
    rule = st.builds(
        lambda condition, to: f"{condition} : fwd({', '.join(map(str, to))})",
        conditions(specification),
        ports,
    )
    diagram = data.draw(st.lists(rule, max_size=2))
    apart = data.draw(st.lists(rule, max_size=5))
    keyed = data.draw(st.lists(st.one_of(rule, point_rules(specification)), max_size=12))
    read = [parse_rule(text, specification) for text in (*diagram, *apart, *keyed)]
    switch = program.switch(diagram, apart, keyed)
    pools = {
        name: [v for v in (*VALUES, 3, 99) if v >> field.bits == 0] + [(1 << field.bits) - 1]
        for name, field in specification.fields.items()
    }
    for _ in range(10):
        event = {name: data.draw(st.sampled_from(pool)) for name, pool in pools.items()}
        if data.draw(st.booleans()):
            event = {name: value for name, value in event.items() if name.startswith("a.")}
        frame = program.frame(event)
        sent = {int(r) for rule in read if matches(rule.condition, event) for r in rule.receivers}
        expected = sorted(sent or program.default)
        assert sorted(switch.process(FROM, frame)) == [(port, frame) for port in expected]
