"""States by the console command: each part a process of its own, over a switch and a broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from state_hosts import StateHosts, endpoint, state_hosts

from stackcast.lab.up.broker import Broker

pytestmark = pytest.mark.integration

WAIT_S = 600


def command(*given: str) -> list[str]:
    return [sys.executable, "-m", "stackcast.cli.main", "states", *given]


@contextmanager
def part(hosts: StateHosts, port: int, what: str, *given: str) -> Iterator[Any]:
    """A controller or middleware at a port of the switch, once it listens."""
    link = f"udp:{endpoint(hosts.far[port])}/{endpoint(hosts.near[port])}"
    listen = endpoint(hosts.listen[port])
    called = command(what, "--address", f"10.0.0.{port}", "--link", link, "--listen", listen)
    with running([*called, *given]) as process:
        assert json.loads(process.stdout.readline()) == {"listen": listen}
        yield process


@contextmanager
def running(called: list[str]) -> Iterator[Any]:
    """A process that is killed at the end, or after so long that what reads from it ends."""
    with subprocess.Popen(called, stdout=subprocess.PIPE, text=True) as process:
        watch = threading.Timer(WAIT_S, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()


def end(process: Any) -> str:
    """What a process says last when it is told to end."""
    process.send_signal(signal.SIGTERM)
    said = process.stdout.read()
    assert process.wait(WAIT_S) == 0
    return said


def publish(hosts: StateHosts, port: int, name: str, lines: str) -> None:
    at = endpoint(hosts.listen[port])
    subprocess.run(
        command("publish", "rooms", "--name", name, "--middleware", at),
        input=lines,
        text=True,
        timeout=WAIT_S,
        check=True,
    )


@contextmanager
def subscribed(hosts: StateHosts, port: int, name: str) -> Iterator[Iterator[tuple[str, str]]]:
    """Publisher and data of each update as a program prints it."""
    at = endpoint(hosts.listen[port])
    with running(command("subscribe", "rooms", "--name", name, "--middleware", at)) as process:
        lines = (json.loads(line) for line in process.stdout)
        yield ((line["publisher"], line["data"]) for line in lines)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


@pytest.mark.long
def test_a_state_outlives_its_controller_by_what_is_in_kafka(broker: Broker) -> None:
    stored = ("--topics", "outlives", "--bootstrap-servers", broker.bootstrap_servers)
    with state_hosts(2, started=False) as hosts:
        controller = ("--controller", endpoint(hosts.listen[1]))
        with (
            part(hosts, 2, "middleware", *controller),
            part(hosts, 3, "middleware", *controller) as last,
        ):
            with (
                part(hosts, 1, "controller", *stored) as first,
                subscribed(hosts, 3, "reader") as seen,
            ):
                publish(hosts, 2, "sensor", "21\n22\n")
                assert ("sensor", "22") in seen
                first.kill()
                first.wait(WAIT_S)
                with part(hosts, 1, "controller", *stored) as second:
                    publish(hosts, 2, "door", "open\n")
                    assert ("door", "open") in seen
                    # Who comes later gets the last of each, from what was kept before the kill.
                    with subscribed(hosts, 3, "late") as late:
                        assert {next(late), next(late)} == {("sensor", "22"), ("door", "open")}
                    assert json.loads(end(second))["dropped"] == {}
            assert set(json.loads(end(last))) == {"recovered", "skipped", "dropped"}
