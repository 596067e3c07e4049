"""Compiles P4 programs, and detects products that are older than their sources by checksums.

A program is a file ``NAME.p4`` with the files that it includes: from folder ``NAME``, from folders
of other programs, or another program that it compiles with other options. Its products are
``NAME.p4info.txtpb`` and ``NAME.json`` in the folder `COMPILED` next to it. This folder also has a
file ``CHECKSUMS`` with the SHA-256 of all sources and products, in the format of ``sha256sum``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from paths import BENCHMARKS, P4, TEST_P4

from stackcast.udfs.messages.attributes.events import Widths

FOLDER = P4
#: The program of WERNECKE 5.2.6, which benchmarks compare with ours.
TEXT = BENCHMARKS / "p4/text"
FOLDERS = (FOLDER, TEXT, TEST_P4)
COMPILED = "compiled"
CHECKSUMS = "CHECKSUMS"
COMMAND = "./spark-submit.sh make p4 --p4c FILE"


def programs(folder: Path = FOLDER) -> list[str]:
    """Return the names of all programs of a folder."""
    return sorted(path.stem for path in folder.glob("*.p4"))


def sources(program: str, folder: Path = FOLDER) -> list[Path]:
    """Return the main file of a program, and the files that it includes."""
    main = folder / f"{program}.p4"
    text = main.read_text()
    others = re.findall(r'^#include "((?:\.\./\.\./p4/)?\w+)\.p4"$', text, re.MULTILINE)
    shared = re.findall(rf'^#include "((?!{program}/)\w+/\w+\.p4)"$', text, re.MULTILINE)
    own = [main, *sorted((folder / program).glob("*.p4")), *(folder / path for path in shared)]
    included = [(folder / other).resolve() for other in others]
    return own + [path for other in included for path in sources(other.name, other.parent)]


def products(program: str, folder: Path = FOLDER) -> list[Path]:
    """Return the files with P4Info and BMv2 JSON of a program."""
    compiled = folder / COMPILED
    return [compiled / f"{program}.p4info.txtpb", compiled / f"{program}.json"]


def compile_program(p4c: str, source: Path, options: Iterable[str] = ()) -> tuple[str, str]:
    """Return P4Info text and BMv2 JSON of a main file.

    The JSON has no spaces, and names sources relative to the folder of the main file, so that it is
    the same on every machine.

    Args:
        p4c: path of p4c-bm2-ss.
        source: main file.
        options: options of p4c, such as ``-DLABELS_A_PASS=4``.
    """
    with tempfile.TemporaryDirectory() as folder:
        info, program = Path(folder, "p4info.txtpb"), Path(folder, "program.json")
        subprocess.run(
            [
                *(p4c, "--std", "p4-16", *options, source.name),
                *("-o", program, "--p4runtime-files", info),
            ],
            cwd=source.parent,
            check=True,
            timeout=300,
        )
        document = json.loads(program.read_text())
        return info.read_text(), json.dumps(document, separators=(",", ":")) + "\n"


def width_options(widths: Widths) -> list[str]:
    """Return p4c's options for a program with headers of these widths."""
    return [f"-DID_BITS={widths.id}", f"-DATTRIBUTES={widths.bitmask}"]


def write_sums(folder: Path = FOLDER) -> None:
    """Write the sums of all sources and products of a folder."""
    paths = dict.fromkeys(
        path
        for name in programs(folder)
        for path in [*sources(name, folder), *products(name, folder)]
    )
    compiled = folder / COMPILED
    lines = (f"{digest(path)}  {os.path.relpath(path, compiled)}\n" for path in paths)
    (compiled / CHECKSUMS).write_text("".join(lines))


def recorded(folder: Path = FOLDER) -> dict[str, str]:
    """Return the sums in ``CHECKSUMS`` of a folder, by path relative to its `COMPILED`."""
    lines = (folder / COMPILED / CHECKSUMS).read_text().splitlines()
    return {label: digest for digest, label in (line.split("  ", 1) for line in lines)}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
