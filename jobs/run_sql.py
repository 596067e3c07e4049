"""Run SQL statements on the tables: the way for people who have no SQL client at hand.

    spark-submit jobs/run_sql.py "UPDATE subscriptions SET enabled = false WHERE id = 's0001'"

Tables are addressed by their plain names. Every argument is one statement; rows are printed.
``SELECT * FROM who_gets(stock => 'GOOGL', price => '60')`` says who would get an event, and
``SELECT id, since, messages FROM subscription_matches`` since when each subscription is live, and
how many messages it has matched (give the properties of the stream: it reads the topic).
"""

from __future__ import annotations

import sys
from functools import partial

from jobs.adapters.app import application, session
from jobs.adapters.app.error_texts import quiet
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning import formats
from jobs.adapters.replay import subscription_matches
from jobs.adapters.tables import who_gets
from jobs.adapters.tables.tables import Tables


def main(statements: list[str]) -> int:
    if not statements:
        print(__doc__, file=sys.stderr)
        return application.FAILED
    return application.run(partial(show, statements))


def show(statements: list[str], settings: Settings, _lifecycle: Lifecycle) -> int:
    spark = session.start("stackcast run_sql")
    tables = Tables(spark, settings.tables)
    tables.attach()
    quiet(spark)
    spark.sql(f"USE {tables.schema}")
    if who_gets.asks(statements):
        who_gets.define(spark, tables, formats.specification_of(settings, tables))
    if subscription_matches.asks(statements):
        subscription_matches.define(spark, tables, formats.of_settings(settings, settings.format))
    for statement in statements:
        rows = spark.sql(statement)
        if rows.columns:
            rows.show(n=1000, truncate=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
