"""kill -9 of any part, at random, and every replica ends with the last update of each publisher.

Each part is a process: three programs on three hosts, their middlewares, the replica controller,
the switch, the broker. The checker knows the files that programs wrote, and nothing of how states
are carried.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from paths import ROOT, SUPPORT
from state_hosts import StateHosts, endpoint

from jobs.adapters.states.client import StatesClient
from jobs.adapters.states.overview import overview
from jobs.adapters.tables.tables import Tables
from lab.up.broker import Broker, default_class_path

pytestmark = [pytest.mark.integration, pytest.mark.slow]

KILLS = 8
NAMES = ("a", "b", "c")
STATE = "scanners"
WAIT_S = 180.0
#: A job has to start a Spark.
JOBS_S = 600.0


class Part:
    """A process that a supervisor would start again whenever it ends."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def keep_up(self) -> None:
        """Starts it where it does not run."""
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class World:
    """All parts, and what programs wrote. With tables, the replica controller is the job, and
    another publishes the table ``prices``."""

    def __init__(self, folder: Path, broker: Broker, tables: str = "") -> None:
        self.folder, self.broker = folder, broker
        self.hosts = hosts = StateHosts(len(NAMES))
        listens = {n: endpoint(at) for n, at in hosts.listen.items()}

        def tunnel(port: int) -> str:
            return f"udp:{endpoint(hosts.far[port])}/{endpoint(hosts.near[port])}"

        def states(what: str, port: int, *given: str) -> list[str]:
            called = [sys.executable, "-m", "cli.main", "states", what, "--link", tunnel(port)]
            at = ["--address", f"10.0.0.{port}", "--listen", listens[port]]
            return [*called, *at, *given]

        def job(name: str, *given: str, **settings: str) -> list[str]:
            options = [f"spark.stackcast.{key}={value}" for key, value in settings.items()]
            options += [f"spark.stackcast.tables={tables}", "spark.driver.memory=1g"]
            options += [f"spark.stackcast.states.checkpoint={folder}/checkpoint"]
            submitted = " ".join(f"--conf {option}" for option in options)
            variable = f"PYSPARK_SUBMIT_ARGS={submitted} pyspark-shell"
            return ["env", variable, sys.executable, str(ROOT / "jobs" / f"{name}.py"), *given]

        def support(what: str, **asked: object) -> list[str]:
            return [sys.executable, str(SUPPORT / "state_parts.py"), what, json.dumps(asked)]

        commands = {
            "switch": support("switch", near=hosts.near, far=hosts.far),
            "controller": states("controller", 1, "--bootstrap", broker.bootstrap_servers),
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
        self.parts = {name: Part(given, folder / f"{name}.log") for name, given in commands.items()}
        self._revived_at: float | None = None

    def kill(self, name: str, dice: random.Random) -> None:
        if name == "broker":
            self.broker.kill()
            self._revived_at = time.monotonic() + dice.uniform(0, 3)
        else:
            self.parts[name].kill()

    def keep_up(self) -> None:
        if self._revived_at is not None and time.monotonic() > self._revived_at:
            self._revived_at = None
            self.broker.revive(WAIT_S)
        for part in self.parts.values():
            part.keep_up()

    def run(self, until: Callable[[], bool], seconds: float) -> bool:
        """Keeps all up until something holds; returns whether it did in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.keep_up()
            if until():
                return True
            time.sleep(0.1)
        return False

    def end(self) -> None:
        for part in self.parts.values():
            part.kill()

    def last(self, name: str, what: str) -> int:
        lines = self._lines(f"{name}.{what}")
        return int(lines[-1]) if lines else 0

    def held(self, name: str) -> dict[str, int]:
        lines = self._lines(f"{name}.held")
        return json.loads(lines[-1]) if lines else {}

    def _lines(self, file: str) -> list[str]:
        path = self.folder / file
        # A line that a kill has cut off does not count.
        return [line for line in path.read_text().split("\n")[:-1] if line] if path.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as ending:
        broker = Broker(default_class_path(), tmp_path / "broker").start(300)
        ending.callback(broker.stop)
        made = World(tmp_path, broker)
        ending.callback(made.end)
        yield made


def test_every_replica_converges_whatever_is_killed(
    world: World, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--kills-seed") or int.from_bytes(os.urandom(3))
    kills = request.config.getoption("--kills") or KILLS
    print(f"--kills-seed {seed}")
    dice = random.Random(seed)
    kinds = ["switch", "controller", "broker", "middleware", "program"]
    dice.shuffle(kinds)
    assert world.run(lambda: all(len(world.held(name)) == 3 for name in NAMES), WAIT_S)
    killed: list[str] = []
    for number in range(kills):
        # Each kind in turn, so that few kills meet all; of the last ones nobody publishes.
        kind = kinds[number % len(kinds)]
        name = f"{kind} {dice.choice(NAMES)}" if kind in ("middleware", "program") else kind
        if number == kills - 2:
            (world.folder / "quiet").touch()
        world.kill(name, dice)
        killed.append(name)
        world.run(lambda: False, dice.uniform(0.2, 4))
    assert world.run(lambda: converged(world), WAIT_S), (killed, told(world))
    # It stays so.
    world.run(lambda: False, 3)
    assert converged(world)
    print(killed, told(world))


@pytest.mark.kills
def test_jobs_are_killed_and_replicas_and_tables_converge(
    tables: Tables, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--kills-seed") or int.from_bytes(os.urandom(3))
    print(f"--kills-seed {seed}")
    dice = random.Random(seed)
    place = tmp_path / "prices"

    def write(number: int) -> None:
        rows = pa.table({"stock": [f"S{number}"], "price": pa.array([number], pa.int32())})
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(place, rows, mode="append", configuration=feed)

    def rows_of(reader: StatesClient) -> list[str]:
        value = reader.value("prices")
        return sorted(row["stock"] for row in json.loads(value or b"[]"))

    def known() -> bool:
        """Whether the tables know of each program that lives that it has all."""
        seen = overview(tables)
        return {each["name"] for each in seen} == {STATE, "prices"} and all(
            replica["live_since"] and replica["behind"].get(publisher["vnf"], 0) == 0
            for state in seen
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
        assert world.run(lambda: rows_of(reader) == ["S0"], JOBS_S)
        killed = []
        for number in range(1, request.config.getoption("--kills") + 1):
            # What is Spark's every other time: it has to come up again before it can be killed.
            name = dice.choice(
                ["controller", "stream"] if number % 2 else ["switch", "middleware a"]
            )
            world.kill(name, dice)
            killed.append(name)
            write(number)
            if number % 2:
                world.run(lambda: False, dice.uniform(5, 40))
        (tmp_path / "quiet").touch()
        wanted = sorted(f"S{number}" for number in range(len(killed) + 1))
        assert world.run(lambda: rows_of(reader) == wanted, JOBS_S), (killed, rows_of(reader))
        assert world.run(lambda: converged(world), JOBS_S), (killed, told(world))
        assert world.run(known, JOBS_S), (killed, overview(tables))
        print(killed)


def converged(world: World) -> bool:
    """All replicas are one and the same, and of each publisher have what was last published.

    What a program published just before it was killed may not have left it: the last that the
    replica controller is known to have is the least.
    """
    first, *others = (world.held(name) for name in NAMES)
    return all(other == first for other in others) and all(
        world.last(name, "safe") <= first.get(name, -1) <= world.last(name, "published")
        for name in NAMES
    )


def told(world: World) -> dict[str, object]:
    return {
        name: (world.held(name), world.last(name, "safe"), world.last(name, "published"))
        for name in NAMES
    }
