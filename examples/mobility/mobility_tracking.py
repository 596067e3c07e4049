"""Track devices in a city by replicated state, and compare the result with brute force (STARE I-A).

    ./spark-submit.sh examples/mobility/mobility_tracking.py [--edges 6] [--scanners 3]
        [--reports 9] [--speedup 10] [--loss 1] [--network topozoo/Abilene] ...

The program starts a lab: switches that replicate states, a middleware on each host, the replica
controller, WiFi scanners that report devices, and a tracker for each edge cloud. A tracker holds
replicas of its neighbours' sightings, and derives the movements into its edge and out of it. A
Structured Streaming query derives the movements in the whole city from the same reports in Kafka.
The exit code is 0 only if every replica and every movement is right. A page shows the run.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from functools import partial

import city_run
from city_run import CityOptions
from stackcast.command_line import ArgumentParser
from stackcast.jobs.adapters.app import application
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded.options import RunOptions, add_arguments, whole_number
from stackcast.udfs.errors import SettingsError


def main(arguments: list[str]) -> int:
    asked = parser().parse_args(arguments)
    options = CityOptions(**{each.name: getattr(asked, each.name) for each in fields(CityOptions)})
    return application.run(partial(track, options, RunOptions.of(asked)))


def parser() -> argparse.ArgumentParser:
    command_line = ArgumentParser(prog="mobility_tracking.py", description=__doc__)
    for name, least, most, text in (
        ("edges", 2, 64, "number of edge clouds, each with a tracker"),
        ("scanners", 1, 16, "number of WiFi scanners at each edge cloud"),
        ("reports", 1, 10_000, "number of reports of each scanner, one per 20 seconds of the city"),
        ("speedup", 1, 10_000, "seconds of the city's time in one second of the run"),
        ("loss", 0, 50, "percent of the frames that each link loses"),
    ):
        command_line.add_argument(
            f"--{name}",
            metavar="NUMBER",
            type=whole_number(least, most),
            default=getattr(CityOptions, name),
            help=text,
        )
    add_arguments(
        command_line,
        without=("publishers", "subscriptions", "messages", "symbols", "session", "speed"),
        texts={
            "hosts": "number of hosts on each rack, or on each node of another network "
            "(default: 1)",
            "seed": "seed of the generated city and its reports",
        },
    )
    return command_line


def track(options: CityOptions, lab: RunOptions, settings: Settings, lifecycle: Lifecycle) -> int:
    if not settings.embedded:
        raise SettingsError(
            "BAD_VALUE",
            "this example starts a lab and a broker of its own: leave out "
            "spark.stackcast.kafka.bootstrap.servers. docs/how-to/replicate-state.md describes how "
            "the programs of a deployment replicate state",
        )
    return city_run.run(options, lab, settings, lifecycle)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
