"""Tests that run in a network namespace of their own, where they may create interfaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

from paths import ROOT, SUPPORT


def in_network_namespace(scenario: Callable[..., None]) -> Callable[..., None]:
    """Decorate a test that gets a temporary folder, so that it runs in a new network namespace.

    It runs in another process: a process with several threads cannot change its namespace. Other
    arguments of the test, which its parameters give, must be values of JSON.
    """
    file = Path(scenario.__code__.co_filename)
    program = (
        f"import json, sys, pathlib, {file.stem}; "
        f"{file.stem}.{scenario.__name__}.scenario("
        "pathlib.Path(sys.argv[1]), **json.loads(sys.argv[2]))"
    )

    def test(namespace: list[str], tmp_path: Path, **arguments: Any) -> None:
        process = subprocess.run(
            [*namespace, sys.executable, "-c", program, str(tmp_path), json.dumps(arguments)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{SUPPORT}:{file.parent}"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert process.returncode == 0, process.stderr[-6000:]

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    test.scenario = scenario  # type: ignore[attr-defined]
    own, (_, *others) = signature(test), signature(scenario).parameters.values()
    fixtures = [own.parameters[name] for name in ("namespace", "tmp_path")]
    test.__signature__ = own.replace(parameters=[*fixtures, *others])  # type: ignore[attr-defined]
    return test


def ip(words: str) -> None:
    """Run a command of iproute2 in the namespace of this process."""
    subprocess.run(["ip", *words.split()], check=True)


def set_sysctl(name: str, value: int) -> None:
    """Set a kernel parameter, such as ``net/ipv4/conf/all/rp_filter``, in this namespace."""
    Path("/proc/sys", name).write_text(str(value))


def add_veth(near: str, far: str, address: str = "") -> None:
    """Create two interfaces that are connected, and give the far one an address.

    The near one has no address, so that frames which a test sends there have a foreign source.
    Reverse-path filtering is off, whatever the machine's default is.
    """
    ip(f"link add {near} type veth peer name {far}")
    for name in (near, far):
        ip(f"link set {name} addrgenmode none up")
    for name in ("all", far):
        set_sysctl(f"net/ipv4/conf/{name}/rp_filter", 0)
    if address:
        ip(f"address add {address} dev {far}")
