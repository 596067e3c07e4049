"""The server of metrics and health answers, tells the truth, and holds nobody up."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ports import free_port
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

from stackcast.jobs.adapters.app import metrics_application
from stackcast.jobs.adapters.app.connections import Limits
from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.udfs.errors import SettingsError

pytestmark = pytest.mark.integration


def settings_at(port: int, host: str = "127.0.0.1") -> Settings:
    return Settings(metrics_port=port, metrics_host=host)


@contextmanager
def served(verdict: Health | Exception) -> Iterator[tuple[int, Counter]]:
    registry = CollectorRegistry()
    counter = Counter("stackcast_things", "Things", registry=registry)

    def answer() -> Health:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    with serve(settings_at(free_port()), registry, answer) as port:
        yield port, counter


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=600) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_what_prometheus_reads():
    with served(Health()) as (port, counter):
        counter.inc(3)
        code, text = get(port, "/metrics")
        families = text_string_to_metric_families(text)
        values = {sample.name: sample.value for f in families for sample in f.samples}
        assert code == 200 and values["stackcast_things_total"] == 3
        assert get(port, "/")[0] == 404


@pytest.mark.parametrize(
    ("verdict", "code", "status"),
    [
        (Health(facts={"last_batch": 7}), 200, "ok"),
        (Health(remarks=("a switch is away",), facts={"last_batch": 7}), 200, "degraded"),
        (Health(("no broker",), ("and more",), {"last_batch": 7}), 503, "unhealthy"),
    ],
)
def test_health_is_503_where_the_job_does_not_do_its_work(verdict: Health, code: int, status: str):
    with served(verdict) as (port, _):
        answered, text = get(port, "/health")
        _, metrics = get(port, "/metrics")
    found = {s.name: s.value for f in text_string_to_metric_families(metrics) for s in f.samples}
    assert found["stackcast_healthy"] == (code == 200)
    assert found["stackcast_degraded"] == len(verdict.remarks)
    told = json.loads(text)
    assert (answered, told["status"], told["last_batch"]) == (code, status, 7)
    assert told["problems"] == list(verdict.problems)
    assert told["remarks"] == list(verdict.remarks)


def test_without_a_port_nothing_is_served():
    before = threading.active_count()
    with serve(settings_at(0), CollectorRegistry(), Health) as port:
        assert port == 0 and threading.active_count() == before


def test_a_taken_port_is_one_clear_error_and_a_wrong_address_another():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port}\b.*metrics\.port") as caught,
            serve(settings_at(port), CollectorRegistry(), Health),
        ):
            pass
    assert caught.value.code == "SETTINGS.PORT_TAKEN"
    # An address of documentation (RFC 5737), which this machine may not listen at.
    with (
        pytest.raises(SettingsError, match=r"metrics\.host") as caught,
        serve(settings_at(port, "203.0.113.7"), CollectorRegistry(), Health),
    ):
        pass
    assert caught.value.code == "SETTINGS.BAD_HOST"


def test_the_port_is_free_again_when_the_job_has_ended():
    with served(Health()) as (port, _):
        pass
    with serve(settings_at(port), CollectorRegistry(), Health) as again:
        assert get(again, "/health")[0] == 200
    with pytest.raises(OSError):
        get(port, "/health")


def test_clients_that_say_nothing_keep_nobody_waiting():
    with served(Health()) as (port, _):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        assert get(port, "/health")[0] == 200
    # The server ended, though twenty clients had not spoken.
    for client in silent:
        client.close()


def test_slow_clients_are_closed_and_those_of_one_address_are_limited(
    monkeypatch: pytest.MonkeyPatch,
):
    def is_closed(client: socket.socket) -> bool:
        with contextlib.suppress(ConnectionError):
            return client.recv(1) == b""
        return True

    def slow_clients(port: int, count: int) -> Iterator[socket.socket]:
        for number in range(count):
            with contextlib.suppress(ConnectionError):
                client = socket.create_connection(("127.0.0.1", port), 600, ("127.0.0.2", 0))
                client.sendall(b"GET /health"[:number])
                yield client

    monkeypatch.setattr(metrics_application, "LIMITS", Limits(per_address=8, request_seconds=600))
    with served(Health()) as (port, _):
        clients = list(slow_clients(port, 30))
        assert len(clients) == 30 and all(map(is_closed, clients[:-8]))
        assert get(port, "/health")[0] == 200
    monkeypatch.setattr(metrics_application, "LIMITS", Limits(request_seconds=0.3))
    with served(Health()) as (port, _):
        assert all(map(is_closed, slow_clients(port, 8)))
        assert get(port, "/health")[0] == 200


def test_an_error_in_a_look_is_an_answer_and_not_an_end():
    with served(RuntimeError("nobody thought of this")) as (port, _):
        assert get(port, "/health")[0] == 500
        assert get(port, "/nothing")[0] == 404
