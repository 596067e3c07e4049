"""Backup of a deployment: tables, checkpoint and positions in the topic, of one moment.

All three belong together: a checkpoint names versions of the tables and offsets of the topic, and
the ledger the batches of a checkpoint. So a backup takes the place of the stream while it copies.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.places import sync
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.checkpoint.files import LocalFolder, open_folder
from stackcast.jobs.adapters.checkpoint.progress import position
from stackcast.jobs.adapters.tables.definitions import NAMES
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.udfs.errors import TableError

#: What is in a backup beside the folders of these names.
MANIFEST = "backup.json"
TABLES, CHECKPOINT = "tables", "checkpoint"
LAYOUT = 1
#: Of all backups: each may take the place that one before it left.
_OWNER = "backup"


def create(
    spark: SparkSession, settings: Settings, folder: Path, *, take_over: bool = False
) -> dict[str, Any]:
    """Makes a backup in a new folder, whole or not at all; returns what its manifest says.

    take_over: from a stream that runs, which ends, or that has died. Raises TableError
    WRITER_ACTIVE, NOT_LOCAL, NOT_EMPTY, MISSING; StreamError CHECKPOINT_UNREADABLE.
    """
    tables, places = _places(spark, settings)
    _refuse_existing(folder)
    fence = _claim(spark, settings, tables, take_over=take_over)
    try:
        stands = position(spark, settings.checkpoint)
        manifest: dict[str, Any] = {
            "layout": LAYOUT,
            "made_at": dt.datetime.now(dt.UTC).isoformat(),
            "topic": settings.topic,
            "next_batch": 0 if stands is None else stands.batch,
            "offsets": {} if stands is None else {str(p): o for p, o in stands.offsets.items()},
            "versions": {name: tables.version(name) for name in NAMES},
        }
        draft = folder.with_name(f".{folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        for name, version in manifest["versions"].items():
            _copy_table(places[TABLES] / name, draft / TABLES / name, version)
        if places[CHECKPOINT].exists():
            shutil.copytree(places[CHECKPOINT], draft / CHECKPOINT)
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _sync_all(draft)
        draft.rename(folder)
        sync(folder.parent)
    finally:
        fence.release()
    return manifest


def restore(spark: SparkSession, settings: Settings, folder: Path) -> dict[str, Any]:
    """Puts tables and checkpoint where the settings say, and nothing is yet; returns the manifest.

    Raises TableError NO_BACKUP, NEWER_LAYOUT, NOT_LOCAL, NOT_EMPTY.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        layout = int(manifest["layout"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TableError(
            "NO_BACKUP", f"{folder} is not a complete backup: cannot read {MANIFEST}: {error}"
        ) from error
    if layout > LAYOUT:
        raise TableError(
            "NEWER_LAYOUT",
            f"the backup in {folder} has layout {layout}, but this version of Stackcast supports "
            f"layouts up to {LAYOUT}: use the version that wrote the backup, or a newer one",
        )
    tables, places = _places(spark, settings)
    for place in places.values():
        _refuse_existing(place)
    for name, place in places.items():
        if not (folder / name).exists():
            continue
        draft = place.with_name(f".{place.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(folder / name, draft)
        _sync_all(draft)
        if place.exists():
            place.rmdir()
        draft.rename(place)
        sync(place.parent)
    _claim(spark, settings, tables).release()
    return manifest


def _places(spark: SparkSession, settings: Settings) -> tuple[Tables, dict[str, Path]]:
    tables = open_tables(spark, settings.tables)
    checkpoint = open_folder(spark, settings.checkpoint)
    if not tables.local or not isinstance(checkpoint, LocalFolder):
        raise TableError(
            "NOT_LOCAL",
            f"cannot copy {PREFIX}tables and {PREFIX}checkpoint, because they are not both local "
            "folders: stop the stream, and copy both with the tools of the storage",
        )
    return tables, {TABLES: Path(tables.location), CHECKPOINT: Path(checkpoint.path(""))}


def _claim(
    spark: SparkSession, settings: Settings, tables: Tables, *, take_over: bool = False
) -> Fence:
    fence = Fence(tables, f"stream of {settings.topic}")
    application, patience = str(spark.sparkContext.applicationId), settings.wait_seconds
    fence.claim(_OWNER, application, take_over=take_over, patience=patience)
    return fence


def _refuse_existing(place: Path) -> None:
    if place.exists() and any(place.iterdir()):
        raise TableError(
            "NOT_EMPTY",
            (
                f"{place} is not empty, and existing files are never overwritten: name another "
                "folder"
            ),
        )


def _copy_table(table: Path, copy: Path, version: int) -> None:
    """Copies a table that others may write meanwhile, as of a version or with versions after it:
    first the log up to there, then the files, which are there before a commit names them."""

    def later(_: str, names: list[str]) -> list[str]:
        return [n for n in names if n[:20].isdigit() and int(n[:20]) > version]

    log = table / "_delta_log"
    shutil.copytree(log, copy / "_delta_log", ignore=later)
    shutil.copytree(table, copy, ignore=shutil.ignore_patterns("_delta_log"), dirs_exist_ok=True)


def _sync_all(folder: Path) -> None:
    for at, _, names in os.walk(folder):
        sync(*(Path(at, name) for name in names), Path(at))
