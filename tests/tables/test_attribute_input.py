"""Records of JSON through Spark's own parser, and attributes that two jobs register at once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from jobs.adapters.stream.input import unknown_names, with_pairs
from jobs.adapters.tables import who_gets
from jobs.adapters.tables.attribute_registry import register
from jobs.adapters.tables.tables import Tables
from udfs.filters.compiler.compile import compile_texts
from udfs.filters.explanation.sql import _value
from udfs.messages.attributes.events import REASONS, Events
from udfs.messages.attributes.pairs import pairs_of_lines, read_pairs
from udfs.messages.attributes.registry import Registry, attribute

pytestmark = pytest.mark.integration

LONGEST = 200_000
REGISTRY = Registry(
    (
        attribute(0, "ts", "timestamp"),
        attribute(1, "temp", "decimal"),
        attribute(2, "hum", "unsigned"),
    )
)

#: Records, and why they are no events; "" where they are.
CASES: list[tuple[bytes, str]] = [
    (b'{"temp": 25.5, "hum": 30}', ""),
    (b' {\t"hum"\r\n:\n1e1 } ', ""),
    (b'{"ts": "2026-01-01T00:00:00Z", "temp": -0.01}', ""),
    (b'{"ts": 1767225600.4, "hum": 0.5}', ""),
    (b'{"temp": 12345.6789012345678901234567890123456789012345}', ""),
    (b'{"temp": 1e-400}', ""),
    (b'{"\\u0074emp": 1, "hum": null}', ""),
    (b'{"what": null, "hum": 1}', ""),
    (b'{"hum": 4294967295}', ""),
    (b'{"hum": 4294967296}', "value_out_of_range"),
    (b'{"hum": -1}', "value_out_of_range"),
    (b'{"hum": 1000000000000000000000000000000000000000000000000000}', "value_out_of_range"),
    (b'{"hum": 1e400}', "not_a_number"),
    (b'{"hum": NaN}', "not_a_number"),
    (b'{"hum": Infinity}', "not_a_number"),
    (b'{"hum": -Infinity}', "not_a_number"),
    (b'{"temp": "25.5"}', "not_a_number"),
    (b'{"temp": "\\"25.5"}', "not_a_number"),
    (b'{"temp": "a\\u00e9\xc3\xa9\xf0\x9f\x98\x80\\ud83d\\ude00"}', "not_a_number"),
    (b'{"ts": "1767225600"}', "not_a_number"),
    (b'{"ts": "2026-02-30"}', "not_a_number"),
    (b'{"hum": true}', "not_a_number"),
    (b'{"hum": ""}', "not_a_number"),
    (b'{"temp": 1, "temp": 2}', "id_twice"),
    (b'{"temp": 1, "temp": null}', "id_twice"),
    (b'{"temp": 1, "\\u0074emp": 1}', "id_twice"),
    (b'{"what": 1}', "unknown_attribute"),
    (b'{"": 1}', "unknown_attribute"),
    (b'{"TEMP": 1}', "unknown_attribute"),
    (b"{}", "empty_event"),
    (b'{"temp": null}', "empty_event"),
    (b"", "malformed_json"),
    (b" ", "malformed_json"),
    (b"1", "malformed_json"),
    (b"null", "malformed_json"),
    (b"[]", "malformed_json"),
    (b'[{"hum": 1}]', "malformed_json"),
    (b'{"hum": 1', "malformed_json"),
    (b'{"hum": 1} x', "malformed_json"),
    (b'{"hum": 1}{"hum": 2}', "malformed_json"),
    (b'{"hum": 1}\n{"hum": 2}', "malformed_json"),
    (b'{"hum": 1,}', "malformed_json"),
    (b'{"hum": }', "malformed_json"),
    (b'{"hum": 01}', "malformed_json"),
    (b'{"hum": +1}', "malformed_json"),
    (b'{"hum": .5}', "malformed_json"),
    (b'{"hum": 1.}', "malformed_json"),
    (b'{"hum": 0x10}', "malformed_json"),
    (b"{'hum': 1}", "malformed_json"),
    (b"{hum: 1}", "malformed_json"),
    (b'{"hum": 1 /* one */}', "malformed_json"),
    (b'{"hum": nan}', "malformed_json"),
    (b'{"temp": 1, "hum": tru}', "malformed_json"),
    (b'{"te\nmp": 1}', "malformed_json"),
    (b'{"temp": "\\x"}', "malformed_json"),
    (b'{"temp": "\\ud800"}', "malformed_json"),
    (b'{"hum": 1\x00}', "malformed_json"),
    (b'{"h\xff": 1}', "malformed_json"),
    (b'{"h\xed\xa0\x80": 1}', "malformed_json"),
    (b"\xef\xbb\xbf" + b'{"hum": 1}', "malformed_json"),
    ('{"hum": 1}'.encode("utf-16"), "malformed_json"),
    (b'{"hum": ' + b"9" * 1001 + b"}", "malformed_json"),
    (b'{"hum": ' + b"9" * 1000 + b"}", "not_a_number"),
    (b'{"hum": [1]}', "nested_json"),
    (b'{"hum": 1, "of": {"temp": 1}}', "nested_json"),
    (b'{"hum": ' + b"[" * 100_000 + b"]" * 50_000 + b"}", "nested_json"),
    (b'{"temp": "' + b"x" * 150_000 + b'"}', "not_a_number"),
    (b'{"temp": "' + b"\\n" * 70_000 + b'"}', "not_a_number"),
    (b'{"' + b"x" * 50_000 + b'": 1}', "unknown_attribute"),
    (b'{"' + b"x" * 50_001 + b'": 1}', "malformed_json"),
    (b'{"hum": 1' + b" " * 150_000 + b"}", ""),
    (b"{" + b",".join(b'"a%d": 1' % i for i in range(10_000)) + b"}", "unknown_attribute"),
    (b'{"hum": 1' + b" " * 10_000_000 + b"}", "event_too_large"),
    (b"x" * 10_000_000, "event_too_large"),
]


def frame(spark: SparkSession, records: Iterable[bytes]) -> DataFrame:
    """As Kafka has them, so that values are the binaries of a source, not literals."""
    rows = [(at, bytearray(record)) for at, record in enumerate(records)]
    return spark.createDataFrame(rows, "at int, value binary")


def through_spark(spark: SparkSession, records: Iterable[bytes]) -> Events:
    found = with_pairs(frame(spark, records), LONGEST).orderBy("at").toArrow()
    value = found.column("value").combine_chunks()
    pairs = found.column("pairs").combine_chunks()
    assert pairs.type == pa.map_(pa.string(), pa.string())
    return read_pairs(value, pairs, REGISTRY, LONGEST)


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> Events:
    """All cases in one go, as neighbours."""
    return through_spark(spark, [record for record, _ in CASES])


def reason(code: int) -> str:
    return REASONS.get(code, "")


def test_every_fault_of_a_record_has_its_reason(events: Events) -> None:
    found = [
        (record[:40], reason(code))
        for (record, _), code in zip(CASES, events.reason.tolist(), strict=True)
    ]
    assert found == [(record[:40], why) for record, why in CASES]


def test_a_faulty_record_leaves_its_neighbours_as_they_would_be_alone(events: Events) -> None:
    fine = [at for at, (_, why) in enumerate(CASES) if not why]
    alone = read_pairs(*pairs_of_lines([CASES[at][0] for at in fine]), REGISTRY, LONGEST)
    assert not alone.reason.any()
    assert events.mask[fine].tolist() == alone.mask.tolist()
    assert np.array_equal(events.values[:, fine], alone.values)
    assert events.mask[0] == 0b110
    assert events.values[1:3, 0].tolist() == [2_147_483_648 + 2550, 30]


def test_spark_and_the_standard_library_read_every_record_alike(events: Events) -> None:
    plain = read_pairs(*pairs_of_lines([record for record, _ in CASES]), REGISTRY, LONGEST)
    assert events.reason.tolist() == plain.reason.tolist()
    assert events.mask.tolist() == plain.mask.tolist()
    assert np.array_equal(events.values, plain.values)


def test_only_names_that_events_bring_and_that_are_words_can_be_registered(
    spark: SparkSession,
) -> None:
    records = [
        b'{"temp": 1, "wind": 2}',
        b'{"wind": 2.5, "Rain_1": "text", "ok": true, "bad": NaN}',
        b'{"seen": "2026-03-01T00:00:00Z", "started": 1772323200, "mask": 4294967295, "far": 1e12}',
        b'{"absent": null}',
        b'{"two words": 1, "not": 1, "9": 1, "": 1}',
        b'{"cut": 1',
        b'{"nested": {"inner": 1}}',
        b'{"large": 1' + b" " * LONGEST + b"}",
    ]
    pairs = with_pairs(frame(spark, records), LONGEST)
    assert unknown_names(pairs, REGISTRY) == {
        "mask": "unsigned",
        "seen": "timestamp",
        "started": "signed",
        "wind": "decimal",
    }
    many = frame(spark, [b"{" + b",".join(b'"a%d": 1' % i for i in range(3000)) + b"}"])
    assert len(unknown_names(with_pairs(many, LONGEST), Registry(()))) == 1000


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
