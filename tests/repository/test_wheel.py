"""The wheel is complete, works without a checkout, and adds one name to site-packages.

The wheel is built from a copy of the sources and installed into an empty virtual environment.
Programs run in an empty folder, and know nothing of the checkout. Packages and jars come from the
registries.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from paths import P4, ROOT
from wheels import build_wheel

pytestmark = pytest.mark.long

#: Limit against hangs, in seconds. Packages and jars come through a network, and the kernels are
#: compiled.
LIMIT_S = 1800
#: Variables that could lead programs to the checkout, or to the environment of the tests.
FOREIGN = ("STACKCAST_", "SPARK_", "PYSPARK_", "PYTHON", "NUMBA_", "VIRTUAL_ENV", "COVERAGE")

#: A job of a repository that has folders of the same names as ours.
OWN_JOB = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import jobs.hosts
import udfs.columns
from stackcast.udfs.columns import match
from stackcast.udfs.filters.subscriptions import Subscription

spark = SparkSession.builder.master("local[1]").getOrCreate()
trades = spark.createDataFrame([("GOOGL", 60), ("MSFT", 60)], "stock string, price long")
twice = udf(udfs.columns.twice, "long")
rules = [Subscription("1", jobs.hosts.HOST, "stock == GOOGL and price > 100")]
for row in match(trades.withColumn("price", twice("price")), rules).collect():
    print(row.asDict())
print(jobs.hosts.__file__, udfs.columns.__file__)
"""


@dataclass(frozen=True)
class Installation:
    """The wheel in a virtual environment, and an empty folder in which its programs run."""

    wheel: Path
    environment: Path
    folder: Path

    def run(self, command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of bash, by default in the empty folder."""
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)
        }
        variables["PATH"] = f"{self.environment / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        # Workers share out compiling the kernels only in a folder that all of them know.
        variables["NUMBA_CACHE_DIR"] = str(self.folder.parent / "numba")
        return subprocess.run(
            ["bash", "-c", command],
            cwd=folder or self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def succeed(self, command: str, folder: Path | None = None) -> str:
        """Run a command that must succeed, and return what it printed."""
        done = self.run(command, folder)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    environment = tmp_path_factory.mktemp("installed") / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    folder = environment.with_name("empty")
    folder.mkdir()
    installed = Installation(wheel, environment, folder)
    installed.succeed(f"pip install -q -c {ROOT / 'constraints.txt'} {wheel}")
    yield installed
    # Packages and jars take a gigabyte.
    shutil.rmtree(environment.parent)


def test_the_wheel_has_all_files_below_one_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        entries = {entry.filename: entry for entry in file.infolist()}
        contents = {
            name: file.read(name)
            for name in entries
            if name.startswith(("stackcast/p4/", "stackcast/conf/"))
        }
    tops = {name.partition("/")[0] for name in entries}
    assert sorted(tops) == ["stackcast", "stackcast-0.1.0.dist-info"]
    assert not any(entry.external_attr >> 16 & 0o170000 == 0o120000 for entry in entries.values())
    # All files of these folders; of conf and docs, only those that programs read.
    expected = {f"p4/{path.relative_to(P4)}" for path in P4.rglob("*") if path.is_file()}
    for folder in ("cli", "jobs", "lab", "switch", "udfs", "schemas"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                expected.add(str(path.relative_to(ROOT)))
    expected |= {"conf/ivy.xml", "conf/jars.sha256", "conf/spark-defaults.conf"}
    expected.add("docs/how-to/runbook.md")
    expected |= {"__init__.py", "py.typed", "installation.py", "requirements.py"}
    names = {name.removeprefix("stackcast/") for name in entries if name.startswith("stackcast/")}
    assert expected - names == set()
    assert names - expected == {"conf/log4j2.properties", "conf/prometheus-alerts.yml"}
    for name, content in contents.items():
        assert content == (ROOT / name.removeprefix("stackcast/")).read_bytes(), name


def test_site_packages_gains_one_name(installation: Installation) -> None:
    script = (
        "from importlib.metadata import files; "
        "print(*sorted({f.parts[0] for f in files('stackcast')} - {'..'}))"
    )
    assert installation.succeed(f'python -c "{script}"').split() == [
        "stackcast",
        "stackcast-0.1.0.dist-info",
    ]
    for name in ("cli", "conf", "docs", "jobs", "lab", "p4", "schemas", "switch", "udfs"):
        done = installation.run(f"python -c 'import {name}'")
        assert f"No module named '{name}'" in done.stderr


def test_commands_in_an_empty_folder(installation: Installation) -> None:
    assert "Commands:" in installation.succeed("stackcast --help")
    path = Path(installation.succeed("stackcast jobs path itch_stream").strip())
    assert path.is_file() and installation.environment in path.parents
    for coordinates in installation.succeed("stackcast jobs packages").strip().split(","):
        assert len(coordinates.split(":")) == 3
    assert Path(installation.succeed("stackcast jobs properties").strip()).is_file()
    done = installation.run("stackcast jobs path itch_strem")
    assert done.returncode == 2 and "did you mean itch_stream?" in done.stderr


def test_a_missing_extra_is_one_line_with_the_command(installation: Installation) -> None:
    done = installation.run('python "$(stackcast jobs path console)" --demo')
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("REQUIREMENT.MISSING_EXTRA: ")
    assert "pip install 'stackcast[console]'" in line


def test_a_stock_spark_submit_delivers_exactly(installation: Installation) -> None:
    jars = installation.succeed("stackcast lab fetch")
    assert f"30 jars of the broker are in {installation.folder}/var/jars/broker" in jars
    output = installation.succeed(
        f"spark-submit --conf spark.jars.ivy={installation.folder.parent}/ivy "
        '--packages "$(stackcast jobs packages)" "$(stackcast jobs path itch_stream)"'
    )
    assert "Delivered exactly: all " in output
    assert (installation.folder / "var" / "lab" / "report.html").is_file()
    written = {path.name for path in installation.folder.iterdir()}
    assert written - {"spark-warehouse"} == {"var"}


def test_a_repository_with_folders_of_the_same_names(
    installation: Installation, tmp_path: Path
) -> None:
    for folder in ("jobs", "udfs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "udfs" / "columns.py").write_text("def twice(number):\n    return 2 * number\n")
    (tmp_path / "jobs" / "hosts.py").write_text('HOST = "h1"\n')
    (tmp_path / "jobs" / "job.py").write_text(OWN_JOB)
    own = f"{tmp_path}/jobs/hosts.py {tmp_path}/udfs/columns.py"
    output = installation.succeed(f"PYTHONPATH={tmp_path} python jobs/job.py", tmp_path)
    assert output.splitlines()[-1] == own
    assert "'stock': 'GOOGL', 'price': 120, 'rules': ['1'], 'receivers': ['h1']" in output
    assert "'stock': 'MSFT', 'price': 120, 'rules': [], 'receivers': []" in output
