"""The start of a Spark session: the address of its pages, and the removal of leftovers."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from crash_world import Program

from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.app.local_folders import MARK
from stackcast.udfs.errors import SettingsError

pytestmark = pytest.mark.integration

#: Starts a session, and prints the process of its JVM and the address of its pages.
START = """
import json, sys
from stackcast.jobs.adapters.app import session
spark = session.start("pages")
pid = spark._jvm.java.lang.ProcessHandle.current().pid()
print(json.dumps({"jvm": pid, "pages": spark.sparkContext.uiWebUrl}), flush=True)
sys.stdin.read()
"""
LISTENS = "0A"
#: Address at which executors reach the driver, in place of one of a network.
DRIVER = "127.0.0.2"


def listening(pid: int) -> set[tuple[str, int]]:
    """Returns address and port of each TCP socket on which a process listens."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    endpoints = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            address, port = words[1].split(":")
            if words[3] == LISTENS and f"socket:[{words[9]}]" in sockets:
                # Words of 32 bits, each in the order of this machine.
                packed = b"".join(
                    int(address[at : at + 8], 16).to_bytes(4, sys.byteorder)
                    for at in range(0, len(address), 8)
                )
                parsed = ip_address(packed)
                mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
                endpoints.add((str(mapped or parsed), int(port, 16)))
    return endpoints


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local directory of Spark in which an application was killed."""
    folder = tmp_path_factory.mktemp("local")
    for name in ("spark-killed", "blockmgr-killed"):
        (folder / name).mkdir()
    (folder / "spark-killed" / MARK).write_text(f"{folder / 'blockmgr-killed'}\n")
    return folder


@pytest.fixture(scope="module")
def started(local: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A session whose pages are enabled, on an environment that says nothing about addresses."""
    folder = tmp_path_factory.mktemp("session")
    properties = {
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.local.dir": str(local),
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.driver.host": DRIVER,
        "spark.driver.bindAddress": DRIVER,
    }
    options = shlex.join(word for k, v in properties.items() for word in ("--conf", f"{k}={v}"))
    (folder / "start.py").write_text(START)
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("SPARK_LOCAL_IP", raising=False)
        program = Program(
            folder, str(folder / "start.py"), PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell"
        )
    try:
        program.until('"pages"')
        line = next(line for line in program.output.splitlines() if line.startswith('{"jvm"'))
        yield json.loads(line)
    finally:
        program.kill()


def test_the_pages_of_spark_are_served_on_loopback_wherever_the_driver_listens(
    started: dict[str, Any],
) -> None:
    sockets = listening(started["jvm"])
    port = int(started["pages"].rpartition(":")[2])
    assert {address for address, number in sockets if number == port} == {"127.0.0.1"}
    addresses = {address for address, _ in sockets}
    assert DRIVER in addresses and all(ip_address(each).is_loopback for each in addresses)


def test_the_next_start_removes_what_a_killed_application_left(
    started: dict[str, Any], local: Path
) -> None:
    assert not list(local.glob("*-killed"))
    assert [path.parent.name for path in local.glob(f"spark-*/{MARK}")]


@pytest.mark.parametrize(
    ("configured", "address", "disabled", "warned"),
    [
        ({}, "", True, False),
        ({}, "127.0.0.1", True, False),
        ({"spark.ui.enabled": "false"}, "", False, False),
        ({"spark.ui.enabled": "true"}, "127.0.0.1", False, False),
        ({"spark.ui.enabled": "true"}, "", False, True),
    ],
)
def test_pages_are_off_by_default_and_a_warning_says_if_they_are_on_all_interfaces(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    configured: dict[str, str],
    address: str,
    disabled: bool,
    warned: bool,
) -> None:
    monkeypatch.setattr(session, "_local_ip", lambda: address)
    assert session._pages(configured) == ({"spark.ui.enabled": "false"} if disabled else {})
    assert ("on all interfaces" in caplog.text) == warned


@pytest.mark.parametrize(
    ("master", "host", "mode", "refused"),
    [
        ("spark://master:7077", "", "client", True),
        ("yarn", "", "client", True),
        ("yarn", "", "cluster", False),
        ("spark://master:7077", "driver.example.com", "client", False),
        ("local[*,4]", "", "client", False),
        ("local-cluster[2,1,1024]", "", "client", False),
    ],
)
def test_a_driver_that_executors_would_not_reach_is_refused(
    monkeypatch: pytest.MonkeyPatch, master: str, host: str, mode: str, refused: bool
) -> None:
    properties = {
        "spark.master": master,
        "spark.driver.host": host,
        "spark.submit.deployMode": mode,
    }
    monkeypatch.setattr(session, "_local_ip", lambda: "127.0.0.1")
    if refused:
        with pytest.raises(SettingsError) as error:
            session._check_driver_host(properties)
        assert error.value.code == "SETTINGS.NO_DRIVER_HOST"
    else:
        session._check_driver_host(properties)
    # An address that executors reach is fine.
    monkeypatch.setattr(session, "_local_ip", lambda: "10.0.0.7")
    session._check_driver_host(properties)
