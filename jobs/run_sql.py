"""Runs SQL statements on the tables, for people who have no other SQL client.

    spark-submit jobs/run_sql.py "UPDATE subscriptions SET enabled = false WHERE id = 's0001'"

Statements use the plain names of tables. Each argument is one statement; the job prints up to 1,000
rows of its answer, or with --all all of them. Without arguments, at a terminal, it prompts for
statements. ``SELECT * FROM who_gets(stock => 'GOOGL', price => '60')`` lists the hosts that would
get an event, and ``SELECT id, since, messages FROM subscription_matches`` has the time since when
each subscription is live and how many messages it has matched (the job needs the properties of the
stream for that, because it reads the topic).
"""

from __future__ import annotations

import argparse
import os
import readline
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, quiet, table_error
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings, at_home
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.replay import subscription_matches
from stackcast.jobs.adapters.tables import who_gets
from stackcast.jobs.adapters.tables.conflicts import retried
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import StackcastError

#: Rows of an answer that are printed.
SHOWN = 1_000
#: More than an answer can have.
ALL = 2**31 - 1
#: Characters of a statement that its error repeats.
REPEATED = 60
#: Lines typed that are remembered from one session to the next.
REMEMBERED = 1_000


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="run_sql", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("statements", nargs="*", metavar="SQL", help="statement to run")
    parser.add_argument("--all", action="store_true", help="print all rows of an answer")
    asked = parser.parse_args(arguments)
    if not asked.statements and not take_terminal():
        parser.print_help(sys.stderr)
        return application.FAILED
    return application.run(partial(show, asked.statements, most=ALL if asked.all else SHOWN))


def show(
    statements: list[str], settings: Settings, _lifecycle: Lifecycle, most: int = SHOWN
) -> int:
    """Prints the answers of statements, or of those that are typed where there are none.

    Raises TableError MISSING, NOT_WRITABLE, REFUSED, with the statement.
    """
    spark = session.start("stackcast run_sql")
    tables = Tables(spark, settings.tables)
    tables.attach()
    quiet(spark)
    spark.sql(f"USE {tables.schema}")
    if statements:
        for number, statement in enumerate(statements, 1):
            _answer(spark, tables, settings, statement, most, f"statement {number}, ")
        return 0
    print(
        f"{tables.location}: SHOW TABLES; lists what is there. Statements end with ;, Ctrl-D ends."
    )
    for statement in typed(Path(at_home("var/sql_history"))):
        try:
            _answer(spark, tables, settings, statement, most)
        except StackcastError as error:
            print(error)
    return 0


def _answer(
    spark: SparkSession,
    tables: Tables,
    settings: Settings,
    statement: str,
    most: int,
    which: str = "",
) -> None:
    if who_gets.asks([statement]):
        who_gets.define(spark, tables, formats.specification_of(settings, tables))
    if subscription_matches.asks([statement]):
        subscription_matches.define(spark, tables, formats.of_settings(settings, settings.format))
    try:
        # A statement that writes does so before it returns.
        rows = retried(lambda: spark.sql(statement))
        if rows.columns:
            rows.show(n=most, truncate=False)
    except SQL_ERRORS as error:
        said = " ".join(statement.split())
        short = said if len(said) <= REPEATED else said[: REPEATED - 3] + "..."
        raise table_error(error, f"{which}{short}") from error


def take_terminal() -> bool:
    """Makes the terminal of this process its standard input and output; False where it has none.

    ``spark-submit`` gives a job pipes for both, and reads or writes but one of them.
    """
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
        # In the background it would be stopped for reading.
        if os.tcgetpgrp(terminal) != os.getpgrp():
            return False
    except OSError:
        return False
    for standard in (sys.stdin, sys.stdout):
        os.dup2(terminal, standard.fileno())
    return True


def typed(history: Path) -> Iterator[str]:
    """Yields statements as they are typed, each up to a semicolon that ends a line; Ctrl-D ends.

    history: file of the lines typed before, which the arrow keys bring back.
    """
    readline.set_history_length(REMEMBERED)
    with suppress(OSError):
        readline.read_history_file(history)
    lines: list[str] = []
    try:
        while True:
            lines.append(input("...> " if lines else "sql> "))
            statement = "\n".join(lines).strip()
            if statement.endswith(";") or not statement:
                lines.clear()
            if not lines and (statement := statement.rstrip("; \n")):
                yield statement
    except EOFError:
        print()
    finally:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
