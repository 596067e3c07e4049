"""Run SQL statements on the tables, for users who have no other SQL client.

    spark-submit jobs/run_sql.py "UPDATE subscriptions SET enabled = false WHERE id = 's0001'"
    spark-submit jobs/run_sql.py -f statements.sql
    spark-submit jobs/run_sql.py < statements.sql

Statements use the plain names of tables, and semicolons separate them. The job prints up to 1,000
rows of each answer, or all with --all, and for statements that write the number of rows and the new
version of the table. Without statements, at a terminal, it prompts for them.

`SELECT * FROM who_gets(stock => 'GOOGL', price => '60')` lists the hosts that would get an event.
`SELECT id, since, messages FROM subscription_matches` returns the time since which each
subscription is live, and the number of messages that it has matched; it reads the topic, so the job
needs the properties of the stream.
"""

from __future__ import annotations

import os
import readline
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from stackcast.jobs.command_lines.run_sql import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from pyspark.sql import DataFrame, SparkSession

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, quiet, table_error
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings, at_home
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.tables import who_gets
from stackcast.jobs.adapters.tables.conflicts import retried
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.spark_errors import storage_errors
from stackcast.jobs.adapters.tables.sql_answers import WriteReport, answer_text, named_tables
from stackcast.jobs.adapters.tables.statements import Statement, split
from stackcast.udfs.errors import StackcastError, TableError

#: View that counts what each rule has matched, which is defined when a statement names it.
MATCHES = "subscription_matches"
#: Rows of an answer that are printed.
SHOWN = 1_000
#: More than an answer can have.
ALL = 2**31 - 1
#: Characters of a statement that its error repeats.
REPEATED = 60
#: Lines typed that are remembered from one session to the next.
REMEMBERED = 1_000
#: Set by ``spark-submit`` for the job that it starts.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
#: Words that end the prompt, and those that need no semicolon.
_ENDING = ("exit", "quit")
_ALONE = ("help", *_ENDING)
HELP = """\
Type SQL statements, each followed by a semicolon. Ctrl-C or Ctrl-D ends the job.

  SHOW TABLES;                             list the tables
  DESCRIBE subscriptions;                  list the columns of a table
  SELECT * FROM live_subscriptions;        rules that are live
  SELECT * FROM rejected_subscriptions;    rejected rules, and why
  INSERT INTO subscriptions VALUES ('mine', 'h3', 'itch', 'price > 150', true, 'me', now());
  UPDATE subscriptions SET enabled = false WHERE id = 'mine';
  DESCRIBE HISTORY subscriptions;          who wrote each version, and when
  SELECT * FROM who_gets(stock => 'GOOGL', price => '60');    hosts that would get an event

docs/reference/tables.md describes the tables, and docs/reference/rule-language.md the rules."""


def main(arguments: list[str]) -> int:
    command_line = parser(__doc__)
    options = command_line.parse_args(arguments)
    file = options.file
    if not options.statements and file is None and piped_input() is not None:
        file = "-"
    if not options.statements and file is None and not take_terminal():
        command_line.print_help(sys.stderr)
        return application.FAILED
    most = ALL if options.all else SHOWN
    return application.run(partial(show, options.statements, most=most, file=file))


def show(
    statements: Sequence[str],
    settings: Settings,
    _lifecycle: Lifecycle,
    most: int = SHOWN,
    file: str | None = None,
) -> int:
    """Prints the answers of statements, or of those that are typed where there are none.

    Args:
        statements: texts, each with one or more statements.
        settings: the settings of the deployment.
        most: number of rows of an answer that are printed.
        file: file of further statements; - is standard input.

    Raises:
        TableError: MISSING, NOT_WRITABLE, REFUSED, with the statement; NO_STATEMENT, if the file
            has none.
        OSError: the file cannot be read.
    """
    # A file that cannot be read is an error before Spark starts.
    batch = [*_of_arguments(statements), *(_of_file(file) if file is not None else ())]
    if not batch and (statements or file is not None):
        where = "the command line" if file is None else _name(file)
        raise TableError("NO_STATEMENT", f"{where} has no SQL statement")
    prompt = Prompt(settings, most)
    if not batch:
        prompt.interact()
    for place, statement in batch:
        prompt.answer(statement, f"{place}, ")
    return 0


def _of_arguments(texts: Iterable[str]) -> Iterator[tuple[str, Statement]]:
    """Yields the statements of arguments with their numbers. The last semicolon may be missing."""
    statements = [each for text in texts for each in _all_of(text)]
    for number, statement in enumerate(statements, 1):
        yield f"statement {number}", statement


def _of_file(file: str) -> Iterator[tuple[str, Statement]]:
    """Yields the statements of a file with their places."""
    path = (piped_input() or Path("/dev/stdin")) if file == "-" else Path(file)
    for statement in _all_of(path.read_text("utf-8")):
        yield f"{_name(file)}, line {statement.line}", statement


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _all_of(text: str) -> list[Statement]:
    statements, remainder = split(text)
    return [*statements, remainder] if remainder.text else statements


class Prompt:
    """A session in which the tables have their plain names, for statements one after the other."""

    def __init__(self, settings: Settings, most: int) -> None:
        self._settings = settings
        self._most = most
        self._spark: SparkSession = session.start("stackcast run_sql")
        self._tables = open_tables(self._spark, settings.tables)
        self._tables.attach()
        quiet(self._spark)
        self._spark.sql(f"USE {self._tables.schema}")

    def interact(self) -> None:
        """Answers statements that are typed, until Ctrl-D."""
        print(
            f"{self._tables.location}: SHOW TABLES; lists the tables, help; shows examples. "
            "Statements end with ;, Ctrl-D ends."
        )
        for text in typed(Path(at_home("var/sql_history"))):
            if text.lower() in _ENDING:
                return
            try:
                self.answer(Statement(text, 1))
            except StackcastError as error:
                print(error)

    def answer(self, statement: Statement, place: str = "") -> None:
        """Prints the answer of a statement, and the number of its rows or of those written.

        Args:
            statement: the statement.
            place: beginning of the message of an error.

        Raises:
            TableError: MISSING, NOT_WRITABLE, REFUSED, NEWER_LAYOUT, OLDER_LAYOUT.
        """
        spark, tables, settings = self._spark, self._tables, self._settings
        text = statement.text
        if text.lower() == "help":
            print(HELP)
            return
        for name in named_tables(statement.words):
            self._check_layout(name)
        if who_gets.asks([text]):
            who_gets.define(spark, tables, specification_of(settings, tables))
        if MATCHES in statement.words:
            self._define_matches()
        report = WriteReport(tables, statement)
        try:
            # A statement that writes does so before it returns.
            rows = retried(partial(_run, spark, text))
            written = report.text(rows)
            if written is not None:
                print(written)
            elif rows.columns:
                print(answer_text(rows, self._most))
        except SQL_ERRORS as error:
            words = " ".join(text.split())
            short = words if len(words) <= REPEATED else words[: REPEATED - 3] + "..."
            raise table_error(error, f"{place}{short}") from error
        sys.stdout.flush()

    def _define_matches(self) -> None:
        # The code that matches events takes a second to import.
        from stackcast.jobs.adapters.planning import formats  # noqa: PLC0415
        from stackcast.jobs.adapters.replay import subscription_matches  # noqa: PLC0415

        settings = formats.of_settings(self._settings, self._settings.format)
        subscription_matches.define(self._spark, self._tables, settings)

    def _check_layout(self, name: str) -> None:
        try:
            self._tables.version(name)
        except TableError as error:
            # The word may mean something else. If not, Spark reports the table.
            if error.what != "MISSING":
                raise


def _run(spark: SparkSession, statement: str) -> DataFrame:
    with storage_errors():
        return spark.sql(statement)


def piped_input() -> Path | None:
    """Returns a file with the standard input of this job, if it is a file or a pipe.

    ``spark-submit`` gives a job a pipe of its own, in which nothing ever comes. The standard input
    that it was started with is that of its JVM, the parent of the job.
    """
    source = Path("/dev/stdin")
    if _SUBMITTED in os.environ:
        source = Path(f"/proc/{os.getppid()}/fd/0")
    try:
        mode = source.stat().st_mode
    except OSError:
        return None
    return source if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) else None


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
    """Yields statements as they are typed, each up to a semicolon; Ctrl-D ends.

    history: file of the lines typed before, which the arrow keys bring back.
    """
    readline.set_history_length(REMEMBERED)
    with suppress(OSError):
        readline.read_history_file(history)
    text = ""
    try:
        while True:
            text += input("...> " if text else "sql> ") + "\n"
            if text.strip().lower() in _ALONE:
                text = f"{text.strip()};"
            statements, remainder = split(text)
            text = f"{remainder.text}\n" if remainder.text else ""
            for statement in statements:
                yield statement.text
    except EOFError:
        print()
    finally:
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
