"""Fixtures that all tests share: a Spark session, a broker, tables and a message format."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import examples
import jvm
import memory
import processes
import progress
import pytest
import shared
import tiers
from pcap_deployment import Deployment, fill
from pyspark.sql import SparkSession

import schemas
from jobs.adapters.app import session
from jobs.adapters.tables.tables import Tables
from lab.up.broker import Broker, default_class_path
from udfs.messages.specification import Specification, parse_specification

pytest_cmdline_main = processes.pytest_cmdline_main
pytest_xdist_make_scheduler = processes.pytest_xdist_make_scheduler
pytest_sessionfinish = tiers.send_to_controller
no_servers = tiers.no_servers

jvm.set_up()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose tests and examples before other plugins read the options."""
    for part in (tiers, examples, memory, progress):
        part.configure(config)


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)
    parser.addoption(
        "--seed",
        metavar="N",
        type=int,
        help="repeat a run of tests that draw, by the seed it printed",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the tests of the run, and order their files."""
    tiers.select(config, items)
    if hasattr(config, "workerinput"):
        processes.slowest_first(items, tiers.runs_long(config))


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
