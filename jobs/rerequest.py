"""Compute lost notifications again for the hosts that request them (re-request service).

    spark-submit [--properties-file conf/X.conf] jobs/rerequest.py

Start the job with the properties of the stream. It receives MoldUDP64 request packets at
spark.stackcast.rerequest.listen, and runs until SIGTERM. When the newest plan is prepared, so that
the first answer is not delayed, it prints a line that begins with `ready` to standard output.
"""

from __future__ import annotations

import sys

from stackcast.jobs.command_lines.rerequest import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.replay.metrics import RerequestMetrics
from stackcast.jobs.adapters.replay.service import Rerequests
from stackcast.jobs.adapters.tables.open_tables import open_tables

#: Without a look at the tables for so long while requests wait, the service is not well, seconds.
STALE_SECONDS = 60.0


def answer(settings: Settings, lifecycle: Lifecycle) -> int:
    settings = formats.of_settings(settings, settings.format)
    settings.require_broker()
    spark = session.start("stackcast rerequest")
    lifecycle.hold_jvm(spark)
    Topics(spark, settings).wait(lifecycle.stopping.is_set)
    tables = open_tables(spark, settings.tables)
    metrics = RerequestMetrics(settings.metrics_hosts)
    service = Rerequests(spark, settings, tables, metrics)

    def health() -> Health:
        silent = service.unread_seconds
        problems: tuple[str, ...] = ()
        if silent > STALE_SECONDS:
            problems = (f"the ledger could not be read for {silent:.0f} s: the log says why",)
        return Health(problems, facts={"computed": service.computed, "ready": service.ready})

    def announce() -> None:
        host, port = service.address
        print(f"ready: re-requests are answered at {host}:{port}", flush=True)

    with serve(settings, metrics.registry, health):
        service.serve(lifecycle.stopping, announce)
    return 0


def main(arguments: list[str]) -> int:
    parser(__doc__).parse_args(arguments)
    return application.run(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
