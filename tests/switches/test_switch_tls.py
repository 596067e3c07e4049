"""Switches met over TLS: each by credentials of its own, and clear words where they do not fit."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import certificates
import pytest
from entry_tables import PIPELINE, SOME
from fault_server import FaultServer
from paths import COMPILED_P4
from rollout_world import World

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.switches.results import SwitchTarget
from stackcast.jobs.adapters.switches.session import SwitchSession
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.integration

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.make(tmp_path_factory.mktemp("tls"), "s1", "s2")


@pytest.fixture(scope="module")
def secure(pems: Path) -> Iterator[FaultServer]:
    key, certificate, ca = (
        (pems / name).read_bytes() for name in ("server.key", "server.pem", "ca.pem")
    )
    server = FaultServer(["s1", "s2"], (key, certificate, ca))
    yield server
    server.stop()


def test_each_switch_is_met_with_credentials_of_its_own(
    secure: FaultServer, pems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = Credentials(*(f"{pems}/{name}" for name in ("ca.pem", "{switch}.pem", "{switch}.key")))
    for name, device in secure.devices.items():
        target = SwitchTarget(name, secure.address, device.device_id)
        with SwitchSession(target, shown) as session:
            wanted = [dataclasses.replace(each, switch=name) for each in SOME]
            assert session.refresh(wanted, PIPELINE).in_sync
            assert not session.compare(wanted, PIPELINE)
    assert "BEGIN" not in caplog.text and ".key" not in repr(shown)


@pytest.mark.parametrize(
    ("ca", "certificate", "key", "code", "words"),
    [
        ("other.pem", "s1.pem", "s1.key", "BAD_TLS", "rejected"),
        ("", "s1.pem", "s1.key", "BAD_TLS", "rejected"),
        ("ca.pem", "s1.pem", "s2.key", "BAD_TLS", "belongs to"),
        ("ca.pem", "s1.pem", "", "BAD_TLS", "set both"),
        ("ca.pem", "", "s1.key", "BAD_TLS", "set both"),
        ("names", "s1.pem", "s1.key", "BAD_TLS", "contains no certificate"),
        ("ca.pem", "s1.pem", "names", "BAD_TLS", "not contain a private key"),
        ("ca.pem", "server.pem", "locked.key", "BAD_TLS", "without password"),
        ("ca.pem", "s1.pem", "gone.key", "BAD_TLS", "No such file"),
        ("ca.pem", "expired.pem", "expired.key", "BAD_TLS", "certificate has expired"),
        ("ca.pem", "", "", "UNREACHABLE", ""),
        ("ca.pem", "stranger.pem", "stranger.key", "UNREACHABLE", ""),
        ("", "", "", "UNREACHABLE", ""),
    ],
)
def test_credentials_that_do_not_fit_are_refused_and_no_key_is_told(
    secure: FaultServer,
    pems: Path,
    caplog: pytest.LogCaptureFixture,
    ca: str,
    certificate: str,
    key: str,
    code: str,
    words: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = Credentials(*(name and f"{pems}/{name}" for name in (ca, certificate, key)))
    with SwitchSession(SwitchTarget("s1", secure.address, 1), shown) as session:
        (error,) = session.refresh(SOME, PIPELINE).errors
    assert error.startswith(f"SWITCH.{code}: ") and words in error
    for name in ("s1.key", "s2.key", "stranger.key"):
        for line in (pems / name).read_text().splitlines()[1:-1]:
            assert line not in error and line not in caplog.text


def test_a_refresher_fills_and_follows_a_network_that_asks_for_certificates(pems: Path) -> None:
    key, certificate, ca = (
        (pems / name).read_bytes() for name in ("server.key", "server.pem", "ca.pem")
    )
    server = FaultServer(NETWORK.switches, (key, certificate, ca))
    tables = World().tables
    rows = network_to_rows(NETWORK, dict.fromkeys(NETWORK.switches, server.address))
    for row in rows["switches"]:
        row["device_id"] = server.devices[row["switch"]].device_id
    for name, content in rows.items():
        tables.overwrite(name, content)

    def refresher(client: str) -> Refresher:
        files = {"tls_ca": "ca.pem", "tls_certificate": f"{client}.pem", "tls_key": f"{client}.key"}
        shown = {name: str(pems / file) for name, file in files.items()}
        return Refresher(tables, Settings(p4_folder=str(COMPILED_P4), wait_seconds=1, **shown))

    try:
        # One whom the switches' authority does not know, and one whose time is over.
        for client, code in (("stranger", "UNREACHABLE"), ("expired", "BAD_TLS")):
            with refresher(client) as nobody, pytest.raises(SwitchError, match=code):
                nobody.once()
        assert not any(device.held for device in server.devices.values())
        with refresher("client") as job:
            assert job.once() == {}
            # Trees that are added are on all switches then.
            trees = [tree_to_row(tree) for tree in broadcast_trees(NETWORK)]
            before = {name: len(device.held) for name, device in server.devices.items()}
            tables.overwrite("virtual_trees", trees)
            assert job.once() == {}
            after = {name: len(device.held) for name, device in server.devices.items()}
            assert min(before.values()) > 0 and sum(after.values()) > sum(before.values())
    finally:
        server.stop()


def test_a_name_that_would_lead_out_of_its_folder_is_no_part_of_a_path() -> None:
    shown = Credentials("ca.pem", "{switch}.pem", "{switch}.key")
    assert shown.for_switch("s1") == Credentials("ca.pem", "s1.pem", "s1.key")
    for name in ("../s1", "a/b", "."):
        with pytest.raises(SwitchError, match="BAD_TLS"):
            shown.for_switch(name)
    assert Credentials("ca.pem").for_switch("../s1") == Credentials("ca.pem")
