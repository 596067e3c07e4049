"""The main job: raw ITCH packets from Kafka to exactly the hosts that subscribed.

    spark-submit [--properties-file conf/X.conf] jobs/itch_stream.py

Runs until SIGTERM, which ends it after the batch in progress. Where no broker is configured it
brings up the embedded lab, delivers one trading session, proves the outcome and ends; with
`spark.stackcast.match=network` the lab's switches match, and no stream runs.
"""

from __future__ import annotations

import sys

from jobs import embedded, embedded_network
from jobs.adapters import application, formats, realtime, streaming
from jobs.adapters.lifecycle import Lifecycle
from jobs.adapters.settings import Settings
from jobs.embedded_kinds import TradingSession
from udfs.errors import SettingsError


def deliver(settings: Settings, lifecycle: Lifecycle) -> int:
    settings = formats.of_settings(settings, "itch")
    realtime.check(settings)
    if settings.match == "network":
        if not settings.embedded:
            raise SettingsError(
                "MATCHED_IN_NETWORK",
                "with spark.stackcast.match=network the switches match, and no stream does: run "
                "jobs/refresh_switches.py with the same settings, and send the feed itself, plain "
                "UDP, to the publisher's switch",
            )
        return embedded_network.run(settings, lifecycle, TradingSession())
    if settings.embedded:
        return embedded.run(settings, lifecycle, TradingSession())
    return streaming.run(settings, lifecycle, "stackcast itch_stream")


if __name__ == "__main__":
    sys.exit(application.run(deliver))
