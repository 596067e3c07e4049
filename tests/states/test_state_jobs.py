"""States in Spark: the replica controller's tables, and rows and records published as states."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kafka import KafkaProducer
from paths import ROOT
from ports import free_port
from pyspark.sql import SparkSession
from state_hosts import StateHosts, endpoint, state_hosts
from waiting import until

from stackcast.jobs import replica_controller, state_stream
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.states.client import StatesClient
from stackcast.jobs.adapters.states.fact_tables import FactTables
from stackcast.jobs.adapters.states.replica import Replica
from stackcast.jobs.adapters.states.row_states import STATES, StateNames
from stackcast.jobs.adapters.states.store import KafkaStore, topics_of
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up.broker import Broker
from stackcast.udfs.errors import StateError, TableError
from stackcast.udfs.filters.subscriptions import Subscription
from stackcast.udfs.states.outputs import Keep, Record

pytestmark = pytest.mark.integration

#: Only against hangs.
WAIT_S = 600.0
STATE = "temperatures"


@pytest.fixture(autouse=True)
def quick_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets streams look for records more often than each second."""
    for job in (replica_controller, state_stream):
        monkeypatch.setattr(job, "TRIGGER", "100 milliseconds")


@pytest.fixture
def hosts() -> Iterator[StateHosts]:
    with state_hosts(2, started=False) as hosts:
        hosts.start(2)
        hosts.start(3)
        yield hosts


def run_with(job: Callable[[Lifecycle], Any], scenario: Callable[[], None]) -> None:
    """Run a job, and on a thread a scenario, at the end of which the job is asked to stop."""
    failed: list[BaseException] = []

    def play() -> None:
        try:
            scenario()
        except BaseException as error:
            failed.append(error)
        lifecycle.stopping.set()

    with Lifecycle() as lifecycle:
        playing = threading.Thread(target=play)
        playing.start()
        try:
            assert job(lifecycle) == 0
        finally:
            lifecycle.stopping.set()
            playing.join()
    if failed:
        raise failed[0]


def get(settings: Settings, path: str) -> str:
    """Returns a page of the server of a job."""
    url = f"http://127.0.0.1:{settings.metrics_port}/{path}"
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def sample(settings: Settings, name: str) -> float:
    """Returns a metric of a job."""
    lines = get(settings, "metrics").splitlines()
    (value,) = [line.split()[1] for line in lines if line.split()[0] == name]
    return float(value)


def settings_of(hosts: StateHosts, tables: Tables, broker: Broker, folder: Path) -> Settings:
    return Settings(
        tables=tables.location,
        states_topics=f"states.{folder.name}",
        states_checkpoint=str(folder / "checkpoint"),
        states_address="10.0.0.1",
        states_listen=endpoint(hosts.listen[1]),
        states_link=f"udp:{endpoint(hosts.far[1])}/{endpoint(hosts.near[1])}",
        states_middleware=endpoint(hosts.listen[2]),
        metrics_port=free_port(),
        kafka={"bootstrap.servers": broker.bootstrap_servers},
    )


def shown(tables: Tables, folder: Path) -> list[str]:
    """Returns the lines that ``stackcast states show`` prints."""
    properties = folder / "show.conf"
    properties.write_text(f"spark.stackcast.tables {tables.location}\n")
    command = [sys.executable, "-m", "stackcast.cli.main", "states", "show", STATE]
    command += ["--properties-file", str(properties)]
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, timeout=WAIT_S, check=True
    ).stdout.splitlines()


def row_of(tables: Tables, table: str, **values: Any) -> dict[str, Any] | None:
    for row in tables.rows(table):
        if all(row[column] == value for column, value in values.items()):
            return row
    return None


@pytest.mark.long
def test_tables_show_publishers_replicas_and_positions(
    hosts: StateHosts, tables: Tables, broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(hosts, tables, broker, tmp_path)

    def first() -> None:
        with (
            StatesClient("sensor", hosts.listen[2]) as sensor,
            StatesClient("reader", hosts.listen[3]) as reader,
        ):
            reader.subscribe(STATE)
            for number in range(3):
                sensor.publish(STATE, b"%d" % number * 1500)
            until(lambda: reader.value(STATE) == b"2" * 1500)
            sensor.flush(WAIT_S)
            until(
                lambda: row_of(tables, "state_positions", update_number=3, segment=2) is not None,
            )
            vnfs = {row["name"]: row for row in tables.rows("vnfs")}
            assert {row["host"] for row in vnfs.values()} == {"10.0.0.2", "10.0.0.3"}
            assert all(row["alive"] for row in vnfs.values())
            sensor_id, reader_id = vnfs["sensor"]["vnf"], vnfs["reader"]["vnf"]
            (state,) = tables.rows("states")
            assert (state["name"], state["owner"]) == (STATE, sensor_id)
            (publisher,) = tables.rows("state_publishers")
            assert (publisher["vnf"], publisher["newest_update"]) == (sensor_id, 3)
            (position,) = tables.rows("state_positions")
            assert (position["vnf"], position["publisher"]) == (reader_id, sensor_id)
            until(lambda: tables.rows("states")[0]["segments"] == 2)
            values = {
                name: sample(settings, f"stackcast_state_{name}")
                for name in ("middlewares", "programs", "names", "backlog_updates", "backlog_bytes")
            }
            assert list(values.values()) == [2, 2, 1, 1, 1500]
            assert sample(settings, "stackcast_state_records_total") >= 6
            assert json.loads(get(settings, "health"))["status"] == "ok"
            (row,) = tables.rows("state_subscriptions")
            assert row["subscribed"] and row["vnf"] == reader_id and row["live_since"]
            since = f"{row['live_since']:%Y-%m-%d %H:%M:%S}"
            assert shown(tables, tmp_path) == [
                f"{STATE}  state 1, 239.0.0.1, 2 segments kept",
                f"  published by sensor ({sensor_id} at 10.0.0.2): update 3",
                f"  replicated by reader ({reader_id} at 10.0.0.3): live since {since} UTC, "
                "up to date",
            ]
        until(
            lambda: not any(row["alive"] for row in tables.rows("vnfs")),
        )
        until(lambda: tables.rows("state_positions") == [])
        (row,) = tables.rows("state_subscriptions")
        assert not row["subscribed"] and row["live_since"] is None

    run_with(lambda lifecycle: replica_controller.control(settings, lifecycle), first)

    def again() -> None:
        # A second controller on the same topics continues the tables.
        with StatesClient("late", hosts.listen[3]) as late:
            late.subscribe(STATE)
            until(lambda: late.values(STATE) == {"sensor": b"2" * 1500})
            until(lambda: row_of(tables, "state_positions") is not None)
        until(lambda: row_of(tables, "vnfs", name="late", alive=False) is not None)
        until(lambda: tables.rows("state_positions") == [])

    run_with(lambda lifecycle: replica_controller.control(settings, lifecycle), again)
    numbers = [row["vnf"] for row in tables.rows("vnfs")]
    assert len(numbers) == len(set(numbers)) == 3
    before = {name: tables.rows(name) for name in ("vnfs", "states", "state_subscriptions")}

    # A controller with an empty checkpoint restores the tables from the topic: it deletes a row
    # that is not in the topic, and inserts a missing one.
    stray = before["vnfs"][0] | {"vnf": 60_000}
    tables.merge("vnfs", [stray], [before["vnfs"][1]], ("vnf",))
    restoring = dataclasses.replace(
        settings, states_checkpoint=str(tmp_path / "restored"), states_address=""
    )

    def same() -> bool:
        rows = {name: tables.rows(name) for name in before}
        return all(by_number(rows[name]) == by_number(before[name]) for name in before)

    run_with(
        lambda lifecycle: replica_controller.control(restoring, lifecycle),
        lambda: until(same),
    )


def by_number(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


@contextmanager
def replicas_of(hosts: StateHosts, *states: str) -> Iterator[StatesClient]:
    with StatesClient("reader", hosts.listen[3]) as reader:
        for state in states:
            reader.subscribe(state)
        yield reader


def rows_in(reader: StatesClient, state: str) -> list[dict[str, Any]] | None:
    value = reader.value(state)
    return None if value is None else json.loads(value)


def arguments(source: str, **options: str) -> argparse.Namespace:
    words = [f"--{name}={value}" for name, value in options.items()]
    return state_stream.parser().parse_args([source, *words])


def test_a_change_of_a_table_reaches_the_memory_of_programs_that_its_filters_choose(
    spark: SparkSession, hosts: StateHosts, tables: Tables, broker: Broker, tmp_path: Path
) -> None:
    hosts.start(1)
    place = tmp_path / "prices"

    def insert(*rows: tuple[str, str, int]) -> None:
        columns = pa.schema([("stock", pa.string()), ("city", pa.string()), ("price", pa.int32())])
        content = pa.table([*zip(*rows, strict=True)], schema=columns)
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(place, content, mode="append", configuration=feed)

    def change(statement: str) -> None:
        spark.sql(statement.replace("prices", f"delta.`{place}`"))

    def filters(*rows: tuple[str, str]) -> None:
        common = {"source": "prices", "enabled": True, "updated_by": None, "updated_at": None}
        content = [{"name": name, "filter": text, **common} for name, text in rows]
        tables.overwrite("state_filters", content)

    def expected(condition: str) -> list[dict[str, Any]]:
        """Returns the rows of the table that meet a condition of Python."""
        rows = DeltaTable(place).to_pyarrow_table().to_pylist()
        matching = [row for row in rows if eval(condition, {}, row)]
        return sorted(matching, key=lambda row: json.dumps(row, separators=(",", ":")))

    insert(("A", "turin", 5), ("B", "turin", 50), ("C", "pisa", 7))
    filters(("cheap", "price < 10"), ("wrong", "prize < 10"))
    settings = settings_of(hosts, tables, broker, tmp_path)

    def scenario() -> None:
        names = ("prices/turin", "prices/turin?cheap", "prices/pisa?cheap", "prices/turin?dear")
        with replicas_of(hosts, *names) as reader:

            def replicate(conditions: dict[str, str]) -> None:
                for state, condition in conditions.items():
                    rows = expected(condition)
                    until(lambda state=state, rows=rows: rows_in(reader, state) == rows)

            turin = "city == 'turin'"
            conditions = {
                "prices/turin": turin,
                "prices/turin?cheap": f"{turin} and price < 10",
                "prices/pisa?cheap": "city == 'pisa' and price < 10",
            }
            replicate(conditions)
            assert reader.value("prices/turin?dear") is None
            # Each of the two cities has a state of all rows and one of a filter.
            assert sample(settings, "stackcast_state_updates_total") == 4
            assert json.loads(get(settings, "health"))["status"] == "ok"
            change("UPDATE prices SET price = 9 WHERE stock = 'B'")
            replicate(conditions)
            change("DELETE FROM prices WHERE stock IN ('A', 'C')")
            replicate(conditions)
            assert rows_in(reader, "prices/pisa?cheap") == []
            # No row changes, but the filters do.
            filters(("cheap", "price < 5"), ("dear", "price >= 5"))
            replicate(conditions | {"prices/turin?cheap": f"{turin} and price < 5"})
            replicate({"prices/turin?dear": f"{turin} and price >= 5"})

    def publish(lifecycle: Lifecycle) -> int:
        return state_stream.publish(arguments(f"table:{place}", by="city"), settings, lifecycle)

    run_with(publish, scenario)
    # While the job is down, one filter is changed, another is removed, and so are all rows of a
    # city. The job reads from the table of states which ones it has published.
    filters(("cheap", "price < 50"))
    insert(("D", "pisa", 40))
    change("DELETE FROM prices WHERE city = 'turin'")
    timestamp = dt.datetime.now(dt.UTC)
    facts = [
        (key.encode(), json.dumps(record.value).encode(), offset, timestamp)
        for offset, (key, record) in enumerate(hosts.store.records.items())
    ]
    columns = "key binary, value binary, offset bigint, timestamp timestamp"
    FactTables(tables).take(spark.createDataFrame(facts, columns), 0)

    def after() -> None:
        with replicas_of(hosts, "prices/turin", "prices/turin?dear", "prices/pisa?cheap") as reader:
            until(lambda: rows_in(reader, "prices/turin") == [])
            until(lambda: rows_in(reader, "prices/turin?dear") == [])
            rows = expected("city == 'pisa' and price < 50")
            until(lambda: rows_in(reader, "prices/pisa?cheap") == rows)

    run_with(publish, after)


@pytest.mark.long
def test_records_of_a_topic_are_updates_that_filters_choose(
    hosts: StateHosts, tables: Tables, broker: Broker, tmp_path: Path
) -> None:
    hosts.start(1)
    topic = f"reports.{tmp_path.name}"
    ensure_topic(broker.bootstrap_servers, topic, 1)
    records = [
        json.dumps({"scanner": number % 3, "rssi": -number}).encode() for number in range(1, 61)
    ]
    common = {"enabled": True, "updated_by": None, "updated_at": None}
    tables.append(
        "state_filters",
        [{"name": "near", "source": "reports", "filter": "rssi > -20", **common}],
    )
    settings = settings_of(hosts, tables, broker, tmp_path)

    def scenario() -> None:
        with replicas_of(hosts, "reports/1", "reports/2?near") as reader:
            until(lambda: hosts.controller.controller.requests.live_since(2) is None)
            # The subscriptions are complete before the first record, so every record arrives.
            until(lambda: len(hosts.services[3][0].middleware.requests._live) == 2)
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            for value in records:
                producer.send(topic, value, partition=0)
            producer.close()
            expected = [
                ("reports/1", value) for value in records if json.loads(value)["scanner"] == 1
            ] + [
                ("reports/2?near", value)
                for value in records
                if json.loads(value)["scanner"] == 2 and json.loads(value)["rssi"] > -20
            ]
            updates: list[tuple[str, bytes]] = []

            def complete() -> bool:
                updates.extend((u.state, u.data) for u in reader.updates(timeout=0.2))
                return len(updates) >= len(expected)

            until(complete)
            for name in ("reports/1", "reports/2?near"):
                assert [u for u in updates if u[0] == name] == [e for e in expected if e[0] == name]

    run_with(
        lambda lifecycle: state_stream.publish(
            arguments(
                f"topic:{topic}", state="reports", by="scanner", columns="scanner INT, rssi INT"
            ),
            settings,
            lifecycle,
        ),
        scenario,
    )


def test_a_second_controller_ends_the_first(broker: Broker, tmp_path: Path) -> None:
    stores = [
        KafkaStore(broker.bootstrap_servers, *topics_of(f"fenced.{tmp_path.name}"), {})
        for _ in range(2)
    ]
    first, second = stores
    fact, segment = Record("state/1", {"name": "rooms"}), Keep(1, 5001, 1, 1, b"datagram")
    assert first.read() == ([], [])
    for _ in range(2):
        first.put([fact, segment])
    assert second.read() == ([fact], [(1, b"datagram")])
    with pytest.raises(StateError, match=r"STATE\.FENCED"):
        first.put([segment])
    for _ in range(2):
        second.put([Record("state/1", None), segment])
    assert second.read() == ([], [(1, b"datagram")])
    for store in stores:
        store.close()


def test_a_table_without_a_change_feed_is_refused(
    spark: SparkSession, hosts: StateHosts, tables: Tables, broker: Broker, tmp_path: Path
) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "plain"))
    settings = settings_of(hosts, tables, broker, tmp_path)
    with Lifecycle() as lifecycle, pytest.raises(TableError, match="NO_CHANGE_FEED"):
        state_stream.publish(arguments(f"table:{tmp_path / 'plain'}"), settings, lifecycle)


def test_names_of_states_distinguish_values(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("a/b", "c"), ("a", "b/c"), ("50%", "x?y"), (None, "")], "one string, other string"
    )
    filters = [Subscription("f", "f", 'other == "c"')]
    names = StateNames("s", ("one", "other")).of(rows, filters)
    assert [row[STATES] for row in names.collect()] == [
        ["s/a%2Fb/c", "s/a%2Fb/c?f"],
        ["s/a/b%2Fc"],
        ["s/50%25/x%3Fy"],
        ["s//"],
    ]


def test_the_first_program_of_the_document_runs(
    hosts: StateHosts, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.start(1)
    guide = (ROOT / "docs/how-to/replicate-state.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.S)
    assert len(program.splitlines()) <= 10
    monkeypatch.setattr(Replica.__init__, "__defaults__", ("", hosts.listen[2]))
    exec(program, {})
    assert capsys.readouterr().out.splitlines() == [
        "edge-1 b'21 degrees'",
        "b'21 degrees'",
        "{'edge-1': b'21 degrees'}",
    ]
