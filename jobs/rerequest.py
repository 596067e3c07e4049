"""The service of re-requests: answers hosts that lost notifications, by computing them again.

    spark-submit [--properties-file conf/X.conf] jobs/rerequest.py

Give it the properties of the stream. It takes MoldUDP64 request packets at
`spark.stackcast.rerequest.listen` and runs until SIGTERM. On standard output it prints a line that
begins with `ready` when the newest plan is prepared, so that no answer waits for a cold start.
"""

from __future__ import annotations

import sys

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.health import Health
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.metrics_server import serve
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.replay.metrics import RerequestMetrics
from stackcast.jobs.adapters.replay.service import Rerequests
from stackcast.jobs.adapters.stream.kafka import Topics
from stackcast.jobs.adapters.tables.tables import Tables

#: Without a look at the tables for so long while requests wait, the service is not well, seconds.
STALE_SECONDS = 60.0


def answer(settings: Settings, lifecycle: Lifecycle) -> int:
    settings = formats.of_settings(settings, settings.format)
    settings.require_broker()
    spark = session.start("stackcast rerequest")
    lifecycle.hold_jvm(spark)
    Topics(spark, settings).wait(lifecycle.stopping.is_set)
    tables = Tables(spark, settings.tables)
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


if __name__ == "__main__":
    sys.exit(application.run(answer))
