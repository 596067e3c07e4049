"""Attributes in SQL's who_gets, and those that two jobs register at once."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions

from jobs.adapters.tables import who_gets
from jobs.adapters.tables.attribute_registry import register
from jobs.adapters.tables.tables import Tables
from udfs.filters.compiler.compile import compile_texts
from udfs.filters.explanation.sql import _value
from udfs.messages.attributes.registry import Registry, attribute

pytestmark = pytest.mark.integration

REGISTRY = Registry(
    (
        attribute(0, "ts", "timestamp"),
        attribute(1, "temp", "decimal"),
        attribute(2, "hum", "unsigned"),
    )
)


def test_sql_says_who_gets_an_event_in_units_of_its_attributes(spark: SparkSession) -> None:
    rules = ["temp < -5.5 and hum > 15 : fwd(h1)", "ts >= 2026-01-01 : fwd(h2)"]
    compiled = compile_texts(rules, REGISTRY.specification())
    entries = "field STRING, state INT, low BINARY, high BINARY, kind STRING, next INT, text STRING"
    leaves = "state INT, receivers ARRAY<STRING>, actions ARRAY<STRING>, predicates"
    predicates = "ARRAY<STRUCT<field: STRING, intervals: ARRAY<STRUCT<low: BINARY, high: BINARY>>>>"
    for name, rows, columns in (
        ("entries", list(compiled.entry_rows()), entries),
        (
            "leaves",
            [row | {"predicates": None} for row in compiled.leaf_rows()],
            f"{leaves} {predicates}",
        ),
    ):
        held = spark.createDataFrame([tuple(row.values()) for row in rows], columns)
        held.coalesce(1).createOrReplaceTempView(name)
    who_gets.define_over(spark, "entries", "leaves", REGISTRY.specification())
    asked = {
        "temp => '-5.51', hum => '16'": ["h1"],
        "temp => '-5.5', hum => '16'": [],
        "temp => '-5.51'": [],
        "temp => '-21474836.48', hum => '4294967295', ts => '2026-01-01T01:00:00+01:00'": [
            "h1",
            "h2",
        ],
        "ts => '2025-12-31T23:59:59Z'": [],
        "ts => '2026-01-01'": ["h2"],
        "ts => '1767225600'": ["h2"],
        "ts => '1767225599'": [],
    }
    query = " UNION ALL ".join(
        f"SELECT {at} AS at, receivers FROM who_gets({given})" for at, given in enumerate(asked)
    )
    found = {row["at"]: row["receivers"] for row in spark.sql(query).collect()}
    assert [found[at] for at in range(len(asked))] == list(asked.values())
    with pytest.raises(PySparkException, match="hum has 32 bits"):
        spark.sql("SELECT * FROM who_gets(hum => '4294967296')").collect()
    # Floats and texts are read to the bits that the stream reads them to.
    fields = Registry((attribute(0, "level", "float"), attribute(1, "place", "text")))
    level, place = (header.fields[0] for header in fields.specification().headers)
    edges = [2.0**power for power in (-149, -127, -126, -1, 0, 23, 127)]
    numbers = [0.0, -0.0, 0.1, -2.5, 1e-45, 3.4028234663852886e38, *edges]
    numbers += [-one for one in edges] + [math.nextafter(one, 0) for one in edges[2:]]
    numbers += [one * (2 - 2.0**-23) for one in edges[2:]]
    columns = [_value("given", level, 0).replace("`given`", f"'{one!r}'") for one in numbers]
    columns += [
        _value("given", place, 0).replace("`given`", f"'{one}'") for one in ("", "AB", "~z")
    ]
    (found_raw,) = spark.sql(f"SELECT {', '.join(columns)}").collect()
    expected = [level.from_raw(one) for one in numbers]
    assert list(found_raw) == expected + [place.from_raw(one) for one in ("", "AB", "~z")]


@pytest.fixture
def attributes(spark: SparkSession, tmp_path: Path) -> Tables:
    made = Tables(spark, str(tmp_path / "somebody's tables"))
    made.create("attributes")
    return made


def test_two_jobs_at_once_give_no_id_and_no_name_twice(attributes: Tables) -> None:
    wanted = [["hum", "temp", "wind"], ["lux", "temp", "rain"]]

    def job(names: list[str]) -> Registry:
        held = Registry.from_rows(attributes.rows("attributes"))
        return register(attributes, held.with_new(dict.fromkeys(names, "decimal"))[1], "test")

    with ThreadPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(job, wanted))
    rows = attributes.rows("attributes")
    assert sorted(row["name"] for row in rows) == ["hum", "lux", "rain", "temp", "wind"]
    assert sorted(row["id"] for row in rows) == list(range(5))
    final = Registry.from_rows(rows)
    for names, registry in zip(wanted, found, strict=True):
        assert [registry.by_name[name] for name in names] == [final.by_name[n] for n in names]


def test_an_attribute_that_is_there_stays_as_it_is(attributes: Tables) -> None:
    first = register(attributes, [attribute(3, "temp", "signed", "0.5", "-10")], "somebody")
    before = attributes.version("attributes")
    assert register(attributes, [attribute(7, "temp", "decimal")], "test") == first
    assert attributes.version("attributes") == before
    # Number 3 is taken, so the other gets the lowest that is free.
    after = register(attributes, [attribute(3, "hum", "unsigned")], "test")
    assert after.by_name["hum"].id == 0
    assert after.by_name["temp"] == first.by_name["temp"]


def test_what_no_id_is_left_for_is_left_out(attributes: Tables) -> None:
    many = [attribute(at, f"a{at}", "unsigned") for at in range(31)]
    register(attributes, many, "test")
    late = [attribute(30, "late", "unsigned"), attribute(29, "later", "unsigned")]
    after = register(attributes, late, "test")
    assert after.by_name["late"].id == 31
    assert "later" not in after.by_name
    count = attributes.read("attributes").agg(functions.count_distinct("id")).collect()
    assert count[0][0] == 32
