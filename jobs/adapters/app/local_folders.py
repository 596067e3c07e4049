"""The folders in which Spark keeps temporary files of an application, removed if it was killed.

Spark removes them when its JVM ends, but not after SIGKILL or a power failure. Each application
therefore marks its own folders with a file that it keeps locked, and the next one on the machine
removes marked folders whose lock no process holds.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: File in a folder ``spark-*`` of Spark. Its lines are paths of the application's other folders.
MARK = "stackcast.lock"

#: Marks of this process. An open file holds its lock.
_marks: dict[Path, TextIO] = {}


def claim(spark: SparkSession) -> None:
    """Mark the folders of this application, and remove those of applications that were killed."""
    context: Any = spark.sparkContext
    utils, conf = context._jvm.org.apache.spark.util.Utils, context._jsc.sc().conf()
    environment = context._jvm.org.apache.spark.SparkEnv.get()
    blocks = environment.blockManager().diskBlockManager().localDirs()
    try:
        mark(Path(utils.getLocalDir(conf)), [Path(folder.getPath()) for folder in blocks])
    except OSError as error:  # a file system without locks, for example
        log.warning("Spark's temporary files will remain if this job is killed: %s", error)
    remove_leftovers([Path(folder) for folder in utils.getConfiguredLocalDirs(conf)])


def mark(root: Path, blocks: Iterable[Path]) -> None:
    """Mark folders as those of this process, for as long as it lives.

    Args:
        root: folder ``spark-*``, in which Python's broadcasts are.
        blocks: folders ``blockmgr-*``, one per local directory of Spark.
    """
    path = root / MARK
    if path not in _marks:
        # Another process must not see the file before it is locked.
        new = path.with_suffix(".new")
        file = new.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        new.rename(path)
        _marks[path] = file
    print(*blocks, sep="\n", file=_marks[path], flush=True)


def remove_leftovers(directories: Collection[Path]) -> None:
    """Remove what applications of this user that no longer run have left.

    Args:
        directories: local directories of Spark.
    """
    for path in (path for each in directories for path in sorted(each.glob(f"spark-*/{MARK}"))):
        try:
            if not _is_own(path.parent) or not _is_own(path):
                continue
            with path.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for block in map(Path, file.read().splitlines()):
                    if block.parent in directories and block.name.startswith("blockmgr-"):
                        _remove(block)
                _remove(path.parent)
        except OSError:  # its application runs, or another start has removed it
            continue
        log.info("removed temporary files of a killed application: %s", path.parent)


def _is_own(path: Path) -> bool:
    return path.lstat().st_uid == os.getuid() and not path.is_symlink()


def _remove(folder: Path) -> None:
    if folder.exists() and _is_own(folder):
        shutil.rmtree(folder, ignore_errors=True)
