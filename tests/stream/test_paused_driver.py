"""A driver that is stopped for longer than Spark's timeout ends, and never reports good health.

tests/app/test_standstill.py tests how a driver notices the pause.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from crash_world import Program
from paths import ROOT
from pcap_deployment import Deployment, records
from ports import free_port
from waiting import until

pytestmark = pytest.mark.long

#: Spark gives up an executor after this number of seconds; 120 by default.
TIMEOUT = 15
SPARK = {
    "spark.master": "local[2,4]",
    "spark.driver.memory": "1g",
    "spark.network.timeout": f"{TIMEOUT}s",
    "spark.executor.heartbeatInterval": "3s",
    # Spark notices the pause before the first heartbeat after it.
    "spark.network.timeoutInterval": "200ms",
}


def started(deployment: Deployment, folder: Path, port: int) -> Program:
    """Start the job in its own process."""
    deployment.set(metrics_port=port)
    conf = deployment.properties() | SPARK
    options = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in conf.items())
    deployment.set(metrics_port=0)
    job = str(ROOT / "jobs" / "itch_stream.py")
    return Program(folder, job, PYSPARK_SUBMIT_ARGS=f"{options} pyspark-shell")


def health(port: int) -> tuple[int, dict[str, object]]:
    """Return status and content of /health; 0 if there is no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except (OSError, ValueError):
        return 0, {}


def test_a_driver_that_was_stopped_ends_with_a_code_and_stays_unhealthy(
    deployment: Deployment, tmp_path: Path, itch
):
    port = free_port()
    deployment.publish(records()[:40])
    stream = started(deployment, tmp_path, port)
    try:
        until(lambda: health(port)[1].get("last_batch") is not None, stream)
        until(lambda: health(port)[0] == 200, stream)
        pids = [stream.process.pid, *stream.others()]
        for pid in pids:
            with suppress(ProcessLookupError):  # a worker that has just ended
                os.kill(pid, signal.SIGSTOP)
        # The duration of the pause is what the driver must notice.
        time.sleep(1.2 * TIMEOUT)
        assert health(port)[0] == 0
        deployment.publish(records()[40:60])
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        statuses = []
        while stream.process.poll() is None:
            statuses.append(health(port)[0])
        assert stream.end() == 2, stream.output[-4000:]
    finally:
        stream.kill()
    assert 200 not in statuses
    assert re.search(r"STREAM\.STALLED: the driver .* for \d+ s", stream.output)
    # The next start continues, and no notification is missing.
    deployment.run()
    outcome = deployment.outcome(itch)
    assert (outcome.missing, outcome.extra) == (0, 0)
    assert outcome.received > 10
