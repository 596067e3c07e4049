"""The runs of the embedded default: one trading session, or sensors on two networks."""

from __future__ import annotations

import dataclasses
import os

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
    with Progress() as progress:
        if settings.match == "network":
            code = network.run(settings, lifecycle, SessionRun(_at_once(options)), progress)
        else:
            code = stream.run(settings, lifecycle, SessionRun(options), progress)
        _print_next(code, options)
    return code


def sensors(settings: Settings, options: RunOptions, lifecycle: Lifecycle) -> int:
    """Runs sensors on a line of switches, then on the network that the options name.

    First the testbed of the text (KUNDEL IV): three switches in a row, which match by themselves,
    and events in both encodings. Then the fabric, with JSON from Kafka and the stream, unless the
    switches are to match there, too. Each run has its own report. Returns the first exit code that
    is not 0.
    """
    with Progress() as progress:
        code = _sensors(settings, options, lifecycle, progress)
        _print_next(code, options)
    return code


def _at_once(options: RunOptions) -> RunOptions:
    """Return the options of a run in which switches match: publishers wait for each packet's place
    in the topic, so a pace would only make them slower."""
    return options.with_defaults(speed="full")


def _sensors(
    settings: Settings, options: RunOptions, lifecycle: Lifecycle, progress: Progress
) -> int:
    kind = SensorRun(_at_once(options) if settings.match == "network" else options)
    if options.network is None:
        progress.say("delivering sensor events on a line of three switches, which match them")
        code = network.run(
            dataclasses.replace(settings, match="network"),
            lifecycle,
            SensorRun(_at_once(_on_line(dataclasses.replace(kind.options, speed=options.speed)))),
            progress,
            keep_spark=True,
        )
        if code or lifecycle.stopping.is_set():
            return code
    progress.say(f"delivering sensor events on the network {kind.options.network}")
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


def _print_next(code: int, options: RunOptions) -> None:
    """Print the next steps for a reader, if the run was exact."""
    if code:
        return
    report = os.path.relpath(options.path / "report.html")
    console = 'spark-submit "$(stackcast jobs path console)"'
    if os.environ.get("STACKCAST_HOME"):
        console = "./spark-submit.sh jobs/console.py"
    print(
        f"\nNext: open {report} in a browser, and choose a notification to see its path.\n"
        f"      {console} --demo starts a running system, in which you can write your own rule "
        "(docs/tutorials/write-a-rule.md).\n"
        "      docs/how-to/deploy-on-your-kafka.md describes a deployment with your own Kafka and "
        "switches."
    )
