"""Switches met over TLS: each by credentials of its own, and clear words where they do not fit."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import certificates
import pytest
from fault_server import FaultServer
from session_cases import PIPELINE, SOME

from jobs.adapters.switches.credentials import Credentials
from jobs.adapters.switches.session import SwitchSession, SwitchTarget
from udfs.errors import SwitchError

pytestmark = pytest.mark.server


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
            assert session.refresh(wanted, PIPELINE).in_step
            assert not session.compare(wanted, PIPELINE)
    assert "BEGIN" not in caplog.text and ".key" not in repr(shown)


@pytest.mark.parametrize(
    ("ca", "certificate", "key", "code", "words"),
    [
        ("other.pem", "s1.pem", "s1.key", "BAD_TLS", "refused"),
        ("", "s1.pem", "s1.key", "BAD_TLS", "refused"),
        ("ca.pem", "s1.pem", "s2.key", "BAD_TLS", "belongs to"),
        ("ca.pem", "s1.pem", "", "BAD_TLS", "set both"),
        ("ca.pem", "", "s1.key", "BAD_TLS", "set both"),
        ("names", "s1.pem", "s1.key", "BAD_TLS", "holds no certificate"),
        ("ca.pem", "s1.pem", "names", "BAD_TLS", "no private key"),
        ("ca.pem", "server.pem", "locked.key", "BAD_TLS", "without password"),
        ("ca.pem", "s1.pem", "gone.key", "BAD_TLS", "No such file"),
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


def test_a_name_that_would_lead_out_of_its_folder_is_no_part_of_a_path() -> None:
    shown = Credentials("ca.pem", "{switch}.pem", "{switch}.key")
    assert shown.for_switch("s1") == Credentials("ca.pem", "s1.pem", "s1.key")
    for name in ("../s1", "a/b", "."):
        with pytest.raises(SwitchError, match="BAD_TLS"):
            shown.for_switch(name)
    assert Credentials("ca.pem").for_switch("../s1") == Credentials("ca.pem")
