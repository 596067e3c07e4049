"""Deliver raw ITCH packets from Kafka to exactly the hosts that subscribed.

    spark-submit [--properties-file conf/X.conf] jobs/itch_stream.py [--take-over]
        [--accept-truncation] [--speed 1000] [--messages 20000] [--network topozoo/Arnes] ...

The stream runs until SIGTERM, which ends it after the current batch. A topic has a single stream:
while a stream with another checkpoint delivers the topic, or has died doing so, the job does not
start, unless --take-over ends that stream. If no broker is configured, the job starts the embedded
lab, delivers one trading session, proves that it was delivered correctly, and ends. With
spark.stackcast.match=network the switches match events, and the stream only sends summaries.
"""

from __future__ import annotations

import sys
from functools import partial

from stackcast.jobs.command_lines.itch_stream import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from stackcast.jobs.adapters.app import application
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.stream import checks, spark_stream
from stackcast.jobs.adapters.stream.spark_stream import NO_CONSENT, Consent
from stackcast.jobs.embedded.options import DEFAULT, RunOptions


def main(arguments: list[str]) -> int:
    asked = parser(__doc__).parse_args(arguments)
    consent = Consent(asked.take_over, asked.accept_truncation)
    return application.run(partial(deliver, consent=consent, options=RunOptions.of(asked)))


def deliver(
    settings: Settings,
    lifecycle: Lifecycle,
    consent: Consent = NO_CONSENT,
    options: RunOptions = DEFAULT,
) -> int:
    settings = formats.of_settings(settings, "itch")
    if settings.embedded:
        # A stream over a user's Kafka loads nothing of the lab.
        from stackcast.jobs.embedded import runs  # noqa: PLC0415

        return runs.trading_session(settings, options, lifecycle)
    options.require_none("have no effect, because spark.stackcast.kafka.bootstrap.servers is set")
    checks.beside_switches(settings)
    return spark_stream.run(settings, lifecycle, "stackcast itch_stream", consent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
