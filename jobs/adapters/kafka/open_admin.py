"""Choice of the client for the administration of Kafka."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.kafka import admin_errors
from stackcast.jobs.adapters.kafka.admin import KafkaAdmin
from stackcast.jobs.adapters.kafka.java_admin import JavaAdmin
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.adapters.kafka.python_admin import PythonAdmin
from stackcast.udfs.errors import KafkaError


def open_admin(spark: SparkSession, kafka: Mapping[str, str]) -> KafkaAdmin:
    """Return a client for the administration of Kafka.

    Args:
        spark: session whose JVM has the Java client.
        kafka: options of the Java client by name.

    Raises:
        KafkaError: BAD_OPTION, if the options name no broker.
    """
    if not kafka.get("bootstrap.servers"):
        raise admin_errors.no_servers()
    try:
        options = fetch_options(kafka)
    except KafkaError:
        return JavaAdmin(spark, kafka)
    return PythonAdmin(options.client)
