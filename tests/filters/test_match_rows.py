"""``match(df, rules)`` on real Spark, held against trying each rule on each event."""

from __future__ import annotations

import random
import warnings

import pandas as pd
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st
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


@pytest.mark.filterwarnings("ignore:SUBSCRIPTION")
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
    with pytest.raises(ValueError, match="two columns named 'rules'"):
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


ORDERS = [
    {"customer": {"tier": "gold", "zip-code": "10115"}, "items": {"count": 3}, "`Id": 1, "id": 4},
    {"customer": {"tier": "silver", "zip-code": "10117"}, "items": {"count": 5}, "`Id": 2, "id": 5},
]
ORDER_RULES = [
    Subscription("gold", "h1", "customer.tier == gold and items.count >= 3"),
    Subscription("many", "h2", "items.count > 4"),
]


def test_columns_of_json_normalize_pass_and_are_compared_by_their_names(spark):
    normalized = pd.json_normalize(ORDERS)
    assert {"customer.tier", "customer.zip-code", "items.count", "`Id"} <= {*normalized.columns}
    events = spark.createDataFrame(normalized)
    by_match = match(events, ORDER_RULES)
    assert by_match.columns == [*events.columns, "rules", "receivers"]
    assert by_match.schema.fields[:-2] == events.schema.fields
    rows = sorted(by_match.collect(), key=lambda row: row["id"])
    assert [row.rules for row in rows] == [["gold"], ["many"]]
    plain = sorted(events.collect(), key=lambda row: row["id"])
    assert [[*map(str, row[:-2])] for row in rows] == [[*map(str, row)] for row in plain]
    by_udf = events.select("id", matching(ORDER_RULES)(struct("*")).alias("matched"))
    assert [row.matched.rules for row in by_udf.orderBy("id").collect()] == [["gold"], ["many"]]


column_names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=5)
UNUSED_NAMES = ["a.b", "A.B", "a`b", "`", "", "TEMP", "rules.x", "Hum", "a b", "a.b", "c1"]


@examples(30)
@given(st.lists(column_names | st.sampled_from(UNUSED_NAMES), max_size=5), st.randoms())
@example(UNUSED_NAMES, random.Random(1))
def test_other_columns_pass_whatever_their_names_and_the_answer_is_the_same(spark, unused, draw):
    new = ("rules", "receivers")
    names = ["temp", *(name for name in unused if name != "temp" and name.lower() not in new)]
    draw.shuffle(names)
    rows = [tuple(10 * row + n for n in range(len(names))) for row in range(3)]
    schema = ", ".join(f"c{n} int" for n in range(len(names)))
    events = spark.createDataFrame(rows, schema).toDF(*names)
    result = match(events, [Subscription(str(n), "h1", f"temp >= {10 * n}") for n in range(3)])
    assert result.columns == [*names, "rules", "receivers"]
    assert result.schema.fields[:-2] == events.schema.fields
    matched = sorted(map(tuple, result.collect()))
    assert [row[:-2] for row in matched] == rows
    temps = [row[names.index("temp")] for row in rows]
    assert [row[-2] for row in matched] == [
        [str(n) for n in range(3) if temp >= 10 * n] for temp in temps
    ]


def test_a_new_column_that_differs_from_another_in_case_alone_is_refused(spark):
    df = spark.range(3).toDF("Rules")
    with pytest.raises(ValueError, match="two columns named 'rules'"):
        match(df, [])
    assert match(df, [], rules_column="ids").columns == ["Rules", "ids", "receivers"]


def test_rows_and_dataframes_of_the_table_are_rules(spark):
    events = spark.sql(EVENTS)
    expected = [row.rules for row in match(events, RULES).collect()]
    rows = [(*rule, True) for rule in RULES] + [("off", "h1", "all", False)]
    table = spark.createDataFrame(rows, ["id", "subscriber", "filter", "enabled"])
    for rules in (table, table.toPandas(), table.collect()):
        assert [row.rules for row in match(events, rules).collect()] == expected
        udf = matching(rules, events.schema)
        assert [row[0].rules for row in events.select(udf(struct("*"))).collect()] == expected


def test_what_is_not_a_rule_is_refused_before_anything_runs(spark):
    events = spark.sql(EVENTS)
    for call in (lambda rules: match(events, rules), matching):
        with pytest.raises(SubscriptionError, match=r"NOT_A_RULE: rules\[0\] is a tuple"):
            call([("1", "h1", "count > 5")])
        with pytest.raises(SubscriptionError, match=r"NOT_A_RULE: rules\[0\] has the columns"):
            call(events)


def test_rows_of_pandas_are_refused_with_the_call_that_makes_a_dataframe_of_them(spark):
    rows = spark.sql(EVENTS).toPandas()
    with pytest.raises(TypeError, match=r"spark\.createDataFrame"):
        match(rows, [Subscription("1", "h1", "count > 5")])


def test_a_text_that_is_compared_with_a_time_causes_a_python_warning(spark):
    events = spark.sql("SELECT '2026-03-01 10:00' at, timestamp'2026-03-01 10:00:00Z' time")
    doubtful = [Subscription(str(n), "h1", f'at > "2026-03-01T0{n}:00:00Z"') for n in range(3)]
    for call in (lambda: match(events, doubtful), lambda: matching(doubtful, events.schema)):
        with pytest.warns(UserWarning, match="TIME_AS_TEXT") as caught:
            call()
        assert len(caught) == 3 and caught[0].filename == __file__
    with pytest.warns(UserWarning, match="TIME_AS_TEXT|130 more warnings") as caught:
        match(events, doubtful * 50)
    assert str(caught[-1].message) == "130 more rule warnings are not shown"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        match(events, [Subscription("1", "h1", 'time > "2026-03-01T00:00:00Z"')])
