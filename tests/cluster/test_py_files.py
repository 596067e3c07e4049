"""Stock spark-submit runs the package from a zip archive; Python has only its requirements."""

from __future__ import annotations

import os
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import jvm
import pyspark
import pytest
from wheels import bare_environment, build_wheel

from stackcast.installation import var_folder

# tests/repository/test_public_names.py protects the functions, tests/lab/test_embedded.py the job.
pytestmark = pytest.mark.long

#: Limit against hangs, in seconds. The kernels are compiled.
LIMIT_S = 1800
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
#: Spark starts its daemon before it adds the archive to the path of Python.
DAEMON = ("--conf", "spark.python.daemon.module=pyspark.daemon")

RULES_JOB = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import struct
from stackcast import Subscription, match, matching

spark = SparkSession.builder.getOrCreate()
trades = spark.createDataFrame([("GOOGL", 60), ("MSFT", 40)], "stock string, price long")
rules = [Subscription("1", "h1", "stock == GOOGL and price > 50")]


def place(batches):
    from stackcast.udfs import columns

    yield columns.__file__


print(*sorted(set(trades.repartition(4).rdd.mapPartitions(place).collect())))
for row in match(trades, rules).orderBy("stock").collect():
    print(row.stock, row.rules, row.receivers)
for row in trades.withColumn("m", matching(rules)(struct("*"))).orderBy("stock").collect():
    print(row.stock, row.m.rules, row.m.receivers)
"""


@dataclass(frozen=True)
class Archive:
    """The wheel as a zip archive, an environment without the package, and an empty folder."""

    path: Path
    environment: Path
    folder: Path

    def submit(self, *arguments: str) -> str:
        """Run spark-submit, and return what the job printed."""
        environment = {
            "PATH": f"{self.environment / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.folder.parent),
            "PYSPARK_PYTHON": str(self.environment / "bin" / "python"),
            # The name of this machine does not always resolve.
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        if "JAVA_HOME" in os.environ:
            environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        done = subprocess.run(
            [SUBMIT, "--py-files", self.path, *arguments],
            cwd=self.folder,
            env=environment | jvm.as_shipped(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    built = build_wheel(tmp_path)
    environment = bare_environment(tmp_path / "environment")
    python = str(environment / "bin" / "python")
    program = [python, "-I", "-c", "import stackcast"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert "No module named 'stackcast'" in done.stderr
    folder = tmp_path / "empty"
    folder.mkdir()
    return Archive(built.rename(tmp_path / "stackcast.zip"), environment, folder)


def test_rules_over_a_data_frame_run_on_executors_of_a_cluster(archive: Archive) -> None:
    (archive.folder / "job.py").write_text(RULES_JOB)
    lines = archive.submit("--master", "local-cluster[1,1,1024]", "job.py").splitlines()
    first = next(at for at, line in enumerate(lines) if line.endswith("/udfs/columns.py"))
    assert lines[first:] == [
        "./stackcast.zip/stackcast/udfs/columns.py",
        *["GOOGL ['1'] ['h1']", "MSFT [] []"] * 2,
    ]


def test_the_main_job_delivers_exactly_on_its_own_lab(archive: Archive) -> None:
    (archive.folder / "var" / "jars").mkdir(parents=True)
    jars = var_folder().absolute() / "jars"
    (archive.folder / "var" / "jars" / "broker").symlink_to(jars / "broker")
    spark = ",".join(map(str, sorted((jars / "spark").glob("*.jar"))))
    with zipfile.ZipFile(archive.path) as file:
        job = file.extract("stackcast/jobs/itch_stream.py", archive.folder.parent)
    output = archive.submit("--jars", spark, *DAEMON, job)
    assert "Delivered exactly: all " in output
    assert (archive.folder / "var" / "lab" / "report.html").is_file()
