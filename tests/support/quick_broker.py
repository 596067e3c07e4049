"""A broker that tests kill and start again."""

from __future__ import annotations

import shutil
from pathlib import Path

from stackcast.lab.up.broker import Broker

#: A broker that was killed may not register again before its session is over: by default 9 seconds.
#: By default the cleaner of compacted topics waits 15 seconds between two looks.
_INTERVALS = """
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
log.cleaner.backoff.ms=500
"""


class QuickBroker(Broker):
    """A broker that can be revived at once."""

    def save(self, topic: str) -> None:
        """Keep a copy of the files of a topic, for `truncate`."""
        for partition in sorted((self.folder / "data").glob(f"{topic}-*")):
            shutil.copytree(partition, self.folder / "saved" / partition.name)

    def truncate(self, topic: str) -> None:
        """Take the topic back to what it was at `save`, and start under new leader epochs.

        A broker that became leader without all records (unclean leader election) has such a log.
        """
        self.kill()
        for saved in sorted((self.folder / "saved").glob(f"{topic}-*")):
            partition = self.folder / "data" / saved.name
            shutil.rmtree(partition)
            saved.rename(partition)
        self.revive(300)

    def _write_properties(self, port: int, controller: int) -> Path:
        path = super()._write_properties(port, controller)
        path.write_text(path.read_text() + _INTERVALS)
        return path
