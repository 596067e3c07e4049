"""What a batch of attribute/value events goes through before the workers read it."""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame

from jobs.adapters.app.error_texts import SQL_ERRORS, one_line
from jobs.adapters.app.settings import Settings
from jobs.adapters.planning import formats
from jobs.adapters.stream.attribute_input import unknown_names, with_pairs
from jobs.adapters.tables.attribute_registry import register
from jobs.adapters.tables.tables import Tables
from udfs.errors import StackcastError
from udfs.messages.attributes.events import LONGEST_JSON
from udfs.messages.attributes.registry import FORMAT as ATTRIBUTES

log = logging.getLogger(__name__)

REGISTRANT = "stream"
#: Most names that one line of the log shows.
_SHOWN = 10


class EventInput:
    """Of other formats than attributes it changes nothing."""

    def __init__(self, settings: Settings, tables: Tables) -> None:
        self._tables = tables
        self._json = settings.format == ATTRIBUTES and settings.attributes_input == "json"
        self._registers = self._json and settings.attributes_unknown == "register"

    def prepare(self, records: DataFrame) -> DataFrame:
        """The records, with what Spark parses of them."""
        return with_pairs(records, LONGEST_JSON) if self._json else records

    def register_new(self, records: DataFrame, batch_id: int) -> None:
        """Give ids to the names that a batch has and the table lacks, where settings say so.

        Before the batch is planned, so that its events go out with them, in their order.
        """
        if not self._registers:
            return
        try:
            registry = formats.registry_of(self._tables)
            names = unknown_names(records, registry)
            if not names:
                return
            _, new = registry.with_new(names)
            if new:
                # Another stream may have been faster: then the names have the ids that it gave.
                registry = register(self._tables, new, REGISTRANT)
        except (StackcastError, *SQL_ERRORS) as error:
            # Events of names without an id are dead letters, and the others go on.
            log.error(
                "batch %d: new attributes could not be registered: %s", batch_id, one_line(error)
            )
            return
        found = registry.by_name
        for name in sorted(names.keys() & found.keys()):
            log.info(
                "batch %d: attribute %s is registered with id %d", batch_id, name, found[name].id
            )
        left = sorted(names.keys() - found.keys())
        if left:
            shown = ", ".join(left[:_SHOWN])
            log.warning("batch %d: %d names are not registered: %s", batch_id, len(left), shown)
