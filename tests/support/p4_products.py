"""Products of the programs of ``p4/``: made by p4c, and told from old ones by their sums.

A program is ``p4/NAME.p4`` with what it includes from ``p4/NAME/`` and from the folders of other
programs, or with another such file that it includes to compile it with other options; its products
are ``NAME.p4info.txtpb`` and ``NAME.json`` beside it. ``p4/CHECKSUMS`` has the SHA-256 of all of
them, as ``sha256sum`` writes and reads it. So it is in the other `FOLDERS`.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from paths import BENCHMARKS, P4

from udfs.messages.attributes.events import Widths

FOLDER = P4
TEXT = BENCHMARKS / "p4/text"
"""The program of WERNECKE 5.2.6, in the same form; no product, it is measured beside ours."""
FOLDERS = (FOLDER, TEXT)
CHECKSUMS = "CHECKSUMS"
COMMAND = "./spark-submit.sh make p4 --p4c FILE"


def programs(folder: Path = FOLDER) -> list[str]:
    """The names of all programs of a folder."""
    return sorted(path.stem for path in folder.glob("*.p4"))


def sources(program: str, folder: Path = FOLDER) -> list[Path]:
    """The main file, and what it may include."""
    main = folder / f"{program}.p4"
    text = main.read_text()
    others = re.findall(r'^#include "(\w+)\.p4"$', text, re.MULTILINE)
    shared = re.findall(rf'^#include "((?!{program}/)\w+/\w+\.p4)"$', text, re.MULTILINE)
    own = [main, *sorted((folder / program).glob("*.p4")), *(folder / path for path in shared)]
    return own + [path for other in others for path in sources(other, folder)]


def products(program: str, folder: Path = FOLDER) -> list[Path]:
    """P4Info text and BMv2 JSON."""
    return [folder / f"{program}.p4info.txtpb", folder / f"{program}.json"]


def compile_program(p4c: str, source: Path, options: Iterable[str] = ()) -> tuple[str, str]:
    """P4Info text and BMv2 JSON that p4c-bm2-ss makes of a main file.

    The JSON is without spaces, and names sources as seen from the main file's folder, so that it is
    the same wherever it is made. ``options`` are p4c's, such as ``-DLABELS_A_PASS=4``.
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
        made = json.loads(program.read_text())
        return info.read_text(), json.dumps(made, separators=(",", ":")) + "\n"


def width_options(widths: Widths) -> list[str]:
    """Options of p4c for a program of headers of these widths."""
    return [f"-DID_BITS={widths.id}", f"-DATTRIBUTES={widths.bitmask}"]


def write_sums(folder: Path = FOLDER) -> None:
    """Write the sums of all sources and products of a folder."""
    paths = dict.fromkeys(
        path
        for name in programs(folder)
        for path in [*sources(name, folder), *products(name, folder)]
    )
    lines = (f"{digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths)
    (folder / CHECKSUMS).write_text("".join(lines))


def recorded(folder: Path = FOLDER) -> dict[str, str]:
    """The sums of a folder's ``CHECKSUMS``, by path within the folder."""
    lines = (folder / CHECKSUMS).read_text().splitlines()
    return {label: digest for digest, label in (line.split("  ", 1) for line in lines)}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
