"""Files of Spark properties, read as Spark reads them, without a JVM."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from stackcast.udfs.errors import SettingsError

#: The key, up to a separator that no backslash precedes, the separator, and the value.
_PAIR = re.compile(r"((?:[^\\=:\ \t\f]|\\.)*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
#: Characters at both ends of a value that do not belong to it; an escaped end of line does.
_BLANKS = "".join(map(chr, range(33))).replace("\n", "").replace("\r", "")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path | str) -> dict[str, str]:
    """Return the properties of a file in Java's format, values without blanks at both ends.

    The last one of several lines with the same key counts.

    Args:
        path: path of a file in UTF-8.

    Raises:
        SettingsError: ``UNREADABLE_FILE``.
    """
    return dict(_pairs(_text(Path(path))))


def default_properties() -> dict[str, str]:
    """Return what Spark takes if it is started without a file: ``spark-defaults.conf``.

    The file is in the folder that ``SPARK_CONF_DIR`` names, or in ``conf`` of ``SPARK_HOME``.
    Without such a file there are no properties.

    Raises:
        SettingsError: ``UNREADABLE_FILE``.
    """
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder:
        home = os.environ.get("SPARK_HOME")
        folder = f"{home}/conf" if home else ""
    path = Path(folder) / "spark-defaults.conf"
    return read_properties(path) if folder and path.is_file() else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        reason = f"line {line} is not UTF-8"
    raise SettingsError(
        "UNREADABLE_FILE",
        f"properties file {path} cannot be read: {reason}; give a file with a key and a value on "
        "each line, such as conf/kafka-example.conf",
        path=str(path),
    )


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in _logical_lines(text):
        pair = _PAIR.match(line)
        if pair and pair[1]:
            yield _unescaped(pair[1]), _unescaped(pair[2]).strip(_BLANKS)


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines that are neither blank nor comments; one that ends in a backslash continues."""
    continued, continues = "", False
    for physical_line in re.split(r"\r\n|\r|\n", text):
        line = physical_line.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continues = False
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        continued += line[:-1] if continues else line
        if not continues:
            yield continued
            continued = ""
    if continues:
        yield continued


def _unescaped(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        sign = escape[1]
        return chr(int(sign[1:], 16)) if len(sign) > 1 else _CONTROLS.get(sign, sign)

    return _ESCAPE.sub(character, text)
