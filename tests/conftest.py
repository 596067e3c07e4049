"""What the tests share, made once a process: a Spark session, a broker, tables, a format."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import costs
import examples
import jvm
import processes
import progress
import pytest
import shared
import switch_suite
from pcap_deployment import Deployment, fill
from pyspark.sql import SparkSession

import schemas
from jobs.adapters.app import session
from jobs.adapters.tables.tables import Tables
from lab.up.broker import Broker, default_class_path
from udfs.messages.specification import Specification, parse_specification

pytest_cmdline_main = processes.pytest_cmdline_main
pytest_configure_node = switch_suite.pytest_configure_node
pytest_report_header = switch_suite.pytest_report_header
no_servers = costs.no_servers

jvm.set_up()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """What is run, and how much of it, is settled before other plugins look."""
    for part in (examples, switch_suite, costs, progress):
        part.pytest_configure(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--p4c", metavar="FILE", help="p4c-bm2-ss: run what is marked p4c, too")
    parser.addoption("--kills", metavar="N", type=int, help="kill so many times at random")
    parser.addoption("--kills-seed", metavar="N", type=int, help="the seed that a run has printed")
    parser.addoption(
        "--switch-suite", action="store_true", help="run the software switch's own, changed or not"
    )
    parser.addoption(
        "--clone",
        action="store_true",
        help="paste what documents show into a clone, with all it installs, and what takes minutes",
    )
    parser.addoption("--bmv2", metavar="FILE", help="simple_switch_grpc: run what is marked bmv2")
    parser.addoption("--s3", metavar="FOLDER", help="of jars and a store: run what is marked s3")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs an option that is not given, and what passed before."""
    switch_suite.pytest_collection_modifyitems(config, items)
    absent = [
        name
        for name in ("p4c", "bmv2", "kills", "s3", "clone")
        if not config.getoption(f"--{name}")
    ]
    out = [item for item in items if any(item.get_closest_marker(name) for name in absent)]
    config.hook.pytest_deselected(items=out)
    left_out = set(out)
    items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        processes.slowest_first(items)


@pytest.fixture(scope="session")
def itch() -> Specification:
    """The shipped ITCH specification."""
    return parse_specification(schemas.read_text("messages/itch.spec"), "itch")


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SparkSession]:
    """A real Spark with Delta and Kafka, as the jobs have it (conf/spark-defaults.conf).

    Its warehouse is its own: another process of the same run drops schemas of the same name.
    """
    options = ["--conf", f"spark.sql.warehouse.dir={tmp_path_factory.mktemp('warehouse')}"]
    if pytestconfig.getoption("--s3"):
        jars = Path(pytestconfig.getoption("--s3")).resolve()
        options += ["--driver-class-path", f"{jars}/*"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_SUBMIT_ARGS", shlex.join([*options, "pyspark-shell"]))
        started = session.start("stackcast tests")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def empty_tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of empty tables, made once: copying it takes a moment, making it many seconds."""
    return shared.folder(
        tmp_path_factory, "tables", lambda place: Tables(spark, str(place)).create()
    )


@pytest.fixture
def tables(spark: SparkSession, empty_tables: Path, tmp_path: Path) -> Tables:
    """Fresh, empty tables of one deployment."""
    shutil.copytree(empty_tables, tmp_path / "tables")
    return Tables(spark, str(tmp_path / "tables"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka for all, each of whom has topics of its own; whom it harms takes another."""
    with Broker(default_class_path(), tmp_path_factory.mktemp("broker")).start(300) as started:
        yield started


@pytest.fixture(scope="session")
def filled(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder of tables with a network and rules for ITCH, made once."""

    def make(place: Path) -> None:
        shutil.copytree(empty_tables, place, dirs_exist_ok=True)
        fill(Tables(spark, str(place)))

    return shared.folder(tmp_path_factory, "filled", make)


@pytest.fixture
def deployment(spark: SparkSession, broker: Broker, filled: Path, tmp_path: Path) -> Deployment:
    """A stream from topics of its own into pcap files."""
    shutil.copytree(filled, tmp_path / "tables")
    return Deployment(spark, broker.bootstrap_servers, tmp_path)


@pytest.fixture(scope="session")
def namespace() -> list[str]:
    """The command that runs another in a new network namespace, with a user namespace if needed."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("unshare (util-linux) and ip (iproute2) are needed")
    command = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody make network namespaces")
    return command
