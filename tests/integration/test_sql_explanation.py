"""SQL says of any event who would get it: as the rules say, one by one."""

from __future__ import annotations

import random

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from jobs.adapters import explanation
from jobs.adapters.tables import Tables
from udfs.filters.compile import compile_texts
from udfs.filters.evaluate import matches
from udfs.filters.language import parse_rule
from udfs.filters.nodes import Rule
from udfs.filters.tables import CompiledFilter
from udfs.messages.specification import Specification, parse_specification

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The two tables that are asked, as of a deployment that has no others."""
    made = Tables(spark, str(tmp_path_factory.mktemp("explained")))
    made.create("filter_entries", "filter_leaves")
    spark.sql(f"CREATE SCHEMA IF NOT EXISTS {made.schema}")
    for name in ("filter_entries", "filter_leaves"):
        spark.sql(f"DROP TABLE IF EXISTS {made.sql_name(name)}")
        place = f"{made.location}/{name}"
        spark.sql(f"CREATE TABLE {made.sql_name(name)} USING delta LOCATION '{place}'")
    return made


def fill(tables: Tables, compiled: CompiledFilter) -> None:
    version = {"subscriptions_version": 1}
    tables.overwrite("filter_entries", [{**row, **version} for row in compiled.entry_rows()])
    leaves = [{**row, "leaf": at, **version} for at, row in enumerate(compiled.leaf_rows())]
    tables.overwrite("filter_leaves", leaves)


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


def wanted(rules: list[Rule], event: dict[str, int]) -> list[str]:
    names = {n for rule in rules if matches(rule.condition, event) for n in rule.receivers}
    return sorted(names, key=lambda n: (not n.isdigit(), int(n) if n.isdigit() else 0, n))


def test_a_filter_answers_as_its_rules_do(
    spark: SparkSession, tables: Tables, itch: Specification
) -> None:
    draw = random.Random(1)
    rules = [
        f"stock == S{draw.randrange(9)} and price > {draw.random() * 1000:.2f}"
        f" : fwd(h{draw.randrange(200)})"
        for _ in range(300)
    ]
    rules += ["shares < 7 : fwd(h1)", "system_event.event_code == O : fwd(h3)"]
    fill(tables, compile_texts(rules, itch))
    explanation.define(spark, tables, itch)
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
        assert list(found[i].receivers) == wanted(parsed, values), event
        assert [step.field for step in found[i].steps][:1] == ["message_type"]
        assert found[i].steps[-1].next == found[i].leaf
    with pytest.raises(PySparkException, match="price has 32 bits"):
        spark.sql("SELECT * FROM who_gets(price => '429496.7296')").collect()


def test_prefixes_wide_fields_and_absent_ones_are_answered(
    spark: SparkSession, tables: Tables
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
    fill(tables, compile_texts(rules, specification, optional=True))
    explanation.define(spark, tables, specification)
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
        assert list(found[i].receivers) == wanted(parsed, values), event
    twice = spark.sql(
        "SELECT a.field FROM filter_ranges a JOIN filter_ranges b"
        " ON a.field = b.field AND a.state = b.state AND a.low < b.low AND a.high >= b.low"
    )
    assert twice.isEmpty()


def test_without_rules_nobody_gets_anything(
    spark: SparkSession, tables: Tables, itch: Specification
) -> None:
    fill(tables, compile_texts([], itch))
    explanation.define(spark, tables, itch)
    (one,) = spark.sql("SELECT * FROM who_gets(message_type => 'A')").collect()
    assert (one.receivers, one.actions, one.steps) == ([], [], [])
