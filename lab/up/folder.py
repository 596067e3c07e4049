"""The folder of a lab: whose it is, who runs in it, and what of an earlier run is removed."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from stackcast.udfs.errors import LabError

#: Says that a folder was taken by a lab when it was empty, so that all in it is the lab's.
MARKER = ".stackcast-lab"
_MARKER_TEXT = (
    "Stackcast runs its lab in this folder, and deletes the files of earlier runs in it.\n"
)
_TRIES, _PROBE_S = 5, 0.02

#: What a run leaves in its folder and the next one must not find. Logs stay.
_LEFTOVERS = (
    "tables",
    "checkpoint",
    "receipts",
    "broker",
    "network",
    "network.json",
    "lab.conf",
    "report.json",
    "report.html",
    "session.NASDAQ_ITCH50",
    "sensors.jsonl",
    "generate.log",
)


def state_file(folder: Path) -> Path:
    """Returns the file with process and addresses of a background lab, there while it is up."""
    return folder / "lab.json"


def read_state(folder: Path) -> dict[str, Any] | None:
    """Returns what the background lab of a folder says of itself; None if none runs there.

    A file alone proves nothing, as process ids are used again: its process must hold the lock too.
    """
    try:
        state: dict[str, Any] = json.loads(state_file(folder).read_text())
        pid = int(state["pid"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    return state if FolderLock(folder).holder() == pid else None


def write_whole(path: Path, text: str) -> None:
    """Writes a file in one step, so that nobody reads half of it; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def claim(folder: Path) -> None:
    """Makes the folder a lab's own: a new or empty one becomes it, one of a lab is it.

    Raises ``LabError`` ``NOT_A_LAB`` if it holds anything else; nothing is written then.
    """
    try:
        if (folder / MARKER).is_file():
            return
        folder.mkdir(parents=True, exist_ok=True)
        held = {path.name for path in folder.iterdir()}
        # Another lab that starts now may have written these two.
        if held <= {MARKER, "lock"}:
            (folder / MARKER).write_text(_MARKER_TEXT)
            return
    except OSError as error:
        raise _not_a_lab(folder, f"cannot be used ({error.strerror})") from None
    raise _not_a_lab(folder, "contains files that do not belong to a lab")


def _not_a_lab(folder: Path, why: str) -> LabError:
    return LabError(
        "NOT_A_LAB",
        f"{folder} {why}: choose a new or empty folder with --folder, because the lab deletes "
        "files in its folder",
        folder=str(folder),
    )


def clear(folder: Path) -> None:
    """Removes what an earlier run left. Raises ``LabError`` ``FOLDER_NOT_EMPTIED``."""
    for name in _LEFTOVERS:
        path = folder / name
        try:
            # A link is removed, never what it leads to.
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise LabError(
                "FOLDER_NOT_EMPTIED",
                f"{path} of an earlier run cannot be removed: {error.strerror}",
            ) from None


class FolderLock:
    """The right to run a lab in a folder. Taken by at most one process, freed at its end.

    ``holder`` tells who has it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """True if this object has taken the lock."""
        return self._descriptor is not None

    def take(self) -> None:
        """Claims the folder, and locks it.

        Raises ``LabError`` ``NOT_A_LAB`` (see ``claim``), ``BUSY`` if another lab runs in it.
        """
        claim(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        for _ in range(_TRIES):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PROBE_S)  # it may only have been looked at (``holder``)
        else:
            os.close(descriptor)
            raise self._busy()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def _busy(self) -> LabError:
        holder = self.holder()
        who = f"process {holder}" if holder else "another process"
        return LabError(
            "BUSY",
            f"{who} runs a lab in {self.path.parent}: stop it ('stackcast lab down' if "
            "'stackcast lab up' started it), or choose another folder",
            folder=str(self.path.parent),
            pid=holder,
        )

    def free(self) -> None:
        """Gives the lock back. Does nothing if it is not held."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def check(self) -> None:
        """Raises ``LabError`` ``BUSY`` if somebody holds the lock."""
        if self.holder() is not None:
            raise self._busy()

    def holder(self) -> int | None:
        """Process id of who holds the lock, None if nobody does.

        The file of a lock outlives its holder, so the lock itself is asked.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            text = os.pread(descriptor, 20, 0).decode()
            return int(text) if text.isdecimal() else None
        finally:
            os.close(descriptor)
