"""Problems with the topic of dead letters delay a batch for seconds only."""

from __future__ import annotations

from typing import Any

import pytest

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream.health import BATCH_SECONDS

pytestmark = pytest.mark.unit

#: Default of `spark.task.maxFailures`.
ATTEMPTS = 4
BROKER = {"bootstrap.servers": "k:9092"}


class Session:
    """Records the options of a writer, like a Spark session, and of a producer, like its JVM."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return self.option if name == "setProperty" else self

    def __call__(self, *_: object) -> Any:
        return self

    def option(self, key: str, value: object) -> Session:
        self.options[key.removeprefix("kafka.")] = str(value)
        return self


def producer_options(kafka: dict[str, str]) -> dict[str, str]:
    session: Any = Session()
    Topics(session, Settings(kafka=BROKER | kafka)).write_dead_letters([{"offset": 3}])
    return dict(session.options)


def test_a_missing_topic_or_replica_delays_a_batch_for_less_time_than_health_allows():
    options = producer_options({})
    assert options["bootstrap.servers"] == "k:9092"
    # An attempt waits for the metadata of the topic, and then for its replicas.
    try_ms = int(options["max.block.ms"]) + int(options["delivery.timeout.ms"])
    assert ATTEMPTS * try_ms / 1000 < BATCH_SECONDS / 2


@pytest.mark.parametrize(
    "kafka",
    [
        {"request.timeout.ms": "30000"},
        {"request.timeout.ms": "5000", "linger.ms": "2000"},
        {"delivery.timeout.ms": "90000", "request.timeout.ms": "30000", "max.block.ms": "7"},
    ],
)
def test_options_of_the_deployment_have_priority_and_fit_together(kafka):
    options = producer_options(kafka)
    assert kafka.items() <= options.items()
    # Kafka refuses a producer with a smaller value.
    least = int(options["request.timeout.ms"]) + int(options.get("linger.ms", 0))
    assert int(options["delivery.timeout.ms"]) >= least
