"""Checks of the requirements: versions of Python, Java and packages, and extras.

pip checks the versions of an installation. These checks are for code that came another way: in an
archive, on the path, or under a Spark that a cluster has.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from typing import Any

from stackcast.udfs.errors import RequirementError

Version = tuple[int, ...]

#: Lowest version, and the first version that is too new.
PYTHON = ((3, 11), (3, 14))
#: The same for packages, with the requirement of ``pyproject.toml``.
PACKAGES = {
    "pyspark": ((4, 2, 0), (4, 2, 1), "== 4.2.0"),
    "pandas": ((2, 3), (3,), ">= 2.3, < 3"),
}
JAVA = 17
#: The modules of each extra that programs import.
EXTRAS = {"console": ("starlette", "uvicorn")}

_DIGITS = re.compile(r"\d+")
_JAVA_VERSION = re.compile(r'version "(\d+)')


def check_python(version: Version) -> None:
    """Raise RequirementError ``PYTHON`` if this version of Python is not supported."""
    least, below = PYTHON
    if not least <= version < below:
        sys.excepthook = _print_one_line
        raise RequirementError(
            "PYTHON",
            f"this is Python {_text(version)}, but Stackcast needs Python {_text(least)} or newer, "
            f"below {_text(below)}: use such an interpreter (with Spark: PYSPARK_PYTHON)",
        )


def _print_one_line(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print an uncaught error; ours as one line, as its traceback shows only the import."""
    if isinstance(error, RequirementError):
        print(error, file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def check_packages() -> None:
    """Raise RequirementError ``PACKAGE`` if the version of Spark or pandas is not supported."""
    for name, (least, below, requirement) in PACKAGES.items():
        version = _version(name)
        if not least <= tuple(map(int, _DIGITS.findall(version)))[:3] < below:
            raise RequirementError(
                "PACKAGE",
                f"this is {name} {version or '(none)'}, but Stackcast needs {name} {requirement}: "
                f"pip install '{name}{requirement.replace(' ', '')}'",
            )


def java_program() -> str:
    """Return the Java executable: that of ``JAVA_HOME``, or the first one on the path."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def check_java(program: str) -> None:
    """Raise RequirementError ``JAVA`` if there is no such program, or if its version is too old.

    Args:
        program: the Java executable.
    """
    # "import stackcast" loads this module, so it imports little.
    import subprocess  # noqa: PLC0415

    command = [program, "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        raise RequirementError(
            "JAVA",
            f"there is no program {program!r}: install Java {JAVA} or newer, or set JAVA_HOME",
        ) from None
    version = _JAVA_VERSION.search(done.stderr + done.stdout)
    if version is None or int(version[1]) < JAVA:
        raise RequirementError(
            "JAVA",
            f"{program} is Java {version[1] if version else '(unknown)'}, but Stackcast needs Java "
            f"{JAVA} or newer: install one, and set JAVA_HOME",
        )


def require_extra(extra: str, purpose: str) -> None:
    """Raise RequirementError ``MISSING_EXTRA`` if packages of an extra are not installed.

    Args:
        extra: name of the extra, a key of `EXTRAS`.
        purpose: what needs it, as the subject of the message.
    """
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        raise RequirementError(
            "MISSING_EXTRA",
            f"{purpose} needs {' and '.join(missing)}: pip install 'stackcast[{extra}]'",
        )


def exit_without_extra(extra: str, purpose: str) -> None:
    """End this program with one line and exit code 2 if packages of an extra are missing.

    For programs that import these packages before they do anything else.
    """
    try:
        require_extra(extra, purpose)
    except RequirementError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


def _version(package: str) -> str:
    """Return the version of a package, empty if it is missing. One that is imported counts."""
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is not None:
        return str(version)
    from importlib import metadata  # noqa: PLC0415

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _text(version: Version) -> str:
    return ".".join(map(str, version[:3]))
