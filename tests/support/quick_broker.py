"""A broker that tests kill and start again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Self

from stackcast.lab.up.broker import Broker
from stackcast.lab.up.process import stop_process

#: A broker that was killed may not register again before its session is over: by default 9 seconds.
#: By default the cleaner of compacted topics waits 15 seconds between two runs.
#: Some tests publish records with times that are years old. By default the broker deletes records
#: older than seven days, at a moment that no test knows.
_INTERVALS = """
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
log.cleaner.backoff.ms=500
log.retention.ms=-1
"""


class QuickBroker(Broker):
    """A broker that can be killed, and started again at once."""

    def kill(self) -> None:
        """End the broker at once, as a crash does (SIGKILL). Its data stay: see `revive`."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            stop_process(child, 0)

    def revive(self, timeout: float = 60) -> Self:
        """Start a broker that has ended again, with its data and at its address."""
        if not self.alive():
            self.stop()
            self._child = self._spawn(("kafka.Kafka", str(self.folder / "server.properties")))
            self._wait_until_it_answers(timeout)
        return self

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
