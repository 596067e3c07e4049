"""SQL says of any event who would get it: as the rules say, one by one."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.tables import who_gets
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.filters import grouped
from stackcast.udfs.filters.compiler.compile import compile_texts, table_of_texts
from stackcast.udfs.filters.grouped import GroupedCompiler
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.language.shapes import read_table
from stackcast.udfs.filters.meaning.interpreter import Interpreter
from stackcast.udfs.filters.nodes import Rule
from stackcast.udfs.messages.specification import Specification, parse_specification

pytestmark = pytest.mark.integration


VERSION = {"subscriptions_version": 1}


def define(
    spark: SparkSession,
    rules: list[str],
    specification: Specification,
    optional: bool | None,
    indexed: bool = False,
) -> None:
    """Let SQL answer from the compiled rules, without tables of Delta, which take seconds each."""
    if indexed:
        table = table_of_texts(rules, read_table(rules, specification), specification, optional)
        whole = list(range(len(rules))), table
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(grouped, "MAX_ENTRIES", 1)
            made = GroupedCompiler(specification).update_table(*whole, (), lambda: whole)
        assert made.index is not None
        compiled, terms = made.diagram, made.term_rows()
    else:
        compiled, terms = compile_texts(rules, specification, optional=optional), []
    entries = "field STRING, state INT, low BINARY, high BINARY, kind STRING, next INT, text STRING"
    predicates = (
        "ARRAY<STRUCT<field: STRING, intervals: ARRAY<STRUCT<low: BINARY, high: BINARY>>,"
        " text: STRING>>"
    )
    leaves = f"state INT, receivers ARRAY<STRING>, actions ARRAY<STRING>, predicates {predicates}"
    for name, rows, columns in (
        ("entries", list(compiled.entry_rows()), entries),
        (
            "leaves",
            [
                *(row | {"predicates": None} for row in compiled.leaf_rows()),
                *({name: row[name] for name in row if name != "leaf"} for row in terms),
            ],
            leaves,
        ),
    ):
        frame = spark.createDataFrame([tuple(row.values()) for row in rows], columns)
        frame.coalesce(1).createOrReplaceTempView(name)
    who_gets.define_over(spark, "entries", "leaves", specification)


def ask(spark: SparkSession, names: list[str], events: list[tuple[str | None, ...]]):
    columns = ", ".join(f"{name} STRING" for name in names)
    spark.createDataFrame(
        [(i, *e) for i, e in enumerate(events)], f"i INT, {columns}"
    ).createOrReplaceTempView("asked")
    given = ", ".join(f"{name} => asked.{name}" for name in names)
    rows = spark.sql(
        f"SELECT i, receivers, leaf, steps FROM asked, LATERAL who_gets({given})"
    ).collect()
    assert sorted(row.i for row in rows) == list(range(len(events)))
    return {row.i: row for row in rows}


def wanted(rules: list[Rule], event: dict[str, int], specification: Specification) -> list[str]:
    """Who gets the event, if it is the first."""
    return list(Interpreter(rules, specification).step(event).receivers)


@pytest.mark.parametrize(
    "indexed",
    [pytest.param(False, id="diagram", marks=pytest.mark.long), pytest.param(True, id="index")],
)
def test_a_filter_answers_as_its_rules_do(
    spark: SparkSession, itch: Specification, indexed: bool
) -> None:
    draw = random.Random(1)
    rules = [
        f"stock == S{draw.randrange(9)} and price > {draw.random() * 1000:.2f}"
        f" : fwd(h{draw.randrange(200)})"
        for _ in range(300)
    ]
    rules += ["shares < 7 : fwd(h1)", "system_event.event_code == O : fwd(h3)"]
    rules += ["not count() > 3 : fwd(h201)", "price > 1 and avg(price) > 1 : fwd(h202)"]
    rules += ["shares > 6 and changed(price) : fwd(h203)", "not moved(price, 1) : fwd(h204)"]
    define(spark, rules, itch, None, indexed)
    parsed = [parse_rule(text, itch) for text in rules]
    events = [
        (f"S{draw.randrange(10)}", f"{draw.random() * 1000:.4f}", str(draw.randrange(1, 12)), None)
        for _ in range(10)
    ]
    events += [(None, None, None, "O"), (None, None, None, None)]
    names = ["stock", "price", "shares", "event_code"]
    found = ask(spark, names, events)
    for i, event in enumerate(events):
        values = {
            itch.field(name).qualified: itch.field(name).encode(text)
            for name, text in zip(names, event, strict=True)
            if text is not None
        }
        assert list(found[i].receivers) == wanted(parsed, values, itch), event
        if not indexed:
            assert [step.field for step in found[i].steps][:1] == ["message_type"]
            assert found[i].steps[-1].next == found[i].leaf
    with pytest.raises(PySparkException, match="price has 32 bits"):
        spark.sql("SELECT * FROM who_gets(price => '429496.7296')").collect()


@pytest.mark.parametrize(
    "indexed",
    [pytest.param(False, id="diagram", marks=pytest.mark.long), pytest.param(True, id="index")],
)
def test_prefixes_wide_fields_and_absent_ones_are_answered(
    spark: SparkSession, indexed: bool
) -> None:
    specification = parse_specification(
        "header_type t { fields { net: 32; wide: 128; @string(zero) s: 24; a: 8; } } header t h;"
        "@query_field_lpm(h.net) @query_field(h.wide) @query_field(h.a)",
        "prefixes",
    )
    rules = [
        "net == 10.0.0.0/8 : fwd(1)",
        "net == 10.1.0.0/16 : fwd(2)",
        "net == 10.1.2.3 : fwd(3)",
        "not net == 0.0.0.0/1 : fwd(4)",
        "wide > 0x10000000000000001 : fwd(5)",
        "s == AB or s > x : fwd(6)",
        "a < 8 or a == 255 : fwd(7)",
        "a >= 8 : fwd(8)",
    ]
    define(spark, rules, specification, True, indexed)
    parsed = [parse_rule(text, specification) for text in rules]
    nets = ["10.0.0.0", "10.1.0.0", "10.1.2.3", "10.1.2.4", "10.255.255.255", "11.0.0.0"]
    nets += ["255.255.255.255", "0.0.0.0", "9.255.255.255", None]
    wides = ["0x0", "0x10000000000000001", "0x10000000000000002", "0x" + "f" * 32, None]
    texts, bytes_ = ["AB", "A", "zz", "", None], ["0", "7", "8", "255", None]
    events = [
        (nets[i % 10], wides[i % 5], texts[(i // 2) % 5], bytes_[(i // 3) % 5]) for i in range(50)
    ]
    found = ask(spark, ["net", "wide", "s", "a"], events)
    for i, event in enumerate(events):
        values = {}
        for name, text in zip(("net", "wide", "s", "a"), event, strict=True):
            if text is not None:
                field = specification.field(name)
                values[field.qualified] = field.parse(text, quoted=True)[0]
        assert list(found[i].receivers) == wanted(parsed, values, specification), event
    if indexed:
        return
    ranges = spark.table("filter_ranges").where("low IS NOT NULL").collect()
    ranges.sort(key=lambda row: (row.state, row.low))
    for before, after in pairwise(ranges):
        assert before.state != after.state or before.high + 1 == after.low


def test_without_rules_nobody_gets_anything(spark: SparkSession, itch: Specification) -> None:
    define(spark, [], itch, None)
    (one,) = spark.sql("SELECT * FROM who_gets(message_type => 'A')").collect()
    assert (one.receivers, one.actions, one.steps) == ([], [], [])


def test_the_live_tables_are_asked(
    spark: SparkSession, tables: Tables, itch: Specification
) -> None:
    compiled = compile_texts(["stock == GOOGL : fwd(h1)"], itch)
    tables.overwrite("filter_entries", [{**row, **VERSION} for row in compiled.entry_rows()])
    leaves = [
        {**row, "leaf": at, "predicates": None, **VERSION}
        for at, row in enumerate(compiled.leaf_rows())
    ]
    tables.overwrite("filter_leaves", leaves)
    tables.attach()
    who_gets.define(spark, tables, itch)
    (one,) = spark.sql("SELECT * FROM who_gets(stock => 'GOOGL')").collect()
    assert one.receivers == ["h1"]
