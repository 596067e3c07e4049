"""States in Spark: the replica controller's tables, and rows and records published as states."""

from __future__ import annotations

import argparse
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

import pytest
from kafka import KafkaProducer
from paths import ROOT
from ports import free_port
from pyspark.sql import SparkSession
from state_hosts import StateHosts, endpoint, state_hosts
from waiting import until

from jobs import replica_controller, state_stream
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.states.client import StatesClient
from jobs.adapters.states.fact_tables import FactTables
from jobs.adapters.states.replica import Replica
from jobs.adapters.states.row_states import STATES, StateNames
from jobs.adapters.states.store import KafkaStore, topics_of
from jobs.adapters.tables.tables import Tables
from lab.traffic.publisher import ensure_topic
from lab.up.broker import Broker
from udfs.errors import StateError, TableError
from udfs.filters.subscriptions import Subscription
from udfs.states.outputs import Keep, Record

pytestmark = pytest.mark.integration

WAIT_S = 90.0


@pytest.fixture
def hosts() -> Iterator[StateHosts]:
    with state_hosts(2, started=False) as made:
        made.start(2)
        made.start(3)
        yield made


def beside(job: Callable[[Lifecycle], Any], scenario: Callable[[], None]) -> None:
    """Runs a job, and a scenario beside it at whose end it is asked to stop."""
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


def asked(settings: Settings, what: str) -> str:
    """What a job serves."""
    where = f"http://127.0.0.1:{settings.metrics_port}/{what}"
    with urllib.request.urlopen(where, timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def sample(settings: Settings, name: str) -> float:
    """A metric of the job."""
    lines = asked(settings, "metrics").splitlines()
    (found,) = [line.split()[1] for line in lines if line.split()[0] == name]
    return float(found)


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
    """What ``stackcast states show`` prints."""
    properties = folder / "show.conf"
    properties.write_text(f"spark.stackcast.tables {tables.location}\n")
    command = [sys.executable, "-m", "cli.main", "states", "show", "rooms"]
    called = [*command, "--properties-file", str(properties)]
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_SUBMIT_ARGS"}
    return subprocess.run(
        called, env=environment, stdout=subprocess.PIPE, text=True, timeout=WAIT_S, check=True
    ).stdout.splitlines()


def row_of(tables: Tables, table: str, **wanted: Any) -> dict[str, Any] | None:
    for row in tables.rows(table):
        if all(row[column] == value for column, value in wanted.items()):
            return row
    return None


def test_tables_say_who_holds_what_and_how_far(
    hosts: StateHosts, tables: Tables, broker: Broker, tmp_path: Path
) -> None:
    settings = settings_of(hosts, tables, broker, tmp_path)

    def first() -> None:
        with (
            StatesClient("sensor", hosts.listen[2]) as sensor,
            StatesClient("reader", hosts.listen[3]) as reader,
        ):
            reader.subscribe("rooms")
            for number in range(3):
                sensor.publish("rooms", b"%d" % number * 1500)
            until(lambda: reader.value("rooms") == b"2" * 1500)
            sensor.flush(WAIT_S)
            until(
                lambda: row_of(tables, "state_positions", update_number=3, segment=2) is not None,
            )
            vnfs = {row["name"]: row for row in tables.rows("vnfs")}
            assert {row["host"] for row in vnfs.values()} == {"10.0.0.2", "10.0.0.3"}
            assert all(row["alive"] for row in vnfs.values())
            sensor_id, reader_id = vnfs["sensor"]["vnf"], vnfs["reader"]["vnf"]
            (state,) = tables.rows("states")
            assert (state["name"], state["owner"]) == ("rooms", sensor_id)
            (publisher,) = tables.rows("state_publishers")
            assert (publisher["vnf"], publisher["newest_update"]) == (sensor_id, 3)
            (position,) = tables.rows("state_positions")
            assert (position["vnf"], position["publisher"]) == (reader_id, sensor_id)
            until(lambda: tables.rows("states")[0]["segments"] == 2)
            of = {
                name: sample(settings, f"stackcast_state_{name}")
                for name in ("middlewares", "programs", "names", "kept_updates", "kept_bytes")
            }
            assert list(of.values()) == [2, 2, 1, 1, 1500]
            assert sample(settings, "stackcast_state_facts_total") >= 6
            assert json.loads(asked(settings, "health"))["status"] == "ok"
            (holds,) = tables.rows("state_subscriptions")
            assert holds["wanted"] and holds["vnf"] == reader_id and holds["live_since"]
            since = f"{holds['live_since']:%Y-%m-%d %H:%M:%S}"
            assert shown(tables, tmp_path) == [
                "rooms  state 1, 239.0.0.1, 2 segments kept",
                f"  published by sensor ({sensor_id} at 10.0.0.2): update 3",
                f"  held by reader ({reader_id} at 10.0.0.3): live since {since} UTC, has all",
            ]
        until(
            lambda: not any(row["alive"] for row in tables.rows("vnfs")),
        )
        until(lambda: tables.rows("state_positions") == [])
        (left,) = tables.rows("state_subscriptions")
        assert not left["wanted"] and left["live_since"] is None

    beside(lambda lifecycle: replica_controller.control(settings, lifecycle), first)

    def again() -> None:
        # Another controller, on the same topics, and the tables go on.
        with StatesClient("late", hosts.listen[3]) as late:
            late.subscribe("rooms")
            until(lambda: late.values("rooms") == {"sensor": b"2" * 1500})
            until(lambda: row_of(tables, "state_positions") is not None)
        until(lambda: row_of(tables, "vnfs", name="late", alive=False) is not None)
        until(lambda: tables.rows("state_positions") == [])

    beside(lambda lifecycle: replica_controller.control(settings, lifecycle), again)
    numbers = [row["vnf"] for row in tables.rows("vnfs")]
    assert len(numbers) == len(set(numbers)) == 3
    before = {name: tables.rows(name) for name in ("vnfs", "states", "state_subscriptions")}

    # From the topic alone: what the tables have besides goes, and what they lack comes.
    stray = before["vnfs"][0] | {"vnf": 60_000}
    tables.merge("vnfs", [stray], [before["vnfs"][1]], ("vnf",))
    anew = Settings(
        **{
            **vars(settings),
            "states_checkpoint": str(tmp_path / "anew"),
            "states_address": "",
        }
    )

    def same() -> bool:
        rows = {name: tables.rows(name) for name in before}
        return all(by_number(rows[name]) == by_number(before[name]) for name in before)

    beside(
        lambda lifecycle: replica_controller.control(anew, lifecycle),
        lambda: until(same),
    )


def by_number(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


@contextmanager
def holding(hosts: StateHosts, *states: str) -> Iterator[StatesClient]:
    with StatesClient("reader", hosts.listen[3]) as reader:
        for state in states:
            reader.subscribe(state)
        yield reader


def rows_in(reader: StatesClient, state: str) -> list[dict[str, Any]] | None:
    value = reader.value(state)
    return None if value is None else json.loads(value)


def argued(source: str, **options: str) -> argparse.Namespace:
    given = [f"--{name}={value}" for name, value in options.items()]
    return state_stream.parser().parse_args([source, *given])


def test_a_change_of_a_table_reaches_the_memory_of_programs_that_its_filters_choose(
    spark: SparkSession, hosts: StateHosts, tables: Tables, broker: Broker, tmp_path: Path
) -> None:
    hosts.start(1)
    place = tmp_path / "prices"
    spark.sql(
        f"CREATE TABLE delta.`{place}` (stock STRING, city STRING, price INT) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )

    def write(statement: str) -> None:
        spark.sql(statement.replace("prices", f"delta.`{place}`"))

    def filters(*rows: tuple[str, str]) -> None:
        common = {"source": "prices", "enabled": True, "updated_by": None, "updated_at": None}
        made = [{"name": name, "filter": text, **common} for name, text in rows]
        tables.overwrite("state_filters", made)

    def wanted(condition: str) -> list[dict[str, Any]]:
        rows = [r.asDict() for r in spark.read.format("delta").load(str(place)).collect()]
        cheap = [row for row in rows if eval(condition, {}, row)]  # the oracle is Python's
        return sorted(cheap, key=lambda row: json.dumps(row, separators=(",", ":")))

    write("INSERT INTO prices VALUES ('A', 'turin', 5), ('B', 'turin', 50), ('C', 'pisa', 7)")
    filters(("cheap", "price < 10"), ("wrong", "prize < 10"))
    settings = settings_of(hosts, tables, broker, tmp_path)

    def scenario() -> None:
        names = ("prices/turin", "prices/turin?cheap", "prices/pisa?cheap", "prices/turin?dear")
        with holding(hosts, *names) as reader:

            def hold(conditions: dict[str, str]) -> None:
                for state, condition in conditions.items():
                    what = wanted(condition)
                    until(lambda state=state, what=what: rows_in(reader, state) == what)

            turin = "city == 'turin'"
            all_of_it = {
                "prices/turin": turin,
                "prices/turin?cheap": f"{turin} and price < 10",
                "prices/pisa?cheap": "city == 'pisa' and price < 10",
            }
            hold(all_of_it)
            assert reader.value("prices/turin?dear") is None
            # Two cities, each with a filter beside.
            assert sample(settings, "stackcast_state_updates_total") == 4
            assert json.loads(asked(settings, "health"))["status"] == "ok"
            write("UPDATE prices SET price = 9 WHERE stock = 'B'")
            hold(all_of_it)
            write("DELETE FROM prices WHERE stock IN ('A', 'C')")
            hold(all_of_it)
            assert rows_in(reader, "prices/pisa?cheap") == []
            # No row changes, but what its filters ask does.
            filters(("cheap", "price < 5"), ("dear", "price >= 5"))
            hold(all_of_it | {"prices/turin?cheap": f"{turin} and price < 5"})
            hold({"prices/turin?dear": f"{turin} and price >= 5"})

    def publish(lifecycle: Lifecycle) -> int:
        return state_stream.publish(argued(f"table:{place}", by="city"), settings, lifecycle)

    beside(publish, scenario)
    # While it is away, a filter is changed, another goes, and so do all rows of a city. The table
    # of states says what it had published.
    filters(("cheap", "price < 50"))
    write("INSERT INTO prices VALUES ('D', 'pisa', 40)")
    write("DELETE FROM prices WHERE city = 'turin'")
    now = dt.datetime.now(dt.UTC)
    facts = [
        (key.encode(), json.dumps(record.value).encode(), at, now)
        for at, (key, record) in enumerate(hosts.store.records.items())
    ]
    columns = "key binary, value binary, offset bigint, timestamp timestamp"
    FactTables(tables).take(spark.createDataFrame(facts, columns), 0)

    def after() -> None:
        with holding(hosts, "prices/turin", "prices/turin?dear", "prices/pisa?cheap") as reader:
            until(lambda: rows_in(reader, "prices/turin") == [])
            until(lambda: rows_in(reader, "prices/turin?dear") == [])
            what = wanted("city == 'pisa' and price < 50")
            until(lambda: rows_in(reader, "prices/pisa?cheap") == what)

    beside(publish, after)


def test_records_of_a_topic_are_updates_that_filters_choose(
    hosts: StateHosts, tables: Tables, broker: Broker, tmp_path: Path
) -> None:
    hosts.start(1)
    topic = f"reports.{tmp_path.name}"
    ensure_topic(broker.bootstrap_servers, topic, 1)
    sent = [
        json.dumps({"scanner": number % 3, "rssi": -number}).encode() for number in range(1, 61)
    ]
    with_filter = {"enabled": True, "updated_by": None, "updated_at": None}
    tables.append(
        "state_filters",
        [{"name": "near", "source": "reports", "filter": "rssi > -20", **with_filter}],
    )
    settings = settings_of(hosts, tables, broker, tmp_path)

    def scenario() -> None:
        with holding(hosts, "reports/1", "reports/2?near") as reader:
            until(lambda: hosts.controller.controller.requests.live_since(2) is None)
            # Subscribed before the first is published, so each one comes.
            until(lambda: len(hosts.services[3][0].middleware.requests._live) == 2)
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
            for value in sent:
                producer.send(topic, value, partition=0)
            producer.close()
            wanted = [
                ("reports/1", value) for value in sent if json.loads(value)["scanner"] == 1
            ] + [
                ("reports/2?near", value)
                for value in sent
                if json.loads(value)["scanner"] == 2 and json.loads(value)["rssi"] > -20
            ]
            got: list[tuple[str, bytes]] = []

            def all_came() -> bool:
                got.extend((u.state, u.data) for u in reader.updates(timeout=0.2))
                return len(got) >= len(wanted)

            until(all_came)
            for state in ("reports/1", "reports/2?near"):
                assert [g for g in got if g[0] == state] == [w for w in wanted if w[0] == state]

    beside(
        lambda lifecycle: state_stream.publish(
            argued(
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
        state_stream.publish(argued(f"table:{tmp_path / 'plain'}"), settings, lifecycle)


def test_names_of_states_tell_values_apart(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("a/b", "c"), ("a", "b/c"), ("50%", "x?y"), (None, "")], "one string, other string"
    )
    filters = [Subscription("f", "f", 'other == "c"')]
    named = StateNames("s", ("one", "other")).of(rows, filters)
    assert [row[STATES] for row in named.collect()] == [
        ["s/a%2Fb/c", "s/a%2Fb/c?f"],
        ["s/a/b%2Fc"],
        ["s/50%25/x%3Fy"],
        ["s//"],
    ]


def test_the_first_program_of_the_document_runs(
    hosts: StateHosts, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.start(1)
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/states.md").read_text(), re.S)
    assert len(program.splitlines()) <= 10
    monkeypatch.setattr(Replica.__init__, "__defaults__", ("", hosts.listen[2]))
    exec(program, {})
    assert capsys.readouterr().out.splitlines() == [
        "edge-1 b'21 degrees'",
        "b'21 degrees'",
        "{'edge-1': b'21 degrees'}",
    ]
