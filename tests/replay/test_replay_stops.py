"""Jobs that read a topic again end within seconds after SIGTERM, also if the broker is gone."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pcap_deployment import Deployment, records
from ports import free_port
from stopping_job import StoppingJob

from stackcast.lab.up.broker import Broker

pytestmark = pytest.mark.long

#: A task waits two minutes for a broker. This has room for a busy machine.
END_S = 90


@contextmanager
def stopped(
    deployment: Deployment, broker: Broker, step: str, job: str, *arguments: str
) -> Iterator[StoppingJob]:
    """Run a job to a step, send it SIGTERM, and continue it without a broker.

    Args:
        deployment: deployment of a stream.
        broker: broker of the deployment.
        step: step before the job reads records; see `StoppingJob`.
        job: file of the job.
        arguments: arguments of the job.
    """
    deployment.publish(records()[:40])
    deployment.run()
    program = StoppingJob(deployment.folder, step, job, *arguments, conf=deployment.properties())
    program.stop_at_step()
    try:
        program.wait_until_stopped()
        broker.kill()
        program.program.process.send_signal(signal.SIGTERM)
        program.go_on()
        yield program
    finally:
        program.program.kill()
        broker.revive()


def end(job: StoppingJob) -> int:
    """Waits for the end of a job and returns its exit code; fails if it takes too long."""
    began = time.monotonic()
    code = job.program.end()
    assert time.monotonic() - began < END_S, job.program.output[-4000:]
    return code


def test_deliver_from_names_the_broker_that_is_gone(deployment: Deployment, broker: Broker):
    step = "stackcast.jobs.adapters.stream.spark_input:ByConnector.through"
    arguments = ("high", "--from", "0", "--until", "20")
    with stopped(deployment, broker, step, "deliver_from.py", *arguments) as job:
        assert end(job) == 2
        assert "KAFKA.BROKER_UNREACHABLE: no Kafka broker answers at " in job.program.output


def test_the_service_leaves_what_it_computes(deployment: Deployment, broker: Broker):
    deployment.set(rerequest_listen=f"127.0.0.1:{free_port()}")
    # It has asked for the offsets, and its tasks will fetch the records.
    step = "stackcast.jobs.adapters.kafka.topics:from_arrow_schema"
    with stopped(deployment, broker, step, "rerequest.py") as job:
        assert end(job) == 0
