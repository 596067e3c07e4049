"""Tables from a shell: made, filled, edited and asked by people who have nothing but the door."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT
from pyspark.sql import SparkSession

from jobs import create_tables, run_sql
from jobs.adapters.app.error_texts import SQL_ERRORS, table_error
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.tables.tables import Tables
from lab.traffic.subscriptions import subscriptions
from udfs.errors import TableError
from udfs.network.rows import network_to_rows, tree_to_row
from udfs.network.topology import fabric
from udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration

DOOR = str(ROOT / "spark-submit.sh")
NETWORK = fabric(pods=2, racks=2, hosts=1, planes=1, spines=1)


def deployment() -> dict[str, list[dict[str, Any]]]:
    """Rows of a network and its first subscriptions, as ``stackcast lab up`` writes them."""
    who = {"format": "itch", "enabled": True, "updated_by": "lab", "updated_at": None}
    return {
        **network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, "127.0.0.1:9559")),
        "virtual_trees": [tree_to_row(tree) for tree in broadcast_trees(NETWORK)],
        "subscriptions": [{**row, **who} for row in subscriptions(NETWORK.subscribers(), 20)],
    }


def write(folder: Path, rows: dict[str, list[dict[str, Any]]]) -> Path:
    folder.mkdir(exist_ok=True)
    for table, content in rows.items():
        (folder / f"{table}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in content))
    return folder


def run(*arguments: str | Path, cwd: Path, program: str = DOOR) -> subprocess.CompletedProcess[str]:
    # Not the conf folder of the process that runs the tests.
    environment = {k: v for k, v in os.environ.items() if k not in ("SPARK_CONF_DIR", "SPARK_HOME")}
    return subprocess.run(
        [program, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,  # spark-submit sends both of a job's streams to its own output
        text=True,
        timeout=240,
        check=False,
    )


def our_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(r" stackcast[.:]", line)]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables made through the door, with a self-contained properties file, from elsewhere."""
    folder = tmp_path_factory.mktemp("deployment")
    rows = write(folder / "rows", deployment())
    settings = folder / "our.conf"
    settings.write_text(
        "spark.master local[1]\nspark.ui.enabled false\nspark.driver.host 127.0.0.1\n"
        # Without these, Delta looks at each small table with 50 tasks, and sorts with 200.
        "spark.databricks.delta.snapshotPartitions 1\nspark.sql.shuffle.partitions 2\n"
        f"spark.stackcast.tables {folder}/tables\n"
    )
    job = ROOT / "jobs" / "create_tables.py"
    ended = run("--properties-file", settings, job, rows, cwd=folder)
    assert ended.returncode == 0, ended.stdout
    for table, content in deployment().items():
        assert f"{table}: {len(content)} rows from" in ended.stdout
    return folder


def sql(folder: Path, *statements: str) -> subprocess.CompletedProcess[str]:
    where = f"spark.stackcast.tables={folder}/tables"
    return run("--conf", where, ROOT / "jobs" / "run_sql.py", *statements, cwd=folder)


def check_clear(ended: subprocess.CompletedProcess[str], words: str) -> None:
    """It failed, and said why in one line."""
    assert ended.returncode == 2
    (line,) = our_lines(ended.stdout)
    assert "ERROR" in line and words in line
    for noise in ("Traceback", "\tat ", "py4j.protocol"):
        assert noise not in ended.stdout


def test_an_update_by_sql_is_in_the_table_and_bad_sql_is_one_clear_line(filled: Path) -> None:
    ended = sql(
        filled,
        "UPDATE subscriptions SET enabled = false WHERE id = 's0001'",
        "SELECT id, enabled FROM subscriptions WHERE id IN ('s0001', 's0002') ORDER BY id",
        "SELECT id AS number FROM range(1005)",
        "UPDATE subscriptions  SET enabeld = false",
        "--all",
    )
    assert "|s0001|false  |" in ended.stdout
    assert "|s0002|true   |" in ended.stdout
    assert "|1004  |" in ended.stdout and "only showing" not in ended.stdout
    check_clear(ended, "enabeld")
    assert (
        "TABLE.REFUSED: statement 4, UPDATE subscriptions SET enabeld = false: A col"
        in ended.stdout
    )
    for raw in ("UNRESOLVED_COLUMN", "SQLSTATE"):
        assert raw not in ended.stdout


@pytest.mark.parametrize(
    ("statement", "code", "words"),
    [
        ("SELECT * FROM nowhere", "TABLE.MISSING", "`nowhere` cannot be found: SHOW TABLES"),
        ("SELECT * FROM delta.`/nowhere`", "TABLE.MISSING", "does not exist: /nowhere: SHOW"),
        ("CREATE TABLE delta.`/proc/x` (a INT) USING delta", "TABLE.NOT_WRITABLE", "/proc/x/"),
        ("SELEC 1", "TABLE.REFUSED", "SELEC 1: Syntax error at or near 'SELEC'"),
    ],
)
def test_what_a_statement_does_wrong_has_a_code_of_ours_and_the_statement(
    spark: SparkSession, statement: str, code: str, words: str
) -> None:
    with pytest.raises(SQL_ERRORS) as raised:
        spark.sql(statement)
    told = str(table_error(raised.value, statement))
    assert told.startswith(f"{code}: {statement}: ") and words in told
    for raw in ("[", "SQLSTATE", "\n"):
        assert raw not in told


def test_of_a_long_answer_a_thousand_rows_are_shown(
    spark: SparkSession, empty_tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(tables=str(empty_tables))
    run_sql.show(["SELECT id AS number FROM range(1005)"], settings, Lifecycle())
    assert "only showing top 1000 rows" in capsys.readouterr().out


def test_a_missing_table_is_one_clear_line(tmp_path: Path) -> None:
    ended = sql(tmp_path, "SELECT 1")
    assert ended.returncode == 2
    (line,) = our_lines(ended.stdout)
    assert "TABLE.MISSING" in line and "create_tables" in line and str(tmp_path) in line
    assert "Traceback" not in ended.stdout


def test_plain_spark_submit_works_elsewhere_after_the_environment_is_taken(filled: Path) -> None:
    where = f"--conf spark.stackcast.tables={filled}/tables"
    count = "SELECT count(*) AS switches FROM switches"
    job = f"{ROOT}/jobs/run_sql.py"
    ended = run(
        "-c",
        f'eval "$({DOOR} env)" && spark-submit {where} {job} "$@"',
        "sh",
        count,
        "INSERT INTO hosts VALUES ('x', 's', 1, 1, '10.0.0.1', 'listener')",
        cwd=filled,
        program="bash",
    )
    assert f"|{len(NETWORK.switches)}" in ended.stdout
    # Rows that a table takes from nobody are refused here, too.
    check_clear(ended, "role_known")


def test_only_empty_tables_are_filled(spark: SparkSession, tmp_path: Path) -> None:
    tables = Tables(spark, str(tmp_path / "tables"))
    tables.create("hosts", "links")
    rows = deployment()
    tables.append("hosts", rows["hosts"][:1])
    folder = write(tmp_path / "rows", {name: rows[name] for name in ("hosts", "links")})
    create_tables.fill(tables, folder)
    assert tables.rows("hosts") == rows["hosts"][:1]
    assert len(tables.rows("links")) == len(rows["links"])


def test_rows_may_leave_out_nulls_and_say_times_as_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "tables"))
    tables.create("subscriptions")
    row = {"id": "a", "subscriber": "h1", "format": "itch", "filter": "price > 1", "enabled": True}
    later = {**row, "id": "b", "updated_at": "2026-01-02T03:04:05Z"}
    create_tables.fill(tables, write(tmp_path / "rows", {"subscriptions": [row, later]}))
    found = {r["id"]: r["updated_at"] for r in tables.rows("subscriptions")}
    assert found == {"a": None, "b": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)}


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
    spark: SparkSession, tmp_path: Path, content: str | None, code: str, words: list[str]
) -> None:
    tables = Tables(spark, str(tmp_path / "tables"))
    tables.create("hosts")
    folder = write(tmp_path / "rows", {})
    if content is not None:
        (folder / "hosts.jsonl").write_text(content)
    with pytest.raises(TableError) as failure:
        create_tables.fill(tables, folder)
    assert failure.value.code == code
    for word in words:
        assert word in failure.value.message


class Rows:
    """Tables of one network with these rules."""

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


def test_who_loads_rules_is_told_which_will_not_be_live_and_which_are_hardly_meant() -> None:
    rules = [
        ("good", "itch", "price > 5"),
        ("slip", "itch", "prise > 5"),
        ("away", "itch", "price > 5 : fwd(nobody)"),
        ("never", "itch", "price > 5 and price < 3"),
        ("off", "itch", "prise > 5"),
        ("other", "fix", "price > 5"),
    ]
    made: Any = Rows(rules)
    lines = create_tables.remarks(made, Settings())
    assert [line.split(": ")[:2] for line in lines] == [
        ["subscription other will not be live", "SUBSCRIPTION.UNKNOWN_FORMAT"],
        ["subscription away will not be live", "SUBSCRIPTION.UNKNOWN_HOST"],
        ["subscription slip will not be live", "SUBSCRIPTION.UNKNOWN_FIELD"],
        ["subscription never is most likely not meant", "SUBSCRIPTION.NEVER_TRUE"],
    ]
    many: Any = Rows([(f"r{n:02}", "itch", "prise > 5") for n in range(30)])
    *first, last = create_tables.remarks(many, Settings())
    assert len(first) == create_tables.SHOWN and last == "10 more have a remark"
    asked: Any = Rows(
        [("more", "itch", "price > 5"), ("less", "itch", "price > 7")], granted="price > 6"
    )
    (line,) = create_tables.remarks(asked, Settings())
    assert line.startswith("subscription more will not be live: SUBSCRIPTION.NOT_GRANTED: ")
    # Rules may be there before the network is.
    nowhere: Any = Rows(rules, hosts=False)
    assert create_tables.remarks(nowhere, Settings()) == []
