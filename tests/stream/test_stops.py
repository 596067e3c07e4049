"""A job that is asked to stop ends within seconds, also if the batch in progress then fails.

The job runs as a program of its own. A signal may reach its JVM, which is the parent of the Python
program or its child, or all processes.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyspark
import pytest
from crash_world import Program
from paths import SUPPORT
from pcap_deployment import PARTITIONS, Deployment, records
from steered_stream import FAILURES, GO, SENDING, STEERING
from waiting import until

from stackcast.lab.up.broker import Broker

pytestmark = pytest.mark.integration

#: A job that waits for a failed task of a JVM in its shutdown ends after ten minutes, and one that
#: waits for a broker or for the last try of a task after one to eight. This is well below, and has
#: room for a busy machine; without other work, jobs end within 15 s.
END_S = 90
LATENCIES = ("microbatch", "realtime")


class SteeredJob:
    """The process of a stream whose first batch waits; see tests/support/steered_stream.py.

    Args:
        deployment: deployment of the stream; its folder has the files that steer the stream.
        failure: kind of the failure of the batch.
        latency: ``spark.stackcast.latency``.
        submit: start the JVM first, by spark-submit, instead of the Python program.
    """

    def __init__(
        self, deployment: Deployment, failure: str, latency: str, submit: bool = True
    ) -> None:
        assert failure in FAILURES
        self._folder = deployment.folder
        deployment.set(latency=latency)
        properties = deployment.properties() | {
            "spark.master": f"local[{PARTITIONS + 1},4]",
            "spark.driver.memory": "1g",
        }
        options = [f"--conf={key}={value}" for key, value in properties.items()]
        file = str(SUPPORT / "steered_stream.py")
        steering = {STEERING: json.dumps([str(self._folder), failure])}
        if submit:
            script = Path(pyspark.__file__).parent / "bin" / "spark-submit"
            self._program = Program(self._folder, *options, file, program=script, **steering)
        else:
            steering["PYSPARK_SUBMIT_ARGS"] = shlex.join([*options, "pyspark-shell"])
            self._program = Program(self._folder, file, **steering)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._program.process

    @property
    def output(self) -> str:
        return self._program.output

    def wait_for_batch(self) -> None:
        until((self._folder / SENDING).exists, self)

    def ask(self, number: int = signal.SIGTERM, *, everybody: bool = False) -> None:
        """Send a signal to the JVM or to all processes, and wait until the job notes it."""
        jvm = self._program.jvm() or self.process.pid
        for pid in [self.process.pid, *self._program.others()] if everybody else [jvm]:
            os.kill(pid, number)
        self._program.until("asked to stop")

    def go(self) -> None:
        """Let the batch continue."""
        (self._folder / GO).touch()

    def end(self) -> int:
        """Wait for the end and return the exit code; fails if it takes too long."""
        began = time.monotonic()
        code = self._program.end()
        assert time.monotonic() - began < END_S, self.output[-4000:]
        return code

    def kill(self) -> None:
        self._program.kill()


Start = Callable[..., SteeredJob]


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """Let jobs take SIGHUP, also if these tests run under nohup."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.fixture
def start(deployment: Deployment) -> Iterator[Start]:
    """Start jobs that read 40 records."""
    jobs: list[SteeredJob] = []
    deployment.publish(records()[:40])

    def start(*arguments: str, submit: bool = True) -> SteeredJob:
        jobs.append(SteeredJob(deployment, *arguments, submit=submit))
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()


@pytest.mark.long
@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize(
    ("failure", "reason"),
    [("sink", "SINK.FRAME_TOO_LARGE: "), ("worker", "Python worker exited")],
)
def test_a_batch_that_fails_after_sigterm_ends_the_job_with_its_error(
    start: Start, failure: str, reason: str, latency: str
) -> None:
    job = start(failure, latency)
    job.wait_for_batch()
    job.ask()
    job.go()
    assert job.end() == 2
    (line,) = [line for line in job.output.splitlines() if "STREAM.FAILED: " in line]
    assert reason in line


@pytest.mark.long
@pytest.mark.parametrize("latency", LATENCIES)
def test_it_does_so_where_the_jvm_is_a_child_of_the_program(start: Start, latency: str) -> None:
    job = start("sink", latency, submit=False)
    job.wait_for_batch()
    job.ask()
    job.go()
    assert job.end() == 2
    assert "STREAM.FAILED: the stream has ended: SINK.FRAME_TOO_LARGE: " in job.output


@pytest.mark.long
@pytest.mark.parametrize("latency", LATENCIES)
def test_a_worker_that_dies_after_sigterm_is_replaced_and_the_batch_ends(
    start: Start, deployment: Deployment, itch, latency: str
) -> None:
    job = start("worker once", latency)
    job.wait_for_batch()
    job.ask()
    job.go()
    assert job.end() == 128 + signal.SIGTERM
    assert deployment.ledger
    deployment.run()
    assert deployment.outcome(itch).missing == 0


@pytest.mark.long
def test_a_micro_batch_does_not_wait_for_a_broker_that_is_gone(
    start: Start, broker: Broker
) -> None:
    job = start("broker", "microbatch")
    job.wait_for_batch()
    job.ask()
    broker.kill()
    try:
        job.go()
        assert job.end() == 2
    finally:
        broker.revive()
    assert "KAFKA.BROKER_UNREACHABLE: no Kafka broker answers at " in job.output


@pytest.mark.long
def test_a_slice_without_a_broker_ends_in_order(
    start: Start, broker: Broker, deployment: Deployment, itch
) -> None:
    job = start("broker", "realtime")
    job.wait_for_batch()
    job.ask()
    broker.kill()
    try:
        job.go()
        assert job.end() == 128 + signal.SIGTERM
    finally:
        broker.revive()
    deployment.run()
    assert deployment.outcome(itch).exact


@pytest.mark.long
def test_a_stream_that_waits_for_a_broker_ends_at_once(start: Start, broker: Broker) -> None:
    """Between batches, Spark itself would wait for minutes for a broker that is silent."""
    assert broker.pid is not None
    job = start("nothing", "microbatch")
    job.go()
    until(lambda: "batch 0: " in job.output, job)
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        job.ask()
        assert job.end() == 128 + signal.SIGTERM
    finally:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize("latency", LATENCIES)
def test_a_batch_does_not_wait_for_a_tunnel_that_is_silent(
    start: Start, deployment: Deployment, latency: str
) -> None:
    """A task fails after ten seconds of silence, and Spark would try it three times more."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as far_end:
        far_end.bind(("127.0.0.1", 0))
        far_end.settimeout(600)
        endpoint = "{}:{}".format(*far_end.getsockname())
        deployment.set(sink="udp", udp_endpoint=endpoint, udp_window=8)
        job = start("nothing", latency)
        job.go()
        far_end.recv(65_536)
        job.ask()
        assert job.end() == 2
    assert "STREAM.FAILED: the stream has ended: SINK.NO_CREDIT: " in job.output


@pytest.mark.parametrize(
    ("latency", "number"),
    [
        ("microbatch", signal.SIGTERM),
        pytest.param("realtime", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("microbatch", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("microbatch", signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_a_healthy_batch_ends_and_the_exit_code_names_the_signal(
    start: Start, deployment: Deployment, itch, latency: str, number: int
) -> None:
    job = start("nothing", latency)
    job.wait_for_batch()
    job.ask(number)
    job.go()
    assert job.end() == 128 + number
    assert "Traceback" not in job.output and "ERROR" not in job.output
    batches = [row["batch_id"] for row in deployment.ledger]
    assert batches
    if latency == "microbatch":
        assert deployment.committed() == max(batches)
    deployment.run()
    assert deployment.outcome(itch).exact


@pytest.mark.long
@pytest.mark.parametrize("latency", LATENCIES)
def test_sigterm_to_all_processes_loses_nothing(
    start: Start, deployment: Deployment, itch, latency: str
) -> None:
    """It ends the workers, too, as systemd does by default."""
    job = start("nothing", latency)
    job.wait_for_batch()
    job.ask(everybody=True)
    job.go()
    assert job.end() == 128 + signal.SIGTERM
    deployment.run()
    assert deployment.outcome(itch).missing == 0
