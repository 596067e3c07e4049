"""The generated modules of P4Runtime's messages match their definitions and are the only ones."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.internal import api_implementation
from paths import ROOT

from stackcast.schemas.p4runtime import p4info_pb2, p4runtime_pb2
from tests.make.p4runtime import FOLDER, generate

pytestmark = pytest.mark.integration


def test_the_modules_are_those_that_the_definitions_generate() -> None:
    modules = generate()
    assert {path.name for path in FOLDER.glob("*_pb2*.py")} == set(modules)
    for name, text in modules.items():
        assert (FOLDER / name).read_text() == text, f"run ./spark-submit.sh make p4runtime: {name}"


def test_messages_are_built_and_parsed_in_c() -> None:
    assert api_implementation.Type() == "upb"


def test_the_package_p4_is_not_installed() -> None:
    """It would be a second copy of the messages, for another version of protobuf."""
    done = subprocess.run(
        [sys.executable, "-c", "import p4.v1.p4runtime_pb2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ModuleNotFoundError" in done.stderr


def test_the_shell_uses_our_messages_in_one_descriptor_pool() -> None:
    code = """
from stackcast.jobs.adapters.switches.shell import register_messages
register_messages()
import p4runtime_sh.shell
from p4.v1 import p4runtime_pb2
from p4.config.v1 import p4info_pb2
import stackcast.schemas.p4runtime.p4runtime_pb2, stackcast.schemas.p4runtime.p4info_pb2
assert p4runtime_pb2 is p4runtime_sh.p4runtime.p4runtime_pb2
assert p4runtime_pb2 is stackcast.schemas.p4runtime.p4runtime_pb2
assert p4info_pb2 is p4runtime_sh.shell.p4info_pb2 is stackcast.schemas.p4runtime.p4info_pb2
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    pool = descriptor_pool.Default()
    for module in (p4runtime_pb2, p4info_pb2):
        assert module.DESCRIPTOR.pool is pool


def test_no_requirement_of_the_package_is_p4runtime_shell_which_pins_an_old_protobuf() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    names = [each.split()[0] for listed in (project["dependencies"], *extras) for each in listed]
    assert "protobuf" in names and "ipython" in project["optional-dependencies"]["shell"]
    assert not [name for name in names if name.startswith("p4runtime")]
