"""A lab for who wants to look at a running system: a stream that delivers, and traffic that goes
on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.runtime.threads import SYSTEM_THREADS
from stackcast.jobs.adapters.stream import spark_stream
from stackcast.jobs.adapters.switches.lead import Refresher
from stackcast.jobs.embedded.kinds import SessionRun
from stackcast.jobs.embedded.lab import RunningLab, bring_up
from stackcast.jobs.embedded.options import RunOptions
from stackcast.jobs.embedded.progress import Progress
from stackcast.lab.traffic.packets import new_packets, open_records
from stackcast.lab.traffic.publisher import publish
from stackcast.lab.up.broker import free_ports
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.stop_request import StopRequest

#: Messages per second, and the number of messages after which the session is repeated.
DEFAULTS = {"speed": "150", "messages": 20_000}
#: Batches leave room for what a page asks of Spark.
TRIGGER = "1 second"
#: One record of so many is cut off, so that there are dead letters to look at.
DAMAGED = 400
_LOOK_SECONDS = 0.2


@contextmanager
def running(
    settings: Settings, options: RunOptions, lifecycle: Lifecycle, progress: Progress
) -> Iterator[Settings]:
    """Brings up lab, stream and traffic; yields the settings of the deployment.

    The stream may still be starting then, so that a page is there some seconds earlier. If it
    fails, the lifecycle is asked to stop, and the end of this context raises the error.

    All of it is taken down at the end, whatever came in between. Raises SettingsError BAD_VALUE
    where the settings name a Kafka, a match or a format that the lab's session is not for, and as
    `stackcast.jobs.embedded.lab.bring_up` and `stackcast.jobs.adapters.stream.spark_stream.start`.
    """
    settings, kind = _demonstrated(settings), SessionRun(options.with_defaults(**DEFAULTS))
    with ExitStack() as stack:
        up = stack.enter_context(bring_up(settings, lifecycle, kind, progress))
        # Damaged records are a part of the show, and a page of it tells of them.
        progress.leave_to_file("stackcast.jobs.adapters.stream.dead_letters")
        stop = StopRequest()
        # The topic must be there before the stream looks for it.
        kind.publish(up.settings, None, stop)
        streaming = SYSTEM_THREADS.start("stream", _stream, up, lifecycle, progress, stop)
        publishing = SYSTEM_THREADS.start("publish", _publish, up, kind, stop)
        refreshing = SYSTEM_THREADS.start("refresh", _refresh, up, stop)
        try:
            yield up.settings
        finally:
            stop.set()
            lifecycle.stopping.set()
            progress.say("stopping the lab")
            for part in (publishing, refreshing, streaming):
                part.result()


def _stream(up: RunningLab, lifecycle: Lifecycle, progress: Progress, stop: StopRequest) -> None:
    """Starts the stream, and delivers until a stop is requested."""
    try:
        with progress.stage("starting the stream", "started the stream"):
            query, delivery = spark_stream.start(up.spark, up.settings, lifecycle)
        try:
            lifecycle.run(query, stop.is_set, delivery.last_batch.check)
        finally:
            delivery.close()
    finally:
        # Without a stream the console has nothing to show.
        lifecycle.stopping.set()


def _demonstrated(settings: Settings) -> Settings:
    """The settings with what a demonstration has otherwise, where they do not say."""
    if not settings.embedded or settings.match != "spark" or settings.format != "itch":
        raise SettingsError(
            "BAD_VALUE",
            "--demo starts its own lab, in which the stream matches a trading session: remove "
            "spark.stackcast.kafka.bootstrap.servers, spark.stackcast.match and "
            "spark.stackcast.format from the settings",
        )
    own = {
        "trigger": ("trigger", TRIGGER),
        "latency": ("latency", "microbatch"),
    }
    values = {name: value for name, (key, value) in own.items() if key not in settings.given}
    if not settings.metrics_port:
        values["metrics_port"] = free_ports(1)[0]
    return dataclasses.replace(settings, **values)


def _publish(up: RunningLab, kind: SessionRun, stop: StopRequest) -> None:
    """Publishes the session, again and again."""
    settings = up.settings
    servers = settings.kafka["bootstrap.servers"]
    while not stop.is_set():
        packets = _packets(up.source, kind.options.seed)
        speed = kind.options.speed
        publish(servers, settings.topic, packets, packets=True, speed=speed, stop=stop)


def _packets(source: Path, seed: int) -> Iterator[bytes]:
    with open_records(source) as messages:
        for number, (packet, _) in enumerate(new_packets(messages, seed=seed), start=1):
            yield packet if number % DAMAGED else packet[:-1]


def _refresh(up: RunningLab, stop: StopRequest) -> None:
    """Brings switches along with what is edited."""
    with Refresher(up.tables, up.settings, stop) as refresher:
        while not stop.wait(_LOOK_SECONDS):
            refresher.poll()
