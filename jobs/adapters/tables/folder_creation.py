"""Creation of Delta tables in a folder of this machine with delta-rs."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from deltalake import DeltaTable, Schema

from stackcast.jobs.adapters.runtime.clock import Clock
from stackcast.jobs.adapters.tables.definitions import TableDefinition

log = logging.getLogger(__name__)

#: Properties that make delta-rs require a version of the protocol in which constraints are checked.
_FEATURES = ("delta.enableChangeDataFeed",)


def create(
    path: str, definition: TableDefinition, defaults: Mapping[str, str], clock: Clock
) -> None:
    """Create a table if it does not exist.

    Args:
        path: folder of the table.
        definition: schema, comment and properties.
        defaults: properties that the definition may override.
        clock: clock for the time of the commit.

    Raises:
        DeltaError: delta-rs cannot create the table.
        OSError: a file could not be written.
    """
    properties = {**defaults, **definition.properties}
    # delta-rs requires support for constraints only together with support for change feeds.
    constraints = any(key.startswith("delta.constraints.") for key in properties)
    features = {key for key, value in properties.items() if key in _FEATURES and value == "true"}
    if constraints and not features:
        _commit_constrained(Path(path), definition, properties, clock)
        return
    DeltaTable.create(
        path,
        Schema.from_json(definition.schema),
        mode="ignore",
        description=definition.comment,
        configuration=properties,
        raise_if_key_not_exists=False,
    )


def _commit_constrained(
    path: Path, definition: TableDefinition, properties: Mapping[str, str], clock: Clock
) -> None:
    """Commit version 0 of a table whose only feature is constraints, unless the table exists."""
    milliseconds = int(clock.wall_time() * 1000)
    actions = (
        {
            "commitInfo": {
                "timestamp": milliseconds,
                "operation": "CREATE TABLE",
                "operationParameters": {"properties": json.dumps(dict(properties))},
                "engineInfo": "Stackcast",
            }
        },
        # Writers of this version check constraints.
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "description": definition.comment,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": definition.schema,
                "partitionColumns": [],
                "configuration": dict(properties),
                "createdTime": milliseconds,
            }
        },
    )
    log_folder = path / "_delta_log"
    log_folder.mkdir(parents=True, exist_ok=True)
    if any(log_folder.glob("*.json")):
        return
    complete = log_folder / f".{uuid.uuid4()}.tmp"
    complete.write_text("".join(json.dumps(action) + "\n" for action in actions))
    try:
        # Fails if another program has just committed this version.
        os.link(complete, log_folder / f"{0:020d}.json")
    except FileExistsError:
        log.debug("%s exists", path)
    finally:
        complete.unlink()
