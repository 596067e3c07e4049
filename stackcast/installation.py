"""Where the files of Stackcast are: those that it is shipped with, and those that it writes."""

from __future__ import annotations

import os
from pathlib import Path


def shipped(name: str) -> Path:
    """Return the path of a file or folder that the package is shipped with.

    The package contains the folders ``p4``, ``conf`` and ``docs``: in a checkout as links to the
    folders of these names, in a wheel as copies of what programs read.

    Args:
        name: path below the package, such as ``p4/compiled`` or ``conf/ivy.xml``.
    """
    return (Path(__file__).parent / name).resolve()


def var_folder() -> Path:
    """Return the folder of everything that programs write.

    This is ``$STACKCAST_VAR``; without it, ``var`` below ``$STACKCAST_HOME``, which is the checkout
    for programs that ``spark-submit.sh`` starts; without both, ``var`` below the current folder.
    """
    folder = os.environ.get("STACKCAST_VAR")
    return Path(folder) if folder else Path(os.environ.get("STACKCAST_HOME") or "") / "var"
