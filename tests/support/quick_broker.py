"""A broker that tests kill and start again."""

from __future__ import annotations

from pathlib import Path

from lab.up.broker import Broker

#: A broker that was killed may not register again before its session is over: by default 9 seconds.
_SESSION = """
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
"""


class QuickBroker(Broker):
    """A broker that can be revived at once."""

    def _write_properties(self, port: int, controller: int) -> Path:
        path = super()._write_properties(port, controller)
        path.write_text(path.read_text() + _SESSION)
        return path
