"""The embedded default of the main job: one trading session, through the stream or by switches."""

from __future__ import annotations

from jobs.adapters.app.lifecycle import Lifecycle
from jobs.adapters.app.settings import Settings
from jobs.embedded import network, stream
from jobs.embedded.kinds import TradingSession


def run(settings: Settings, lifecycle: Lifecycle) -> int:
    """Runs once, by what `spark.stackcast.match` says. Returns the exit code."""
    way = network if settings.match == "network" else stream
    return way.run(settings, lifecycle, TradingSession())
