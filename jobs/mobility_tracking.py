"""The use case of replicated state (STARE I-A): where do devices go, and how fast, in a city.

    spark-submit [--conf spark.stackcast.mobility.KEY=VALUE ...] jobs/mobility_tracking.py

Brings up a lab: switches that replicate states, a middleware a host, the replica controller, WiFi
scanners that report, and a VNF an edge cloud, which holds its neighbours' sightings and tells
movements between their edges and its own. A Structured Streaming query beside it tells those of the
whole city, from the same reports in Kafka. At the end all is held against brute force: exit code 0
only if every replica is what it should be, and every movement right. A page shows the run.
"""

from __future__ import annotations

import sys

from stackcast.jobs.adapters.app import application
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded import mobility
from stackcast.udfs.errors import SettingsError


def track(settings: Settings, lifecycle: Lifecycle) -> int:
    if not settings.embedded:
        raise SettingsError(
            "BAD_VALUE",
            "the use case of mobility runs in a lab of its own, with a broker of its own: leave "
            "out spark.stackcast.kafka.bootstrap.servers. docs/states.md says how a deployment's "
            "programs replicate states",
        )
    return mobility.run(settings, lifecycle)


if __name__ == "__main__":
    sys.exit(application.run(track))
