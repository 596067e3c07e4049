"""A driver that was stopped for longer than Spark bears ends at once, and never says that it is
well."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
from crash_world import Program
from paths import ROOT
from pcap_deployment import Deployment, records
from ports import free_port

from jobs.adapters.app.settings import KAFKA_PREFIX, PREFIX, Settings

pytestmark = pytest.mark.integration

#: Spark gives an executor up after so many seconds, 120 where nothing is said.
TIMEOUT = 8
SPARK = {
    "spark.master": "local[2,4]",
    "spark.driver.memory": "1g",
    "spark.network.timeout": f"{TIMEOUT}s",
    "spark.executor.heartbeatInterval": "3s",
    # Found out before the first heartbeat after the pause.
    "spark.network.timeoutInterval": "200ms",
}


def started(deployment: Deployment, folder: Path, port: int) -> Program:
    """The job itself, in a process of its own."""
    deployment.set(metrics_port=port)
    defaults, settings = Settings(), deployment.settings
    given = {f.metadata["key"]: f.name for f in fields(Settings) if f.metadata}
    conf = {
        PREFIX + key: str(getattr(settings, name))
        for key, name in given.items()
        if getattr(settings, name) != getattr(defaults, name)
    }
    conf |= {KAFKA_PREFIX + key: value for key, value in settings.kafka.items()} | SPARK
    options = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in conf.items())
    deployment.set(metrics_port=0)
    job = str(ROOT / "jobs" / "itch_stream.py")
    return Program(folder, job, PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell")


def health(port: int) -> tuple[int, dict[str, object]]:
    """Status and body; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except (OSError, ValueError):
        return 0, {}


def test_a_driver_that_stood_still_ends_with_a_code_and_is_never_well_again(
    deployment: Deployment, tmp_path: Path, itch
):
    port = free_port()
    deployment.publish(records()[:40])
    stream = started(deployment, tmp_path, port)
    try:
        while health(port)[1].get("last_batch") is None or health(port)[0] != 200:
            assert stream.process.poll() is None, stream.output[-4000:]
            time.sleep(0.2)
        everything = [stream.process.pid, *stream.others()]
        for pid in everything:
            with suppress(ProcessLookupError):  # a worker that has just ended
                os.kill(pid, signal.SIGSTOP)
        time.sleep(1.5 * TIMEOUT)
        assert health(port)[0] == 0
        deployment.publish(records()[40:60])
        for pid in everything:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        told = []
        while stream.process.poll() is None:
            told.append(health(port)[0])
        assert stream.end() == 2, stream.output[-4000:]
    finally:
        stream.kill()
    assert 200 not in told
    assert "STREAM.STOOD_STILL: the driver stood still for 1" in stream.output
    # A start goes on, and nothing lacks.
    deployment.run()
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra) == (0, 0)
    assert outcome.received > 10
