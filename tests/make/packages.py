"""Writes the lists of Python packages with their hashes: ./spark-submit.sh make packages --uv FILE.

For each package that `constraints.txt` pins, `conf/packages` has the hashes of all files that the
index has of that version, for every Python and machine. `build.txt` contains what builds packages
and Stackcast, `runtime.txt` what jobs need, and `console.txt` what the console and the servers of
metrics need in addition; `shell.txt` contains what `stackcast switch shell` needs, `test.txt` and
`bench.txt` what tests and benchmarks need in addition. uv (https://docs.astral.sh/uv) resolves the
requirements and asks the index. No other command needs uv.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

from stackcast.command_line import ArgumentParser

FOLDER = ROOT / "conf" / "packages"
#: Names of the lists, and the extras of `pyproject.toml` that each is for.
LISTS = {
    "build": None,
    "runtime": (),
    "console": ("console",),
    "shell": ("shell",),
    "test": ("test",),
    "bench": ("test", "bench"),
}
#: Packages whose own requirements contradict the others, by list. They are installed without them.
WITHOUT_REQUIREMENTS = {"shell": "p4runtime-shell"}

HEADER = "# ./spark-submit.sh make packages writes this file.\n"
_PIN = re.compile(r"^([\w.-]+)==([^\s;]+).*?(?=^[\w#]|\Z)", re.MULTILINE | re.DOTALL)


def pins(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and text of each pin of a list, or of `constraints.txt`.

    Names are spelled in lower case and with hyphens.
    """
    for pin in _PIN.finditer(text):
        yield re.sub(r"[-_.]+", "-", pin[1]).lower(), pin[2], pin[0]


def resolved(uv: str, extras: tuple[str, ...] | None, package: str = "") -> str:
    """Return the pins that uv chooses, with their hashes.

    Args:
        uv: path of the program.
        extras: extras of `pyproject.toml` to add to its requirements; None: the build tools.
        package: resolve only this package, without its requirements.
    """
    source = ["-"] if extras is None or package else ["pyproject.toml"]
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "-c", "constraints.txt"]
    if package:
        command.append("--no-deps")
    else:
        command += [word for extra in extras or () for word in ("--extra", extra)]
    command += source
    done = subprocess.run(
        command,
        cwd=ROOT,
        input=f"{package or 'setuptools'}\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def main() -> None:
    parser = ArgumentParser(prog="./spark-submit.sh make packages")
    parser.add_argument("--uv", default="uv", help="path of uv; default: the one on PATH")
    uv = parser.parse_args().uv
    # A relative path is relative to the folder of the user.
    uv = str(Path(uv).resolve()) if "/" in uv else uv
    FOLDER.mkdir(exist_ok=True)
    listed: set[str] = set()
    for name, extras in LISTS.items():
        text = resolved(uv, extras)
        if name in WITHOUT_REQUIREMENTS:
            text += resolved(uv, extras, WITHOUT_REQUIREMENTS[name])
        new = {key: pin for key, _, pin in pins(text) if key not in listed}
        listed |= set(new)
        (FOLDER / f"{name}.txt").write_text(HEADER + "".join(new[key] for key in sorted(new)))


if __name__ == "__main__":
    main()
