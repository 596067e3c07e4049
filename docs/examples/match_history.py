"""Apply rules to past trades, and show which rules match and which hosts would receive them.

./spark-submit.sh docs/examples/match_history.py
"""

from pyspark.sql import SparkSession

from stackcast import Subscription, match

spark = SparkSession.builder.getOrCreate()
history = spark.sql("""
    SELECT * FROM VALUES
        ('GOOGL', 60.00D, timestamp'2026-03-02 14:30:00Z', true),
        ('GOOGL', 50.00D, timestamp'2026-03-02 14:31:00Z', false),
        ('MSFT', NULL, timestamp'2026-02-27 14:30:00Z', true)
    AS trades(stock, price, at, buy)""")
rules = [
    Subscription("1", "h1", "stock == GOOGL and price > 50.25"),
    Subscription("2", "h2", 'at >= "2026-03-01T00:00:00Z" and buy == false'),
    Subscription("3", "h1", "not price > 100 : fwd(h3, h4)"),
]
match(history, rules).show(truncate=False)
