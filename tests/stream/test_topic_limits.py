"""Samples of dead letters hold up a batch for seconds, whatever is wrong with their topic."""

from __future__ import annotations

from typing import Any

import pytest

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.kafka.topics import Topics
from stackcast.jobs.adapters.stream.health import BATCH_SECONDS

pytestmark = pytest.mark.unit

#: Spark's `spark.task.maxFailures` where nobody sets it.
ATTEMPTS = 4
BROKER = {"bootstrap.servers": "k:9092"}


class Session:
    """Takes the options of a writer, as a Spark session, and of a producer, as its JVM."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return self.option if name == "setProperty" else self

    def __call__(self, *_: object) -> Any:
        return self

    def option(self, key: str, value: object) -> Session:
        self.options[key.removeprefix("kafka.")] = str(value)
        return self


def of_batches(kafka: dict[str, str]) -> dict[str, str]:
    session: Any = Session()
    Topics(session, Settings(kafka=BROKER | kafka)).write_dead_letters([{"offset": 3}])
    return dict(session.options)


def test_a_topic_that_is_missing_or_lacks_replicas_holds_a_batch_for_less_than_its_health_allows():
    options = of_batches({})
    assert options["bootstrap.servers"] == "k:9092"
    # First for what is known of the topic, then for its replicas.
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
def test_options_of_the_deployment_hold_and_go_together(kafka):
    options = of_batches(kafka)
    assert kafka.items() <= options.items()
    # Kafka refuses a producer with less.
    least = int(options["request.timeout.ms"]) + int(options.get("linger.ms", 0))
    assert int(options["delivery.timeout.ms"]) >= least
