"""Real Delta tables: layout, versions, transactions, change feed, and checkpoints."""

from __future__ import annotations

import datetime as dt
import decimal
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession, types
from tunnels import tunnelled

from stackcast import schemas
from stackcast.jobs import load_topology
from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.tables.changes import rows_added
from stackcast.jobs.adapters.tables.definitions import LAYOUT, NAMES, definition
from stackcast.jobs.adapters.tables.edits import change_tree_states, replace_changed
from stackcast.jobs.adapters.tables.folder_tables import FolderTables, NeedsSparkError
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.spark_tables import SparkTables
from stackcast.jobs.adapters.tables.tables import LEDGER, Tables
from stackcast.udfs.errors import TableError
from stackcast.udfs.network.network import Network, Switch
from stackcast.udfs.network.rows import link_to_row, network_from_rows, switch_to_row, tree_to_row
from stackcast.udfs.network.topology import fabric, jellyfish
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def shared_tables(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Tables:
    """Tables that the tests of this file share, in a path with a space and a quote."""
    folder = tmp_path_factory.mktemp("of") / "somebody's tables"
    shutil.copytree(empty_tables, folder, ignore=shutil.ignore_patterns("hosts"))
    tables = open_tables(spark, str(folder))
    tables.create("hosts")
    return tables


def host(name: str, role: str = "subscriber", port: int = 1, mac: int = 1) -> dict[str, object]:
    row = {"host": name, "switch": "s", "port": port, "mac": mac, "ipv4": "10.0.0.1", "role": role}
    return dict(row)


def link(number: int, weight: float = 1.0) -> dict[str, object]:
    return {
        "link_id": number,
        "switch": "s",
        "port": 1,
        "neighbor": "t",
        "neighbor_port": None,
        "weight": weight,
        "up": True,
        "tunnel": None,
    }


def entry(key: str, action: str = "a", value: bytes = b"\x01") -> dict[str, object]:
    return {
        "switch": "s",
        "entry_key": key,
        "table_name": "t",
        "match": [{"field": "label", "kind": "exact", "value": b"\x40"}],
        "action": action,
        "params": [{"name": "port", "value": value}],
        "priority": 0,
    }


def delta_version(spark: SparkSession, tables: Tables, name: str) -> int:
    history = DeltaTable.forPath(spark, f"{tables.location}/{name}").history(1)
    return int(history.collect()[0]["version"])


def test_there_is_one_form_for_every_table_and_one_table_for_every_form() -> None:
    folder = Path(schemas.__file__).parent / "tables"
    assert sorted(NAMES) == sorted(path.stem for path in folder.glob("*.sql"))


def test_creating_again_changes_nothing(spark: SparkSession, shared_tables: Tables) -> None:
    shared_tables.overwrite("hosts", [host("h1")])
    before = {name: shared_tables.version(name) for name in NAMES}
    shared_tables.create()
    assert {name: shared_tables.version(name) for name in NAMES} == before
    assert [row["host"] for row in shared_tables.rows("hosts")] == ["h1"]


def test_a_table_of_a_newer_version_is_refused_and_the_error_says_what_to_do(
    spark: SparkSession, tables: Tables
) -> None:
    place = f"delta.`{tables.location}/links`"
    assert open_tables(spark, tables.location).version("links") == 0
    newer = LAYOUT + 1
    spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('stackcast.layout' = '{newer}')")
    later = open_tables(spark, tables.location)
    for _ in range(2):
        with pytest.raises(
            TableError, match=rf"links .* layout {newer}, .* up to {LAYOUT}: use"
        ) as refused:
            later.version("links")
        assert refused.value.what == "NEWER_LAYOUT"
    assert later.version("hosts") == 0


def test_every_table_and_every_column_has_a_comment_also_in_sql(
    spark: SparkSession, shared_tables: Tables
) -> None:
    for name in NAMES:
        stored = deltalake.DeltaTable(f"{shared_tables.location}/{name}")
        assert stored.metadata().description, f"{name} has no comment"
        for column in stored.schema().fields:
            assert column.metadata.get("comment"), f"{name}.{column.name} has no comment"
    shared_tables.attach()
    table = shared_tables.sql_name("links")
    description = {
        row["col_name"]: row for row in spark.sql(f"DESCRIBE EXTENDED {table}").collect()
    }
    assert description["Comment"]["data_type"] and description["link_id"]["comment"]


@pytest.mark.parametrize(
    ("table", "row", "words"),
    [
        ("links", link(0), "link_id_fits_label"),
        ("links", link(1 << 30), "link_id_fits_label"),
        ("links", link(1, weight=0.0), "weight_positive"),
        ("links", link(1, weight=1e305), "weight_positive"),
        ("links", link(1, weight=float("nan")), "weight_positive"),
        ("hosts", host("h1", mac=-1), "mac_48_bits"),
        ("hosts", host("h1", mac=1 << 48), "mac_48_bits"),
        ("switches", switch_to_row(Switch("s", -1), "127.0.0.1:1"), "device_id_not_negative"),
        ("hosts", host("h1", role="listener"), "role_known"),
        (
            "virtual_trees",
            {"tree_id": 1, "edges": [], "strategy": "x", "state": "gone"},
            "state_known",
        ),
        (
            "virtual_trees",
            {"tree_id": 0, "edges": [], "strategy": "x", "state": "active"},
            "tree_id_fits_label",
        ),
    ],
)
def test_a_row_that_violates_a_constraint_is_refused_and_leaves_no_trace(
    shared_tables: Tables, table: str, row: dict[str, object], words: str
) -> None:
    before = shared_tables.version(table)
    with pytest.raises(SQL_ERRORS) as error:
        shared_tables.append(table, [row])
    assert words in one_line(error.value)
    assert "\n" not in one_line(error.value)
    assert shared_tables.version(table) == before


def test_a_version_is_deltas_own_and_can_be_read_for_ever(
    spark: SparkSession, shared_tables: Tables
) -> None:
    shared_tables.overwrite("hosts", [])
    empty = shared_tables.version("hosts")
    shared_tables.append("hosts", [host("h1"), host("h2", port=2)])
    filled = shared_tables.version("hosts")
    shared_tables.overwrite("hosts", [host("h3")])
    assert filled == empty + 1
    assert (
        shared_tables.version("hosts") == delta_version(spark, shared_tables, "hosts") == filled + 1
    )
    assert shared_tables.rows("hosts", empty) == []
    assert sorted(row["host"] for row in shared_tables.rows("hosts", filled)) == ["h1", "h2"]
    assert shared_tables.rows("hosts") == [host("h3")]


def test_a_path_with_a_scheme_has_the_same_versions(
    spark: SparkSession, shared_tables: Tables
) -> None:
    same = open_tables(spark, f"file://{shared_tables.location}")
    assert same.version("hosts") == shared_tables.version("hosts")


def test_a_transaction_counts_once_whoever_repeats_it(shared_tables: Tables) -> None:
    for row, number in (
        (host("once1"), 1),
        (host("once1"), 1),
        (host("once2"), 2),
        (host("once1"), 1),
    ):
        shared_tables.append("hosts", [row], ("once-stream", number))
    shared_tables.append("hosts", [host("once4")], ("another-stream", 1))
    names = [row["host"] for row in shared_tables.rows("hosts")]
    assert (names.count("once1"), names.count("once2"), names.count("once4")) == (1, 1, 1)


def a_value(kind: types.DataType, number: int) -> Any:
    """Returns a value of a column's type; another one for each number."""
    if isinstance(kind, types.ArrayType):
        return [a_value(kind.elementType, number)] * (number % 3)
    if isinstance(kind, types.MapType):
        return {a_value(kind.keyType, n): a_value(kind.valueType, n) for n in range(number % 3)}
    if isinstance(kind, types.StructType):
        return {field.name: a_value(field.dataType, number) for field in kind.fields}
    return {
        "string": f"a 'text' {number} \u00fc",
        "bigint": (1 << 60) + number,
        "int": number + 1,
        "double": number + 0.5,
        "boolean": number % 2 == 0,
        "binary": bytes([0, number]),
        "timestamp": dt.datetime(2026, 11, 1, 23, 59, 59, 999_990 + number, dt.UTC),
        "decimal(38,18)": decimal.Decimal(f"1{number}.000000000000000001"),
    }[kind.simpleString()]


def by_first_column(rows: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    assert rows is not None
    return sorted(rows, key=lambda row: next(iter(row.values())))


@pytest.mark.parametrize(
    "name",
    [
        "live_subscriptions",
        pytest.param("egress_ledger", marks=pytest.mark.long),
        pytest.param("switch_entries", marks=pytest.mark.long),
    ],
)
def test_spark_and_delta_rs_read_the_same_rows_from_each_other(
    spark: SparkSession, tables: Tables, name: str
) -> None:
    schema = tables.read(name).schema
    rows = [
        {
            f.name: None if f.nullable and number == 3 else a_value(f.dataType, number)
            for f in schema.fields
        }
        for number in range(6)
    ]
    path = f"{tables.location}/{name}"
    folder = FolderTables(tables.location)
    folder.append(name, rows[:3])
    frame = spark.createDataFrame([tuple(row.values()) for row in rows[3:]], schema)
    frame.write.format("delta").mode("append").save(path)

    def rows_of_spark(version: int) -> list[dict[str, Any]]:
        return tables.read(name, version).toArrow().to_pylist(maps_as_pydicts="strict")

    for version, count in ((1, 3), (2, 6)):
        expected = by_first_column(rows[:count])
        assert by_first_column(folder.rows(name, version)) == expected
        assert by_first_column(rows_of_spark(version)) == expected
    assert by_first_column(rows_added(tables, name, 1, 2)) == by_first_column(rows[3:])


def test_no_thread_of_arrow_runs_python_when_a_program_ends(shared_tables: Tables) -> None:
    """With delta-rs's own file system, one in ten programs that read a table aborted at its end."""
    folder = FolderTables(shared_tables.location)
    table = deltalake.DeltaTable(f"{shared_tables.location}/hosts")
    files = folder._dataset("hosts", table).filesystem
    assert files.type_name == "subtree" and files.base_fs.type_name == "local"


@pytest.mark.long
def test_rows_that_a_deletion_vector_marks_as_deleted_are_not_read(
    spark: SparkSession, tables: Tables
) -> None:
    tables.append("switch_entries", [entry("first"), entry("second"), entry("third")])
    path = f"{tables.location}/switch_entries"
    place = f"delta.`{path}`"
    spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {place} WHERE entry_key = 'second'")
    with pytest.raises(NeedsSparkError):
        FolderTables(tables.location).rows("switch_entries")

    def keys() -> list[str]:
        return sorted(row["entry_key"] for row in tables.rows("switch_entries"))

    assert keys() == ["first", "third"]
    tables.append("switch_entries", [entry("second")])
    assert keys() == ["first", "second", "third"]


def test_the_last_row_of_each_is_the_same_for_spark_and_delta_rs(
    spark: SparkSession, tables: Tables
) -> None:
    fields = definition(LEDGER).columns.names
    schema = open_tables(spark, tables.location).read(LEDGER).schema
    rows = [
        {f.name: a_value(f.dataType, number) for f in schema.fields} | {"topic": f"t{number % 3}"}
        for number in (4, 1, 0, 6, 2, 3, 5)
    ]
    assert rows[0].keys() == set(fields)
    tables.append(LEDGER, rows)

    def answers(tables: Tables) -> list[list[dict[str, Any]]]:
        return [
            sorted(
                tables.last_rows(LEDGER, "topic", "batch_id", "versions", since),
                key=lambda row: row["topic"],
            )
            for since in ({}, {"t0": rows[4]["batch_id"], "t1": 1 << 62})
        ]

    by_delta_rs = answers(FolderTables(tables.location))
    assert answers(SparkTables(spark, tables.location)) == by_delta_rs
    topics = [[row["topic"] for row in answer] for answer in by_delta_rs]
    assert topics == [["t0", "t1", "t2"], ["t0", "t2"]]


def test_a_prepared_overwrite_replaces_also_what_others_wrote_since(
    spark: SparkSession, shared_tables: Tables
) -> None:
    tables = SparkTables(spark, shared_tables.location)
    tables.overwrite("hosts", [host("h1")])
    tables.prepare_overwrite("hosts")
    tables.append("hosts", [host("h2")])
    tables.overwrite("hosts", [host("h3")])
    assert tables.rows("hosts") == [host("h3")]


def test_a_commit_counts_once_where_its_log_can_have_no_checkpoint(
    spark: SparkSession, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    name, keys = "hosts", ("host",)
    spark.sql(
        f"ALTER TABLE delta.`{tables.location}/{name}` "
        "SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    )
    log = Path(tables.location, name, "_delta_log")
    (log / "_last_checkpoint").unlink(missing_ok=True)
    (log / "_last_checkpoint" / "x").mkdir(parents=True)
    before = tables.version(name)
    tables.append(name, [host("once")])
    replace_changed(tables, name, [host("once", port=2), host("more")], keys)
    assert tables.version(name) == before + 2
    assert sorted((row["host"], row["port"]) for row in tables.rows(name)) == [
        ("more", 1),
        ("once", 2),
    ]
    assert "no new checkpoint of the log" in caplog.text


def test_a_log_gets_a_checkpoint_where_one_is_due(spark: SparkSession, tables: Tables) -> None:
    spark.sql(
        f"ALTER TABLE delta.`{tables.location}/hosts` "
        "SET TBLPROPERTIES ('delta.checkpointInterval' = '4')"
    )
    for number in range(8):
        tables.append("hosts", [host(f"h{number}")])
    log = Path(tables.location, "hosts", "_delta_log")
    assert sorted(path.name[:20] for path in log.glob("*.checkpoint.parquet")) == [
        f"{4:020}",
        f"{8:020}",
    ]
    assert len(tables.rows("hosts")) == tables.read("hosts").count() == 8


def test_appending_nothing_makes_no_version(shared_tables: Tables) -> None:
    before = shared_tables.version("links")
    shared_tables.append("links", [])
    assert shared_tables.version("links") == before


def test_only_rows_that_differ_are_in_the_change_feed(
    spark: SparkSession, shared_tables: Tables
) -> None:
    keys = ("switch", "entry_key")
    replace_changed(
        shared_tables, "switch_entries", [entry("same"), entry("other"), entry("gone")], keys
    )
    before = shared_tables.version("switch_entries")
    rows = [entry("same"), entry("other", value=b"\x02"), entry("new")]
    replace_changed(shared_tables, "switch_entries", rows, keys)

    def feed(first: int) -> list[tuple[str, str]]:
        changes = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", first)
            .load(f"{shared_tables.location}/switch_entries")
        )
        return sorted((row["entry_key"], row["_change_type"]) for row in changes.collect())

    assert feed(before + 1) == [
        ("gone", "delete"),
        ("new", "insert"),
        ("other", "update_postimage"),
        ("other", "update_preimage"),
    ]
    by_key = {row["entry_key"]: row for row in shared_tables.rows("switch_entries")}
    assert by_key == {row["entry_key"]: row for row in rows}
    after = shared_tables.version("switch_entries")
    replace_changed(shared_tables, "switch_entries", rows, keys)
    assert shared_tables.version("switch_entries") == after


def test_a_writer_knows_which_version_is_its_own(shared_tables: Tables) -> None:
    """Another writer may have written the same rows, or some of them, just before."""
    keys, name = ("switch", "entry_key"), "switch_entries"
    rows = [entry("same"), entry("gone")]
    replace_changed(shared_tables, name, rows, keys)
    for written_before, target in (
        ([entry("same")], rows),
        ([entry("same")], [entry("same")]),
        ([entry("same"), entry("new")], [entry("same"), entry("new")]),
        ([entry("gone")], [*rows, entry("new")]),
    ):
        shared_tables.overwrite(name, rows)
        before = shared_tables.version(name)
        shared_tables.overwrite(name, written_before)
        wrote = replace_changed(shared_tables, name, target, keys, rows)
        assert shared_tables.version(name) == before + 1 + wrote


@pytest.mark.parametrize("place", ["{}", pytest.param("file://{}", marks=pytest.mark.long)])
def test_rows_computed_from_an_older_version_are_not_written(
    spark: SparkSession, shared_tables: Tables, place: str
) -> None:
    """delta-rs writes to a folder; Spark writes to a URL."""
    tables = open_tables(spark, place.format(shared_tables.location))
    name, keys = "virtual_trees", ("tree_id",)

    def tree(number: int, state: str) -> dict[str, Any]:
        edges = [{"u": "a", "v": "b"}]
        return {"tree_id": number, "edges": edges, "strategy": "test", "state": state}

    tables.overwrite(name, [tree(1, "installing")])
    before = tables.version(name)
    rows = tables.rows(name, before)
    tables.append(name, [tree(2, "active")])
    newest = tables.version(name)
    moved = {1: ("installing", "active")}
    more = [tree(3, "active")]
    assert not change_tree_states(tables, moved, before)
    assert not tables.merge(name, [rows[0] | {"state": "x"}], [], keys, before)
    assert not replace_changed(tables, name, [*rows, *more], keys, rows, before)
    assert not replace_changed(tables, name, more, keys, [], before)
    assert tables.version(name) == newest
    # Rows computed from the newest version are written.
    assert change_tree_states(tables, moved, newest)
    assert tables.merge(name, more, [], keys, newest + 1)
    stored = tables.rows(name)
    assert replace_changed(tables, name, stored[1:], keys, stored, newest + 2)
    assert tables.version(name) == newest + 3
    assert len(tables.rows(name)) == 2


def loaded(tables: Tables, *arguments: str) -> int:
    """Run the work of jobs/load_topology.py in this session; returns its exit code."""
    options = load_topology.parser().parse_args(list(arguments))
    return load_topology.work(options, Settings(tables=tables.location), Lifecycle())


def stored_network(tables: Tables) -> Network:
    return network_from_rows(*(tables.rows(name) for name in ("switches", "hosts", "links")))


def test_a_network_is_loaded_once_and_replaced_only_with_the_option_replace(
    tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("switches", "hosts", "links", "virtual_trees")

    def versions() -> list[int]:
        return [tables.version(name) for name in names]

    ring = ("--jellyfish", "switches=6,degree=2,seed=1", "--address-pattern", "h:{port}")
    before = versions()
    assert loaded(tables, *ring, "--dry-run") == 0
    assert versions() == before
    assert "switches 6 new, 0 gone" in capsys.readouterr().out
    assert loaded(tables, *ring) == 0
    network = stored_network(tables)
    assert network == jellyfish(6, 2, seed=1)
    assert {row["address"] for row in tables.rows("switches")} == {
        f"h:{9559 + place}" for place in range(6)
    }
    # Loading the same network writes nothing: a failed link, a tunnel and a tree stay.
    failed = next(link for link in network.links if link.neighbor in network.switches)
    islands = tunnelled(network, {failed.id})
    states = {failed.id: {"up": False}}
    tables.overwrite(
        "links",
        [{"tunnel": None} | link_to_row(link) | states.get(link.id, {}) for link in islands.links],
    )
    assert stored_network(tables).tunnels == islands.tunnels and len(islands.tunnels) == 2
    tables.append("virtual_trees", [tree_to_row(broadcast_trees(network)[0])])
    current = versions()
    assert loaded(tables, *ring) == 0
    assert versions() == current
    assert "as they should be" in capsys.readouterr().out
    # Another network replaces it only with --replace.
    small = ("--fabric", "pods=2,racks=1,hosts=2,planes=1,spines=1")
    assert loaded(tables, *small, "--dry-run") == load_topology.WOULD_REPLACE
    with pytest.raises(TableError, match=r"NETWORK_IN_USE.*--replace"):
        loaded(tables, *small)
    assert versions() == current
    assert loaded(tables, *small, "--replace") == 0
    assert "1 lose links" in capsys.readouterr().out
    replaced = stored_network(tables)
    assert list(replaced.switches) == list(fabric(2, 1, 2, 1, 1).switches)
    # No link id of the previous network is reused, and its tree is retired.
    assert not {link.id for link in network.links} & {link.id for link in replaced.links}
    assert [tree["state"] for tree in tables.rows("virtual_trees")] == ["retired"]
    # The first write empties the hosts, so no reader combines old and new rows to a network.
    assert tables.rows("hosts", tables.version("hosts") - 1) == []
    again = versions()
    assert loaded(tables, *small) == 0
    assert versions() == again


def test_a_network_needs_its_tables(spark: SparkSession, tmp_path: Path) -> None:
    nothing = open_tables(spark, str(tmp_path / "nothing"))
    assert loaded(nothing, "--topohub", "sndlib/polska", "--dry-run") == 0
    with pytest.raises(TableError, match=r"MISSING.*create_tables"):
        loaded(nothing, "--topohub", "sndlib/polska")
