"""Commands of the documentation on a lab that stays up."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_shell import Background, Shell, Step, clone, parameters
from doc_steps import AFTER_A_STREAM, ATTRIBUTE, BRING_UP, NETWORKS, ON_A_STREAM, SERVICES
from documents import DOOR

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with clone(tmp_path_factory.mktemp("clone")) as path:
        yield path


@pytest.fixture(scope="module")
def shell_with_lab(folder: Path) -> Iterator[Shell]:
    """The shell of commands that use a lab. Their tests run in the order of this file."""
    shell = Shell(folder)
    yield shell
    shell.check(Step("stackcast lab down || true"))


@pytest.mark.parametrize("step", parameters(BRING_UP))
def test_a_command_that_brings_a_lab_up(step: Step, shell_with_lab: Shell):
    shell_with_lab.check(step)


@pytest.fixture(scope="module")
def lab(shell_with_lab: Shell) -> Shell:
    """The shell, once a lab is up. Where a command of `BRING_UP` fails, so do all tests with it."""
    for step in (*BRING_UP, ATTRIBUTE):
        shell_with_lab.check(step)
    settings = (shell_with_lab.folder / "var" / "lab" / "lab.conf").read_text()
    folders = r"^(spark\.stackcast\.(tables|checkpoint)\s+).*$"
    settings_of_empty = re.sub(folders, r"\1var/empty/\2", settings, flags=re.M)
    assert settings_of_empty != settings
    for name, text in (("mine", settings), ("empty", settings_of_empty)):
        (shell_with_lab.folder / "conf" / f"{name}.conf").write_text(text)
    return shell_with_lab


class TestStream:
    """Commands on a lab with a stream."""

    @pytest.fixture(scope="class")
    def services(self, lab: Shell) -> Iterator[Background]:
        with Background(lab, *SERVICES) as services:
            yield services

    @pytest.mark.parametrize("step", parameters(ON_A_STREAM))
    @pytest.mark.usefixtures("services")
    def test_a_command(self, step: Step, lab: Shell):
        lab.check(step)

    @pytest.mark.parametrize("step", parameters(SERVICES))
    def test_ctrl_c_ends_a_service(self, step: Step, services: Background):
        services.interrupt(step)


@pytest.mark.parametrize("step", parameters(AFTER_A_STREAM))
def test_a_command_after_a_stream(step: Step, lab: Shell):
    lab.check(step)


@pytest.fixture(scope="module")
def empty_folder(lab: Shell) -> Path:
    """Empty tables, which tests copy, at another path than that of conf/empty.conf."""
    tables = lab.folder / "var" / "empty" / "tables"
    shutil.rmtree(tables, ignore_errors=True)
    lab.check(Step(f"{DOOR} --properties-file conf/empty.conf jobs/create_tables.py"))
    return tables.rename(tables.with_name("copy"))


@pytest.mark.parametrize("step", parameters(NETWORKS))
def test_a_command_that_loads_a_network(step: Step, lab: Shell, empty_folder: Path):
    tables = empty_folder.with_name("tables")
    shutil.copytree(empty_folder, tables)
    try:
        lab.check(step)
    finally:
        shutil.rmtree(tables)
