"""The main job: raw ITCH packets from Kafka to exactly the hosts that subscribed.

    spark-submit [--properties-file conf/X.conf] jobs/itch_stream.py

Runs until SIGTERM, which ends it after the batch in progress. Where no broker is configured it
brings up the embedded lab, delivers one trading session, proves the outcome and ends; with
`spark.stackcast.match=network` the lab's switches match, and no stream runs.
"""

from __future__ import annotations

import sys

from jobs.adapters.app import application
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning import formats
from jobs.adapters.realtime import stream as realtime
from jobs.adapters.stream import micro_batches
from udfs.errors import SettingsError


def deliver(settings: Settings, lifecycle: Lifecycle) -> int:
    settings = formats.of_settings(settings, "itch")
    realtime.check(settings)
    if settings.embedded:
        # A stream over a user's Kafka loads nothing of the lab.
        from jobs.embedded import runs  # noqa: PLC0415

        return runs.trading_session(settings, lifecycle)
    if settings.match == "network":
        raise SettingsError(
            "MATCHED_IN_NETWORK",
            "with spark.stackcast.match=network the switches match, and no stream does: run "
            "jobs/refresh_switches.py with the same settings, and send the feed itself, plain "
            "UDP, to the publisher's switch",
        )
    run = realtime.run if settings.latency == "realtime" else micro_batches.run
    return run(settings, lifecycle, "stackcast itch_stream")


if __name__ == "__main__":
    sys.exit(application.run(deliver))
