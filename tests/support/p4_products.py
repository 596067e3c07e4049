"""What p4c makes of the programs of ``p4/``: making it, and the sums by which it is told from old.

A program is ``p4/NAME.p4`` with what it includes from ``p4/NAME/`` and from the folders of other
programs, or with another such file that it includes to compile it with other options; its products
are ``NAME.p4info.txtpb`` and ``NAME.json`` beside it. ``p4/CHECKSUMS`` has the SHA-256 of all of
them, as ``sha256sum`` writes and reads it.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from paths import P4

FOLDER = P4
CHECKSUMS = FOLDER / "CHECKSUMS"
COMMAND = "PYTHONPATH=. python tests/p4_program/test_p4_products.py P4C"


def programs() -> list[str]:
    """The names of all programs of ``p4/``."""
    return sorted(path.stem for path in FOLDER.glob("*.p4"))


def sources(program: str) -> list[Path]:
    """The main file, and what it may include."""
    main = FOLDER / f"{program}.p4"
    text = main.read_text()
    others = re.findall(r'^#include "(\w+)\.p4"$', text, re.MULTILINE)
    shared = re.findall(rf'^#include "((?!{program}/)\w+/\w+\.p4)"$', text, re.MULTILINE)
    own = [main, *sorted((FOLDER / program).glob("*.p4")), *(FOLDER / path for path in shared)]
    return own + [path for other in others for path in sources(other)]


def products(program: str) -> list[Path]:
    """P4Info text and BMv2 JSON."""
    return [FOLDER / f"{program}.p4info.txtpb", FOLDER / f"{program}.json"]


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


def write_products(p4c: str, names: Collection[str]) -> None:
    """Compile these programs and those that include them, and write their products and all sums."""
    changed = {path for name in names for path in sources(name)}
    names = [name for name in programs() if changed.intersection(sources(name))]
    for name in names:
        texts = compile_program(p4c, FOLDER / f"{name}.p4")
        for path, text in zip(products(name), texts, strict=True):
            path.write_text(text)
    held = recorded() if CHECKSUMS.exists() else {}
    lines: dict[str, str] = {}
    for name in programs():
        for path in [*sources(name), *products(name)]:
            label = path.relative_to(FOLDER).as_posix()
            if name in names:
                lines[label] = digest(path)
            elif label in held:
                lines[label] = held[label]
    CHECKSUMS.write_text("".join(f"{lines[label]}  {label}\n" for label in lines))


def recorded() -> dict[str, str]:
    """The sums of ``p4/CHECKSUMS``, by path within ``p4/``."""
    pairs = (line.split("  ", 1) for line in CHECKSUMS.read_text().splitlines())
    return {label: digest for digest, label in pairs}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
