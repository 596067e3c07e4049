"""``stackcast filters``: what people type, and what they get."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest
from filter_commands import CAMUS, EXAMPLES, lines, match, run, write

from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

FAULTY = """# two are wrong
stock == GOOGL and prise > 50 : fwd(1)

shares > 1 : fwd(2)
(shares > 2 or
   price > 99999999999)
"""


def test_check_shows_place_caret_and_suggestion_of_every_fault(tmp_path: Path):
    result = run("check", *write(tmp_path, FAULTY))
    assert result.exit_code == 1
    file = tmp_path / "x.rules"
    first, text, caret, second, _, other, last = result.stdout.splitlines()
    assert first.startswith(f"{file}:2:20: SUBSCRIPTION.UNKNOWN_FIELD: ")
    assert first.endswith("did you mean 'price'?")
    assert text.index("prise") == caret.index("^")
    assert second.startswith(f"{file}:6:12: SUBSCRIPTION.BAD_CONSTANT: ")
    assert other.strip() == "^"
    assert last == f"{file}: 1 of 3 rules are valid"


def test_check_as_json_has_one_object_a_fault_and_a_summary(tmp_path: Path):
    result = run("check", *write(tmp_path, FAULTY), "--json")
    first, second, summary = lines(result)
    assert (first["rule"], first["line"], first["column"]) == (0, 2, 20)
    assert first["suggestion"] == "price" and second["rule"] == 2
    assert first["severity"] == second["severity"] == "error"
    assert summary == {"rules": 3, "faulty": 2, "warnings": 0} and result.exit_code == 1


@pytest.mark.parametrize("more", [0, 2000])
def test_check_warns_of_rules_that_are_most_likely_not_meant(tmp_path: Path, more: int):
    """Many rules are looked through as columns, few one by one: both find the same."""
    others = "".join(f"stock == S{n % 7} and price > {n + 1} : fwd(1)\n" for n in range(more))
    rules = "# mine\nstock == GOO* : fwd(1)\nprice > 5\n  and price < 5\nprise > 1\nshares > 1\n"
    files = write(tmp_path, rules + others)
    result = run("check", *files)
    assert result.exit_code == 1
    fault, _, _, pattern, text, caret, never, *_, last = result.stdout.splitlines()
    assert "5:1: SUBSCRIPTION.UNKNOWN_FIELD" in fault
    assert "2:10: warning: SUBSCRIPTION.PATTERN_CONSTANT: 'GOO*' is compared literally" in pattern
    assert text.index("GOO*") == caret.index("^")
    assert "3:1: warning: SUBSCRIPTION.NEVER_TRUE" in never
    assert last.endswith(f"{3 + more:,} of {4 + more:,} rules are valid; warnings: 2")
    *_, warning, summary = lines(run("check", *files, "--json"))
    assert (warning["severity"], warning["rule"], warning["line"]) == ("warning", 1, 3)
    assert summary == {"rules": 4 + more, "faulty": 1, "warnings": 2}


def test_check_warns_of_a_variable_that_no_rule_of_the_file_updates(tmp_path: Path):
    rules = "# mine\nshares > 1\n  and my_counter > 5 : fwd(1)\n"
    warning, text, caret, last = run("check", *write(tmp_path, rules)).stdout.splitlines()
    assert "3:7: warning: SUBSCRIPTION.NEVER_UPDATED: no rule updates" in warning
    assert text.index("my_counter") == caret.index("^") and last.endswith("warnings: 1")
    files = write(tmp_path, f"{rules}all : my_counter <- count()\n")
    assert run("check", *files).stdout.endswith("2 of 2 rules are valid\n")


def test_all_is_for_every_event_also_where_no_rule_asks_for_a_field(tmp_path: Path):
    files = write(tmp_path, "all : fwd(1)\nnot all : fwd(2)\n")
    events = '{"stock": "GOOGL"}\n{}\n{"shares": 5}\n'
    result = run("match", *files, "--events", "-", "--with-rules", stdin=events)
    assert lines(result) == [{"ports": [1], "actions": [], "rules": [0]}] * 3


def test_warnings_alone_are_no_failure_unless_asked_for(tmp_path: Path):
    files = write(tmp_path, "stock == NULL : fwd(1)\n")
    assert run("check", *files).exit_code == 0
    assert run("check", *files, "--strict").exit_code == 1


def test_rules_that_are_right_pass():
    result = run("check", *CAMUS)
    assert result.exit_code == 0 and "3 of 3 rules are valid" in result.stdout


def test_a_file_without_rules_says_so(tmp_path: Path):
    result = run("check", *write(tmp_path, "# none yet\n"))
    assert result.exit_code == 0 and result.stdout.startswith("no rules in ")


def test_rules_of_a_shipped_format_are_found_by_its_name(tmp_path: Path):
    (tmp_path / "x.rules").write_text("stock == GOOGL and price > 50.25 : fwd(1)")
    rules = str(tmp_path / "x.rules")
    event = '{"stock": "GOOGL", "price": 502501}\n{"stock": "GOOGL", "price": 502500}'
    result = run("match", "--format", "itch", "--rules", rules, "--events", "-", stdin=event)
    assert [row["ports"] for row in lines(result)] == [[1], []]
    assert run("check", "--format", "nope", "--rules", rules).exit_code == 2


def test_compile_gives_the_tables_of_camus_figure_4():
    result = run("compile", *CAMUS)
    rows = lines(result)
    entries, leaves = rows[: 5 + 2], rows[7:]
    assert [(r["field"], r["state"], r["kind"], r["next"]) for r in entries] == [
        ("add_order.shares", 0, "range", 1),
        ("add_order.shares", 0, "range", 2),
        ("add_order.shares", 0, "default", 6),
        ("add_order.stock", 1, "exact", 3),
        ("add_order.stock", 1, "default", 6),
        ("add_order.stock", 2, "exact", 4),
        ("add_order.stock", 2, "default", 5),
    ]
    assert (entries[0]["low"], entries[0]["high"]) == (0, 59)
    assert leaves == [
        {"state": 3, "ports": [3], "actions": []},
        {"state": 4, "ports": [1, 2], "actions": []},
        {"state": 5, "ports": [1], "actions": []},
        {"state": 6, "ports": [], "actions": []},
    ]


def test_what_compile_writes_beside_the_rows_leaves_them_alone(tmp_path: Path):
    picture, switch = tmp_path / "x.dot", tmp_path / "x.p4"
    plain = run("compile", *CAMUS)
    result = run("compile", *CAMUS, "--dot", str(picture), "--report", "--p4", str(switch))
    assert result.exit_code == 0 and result.stdout == plain.stdout
    assert "10 entries" in result.stderr
    assert picture.read_text().startswith("digraph")
    found = [json.loads(line) for line in switch.read_text().splitlines()]
    groups = [line for line in found if "group" in line]
    assert [(line["group"], line["ports"]) for line in groups] == [
        *((1, [1]), (2, [2]), (3, [1, 2]), (4, [3])),
        *((5, [1, 3]), (6, [2, 3]), (7, [1, 2, 3])),
    ]
    assert found[:7] == groups
    (row,) = [
        row for row in found[7:] if row["match"][-1].get("range") == {"low": "00", "high": "3b"}
    ]
    assert row["priority"] > 0 and row["table"].endswith(".range")


def test_the_order_of_the_tables_can_be_set():
    first = lines(run("compile", *CAMUS, "--order", "stock,shares"))[0]
    assert first["field"] == "add_order.stock"
    automatic = run("compile", *CAMUS, "--order", "auto")
    assert len(automatic.stdout) <= len(run("compile", *CAMUS).stdout)


def test_a_field_is_named_once_in_an_order():
    result = run("compile", *CAMUS, "--order", "stock,add_order.stock")
    assert result.exit_code == 2 and "add_order.stock twice" in result.stderr


def test_leaves_tell_their_updates_and_the_cells_follow(tmp_path: Path):
    rules = "stock == GOOGL and avg(price) > 50 : fwd(1)\nshares > 3 : my_counter <- count()"
    rows = lines(run("compile", *write(tmp_path, rules)))
    leaves = [row for row in rows if "ports" in row]
    cells = [row for row in rows if "cell" in row]
    name = "avg(add_order.price) per 100 us where add_order.stock == GOOGL"
    assert cells == [
        {"cell": name, "function": "avg", "field": "add_order.price", "window_us": 100},
        {"cell": "my_counter", "function": "count", "field": None, "window_us": 100},
    ]
    assert rows == [*rows[: -len(leaves) - 2], *leaves, *cells]
    mean, count = [name, "avg", "add_order.price"], ["my_counter", "count", None]
    told = [(row["ports"], row.get("updates")) for row in leaves]
    assert sorted(told, key=str) == sorted(
        [
            ([], None),
            ([], [count]),
            ([], [mean]),
            ([1], [mean]),
            ([], [mean, count]),
            ([1], [mean, count]),
        ],
        key=str,
    )


WIDE = """header_type t { fields { a: 8; b: 8; net: 32; dst: 128; } }
header t h;
@query_field(h.a) @query_field(h.b) @query_field_lpm(h.net) @query_field(h.dst)
"""


def walk(rows: list[dict[str, Any]], event: dict[str, int]) -> list[Any]:
    """Where an event ends that is walked over the rows as they are documented."""
    state = rows[0]["state"]
    while here := [row for row in rows if row["state"] == state and "next" in row]:
        name, _, half = here[0]["field"].removeprefix("h.").partition("[")
        value = event.get(name)
        if half and value is not None:
            high, low = map(int, half.rstrip("]").split(":"))
            value = value >> low & (1 << high - low + 1) - 1
        by = {row["kind"]: row["next"] for row in here}
        fits = [
            row
            for row in here
            if value is not None
            and row["low"] <= value <= row["high"]
            and row["kind"] not in ("default", "absent")
        ]
        state = by.get("absent", by.get("default")) if value is None else by.get("default")
        if fits:
            state = min(fits, key=lambda row: row["high"] - row["low"])["next"]
    (leaf,) = [row for row in rows if row["state"] == state]
    return list(leaf["ports"])


@pytest.mark.parametrize("seed", range(12))
def test_partial_rows_walk_an_event_to_where_match_sends_it(tmp_path: Path, seed: int):
    draw = random.Random(seed)
    constants = {
        "a": ["0", "5", "200", "255"],
        "b": ["0", "1", "255"],
        "net": ["10.0.0.0", "10.1.2.3", "10.1.0.0"],
        "dst": ["::", "::1", "1::", "2001:db8::1", "::1:0:0:0:0"],
    }

    def test_() -> str:
        name = draw.choice(list(constants))
        if name == "net" and draw.random() < 0.5:
            return f"net {draw.choice(['==', '!='])} 10.{draw.choice(['0.0.0/8', '1.0.0/16'])}"
        operators = ["==", "!="] if name == "net" else ["==", "!=", "<=", ">"]
        return f"{name} {draw.choice(operators)} {draw.choice(constants[name])}"

    rules = []
    for port in range(5):
        rules.append(f"{test_()} {draw.choice(['and', 'or'])} not {test_()} : fwd({port})")
    specification = parse_specification(WIDE, "wide")
    events = [
        {name: draw.choice(texts) for name, texts in constants.items() if draw.random() < 0.7}
        for _ in range(60)
    ]
    raw = [
        {
            name: int(v) if name in "ab" else specification.field(name).from_raw(v)
            for name, v in event.items()
        }
        for event in events
    ]
    text = "\n".join(rules)
    rows = lines(run("compile", *write(tmp_path, text, WIDE), "--partial"))
    found = lines(match(tmp_path, text, "\n".join(map(json.dumps, raw)), "--with-rules", spec=WIDE))
    for event, told in zip(raw, found, strict=True):
        assert walk(rows, event) == told["ports"] == told["rules"]


def test_rows_of_a_switch_take_the_only_header_as_whole(tmp_path: Path):
    arguments = write(tmp_path, "price != 5 : fwd(1)")
    whole, partial = (
        lines(run("compile", *arguments)),
        lines(run("compile", *arguments, "--partial")),
    )
    assert [row["kind"] for row in whole[:-2]] == ["exact", "default"]
    assert [row["kind"] for row in partial[:-2]] == ["range", "range", "default"]
    assert lines(match(tmp_path, "price != 5 : fwd(1)", '{"shares": 5}'))[0]["ports"] == []
    (told,) = lines(run("explain", *arguments, "--event", '{"shares": 5}', "--json"))
    assert told["ports"] == [] and [rule["matches"] for rule in told["rules"]] == [False]


def test_match_prints_a_line_an_event_and_goes_on_after_bad_ones():
    result = run("match", *CAMUS, "--events", str(EXAMPLES / "camus.events.jsonl"))
    *good, bad = lines(result)
    assert [row["ports"] for row in good] == [[1, 2], [1], [3], [], [1], []]
    assert bad["line"] == 7 and "negative" in bad["error"] and result.exit_code == 1


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("{", "JSON"),
        ("[1]", "object"),
        ('{"prise": 1}', "prise"),
        ('{"price": 4294967296}', "32 bits"),
        ('{"price": 1.5}', "1.5"),
        ('{"price": true}', "true"),
        ('{"stock": "GOOGLGOOGL"}', "GOOGLGOOGL"),
        ('{"price": 1, "add_order.price": 1}', "twice"),
        ('{"shares": 5, "shares": 500}', "shares twice"),
        ('{"shares": null, "shares": 500}', "twice"),
        ('{"stock": "GÖÖG"}', "non-ASCII"),
        ('{"time_us": -1}', "microseconds"),
        ("[" * 100_000, "JSON"),
        ('{"price": ' + "9" * 5000 + "}", ""),
        ('{"' + "x" * (1 << 20) + '": 1}', "bytes"),
    ],
)
def test_a_bad_event_is_told_and_costs_no_other(tmp_path: Path, event: str, words: str):
    good = '{"shares": 200}'
    result = match(tmp_path, "shares > 100 : fwd(7)", f"{good}\n{event}\n\n{good}\n")
    before, bad, after = lines(result)
    assert before == after == {"ports": [7], "actions": []}
    assert words in bad["error"] and bad["line"] == 2 and result.exit_code == 1


def test_bytes_that_are_no_text_are_a_bad_event(tmp_path: Path):
    arguments = write(tmp_path, "shares > 100 : fwd(7)")
    result = run("match", *arguments, "--events", "-", stdin=b'\xff\xfe\n{"shares": 101}')
    bad, good = lines(result)
    assert bad["line"] == 1 and good["ports"] == [7]


TYPED = """header_type a_t { fields { @string kind: 8; x: 8; } }
header_type b_t { fields { @string kind: 8; y: 8; } }
@message_type("A") header a_t a;
@message_type("B") header b_t b;
"""


def test_the_header_that_is_named_says_the_message_type(tmp_path: Path):
    events = [
        '{"x": 1}',
        '{"y": 1}',
        "{}",
        '{"x": 1, "y": 1}',
        '{"a.kind": "B"}',
        '{"a.kind": "A"}',
    ]
    rules = "x >= 0 : fwd(1)\nnot y > 3 : fwd(2)\na.kind == A : fwd(3)"
    result = match(tmp_path, rules, "\n".join(events), spec=TYPED)
    found = lines(result)
    assert [row.get("ports") for row in found] == [[1, 3], [2], [], None, None, [3]]
    assert "an event is a message of one type" in found[3]["error"]


def test_actions_have_numbers_and_texts_and_updates_are_not_told(tmp_path: Path):
    rules = (
        "shares > 1 : {answerDNS(10.0.0.97); log(7, x, 007)}\nshares > 2 : fwd(12, 3, h1)\n"
        "price > 0 : my_counter <- count()"
    )
    result = match(tmp_path, rules, '{"shares": 3, "price": 1}')
    assert lines(result) == [
        {
            "ports": [3, 12, "h1"],
            "actions": [["answerDNS", "10.0.0.97"], ["log", 7, "x", "007"]],
        }
    ]


def test_a_change_is_told_in_tables_events_and_explanations(tmp_path: Path):
    arguments = write(tmp_path, "stock == A and moved(price, 3) : fwd(1)")
    name = "moved(add_order.price, 3) where add_order.stock == A"
    (cell,) = [row for row in lines(run("compile", *arguments)) if "cell" in row]
    assert cell == {"cell": name, "function": "moved", "field": "add_order.price", "band": 3}
    prices = [9, 11, 50, 12, 9, 9]
    events = [{"stock": stock, "price": p} for stock, p in zip("AABAAA", prices, strict=True)]
    text = "\n".join(map(json.dumps, [*events, {"stock": "A"}]))
    found = lines(match(tmp_path, "stock == A and moved(price, 3) : fwd(1)", text))
    assert [row["ports"] for row in found] == [[1], [], [], [1], [1], [], []]
    before = tmp_path / "before"
    before.write_text("\n".join(map(json.dumps, events)))
    for price, said in ((11, "false"), (12, "true"), (None, "unknown")):
        event = json.dumps({"stock": "A", "price": price})
        told = run("explain", *arguments, "--event", event, "--after", str(before), "--json")
        (rule,) = json.loads(told.stdout)["rules"]
        assert [each["truth"] for each in rule["predicates"]] == ["true", said]
        assert rule["predicates"][1]["text"] == name


def test_rules_with_state_see_the_events_in_order(tmp_path: Path):
    times = [0, 10, 20, 30, 40, 99, 100, 90]
    prices = [60, 20, 999, 90, 70, 80, 80, 40]
    events = [
        json.dumps({"stock": "MSFT" if t == 20 else "GOOGL", "price": p, "time_us": t})
        for t, p in zip(times, prices, strict=True)
    ]
    rule = "stock == GOOGL and avg(price) > 50 : fwd(1)"
    result = match(tmp_path, rule, "\n".join(events), "--with-rules")
    yes = [1, 4, 5, 7]  # docs/reference/rule-language.md, "State"
    assert [i for i, row in enumerate(lines(result)) if row["ports"]] == yes
    assert [i for i, row in enumerate(lines(result)) if row["rules"]] == yes


@pytest.mark.parametrize("stateful", [False, True])
def test_tables_and_trees_agree_over_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stateful: bool
):
    monkeypatch.setattr("stackcast.cli.filters.event_matching.BATCH", 7)
    draw = random.Random(3)
    rules = [
        f"shares > {draw.randrange(9)} and stock != S{draw.randrange(3)} : fwd({i})"
        for i in range(6)
    ]
    rules += ["not (price < 4) or shares == 3 : fwd(8)"]
    if stateful:
        rules += ["shares > 3 and sum(price) > 20 : fwd(9)", "price > 5 : my_counter <- count()"]
        rules += ["my_counter > 2 : fwd(10)", "stock == S1 and not moved(price, 3) : fwd(11)"]
    events = [
        {
            name: value
            for name, value in (
                ("shares", draw.randrange(10)),
                ("price", draw.randrange(8)),
                ("stock", f"S{draw.randrange(3)}"),
                ("time_us", draw.randrange(300)),
            )
            if draw.random() < 0.8
        }
        for _ in range(60)
    ]
    found = lines(
        match(tmp_path, "\n".join(rules), "\n".join(map(json.dumps, events)), "--with-rules")
    )
    spec = parse_specification((EXAMPLES / "camus.spec").read_text(), "camus")
    parsed = [parse_rule(text, spec) for text in rules]
    interpreter = Interpreter(parsed, spec)
    for event, row in zip(events, found, strict=True):
        raw = {
            spec.field(name).qualified: spec.field(name).from_raw(value)
            for name, value in event.items()
            if name != "time_us"
        }
        step = interpreter.step(raw, event.get("time_us", 0))
        assert row["rules"] == list(step.rules)
        assert row["ports"] == [int(name) for name in step.receivers]
        if not stateful:
            assert step.rules == tuple(
                i for i, rule in enumerate(parsed) if matches(rule.condition, raw)
            )


@pytest.mark.integration
def test_lines_are_printed_before_all_events_are_there(tmp_path: Path):
    arguments = write(tmp_path, "shares > 100 : fwd(7)")
    command = [
        sys.executable,
        "-m",
        "stackcast.cli.main",
        "filters",
        "match",
        *arguments,
        "--events",
        "-",
    ]
    root = EXAMPLES.parents[1]
    with Popen([*command, "--with-rules"], stdin=PIPE, stdout=PIPE, cwd=root) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write(b'{"shares": 101}\n' * 256)
        running.stdin.flush()
        assert json.loads(running.stdout.readline())["rules"] == [0]
        running.stdin.close()
        assert len(running.stdout.readlines()) == 255
    assert running.returncode == 0


def test_nothing_is_done_with_a_faulty_file_unless_told(tmp_path: Path):
    refused = match(tmp_path, FAULTY, '{"shares": 2}')
    assert refused.exit_code == 1 and refused.stdout == ""
    assert ":2:20: SUBSCRIPTION.UNKNOWN_FIELD" in refused.stderr
    taken = match(tmp_path, FAULTY, '{"shares": 2}', "--skip-faulty", "--with-rules")
    assert lines(taken) == [{"ports": [2], "actions": [], "rules": [1]}] and taken.exit_code == 0


def test_explain_tells_the_way_of_an_event_and_what_decided():
    event = '{"shares": 200, "stock": "MSFT"}'
    text = run("explain", *CAMUS, "--event", event).stdout
    for words in (
        "shares >= 101 -> 2",
        "leaf 4: fwd(1, 2)",
        "value MSFT",
        "* false    shares < 60",
    ):
        assert words in text
    (found,) = lines(run("explain", *CAMUS, "--event", event, "--json"))
    assert [rule["matches"] for rule in found["rules"]] == [True, True, False]
    assert found["ports"] == [1, 2] and found["leaf"] == 4
    assert [step["next"] for step in found["path"]] == [2, 4]
    assert "message_type" not in text


def test_a_symbol_is_told_as_text_and_a_number_stays_one(tmp_path: Path):
    specification = """header_type t { fields { stock: 64; price: 32; } } header t h;
    @query_field_exact(h.stock) @query_field(h.price)"""
    arguments = write(tmp_path, "stock == GOOGL and price > 0x50 : fwd(1)", specification)
    event = '{"stock": "GOOGL", "price": 100}'
    text = run("explain", *arguments, "--event", event).stdout
    assert "stock == GOOGL -> " in text and "price >= 81 -> " in text
    rows = lines(run("compile", *arguments))
    assert {row["low"] for row in rows if row.get("kind") == "exact"} == {5138412867491471392}


def test_of_many_rules_explain_tells_those_that_match_and_a_few_others(tmp_path: Path):
    draw = random.Random(7)
    texts = [
        f"stock == S{draw.randrange(5)} and price > {draw.randrange(90)} : fwd({draw.randrange(9)})"
        for _ in range(120)
    ]
    texts += ["stock == S1 or price < 9 : fwd(1)", "not price > 50 : fwd(2)", "price < 0 : fwd(3)"]
    arguments = write(tmp_path, "\n".join(texts))
    specification = parse_specification((EXAMPLES / "camus.spec").read_text(), "camus")
    stock = specification.field("stock").from_raw("S1")
    for values in ({"stock": "S1", "price": 40}, {"price": 8}, {"stock": "S1"}, {}):
        raw = {specification.field(n).qualified: v for n, v in values.items() if n != "stock"}
        if "stock" in values:
            raw["add_order.stock"] = stock
        want = [
            index
            for index, text in enumerate(texts)
            if matches(parse_rule(text, specification).condition, raw)
        ]
        event = json.dumps(values)
        (found,) = lines(run("explain", *arguments, "--event", event, "--json"))
        assert [rule["rule"] for rule in found["rules"] if rule["matches"]] == want
        assert len(found["rules"]) == len(want) + 20
        assert found["rules_left_out"] == len(texts) - len(want) - 20
        (whole,) = lines(run("explain", *arguments, "--event", event, "--json", "--all"))
        assert [rule["rule"] for rule in whole["rules"]] == list(range(len(texts)))
        assert [rule["rule"] for rule in whole["rules"] if rule["matches"]] == want
    text = run("explain", *arguments, "--event", "{}").stdout
    assert f"rules that do not match: {len(texts)}" in text
    assert "and 103 more: see --all" in text


def test_explain_takes_account_of_the_events_before(tmp_path: Path):
    arguments = write(tmp_path, "stock == A and avg(price) > 5 : fwd(1)")
    (tmp_path / "before").write_text('{"stock": "A", "price": 9, "time_us": 1}\n')
    event = '{"stock": "A", "price": 1, "time_us": 2}'
    for more, ports in (([], []), (["--after", str(tmp_path / "before")], [1])):
        (found,) = lines(run("explain", *arguments, "--event", event, "--json", *more))
        assert found["ports"] == ports and found["rules"][0]["matches"] is bool(ports)


def test_explain_tells_what_a_rule_compiled_to():
    text = run("explain", *CAMUS, "--rule", "2").stdout
    for words in ("stock == AAPL", "state 0: shares <= 59 -> 1", "leaf 3: fwd(3)"):
        assert words in text
    (found,) = lines(run("explain", *CAMUS, "--rule", "0", "--json"))
    assert {leaf["state"] for leaf in found["terms"][0]["leaves"]} == {4, 5}
    for number in ("3", "-5"):
        refused = run("explain", *CAMUS, "--rule", number)
        assert refused.exit_code == 2 and "rules 0 to 2" in refused.stderr
    assert run("explain", *CAMUS).exit_code == 2


def test_rules_on_attributes_are_tried_with_a_file_of_their_rows(tmp_path: Path):
    attributes = tmp_path / "attributes.jsonl"
    attributes.write_text(
        '{"id": 1, "name": "temp", "type": "decimal", "scale": 0.1, "offset": -100}\n'
        '{"id": 2, "name": "hum", "type": "unsigned", "scale": 1, "offset": 0}\n'
    )
    rules = tmp_path / "x.rules"
    rules.write_text("temp < 30 and hum > 15 : fwd(1)\nnot temp < -5.5 : fwd(2)\n")
    given = ["--format", str(attributes), "--rules", str(rules)]
    assert run("check", *given).exit_code == 0
    events = '{"temp": 25.5, "hum": 30}\n{"temp": -6}\n{"hum": 30}\n'
    found = lines(run("match", *given, "--events", "-", stdin=events))
    assert [each["ports"] for each in found] == [[1, 2], [], []]
    shown = run("explain", *given, "--event", events.splitlines()[0]).stdout
    assert "temp: state 0, value 25.5: temp in -5.5..29.9" in shown
