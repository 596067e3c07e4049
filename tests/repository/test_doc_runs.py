"""Commands of the documentation run as a reader pastes them, and print what the document shows.

Each command is a test of its own. Commands of one group share a folder like a fresh clone, a
network namespace or a lab that stays up, and run in the order of their list. A command that needs
an earlier one runs it first; if the earlier one failed, the test names it.

This file runs the commands on files and interfaces, test_doc_lab.py the commands on a lab, and
test_doc_states.py the commands on replicated states, and variants of the main jobs. `OTHER_TESTS`
lists commands that other tests run, `NOT_RUN` commands that no test can run, with the reason. A
command that is in none of the lists fails `test_each_command_is_run_or_has_a_reason`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import certificates
import pytest
from doc_shell import Background, Shell, Step, clone, parameters
from doc_steps import (
    FILES,
    INTERFACES,
    LAB,
    MINE,
    ONE_SWITCH,
    RECEIVERS,
    SLOW_FILES,
    STEPS,
    SWITCH_RUN,
    TSHARK,
)
from documents import DOOR, commands
from paths import ROOT

pytestmark = pytest.mark.integration

EMBEDDED = "tests/lab/test_embedded.py"
WHEEL = "tests/repository/test_wheel.py"
SUBMIT = 'spark-submit --packages "$(stackcast jobs packages)" "$(stackcast jobs path itch_stream)"'
#: Commands that other tests run without a change.
OTHER_TESTS = {
    f"{DOOR} jobs/itch_stream.py": EMBEDDED,
    f"{DOOR} jobs/console.py --demo": EMBEDDED,
    f"{DOOR} --conf spark.stackcast.match=network jobs/itch_stream.py": EMBEDDED,
    f"{DOOR} jobs/attribute_stream.py": EMBEDDED,
    f"{DOOR} examples/mobility/mobility_tracking.py": "tests/mobility/test_mobility_command.py",
    'eval "$(./spark-submit.sh env)"': "tests/repository/test_tutorial.py",
    "ruff check && ruff format --check && mypy && lint-imports": (
        "tests/repository/test_conventions.py"
    ),
    f"{DOOR} make docs": "tests/repository/test_docs.py",
    f"{DOOR} make site": "tests/repository/test_site.py",
    "stackcast frames send hop:2 --tunnel 127.0.0.1:5001/127.0.0.1:5002": (
        "tests/switch/test_switch_command.py"
    ),
    "stackcast lab fetch": WHEEL,
    SUBMIT: WHEEL,
    f"{MINE} jobs/retune_trees.py --window 1d --max-rules 40 --max-changed-rules 500 --wait 120": (
        "tests/retuning/test_retune.py"
    ),
    f"{MINE} jobs/retune_trees.py --window 1h --every 15m --wait 120": (
        "tests/retuning/test_retune_service.py"
    ),
}
CLUSTER = "tests/cluster/test_standalone_cluster.py runs it with names of this machine"
MACHINE = "changes accounts, services or rights of the machine"
BENCHMARK = "measures for minutes; tests/benchmarks runs its parts"
BMV2 = "needs BMv2; tests/lab/test_several_by_hand.py runs it on our software switch"
TESTS = "starts these tests"
#: Patterns of commands that no test runs, and the reason.
NOT_RUN = {
    r".* spark\.sql\.streaming\.streamingQueryListeners=.*": "it needs a class of the reader",
    r"sudo simple_switch_grpc .*": BMV2,
    r"for pair in .*": BMV2,
    r".* spark\.stackcast\.tables=var/three .*": BMV2,
    r"stackcast frames send .* --interface (feed1|h1) .*": BMV2,
    r"sudo ethtool .*": "ethtool may be missing, and a network namespace has no offloads",
    r"sudo apt-get install .*": MACHINE,
    r"sudo (chgrp|setcap) .*|useradd .*|install .*|systemctl .*|cp conf/systemd.*": MACHINE,
    r"python3 -m venv /opt/.*|for list in build runtime.*|/opt/stackcast/bin/.*": MACHINE,
    r"(STACKCAST_PLACE=rack1 )?spark-class .*|spark-submit .*|java -cp .*": CLUSTER,
    r"\./spark-submit\.sh bench .*": BENCHMARK,
    r"\./spark-submit\.sh test( .*)?": TESTS,
    r"\./spark-submit\.sh make p4 .*": "needs p4c; tests/p4_program checks its products",
    r"\./spark-submit\.sh make packages .*": "asks the package registry for every package",
    r"\./spark-submit\.sh make audit.*": "asks a database; tests/repository/test_audit.py runs it",
    r"stackcast states switch-controller .*": (
        "tests/support/state_hosts.py starts one for its switches"
    ),
    r"stackcast states (controller|middleware) .* --tls-ca .*": (
        "needs certificates; tests/states/test_state_tls.py makes some"
    ),
    r"cp dist/.*": "needs the wheel; " + CLUSTER,
    r"python3 -m venv s3 .*": "installs a package that only `test --s3` needs",
    r"stackcast itch publish FEED\.pcapng .*": (
        "needs a capture; tests/lab/test_broker.py publishes one"
    ),
    r"stackcast lab feed .*": "needs switches that match; tests/network_match has them",
}
#: Commands that README's table shortens, with the full command of another document.
ABBREVIATIONS = {
    "stackcast filters check": "stackcast filters check E",
    "stackcast rules add": 'stackcast rules add h3 "stock == GOOGL and shares >= 500" --id mine',
    f"{MINE} jobs/itch_stream.py": f"{LAB} jobs/itch_stream.py",
}


def test_each_command_is_run_or_has_a_reason():
    """The lists have the commands of the documents, no others, and no reason is left over."""
    shown = {command.line for command in commands()}
    tutorial = {command.line for command in commands() if command.document == "tutorials/lab.md"}
    run = {step.line for step in STEPS}
    assert run - shown == set(), "no document shows it"
    for line in shown - run - tutorial - OTHER_TESTS.keys():
        full = ABBREVIATIONS.get(line, line)
        reasons = [why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, full, re.S)]
        assert reasons or full in run | tutorial | OTHER_TESTS.keys(), line
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, line, re.S) for line in shown), pattern
    assert ABBREVIATIONS.keys() | OTHER_TESTS.keys() <= shown
    for file in OTHER_TESTS.values():
        assert (ROOT / file).is_file()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with clone(tmp_path_factory.mktemp("clone")) as path:
        yield path


@pytest.fixture(scope="module")
def shell(folder: Path) -> Shell:
    return Shell(folder, in_process=True)


@pytest.mark.parametrize("step", parameters(FILES))
def test_a_command_on_files(step: Step, shell: Shell):
    shell.check(step)


@pytest.mark.skipif(not shutil.which("tshark"), reason="needs tshark: apt-get install tshark")
def test_wireshark_shows_the_frames_that_a_command_wrote(shell: Shell):
    shell.check(TSHARK)


@pytest.mark.long
@pytest.mark.parametrize("step", parameters(SLOW_FILES))
def test_a_slow_command_on_files(step: Step, shell: Shell):
    shell.check(step)


#: Sends packets for all addresses to the loopback interface, and then waits.
SET_UP_NETWORK = "ip link set lo up && ip route add default dev lo && echo up && exec sleep 3600"


@pytest.fixture(scope="module")
def shell_in_namespace(
    folder: Path, namespace: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    """A shell in a network namespace, which a waiting process keeps alive."""
    files = certificates.make(tmp_path_factory.mktemp("tls"))
    shutil.copy(files / "ca.pem", folder)
    for suffix in ("pem", "key"):
        shutil.copy(files / f"server.{suffix}", folder / f"switch.{suffix}")
    owner = subprocess.Popen([*namespace, "sh", "-c", SET_UP_NETWORK], stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None and owner.stdout.readline() == b"up\n"
        users = [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]
        yield Shell(folder, ["nsenter", *users, "-n", "-t", str(owner.pid)])
    finally:
        owner.kill()
        owner.communicate()


@pytest.mark.parametrize(
    "step", [*parameters(INTERFACES), *parameters(RECEIVERS, pytest.mark.long)]
)
def test_a_command_on_interfaces(step: Step, shell_in_namespace: Shell):
    shell_in_namespace.check(step)


@pytest.mark.long
class TestOneSwitch:
    """Commands on the switch of the tutorial docs/tutorials/one-switch.md."""

    @pytest.fixture(scope="class")
    def switch(self, shell_in_namespace: Shell) -> Iterator[Background]:
        with Background(shell_in_namespace, SWITCH_RUN) as running:
            yield running

    @pytest.mark.parametrize("step", parameters(ONE_SWITCH))
    @pytest.mark.usefixtures("switch")
    def test_a_command(self, step: Step, shell_in_namespace: Shell):
        shell_in_namespace.check(step)
