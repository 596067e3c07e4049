"""Set-up by spark-submit.sh: a missing prerequisite is one clear line, and no step is repeated.

Every run has its own PATH, HOME, clone and folder for the environment. Python, pip and Ivy are
fakes. They log each step in the file ``events``, with the steps that are marked as done at that
time. A file ``hold-STEP`` makes a fake wait in its step.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT
from waiting import until

pytestmark = pytest.mark.integration

TOOLS = (
    "awk bash cat chmod cksum cp dirname env find flock grep head ln ls mkdir mv rm sed sha256sum "
    "sleep sort tee tr uname"
)

SHELL = shutil.which("sh")
JAVA_17 = """echo 'openjdk version "17.0.9" 2023-10-17' >&2"""
LARGE_DISK = "echo 'Filesystem 1024-blocks Used Available'; echo 'disk 99999999 1 99999998 1% /'"


#: Logs a step with the steps marked as done so far, then waits while a file ``hold-STEP`` exists.
NOTE = """note() {
  marks=
  for mark in "$STACKCAST_VAR"/.done-*; do [ ! -f "$mark" ] || marks="$marks ${mark##*-}"; done
  echo "$1 |$marks" >>"$HOME/events"
  while [ -e "$HOME/hold-$1" ]; do sleep 0.05; done
}"""

#: An interpreter outside of an environment: creates one with two folders and an interpreter.
SYSTEM_PYTHON = f"""{NOTE}
case "$1" in
  --version) echo Python 3.12.1 ;;
  -m) note venv; mkdir -p "$3/bin" "$3/pyspark" && cp "$HOME/env-python" "$3/bin/python" ;;
esac"""

#: The interpreter of an environment: pip installs a pyspark with a jar of its own and with Ivy.
ENV_PYTHON = f"""{NOTE}
spark=$STACKCAST_VAR/env/pyspark
case "$1" in
  -I) [ -d "$spark/jars" ] || {{ echo Traceback >&2; exit 1; }}; echo "$spark" ;;
  -m) for last; do :; done
    case "$2 $last" in
      pytest*) echo "pytest in $PWD"; exit ;;
      tests.make.*) echo "$* in $PWD"; exit ;;
      *.submission*) echo "checked $*" >>"$HOME/checks"; [ ! -e "$HOME/bad-settings" ]; exit ;;
      *.kernel_cache*) echo compiled >>"$HOME/kernels"; [ ! -e "$HOME/no-compiler" ]; exit ;;
      *.class_data*) note classes; [ ! -e "$HOME/no-archive" ] || exit 1
        echo classes >"$STACKCAST_VAR/classes.jsa.new"; exit ;;
      *test.txt) note test; exit ;;
      *bench.txt) note bench; exit ;;
      *build.txt | *console.txt | *shell.txt | *clone | *moved) exit ;;
    esac
    note runtime
    [ ! -e "$HOME/no-network" ] || {{ echo "NewConnectionError: refused"; exit 1; }}
    mkdir -p "$spark/jars" "$spark/bin" && echo own >"$spark/jars/own.jar"
    cp "$HOME/ivy.jar" "$spark/jars/ivy-2.5.3.jar"
    printf '#!{SHELL}\\necho "spark-submit $*"\\necho "$SPARK_LOCAL_IP" >"$HOME/local-ip"\\n' \\
      >"$spark/bin/spark-submit"
    chmod +x "$spark/bin/spark-submit"
    ;;
esac"""

#: Java as Ivy: creates the jars that conf/ivy.xml of the test's clone names, and logs each.
IVY = f"""{NOTE}
[ "$1" = -jar ] || {{ {JAVA_17}; exit; }}
jars=$STACKCAST_VAR/jars/spark
mkdir -p "$jars"
while read -r name; do echo jar >"$jars/$name"; note jars; done <"$4"
"""


class Machine:
    """A machine with common Unix tools, and the programs that a test adds to ``bin``."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.var = folder / "var"
        self.home = folder / "home"
        self.clone = ROOT
        self.bin.mkdir(parents=True)
        self.home.mkdir()
        for tool in TOOLS.split():
            path = shutil.which(tool)
            if path:
                (self.bin / tool).symlink_to(path)

    def program(self, name: str, script: str) -> Path:
        """Add a fake program to the PATH."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{SHELL}\n{script}\n")
        path.chmod(0o755)
        return path

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        # A new environment, so that no setting of the real machine helps.
        variables = {"PATH": str(self.bin), "HOME": str(self.home), "STACKCAST_VAR": str(self.var)}
        return subprocess.Popen(
            [self.bin / "bash", self.clone / "spark-submit.sh", *arguments],
            env=variables | environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        started = self.start(*arguments, **environment)
        try:
            out, err = started.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(started.args, started.returncode, out, err)

    def events(self) -> list[str]:
        """Return the steps since the last call, each as ``step | steps done before``."""
        path = self.home / "events"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def marks(self) -> set[str]:
        return {path.name.removeprefix(".done-") for path in self.var.glob(".done-*")}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with Java and free space, but without a network and an environment."""
    machine = Machine(tmp_path)
    machine.program("java", JAVA_17)
    machine.program("df", LARGE_DISK)
    return machine


@pytest.fixture(scope="module")
def closed_address() -> Iterator[str]:
    """An address of this machine that refuses connections; its port is bound without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{probe.getsockname()[1]}"


def last_line(done: subprocess.CompletedProcess[str], lines: int = 1) -> str:
    """Return the error message, the last of ``lines`` lines that a failed start printed."""
    assert done.returncode != 0 and done.stdout == ""
    printed = done.stderr.splitlines()
    assert len(printed) == lines, done.stderr
    assert all(line.startswith("stackcast: ") for line in printed)
    return printed[-1]


def test_no_java(machine: Machine):
    (machine.bin / "java").unlink()
    line = last_line(machine.run("jobs/itch_stream.py"))
    assert "Java was not found" in line and "JAVA_HOME" in line
    assert not machine.var.exists()


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("""echo 'openjdk version "11.0.2" 2019-01-15' >&2""", "version 11"),
        ("""echo 'java version "1.8.0_392"' >&2""", "version 1"),
        ("echo 'Error: could not load libjvm' >&2; exit 1", "version unknown"),
    ],
)
def test_a_java_that_is_too_old_or_broken(machine: Machine, script: str, version: str):
    java = machine.program("java", script)
    line = last_line(machine.run("test"))
    assert "Java 17 or newer is needed" in line and f"{java} is {version}" in line


def test_java_home_without_a_java(machine: Machine):
    line = last_line(machine.run("env", JAVA_HOME="/nowhere/jdk"))
    assert "JAVA_HOME=/nowhere/jdk has no bin/java" in line


def test_java_home_takes_precedence_over_the_path(machine: Machine, tmp_path: Path):
    machine.program("java", "exit 1")
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    machine.program("java17", JAVA_17).rename(tmp_path / "jdk" / "bin" / "java")
    line = last_line(machine.run("env", JAVA_HOME=str(tmp_path / "jdk"), PYTHON="/nowhere/python"))
    assert "PYTHON=/nowhere/python" in line


def test_no_python(machine: Machine):
    machine.program("python3", "echo Python 3.9.2; exit 1")
    line = last_line(machine.run("env"))
    assert "Python 3.11, 3.12 or 3.13 was not found (python3: Python 3.9.2)" in line


def test_a_python_of_an_unsupported_version(machine: Machine):
    fake = machine.program("python-of-old", "exit 1")
    assert f"PYTHON={fake} is not a Python 3.11" in last_line(machine.run("env", PYTHON=str(fake)))


def test_a_python_without_its_venv_module(machine: Machine):
    fake = machine.program(
        "python3", '[ "$1" != -m ] || { echo no ensurepip; exit 1; }; echo Python 3.11.0'
    )
    line = last_line(machine.run("env", PYTHON=str(fake)), lines=2)
    assert "cannot create a virtual environment" in line and "python3-venv" in line
    assert (machine.var / "log" / "venv.log").read_text() == "no ensurepip\n"


def test_a_folder_that_cannot_be_created(machine: Machine):
    line = last_line(machine.run("env", STACKCAST_VAR="/proc/stackcast"))
    assert "cannot create /proc/stackcast" in line and "STACKCAST_VAR" in line


def test_too_little_disk(machine: Machine):
    machine.program("df", LARGE_DISK.replace("99999998", "20480"))
    line = last_line(machine.run("env"))
    assert f"{machine.var} has 20 MB free" in line and "STACKCAST_VAR" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "jobs/itch_stream.py"),
        (["bench"], "there is no benchmark"),
        (["bench", "nonsense"], "there is no benchmark"),
        (["bench", "../x"], "there is no benchmark"),
        (["make"], "docs p4 p4runtime packages site structure"),
        (["make", "../p4"], "docs p4 p4runtime packages site structure"),
    ],
)
def test_a_missing_or_unknown_command(machine: Machine, arguments: list[str], message: str):
    assert message in last_line(machine.run(*arguments))
    assert not machine.var.exists()


def test_help_lists_every_command_job_and_benchmark(machine: Machine):
    done = machine.run("--help")
    assert done.returncode == 0 and done.stderr == ""
    for word in ("jobs/itch_stream.py", "test", "bench NAME", "env", "STACKCAST_VAR"):
        assert word in done.stdout
    jobs = {f"jobs/{path.name}" for path in (ROOT / "jobs").glob("[!_]*.py")}
    assert set(re.findall(r"^    (jobs/\w+\.py) ", done.stdout, re.MULTILINE)) == jobs
    folder = ROOT / "benchmarks"
    benchmarks = {path.parent.name for path in folder.glob("*/__main__.py")} | {
        path.stem for path in folder.glob("*.py") if f"bench {path.stem}" in path.read_text()
    }
    _, _, listed = done.stdout.partition("bench NAME")
    assert set(re.findall(r"^    (\w+) +\w", listed, re.MULTILINE)) == benchmarks
    documents = re.findall(r"\b(?:docs/)?[\w/-]+\.md\b", done.stdout)
    assert documents and all((ROOT / name).is_file() for name in documents)


def test_another_system_than_linux(machine: Machine):
    machine.program("uname", "echo Darwin")
    done = machine.run("jobs/itch_stream.py")
    assert last_line(done) == "stackcast: Stackcast needs Linux, but this system is Darwin."
    assert done.returncode == 1 and not machine.var.exists()


@pytest.fixture
def equipped(tmp_path: Path) -> Iterator[Machine]:
    """A machine where set-up succeeds, in a folder whose name has spaces."""
    folder = tmp_path / "a b  c"
    machine = Machine(folder)
    machine.clone = folder / "my clone"
    (machine.clone / "conf").mkdir(parents=True)
    (machine.clone / "udfs" / "one").mkdir(parents=True)
    kernels = (
        "from numba import njit\n"
        "from stackcast.udfs.pool import LAYOUT\n"
        "from stackcast.udfs import one\n"
    )
    (machine.clone / "udfs" / "one" / "kernels.py").write_text(kernels)
    (machine.clone / "udfs" / "pool.py").write_text(
        "from stackcast.udfs.words import WORD\nLAYOUT = 1\n"
    )
    (machine.clone / "udfs" / "words.py").write_text("WORD = 1\n")
    (machine.clone / "udfs" / "one" / "two").mkdir()
    for name in ("spark-submit.sh", "pyproject.toml"):
        shutil.copy(ROOT / name, machine.clone)
    shutil.copytree(ROOT / "conf" / "packages", machine.clone / "conf" / "packages")
    (machine.clone / "conf" / "ivy.xml").write_text("delta-1.jar\nkafka-1.jar\n")
    (machine.home / "ivy.jar").write_text("ivy")
    machine.program("df", LARGE_DISK)
    machine.program("java", IVY)
    machine.program("python3", SYSTEM_PYTHON)
    machine.program("env-python", ENV_PYTHON).rename(machine.home / "env-python")
    yield machine
    # Otherwise the processes of a failed test would wait for ever.
    for hold in machine.home.glob("hold-*"):
        hold.unlink()


#: The steps of a first start; Ivy fetches two jars, and their classes are archived.
FIRST = ["venv |", "runtime |", "jars | runtime", "jars | runtime", "classes | jars runtime"]


@pytest.fixture
def ready(equipped: Machine) -> Machine:
    """The machine after a first start."""
    assert equipped.run("jobs/x.py").returncode == 0
    assert equipped.events() == FIRST
    return equipped


def jars(machine: Machine) -> set[str]:
    return {path.name for path in (machine.var / "env" / "pyspark" / "jars").iterdir()}


def test_an_error_in_the_settings_ends_the_start_before_spark(ready: Machine):
    arguments = "--properties-file", "my conf", "jobs/x.py", "a b"
    assert ready.run(*arguments).stdout == f"spark-submit {' '.join(arguments)}\n"
    assert (ready.home / "checks").read_text().endswith(f" {' '.join(arguments)}\n")
    (ready.home / "bad-settings").touch()
    done = ready.run(*arguments)
    assert done.returncode != 0 and done.stdout == ""


def test_a_first_start_creates_the_environment_and_runs_the_job(equipped: Machine):
    done = equipped.run("--properties-file", "my conf", "jobs/x.py", "a b")
    assert done.returncode == 0
    assert done.stdout == "spark-submit --properties-file my conf jobs/x.py a b\n"
    progress = [line.removeprefix("stackcast: ")[:5] for line in done.stderr.splitlines()]
    assert progress == ["[1/4]", "[2/4]", "[3/4]", "[4/4]", "the e"]
    assert equipped.events() == FIRST
    assert equipped.marks() == {"runtime", "jars", "classes"}
    assert jars(equipped) == {"own.jar", "ivy-2.5.3.jar", "delta-1.jar", "kafka-1.jar"}


def test_a_second_start_repeats_no_step(ready: Machine):
    before = {path: path.stat().st_mtime_ns for path in ready.var.rglob("*")}
    # It needs no free space, and no Python other than the environment's.
    ready.program("df", LARGE_DISK.replace("99999998", "0"))
    ready.program("python3", "exit 1")
    done = ready.run("env")
    assert done.returncode == 0 and done.stderr == "" and ready.events() == []
    assert {path: path.stat().st_mtime_ns for path in ready.var.rglob("*")} == before
    shell = (
        f'{done.stdout}\nprintf \'%s\\n\' "$STACKCAST_HOME" "$PYSPARK_PYTHON" "$SPARK_HOME" "$PATH"'
    )
    variables = subprocess.check_output(["bash", "-c", shell], text=True)
    env = ready.var / "env"
    assert variables.splitlines() == [
        str(ready.clone),
        f"{env}/bin/python",
        f"{env}/pyspark",
        f"{env}/bin:{ready.bin}",
    ]


@pytest.mark.parametrize(
    ("options", "environment", "address"),
    [
        ((), {}, "127.0.0.1"),
        ((), {"SPARK_LOCAL_IP": "10.0.0.7"}, "10.0.0.7"),
        (("--deploy-mode", "cluster"), {}, ""),
        (("--conf", "spark.submit.deployMode=cluster"), {}, ""),
    ],
)
def test_spark_serves_its_pages_on_loopback_unless_a_cluster_starts_the_driver(
    ready: Machine, options: tuple[str, ...], environment: dict[str, str], address: str
):
    """A driver on another machine would announce a loopback address to its executors."""
    assert ready.run(*options, "jobs/x.py", **environment).returncode == 0
    assert (ready.home / "local-ip").read_text() == f"{address}\n"
    assert "SPARK_LOCAL_IP" not in ready.run("env").stdout


def kernel_cache(machine: Machine, **environment: str) -> Path:
    done = machine.run("env", **environment)
    assert done.returncode == 0 and done.stderr == ""
    shell = f"{done.stdout}\nprintf '%s' \"$NUMBA_CACHE_DIR\""
    return Path(subprocess.check_output(["bash", "-c", shell], text=True))


def test_each_version_of_the_sources_has_its_own_kernels_and_old_ones_are_removed(ready: Machine):
    first = kernel_cache(ready)
    assert first.parent == ready.var / "numba" and first.is_dir()
    (first / "kernel.nbc").write_text("machine code")
    assert kernel_cache(ready) == first
    # A file that no kernel imports changes nothing. A module that a kernel imports does, and so
    # does one that this module imports.
    (ready.clone / "udfs" / "one" / "two" / "plans.py").write_text(
        "from stackcast.udfs.pool import LAYOUT"
    )
    (ready.clone / "udfs" / "__pycache__").mkdir()
    (ready.clone / "udfs" / "__pycache__" / "pool.cpython-312.pyc").write_text("LAYOUT = 1")
    assert kernel_cache(ready) == first
    (ready.clone / "udfs" / "pool.py").write_text(
        "from stackcast.udfs.words import WORD\nLAYOUT = 2\n"
    )
    second = kernel_cache(ready)
    assert second.parent == first.parent and second != first and second.is_dir()
    # A running job may still write to the previous folder.
    assert (first / "kernel.nbc").exists()
    days_ago = time.time() - 3 * 86_400
    os.utime(first, (days_ago, days_ago))
    (ready.clone / "udfs" / "words.py").write_text("WORD = 2\n")
    third = kernel_cache(ready)
    assert {path.name for path in first.parent.iterdir()} == {second.name, third.name}
    assert kernel_cache(ready, NUMBA_CACHE_DIR="/my/cache") == Path("/my/cache")


def test_kernels_are_compiled_once_before_the_first_stream_or_test_run(ready: Machine):
    compiled = ready.home / "kernels"
    for arguments in (["jobs/create_tables.py"], ["env"]):
        assert ready.run(*arguments).returncode == 0
    assert not compiled.exists(), "a command that runs no kernels does not wait for them"
    first = ready.run("--conf", "spark.stackcast.topic=mine", "jobs/itch_stream.py")
    assert "a minute" in first.stderr and "spark-submit" in first.stdout
    for arguments in (["jobs/itch_stream.py"], ["jobs/attribute_stream.py", "x"], ["test"]):
        again = ready.run(*arguments)
        assert again.returncode == 0 and "a minute" not in again.stderr
    assert compiled.read_text().split() == ["compiled"]


def test_a_stream_starts_although_kernels_cannot_be_compiled_in_advance(ready: Machine):
    (ready.home / "no-compiler").touch()
    done = ready.run("jobs/itch_stream.py")
    assert done.returncode == 0 and "spark-submit" in done.stdout
    assert "see the log: " in done.stderr


def test_jobs_start_although_classes_cannot_be_archived(equipped: Machine):
    (equipped.home / "no-archive").touch()
    done = equipped.run("jobs/x.py")
    assert done.returncode == 0 and done.stdout == "spark-submit jobs/x.py\n"
    assert f"see the log: {equipped.var}/log/classes.log" in done.stderr
    assert "SPARK_SUBMIT_OPTS" not in equipped.run("env").stdout
    assert equipped.events() == FIRST, "a later start does not try it again"


def test_classes_are_archived_again_for_another_java(ready: Machine):
    ready.program("java", IVY.replace("17.0.9", "21.0.1"))
    assert ready.run("jobs/x.py").returncode == 0
    assert ready.events() == FIRST[-1:]


def test_env_adds_the_archive_to_the_options_of_a_shell_and_keeps_its_settings(ready: Machine):
    shell = ready.run("env", SPARK_SUBMIT_OPTS="-Dmy=own").stdout
    show = 'printf "%s\\n" "$SPARK_SUBMIT_OPTS" "$SPARK_CONF_DIR"'
    variables = subprocess.check_output(["bash", "-c", f"{shell}\n{show}"], text=True)
    options, settings = variables.splitlines()
    assert f'"-XX:SharedArchiveFile={ready.var}/classes.jsa"' in options and "-Dmy=own" in options
    assert Path(settings).resolve() == ready.clone / "conf"
    shell = ready.run("env", SPARK_CONF_DIR="/my/conf").stdout
    assert "SPARK_CONF_DIR=/my/conf\n" in shell and "SPARK_SUBMIT_OPTS" not in shell


def test_bytecode_goes_to_var_where_the_environment_forbids_it_next_to_the_sources(ready: Machine):
    shell = ready.run("env", PYTHONDONTWRITEBYTECODE="1").stdout
    show = 'echo "$PYTHONPYCACHEPREFIX${PYTHONDONTWRITEBYTECODE:+ forbidden}"'
    printed = subprocess.check_output(["bash", "-c", f"{shell}\n{show}"], text=True)
    assert printed == f"{ready.var}/pycache\n"
    assert "PYTHONPYCACHEPREFIX" not in ready.run("env").stdout


def test_spark_loads_its_classes_from_the_archive(tmp_path: Path):
    """Uses the real archive of this environment; a JVM silently ignores one that does not fit."""
    var, loaded = Path(os.environ["STACKCAST_VAR"]), tmp_path / "loaded"
    options = f'"-XX:SharedArchiveFile={var / "classes.jsa"}" -Xlog:class+load:file={loaded}'
    settings = {"SPARK_CONF_DIR": str(var / "conf:"), "SPARK_DIST_CLASSPATH": str(ROOT / "conf")}
    subprocess.run(
        [Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit", "--version"],
        env=os.environ | settings | {"SPARK_SUBMIT_OPTS": options},
        check=True,
        capture_output=True,
    )
    line = "org.apache.spark.deploy.SparkSubmit source: shared objects file (top)\n"
    assert line in loaded.read_text()


def test_the_folder_may_be_a_relative_path_or_a_link(ready: Machine, tmp_path: Path):
    (tmp_path / "link").symlink_to(ready.var)
    (ready.home / "var").symlink_to(ready.var)
    (tmp_path / "elsewhere" / "var").mkdir(parents=True)
    for name in ("../var", "var", str(tmp_path / "link")):
        done = ready.run("jobs/x.py", STACKCAST_VAR=name, CDPATH=str(tmp_path / "elsewhere"))
        assert done.returncode == 0 and done.stderr == "" and ready.events() == []


def test_a_test_run_only_adds_the_packages_of_the_tests(ready: Machine):
    done = ready.run("test", "-x")
    assert done.returncode == 0 and done.stdout == f"pytest in {ready.clone}\n"
    assert ready.events() == ["test | classes jars runtime"]
    assert "packages" not in ready.run("test").stderr and ready.events() == []


def test_make_runs_a_module_of_the_tests_in_the_current_folder(ready: Machine):
    done = ready.run("make", "p4", "--p4c", "p4c")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"-m tests.make.p4 --p4c p4c in {ready.home}\n"


def test_a_benchmark_adds_its_packages_to_those_of_the_tests(ready: Machine):
    folder = ready.clone / "benchmarks"
    folder.mkdir()
    (folder / "speed.py").write_text("")
    (folder / "__init__.py").write_text("")
    for name, module in {"load": "__main__", "shared": "plot"}.items():
        (folder / name).mkdir()
        (folder / name / f"{module}.py").write_text("")
    assert ready.run("bench", "speed", "--fast").returncode == 0
    assert ready.events()[:2] == [
        "test | classes jars runtime",
        "bench | classes jars runtime test",
    ]
    done = ready.run("bench", "shared")
    assert last_line(done) == "stackcast: there is no benchmark 'shared'; benchmarks: speed load"
    assert done.returncode == 1
    assert "packages" not in ready.run("test").stderr and ready.events() == []


def test_a_changed_setting_of_a_tool_repeats_no_step(ready: Machine):
    path = ready.clone / "pyproject.toml"
    assert "line-length = 100" in path.read_text()
    path.write_text(path.read_text().replace("line-length = 100", "line-length = 99"))
    assert ready.run("jobs/x.py").stderr == "" and ready.events() == []


def test_pyproject_has_dependencies_before_the_settings_of_tools():
    text = (ROOT / "pyproject.toml").read_text()
    before, _, _ = text.partition("\n[tool.")
    for table in ("project", "build-system"):
        assert tomllib.loads(before)[table] == tomllib.loads(text)[table]


@pytest.mark.parametrize("changed", ["conf/packages/test.txt", "pyproject.toml"])
def test_changed_dependencies_repeat_all_steps(ready: Machine, changed: str):
    path = ready.clone / changed
    path.write_text("# changed\n" + path.read_text())
    assert ready.run("jobs/x.py").returncode == 0
    assert ready.events() == FIRST


def test_another_clone_does_not_run_the_code_of_this_one(ready: Machine):
    ready.clone = ready.clone.rename(ready.clone.with_name("moved"))
    assert ready.run("jobs/x.py").returncode == 0
    assert ready.events() == FIRST


def test_a_folder_that_another_clone_uses_is_refused(ready: Machine):
    """Its environment would be replaced under programs that run."""
    first = ready.clone
    ready.events()
    ready.clone = Path(shutil.copytree(first, first.with_name("other")))
    line = last_line(ready.run("env"))
    assert f"{ready.var} is the folder of the clone {first}" in line and "STACKCAST_VAR" in line
    assert not ready.events()


def test_a_moved_environment_is_created_again(ready: Machine):
    ready.var = ready.var.rename(ready.var.with_name("elsewhere"))
    assert ready.run("jobs/x.py").returncode == 0
    assert ready.events() == FIRST


def test_an_environment_without_its_packages_is_created_again(ready: Machine):
    shutil.rmtree(ready.var / "env" / "pyspark")
    done = ready.run("jobs/x.py")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert ready.events() == FIRST


def test_new_jars_replace_the_old_ones(ready: Machine):
    (ready.clone / "conf" / "ivy.xml").write_text("delta-2.jar\n")
    assert ready.run("jobs/x.py").returncode == 0
    assert ready.events() == ["jars | runtime", FIRST[-1]]
    assert jars(ready) == {"own.jar", "ivy-2.5.3.jar", "delta-2.jar"}


def kill_in(machine: Machine, step: str, *arguments: str) -> None:
    """Start a command, and kill all of its processes during ``step``."""
    hold = machine.home / f"hold-{step}"
    hold.touch()
    started = machine.start(*arguments)
    events = machine.home / "events"
    until(lambda: events.exists() and f"{step} |" in events.read_text())
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate(timeout=600)
    hold.unlink()
    machine.events()


@pytest.mark.parametrize(
    ("step", "repeated"),
    [
        ("venv", [*FIRST, "test | classes jars runtime"]),
        ("runtime", [*FIRST, "test | classes jars runtime"]),
        ("jars", [*FIRST[2:], "test | classes jars runtime"]),
        ("test", ["test | classes jars runtime"]),
    ],
)
def test_a_start_after_a_kill_repeats_the_interrupted_step(
    equipped: Machine, step: str, repeated: list[str]
):
    kill_in(equipped, step, "test")
    assert step not in equipped.marks()
    assert equipped.run("test").returncode == 0
    assert equipped.events() == repeated
    assert jars(equipped) == {"own.jar", "ivy-2.5.3.jar", "delta-1.jar", "kafka-1.jar"}


def test_an_interrupted_and_reverted_change_of_jars_does_not_count_as_done(ready: Machine):
    ivy = ready.clone / "conf" / "ivy.xml"
    before = ivy.read_text()
    ivy.write_text("delta-2.jar\n")
    kill_in(ready, "jars", "jobs/x.py")
    ivy.write_text(before)
    assert ready.run("jobs/x.py").returncode == 0
    assert ready.events() == FIRST[2:]
    assert jars(ready) == {"own.jar", "ivy-2.5.3.jar", "delta-1.jar", "kafka-1.jar"}


@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock")
def test_two_starts_at_once_wait_for_each_other(equipped: Machine):
    hold = equipped.home / "hold-runtime"
    hold.touch()
    first = equipped.start("jobs/first.py")
    until(lambda: (equipped.home / "events").exists() and len(equipped.events()) > 0)
    second = equipped.start("jobs/second.py")
    assert second.stderr is not None
    assert "another start is setting up" in second.stderr.readline()
    hold.unlink()
    for started, job in ((first, "first"), (second, "second")):
        out, err = started.communicate(timeout=600)
        assert started.returncode == 0 and out == f"spark-submit jobs/{job}.py\n", err
    # Neither start repeated a step of the other.
    steps = "jars", "classes"
    assert [event for event in equipped.events() if event.startswith(steps)] == FIRST[2:]


def test_each_step_checks_the_space_that_it_needs(ready: Machine):
    ready.program("df", LARGE_DISK.replace("99999998", str(600 * 1024)))
    assert ready.run("test").returncode == 0
    (ready.clone / "conf" / "ivy.xml").write_text("delta-2.jar\n")
    ready.program("df", LARGE_DISK.replace("99999998", str(400 * 1024)))
    line = last_line(ready.run("jobs/x.py"))
    assert "has 400 MB free, but the jars need 500 MB" in line


def test_no_network_for_the_packages(equipped: Machine):
    (equipped.home / "no-network").touch()
    line = last_line(equipped.run("env"), lines=3)
    assert "Python packages could not be fetched" in line and "network" in line
    assert str(equipped.var / "log" / "pip-runtime.log") in line
    # The interrupted step does not count as done.
    assert equipped.marks() == set()
    (equipped.home / "no-network").unlink()
    assert equipped.run("env").returncode == 0


def test_no_network_for_the_jars(equipped: Machine, closed_address: str):
    """Uses the real Ivy and the real list of jars."""
    java, pyspark = shutil.which("java"), importlib.util.find_spec("pyspark")
    assert java and pyspark and pyspark.submodule_search_locations, "every test run has both"
    [ivy] = Path(pyspark.submodule_search_locations[0]).glob("jars/ivy-*.jar")
    shutil.copy(ivy, equipped.home / "ivy.jar")
    shutil.copy(ROOT / "conf" / "ivy.xml", equipped.clone / "conf")
    equipped.program("java", f'exec {java} "$@"')
    host, port = closed_address.split(":")
    proxy = f"-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} "
    proxy += proxy.replace("http", "https")
    line = last_line(equipped.run("env", JDK_JAVA_OPTIONS=proxy), lines=4)
    assert "jars could not be fetched" in line and str(equipped.var / "log" / "ivy.log") in line
    assert equipped.marks() == {"runtime"}
