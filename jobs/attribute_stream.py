"""Attribute/value events from Kafka to exactly the hosts that subscribed (KUNDEL).

    spark-submit [--properties-file conf/X.conf] jobs/attribute_stream.py [--take-over]

As jobs/itch_stream.py, for events of any attributes, in JSON or binary, one a record. Where no
broker is configured it shows sensors, first on a line of three switches that match by
p4/attribute_value.p4, then on the fabric by the stream; with `spark.stackcast.match=network` the
switches match on both.
"""

from __future__ import annotations

import sys
from functools import partial

from jobs.adapters.app import application
from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning import formats
from jobs.adapters.stream import micro_batches
from udfs.errors import SettingsError
from udfs.messages.attributes.registry import FORMAT


def deliver(settings: Settings, lifecycle: Lifecycle, *, take_over: bool = False) -> int:
    settings = formats.of_settings(settings, FORMAT)
    if settings.embedded:
        # A stream over a user's Kafka loads nothing of the lab.
        from jobs.embedded import runs  # noqa: PLC0415

        return runs.sensors(settings, lifecycle)
    if settings.match == "network":
        raise SettingsError(
            "MATCHED_IN_NETWORK",
            "with spark.stackcast.match=network the switches match, and no stream does: run "
            "jobs/refresh_switches.py with the same settings, and send the events themselves to "
            "the publisher's switch, as frames of EtherType 0x9001",
        )
    return micro_batches.run(settings, lifecycle, "stackcast attribute_stream", take_over=take_over)


if __name__ == "__main__":
    forced = micro_batches.takes_over(sys.argv[1:], __doc__)
    sys.exit(application.run(partial(deliver, take_over=forced)))
