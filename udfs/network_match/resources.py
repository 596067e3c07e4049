"""Resources of a switch that a compiled filter takes, and the worth of the compiler's savings.

Source: CAMUS 3.2, "Resource Optimizations". A TCAM compares a range as several prefixes, so its
rows count as the fewest prefixes that make up each range; its bits are those of the keys. SRAM
holds keys and next states of exact rows, and the next states of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from typing import Any

from stackcast.udfs.filters.compiler.tables import KINDS, CompiledFilter
from stackcast.udfs.filters.nodes import Outcome
from stackcast.udfs.filters.prefixes import split
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.network_match.bit_vectors import BitVectors
from stackcast.udfs.network_match.conjunctions import Conjunctions
from stackcast.udfs.network_match.layout import (
    MASK_BITS,
    STATE_BITS,
    VALUE_BITS,
    ProgramLayout,
    ProgramOptions,
    Stage,
    program_layout,
)

__all__ = ["Saving", "TableUse", "prefix_count", "render", "report"]

_Row = tuple[int, int, int, str, int]


@dataclass(frozen=True)
class TableUse:
    """One table. rows: entries. memory_rows: rows as its memory holds them."""

    field: str
    kind: str
    rows: int
    memory: str
    memory_rows: int
    key_bits: int
    tcam_bits: int
    sram_bits: int


@dataclass(frozen=True)
class Saving:
    """One saving: the cost ``before``, without it, and ``after``, with it, in ``unit``."""

    what: str
    before: int
    after: int
    unit: str
    advice: str = ""


def prefix_count(low: int, high: int) -> int:
    """Counts the fewest disjoint prefixes that make up low..high: len(prefixes.split(...))."""
    end = high + 1
    # Up to the roundest number inside, blocks grow; from there on they shrink.
    zeros = (low ^ end).bit_length() - 1
    middle = end >> zeros << zeros
    return (middle - low).bit_count() + (end - middle).bit_count()


def report(
    compiled: CompiledFilter,
    specification: Specification,
    program: ProgramLayout | None = None,
    vectors: Sequence[BitVectors] = (),
    conjunctions: Sequence[Sequence[Conjunctions]] = (),
) -> dict[str, Any]:
    """Reports entries, memory and states of a filter, as plain values.

    tables: for each table that has rows, the fields of :class:`TableUse`. entries, tcam_bits,
    sram_bits: their sums, leaves among them. receiver_sets: distinct sets of two or more
    receivers. states: leaves among them. savings: fields of :class:`Saving`; those not in use are
    simulated, with ``advice``. groups: pass, form, entries and terms of each group of rules, in the
    order in which an event meets them; those of one pass of all ``conjunctions`` are one group, and
    their terms are keys. Tables of ``vectors`` are of kinds ``terms``, of keys ``fields`` and
    ``keys``.
    """
    program = program or program_layout(specification, ProgramOptions())
    rows = _rows_by_field(compiled)
    uses: list[TableUse] = []
    savings: list[Saving] = []
    stages = {stage.field: stage for stage in program.stages}
    cells = {cell.name for cell in compiled.cells}
    for place, name in enumerate(compiled.fields):
        bits = 8 if place == 0 else compiled.definitions[place - 1].bits
        found = rows[name]
        stage = stages.get(name)
        mapped = bool(stage and stage.code_bits)
        direct = list(_tables(name, bits, found, stage))
        coded = _coded(name, bits, found, stage.code_bits if stage and mapped else 0)
        uses += coded if mapped else direct
        if name not in cells:  # nothing maps state on codes
            savings += _resolution(name, direct, coded, mapped)
    leaves = sum(1 for outcome in compiled.outcomes.values() if outcome.receivers)
    leaf_bits = leaves * (STATE_BITS + MASK_BITS)
    uses.append(TableUse("leaf", "exact", leaves, "SRAM", leaves, STATE_BITS, 0, leaf_bits))
    tcam = sum(use.tcam_bits for use in uses)
    savings = [*_kinds(uses), *_lpm(compiled, rows), *savings, _sharing(compiled, rows, tcam)]
    groups: list[dict[str, Any]] = []

    def add(number: int, form: str, own: Iterable[TableUse], terms: int) -> None:
        held = [use for use in own if use.rows]
        uses.extend(held)
        entries = sum(use.rows for use in held)
        groups.append({"pass": number, "form": form, "entries": entries, "terms": terms})

    before = compiled.outcomes.get(compiled.root) != Outcome()
    if before or not (vectors or conjunctions):
        diagram, uses = uses, []
        add(1, "diagram", diagram, 0)
    for number, group in enumerate(vectors, 1 + before):
        add(number, "bit vectors", _vector_uses(group, program), group.terms.bit_count())
    for number, beside in enumerate(zip_longest(*conjunctions), 1):
        keys = [group for group in beside if group is not None]
        own = [use for group in keys for use in _key_uses(group, program)]
        add(number, "keys", own, sum(len(group.ports) for group in keys))
    groups.sort(key=lambda group: group["pass"])
    sets = {outcome.receivers for outcome in compiled.outcomes.values()}
    states = set(compiled.entries["state"].tolist()) | set(compiled.outcomes)
    return {
        "tables": [asdict(use) for use in uses if use.rows],
        "entries": sum(use.rows for use in uses),
        "tcam_bits": sum(use.tcam_bits for use in uses),
        "sram_bits": sum(use.sram_bits for use in uses),
        "receiver_sets": sum(1 for receivers in sets if len(receivers) > 1),
        "states": len(states),
        "cells": len(compiled.cells),
        "groups": groups,
        "passes": groups[-1]["pass"],
        "savings": [asdict(saving) for saving in savings],
    }


def render(found: Mapping[str, Any]) -> str:
    """Renders a report for people."""
    head = f"{'table':<40} {'kind':<10} {'entries':>9} {'memory':<6} {'rows':>9} {'bits':>12}"
    lines = [head, "-" * len(head)]
    for use in found["tables"]:
        bits = use["tcam_bits"] if use["memory"] == "TCAM" else use["sram_bits"]
        lines.append(
            f"{use['field'][:40]:<40} {use['kind']:<10} {use['rows']:>9,} {use['memory']:<6} "
            f"{use['memory_rows']:>9,} {bits:>12,}"
        )
    lines += [
        "",
        f"{found['entries']:,} entries, {found['states']:,} states, {found['receiver_sets']:,} "
        f"sets of several receivers, {found['cells']:,} state cells",
        *(
            f"pass {group['pass']}: {group['form']}, {group['entries']:,} entries"
            + (f", {group['terms']:,} terms" if group["terms"] else "")
            for group in found["groups"]
        ),
        f"{found['tcam_bits']:,} bits of TCAM, {found['sram_bits']:,} bits of SRAM",
        "",
    ]
    for saving in found["savings"]:
        unit = saving["unit"]
        line = f"{saving['what']}: {saving['before']:,} -> {saving['after']:,} {unit}"
        lines.append(line + (f". {saving['advice']}" if saving["advice"] else ""))
    return "\n".join(lines) + "\n"


def _rows_by_field(compiled: CompiledFilter) -> dict[str, list[_Row]]:
    rows: dict[str, list[_Row]] = {name: [] for name in compiled.fields}
    for index, state, low, high, kind, following in compiled.entries.tolist():
        rows[compiled.fields[index]].append((state, low, high, KINDS[kind], following))
    return rows


def _use(
    field: str, kind: str, rows: int, tcam_rows: int, key_bits: int, next_bits: int = STATE_BITS
) -> TableUse:
    """Makes the use of a table; ``tcam_rows``: 0 for one in SRAM."""
    if tcam_rows:
        bits = tcam_rows * key_bits
        return TableUse(field, kind, rows, "TCAM", tcam_rows, key_bits, bits, tcam_rows * next_bits)
    bits = rows * (key_bits + next_bits)
    return TableUse(field, kind, rows, "SRAM", rows, key_bits, 0, bits)


def _tables(
    name: str, bits: int, rows: Sequence[_Row], stage: Stage | None = None
) -> Iterator[TableUse]:
    """Yields the tables of a field whose values themselves are matched."""
    key = STATE_BITS + bits
    exact = sum(1 for row in rows if row[3] == "exact")
    ranges = [prefix_count(low, high) for _, low, high, kind, _ in rows if kind == "range"]
    lpm = sum(1 for row in rows if row[3] == "lpm")
    yield _use(name, "exact", exact, 0, key)
    yield _use(name, "range", len(ranges), sum(ranges), key)
    yield _use(name, "lpm", lpm, lpm, key)
    yield _otherwise(name, rows, stage)


def _vector_uses(group: BitVectors, program: ProgramLayout) -> Iterator[TableUse]:
    """Yields the tables of a group of bit vectors, whose rows have terms in place of a state."""
    wide = MASK_BITS * program.options.words
    for stage in program.stages:
        if stage.field not in group.fields:
            continue
        key = STATE_BITS + stage.bits
        spans = [(low, high) for low, high, _ in group.fields[stage.field].rows]
        if "lpm" in stage.kinds:
            prefixes = sum(prefix_count(low, high) for low, high in spans)
            yield _use(stage.field, "lpm terms", prefixes, prefixes, key, wide)
        else:
            ranges = [prefix_count(low, high) for low, high in spans if low != high]
            single = len(spans) - len(ranges)
            yield _use(stage.field, "exact terms", single, 0, key, wide)
            yield _use(stage.field, "range terms", len(ranges), sum(ranges), key, wide)
        rest = 2 if stage.optional else 1
        yield _use(stage.field, "otherwise terms", rest, 0, key - stage.bits + rest - 1, wide)
    yield _use("leaf", "exact terms", 1, 0, STATE_BITS, wide)


def _key_uses(group: Conjunctions, program: ProgramLayout) -> Iterator[TableUse]:
    """Yields the tables of the keys of one set of fields: those that say the fields, the keys."""
    name, count = ", ".join(group.fields), len(group.ports)
    yield _use(name, "fields", len(group.fields), 0, STATE_BITS, 0)
    wide = STATE_BITS + VALUE_BITS * program.options.key_fields
    yield _use(name, "keys", count, 0, wide, MASK_BITS)


def _otherwise(name: str, rows: Sequence[_Row], stage: Stage | None) -> TableUse:
    defaults = sum(1 for row in rows if row[3] == "default")
    if stage is not None and stage.optional:
        return _use(name, "otherwise", 2 * defaults, 0, STATE_BITS + 1)
    return _use(name, "otherwise", defaults, 0, STATE_BITS)


def _coded(name: str, bits: int, rows: Sequence[_Row], code_bits: int) -> list[TableUse]:
    """Returns the tables of a field whose values are mapped first; ``code_bits`` 0: the fewest."""
    asked = [row for row in rows if row[3] in ("exact", "range")]
    starts = sorted({0} | {low for _, low, *_ in asked} | {high + 1 for _, _, high, *_ in asked})
    if starts[-1] == 1 << bits:
        starts.pop()
    code_bits = code_bits or max(1, (len(starts) - 1).bit_length())
    ends = [*starts[1:], 1 << bits]
    code = {start: number for number, start in enumerate(starts)}
    code[1 << bits] = len(starts)
    spans = [(code[low], code[high + 1] - 1) for _, low, high, *_ in asked]
    wide = [prefix_count(low, high) for low, high in spans if low != high]
    mapping = [prefix_count(low, end - 1) for low, end in zip(starts, ends, strict=True)][1:]
    key = STATE_BITS + code_bits
    return [
        _use(name, f"map:{code_bits}", len(mapping), sum(mapping), bits, code_bits),
        _use(name, "exact", len(spans) - len(wide), 0, key),
        _use(name, "range", len(wide), sum(wide), key),
        _otherwise(name, rows, None),
    ]


def _resolution(
    name: str, direct: Sequence[TableUse], coded: Sequence[TableUse], mapped: bool
) -> Iterator[Saving]:
    before, after = (sum(use.tcam_bits for use in uses) for uses in (direct, coded))
    if not any(use.kind == "range" and use.rows for use in direct):
        return
    advice = ""
    code_bits = coded[0].kind.removeprefix("map:")
    if not mapped and after < before:
        advice = f"Not in use: set the resolution of {name} to {code_bits} bits"
    elif not mapped:
        advice = "Not in use, and not worthwhile"
    yield Saving(f"low resolution of {name}, {code_bits} bits", before, after, "TCAM bits", advice)


def _kinds(uses: Sequence[TableUse]) -> Iterator[Saving]:
    tcam = sum(use.tcam_bits for use in uses)
    keys = {use.field: use.key_bits for use in uses if use.kind == "exact"}
    exact = sum(use.rows * use.key_bits for use in uses if use.kind == "exact")
    yield Saving("exact rows instead of ranges", tcam + exact, tcam, "TCAM bits")
    defaults = sum(use.rows * keys[use.field] for use in uses if use.kind == "otherwise")
    yield Saving("default rows in SRAM", tcam + defaults, tcam, "TCAM bits")


def _lpm(compiled: CompiledFilter, rows: Mapping[str, Sequence[_Row]]) -> Iterator[Saving]:
    """Compares nested prefixes with the disjoint ones that ranges would need."""
    before = after = 0
    for place, name in enumerate(compiled.fields[1:]):
        bits = compiled.definitions[place].bits
        states: dict[int, list[_Row]] = {}
        for row in rows[name]:
            if row[3] == "lpm":
                states.setdefault(row[0], []).append(row)
        for found in states.values():
            after += len(found)
            spans = _disjoint([(low, high, following) for _, low, high, _, following in found])
            before += sum(len(split(low, high, bits)) for low, high in spans)
    if after:
        yield Saving("longest prefixes instead of ranges", before, after, "TCAM rows")


def _disjoint(prefixes: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yields the spans of values that nested prefixes give one next state each, ascending."""
    events = sorted({low for low, _, _ in prefixes} | {high + 1 for _, high, _ in prefixes})
    open_: list[tuple[int, int, int]] = []
    waiting = sorted(prefixes, key=lambda p: (p[0], -p[1]), reverse=True)
    last: tuple[int, int, int] | None = None
    for start, end in pairwise(events):
        while open_ and open_[-1][1] < start:
            open_.pop()
        while waiting and waiting[-1][0] == start:
            open_.append(waiting.pop())
        if not open_:
            continue
        if last is not None and last[1] + 1 == start and last[2] == open_[-1][2]:
            last = (last[0], end - 1, last[2])
            continue
        if last is not None:
            yield last[0], last[1]
        last = (start, end - 1, open_[-1][2])
    if last is not None:
        yield last[0], last[1]


def _sharing(
    compiled: CompiledFilter, rows: Mapping[str, Sequence[_Row]], tcam_bits: int
) -> Saving:
    """Compares with one table over all fields: for each way through the diagram it needs the
    prefixes of its ranges in each combination."""
    ways: dict[int, int] = {}
    key_bits = 0
    widths = [8, *(field.bits for field in compiled.definitions)]
    for name, bits in zip(reversed(compiled.fields), reversed(widths), strict=True):
        here: dict[int, int] = {}
        for state, low, high, kind, following in rows[name]:
            times = prefix_count(low, high) if kind == "range" else 1
            here[state] = here.get(state, 0) + times * ways.get(following, 1)
        ways |= here
        key_bits += bits if here else 0
    before = ways.get(compiled.root, 0) * key_bits
    return Saving("one table per field instead of a single table", before, tcam_bits, "TCAM bits")
