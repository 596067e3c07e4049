"""Random formats, rules written for them, and events at the edges: for tests of the filters.

Everything is text in the languages of the manual, so that whatever reads it is tested too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from hypothesis import strategies as st

from stackcast.udfs.errors import FilterError
from stackcast.udfs.filters.compiler.tables import CompiledFilter
from stackcast.udfs.filters.nodes import Node, Not, Outcome, Predicate, Rule, StatePredicate
from stackcast.udfs.messages.specification import Field, Specification, parse_specification
from stackcast.udfs.network_match.entries import program_entries
from stackcast.udfs.network_match.layout import NamedAction, ProgramOptions, program_layout

PORTS = {"h1": 1, "h2": 2, "h3": 3, "twin": 3}
RECEIVERS = ("h1", "h2", "h1, h3", "h3, twin", "7", "h2, 9", "10, 9")
CALLS = ("mark(7)", "mark(8)", "tell(1, 10.0.0.97)")
OPTIONS = ProgramOptions(
    variables=8,
    updates=8,
    calls=3,
    actions=(NamedAction("mark", (32,)), NamedAction("tell", (8, 32))),
)
_BITS = (1, 2, 3, 7, 8, 9, 16, 31, 32, 33, 48, 63, 64, 65, 72, 127, 128, 129, 192, 200)
_TEXTS = ("", "A", "B", "AB", "Z", "a b", "and", "0", "~")
_ANNOTATIONS = ("query_field", "query_field_range", "query_field_exact", "query_field_lpm")
_ORDERED = ("<", "<=", ">", ">=", "≤", "≥")
_EQUAL = ("==", "=", "!=", "≠")


@dataclass(frozen=True)
class Case:
    """A format, and by qualified name the raw constants that its rules compare with."""

    text: str
    specification: Specification
    constants: dict[str, tuple[int, ...]]
    typed: bool

    @property
    def names(self) -> list[str]:
        return sorted(self.constants)

    def field(self, name: str) -> Field:
        return self.specification.fields[name]


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    most_bits: int = 200,
    typed: bool | None = None,
    annotated: bool | None = None,
    matches: Sequence[str] = _ANNOTATIONS,
    clock: int = 0,
    extra: str = "",
) -> Case:
    """A format of one to three headers with up to four fields each.

    ``clock``: the first header tells the time in ``at``, so many units to a microsecond.
    """
    if typed is None:
        typed = draw(st.sampled_from([False, False, True]))
    if annotated is None:
        annotated = draw(st.sampled_from([True, True, False]))
    lines, queries, asked = [], [], []
    if typed and draw(st.booleans()):
        lines.append("header_type frame_t { fields { length: 16; } } header frame_t frame;")
    shares = typed and draw(st.booleans())
    bits_of = st.sampled_from([b for b in _BITS if b <= most_bits]) | st.integers(1, most_bits)
    for number in range(draw(st.sampled_from([2, 1, 3]))):
        header, fields, total = f"m{number}", [], 0
        if typed:
            fields, total = ["kind: 8;"], 8
            if draw(st.booleans()):
                asked.append(f"{header}.kind")
            if shares:
                common = min(most_bits, 16)
                fields.append(f"shared: {common};")
                total += common
                asked.append(f"{header}.shared")
                if annotated:
                    queries.append(f"@query_field({header}.shared)")
        if clock and number == 0:
            fields.append(f"@clock({clock}) at: 48;")
            total += 48
        for place in range(draw(st.integers(1, 4 if number == 0 else 2))):
            bits = draw(bits_of)
            marks = ["", "", f"@decimals({draw(st.sampled_from([1, 2, 4, 18]))})"]
            if bits % 8 == 0:
                marks += ["@string", "@string(zero)"]
            match = draw(st.sampled_from(matches)) if annotated else ""
            mark = draw(st.sampled_from(marks))
            if match in ("query_field", "query_field_range") and 1 < bits <= 64:
                codes = draw(st.sampled_from([0, 0, 0, 1, 4, 5]))
                mark += f" @resolution({codes})" if 0 < codes < bits else ""
            fields.append(f"{mark} f{place}: {bits};")
            total += bits
            asked.append(f"{header}.f{place}")
            if annotated:
                queries.append(f"@{match}({header}.f{place})")
        if total % 8:
            fields.append(f"pad: {8 - total % 8};")
        lines.append(f"header_type {header}_t {{ fields {{ {' '.join(fields)} }} }}")
        mark = f'@message_type("{chr(ord("A") + number)}") ' if typed else ""
        lines.append(f"{mark}header {header}_t {header};")
    text = "\n".join([*lines, *draw(st.permutations(queries)), extra])
    specification = parse_specification(text, "random")
    constants = {name: draw(_constants(specification.fields[name])) for name in asked}
    return Case(text, specification, constants, typed)


def _constants(field: Field) -> st.SearchStrategy[tuple[int, ...]]:
    """Few, so that rules collide; the ends of the domain are among them."""
    if field.name == "kind":
        return st.just((65, 66, 90))
    top = (1 << field.bits) - 1
    if field.kind == "string":
        length = field.bits // 8
        texts = [text for text in (*_TEXTS, "~" * length) if len(text) <= length]
        return st.just(tuple(dict.fromkeys(field.encode(text) for text in texts)))
    near = [0, 1, 2, top >> 1, top - 1, top, 10, 0x0A000000, 1 << 64, (1 << 64) - 1]
    inner = [value for value in near if 0 <= value <= top]
    number = st.sampled_from(inner) | st.integers(0, top)
    return st.lists(number, min_size=1, max_size=5).map(lambda v: tuple(dict.fromkeys(v)))


@st.composite
def written(draw: st.DrawFn, field: Field, raw: int) -> str:
    """A constant as somebody may write it."""
    if field.kind == "string":
        text = field.render(raw)
        quote = draw(st.sampled_from("\"'"))
        bare = text.isalnum() and draw(st.booleans())
        return text if bare else f"{quote}{text}{quote}"
    if field.kind == "decimal":
        return field.render(raw)
    spellings = [str(raw), hex(raw)]
    if field.bits == 32:
        spellings.append(str(IPv4Address(raw)))
    if field.bits == 128:
        spellings.append(str(IPv6Address(raw)))
    if field.bits == 48:
        spellings.append(raw.to_bytes(6, "big").hex(":"))
    return draw(st.sampled_from(spellings))


@st.composite
def predicates(draw: st.DrawFn, case: Case) -> str:
    """A field compared with constants; exact ones are nearly always compared for equality."""
    if draw(st.integers(0, 19)) == 0:
        return "all"
    name = draw(st.sampled_from(case.names))
    field, pool = case.field(name), case.constants[name]

    def constant() -> str:
        return draw(written(field, draw(st.sampled_from(pool))))

    if field.name in ("kind", "shared"):
        # Of every message that has it, not of this one alone.
        name = draw(st.sampled_from([name, f"*.{field.name}"]))
    forms = ["equal", "equal", "set"]
    if field.match != "exact" or draw(st.integers(0, 9)) == 0:
        forms += ["ordered", "ordered", "between"]
        if field.kind == "integer":
            forms.append("prefix")
    form = draw(st.sampled_from(forms))
    negation = draw(st.sampled_from(["", "", "not "]))
    if form == "equal":
        return f"{name} {draw(st.sampled_from(_EQUAL))} {constant()}"
    if form == "ordered":
        return f"{name} {draw(st.sampled_from(_ORDERED))} {constant()}"
    if form == "set":
        members = [constant() for _ in range(draw(st.integers(1, 3)))]
        return f"{name} {negation}in {{{', '.join(members)}}}"
    if form == "between":
        low, high = sorted([draw(st.sampled_from(pool)), draw(st.sampled_from(pool))])
        shown = draw(written(field, low)), draw(written(field, high))
        return f"{name} {negation}between {shown[0]} and {shown[1]}"
    base = draw(st.sampled_from(pool))
    shown_base = str(IPv4Address(base)) if field.bits == 32 and draw(st.booleans()) else str(base)
    length = draw(st.sampled_from([0, 1, field.bits // 2, field.bits - 1, field.bits]))
    return f"{name} {draw(st.sampled_from(_EQUAL))} {shown_base}/{length}"


def conditions(leaves: st.SearchStrategy[str], most: int = 4) -> st.SearchStrategy[str]:
    """Conditions of such predicates."""
    joints = st.sampled_from(["and", "or", "^", "||", "∧", "&&"])
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds("({} {} {})".format, inner, joints, inner)
            | st.builds("{}({})".format, st.sampled_from(["not ", "!"]), inner)
        ),
        max_leaves=most,
    )


@st.composite
def actions(draw: st.DrawFn, updates: Sequence[str] = ()) -> str:
    """What a rule does."""
    parts = [f"fwd({draw(st.sampled_from(RECEIVERS))})"]
    if draw(st.integers(0, 3)) == 0:
        parts.append(draw(st.sampled_from(CALLS)))
    if updates and draw(st.booleans()):
        parts.append(draw(st.sampled_from(updates)))
    if len(parts) == 1 and draw(st.booleans()):
        return parts[0]
    return f"{{ {'; '.join(draw(st.permutations(parts)))} }}"


def rules(case: Case, most: int = 6) -> st.SearchStrategy[list[str]]:
    """A set of rules."""
    rule = st.builds("{} : {}".format, conditions(predicates(case)), actions())
    return st.sampled_from([1, 2, 3, most]).flatmap(
        lambda count: st.lists(rule, min_size=count, max_size=count)
    )


def batches(
    case: Case, count: int = 40, by_field: bool = False
) -> st.SearchStrategy[list[tuple[int, dict[str, int]]]]:
    """Events, each (message type, raw values): near the constants, at the ends, or anything.

    Where several headers have no type each is there or not; ``by_field``: any field may lack. They
    are many, so they come from one seed: what is to become small in a failure are the rules.
    """
    seeds = st.integers(0, (1 << 32) - 1)
    return seeds.map(lambda seed: _events(case, random.Random(seed), count, by_field))


def _events(
    case: Case, chance: random.Random, count: int, by_field: bool
) -> list[tuple[int, dict[str, int]]]:
    pools = {name: _edges(case.field(name), case.constants[name]) for name in case.names}
    messages = [header for header in case.specification.headers if header.name != "frame"]
    # A packet always has the first header, and other events need not.
    always = messages[:1] if chance.random() < 0.7 else []
    found = []
    for _ in range(count):
        kind, headers = 0, messages
        if case.typed:
            chosen = chance.choice([*messages, *messages, None])
            headers = [] if chosen is None else [chosen]
            kind = ord("Z") if chosen is None else chosen.message_type or 0
        elif len(headers) > 1:
            headers = [h for h in headers if h in always or chance.random() < 0.7]
        event = {}
        for header in headers:
            for field in header.fields:
                if field.name == "kind" and case.typed:
                    event[field.qualified] = kind
                elif field.name in ("pad", "at") or (by_field and chance.random() < 0.25):
                    continue
                elif chance.random() < 0.9:
                    event[field.qualified] = chance.choice(pools[field.qualified])
                else:
                    event[field.qualified] = chance.getrandbits(field.bits)
        found.append((kind, event))
    return found


def _edges(field: Field, constants: Sequence[int]) -> list[int]:
    top = (1 << field.bits) - 1
    near = {v + d for v in (*constants, 0, top) for d in (-1, 0, 1)}
    return sorted(v for v in near if 0 <= v <= top)


def can_be_sent(case: Case, event: Mapping[str, int]) -> bool:
    """Whether a packet can be so: without types, its first header is there and all are whole."""
    if case.typed:
        return True
    first, *_ = case.specification.headers
    return any(name.startswith(f"{first.name}.") for name in event)


def shape(filter_: CompiledFilter) -> Any:
    """The filter with its states numbered anew, in order of first use."""
    rows: dict[int, list[tuple[int, ...]]] = {}
    for index, state, low, high, kind, following in filter_.entries.tolist():
        rows.setdefault(state, []).append((index, low, high, kind, following))
    number = {filter_.root: 0}
    waiting = [filter_.root]
    found = []
    for state in waiting:
        for row in rows.get(state, []):
            if row[-1] not in number:
                number[row[-1]] = len(number)
                waiting.append(row[-1])
        here = [(*row[:-1], number[row[-1]]) for row in rows.get(state, [])]
        found.append((here, filter_.outcomes.get(state)))
    leaves = set(filter_.outcomes) - set(number)
    assert all(filter_.outcomes[state] == Outcome() for state in leaves)
    assert set(rows) <= set(number), "a row that nothing leads to"
    return filter_.fields, filter_.definitions, filter_.cells, found


def lanes_of(specification: Specification, event: dict[str, int]) -> dict[str, int]:
    """An event with the parts of its wide fields beside them, cut by their offsets."""
    found = dict(event)
    for name, value in event.items():
        field = specification.fields[name]
        for lane in field.lanes():
            end = lane.bit_offset + lane.bits - field.bit_offset
            found[lane.qualified] = value >> (field.bits - end) & ((1 << lane.bits) - 1)
    return found


def switch_of(
    compiled: CompiledFilter, case_rules: Sequence[Rule], specification: Specification
) -> Any:
    """The tables of the program with the entries; None where they have no room, and may."""
    from p4_tables import Switch  # noqa: PLC0415

    try:
        held = program_entries(compiled, specification, PORTS, options=OPTIONS)
    except FilterError as error:
        allowed = {"TOO_MANY_VARIABLES", "TOO_MANY_UPDATES", "TOO_MANY_CALLS"}
        if any(_asks_too_much(rule.condition, specification) for rule in case_rules):
            allowed.add("NO_TABLE")
        if any(field.resolution for field in specification.fields.values()):
            allowed.add("TOO_MANY_CODES")
        assert error.what in allowed, error
        return None
    return Switch(program_layout(specification, OPTIONS), held)


def _asks_too_much(node: Node, specification: Specification) -> bool:
    """Whether an exact field is compared with spans, or one that is not annotated is asked for."""
    if isinstance(node, Not):
        return _asks_too_much(node.child, specification)
    if isinstance(node, StatePredicate):
        return False
    if not isinstance(node, Predicate):
        return any(_asks_too_much(child, specification) for child in node.children)
    spans = node.operator in _ORDERED or any(low != high for low, high in node.constants)
    if node.field.match == "exact" and spans:
        return True
    return bool(specification.queries) and not node.field.query


def ports_of(receivers: Sequence[str]) -> tuple[int, ...]:
    """As a switch delivers to them."""
    return tuple(sorted({PORTS.get(name) or int(name) for name in receivers}))
