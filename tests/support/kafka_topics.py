"""The topic of a deployment, as sessions depend on it."""

from __future__ import annotations

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.lab.traffic.publisher import topic_id
from stackcast.udfs.messages.sequence import Topic


def kafka_topic(settings: Settings) -> Topic:
    """Returns the topic with the id that Kafka gave it, in generation 0."""
    servers = settings.kafka["bootstrap.servers"]
    return Topic(settings.topic, topic_id(servers, settings.topic))
