"""Run SQL statements on the tables: the way for people who have no SQL client at hand.

    spark-submit jobs/run_sql.py "UPDATE subscriptions SET enabled = false WHERE id = 's0001'"

Tables are addressed by their plain names. Every argument is one statement; rows are printed.
``SELECT * FROM who_gets(stock => 'GOOGL', price => '60')`` says who would get an event.
"""

from __future__ import annotations

import logging
import sys

import schemas
from jobs.adapters import explanation, session
from jobs.adapters.logs import set_up
from jobs.adapters.settings import Settings
from jobs.adapters.sql_errors import SQL_ERRORS, one_line, quiet
from jobs.adapters.tables import Tables
from udfs.errors import StackcastError
from udfs.messages.specification import parse_specification

log = logging.getLogger("stackcast.run_sql")


def main(statements: list[str]) -> int:
    set_up()
    if not statements:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        spark = session.start("stackcast run_sql")
        settings = Settings.read(spark.sparkContext.getConf().getAll())
        tables = Tables(spark, settings.tables)
        tables.attach()
        quiet(spark)
        spark.sql(f"USE {tables.schema}")
        if explanation.asks(statements):
            text = schemas.read_text(f"messages/{settings.format}.spec")
            explanation.define(spark, tables, parse_specification(text, settings.format))
        for statement in statements:
            rows = spark.sql(statement)
            if rows.columns:
                rows.show(n=1000, truncate=False)
    except StackcastError as error:
        log.error("%s", error)
        return 2
    except SQL_ERRORS as error:
        log.error("%s", one_line(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
