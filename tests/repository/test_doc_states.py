"""Commands of the documentation on replicated states, and variants of the main jobs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from doc_shell import Background, Shell, Step, clone, parameters
from doc_steps import STATE_CONTROLLER_JOB, STATE_SERVICES, STATES, STATES_IN_SPARK, VARIANTS
from state_hosts import StateHosts, endpoint, state_hosts

from stackcast.lab.traffic.publisher import ensure_topic
from stackcast.lab.up.broker import Broker

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, empty_tables: Path) -> Iterator[Path]:
    """A folder like a clone. The Spark of the tests starts before the environment changes."""
    with clone(tmp_path_factory.mktemp("clone")) as path:
        yield path


class TestStates:
    """Commands on a switch that replicates states, and on its hosts."""

    @pytest.fixture(scope="class")
    def hosts(self) -> Iterator[StateHosts]:
        with state_hosts(2, started=False) as hosts:
            yield hosts

    @pytest.fixture(scope="class")
    def values(self, hosts: StateHosts, broker: Broker) -> dict[str, str]:
        """Placeholders of the commands, and their values where all hosts are one machine."""
        middleware = endpoint(hosts.listen[2])
        return {
            "--address 10.0.0.1": f"--address 10.0.0.1 --link {link(hosts, 1)} "
            f"--listen {endpoint(hosts.listen[1])} --topics pasted",
            "kafka:9092": broker.bootstrap_servers,
            "--address 10.0.0.2": (
                f"--address 10.0.0.2 --link {link(hosts, 2)} --listen {middleware}"
            ),
            "10.0.0.1:65430": endpoint(hosts.listen[1]),
            "--name": f"--middleware {middleware} --name",
            "conf/mine.conf": "conf/states.conf",
            " ... ": " --properties-file conf/states.conf ",
            "sales.prices": "$PWD/var/prices",
        }

    @pytest.fixture(scope="class")
    def shell(self, folder: Path) -> Shell:
        return Shell(folder)

    @pytest.fixture(scope="class")
    def controller(self, shell: Shell, values: dict[str, str]) -> Iterator[Background]:
        with Background(shell, STATE_SERVICES[0].with_values(values)) as controller:
            yield controller

    @pytest.fixture(scope="class")
    def middleware(
        self, shell: Shell, values: dict[str, str], controller: Background
    ) -> Iterator[Background]:
        with Background(shell, STATE_SERVICES[1].with_values(values)) as middleware:
            yield middleware

    @pytest.mark.parametrize("step", parameters(STATES))
    @pytest.mark.usefixtures("middleware")
    def test_a_command(self, step: Step, shell: Shell, values: dict[str, str]):
        shell.check(step.with_values(values))

    def test_ctrl_c_ends_the_controller(self, controller: Background):
        controller.interrupt(STATE_SERVICES[0])

    @pytest.fixture(scope="class")
    def controller_job(
        self,
        shell: Shell,
        hosts: StateHosts,
        broker: Broker,
        empty_tables: Path,
        values: dict[str, str],
        controller: Background,
        middleware: Background,
    ) -> Iterator[Background]:
        """The job that takes the place of the controller while the middleware runs."""
        controller.end()
        ensure_topic(broker.bootstrap_servers, "scanner.reports", 1)
        shutil.copytree(empty_tables, shell.folder / "var" / "states" / "tables")
        feed = {"delta.enableChangeDataFeed": "true"}
        prices = pa.table({"city": ["turin"], "price": [5]})
        write_deltalake(shell.folder / "var" / "prices", prices, configuration=feed)
        (shell.folder / "conf" / "states.conf").write_text(
            f"spark.stackcast.kafka.bootstrap.servers {broker.bootstrap_servers}\n"
            "spark.stackcast.tables var/states/tables\n"
            "spark.stackcast.states.checkpoint var/states/checkpoint\n"
            "spark.stackcast.states.topics pasted\n"
            "spark.stackcast.states.address 10.0.0.1\n"
            f"spark.stackcast.states.link {link(hosts, 1)}\n"
            f"spark.stackcast.states.listen {endpoint(hosts.listen[1])}\n"
            f"spark.stackcast.states.middleware {endpoint(hosts.listen[2])}\n"
        )
        with Background(shell, STATE_CONTROLLER_JOB.with_values(values)) as job:
            yield job

    @pytest.mark.parametrize("step", parameters(STATES_IN_SPARK))
    @pytest.mark.usefixtures("controller_job")
    def test_a_job(self, step: Step, shell: Shell, values: dict[str, str]):
        shell.check(step.with_values(values))

    def test_ctrl_c_ends_the_controller_job(self, controller_job: Background):
        controller_job.interrupt(STATE_CONTROLLER_JOB)

    @pytest.mark.usefixtures("controller_job")
    def test_ctrl_c_ends_the_middleware(self, middleware: Background):
        middleware.interrupt(STATE_SERVICES[1])


def link(hosts: StateHosts, port: int) -> str:
    return f"udp:{endpoint(hosts.far[port])}/{endpoint(hosts.near[port])}"


@pytest.mark.parametrize("step", parameters(VARIANTS))
def test_a_variant_of_a_main_job(step: Step, folder: Path):
    Shell(folder).check(step)
