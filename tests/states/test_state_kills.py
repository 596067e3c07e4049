"""Any part is killed by SIGKILL, and every replica ends with the last update of each publisher.

Each part is a process: three programs on three hosts, their middlewares, the replica controller,
the switch, and the broker. The checks read the files that programs wrote, and know nothing of how
states are carried.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from paths import ROOT, SUPPORT
from quick_broker import QuickBroker
from state_hosts import StateHosts, endpoint
from waiting import until

from stackcast.jobs.adapters.states.client import StatesClient
from stackcast.jobs.adapters.states.overview import overview
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.up.broker import Broker, default_class_path

pytestmark = pytest.mark.integration

KINDS = ("switch", "controller", "broker", "middleware", "program")
NAMES = ("a", "b", "c")
STATE = "scanners"
#: Kills of the test with jobs.
JOB_KILLS = 6
#: Only against hangs.
HANG_S = 600.0


class Part:
    """A process that is started again whenever it ends, as by a supervisor."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None

    def supervise(self) -> None:
        """Start it unless it runs."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """Send SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class World:
    """All parts, and the files of the programs.

    With tables, the replica controller is the job, and a second job publishes the table ``prices``.
    """

    def __init__(self, folder: Path, broker: Broker, tables: str = "") -> None:
        self.folder, self.broker = folder, broker
        self.hosts = hosts = StateHosts(len(NAMES))
        listens = {n: endpoint(at) for n, at in hosts.listen.items()}

        def tunnel(port: int) -> str:
            return f"udp:{endpoint(hosts.far[port])}/{endpoint(hosts.near[port])}"

        def states(part: str, port: int, *arguments: str) -> list[str]:
            command = [
                sys.executable,
                "-m",
                "stackcast.cli.main",
                "states",
                part,
                "--link",
                tunnel(port),
            ]
            command += ["--address", f"10.0.0.{port}", "--listen", listens[port]]
            return [*command, *arguments]

        def job(name: str, *arguments: str, **settings: str) -> list[str]:
            options = [f"spark.stackcast.{key}={value}" for key, value in settings.items()]
            options += [f"spark.stackcast.tables={tables}", "spark.driver.memory=1g"]
            options += [f"spark.stackcast.states.checkpoint={folder}/checkpoint"]
            submitted = " ".join(f"--conf {option}" for option in options)
            variable = f"PYSPARK_SUBMIT_ARGS={submitted} pyspark-shell"
            return ["env", variable, sys.executable, str(ROOT / "jobs" / f"{name}.py"), *arguments]

        def support(part: str, **options: object) -> list[str]:
            return [sys.executable, str(SUPPORT / "state_parts.py"), part, json.dumps(options)]

        commands = {
            "switch": support("switch", near=hosts.near, far=hosts.far),
            "controller": states("controller", 1, "--bootstrap-servers", broker.bootstrap_servers),
        }
        if tables:
            of_controller = {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "states.address": "10.0.0.1",
                "states.listen": listens[1],
                "states.link": tunnel(1),
            }
            of_stream = {"states.middleware": listens[2]}
            commands["controller"] = job("replica_controller", **of_controller)
            commands["stream"] = job("state_stream", f"table:{folder}/prices", **of_stream)
        for port, name in enumerate(NAMES, 2):
            commands[f"middleware {name}"] = states("middleware", port, "--controller", listens[1])
            commands[f"program {name}"] = support(
                "program",
                name=name,
                folder=str(folder),
                state=STATE,
                middleware=hosts.listen[port],
            )
        self.parts = {name: Part(line, folder / f"{name}.log") for name, line in commands.items()}
        self._quiet = folder / "quiet"
        self._revived_at: float | None = None

    def kill(self, name: str, dice: random.Random) -> None:
        if name == "broker":
            self.broker.kill()
            self._revived_at = time.monotonic() + dice.uniform(0, 3)
        else:
            self.parts[name].kill()

    def supervise(self) -> None:
        if self._revived_at is not None and time.monotonic() > self._revived_at:
            self._revived_at = None
            self.broker.revive(HANG_S)
        for part in self.parts.values():
            part.supervise()

    def run(self, condition: Callable[[], object]) -> None:
        """Supervise all parts until a condition is true."""

        def holds() -> object:
            self.supervise()
            return condition()

        try:
            until(holds, seconds=HANG_S)
        except AssertionError as error:
            raise AssertionError(self.describe()) from error

    def run_for(self, seconds: float) -> None:
        """Supervise all parts for a time that the caller drew."""
        end = time.monotonic() + seconds
        self.run(lambda: time.monotonic() > end)

    def publish(self, on: bool) -> None:
        """Have all programs publish from now on, or no program."""
        if on:
            self._quiet.unlink()
        else:
            self._quiet.touch()

    def updates_arrive(self) -> None:
        """Wait until each replica has a newer update of each publisher than now.

        A program that was killed starts with an empty replica.
        """
        published = {name: self.last(name, "published") for name in NAMES}

        def newer() -> bool:
            replicas = [self.values(name) for name in NAMES]
            return all(
                replica.get(name, 0) > number
                for replica in replicas
                for name, number in published.items()
            )

        self.run(newer)

    def converged(self) -> bool:
        """Whether all replicas are equal and have the last update of each publisher.

        An update that a program published just before it was killed may not have left it, so the
        last one that the replica controller is known to have is the least.
        """
        first, *replicas = (self.values(name) for name in NAMES)
        return all(replica == first for replica in replicas) and all(
            self.last(name, "safe") <= first.get(name, -1) <= self.last(name, "published")
            for name in NAMES
        )

    def describe(self) -> str:
        return str(
            {
                name: (self.values(name), self.last(name, "safe"), self.last(name, "published"))
                for name in NAMES
            }
        )

    def end(self) -> None:
        for part in self.parts.values():
            part.kill()

    def last(self, name: str, file: str) -> int:
        lines = self._lines(f"{name}.{file}")
        return int(lines[-1]) if lines else 0

    def values(self, name: str) -> dict[str, int]:
        """The replica of a program: the number of the last update by publisher."""
        lines = self._lines(f"{name}.values")
        return json.loads(lines[-1]) if lines else {}

    def _lines(self, file: str) -> list[str]:
        path = self.folder / file
        # A line that a kill truncated does not count.
        return [line for line in path.read_text().split("\n")[:-1] if line] if path.exists() else []


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    seed = request.config.getoption("--seed")
    seed = int.from_bytes(os.urandom(3)) if seed is None else seed
    print(f"--seed {seed}")
    return random.Random(seed)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as ending:
        broker = QuickBroker(default_class_path(), tmp_path / "broker").start(300)
        ending.callback(broker.stop)
        world = World(tmp_path, broker)
        ending.callback(world.end)
        world.run(lambda: all(len(world.values(name)) == 3 for name in NAMES))
        yield world


def names_of(kinds: Sequence[str], dice: random.Random) -> list[str]:
    """Returns a part of each kind."""
    on_hosts = ("middleware", "program")
    return [f"{kind} {dice.choice(NAMES)}" if kind in on_hosts else kind for kind in kinds]


@pytest.mark.long
def test_replicas_converge_when_each_kind_of_part_is_killed_once(
    world: World, dice: random.Random
) -> None:
    killed = names_of(dice.sample(KINDS, len(KINDS)), dice)
    print(killed)
    for name in killed[:-2]:
        world.kill(name, dice)
        world.updates_arrive()
    # No update follows the last two kills, so nothing but the protocol repairs the replicas.
    world.publish(False)
    for name in killed[-2:]:
        world.kill(name, dice)
        world.run(world.converged)
    world.publish(True)
    world.updates_arrive()
    world.publish(False)
    world.run(world.converged)


@pytest.mark.long
def test_replicas_converge_when_parts_are_killed_at_random_times(
    world: World, dice: random.Random
) -> None:
    kinds = dice.sample(KINDS, len(KINDS)) * 5
    killed = names_of(kinds, dice)
    print(killed)
    for number, name in enumerate(killed, 1):
        if number == len(killed) - 1:
            world.publish(False)
        world.kill(name, dice)
        world.run_for(dice.uniform(0.2, 4))
    world.run(world.converged)
    world.publish(True)
    world.updates_arrive()
    world.publish(False)
    world.run(world.converged)


@pytest.mark.long
def test_jobs_are_killed_and_replicas_and_tables_converge(
    tables: Tables, broker: Broker, tmp_path: Path, dice: random.Random
) -> None:
    place = tmp_path / "prices"

    def write(number: int) -> None:
        rows = pa.table({"stock": [f"S{number}"], "price": pa.array([number], pa.int32())})
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(place, rows, mode="append", configuration=feed)

    def rows_of(reader: StatesClient) -> list[str]:
        value = reader.value("prices")
        return sorted(row["stock"] for row in json.loads(value or b"[]"))

    def complete() -> bool:
        """Whether by the tables each program that is alive has all updates."""
        states = overview(tables)
        return {state["name"] for state in states} == {STATE, "prices"} and all(
            replica["live_since"] and replica["behind"].get(publisher["vnf"], 0) == 0
            for state in states
            for replica in state["replicas"]
            for publisher in state["publishers"]
            if publisher["alive"]
        )

    write(0)
    world = World(tmp_path, broker, tables.location)
    with ExitStack() as ending:
        ending.callback(world.end)
        reader = ending.enter_context(StatesClient("reader", world.hosts.listen[4]))
        reader.subscribe("prices")
        world.run(lambda: rows_of(reader) == ["S0"])
        killed = []
        for number in range(1, JOB_KILLS + 1):
            # A killed job starts a new Spark, which takes long, so the next kill is of a part that
            # starts at once.
            jobs = number % 2
            name = dice.choice(["controller", "stream"] if jobs else ["switch", "middleware a"])
            version = tables.version("state_positions")
            world.kill(name, dice)
            killed.append(name)
            print(name)
            write(number)
            if jobs:
                # Both jobs work again.
                expected = sorted(f"S{each}" for each in range(number + 1))
                world.run(lambda expected=expected: rows_of(reader) == expected)
                world.run(lambda version=version: tables.version("state_positions") > version)
                world.run_for(dice.uniform(0, 5))
        world.publish(False)
        expected = sorted(f"S{number}" for number in range(len(killed) + 1))
        world.run(lambda: rows_of(reader) == expected)
        world.run(world.converged)
        world.run(complete)
