"""Deliver the events in the history of the topic that one subscription matches.

    spark-submit [--properties-file conf/X.conf] jobs/deliver_from.py ID --from OFFSET|TIME

Start the job with the properties of the stream, which may continue to run. ID is a row of
`subscriptions`. The job processes the records from --from up to where the stream began to use the
subscription. It matches and sends them in the same way as the stream and with the same sequence
numbers, but only to the hosts of this rule.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from stackcast.jobs.command_lines.deliver_from import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.replay.history import History
from stackcast.jobs.adapters.stream.last_batch import LastBatch
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.udfs.errors import SettingsError


def main(arguments: list[str]) -> int:
    return application.run(partial(deliver, parser(__doc__).parse_args(arguments)))


def deliver(asked: argparse.Namespace, settings: Settings, lifecycle: Lifecycle) -> int:
    settings = formats.of_settings(settings, settings.format)
    settings.require_broker()
    if settings.match == "network":
        raise SettingsError(
            "MATCHED_IN_NETWORK",
            "with spark.stackcast.match=network the switches match, and take no header stacks: "
            "there is no way to one subscription's hosts alone",
        )
    spark = session.start("stackcast deliver_from")
    lifecycle.hold_jvm(spark)
    topics = Topics(spark, settings)
    topics.wait(lifecycle.stopping.is_set)
    history = History(spark, settings, open_tables(spark, settings.tables), asked.id)
    spans = history.spans(asked.begin, asked.until)
    with LastBatch(spark, topics).ends_with(lifecycle.stopping):
        sums = history.deliver(spans, lifecycle.stopping)
    if spans:
        print(", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sums.items()))
    else:
        print(history.why_nothing())
    return application.FAILED if lifecycle.stopping.is_set() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
