"""Writes the lists of Python packages with their hashes: ./spark-submit.sh make packages --uv FILE.

Of each package that `constraints.txt` pins, `conf/packages` has the hashes of all files that the
index has of that version, for every Python and machine. `build.txt` is what builds packages and
ours, `runtime.txt` what jobs need; `test.txt` and `bench.txt` name what comes on top. uv
(https://docs.astral.sh/uv) resolves them and asks the index, and is needed for nothing else.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

FOLDER = ROOT / "conf" / "packages"
LISTS = {"build": None, "runtime": (), "test": ("test",), "bench": ("test", "bench")}
"""Each list's file, and the extras of `pyproject.toml` that it is for."""

HEADER = "# ./spark-submit.sh make packages writes this file.\n"
_PIN = re.compile(r"^([\w.-]+)==([^\s;]+).*?(?=^[\w#]|\Z)", re.MULTILINE | re.DOTALL)


def pins(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields name, version and the text of each pin of a list, or of `constraints.txt`.

    Names are in one spelling: lower case, and hyphens.
    """
    for found in _PIN.finditer(text):
        yield re.sub(r"[-_.]+", "-", found[1]).lower(), found[2], found[0]


def resolved(uv: str, extras: tuple[str, ...] | None) -> str:
    """Returns what uv makes of our requirements: a pin with its hashes each."""
    source = ["-"] if extras is None else ["pyproject.toml"]
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "-c", "constraints.txt"]
    command += [word for extra in extras or () for word in ("--extra", extra)]
    command += source
    done = subprocess.run(
        command, cwd=ROOT, input="setuptools\n", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="./spark-submit.sh make packages")
    parser.add_argument("--uv", default="uv", help="the program; by default that of the path")
    uv = parser.parse_args().uv
    # As the user names it, from where they are.
    uv = str(Path(uv).resolve()) if "/" in uv else uv
    FOLDER.mkdir(exist_ok=True)
    listed: set[str] = set()
    for name, extras in LISTS.items():
        fresh = {key: text for key, _, text in pins(resolved(uv, extras)) if key not in listed}
        listed |= set(fresh)
        (FOLDER / f"{name}.txt").write_text(HEADER + "".join(fresh[key] for key in sorted(fresh)))


if __name__ == "__main__":
    main()
