"""``stackcast filters`` on rules that would multiply: what goes where, and why."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from filter_commands import lines, match, run, write

from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

ELEVEN = [f"f{at}" for at in range(11)]
MANY_FIELDS = (
    f"header_type e_t {{ fields {{ {' '.join(f'{name}: 32;' for name in ELEVEN)} dst: 128; }} }}\n"
    f"header e_t e;\n{' '.join(f'@query_field(e.{name})' for name in [*ELEVEN, 'dst'])}\n"
)


def test_rules_that_each_ask_for_another_field_cost_a_row_each(tmp_path: Path):
    text = "\n".join(f"{ELEVEN[at % 11]} == 33 : fwd(h{at})" for at in range(40))
    result = run("compile", *write(tmp_path, text, MANY_FIELDS), "--report")
    rows = lines(result)
    assert len(rows) < 200 and "40 rules compiled in" in result.stderr
    terms = [row for row in rows if "predicates" in row]
    assert sorted((row["ports"], row["predicates"][0]["text"]) for row in terms) == sorted(
        ([f"h{at}"], f"e.{ELEVEN[at % 11]} == 33") for at in range(40)
    )
    assert f"{len(terms)} terms of 11 forms" in result.stderr
    automatic = lines(run("compile", *write(tmp_path, text, MANY_FIELDS), "--order", "auto"))
    assert len(automatic) == len(rows)


@pytest.mark.integration
@pytest.mark.parametrize("keeping", [0, 40], ids=["state in the diagram", "in an index"])
def test_events_go_through_the_diagram_and_the_indexes_and_all_are_explained(
    tmp_path: Path, keeping: int
):
    draw = random.Random(7)

    def predicate() -> str:
        name = draw.choice([*ELEVEN, "dst"])
        constant = f"::{draw.randrange(4)}" if name == "dst" else draw.randrange(4)
        return f"{name} {draw.choice(['==', '!=', '>', '<'])} {constant}"

    rules = [
        f"{predicate()} {draw.choice(['and', 'or'])} not {predicate()} : "
        + draw.choice([f"fwd({at})", f"{{fwd({at % 3}, h{at}); log({at % 5})}}"])
        for at in range(60)
    ]
    rules += ["count(1000000) > 3 : fwd(70)", "f0 >= 0 : fwd(71)"]
    rules += [
        f"{predicate()} and not {predicate()} and sum(f{at % 11}, 1000000) > {draw.randrange(9)}"
        f" : fwd({at + 72})"
        for at in range(keeping)
    ]
    text = "\n".join(rules)
    events = [
        {name: draw.randrange(4) for name in [*ELEVEN, "dst"] if draw.random() < 0.8}
        for _ in range(80)
    ]
    given = "\n".join(map(json.dumps, events))
    found = lines(match(tmp_path, text, given, "--with-rules", spec=MANY_FIELDS))
    specification = parse_specification(MANY_FIELDS, "x")
    read = Interpreter([parse_rule(rule, specification) for rule in rules], specification)
    for event, told in zip(events, found, strict=True):
        step = read.step({f"e.{name}": raw for name, raw in event.items()})
        assert tuple(map(str, told["ports"])) == step.receivers
        assert told["actions"] == [[call.name, *map(int, call.args)] for call in step.calls]
        assert tuple(told["rules"]) == step.rules
    arguments = write(tmp_path, text, MANY_FIELDS)
    after = tmp_path / "after.jsonl"
    after.write_text("".join(f"{json.dumps(event)}\n" for event in events[:-1]))
    last = "--event", json.dumps(events[-1]), "--after", str(after), "--all"
    (told,) = lines(run("explain", *arguments, *last, "--json"))
    assert (told["ports"], told["actions"]) == (found[-1]["ports"], found[-1]["actions"])
    assert [rule["rule"] for rule in told["rules"] if rule["matches"]] == found[-1]["rules"]
    from_index = {port for term in told["index"] for port in term["ports"]}
    assert from_index and {*told["at_leaf"]["ports"], *from_index} == {*told["ports"]}
    shown = run("explain", *arguments, *last).stdout
    assert "terms of the index that are true" in shown and "together: fwd(" in shown
    assert "matched by the index" in run("explain", *arguments, "--rule", "0").stdout
    counting = run("explain", *arguments, "--rule", "60").stdout
    assert ("matched by the index" in counting) is bool(keeping)
    rows = run("compile", *arguments, "--report")
    cells = [row["cell"] for row in lines(rows) if "cell" in row]
    asked = {each["field"] for row in lines(rows) for each in row.get("predicates", ())}
    assert len(cells) > keeping / 2 and asked.issuperset(cells) is bool(keeping)
    assert ("index of rules with state: " in rows.stderr) is bool(keeping)


def test_a_host_is_told_which_clauses_of_its_rules_failed(tmp_path: Path):
    draw = random.Random(9)
    clauses = [
        [f"f{draw.randrange(3)} {draw.choice(['==', '>', '!='])} {draw.randrange(4)}" for _ in "ab"]
        for _ in range(6)
    ]
    rules = [f"{' and '.join(both)} : fwd({at % 2}, h9)" for at, both in enumerate(clauses)]
    rules.append("not f0 > 1 or f1 == 0 : fwd(0)")
    events = [
        {name: draw.randrange(4) for name in ELEVEN[:3] if draw.random() < 0.8} for _ in range(50)
    ]
    source = tmp_path / "events.jsonl"
    source.write_text("\n".join(map(json.dumps, events)))
    arguments = [*write(tmp_path, "\n".join(rules), MANY_FIELDS), "--events", str(source)]
    specification = parse_specification(MANY_FIELDS, "x")
    raw = [{f"e.{name}": value for name, value in event.items()} for event in events]

    def count(text: str, among: list[dict[str, int]]) -> int:
        return sum(matches(parse_rule(text, specification).condition, event) for event in among)

    found = lines(run("why-not", *arguments, "--host", "0", "--json"))
    assert [rule["rule"] for rule in found] == [0, 2, 4, 6]
    for rule in found:
        text = rules[rule["rule"]]
        condition = parse_rule(text, specification).condition
        others = [event for event in raw if not matches(condition, event)]
        assert (rule["tried"], rule["matched"]) == (50, 50 - len(others))
        for predicate in rule["predicates"]:
            held = predicate["text"]
            assert predicate["true"] == count(held, others)
            assert predicate["false"] == count(f"not {held}", others)
            assert predicate["true"] + predicate["false"] + predicate["unknown"] == len(others)
        if rule["rule"] < 6:
            assert [each["text"] for each in rule["predicates"]] == clauses[rule["rule"]]
            # Of two that are unknown neither decides alone.
            pair = clauses[rule["rule"]]
            both = sum(1 for event in others if not any(count(each, [event]) for each in pair))
            decided = [each["decided"] for each in rule["predicates"]]
            assert len(others) <= sum(decided) <= len(others) + both
    shown = run("why-not", *arguments, "--host", "0").stdout
    assert f"matched {found[0]['matched']} of 50 events" in shown
    assert "forwards to h8" in run("why-not", *arguments, "--host", "h8").stdout


def test_a_rule_with_state_is_told_of_as_events_find_the_state(tmp_path: Path):
    events = "\n".join(json.dumps({"price": 5, "time_us": at}) for at in range(5))
    arguments = [*write(tmp_path, "price > 1 and count() >= 3 : fwd(1)"), "--events", "-"]
    (rule,) = lines(run("why-not", *arguments, "--host", "1", "--json", stdin=events))
    assert (rule["tried"], rule["matched"]) == (5, 2)


def eleven(tmp_path: Path, rules: Iterable[str]) -> list[str]:
    """Options for rules over a format of eleven fields."""
    fields = [f"f{at}" for at in range(11)]
    text = (
        f"header_type e_t {{ fields {{ {' '.join(f'{name}: 32;' for name in fields)} }} }}\n"
        "header e_t e;\n" + "\n".join(f"@query_field(e.{name})" for name in fields)
    )
    return write(tmp_path, "\n".join(rules), text)


def test_rules_that_would_multiply_add_up_in_a_switch_too(tmp_path: Path):
    rules = [f"f{at % 11} == 33 : fwd({at + 1})" for at in range(40)]
    switch = tmp_path / "x.p4"
    result = run("compile", *eleven(tmp_path, rules), "--p4", str(switch), "--report")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) < 400
    found = [json.loads(line) for line in switch.read_text().splitlines()]
    assert len([row for row in found if "table" in row]) < 400


def test_a_rule_that_a_switch_has_no_room_for_is_named_and_the_others_are_written(tmp_path: Path):
    chance = random.Random(1)
    rules = []
    for at in range(400):
        one, other = chance.sample(range(11), 2)
        rules.append(f"f{one} == {at} and f{other} > {chance.randrange(1 << 30)} : fwd(1)")
    rules.append("f3 == 5 : fwd(2)")
    switch = tmp_path / "x.p4"
    result = run("compile", *eleven(tmp_path, rules), "--p4", str(switch))
    assert result.exit_code == 1
    told = [line for line in result.stderr.splitlines() if "no room for this rule" in line]
    assert 0 < len(told) < 400 and told[0].split(":")[1].isdigit()
    assert not any(f":{len(rules)}:" in line for line in told)
    assert any("table" in json.loads(line) for line in switch.read_text().splitlines())
