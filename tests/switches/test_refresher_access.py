"""The whole refresher as one of several controllers of switches that ask for certificates: under a
role of its own, which only its certificate may take. Real Delta, real P4Runtime, the job as its own
process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import certificates
import pytest
from crash_world import Program
from paths import COMPILED_P4, ROOT
from waiting import until

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.switches.credentials import Credentials
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.adapters.switches.p4runtime import SwitchConnection
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.switch.bmv2.simple_switch import SimpleSwitch
from stackcast.switch.p4runtime.device import Device
from stackcast.switch.p4runtime.endpoint import ServerCredentials
from stackcast.switch.p4runtime.roles import Roles
from stackcast.switch.p4runtime.server import P4RuntimeServer
from stackcast.udfs.errors import SwitchError
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.network.virtual_tree import VirtualTree
from stackcast.udfs.switches.stack_entries import switch_entries
from stackcast.udfs.trees.broadcast import broadcast_trees

pytestmark = pytest.mark.long

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)
(BROADCAST,) = broadcast_trees(NETWORK)
SMALL = VirtualTree(900, frozenset({("h1", NETWORK.hosts["h1"].switch)}), "test", "active")
ROLE = "refresher"


@dataclass
class Deployment:
    """Tables, certificates and switches: ``client`` may take the role, ``operator`` the default
    one, ``reader`` none."""

    tables: Tables
    pems: Path
    address: str

    def shown(self, client: str, role: str = "") -> Credentials:
        files = (str(self.pems / name) for name in ("ca.pem", f"{client}.pem", f"{client}.key"))
        return Credentials(*files, role=role)

    def refresher(self, client: str, role: str = "") -> Refresher:
        shown = self.shown(client)
        return Refresher(
            self.tables,
            Settings(
                tables=self.tables.location,
                p4_folder=str(COMPILED_P4),
                wait_seconds=1,
                tls_ca=shown.ca,
                tls_certificate=shown.certificate,
                tls_key=shown.key,
                role=role,
            ),
        )

    def job(self, folder: Path, client: str, role: str, *arguments: str) -> Program:
        shown = self.shown(client)
        conf = {
            "spark.master": "local[1]",
            "spark.driver.memory": "1g",
            "spark.sql.warehouse.dir": folder / "warehouse",
            "spark.stackcast.tables": self.tables.location,
            "spark.stackcast.p4runtime.tls.ca": shown.ca,
            "spark.stackcast.p4runtime.tls.certificate": shown.certificate,
            "spark.stackcast.p4runtime.tls.key": shown.key,
            "spark.stackcast.p4runtime.role": role,
        }
        options = " ".join(f"--conf {name}={value}" for name, value in conf.items())
        return Program(
            folder,
            str(ROOT / "jobs/refresh_switches.py"),
            *arguments,
            PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell",
        )

    def in_sync(self, *trees: VirtualTree) -> bool:
        """Whether the switches hold that, by what one that may only read finds."""
        wanted = switch_entries(NETWORK, trees)
        for name, switch in NETWORK.switches.items():
            shown = self.shown("reader")
            with SwitchConnection.connect(self.address, switch.device_id, 0, shown) as connection:
                try:
                    held = connection.read_entries(name)
                except SwitchError:
                    return False  # it runs no program so far
            if held != {entry for entry in wanted if entry.switch == name}:
                return False
        return True


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates.make(tmp_path_factory.mktemp("tls"), "operator", "reader")


@pytest.fixture
def deployment(tables: Tables, pems: Path) -> Iterator[Deployment]:
    roles = Roles({ROLE: ["client"], "": ["operator"]})
    devices = [
        Device(name, switch.device_id, SimpleSwitch(), roles=roles)
        for name, switch in NETWORK.switches.items()
    ]
    tls = ServerCredentials(pems / "server.pem", pems / "server.key", pems / "ca.pem")
    server = P4RuntimeServer(devices, tls=tls).start()
    for name, rows in network_to_rows(
        NETWORK, dict.fromkeys(NETWORK.switches, server.address)
    ).items():
        tables.append(name, rows)
    tables.append("virtual_trees", [tree_to_row(BROADCAST)])
    yield Deployment(tables, pems, server.address)
    server.stop()


def test_a_refresher_fills_and_follows_under_a_role_that_is_its_certificates_alone(
    deployment: Deployment, tmp_path: Path
) -> None:
    job = deployment.job(tmp_path, "client", ROLE)
    try:
        until(lambda: deployment.in_sync(BROADCAST), job)
        # Another controller is primary under the default role, beside it, and keeps it from
        # nothing.
        first = next(iter(NETWORK.switches.values()))
        with SwitchConnection.connect(
            deployment.address, first.device_id, 1 << 60, deployment.shown("operator")
        ) as other:
            assert other.is_primary
            deployment.tables.append("virtual_trees", [tree_to_row(SMALL)])
            until(lambda: deployment.in_sync(BROADCAST, SMALL), job)
            assert other.is_primary
        job.process.send_signal(signal.SIGTERM)
        assert job.end() == 0, job.output[-4000:]
    finally:
        job.kill()
    # Who only reads sees that nothing is left to do, and may do nothing.
    with deployment.refresher("reader") as reader:
        assert not any(reader.compare().values())
    refused = [
        ("reader", "", "NOT_ALLOWED", "may not use the default role"),
        ("client", "", "NOT_ALLOWED", "may not use the default role"),
        ("reader", ROLE, "NO_ROLE", "may not use"),
        ("operator", ROLE, "NO_ROLE", "may not use"),
        ("expired", ROLE, "BAD_TLS", "certificate has expired"),
        ("stranger", ROLE, "UNREACHABLE", "none of 4 switches answers"),
    ]
    for client, role, code, words in refused:
        with deployment.refresher(client, role) as nobody, pytest.raises(SwitchError) as told:
            nobody.once()
        assert (told.value.what, words in told.value.message) == (code, True), told.value
    assert deployment.in_sync(BROADCAST, SMALL)
