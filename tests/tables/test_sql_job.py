"""Tables from a shell: jobs that create, fill, edit and query them, and their error messages."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import re
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from pyspark.sql import SparkSession

from stackcast.jobs import create_tables, run_sql
from stackcast.jobs.adapters.app import application
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, table_error
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.traffic.subscriptions import subscriptions
from stackcast.udfs.errors import TableError
from stackcast.udfs.messages.attributes.registry import Registry
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration

SPARK_SUBMIT = str(ROOT / "spark-submit.sh")
RUN_SQL = ROOT / "jobs" / "run_sql.py"
NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)


def deployment() -> dict[str, list[dict[str, Any]]]:
    """Returns rows of a network and its subscriptions, as ``stackcast lab up`` writes them."""
    common = {"format": "itch", "enabled": True, "updated_by": "lab", "updated_at": None}
    return {
        **network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "127.0.0.1:9559")),
        "virtual_trees": [tree_to_row(tree) for tree in broadcast_trees(NETWORK)],
        "subscriptions": [{**row, **common} for row in subscriptions(NETWORK.subscribers(), 20)],
    }


def write(folder: Path, rows: dict[str, list[dict[str, Any]]]) -> Path:
    folder.mkdir(exist_ok=True)
    for table, content in rows.items():
        (folder / f"{table}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in content))
    return folder


def run(program: str, *arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    # The variables would name the conf folder of the process that runs the tests.
    environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_CONF_DIR", "SPARK_HOME")}
    return subprocess.run(
        [program, *map(str, arguments)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # spark-submit sends both of a job's streams to its own output
        text=True,
        timeout=600,
        check=False,
    )


def check_error(process: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check that a job failed with a single line of log that contains the words."""
    assert process.returncode == 2, process.stdout
    lines = process.stdout.splitlines()
    (line,) = [line for line in lines if re.search(r" stackcast[.:]", line)]
    assert "ERROR" in line
    for word in words:
        assert word in line
    for noise in ("Traceback", "\tat ", "py4j.protocol"):
        assert noise not in process.stdout


@pytest.fixture(scope="module")
def filled(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    """Tables that the job has filled from files."""
    folder = tmp_path_factory.mktemp("deployment")
    shutil.copytree(empty_tables, folder / "tables")
    settings = Settings(tables=str(folder / "tables"))
    rows = write(folder / "rows", deployment())
    with pytest.MonkeyPatch.context() as patch:
        # The session of the tests is running, and their logs need no new handler.
        patch.setattr(Settings, "read", lambda _: settings)
        patch.setattr(application, "set_up", lambda: None)
        assert create_tables.main([str(rows)]) == 0
    return settings


def test_create_tables_fills_each_table_from_its_file(
    filled: Settings, spark: SparkSession
) -> None:
    tables = open_tables(spark, filled.tables)
    for name, content in deployment().items():
        assert len(tables.rows(name)) == len(content) > 0


UPDATE = "UPDATE subscriptions SET enabled = false WHERE id = 's0001'"
SELECT = "SELECT id, enabled FROM subscriptions WHERE id IN ('s0001', 's0002') ORDER BY id"
RANGE = "SELECT id AS number FROM range(1005)"
#: A row that violates a constraint, which a task of Spark reports.
WRONG_ROW = "INSERT INTO hosts VALUES ('x', 's', 1, 1, '10.0.0.1', 'listener')"


def check_answers(output: str) -> None:
    assert "|s0001|false  |" in output
    assert "|s0002|true   |" in output
    assert "|1004  |" in output and "only showing" not in output


def test_run_sql_prints_answers_and_reports_the_statement_that_failed(
    filled: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Settings, "read", lambda _: filled)
    monkeypatch.setattr(application, "set_up", lambda: None)
    assert run_sql.main([UPDATE, SELECT, RANGE, WRONG_ROW, "--all"]) == 2
    check_answers(capsys.readouterr().out)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "statement 4" in message and "role_known" in message and "\n" not in message


@pytest.mark.long
def test_run_sql_runs_by_plain_spark_submit_and_an_error_is_one_clear_line(
    filled: Settings, tmp_path: Path
) -> None:
    properties = tmp_path / "our.conf"
    properties.write_text(
        "spark.master local[1]\nspark.ui.enabled false\nspark.driver.host 127.0.0.1\n"
        # Without these, Delta reads each small table with 50 tasks, and sorts with 200.
        "spark.databricks.delta.snapshotPartitions 1\nspark.sql.shuffle.partitions 2\n"
        f"spark.stackcast.tables {filled.tables}\n"
    )
    process = run(
        "bash",
        "-c",
        f'eval "$({SPARK_SUBMIT} env)" && spark-submit --properties-file {properties} '
        f'{RUN_SQL} "$@"',
        "sh",
        UPDATE,
        SELECT,
        RANGE,
        WRONG_ROW,
        "--all",
        folder=tmp_path,
    )
    check_answers(process.stdout)
    check_error(process, "statement 4", "role_known")


def test_a_long_answer_is_cut_and_an_error_names_its_statement(
    filled: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    statements = [
        "SELECT id AS number FROM range(1005)",
        "UPDATE subscriptions  SET enabeld = false",
    ]
    with pytest.raises(TableError) as error:
        run_sql.show(statements, filled, Lifecycle())
    assert "only showing the first 1,000 rows; --all shows all" in capsys.readouterr().out
    message = str(error.value)
    assert message.startswith(
        "TABLE.REFUSED: statement 2, UPDATE subscriptions SET enabeld = false: A col"
    )
    for raw in ("UNRESOLVED_COLUMN", "SQLSTATE", "\n"):
        assert raw not in message


def test_the_number_of_rows_and_the_version_follow_each_statement(
    spark: SparkSession, empty_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = copied(spark, empty_tables, tmp_path, "subscriptions", "rejected_subscriptions")
    file = tmp_path / "statements.sql"
    file.write_text("""-- Rules; two of them.
        INSERT INTO subscriptions (id, subscriber, format, filter, enabled)
          VALUES ('a;b', 'h1', 'itch', 'price > 1', true), ('c', 'h1', 'itch', 'all', true);
        UPDATE subscriptions SET enabled = false WHERE id = 'a;b';
        SELECT id, enabled FROM subscriptions ORDER BY id;
        UPDATE subscriptions SET enabled = false WHERE id = 'missing';
        DELETE FROM subscriptions;
        SELECT id FROM subscriptions;
        help
    """)
    settings = Settings(tables=tables.location)
    assert run_sql.show([], settings, Lifecycle(), file=str(file)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:9] == [
        "2 rows inserted, version 1 of subscriptions",
        "1 row updated, version 2 of subscriptions",
        "+---+-------+",
        "|id |enabled|",
        "+---+-------+",
        "|a;b|false  |",
        "|c  |true   |",
        "+---+-------+",
        "2 rows",
    ]
    assert lines[9:11] == [
        "0 rows, subscriptions remains at version 2",
        "2 rows deleted, version 3 of subscriptions",
    ]
    assert "0 rows" in lines and lines[-len(run_sql.HELP.splitlines()) :] == (
        run_sql.HELP.splitlines()
    )


def test_a_message_with_a_caret_is_shown_in_several_lines(
    spark: SparkSession, empty_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = copied(spark, empty_tables, tmp_path, "subscriptions")
    statement = r"SELECT 'a' AS id, 'line 1:\n  prise > 1\n  ^' AS message UNION ALL SELECT 'b', ''"
    run_sql.show([statement], Settings(tables=tables.location), Lifecycle())
    assert capsys.readouterr().out.splitlines() == [
        "+--+-----------+",
        "|id|message    |",
        "+--+-----------+",
        "|a |line 1:    |",
        "|  |  prise > 1|",
        "|  |  ^        |",
        "|b |           |",
        "+--+-----------+",
        "2 rows",
    ]


def test_all_tables_have_their_names_although_none_was_read(
    spark: SparkSession, empty_tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = copied(spark, empty_tables, tmp_path, "subscriptions", "hosts", "links")
    shown = ["SHOW TABLES", "SELECT count(*) FROM hosts JOIN links ON true", "DESCRIBE hosts"]
    run_sql.show(shown, Settings(tables=tables.location), Lifecycle())
    output = capsys.readouterr().out
    for name in ("subscriptions", "hosts", "links"):
        assert f"|stackcast|{name}" in output
    assert "|virtual_trees" not in output and "|ipv4" in output
    with pytest.raises(TableError) as failure:
        run_sql.show(["SELECT * FROM writers"], Settings(tables=tables.location), Lifecycle())
    assert failure.value.code == "TABLE.MISSING" and "writers" in failure.value.message


def test_a_file_without_statements_and_a_statement_that_fails_are_named(
    spark: SparkSession, empty_tables: Path, tmp_path: Path
) -> None:
    tables = copied(spark, empty_tables, tmp_path, "subscriptions")
    settings = Settings(tables=tables.location)
    file = tmp_path / "statements.sql"
    file.write_text("-- nothing;\n")
    with pytest.raises(TableError) as failure:
        run_sql.show([], settings, Lifecycle(), file=str(file))
    assert failure.value.code == "TABLE.NO_STATEMENT" and str(file) in failure.value.message
    file.write_text("SELECT 1;\n\nSELEC 2;\n")
    with pytest.raises(TableError) as failure:
        run_sql.show([], settings, Lifecycle(), file=str(file))
    assert failure.value.message.startswith(f"{file}, line 3, SELEC 2: ")


@pytest.mark.long
def test_a_missing_table_is_one_clear_line_of_a_job_that_plain_spark_submit_runs(
    tmp_path: Path,
) -> None:
    where = f"spark.stackcast.tables={tmp_path}/tables"
    process = run(
        "bash",
        "-c",
        f'eval "$({SPARK_SUBMIT} env)" && spark-submit --conf {where} {RUN_SQL} "SELECT 1"',
        folder=tmp_path,
    )
    check_error(process, "TABLE.MISSING", "create_tables", str(tmp_path))


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        ("SELECT * FROM nowhere", "TABLE.MISSING", "`nowhere` cannot be found: SHOW TABLES"),
        ("SELECT * FROM delta.`/nowhere`", "TABLE.MISSING", "does not exist: /nowhere: SHOW"),
        ("CREATE TABLE delta.`/proc/x` (a INT) USING delta", "TABLE.NOT_WRITABLE", "/proc/x/"),
        ("SELEC 1", "TABLE.REFUSED", "SELEC 1: Syntax error at or near 'SELEC'"),
    ],
)
def test_the_error_of_a_statement_has_a_code_and_the_statement(
    spark: SparkSession, statement: str, code: str, words: str
) -> None:
    with pytest.raises(SQL_ERRORS) as error:
        spark.sql(statement)
    message = str(table_error(error.value, statement))
    assert message.startswith(f"{code}: {statement}: ") and words in message
    for raw in ("[", "SQLSTATE", "\n"):
        assert raw not in message


def copied(spark: SparkSession, empty_tables: Path, folder: Path, *names: str) -> Tables:
    """Returns a deployment with these empty tables only."""
    for name in names:
        shutil.copytree(empty_tables / name, folder / "tables" / name)
    return open_tables(spark, str(folder / "tables"))


def test_only_empty_tables_are_filled_and_the_log_says_which(
    spark: SparkSession, empty_tables: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = copied(spark, empty_tables, tmp_path, "hosts", "links")
    rows = deployment()
    tables.append("hosts", rows["hosts"][:1])
    folder = write(tmp_path / "rows", {name: rows[name] for name in ("hosts", "links")})
    with caplog.at_level(logging.INFO, "stackcast.create_tables"):
        create_tables.fill(tables, folder)
    assert tables.rows("hosts") == rows["hosts"][:1]
    assert len(tables.rows("links")) == len(rows["links"])
    assert f"links: {len(rows['links'])} rows from" in caplog.text
    assert "hosts has rows already and stays as it is" in caplog.text


def test_two_programs_that_fill_a_table_at_once_write_its_rows_once(
    spark: SparkSession, empty_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = copied(spark, empty_tables, tmp_path, "hosts")
    rows = deployment()["hosts"]
    folder = write(tmp_path / "rows", {"hosts": rows})
    append = type(tables).append
    calls: list[str] = []

    def append_second(self: Any, name: str, *arguments: Any, **options: Any) -> bool:
        calls.append(name)
        if len(calls) == 1:
            create_tables.fill(open_tables(spark, tables.location), folder)
        return append(self, name, *arguments, **options)

    monkeypatch.setattr(type(tables), "append", append_second)
    create_tables.fill(tables, folder)
    assert len(calls) == 2 and len(tables.rows("hosts")) == len(rows)


def test_rows_may_omit_nulls_and_write_times_as_text(
    spark: SparkSession, empty_tables: Path, tmp_path: Path
) -> None:
    tables = copied(spark, empty_tables, tmp_path, "subscriptions")
    row = {"id": "a", "subscriber": "h1", "format": "itch", "filter": "price > 1", "enabled": True}
    later = {**row, "id": "b", "updated_at": "2026-01-02T03:04:05Z"}
    create_tables.fill(tables, write(tmp_path / "rows", {"subscriptions": [row, later]}))
    times = {r["id"]: r["updated_at"] for r in tables.rows("subscriptions")}
    assert times == {"a": None, "b": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)}


@pytest.mark.parametrize("tenth", ["0.1", '"0.1"'])
def test_attributes_are_read_from_the_file_of_the_documentation(
    spark: SparkSession, empty_tables: Path, tmp_path: Path, tenth: str
) -> None:
    """Decimals have exactly the value that the file shows, as a number or as text."""
    tables = copied(spark, empty_tables, tmp_path, "attributes")
    document = (ROOT / "docs" / "tutorials" / "attributes.md").read_text("utf-8")
    lines = re.findall(r"^ {4}(\{\"id\": .*\})$", document, re.MULTILINE)
    folder = write(tmp_path / "rows", {})
    file = folder / "attributes.jsonl"
    file.write_text("\n".join(lines).replace("0.1", tenth))
    create_tables.fill(tables, folder)
    expected = {
        (row["id"], row["name"], row["type"], row["scale"], row["offset"])
        for row in (json.loads(line, parse_int=Decimal, parse_float=Decimal) for line in lines)
    }
    found = {
        (r["id"], r["name"], r["type"], r["scale"], r["offset"]) for r in tables.rows("attributes")
    }
    assert found == expected and Decimal("0.1") in {scale for *_, scale, _ in found}
    assert Registry.from_rows(tables.rows("attributes"))


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, "TABLE.NO_ROWS", ["hosts.jsonl"]),
        ("{}\n", "TABLE.BAD_ROW", ["line 1", "'host'", "missing"]),
        ('{"host": "h1"', "TABLE.BAD_ROW", ["line 1", "JSON"]),
        ("[1]", "TABLE.BAD_ROW", ["line 1", "object"]),
        ('{"hots": "h1"}', "TABLE.BAD_ROW", ["line 1", "'hots'", "host"]),
    ],
)
def test_bad_rows_are_named_by_file_and_line(
    spark: SparkSession,
    empty_tables: Path,
    tmp_path: Path,
    content: str | None,
    code: str,
    words: list[str],
) -> None:
    tables = copied(spark, empty_tables, tmp_path, "hosts")
    folder = write(tmp_path / "rows", {})
    if content is not None:
        (folder / "hosts.jsonl").write_text(content)
    with pytest.raises(TableError) as failure:
        create_tables.fill(tables, folder)
    assert failure.value.code == code
    for word in words:
        assert word in failure.value.message


class Rows:
    """Stub of the tables of one network with these rules."""

    def __init__(
        self, rules: list[tuple[str, str, str]], hosts: bool = True, granted: str = ""
    ) -> None:
        self._rows = {
            "hosts": deployment()["hosts"] if hosts else [],
            "subscriptions": [
                {"id": name, "subscriber": "h1", "format": form, "filter": text}
                | {"enabled": name != "off", "updated_at": None}
                for name, form, text in rules
            ],
            "attributes": [],
            "grants": [
                {"id": "g", "subscriber": "h1", "format": "itch", "filter": granted}
                for _ in granted[:1]
            ],
        }

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self._rows[name]


def test_remarks_name_rules_that_will_not_be_live_and_rules_that_never_match() -> None:
    rules = [
        ("good", "itch", "price > 5"),
        ("slip", "itch", "prise > 5"),
        ("away", "itch", "price > 5 : fwd(stranger)"),
        ("never", "itch", "price > 5 and price < 3"),
        ("off", "itch", "prise > 5"),
        ("other", "fix", "price > 5"),
    ]
    tables: Any = Rows(rules)
    lines = create_tables.remarks(tables, Settings())
    assert [line.split(": ")[:2] for line in lines] == [
        ["subscription other will not be live", "SUBSCRIPTION.UNKNOWN_FORMAT"],
        ["subscription away will not be live", "SUBSCRIPTION.UNKNOWN_HOST"],
        ["subscription slip will not be live", "SUBSCRIPTION.UNKNOWN_FIELD"],
        ["subscription never is most likely not meant", "SUBSCRIPTION.NEVER_TRUE"],
    ]
    many: Any = Rows([(f"r{n:02}", "itch", "prise > 5") for n in range(30)])
    *first, last = create_tables.remarks(many, Settings())
    assert len(first) == create_tables.SHOWN and last == "10 more have a remark"
    restricted: Any = Rows(
        [("more", "itch", "price > 5"), ("less", "itch", "price > 7")], granted="price > 6"
    )
    (line,) = create_tables.remarks(restricted, Settings())
    assert line.startswith("subscription more will not be live: SUBSCRIPTION.NOT_GRANTED: ")
    # Rules may be loaded before the network.
    without_hosts: Any = Rows(rules, hosts=False)
    assert create_tables.remarks(without_hosts, Settings()) == []
