"""Tables find what a look at every row finds, entries are checked, hashes are the known ones."""

from __future__ import annotations

import binascii
import json

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_TEST_P4
from scapy.utils import checksum

from stackcast.switch.bmv2 import hashes
from stackcast.switch.bmv2.program import Program, load_program
from stackcast.switch.bmv2.state import GREEN, RED, YELLOW, MeterArray
from stackcast.switch.bmv2.tables import RankedTable
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.switches.entry import SwitchEntry
from stackcast.udfs.switches.match import Match, canonical

pytestmark = pytest.mark.unit

WIDTH = 4
EVERY = (1 << WIDTH) - 1
KINDS = ("exact", "lpm", "ternary", "optional", "range")


def holds(kind: str, condition: tuple[int, int], value: int) -> bool:
    """What a match kind means, bit by bit."""
    one, other = condition
    if kind == "range":
        return one <= value <= other
    bits = f"{other:0{WIDTH}b}"
    if kind == "exact":
        bits = "1" * WIDTH
    if kind == "lpm":
        bits = "1" * other + "0" * (WIDTH - other)
    pairs = zip(f"{one:0{WIDTH}b}", f"{value:0{WIDTH}b}", bits, strict=True)
    return all(a == b for a, b, counts in pairs if counts == "1")


@st.composite
def conditions(draw: st.DrawFn, kind: str) -> tuple[int, int]:
    value = draw(st.integers(0, EVERY))
    if kind == "exact":
        return value, value
    if kind == "lpm":
        length = draw(st.integers(0, WIDTH))
        return value >> (WIDTH - length) << (WIDTH - length), length
    if kind == "optional":
        return draw(st.sampled_from([(value, EVERY), (0, 0)]))
    other = draw(st.integers(0, EVERY))
    return (value & other, other) if kind == "ternary" else (value, other)


@st.composite
def changes(draw: st.DrawFn):
    """Kinds of the fields of a table, and rows to insert and take away, one after the other."""
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)))
    row = st.tuples(st.tuples(*(conditions(kind) for kind in kinds)), st.integers(0, 3))
    return kinds, draw(st.lists(st.tuples(st.booleans(), row), max_size=14))


@examples(150)
@given(changes())
def test_the_row_of_highest_priority_that_holds_is_found(given_changes):
    kinds, steps = given_changes
    table = RankedTable(kinds, (WIDTH,) * len(kinds))
    rows: dict[tuple, tuple] = {}
    for number, (insert, row) in enumerate(steps):
        if insert:
            table.insert(*row, (number,))
            # Written again it keeps its place among those of its priority.
            rows[row] = (number,)
        elif row in rows:
            table.remove(*row)
            del rows[row]
        keys = range(1 << WIDTH * len(kinds)) if len(kinds) == 1 else range(0, 4096, 37)
        for key in keys:
            values = tuple(key >> WIDTH * at & EVERY for at in range(len(kinds)))
            matching = [
                (-priority, place, what)
                for place, ((match, priority), what) in enumerate(rows.items())
                if all(map(holds, kinds, match, values))
            ]
            expected = min(matching)[2] if matching else ()
            question = values[0] if len(values) == 1 else values
            assert table.find(question) == expected
            assert table.get(question) == expected  # remembered
    table.clear()
    assert table.find(0 if len(kinds) == 1 else (0,) * len(kinds)) == ()


def test_many_ranges_are_searched_fast():
    table = RankedTable(("exact", "range"), (8, 32))
    for at in range(5000):
        table.insert(((1, 1), (10 * at, 10 * at + 4)), 1, (at,))
    assert [table.find((1, value)) for value in (0, 4, 5, 49990, 49995)] == [
        *((0,), (0,), (), (4999,), ())
    ]
    assert table.find((2, 0)) == ()


@pytest.mark.parametrize(
    ("algorithm", "value"),
    [("crc16", 0xBB3D), ("crc32", 0xCBF43926), ("crcCCITT", 0x29B1), ("crc32_custom", 0xCBF43926)],
)
def test_hashes_give_the_check_values_of_their_algorithms(algorithm: str, value: int):
    assert hashes.ALGORITHMS[algorithm](b"123456789") == value


@given(st.binary(max_size=40))
def test_hashes_are_those_of_other_libraries(data: bytes):
    assert hashes.csum16(data) == checksum(data)
    assert hashes.ALGORITHMS["crc32"](data) == binascii.crc32(data)
    assert hashes.identity(data) == int.from_bytes(data[:8], "big")
    folded = 0
    for at in range(0, len(data), 2):
        folded ^= int.from_bytes((data[at : at + 2] + b"\0")[:2], "big")
    assert hashes.ALGORITHMS["xor16"](data) == folded


def test_a_meter_marks_what_exceeds_its_rates(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    meters = MeterArray(4, by_bytes=False)
    assert [meters.execute(0, 100) for _ in range(3)] == [GREEN] * 3
    meters.set_rates(0, [(1.0, 1.0), (2.0, 2.0)])
    assert [meters.execute(0, 100) for _ in range(3)] == [GREEN, YELLOW, RED]
    now[0] = 10.0
    assert [meters.execute(0, 100) for _ in range(3)] == [GREEN, YELLOW, RED]
    meters.set_rates(0, [])
    assert meters.execute(0, 100) == GREEN


# -- entries


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program((COMPILED_TEST_P4 / "feature_tables.json").read_bytes())


def first_table(program: Program, kind: str):
    """A table with a field of this kind that takes entries."""
    for form in program.tables.values():
        if [field.kind for field in form.key].count(kind) and not form.constant:
            return form
    raise AssertionError(f"no table with a field of kind {kind}")


def entry_of(form, **changes) -> SwitchEntry:
    """An entry that a table takes."""
    match = []
    for field in form.key:
        value = Match(field.name, field.kind, canonical(1), canonical(1), field.width)
        match.append((field.name, field.kind, value.joined()))
    action = next(iter(form.actions.values()))
    params = tuple((name, canonical(0)) for name, _ in action.params)
    entry = SwitchEntry("s1", form.name, tuple(match), action.name, params, 1)
    return SwitchEntry(**{**entry.__dict__, **changes})


@pytest.mark.parametrize("kind", ["exact", "lpm", "ternary", "range"])
def test_what_fits_is_taken(program: Program, kind: str):
    state = program.new_state()
    entry = entry_of(first_table(program, kind))
    state.check(entry)
    state.apply({entry.key: entry})
    state.apply({entry.key: None})
    state.apply({entry.key: None})  # nobody minds


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"table": "nowhere"}, "nowhere"),
        ({"action": "jump"}, "jump"),
        ({"match": ()}, "missing"),
        ({"match": (("nothing", "exact", b"\1"),)}, "nothing"),
        ({"params": (("speed", b"\1"),)}, "takes"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(program: Program, changes: dict, word: str):
    state = program.new_state()
    entry = entry_of(first_table(program, "exact"), **changes)
    with pytest.raises(SwitchError, match=word) as raised:
        state.apply({entry.key: entry})
    assert raised.value.what == "BAD_ENTRY"
    with pytest.raises(SwitchError, match=word):
        state.check(entry)


def test_values_beyond_their_width_are_refused(program: Program):
    form = first_table(program, "exact")
    wide = tuple((f.name, f.kind, canonical(1 << f.width)) for f in form.key)
    if all(field.kind == "exact" for field in form.key):
        with pytest.raises(SwitchError, match="bits"):
            program.new_state().check(entry_of(form, match=wide))


def test_one_match_under_two_keys_can_be_taken_away_twice(program: Program):
    state = program.new_state()
    for kind in ("exact", "ternary"):
        entry = entry_of(first_table(program, kind))
        padded = tuple((name, k, b"\0" + v if k == "exact" else v) for name, k, v in entry.match)
        other = entry_of(first_table(program, kind), match=padded)
        state.apply({entry.key: entry, other.key: other})
        state.apply({entry.key: None})
        state.apply({other.key: None})


def test_all_or_nothing_of_a_change_is_taken(program: Program):
    state = program.new_state()
    good = entry_of(first_table(program, "exact"))
    bad = entry_of(first_table(program, "exact"), action="jump")
    with pytest.raises(SwitchError):
        state.apply({good.key: good, "other": bad})
    form = first_table(program, "exact")
    key = tuple(1 for _ in form.key)
    assert not state.tables[form.name].get(key[0] if len(key) == 1 else key)


def test_entries_of_the_program_stay(program: Program):
    constant = [form for form in program.tables.values() if form.constant]
    assert constant
    state = program.new_state()
    for form in constant:
        with pytest.raises(SwitchError, match="constant"):
            state.check(entry_of(form))
    config = json.loads((COMPILED_TEST_P4 / "feature_tables.json").read_text())
    assert any(
        len(table.get("entries", ())) == len(form.entries) > 0
        for pipeline in config["pipelines"]
        for table in pipeline["tables"]
        for form in constant
        if form.name == table["name"]
    )
