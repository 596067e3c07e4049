"""Where the files of Stackcast are: those that it is shipped with, and those that it writes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path


def shipped(name: str) -> Path:
    """Return the path of a file or folder that the package is shipped with.

    The package contains the folders ``p4``, ``conf`` and ``docs``: in a checkout as links to the
    folders of these names, in a wheel as copies of what programs read. If Python imports the
    package from a zip archive, the archive is unpacked below `var_folder`.

    Args:
        name: path below the package, such as ``p4/compiled`` or ``conf/ivy.xml``.
    """
    package = Path(__file__).parent
    archive = package.parent
    if archive.is_file():
        package = _unpacked(archive) / package.name
    return (package / name).resolve()


def var_folder() -> Path:
    """Return the folder of everything that programs write.

    This is ``$STACKCAST_VAR``; without it, ``var`` below ``$STACKCAST_HOME``, which is the checkout
    for programs that ``spark-submit.sh`` starts; without both, ``var`` below the current folder.
    """
    folder = os.environ.get("STACKCAST_VAR")
    return Path(folder) if folder else Path(os.environ.get("STACKCAST_HOME") or "") / "var"


@cache
def _unpacked(archive: Path) -> Path:
    """Return the folder with the content of a zip archive, which is unpacked there once."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    folder = var_folder() / "unpacked" / digest
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            content = Path(temporary) / digest
            with zipfile.ZipFile(archive) as file:
                file.extractall(content)
            # Another process may have been faster.
            with contextlib.suppress(OSError):
                content.rename(folder)
    return folder
