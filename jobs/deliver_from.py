"""Deliver what one subscription matches in the past of the topic: a new filter runs over history.

    spark-submit [--properties-file conf/X.conf] jobs/deliver_from.py ID --from OFFSET|TIME

Give it the properties of the stream, which may go on beside it. ID is a row of `subscriptions`. The
records from there on go the ordinary way, through match, header stack, frame and sink, to the
hosts of that rule alone, under the sequence numbers of then, up to where the stream took the
subscription up.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from functools import partial

from stackcast.command_line import ArgumentParser
from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.replay.history import Bound, History
from stackcast.jobs.adapters.stream.kafka import Topics
from stackcast.jobs.adapters.stream.last_batch import LastBatch
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import SettingsError


def main(arguments: list[str]) -> int:
    return application.run(partial(deliver, parser().parse_args(arguments)))


def parser() -> argparse.ArgumentParser:
    made = ArgumentParser(
        prog="deliver_from.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("id", metavar="ID", help="of the subscription")
    made.add_argument(
        "--from",
        dest="begin",
        metavar="OFFSET|TIME",
        type=bound,
        required=True,
        help="earliest; an offset, of each partition; or a time of records in Kafka, as in "
        "2026-03-01T09:30:00Z, which is UTC unless it says otherwise",
    )
    made.add_argument(
        "--until",
        metavar="OFFSET|TIME",
        type=bound,
        help="the first that is not delivered any more; without it those are left to the running "
        "stream that it has delivered by the subscription itself",
    )
    return made


def bound(text: str) -> Bound:
    """Returns an offset or a time; None for ``earliest``. Raises ValueError."""
    if text == "earliest":
        return None
    if text.isdecimal():
        return int(text)
    time = dt.datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


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
    history = History(spark, settings, Tables(spark, settings.tables), asked.id)
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
