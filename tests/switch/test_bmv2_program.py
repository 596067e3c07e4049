"""Compiled BMv2 programs do what the parts of their JSON mean, and nothing makes them fail."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from paths import COMPILED_P4, COMPILED_TEST_P4

from stackcast.switch.bmv2.packet import Packet
from stackcast.switch.bmv2.program import INTRINSIC, Program, load_program
from stackcast.switch.bmv2.state import SwitchState
from stackcast.switch.p4runtime.program import read_program
from stackcast.udfs.errors import SwitchError

pytestmark = pytest.mark.unit

ALL = sorted([*COMPILED_TEST_P4.glob("*.json"), *COMPILED_P4.glob("*.json")])
#: Programs whose name begins with that of another one differ little from it.
VARIANTS = [path for path in ALL if any(path.stem.startswith(f"{each.stem}_") for each in ALL)]
KINDS = [pytest.param(p, marks=pytest.mark.long) if p in VARIANTS else p for p in ALL]

FIELDS = {"a": 8, "b": 13, "c": 32, "d": 1, "s": -8, "t": -16}
"""Fields of the expressions below with their widths, negative if signed."""
RESULTS = {"u": 64, "v": 8, "w": -12, "flag": 1}


def config_of(primitives: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A program with metadata ``m`` of all fields above whose ingress runs these primitives."""
    forms = [[name, abs(width), width < 0] for name, width in {**FIELDS, **RESULTS}.items()]
    table = {
        "name": "run",
        "id": 0,
        "key": [],
        "match_type": "exact",
        "type": "simple",
        "action_ids": [0],
        "actions": ["run"],
        "next_tables": {"run": None},
        "default_entry": {
            "action_id": 0,
            "action_const": True,
            "action_data": [],
            "action_entry_const": True,
        },
    }
    return {
        "__meta__": {"version": [2, 24]},
        "header_types": [{"name": "m_t", "id": 0, "fields": forms}],
        "headers": [{"name": "m", "id": 0, "header_type": "m_t", "metadata": True}],
        "parsers": [
            {
                "name": "parser",
                "init_state": "start",
                "parse_states": [
                    {
                        "name": "start",
                        "parser_ops": [],
                        "transition_key": [],
                        "transitions": [{"type": "default", "value": None, "next_state": None}],
                    }
                ],
            }
        ],
        "deparsers": [{"name": "deparser", "order": []}],
        "actions": [{"name": "run", "id": 0, "runtime_data": [], "primitives": primitives}],
        "pipelines": [
            {"name": "ingress", "init_table": "run", "tables": [table], "conditionals": []},
            {"name": "egress", "init_table": None, "tables": [], "conditionals": []},
        ],
        **more,
    }


def compiled(config: dict[str, Any], **options: Any) -> tuple[Program, SwitchState]:
    program = load_program(json.dumps(config).encode(), **options)
    return program, program.new_state()


def result_of(config: dict[str, Any], values: dict[str, int]) -> dict[str, int]:
    """The fields after ingress, from these values before."""
    program, state = compiled(config)
    packet = program.packet(b"", 0)
    for name, value in values.items():
        packet.fields[program.field_slot("m", name)] = value
    state.ingress(packet)
    return {name: packet.fields[program.field_slot("m", name)] for name in {**FIELDS, **RESULTS}}


# -- expressions: JSON and its meaning are drawn together


def node(op: str, left: Any, right: Any, **more: Any) -> dict[str, Any]:
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


def constant(value: int) -> dict[str, Any]:
    return {"type": "hexstr", "value": hex(value)}


def wrapped(value: int, width: int) -> int:
    """As a field of this width (negative: signed) holds it."""
    if width > 0:
        return value % (1 << width)
    half = 1 << (-width - 1)
    return (value + half) % (2 * half) - half


NUMBERS = st.deferred(lambda: leaves | sums | casts | chosen | from_conditions | shifts | halves)
CONDITIONS = st.deferred(lambda: comparisons | logic | negations | truths | from_numbers)

leaves = st.one_of(
    st.sampled_from(sorted(FIELDS)).map(
        lambda name: ({"type": "field", "value": ["m", name]}, lambda v: v[name])
    ),
    st.integers(-300, 1 << 33).map(lambda value: (constant(value), lambda v: value)),
)
ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    # Where BMv2 would end, and P4 says nothing.
    "/": lambda a, b: a // b if a >= 0 and b > 0 else 0,
    "%": lambda a, b: a % b if a >= 0 and b > 0 else 0,
}
ORDER = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def binary(table: dict[str, Any], operands: Any) -> Any:
    return st.tuples(st.sampled_from(sorted(table)), operands, operands).map(
        lambda t: (
            node(t[0], t[1][0], t[2][0]),
            lambda v: table[t[0]](t[1][1](v), t[2][1](v)),
        )
    )


def clamped(value: int, low: int, high: int) -> int:
    return sorted((low, value, high))[1]


CASTS = {
    "two_comp_mod": lambda value, width: wrapped(value, -width),
    "usat_cast": lambda value, width: clamped(value, 0, (1 << width) - 1),
    "sat_cast": lambda value, width: clamped(value, -(1 << width - 1), (1 << width - 1) - 1),
}
sums = binary(ARITHMETIC, NUMBERS)
casts = st.tuples(st.sampled_from(sorted(CASTS)), NUMBERS, st.integers(2, 40)).map(
    lambda t: (node(t[0], t[1][0], constant(t[2])), lambda v: CASTS[t[0]](t[1][1](v), t[2]))
)
shifts = st.tuples(st.sampled_from(["<<", ">>"]), NUMBERS, st.integers(0, 70)).map(
    lambda t: (
        node(t[0], t[1][0], constant(t[2])),
        lambda v: t[1][1](v) << t[2] if t[0] == "<<" else t[1][1](v) >> t[2],
    )
)
halves = NUMBERS.map(lambda t: (node("~", None, t[0]), lambda v: ~t[1](v)))
chosen = st.tuples(CONDITIONS, NUMBERS, NUMBERS).map(
    lambda t: (
        node("?", t[1][0], t[2][0], cond=t[0][0]),
        lambda v: t[1][1](v) if t[0][1](v) else t[2][1](v),
    )
)
from_conditions = CONDITIONS.map(lambda t: (node("b2d", None, t[0]), lambda v: int(t[1](v))))
from_numbers = NUMBERS.map(lambda t: (node("d2b", None, t[0]), lambda v: t[1](v) != 0))
comparisons = binary(ORDER, NUMBERS)
logic = binary(
    {"and": lambda a, b: a and b, "or": lambda a, b: a or b, "==": ORDER["=="]}, CONDITIONS
)
negations = CONDITIONS.map(lambda t: (node("not", None, t[0]), lambda v: not t[1](v)))
truths = st.booleans().map(lambda value: ({"type": "bool", "value": value}, lambda v: value))
field_values = st.fixed_dictionaries(
    {
        name: st.integers(0, (1 << width) - 1)
        if width > 0
        else st.integers(-(1 << -width - 1), (1 << -width - 1) - 1)
        for name, width in FIELDS.items()
    }
)


def assignment(name: str, expression: Any) -> dict[str, Any]:
    target = {"type": "field", "value": ["m", name]}
    return {"op": "assign", "parameters": [target, {"type": "expression", "value": expression}]}


@examples(150)
@given(NUMBERS, CONDITIONS, field_values)
def test_expressions_mean_what_python_makes_of_their_parts(number, condition, values):
    expression, meaning = number
    test, truth = condition
    primitives = [assignment(name, expression) for name in ("u", "v", "w")]
    primitives.append(assignment("flag", node("b2d", None, test)))
    after = result_of(config_of(primitives), values)
    assert {name: after[name] for name in ("u", "v", "w")} == {
        name: wrapped(meaning(values), RESULTS[name]) for name in ("u", "v", "w")
    }
    assert after["flag"] == int(truth(values))
    assert type(after["flag"]) is int


def test_a_shift_by_a_huge_number_leaves_nothing_and_takes_no_memory():
    field = {"type": "field", "value": ["m", "c"]}
    shift = node("<<", constant(1), field)
    back = node(">>", constant(1 << 40), field)
    values = {"c": (1 << 32) - 1}
    after = result_of(config_of([assignment("u", shift), assignment("v", back)]), values)
    assert (after["u"], after["v"]) == (0, 0)


# -- control flow


@st.composite
def jumps(draw: st.DrawFn) -> list[tuple[str, int]]:
    """An action: ``("add", n)``, ``("jump", to)``, ``("if not", to)``; all jumps go on."""
    size = draw(st.integers(1, 12))
    steps = []
    for at in range(size):
        kind = draw(st.sampled_from(["add", "add", "jump", "if not"]))
        to = draw(st.integers(at + 1, size))
        steps.append((kind, draw(st.integers(1, 9)) if kind == "add" else to))
    return steps


def jumping(steps: list[tuple[str, int]]) -> list[dict[str, Any]]:
    primitives = []
    field = {"type": "field", "value": ["m", "u"]}
    for kind, number in steps:
        if kind == "add":
            primitives.append(assignment("u", node("+", field, constant(number))))
        elif kind == "jump":
            primitives.append({"op": "_jump", "parameters": [constant(number)]})
        else:
            odd = {"type": "expression", "value": node("&", field, constant(1))}
            primitives.append({"op": "_jump_if_zero", "parameters": [odd, constant(number)]})
    return primitives


@examples(100)
@given(jumps(), st.integers(0, 1))
def test_jumps_in_actions_go_where_they_say(steps: list[tuple[str, int]], start: int):
    value, at = start, 0
    while at < len(steps):
        kind, number = steps[at]
        value += number if kind == "add" else 0
        jumped = kind == "jump" or (kind == "if not" and not value % 2)
        at = number if jumped else at + 1
    assert result_of(config_of(jumping(steps)), {"u": start})["u"] == value


def test_an_action_that_jumps_back_runs_its_loop():
    # Adds 3 until the sum is even, then 100.
    steps = [("add", 3), ("if not", 3), ("jump", 0), ("add", 100)]
    assert result_of(config_of(jumping(steps)), {"u": 1})["u"] == 104
    assert result_of(config_of(jumping(steps)), {"u": 2})["u"] == 108


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int | None, int | None]]:
    """Conditions by number: where to go if a bit of ``c`` is set, where if not, always onward."""
    size = draw(st.integers(1, 16))
    return [
        tuple(
            draw(st.one_of(st.none(), st.integers(at + 1, size - 1))) if at + 1 < size else None
            for _ in range(2)
        )
        for at in range(size)
    ]


@examples(100)
@given(graphs(), st.integers(0, (1 << 16) - 1))
def test_pipelines_of_any_shape_pass_the_nodes_they_should(graph, bits: int):
    config = config_of([])
    actions, tables, conditionals = [], [], []
    name = {None: None, **{at: f"visit{at}" for at in range(len(graph))}}
    field = {"type": "field", "value": ["m", "u"]}
    for at, (yes, no) in enumerate(graph):
        add = assignment("u", node("|", field, constant(1 << at)))
        actions.append({"name": f"note{at}", "id": at, "runtime_data": [], "primitives": [add]})
        table = copy.deepcopy(config["pipelines"][0]["tables"][0])
        table.update(name=name[at], id=at, action_ids=[at], actions=[f"note{at}"])
        table["next_tables"] = {f"note{at}": f"if{at}"}
        table["default_entry"]["action_id"] = at
        tables.append(table)
        bit = node("&", {"type": "field", "value": ["m", "c"]}, constant(1 << at))
        test = node("d2b", None, bit)
        conditionals.append(
            {"name": f"if{at}", "expression": test, "true_next": name[yes], "false_next": name[no]}
        )
    config["actions"] = actions
    config["pipelines"][0].update(init_table=name[0], tables=tables, conditionals=conditionals)
    visited, at = 0, 0
    while at is not None:
        visited |= 1 << at
        at = graph[at][0 if bits >> at & 1 else 1]
    assert result_of(config, {"c": bits})["u"] == visited


def test_a_deep_pipeline_is_parted_into_functions():
    config = config_of([])
    conditionals = []
    for at in range(150):
        test = node(">", {"type": "field", "value": ["m", "c"]}, constant(at))
        following = f"if{at + 1}" if at < 149 else "run"
        conditionals.append(
            {"name": f"if{at}", "expression": test, "true_next": following, "false_next": None}
        )
    config["actions"][0]["primitives"] = [assignment("u", constant(1))]
    config["pipelines"][0].update(init_table="if0", conditionals=conditionals)
    assert result_of(config, {"c": 150})["u"] == 1
    assert result_of(config, {"c": 149})["u"] == 0


# -- what a program is told by


def test_slots_of_the_switch_are_there_even_if_the_program_lacks_the_fields():
    program, state = compiled(config_of([]))
    assert set(program.slots) == set(INTRINSIC)
    assert len(set(program.slots.values())) == len(INTRINSIC)
    packet = program.packet(b"abc", 7)
    assert packet.fields[program.slots["standard_metadata.ingress_port"]] == 7
    assert packet.fields[program.slots["standard_metadata.packet_length"]] == 3
    state.parse(packet)
    assert state.deparse(packet) == b"abc"


@pytest.mark.integration
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_no_frame_makes_a_program_fail(path: Path):
    program = load_program(path.read_bytes())
    state = program.new_state()
    rng = random.Random(path.stem)
    for size in [*range(65), *rng.choices(range(65, 300), k=40)]:
        for frame in (bytes(size), rng.randbytes(size), b"\xff" * size):
            packet = program.packet(frame, rng.randrange(64))
            state.parse(packet)
            assert packet.payload <= packet.read <= size
            state.ingress(packet)
            state.egress(packet)
            leaving = state.deparse(packet)
            rest = frame[packet.payload :]
            if packet.truncate is None:
                assert leaving.endswith(rest)
            assert all(type(value) is int for value in packet.fields)


def test_a_parser_whose_only_state_leads_to_itself_gives_the_packet_up():
    config = config_of([])
    (state,) = config["parsers"][0]["parse_states"]
    state["transitions"][0]["next_state"] = "start"
    config["errors"] = [["NoError", 1], ["ParserTimeout", 2]]
    program, states = compiled(config)
    packet = program.packet(b"abc", 0)
    states.parse(packet)
    assert packet.fields[program.slots["standard_metadata.parser_error"]] == 2


def standard(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "id": number, "header_type": "standard", "metadata": True}


def test_what_is_marked_to_drop_is_the_metadata_that_the_program_names():
    config = config_of(
        [{"op": "mark_to_drop", "parameters": [{"type": "header", "value": "copy"}]}]
    )
    form = [["egress_spec", 9, False], ["mcast_grp", 16, False]]
    config["header_types"].append({"name": "standard", "id": 1, "fields": form})
    config["headers"] += [standard("standard_metadata", 1), standard("copy", 2)]
    program, state = compiled(config)
    packet = program.packet(b"", 0)
    names = [(header, field) for header in ("standard_metadata", "copy") for field, *_ in form]
    for name in names:
        packet.fields[program.field_slot(*name)] = 7
    state.ingress(packet)
    assert [packet.fields[program.field_slot(*name)] for name in names] == [7, 7, 511, 0]


@pytest.mark.integration
@pytest.mark.parametrize("path", KINDS, ids=lambda path: path.stem)
def test_json_of_an_older_p4c_loads_as_in_bmv2(path: Path):
    """It has no version, no types of transitions, and the names of a table's actions alone."""
    config = json.loads(path.read_text())
    tables = [table for pipeline in config["pipelines"] for table in pipeline["tables"]]
    # There an action is told by its name, so that a name is of one.
    own = {each["id"]: f"{each['name']} {each['id']}" for each in config["actions"]}
    for action in config["actions"]:
        action["name"] = own[action["id"]]
    for table in tables:
        nexts = table["next_tables"]
        for number, name in zip(table["action_ids"], table["actions"], strict=True):
            if name in nexts:
                nexts[own[number]] = nexts.pop(name)
        table["actions"] = [own[number] for number in table["action_ids"]]
    newer = json.dumps(config)
    del config["__meta__"]
    for table in tables:
        del table["action_ids"]
    for state in config["parsers"][0]["parse_states"]:
        for transition in state["transitions"]:
            if transition["type"] != "parse_vset" and transition.pop("type") == "default":
                transition["value"] = "default"
    older = json.dumps(config).encode()
    assert load_program(older).source == load_program(newer.encode()).source
    assert read_program(older) == read_program(newer.encode())


@pytest.mark.integration
@pytest.mark.parametrize("path", KINDS, ids=lambda path: path.stem)
def test_marks_of_statements_change_nothing(path: Path):
    plain = load_program(path.read_bytes())
    marked = load_program(path.read_bytes(), coverage=True)
    assert not plain.coverage_points
    states = plain.new_state(), marked.new_state()
    rng = random.Random(1)
    for _ in range(30):
        frame = rng.randbytes(rng.randrange(200))
        packets: list[Packet] = []
        for program, state in zip((plain, marked), states, strict=True):
            packet = program.packet(frame, 3)
            packets.append(packet)
            state.parse(packet)
            state.ingress(packet)
        one, other = packets
        if not one.impure:  # else the clock and chance have a part in it
            assert one.fields == other.fields
    assert marked.covered
    assert marked.covered <= marked.coverage_points.keys()


@pytest.mark.integration
@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
@pytest.mark.parametrize("most", [400_000, pytest.param(2_000_000, marks=pytest.mark.long)])
def test_a_damaged_program_is_refused_or_runs(path: Path, most: int):
    whole = json.loads(path.read_text())
    rng = random.Random(path.stem)
    # Large programs take longer, and their parts are of the same kinds as those of small ones.
    for _ in range(max(most // 400_000, min(20, most // path.stat().st_size))):
        config = copy.deepcopy(whole)
        place: Any = config
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = rng.choice(keys)
            if not isinstance(place[key], dict | list) or not place[key] or rng.random() < 0.1:
                place[key] = rng.choice([None, 0, "nothing", [], {}, -1, "0xzz"])
                break
            place = place[key]
        try:
            program = load_program(json.dumps(config).encode())
        except SwitchError as error:
            assert error.what == "WRONG_PROGRAM"
            continue
        program.new_state()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"extern_instances": [{"name": "spy"}]}, "spy"),
        ({"__meta__": {"version": [3, 0]}}, "format"),
        ({"pipelines": []}, "ingress"),
        ({"parsers": []}, "malformed"),
    ],
)
def test_what_cannot_run_is_named(change: dict[str, Any], word: str):
    with pytest.raises(SwitchError, match=word) as raised:
        compiled(config_of([], **change))
    assert raised.value.what == "WRONG_PROGRAM"


@pytest.mark.parametrize(
    "primitive",
    [
        {"op": "fly", "parameters": []},
        {"op": "count", "parameters": [{"type": "counter_array", "value": "birds"}, constant(0)]},
        {"op": "assign", "parameters": [constant(0), constant(1)]},
        {"op": "assign", "parameters": [constant(0)]},
        assignment("nothing", constant(1)),
        assignment("u", node("fly", None, constant(1))),
    ],
)
def test_an_unknown_statement_is_refused(primitive: dict[str, Any]):
    with pytest.raises(SwitchError) as raised:
        compiled(config_of([primitive]))
    assert raised.value.what == "WRONG_PROGRAM"


def first_entry(config: Any) -> Any:
    tables = [table for each in config["pipelines"] for table in each["tables"]]
    return next(table["entries"] for table in tables if table.get("entries"))[0]


def field_of(config: Any, name: str) -> Any:
    """Name, width and sign of a field."""
    fields = [field for each in config["header_types"] for field in each["fields"]]
    return next(field for field in fields if field[0] == name)


@pytest.mark.parametrize(
    ("program", "change", "words"),
    [
        ("tables", lambda c: first_entry(c)["match_key"][0].pop("match_type"), "table 'ingress."),
        ("tables", lambda c: first_entry(c)["match_key"].pop(), "table 'ingress."),
        (
            "tables",
            lambda c: first_entry(c)["match_key"][0].update(match_type="valid"),
            "by 'valid'",
        ),
        ("tables", lambda c: first_entry(c).pop("action_entry"), "table 'ingress."),
        ("tables", lambda c: first_entry(c)["action_entry"].update(action_id=999), "ingress."),
        ("tables", lambda c: first_entry(c)["action_entry"]["action_data"].append("0x1"), "ingr"),
        ("tables", lambda c: c.update(__meta__={"version": 2}), "__meta__"),
        *(
            (
                "arithmetic",
                lambda c, width=width: field_of(c, "signed_comparisons").__setitem__(1, width),
                words,
            )
            for width, words in (
                (0, "'signed_comparisons' has 0 bits"),
                (True, "'signed_comparisons' has True bits"),
                (7, "do not add up to whole bytes"),
                (1 << 40, "'signed_comparisons' has"),
                ("*", "not add up to whole bytes"),
            )
        ),
        (
            "arithmetic",
            lambda c: [
                field_of(c, "signed_comparisons").__setitem__(1, "*"),
                field_of(c, "padding").__setitem__(1, 13),
            ],
            "field 'signed_comparisons'",
        ),
    ],
)
def test_a_part_that_would_fail_with_the_first_frame_is_refused_at_once(
    program: str, change: Any, words: str
):
    config = json.loads((COMPILED_TEST_P4 / f"feature_{program}.json").read_text())
    change(config)
    with pytest.raises(SwitchError, match=words) as raised:
        load_program(json.dumps(config).encode())
    assert raised.value.what == "WRONG_PROGRAM"


@pytest.mark.parametrize("key", ["size", "bitwidth"])
def test_no_text_of_a_program_is_run_as_python(key: str):
    register = {"name": "r", "id": 0, "size": 4, "bitwidth": 8, key: "(covered(99) or 4)"}
    with pytest.raises(SwitchError, match="integer"):
        compiled(config_of([], register_arrays=[register]))


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b"{}", b"null", b"[" * 99999, b'{"a":1.5}'])
def test_what_is_no_program_is_refused(text: bytes):
    with pytest.raises(SwitchError, match="BMv2 JSON"):
        load_program(text)


def test_action_profiles_are_refused_by_name():
    config = config_of([])
    config["pipelines"][0]["action_profiles"] = [{"name": "choose"}]
    with pytest.raises(SwitchError, match="choose"):
        compiled(config)
