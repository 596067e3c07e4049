"""The runs of the embedded default: one trading session, or sensors on two networks."""

from __future__ import annotations

import dataclasses

from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded import network, stream
from stackcast.jobs.embedded.kinds import SensorRun, SessionRun
from stackcast.jobs.embedded.options import RunOptions
from stackcast.jobs.embedded.progress import Progress
from stackcast.lab.fabric.topologies import LINE

#: On the line: what a switch's one table is asked to hold, and the software switches to match.
LINE_SUBSCRIPTIONS = 40
LINE_EVENTS = 2_000


def trading_session(settings: Settings, options: RunOptions, lifecycle: Lifecycle) -> int:
    """Runs once, by what ``spark.stackcast.match`` says. Returns the exit code."""
    way = network if settings.match == "network" else stream
    with Progress() as progress:
        return way.run(settings, lifecycle, SessionRun(options), progress)


def sensors(settings: Settings, options: RunOptions, lifecycle: Lifecycle) -> int:
    """Runs sensors on a line of switches, then on the network that the options name.

    First the testbed of the text (KUNDEL IV): three switches in a row, which match by themselves,
    and events in both encodings. Then the fabric, with JSON from Kafka and the stream, unless the
    switches are to match there, too. Each run has its own report. Returns the first exit code that
    is not 0.
    """
    with Progress() as progress:
        return _sensors(settings, options, lifecycle, progress)


def _sensors(
    settings: Settings, options: RunOptions, lifecycle: Lifecycle, progress: Progress
) -> int:
    kind = SensorRun(options)
    if options.network is None:
        progress.say("sensors on a line of three switches, which match")
        code = network.run(
            dataclasses.replace(settings, match="network"),
            lifecycle,
            SensorRun(_on_line(kind.options)),
            progress,
            keep_spark=True,
        )
        if code or lifecycle.stopping.is_set():
            return code
    progress.say(f"sensors on the network {kind.options.network}")
    if settings.match == "network":
        return network.run(settings, lifecycle, kind, progress)
    if "attributes.unknown" not in settings.given:
        # A measurement that nobody announced turns up half way through.
        settings = dataclasses.replace(settings, attributes_unknown="register")
    return stream.run(settings, lifecycle, kind, progress)


def _on_line(options: RunOptions) -> RunOptions:
    return dataclasses.replace(
        options,
        network=LINE,
        folder=f"{options.path}-line",
        subscriptions=min(options.subscriptions or 0, LINE_SUBSCRIPTIONS),
        messages=min(options.messages or LINE_EVENTS, LINE_EVENTS),
        hosts=options.hosts or 2,
    )
