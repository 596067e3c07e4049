"""``stackcast rules`` on tables in a folder, alone and next to a stream that takes the edits."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import shutil
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import command_line
import pytest
from waiting import until

from stackcast import schemas
from stackcast.cli.rules import edits
from stackcast.jobs.adapters.app.settings import FORMATS, Settings
from stackcast.jobs.adapters.planning.specifications import specification_of
from stackcast.jobs.adapters.tables.edits import is_empty
from stackcast.jobs.adapters.tables.folder_tables import open_folder
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.lab.up.folder import MARKER, FolderLock
from stackcast.udfs.errors import TableError
from stackcast.udfs.filters.grants import Grants
from stackcast.udfs.filters.selection import select
from stackcast.udfs.filters.subscriptions import check, live_rows
from stackcast.udfs.messages.specification import parse_specification

pytestmark = pytest.mark.unit

TABLES = (
    "subscriptions",
    "subscription_seniority",
    "live_subscriptions",
    "rejected_subscriptions",
    "subscription_warnings",
    "grants",
    "attributes",
    "hosts",
    "writers",
)
NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
HOSTS = {"feed1": "publisher", "h1": "subscriber", "h2": "subscriber"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules") / "tables"
    tables = open_folder(str(folder))
    tables.create(*TABLES)
    tables.append(
        "hosts",
        [
            {"host": name, "switch": "s", "port": n, "mac": n, "ipv4": f"10.0.0.{n}", "role": role}
            for n, (name, role) in enumerate(HOSTS.items(), 1)
        ],
    )
    return folder


@pytest.fixture
def tables(filled: Path, tmp_path: Path) -> Tables:
    return open_folder(str(shutil.copytree(filled, tmp_path / "tables")))


def rules(tables: Tables, *arguments: object) -> command_line.Result:
    command, *others = arguments
    return command_line.stackcast("rules", command, "--tables", tables.location, *others)


def row(tables: Tables, name: str) -> dict[str, Any]:
    (found,) = [row for row in tables.rows("subscriptions") if row["id"] == name]
    return found


class Stream(threading.Thread):
    """Takes each version of the subscriptions, and writes what it made of them, as a stream does.

    granted: a grant to everybody, which is not in the table; without it, everything is granted.
    """

    def __init__(self, tables: Tables, granted: str = "") -> None:
        super().__init__(daemon=True)
        self._tables = open_folder(tables.location)
        self._fence = Fence(self._tables, "stream of itch.raw")
        self._end = threading.Event()
        self._grants = [{"id": "g", "subscriber": "*", "format": "itch", "filter": granted}]
        self._grants = self._grants if granted else []
        self.taken = -1

    def __enter__(self) -> Stream:
        self._fence.claim("checkpoint", "app")
        self.start()
        until(lambda: self.taken >= 0)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()
        self._fence.release()

    def run(self) -> None:
        while not self._end.wait(0.005):
            version = self._tables.version("subscriptions")
            if version != self.taken:
                self._take(version)

    def _take(self, version: int) -> None:
        specification = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
        rows = self._tables.rows("subscriptions", version)
        chosen, refused = select(rows, "itch", FORMATS, specification, list)
        grants = Grants.of_table(self._grants, "itch", specification)
        hosts = {name for name, role in HOSTS.items() if role == "subscriber"}
        refused += check(chosen, specification, hosts, "feed1", grants)[1]
        common = {"since_version": version, "since": NOW, "subscriptions_version": version}
        live = [rule._asdict() | common for rule in live_rows(chosen, refused)]
        self._tables.overwrite("rejected_subscriptions", [each.row(version) for each in refused])
        self._tables.overwrite("live_subscriptions", live)
        self.taken = version


def test_a_rule_is_added_under_the_next_free_id_and_listed(tables: Tables):
    first = rules(tables, "add", "h1", "price > 150", "--author", "me")
    assert first.code == 0 and "added rule h1-1 of h1: version 1 of subscriptions" in first.stdout
    assert "no stream runs on these tables" in first.stdout
    assert "h1-2" in rules(tables, "add", "h1", "price > 160").stdout
    assert rules(tables, "add", "h2", "all", "--id", "every").code == 0
    written = row(tables, "h1-1")
    assert written.pop("updated_at").date() == dt.datetime.now(dt.UTC).date()
    assert written == {
        "id": "h1-1",
        "subscriber": "h1",
        "format": "itch",
        "filter": "price > 150",
        "enabled": True,
        "updated_by": "me",
    }
    listed = rules(tables, "list")
    assert listed.stdout.splitlines() == [
        "id     subscriber  format  state    rule",
        "every  h2          itch    pending  all",
        "h1-1   h1          itch    pending  price > 150",
        "h1-2   h1          itch    pending  price > 160",
        "3 rules",
    ]
    assert "1 rule" in rules(tables, "list", "--subscriber", "h2").stdout
    assert "no rules" in rules(tables, "list", "--state", "live").stdout


@pytest.mark.parametrize(
    ("host", "rule", "lines"),
    [
        (
            "h1",
            "stock == GOOGL and prise > 100",
            [
                "rule:1:20: SUBSCRIPTION.UNKNOWN_FIELD: itch has no field 'prise'; did you mean "
                "'price'?",
                "  stock == GOOGL and prise > 100",
                "                     ^",
            ],
        ),
        ("h3", "all", ["rule:1:1: SUBSCRIPTION.UNKNOWN_HOST: subscriber 'h3' of rule "]),
        ("feed1", "all", ["rule:1:1: SUBSCRIPTION.PUBLISHER_AS_RECEIVER"]),
        ("h1", "price >", ["SUBSCRIPTION.SYNTAX"]),
        ("h1", "", ["SUBSCRIPTION.EMPTY"]),
    ],
)
def test_a_rule_with_an_error_is_shown_with_its_place_and_not_written(
    tables: Tables, host: str, rule: str, lines: list[str]
):
    result = rules(tables, "add", host, rule)
    assert result.code == 1 and result.stdout == ""
    for line in [*lines, "the rule is not written"]:
        assert line in result.stderr
    assert tables.version("subscriptions") == 0


def test_a_valid_rule_that_is_probably_not_meant_gets_a_warning(tables: Tables):
    result = rules(tables, "add", "h1", "price > 5 and price < 3")
    assert result.code == 0 and "warning: SUBSCRIPTION.NEVER_TRUE" in result.stderr
    assert row(tables, "h1-1")


def test_a_second_rule_of_an_id_is_refused_and_replace_edits_it(tables: Tables):
    assert rules(tables, "add", "h1", "price > 1", "--id", "mine").code == 0
    second = rules(tables, "add", "h1", "price > 2", "--id", "mine")
    assert second.code == 2 and "TABLE.ROW_EXISTS" in second.stderr
    assert "--replace" in second.stderr and row(tables, "mine")["filter"] == "price > 1"
    edited = rules(tables, "add", "h2", "price > 2", "--id", "mine", "--replace", "--disabled")
    assert edited.code == 0 and "replaced rule mine of h2: version 2" in edited.stdout
    written = row(tables, "mine")
    assert (written["subscriber"], written["filter"], written["enabled"]) == (
        "h2",
        "price > 2",
        False,
    )


def test_the_rule_can_come_from_standard_input(tables: Tables, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edits, "standard_input", lambda: io.BytesIO(b"price > 1\n  or all\n"))
    assert rules(tables, "add", "h1", "-").code == 0
    assert row(tables, "h1-1")["filter"] == "price > 1\n  or all"
    assert rules(tables, "list").stdout.splitlines()[1].endswith("price > 1 or all")
    shown = rules(tables, "show", "h1-1").stdout.splitlines()
    assert shown[-2:] == ["rule        price > 1", "              or all"]


def test_a_rule_that_is_not_text_is_refused(tables: Tables, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edits, "standard_input", lambda: io.BytesIO(b"\xff\xfe"))
    refused = rules(tables, "add", "h1", "-")
    assert refused.code == 2 and "not UTF-8" in refused.stderr
    assert tables.version("subscriptions") == 0


def test_rules_without_an_id_that_are_added_at_once_get_ids_of_their_own(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
):
    write = edits.DeployedRules.write
    row = {"id": "h1-1", "subscriber": "h1", "format": "itch", "filter": "all", "enabled": True}

    def write_second(*arguments: Any) -> int:
        if not tables.rows("subscriptions"):
            tables.append("subscriptions", [row])
        return write(*arguments)

    monkeypatch.setattr(edits.DeployedRules, "write", write_second)
    assert rules(tables, "add", "h1", "price > 1").code == 0
    assert {row["id"] for row in tables.rows("subscriptions")} == {"h1-1", "h1-2"}


def test_tables_that_only_spark_reads_are_named(tables: Tables):
    refused = rules(tables, "list", "--tables", "s3a://bucket/tables")
    assert refused.code == 2 and "TABLE.NEEDS_SPARK" in refused.stderr


def test_a_rule_is_removed_by_its_id(tables: Tables):
    rules(tables, "add", "h1", "all", "--id", "mine")
    unknown = rules(tables, "remove", "mien")
    assert unknown.code == 2 and "TABLE.NO_ROW" in unknown.stderr and "'mine'" in unknown.stderr
    assert rules(tables, "remove", "mine", "--subscriber", "h2").code == 2
    removed = rules(tables, "remove", "mine")
    assert removed.code == 0 and "removed rule mine of h1: version 2" in removed.stdout
    assert tables.rows("subscriptions") == []


def test_one_of_two_rows_with_an_id_is_removed_by_its_subscriber(tables: Tables):
    common = {"id": "same", "format": "itch", "filter": "all", "enabled": True}
    tables.append("subscriptions", [common | {"subscriber": host} for host in ("h1", "h2")])
    both = rules(tables, "remove", "same")
    assert both.code == 2 and "TABLE.SEVERAL_ROWS" in both.stderr and "h1, h2" in both.stderr
    replaced = rules(tables, "add", "h1", "price > 5", "--id", "same", "--replace")
    assert replaced.code == 2 and "TABLE.SEVERAL_ROWS" in replaced.stderr
    assert len(tables.rows("subscriptions")) == 2
    assert rules(tables, "remove", "same", "--subscriber", "h1").code == 0
    assert row(tables, "same")["subscriber"] == "h2"


def test_next_to_a_stream_an_edit_waits_until_it_is_live(tables: Tables):
    with Stream(tables):
        added = rules(tables, "add", "h1", "price > 150", "--id", "mine")
        assert added.code == 0 and "live since version 1, after" in added.stdout
        # The rule was live all the time.
        replaced = rules(tables, "add", "h1", "price > 99", "--id", "mine", "--replace")
        assert replaced.code == 0 and "live since version 2, after" in replaced.stdout
        status = rules(tables, "status")
        assert status.code == 0
        assert "mine  live since version 2, 2026-11-23 12:00:00 UTC" in status.stdout
        assert "1 rule: 1 live" in status.stdout and "stream of itch.raw runs" in status.stdout
        disabled = rules(tables, "add", "h1", "all", "--id", "mine", "--replace", "--disabled")
        assert disabled.code == 0 and "no longer live, after" in disabled.stdout
        rules(tables, "add", "h2", "all", "--id", "other")
        removed = rules(tables, "remove", "other")
        assert removed.code == 0 and "no longer live, after" in removed.stdout
    ended = rules(tables, "add", "h1", "all")
    assert "no stream runs on these tables" in ended.stdout


def test_the_rejection_of_a_stream_is_shown_with_its_place(tables: Tables):
    """The stream has a grant that the command does not see, as it comes at the same time."""
    with Stream(tables, granted="price > 100"):
        result = rules(tables, "add", "h1", "price > 50", "--id", "mine")
        assert result.code == 1 and "added rule mine of h1: version 1" in result.stdout
        assert "mine:1:1: SUBSCRIPTION.NOT_GRANTED: " in result.stderr
        assert "  price > 50\n  ^\n" in result.stderr and "rejected" in result.stderr
        status = rules(tables, "status", "mine")
        assert status.code == 1 and "mine  rejected" in status.stdout
        assert "mine:1:1: SUBSCRIPTION.NOT_GRANTED" in status.stdout
        assert "  price > 50\n  ^\n" in status.stdout


def test_grants_are_checked_before_the_rule_is_written(tables: Tables):
    grant = {"id": "g", "subscriber": "h1", "format": "itch", "filter": "price > 100"}
    tables.append("grants", [grant])
    assert rules(tables, "add", "h1", "price > 150").code == 0
    refused = rules(tables, "add", "h1", "price > 50")
    assert refused.code == 1 and "SUBSCRIPTION.NOT_GRANTED" in refused.stderr


def test_a_stream_that_does_not_answer_ends_the_wait(tables: Tables):
    fence = Fence(tables, "stream of itch.raw")
    fence.claim("checkpoint", "app")
    starting = rules(tables, "add", "h1", "all", "--id", "early", "--timeout", "0")
    assert starting.code == 1 and "added rule early" in starting.stdout
    assert "after 0 s, the stream of itch.raw is still starting" in starting.stderr
    assert "stream of itch.raw is starting since" in rules(tables, "status").stdout
    tables.overwrite("live_subscriptions", [])
    result = rules(tables, "add", "h1", "all", "--timeout", "0")
    assert result.code == 1 and "added rule h1-1" in result.stdout
    assert "after 0 s, no plan of the stream of itch.raw includes version 2" in result.stderr
    assert rules(tables, "add", "h1", "all", "--no-wait").code == 0


def test_a_stream_whose_process_has_ended_is_not_waited_for(tables: Tables):
    fence = Fence(tables, "stream of itch.raw")
    fence.claim("checkpoint", "app")
    (claim,) = tables.rows("writers")
    tables.overwrite("writers", [claim | {"pid": 1 << 30}])
    assert "no stream runs" in rules(tables, "add", "h1", "all").stdout


def test_the_format_is_that_of_the_other_rules(tables: Tables):
    attribute = {"id": 0, "name": "temp", "type": "decimal"}
    tables.append("attributes", [attribute | {"scale": Decimal("0.1"), "offset": Decimal(-100)}])
    assert rules(tables, "add", "h1", "temp > 25.5").code == 0
    assert row(tables, "h1-1")["format"] == "attributes"
    assert "BAD_CONSTANT" in rules(tables, "add", "h1", "temp > 25.55").stderr
    other = rules(tables, "add", "h1", "price > 25.5", "--format", "itch")
    assert other.code == 0 and row(tables, "h1-2")["format"] == "itch"


def test_json_has_states_and_times(tables: Tables):
    with Stream(tables):
        rules(tables, "add", "h1", "price > 150", "--id", "mine", "--author", "me")
    (line,) = rules(tables, "list", "--json").stdout.splitlines()
    listed = json.loads(line)
    assert listed["state"] == "live" and listed["since"] == NOW.isoformat()
    shown = json.loads(rules(tables, "show", "mine", "--json").stdout)
    assert shown["updated_by"] == "me" and shown["filter"] == "price > 150"
    assert shown.items() >= listed.items()


def test_another_editor_between_reading_and_writing_is_not_overwritten(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
):
    rules(tables, "add", "h1", "price > 1", "--id", "mine")
    write = edits.write_rule

    def late(opened: Tables, name: str, *others: Any) -> int | None:
        (before,) = tables.rows("subscriptions")
        tables.overwrite("subscriptions", [before | {"filter": "price > 7"}])
        return write(opened, name, *others)

    monkeypatch.setattr(edits, "write_rule", late)
    result = rules(tables, "remove", "mine")
    assert result.code == 2 and "TABLE.ROW_CHANGED" in result.stderr
    assert row(tables, "mine")["filter"] == "price > 7"


@pytest.fixture
def var(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "var"
    (folder / "lab").mkdir(parents=True)
    monkeypatch.setenv("STACKCAST_VAR", str(folder))
    return folder


def test_the_tables_are_those_of_the_file_or_of_the_running_lab(tables: Tables, var: Path):
    lab = var / "lab" / "lab.conf"
    lab.write_text(f"# a lab\nspark.stackcast.tables   {tables.location}\nspark.master=local[2]\n")
    named = command_line.stackcast("rules", "list", "--properties-file", lab)
    assert named.code == 0 and "no rules" in named.stdout
    none = command_line.stackcast("rules", "list")
    assert none.code == 2 and "TABLE.MISSING: no lab is up" in none.stderr
    lock = FolderLock(var / "lab")
    (var / "lab" / MARKER).touch()
    lock.take()
    state = var / "lab" / "lab.json"
    state.write_text(json.dumps({"pid": os.getpid(), "ready": False}))
    starting = command_line.stackcast("rules", "list")
    assert starting.code == 2 and "LAB.NO_ANSWER" in starting.stderr
    state.write_text(json.dumps({"pid": os.getpid(), "ready": True}))
    assert command_line.stackcast("rules", "list").stdout == "no rules\n"
    assert command_line.stackcast("rules", "list", "--json").stdout == ""
    lock.free()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--id", ""], "--id '' must be printable text, not empty"),
        (["--id", "a\nb"], r"--id 'a\nb' must be printable text"),
        (["--author", " "], "--author ' ' must be printable text"),
        (["--author", "\udcff"], r"--author '\udcff' must be printable text"),
    ],
)
def test_an_id_or_author_that_is_no_text_is_an_error(
    tables: Tables, options: list[str], message: str
):
    result = rules(tables, "add", "h1", "all", *options)
    assert result.code == 2 and message in " ".join(result.stderr.split())
    assert "NEEDS_SPARK" not in result.stderr and tables.rows("subscriptions") == []


def test_a_rule_that_is_no_text_is_an_error(tables: Tables):
    result = rules(tables, "add", "h1", "stock == '\udcff'")
    assert result.code == 2 and "the rule is not UTF-8 text" in result.stderr


def test_tables_that_the_user_must_not_write_are_named(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise TableError("NEEDS_SPARK", "delta-rs cannot write")

    monkeypatch.setattr(edits, "write_rule", refuse)
    monkeypatch.setattr(edits.os, "access", lambda *_: False)
    result = rules(tables, "add", "h1", "all")
    assert result.code == 2 and "TABLE.NOT_WRITABLE: this user must not write to" in result.stderr


@pytest.mark.parametrize("place", ["s3a://bucket/tables", "catalog.schema"])
def test_tables_that_are_in_no_folder_need_the_job_for_sql(tmp_path: Path, place: str):
    conf = tmp_path / "mine.conf"
    conf.write_text(f"spark.stackcast.tables={place}\n")
    result = command_line.stackcast("rules", "add", "h1", "all", "--properties-file", conf)
    assert result.code == 2
    assert "TABLE.NEEDS_SPARK" in result.stderr and "jobs/run_sql.py" in result.stderr


def test_settings_that_are_wrong_and_files_that_are_missing_are_named(tmp_path: Path):
    conf = tmp_path / "mine.conf"
    missing = command_line.stackcast("rules", "list", "--properties-file", conf)
    assert missing.code == 2 and str(conf) in missing.stderr
    conf.write_text("spark.stackcast.tabels x\n")
    wrong = command_line.stackcast("rules", "list", "--properties-file", conf)
    assert wrong.code == 2 and "spark.stackcast.tables" in wrong.stderr


def test_tables_in_a_folder_are_created_and_read_without_spark(tmp_path: Path):
    tables = open_folder(str(tmp_path / "tables"))
    with pytest.raises(TableError) as failure:
        tables.version("subscriptions")
    assert failure.value.code == "TABLE.MISSING"
    tables.create()
    assert is_empty(tables, "subscriptions")
    settings = Settings(tables=tables.location)
    assert "price" in {
        name.rpartition(".")[2] for name in specification_of(settings, tables).fields
    }
