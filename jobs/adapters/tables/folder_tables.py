"""Tables in a folder of this machine for programs that have no Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import TableError


class _NoSession:
    """Takes the place of a session. Any use of it is an error, which names the way with Spark."""

    def __init__(self, place: str) -> None:
        self._place = place
        #: Without a session, new tables have no properties other than their own.
        self.conf = SimpleNamespace(getAll={})

    def __getattr__(self, name: str) -> Any:
        raise TableError(
            "NEEDS_SPARK",
            f"delta-rs cannot read or write the tables in {self._place}, for example because one "
            "has deletion vectors: use jobs/run_sql.py",
        )


def open_folder(place: str) -> Tables:
    """Returns the tables in a folder, read and written by delta-rs alone.

    Args:
        place: path of the folder, or the value of ``spark.stackcast.tables``.

    Raises:
        TableError: NEEDS_SPARK, if the tables are in an object store or in a catalog. Later calls
            of the tables raise it for a table that delta-rs cannot read or write.
    """
    path = place.removeprefix("file:") if "://" not in place else place.removeprefix("file://")
    if "://" in path or ("/" not in path and ":" not in path and not Path(path).is_dir()):
        raise TableError(
            "NEEDS_SPARK",
            f"the tables are in {place}, which is not a local folder: use jobs/run_sql.py, which "
            "supports object stores and catalogs",
        )
    session: Any = _NoSession(path)
    return Tables(session, f"file:{Path(path).absolute()}")
