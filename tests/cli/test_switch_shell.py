"""``stackcast switch shell`` opens p4runtime-shell on a switch of the tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from entry_tables import PIPELINE, SOME, host_port
from fault_server import FaultServer, FaultyDevice
from paths import ROOT

from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.jobs.adapters.switches.shell import SHELL, open_shell
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import SwitchError

pytestmark = pytest.mark.integration

READ = 'table_entry["egress.host_port"].read(lambda entry: print("entry", entry))\n'
DELETE = """
entry = table_entry["egress.host_port"](action="egress.take_stack_off")
entry.match["port"] = "1"
entry.delete()
"""


@pytest.fixture
def server() -> Iterator[FaultServer]:
    server = FaultServer(["s1"])
    yield server
    server.stop()


@pytest.fixture
def device(server: FaultServer) -> FaultyDevice:
    """A switch with entries, which no client is connected to."""
    with SwitchSession(SwitchTarget("s1", server.address, 1)) as session:
        assert session.refresh(SOME, PIPELINE).in_sync
    return server.devices["s1"]


@pytest.fixture
def properties(tables: Tables, server: FaultServer, tmp_path: Path) -> Path:
    switch = {"switch": "s1", "device_id": 1, "address": server.address, "pipeline": PIPELINE.name}
    tables.append("switches", [switch])
    path = tmp_path / "shell.conf"
    path.write_text(f"spark.stackcast.tables {tables.location}\n")
    return path


def run_shell(properties: Path, commands: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stackcast.cli.main", "switch", "shell", *arguments]
    return subprocess.run(
        [*command, "--properties-file", str(properties)],
        cwd=ROOT,
        input=f"{commands}exit\n",
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_shell_reads_a_switch_and_by_default_cannot_write(
    properties: Path, device: FaultyDevice
) -> None:
    # Any client that requests mastership would get it.
    device.highest = 0
    done = run_shell(properties, READ + DELETE, "s1")
    assert done.returncode == 0, done.stderr
    expected = [entry for entry in SOME if entry.table == "egress.host_port"]
    assert done.stdout.count("entry ") == len(expected)
    assert "PERMISSION_DENIED" in done.stdout
    # The error is that of the switch, without the calls that led to it.
    assert "Traceback" not in done.stdout and "p4runtime.py" not in done.stdout
    assert device.entries() == set(SOME)


@pytest.mark.long
def test_with_an_election_id_the_shell_writes(properties: Path, device: FaultyDevice) -> None:
    done = run_shell(properties, DELETE, "s1", "--election-id", str(1 << 70))
    assert done.returncode == 0, done.stderr
    assert device.entries() == set(SOME) - {host_port(1)}


@pytest.mark.long
def test_a_switch_that_runs_no_program_or_does_not_answer_is_one_error(
    properties: Path, server: FaultServer
) -> None:
    done = run_shell(properties, "", "s1")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("SWITCH.READ_FAILED: switch 's1' at ")
    assert "runs no program: set its pipeline" in done.stderr
    server.stop()
    done = run_shell(properties, "", "s1")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("SWITCH.UNREACHABLE: switch 's1' at ")


@pytest.mark.parametrize(
    ("module", "package"), [("p4runtime_sh", f"--no-deps {SHELL}"), ("IPython", "ipython")]
)
def test_the_error_for_a_missing_package_contains_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("p4runtime_sh")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SwitchError) as error:
        open_shell("s1", "127.0.0.1:1", 1, Credentials())
    assert error.value.code == "SWITCH.NO_SHELL"
    assert error.value.message.endswith(f"{sys.executable} -m pip install {package}")


def test_an_unknown_switch_is_an_error_with_the_most_similar_name(properties: Path) -> None:
    done = run_shell(properties, "", "s11")
    assert done.returncode == 2
    assert "SWITCH.UNKNOWN_SWITCH" in done.stderr and "did you mean 's1'?" in done.stderr
