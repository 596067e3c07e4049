"""Attributes in the SQL function who_gets, and attributes that two jobs register at once."""

from __future__ import annotations

import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.tables import who_gets
from stackcast.jobs.adapters.tables.attribute_registry import register
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.filters.compiler.compile import compile_texts
from stackcast.udfs.filters.explanation.sql import _value
from stackcast.udfs.messages.attributes.registry import Registry, attribute

pytestmark = pytest.mark.integration

REGISTRY = Registry(
    (
        attribute(0, "ts", "timestamp"),
        attribute(1, "temp", "decimal"),
        attribute(2, "hum", "unsigned"),
    )
)


def test_sql_names_the_receivers_of_an_event_in_units_of_its_attributes(
    spark: SparkSession,
) -> None:
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
        frame = spark.createDataFrame([tuple(row.values()) for row in rows], columns)
        frame.coalesce(1).createOrReplaceTempView(name)
    who_gets.define_over(spark, "entries", "leaves", REGISTRY.specification())
    receivers = {
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
        f"SELECT {number} AS number, receivers FROM who_gets({event})"
        for number, event in enumerate(receivers)
    )
    answers = {row["number"]: row["receivers"] for row in spark.sql(query).collect()}
    assert [answers[number] for number in range(len(receivers))] == list(receivers.values())
    with pytest.raises(PySparkException, match="hum has 32 bits"):
        spark.sql("SELECT * FROM who_gets(hum => '4294967296')").collect()
    # SQL reads floats and texts as the same bits as the stream.
    fields = Registry((attribute(0, "level", "float"), attribute(1, "place", "text")))
    level, place = (header.fields[0] for header in fields.specification().headers)
    edges = [2.0**power for power in (-149, -127, -126, -1, 0, 23, 127)]
    numbers = [0.0, -0.0, 0.1, -2.5, 1e-45, 3.4028234663852886e38, *edges]
    numbers += [-edge for edge in edges] + [math.nextafter(edge, 0) for edge in edges[2:]]
    numbers += [edge * (2 - 2.0**-23) for edge in edges[2:]]
    texts = ("", "AB", "~z")
    columns = [_value("x", level, 0).replace("`x`", f"'{number!r}'") for number in numbers]
    columns += [_value("x", place, 0).replace("`x`", f"'{text}'") for text in texts]
    (values,) = spark.sql(f"SELECT {', '.join(columns)}").collect()
    expected = [level.from_raw(number) for number in numbers]
    assert list(values) == expected + [place.from_raw(text) for text in texts]


@pytest.fixture
def attributes(spark: SparkSession, empty_tables: Path, tmp_path: Path) -> Tables:
    folder = tmp_path / "somebody's tables"
    shutil.copytree(empty_tables / "attributes", folder / "attributes")
    return open_tables(spark, str(folder))


def test_two_jobs_at_once_give_no_id_and_no_name_twice(attributes: Tables) -> None:
    names_of_jobs = [["hum", "temp", "wind"], ["lux", "temp", "rain"]]

    def job(names: list[str]) -> Registry:
        registry = Registry.from_rows(attributes.rows("attributes"))
        return register(attributes, registry.with_new(dict.fromkeys(names, "decimal"))[1], "test")

    with ThreadPoolExecutor(max_workers=2) as pool:
        registries = list(pool.map(job, names_of_jobs))
    rows = attributes.rows("attributes")
    assert sorted(row["name"] for row in rows) == ["hum", "lux", "rain", "temp", "wind"]
    assert sorted(row["id"] for row in rows) == list(range(5))
    final = Registry.from_rows(rows)
    for names, registry in zip(names_of_jobs, registries, strict=True):
        assert [registry.by_name[name] for name in names] == [final.by_name[n] for n in names]


def test_a_registered_attribute_stays_as_it_is(attributes: Tables) -> None:
    first = register(attributes, [attribute(3, "temp", "signed", "0.5", "-10")], "person")
    before = attributes.version("attributes")
    assert register(attributes, [attribute(7, "temp", "decimal")], "test") == first
    assert attributes.version("attributes") == before
    # Number 3 is in use, so the new attribute gets the lowest free number.
    after = register(attributes, [attribute(3, "hum", "unsigned")], "test")
    assert after.by_name["hum"].id == 0
    assert after.by_name["temp"] == first.by_name["temp"]


def test_an_attribute_without_a_free_id_is_left_out(attributes: Tables) -> None:
    many = [attribute(number, f"a{number}", "unsigned") for number in range(31)]
    register(attributes, many, "test")
    late = [attribute(30, "late", "unsigned"), attribute(29, "later", "unsigned")]
    after = register(attributes, late, "test")
    assert after.by_name["late"].id == 31
    assert "later" not in after.by_name
    assert len({row["id"] for row in attributes.rows("attributes")}) == 32
