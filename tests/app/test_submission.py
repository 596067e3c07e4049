"""Errors of a command line, a file of properties or a setting are reported before a JVM starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest
from paths import ROOT

from stackcast.jobs.adapters.app import submission
from stackcast.udfs.errors import SettingsError

ITCH = "jobs/itch_stream.py"
BROKER = "spark.stackcast.kafka.bootstrap.servers=k1:9092"


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("STACKCAST_HOME", str(ROOT))
    monkeypatch.setenv("SPARK_CONF_DIR", str(ROOT / "conf"))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mine.conf"
    path.write_text("spark.master local[2]\nspark.stackcast.topc trades\n")
    return str(path)


def error(*words: str) -> str:
    with pytest.raises(SettingsError) as caught:
        submission.check(words)
    return str(caught.value)


@pytest.mark.unit
def test_settings_of_conf_and_of_the_file_are_checked(file: str):
    unknown = "SETTINGS.UNKNOWN_KEY: there is no setting spark.stackcast.topc; did you mean "
    for words in (
        ("--conf", "spark.stackcast.topc=t", ITCH),
        ("--conf=spark.stackcast.topc=t", ITCH),
        ("-c", "spark.stackcast.topc=t", ITCH, "--messages", "9"),
        ("--properties-file", file, ITCH),
        ("--master", "local[1]", f"--properties-file={file}", "--verbose", ITCH),
    ):
        assert error(*words) == unknown + "spark.stackcast.topic?"
    port = "spark.stackcast.multicast.port"
    assert f"{port} is '0', but must be" in error("--conf", f"{port}=0", "jobs/run_sql.py")
    sink = ("--conf", "spark.stackcast.sink.udp.endpoint=h:1")
    assert "SETTINGS.NO_BROKER" in error(*sink, ITCH)
    assert "SETTINGS.NO_BROKER" in error(*sink, "jobs/attribute_stream.py")
    submission.check((*sink, "jobs/refresh_switches.py"))
    submission.check((*sink, "--conf", BROKER, ITCH))


@pytest.mark.unit
def test_a_property_of_the_command_line_is_stronger_than_the_file(tmp_path: Path):
    path = tmp_path / "mine.conf"
    path.write_text("spark.stackcast.mtu none\n")
    assert "spark.stackcast.mtu is 'none'" in error("--properties-file", str(path), ITCH)
    submission.check(("--properties-file", str(path), "--conf", "spark.stackcast.mtu=900", ITCH))


@pytest.mark.unit
def test_spark_defaults_count_as_spark_takes_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "spark-defaults.conf").write_text("spark.stackcast.nothing 1\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    own = tmp_path / "mine.conf"
    own.write_text("spark.stackcast.topic trades\n")
    assert "spark.stackcast.nothing" in error(ITCH)
    submission.check(("--properties-file", str(own), ITCH))
    with_defaults = ("--load-spark-defaults", "--properties-file", str(own), ITCH)
    assert "spark.stackcast.nothing" in error(*with_defaults)
    first, *file_and_job = with_defaults
    assert "spark.stackcast.nothing" in error(*file_and_job[:-1], first, ITCH)


@pytest.mark.unit
def test_an_unreadable_file_is_named_and_so_is_the_place_for_its_option(tmp_path: Path):
    missing = str(tmp_path / "none.conf")
    assert error("--properties-file", missing, ITCH).startswith(
        f"SETTINGS.UNREADABLE_FILE: properties file {missing} cannot be read: no such file"
    )
    for words in (("--properties-file", missing), (f"--properties-file={missing}",)):
        assert error(ITCH, *words) == (
            f"SETTINGS.BAD_COMMAND_LINE: --properties-file is after {ITCH}, but is an option of "
            "spark-submit: put it before the job, as in ./spark-submit.sh --properties-file "
            f"{missing} {ITCH}"
        )
    # Values of other options may be secrets.
    assert "secret" not in error(ITCH, "--conf", "spark.password=secret")


@pytest.mark.unit
def test_an_option_of_the_job_before_its_file_is_named_with_its_place():
    assert error("--speed", "1000", "--conf", BROKER, "--messages=5", ITCH) == (
        f"SETTINGS.BAD_COMMAND_LINE: --speed is before {ITCH}, but spark-submit has no such "
        "option: put options of a job after its file, as in ./spark-submit.sh "
        f"{ITCH} --speed 1000 --messages=5"
    )
    assert "did you mean --properties-file?" in error("--properties-fil", "mine.conf")


@pytest.mark.unit
def test_an_incomplete_command_line_says_what_is_missing():
    assert "--conf of spark-submit has no value" in error("--conf")
    assert "write --conf KEY=VALUE" in error("--conf", "spark.stackcast.topic", ITCH)
    assert "no job follows" in error("--master", "local[2]")
    assert "did you mean jobs/itch_stream.py?" in error("jobs/itch_steam.py")
    assert "did you mean jobs/itch_stream.py?" in error("itch_stream.py")
    assert "--help lists the jobs" in error("jobs/nothing_like_it.py")


@pytest.mark.unit
def test_what_is_not_ours_is_left_to_spark(tmp_path: Path):
    own = tmp_path / "own.py"
    own.touch()
    for words in (
        ("--version",),
        ("--master", "local[2]", "--help"),
        ("--class", "org.example.Main", "my.jar", "--conf", "x"),
        ("--conf", "spark.stackcast.nothing=1", str(own), "--conf", "x"),
        ("s3a://bucket/job.py",),
        ("--conf", "spark.stackcast.nothing=1", ITCH, "--help"),
        ("jobs/run_sql.py", "-c", "SELECT 1"),
    ):
        submission.check(words)


@pytest.mark.unit
def test_the_options_are_those_of_the_installed_spark():
    (jar,) = Path(pyspark.__file__).parent.glob("jars/spark-launcher_*.jar")
    with zipfile.ZipFile(jar) as archive:
        code = archive.read("org/apache/spark/launcher/SparkSubmitOptionParser.class")
    options = {name.decode() for name in re.findall(rb"--[a-z][a-z-]+", code)}
    known = submission.WITH_VALUE | submission.SWITCHES | submission.NO_JOB
    assert options == {name for name in known if name.startswith("--")}


@pytest.mark.unit
def test_the_check_loads_neither_spark_nor_compiled_kernels():
    code = "import sys; from stackcast.jobs.adapters.app import submission; print(*sys.modules)"
    modules = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not modules & {"pyspark", "py4j", "numba", "pandas", "pyarrow", "networkx", "kafka"}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--properties-file", "/none.conf", ITCH), "properties file /none.conf cannot be read"),
        ((ITCH, "--properties-file", "/none.conf"), f"--properties-file is after {ITCH}"),
        (("--speed", "1000", ITCH), f"--speed is before {ITCH}"),
        (("--conf", "spark.stackcast.topc=t", ITCH), "did you mean spark.stackcast.topic?"),
    ],
)
def test_the_script_prints_one_line(words: tuple[str, ...], message: str):
    done = subprocess.run(
        [ROOT / "spark-submit.sh", *words],
        cwd=ROOT,
        env=os.environ | {"SPARK_CONF_DIR": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == submission.FAILED and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("stackcast: SETTINGS.") and message in line
