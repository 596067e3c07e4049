"""Backups of a deployment: its tables, its checkpoint and its offsets at the same time.

The checkpoint names versions of the tables and offsets of the topic, and the ledger names batches
of the checkpoint, so the three are copied together. Meanwhile, the backup holds the role of the
stream, so that no stream changes them.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from stackcast.jobs.adapters.app.durability import sync
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.checkpoint.files import Folder
from stackcast.jobs.adapters.checkpoint.local_files import LocalFolder
from stackcast.jobs.adapters.checkpoint.progress import position
from stackcast.jobs.adapters.runtime.clock import SYSTEM_CLOCK, Clock, utc
from stackcast.jobs.adapters.tables.definitions import NAMES
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.udfs.errors import TableError

#: File of a backup, next to its folders `TABLES` and `CHECKPOINT`.
MANIFEST = "backup.json"
TABLES, CHECKPOINT = "tables", "checkpoint"
LAYOUT = 1
#: All backups have the same owner, so that one may continue where another was interrupted.
_OWNER = "backup"


def create(
    settings: Settings,
    tables: Tables,
    checkpoint: Folder,
    folder: Path,
    application: str,
    *,
    take_over: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """Create a backup, which is complete or missing after a crash.

    Args:
        settings: settings of the deployment.
        tables: tables of the deployment.
        checkpoint: checkpoint of the deployment.
        folder: folder to create.
        application: id of this application.
        take_over: end a stream that runs, or replace one that has died.
        clock: clock for the time of the backup.

    Returns:
        The manifest of the backup.

    Raises:
        TableError: ``WRITER_ACTIVE``, ``NOT_LOCAL``, ``NOT_EMPTY``, ``MISSING``.
        StreamError: ``CHECKPOINT_UNREADABLE``.
    """
    places = _places(tables, checkpoint)
    _refuse_existing(folder)
    fence = _claim(settings, tables, application, take_over=take_over)
    try:
        progress = position(checkpoint)
        offsets = {} if progress is None else progress.offsets
        manifest: dict[str, Any] = {
            "layout": LAYOUT,
            "made_at": utc(clock).isoformat(),
            "topic": settings.topic,
            "next_batch": 0 if progress is None else progress.batch,
            "offsets": {str(partition): offset for partition, offset in offsets.items()},
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


def restore(
    settings: Settings, tables: Tables, checkpoint: Folder, folder: Path, application: str
) -> dict[str, Any]:
    """Copy a backup to a deployment that has no tables and no checkpoint yet.

    Args:
        settings: settings of the deployment.
        tables: tables of the deployment.
        checkpoint: checkpoint of the deployment.
        folder: folder of the backup.
        application: id of this application.

    Returns:
        The manifest of the backup.

    Raises:
        TableError: ``NO_BACKUP``, ``NEWER_LAYOUT``, ``NOT_LOCAL``, ``NOT_EMPTY``.
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
    places = _places(tables, checkpoint)
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
    _claim(settings, tables, application).release()
    return manifest


def _places(tables: Tables, checkpoint: Folder) -> dict[str, Path]:
    if not tables.local or not isinstance(checkpoint, LocalFolder):
        raise TableError(
            "NOT_LOCAL",
            f"cannot copy {PREFIX}tables and {PREFIX}checkpoint, because they are not both local "
            "folders: stop the stream, and copy both with the tools of the storage",
        )
    return {TABLES: Path(tables.location), CHECKPOINT: Path(checkpoint.path())}


def _claim(
    settings: Settings, tables: Tables, application: str, *, take_over: bool = False
) -> Fence:
    fence = Fence(tables, f"stream of {settings.topic}")
    fence.claim(_OWNER, application, take_over=take_over, patience=settings.wait_seconds)
    return fence


def _refuse_existing(place: Path) -> None:
    if place.exists() and any(place.iterdir()):
        raise TableError(
            "NOT_EMPTY",
            f"{place} is not empty, and existing files are never overwritten: name another folder",
        )


def _copy_table(table: Path, copy: Path, version: int) -> None:
    """Copy a table up to a version. Other programs may write to the table meanwhile.

    The log is copied first: all files that it names exist before their commit, so the copy of the
    files after it is complete.
    """

    def later(_: str, names: list[str]) -> list[str]:
        return [n for n in names if n[:20].isdigit() and int(n[:20]) > version]

    log = table / "_delta_log"
    shutil.copytree(log, copy / "_delta_log", ignore=later)
    shutil.copytree(table, copy, ignore=shutil.ignore_patterns("_delta_log"), dirs_exist_ok=True)


def _sync_all(folder: Path) -> None:
    for path, _, names in os.walk(folder):
        sync(*(Path(path, name) for name in names), Path(path))
