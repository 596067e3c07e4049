"""Spark properties for one machine, which an embedded run needs from whatever starts it.

``spark-submit.sh`` has Spark read ``conf/spark-defaults.conf``. A Spark of the user's own does not
know that file.
"""

from __future__ import annotations

from stackcast.installation import shipped
from stackcast.jobs.adapters.app.settings import KAFKA_PREFIX, PREFIX

#: Properties that a JVM takes only at its start, or that ``spark-submit`` always sets.
_TOO_LATE = ("spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions")


def spark_properties() -> dict[str, str]:
    """Return the properties of Spark itself that a session can still take."""
    return {
        key: value
        for key, value in _defaults().items()
        if not key.startswith(PREFIX) and key not in _TOO_LATE
    }


def kafka_options() -> dict[str, str]:
    """Return the options of Kafka's client: how records are fetched."""
    return {
        key.removeprefix(KAFKA_PREFIX): value
        for key, value in _defaults().items()
        if key.startswith(KAFKA_PREFIX)
    }


def _defaults() -> dict[str, str]:
    lines = shipped("conf/spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.startswith("spark."))
    return {key: value.strip() for key, value in pairs}
