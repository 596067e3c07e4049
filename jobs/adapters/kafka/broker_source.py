"""The source of records in production: tasks of Spark fetch them from the brokers."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

from stackcast.jobs.adapters.kafka.client import Fetcher, client_of
from stackcast.jobs.adapters.kafka.options import FetchOptions


@dataclass(frozen=True)
class BrokerSource:
    """Brokers.

    Attributes:
        options: options of the client.
    """

    options: FetchOptions

    def reader(self) -> Fetcher:
        return client_of(self.options)

    def runs_again(self) -> bool:
        context = TaskContext.get()
        return context is not None and context.attemptNumber() > 0
