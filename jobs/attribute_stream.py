"""Deliver attribute/value events from Kafka to exactly the hosts that subscribed (KUNDEL).

    spark-submit [--properties-file conf/X.conf] jobs/attribute_stream.py [--take-over]
        [--accept-truncation] [--speed 1000] [--messages 20000] [--network topozoo/Arnes] ...

The job is like jobs/itch_stream.py, for events with any attributes, in JSON or binary, one per
record. If no broker is configured, it shows sensors: first on a line of three switches that match
events with p4/attribute_value.p4, then on the fabric with the stream. With
spark.stackcast.match=network, the switches match events on both networks; if a broker is
configured as well, the stream only sends summaries.
"""

from __future__ import annotations

import sys
from functools import partial

from stackcast.jobs.command_lines.attribute_stream import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from stackcast.jobs.adapters.app import application
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.stream import checks, spark_stream
from stackcast.jobs.adapters.stream.spark_stream import NO_CONSENT, Consent
from stackcast.jobs.embedded.options import DEFAULT, RunOptions
from stackcast.udfs.messages.attributes.registry import FORMAT


def main(arguments: list[str]) -> int:
    command_line = parser(__doc__)
    asked = command_line.parse_args(arguments)
    if asked.speed == "recorded":
        command_line.error("argument --speed: events of sensors have no recorded timestamps")
    consent = Consent(asked.take_over, asked.accept_truncation)
    return application.run(partial(deliver, consent=consent, options=RunOptions.of(asked)))


def deliver(
    settings: Settings,
    lifecycle: Lifecycle,
    consent: Consent = NO_CONSENT,
    options: RunOptions = DEFAULT,
) -> int:
    settings = formats.of_settings(settings, FORMAT)
    if settings.embedded:
        # A stream over a user's Kafka loads nothing of the lab.
        from stackcast.jobs.embedded import runs  # noqa: PLC0415

        return runs.sensors(settings, options, lifecycle)
    options.require_none("have no effect, because spark.stackcast.kafka.bootstrap.servers is set")
    checks.beside_switches(settings)
    return spark_stream.run(settings, lifecycle, "stackcast attribute_stream", consent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
