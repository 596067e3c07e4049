"""Progress reports of a stream for the listeners of a Spark session, and for its log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.stream.progress_reports import Event, ProgressReports

log = logging.getLogger(__name__)

#: Logger of Log4j that writes one line per report at level INFO.
LOGGER = "stackcast.progress"
_LISTENER = "org.apache.spark.sql.streaming.StreamingQueryListener"


class SparkListeners:
    """Posts events to all listeners of a session, as a ``StreamingQuery`` does.

    These are the listeners that ``spark.streams.addListener`` and the property
    ``spark.sql.streaming.streamingQueryListeners`` add, and the page Structured Streaming of
    Spark's web interface. Spark has no public method for this. If its version does not support it,
    the log contains one warning, and no events are posted.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._streams: Any = spark._jsparkSession.streams()
        self._log = jvm.org.apache.logging.log4j.LogManager.getLogger(LOGGER)
        self._posts = True

    def onQueryStarted(self, event: Event) -> None:  # noqa: N802 - names of Spark
        self._post("QueryStartedEvent", event)

    def onQueryProgress(self, event: Event) -> None:  # noqa: N802
        self._log.info(json.dumps(event["progress"], separators=(",", ":")))
        self._post("QueryProgressEvent", event)

    def onQueryIdle(self, event: Event) -> None:  # noqa: N802
        self._post("QueryIdleEvent", event)

    def onQueryTerminated(self, event: Event) -> None:  # noqa: N802
        def create() -> Any:
            # Spark's conversion from JSON returns the text "null" for a missing error.
            ids = [self._jvm.java.util.UUID.fromString(event[name]) for name in ("id", "runId")]
            error = [event["exception"], event["errorClassOnException"]]
            options = [self._jvm.scala.Option.apply(text) for text in error]
            return getattr(self._jvm, f"{_LISTENER}$QueryTerminatedEvent")(*ids, *options)

        self._post_created(create)

    def _post(self, kind: str, event: Event) -> None:
        def create() -> Any:
            companion = getattr(self._jvm, f"{_LISTENER}${kind}$")
            return getattr(companion, "MODULE$").fromJson(json.dumps(event))

        self._post_created(create)

    def _post_created(self, create: Callable[[], Any]) -> None:
        if not self._posts:
            return
        try:
            self._streams.postListenerEvent(create())
        except (Py4JError, TypeError) as error:
            self._posts = False
            log.warning("listeners of Spark receive no events: %s", one_line(error))


def reports_to_spark(spark: SparkSession, query_id: str, settings: Settings) -> ProgressReports:
    """Return the progress reports of a stream, for the listeners of its session."""
    listeners = [SparkListeners(spark)]
    parse = StreamingQueryProgress.fromJson
    return ProgressReports(query_id, settings.topic, settings.sink, listeners, parse)
