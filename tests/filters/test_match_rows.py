"""``match(df, rules)`` on real Spark, held against trying each rule on each event."""

from __future__ import annotations

import random

import pytest
from pyspark.sql.functions import array_contains

from stackcast.udfs.columns import match
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
