"""``match(df, rules)`` on real Spark, held against trying each rule on each event."""

from __future__ import annotations

import random

import pytest
from pyspark.errors import PythonException
from pyspark.sql.functions import array_contains, struct

from stackcast.udfs.columns import match, matching
from stackcast.udfs.errors import SubscriptionError
from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.messages.attributes.registry import Registry, attribute

pytestmark = pytest.mark.integration

NAMES = ["temp", "hum", "rain"]


def test_rows_of_a_dataframe_get_their_rules_and_receivers(spark):
    draw = random.Random(1)
    texts = [
        f"{draw.choice(NAMES)} {draw.choice(['==', '!=', '>', '<'])} {draw.randrange(-9, 9)} "
        f"{draw.choice(['and', 'or'])} not {draw.choice(NAMES)} > {draw.randrange(-9, 9)}"
        for _ in range(200)
    ]
    rules = [Subscription(str(at), f"h{at % 7}", text) for at, text in enumerate(texts)]
    rows = [
        (at, *(draw.randrange(-9, 9) if draw.random() < 0.8 else None for _ in NAMES))
        for at in range(500)
    ]
    plain = spark.createDataFrame(rows, "place long, temp int, hum int, rain int")
    df = plain.selectExpr("place", "temp", "double(hum) hum", "decimal(rain) rain")
    found = {row.place: row for row in match(df.repartition(3), rules).collect()}
    # The oracle has its own conversion of values.
    specification = Registry(
        tuple(attribute(id, name, "signed") for id, name in enumerate(NAMES))
    ).specification()
    conditions = [parse_rule(text, specification).condition for text in texts]
    assert len(found) == len(rows)
    for place, *values in rows:
        event = {
            name: specification.field(name).from_raw(value)
            for name, value in zip(NAMES, values, strict=True)
            if value is not None
        }
        true = [at for at, condition in enumerate(conditions) if matches(condition, event)]
        assert found[place].rules == [str(at) for at in true]
        assert found[place].receivers == sorted({f"h{at % 7}" for at in true})
        assert found[place].temp == values[0]


def test_texts_and_times_of_history_answer_a_new_rule(spark):
    history = spark.sql("""
        SELECT * FROM VALUES
            ('GOOGL', 50.26D, timestamp'2026-03-02 10:00:00Z', true),
            ('GOOGL', 50.25D, timestamp'2026-03-02 10:00:00Z', true),
            ('GOOGL', 60.00D, timestamp'2026-02-28 10:00:00Z', true),
            ('GOOG', 60.00D, timestamp'2026-03-02 10:00:00Z', true),
            (NULL, 60.00D, timestamp'2026-03-02 10:00:00Z', true)
        AS t(stock, price, at, open)""")
    rule = 'stock == GOOGL and price > 50.25 and at >= "2026-03-01T00:00:00Z" and open == true'
    found = match(history, [Subscription("new", "h1", rule)], receivers_column="hosts")
    wanted = found.where(array_contains("hosts", "h1")).select("stock", "price", "rules")
    assert [tuple(row) for row in wanted.collect()] == [("GOOGL", 50.26, ["new"])]


def test_what_is_wrong_is_told_before_anything_runs(spark):
    df = spark.range(3).withColumnRenamed("id", "rules")
    with pytest.raises(ValueError, match="two columns 'rules'"):
        match(df, [])
    with pytest.raises(SubscriptionError, match="no field 'id'"):
        match(df, [Subscription("1", "h1", "id > 1")], rules_column="matching")


#: A number that a double cannot hold, with a neighbor that it would become.
BIG, NEIGHBOR = (1 << 53) + 1, 1 << 53
EVENTS = f"""
    SELECT * FROM VALUES
        ('GOOGL', {BIG}, timestamp'2026-03-29 01:30:00Z', 1.25BD),
        ('GOOGL', {NEIGHBOR}, timestamp'2026-10-25 00:30:00Z', NULL),
        ('MSFT', NULL, timestamp'2026-10-25 01:30:00Z', 1.5BD),
        (NULL, NULL, NULL, NULL)
    AS events(stock, count, at, price)"""
RULES = [
    Subscription("big", "h1", f"count == {BIG}"),
    Subscription("late", "h2", 'at >= "2026-10-25T01:00:00Z"'),
    Subscription("dear", "h3", "price > 1.25 : fwd(h1, h4)"),
    Subscription("any", "h5", "not stock == MSFT"),
]


def test_the_udf_finds_what_match_finds_in_a_column_and_in_sql(spark):
    events = spark.sql(EVENTS)
    expected = [(row.rules, row.receivers) for row in match(events, RULES).collect()]
    assert ["big", "any"] in [rules for rules, _ in expected]
    udf = matching(RULES)
    for frame in (events, events.repartition(1).coalesce(1)):
        found = frame.withColumn("matched", udf(struct("*"))).select("matched.*")
        assert sorted(map(tuple, found.collect())) == sorted(expected)
    spark.udf.register("matching", udf)
    events.createOrReplaceTempView("events")
    by_sql = spark.sql(
        "SELECT m.rules, m.receivers FROM (SELECT matching(struct(*)) m FROM events)"
    )
    assert sorted(map(tuple, by_sql.collect())) == sorted(expected)


def test_with_the_fields_the_udf_refuses_a_wrong_rule_at_once(spark):
    events = spark.sql(EVENTS)
    with pytest.raises(SubscriptionError, match="no field 'prize'"):
        matching([Subscription("1", "h1", "prize > 1")], events.schema)


def test_a_wrong_rule_ends_a_query_without_fields_with_its_error(spark):
    events = spark.sql(EVENTS)
    udf = matching([Subscription("1", "h1", "prize > 1")])
    with pytest.raises(PythonException, match=r"UNKNOWN_FIELD.*no field 'prize'"):
        events.select(udf(struct("*"))).collect()
