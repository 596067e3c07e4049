"""Fixtures that all tests share: a Spark session, a broker, tables and a message format.

`conftest` registers them in processes that run tests only, because to import Spark and Kafka takes
seconds.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pcap_deployment import Deployment, fill
from pyspark.sql import SparkSession
from quick_broker import QuickBroker

from stackcast import schemas
from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.lab.up.broker import Broker, default_class_path
from stackcast.udfs.messages.specification import Specification, parse_specification


def shared_folder(
    factory: pytest.TempPathFactory, name: str, create: Callable[[Path], None]
) -> Path:
    """Returns a folder that all processes of a test run share, filled once by ``create``."""
    base = factory.getbasetemp()
    if base.name.startswith("popen-"):
        # Processes of pytest-xdist have their own folders below the folder of the run.
        base = base.parent
    folder = base / f"shared-{name}"
    with (base / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            incomplete = factory.mktemp(name)
            create(incomplete)
            incomplete.rename(folder)
    return folder


@pytest.fixture(scope="session")
def itch() -> Specification:
    """The shipped ITCH specification."""
    return parse_specification(schemas.read_text("messages/itch.spec"), "itch")


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SparkSession]:
    """A Spark session with Delta and Kafka, configured like the jobs (conf/spark-defaults.conf).

    Each process has its own warehouse, because tests drop schemas of the same name.
    """
    options = ["--conf", f"spark.sql.warehouse.dir={tmp_path_factory.mktemp('warehouse')}"]
    options += ["--driver-memory", "768m"]
    if pytestconfig.getoption("--s3"):
        jars = Path(pytestconfig.getoption("--s3")).resolve()
        options += ["--driver-class-path", f"{jars}/*"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYSPARK_SUBMIT_ARGS", shlex.join([*options, "pyspark-shell"]))
        spark = session.start("stackcast tests")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def empty_tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of empty tables. Tests copy it, because its creation takes seconds."""
    return shared_folder(
        tmp_path_factory, "tables", lambda folder: open_tables(spark, str(folder)).create()
    )


@pytest.fixture
def tables(spark: SparkSession, empty_tables: Path, tmp_path: Path) -> Tables:
    """Fresh, empty tables of one deployment."""
    shutil.copytree(empty_tables, tmp_path / "tables")
    return open_tables(spark, str(tmp_path / "tables"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker for all tests, each with its own topics; a test that kills it revives it."""
    with QuickBroker(default_class_path(), tmp_path_factory.mktemp("broker")).start(300) as broker:
        yield broker


@pytest.fixture(scope="session")
def filled(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder of tables with a network and rules for ITCH, for tests to copy."""

    def create(folder: Path) -> None:
        shutil.copytree(empty_tables, folder, dirs_exist_ok=True)
        fill(open_tables(spark, str(folder)))

    return shared_folder(tmp_path_factory, "filled", create)


@pytest.fixture
def deployment(spark: SparkSession, broker: Broker, filled: Path, tmp_path: Path) -> Deployment:
    """A stream from its own topics into pcap files."""
    shutil.copytree(filled, tmp_path / "tables")
    return Deployment(spark, broker.bootstrap_servers, tmp_path)


@pytest.fixture(scope="session")
def namespace() -> list[str]:
    """The command that runs another in a new network namespace, with a user namespace if needed."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("unshare (util-linux) and ip (iproute2) are needed")
    command = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system does not permit network namespaces")
    return command
