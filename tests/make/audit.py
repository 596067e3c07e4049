"""Report known vulnerabilities of the locked versions: ./spark-submit.sh make audit.

pip-audit (`pip install pip-audit`) queries the vulnerability database of the Python package index.
Jars, and packages that pip-audit cannot look up, are only compared with the table of known
advisories in docs/reference/audited-versions.md. Exit code 1 means that a locked version has a
known vulnerability, or that the table does not match the locked versions.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from packaging.version import Version
from paths import ROOT

from stackcast.command_line import ArgumentParser
from tests.make.packages import pins

AUDITED_VERSIONS = ROOT / "docs" / "reference" / "audited-versions.md"
JARS = ROOT / "conf" / "jars.sha256"
#: Replaces the fixed version of an advisory without a fix. The row explains why it is harmless.
NO_FIX = "none"
_ROW = re.compile(r"^\| `([\w.-]+)` \| ([^|]+) \| ([^|]+) \| (.*(?:CVE|GHSA)-.*) \|$", re.MULTILINE)
_ID = re.compile(r"(?:CVE|GHSA|PYSEC)-[\w-]+")
_JAR = re.compile(r"/([\w.-]+?)-(\d[\w.]*)\.jar$", re.MULTILINE)


class Known(NamedTuple):
    """A row of the table.

    Attributes:
        package: name of the Python package or jar.
        locked: one or more locked versions.
        fixed: first version without the vulnerabilities, or `NO_FIX`.
        ids: ids of the advisories.
    """

    package: str
    locked: tuple[str, ...]
    fixed: str
    ids: frozenset[str]


def known_advisories(text: str) -> list[Known]:
    """Return the rows of the table in docs/reference/audited-versions.md."""
    return [
        Known(name, tuple(locked.split(", ")), fixed, frozenset(_ID.findall(advisories)))
        for name, locked, fixed, advisories in _ROW.findall(text)
    ]


def python_packages() -> dict[str, str]:
    """Return the locked version of each Python package."""
    return {name: version for name, version, _ in pins((ROOT / "constraints.txt").read_text())}


def locked_versions() -> dict[str, tuple[str, ...]]:
    """Return the locked versions of Python packages and jars, by name."""
    locked: dict[str, set[str]] = {name: {version} for name, version in python_packages().items()}
    for name, version in _JAR.findall(JARS.read_text()):
        locked.setdefault(name, set()).add(version)
    return {name: tuple(sorted(versions, key=Version)) for name, versions in locked.items()}


def disagreements(rows: Iterable[Known], versions: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the disagreements between rows of the table and the locked versions."""
    for row in rows:
        locked = versions.get(row.package, ())
        if locked != row.locked:
            yield (
                f"{row.package} is locked at {', '.join(locked) or 'no version'}, but "
                f"docs/reference/audited-versions.md lists {', '.join(row.locked)}"
            )
        elif row.fixed != NO_FIX and any(
            Version(version) < Version(row.fixed) for version in locked
        ):
            ids = ", ".join(sorted(row.ids))
            yield f"{row.package} {locked[0]} has {ids}: upgrade to {row.fixed}"


def look_up(pip_audit: str) -> list[dict[str, Any]]:
    """Return the reports of pip-audit per Python package; empty if the database is unreachable."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{name}=={version}\n" for name, version in python_packages().items())
        file.flush()
        command = [pip_audit, "--disable-pip", "--no-deps", "--progress-spinner", "off"]
        command += ["--format", "json", "--requirement", file.name]
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            print(f"{pip_audit} is not installed: pip install pip-audit", file=sys.stderr)
            return []
    try:
        dependencies: list[dict[str, Any]] = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(*result.stderr.splitlines()[-1:], file=sys.stderr)
        return []
    return dependencies


def vulnerabilities(reports: Iterable[Mapping[str, Any]], rows: Iterable[Known]) -> Iterator[str]:
    """Yield each vulnerability that pip-audit reports, unless the table explains it."""
    harmless = {(row.package, name) for row in rows if row.fixed == NO_FIX for name in row.ids}
    for package in reports:
        for vulnerability in package.get("vulns", ()):
            names = [vulnerability["id"], *vulnerability.get("aliases", ())]
            if not any((package["name"], name) in harmless for name in names):
                fix = ", ".join(vulnerability.get("fix_versions", ())) or "no version"
                yield f"{package['name']} {package['version']} has {names[0]}, fixed in {fix}"


def main() -> int:
    parser = ArgumentParser(prog="./spark-submit.sh make audit")
    parser.add_argument(
        "--pip-audit", default="pip-audit", help="path of pip-audit; default: the one on PATH"
    )
    rows = known_advisories(AUDITED_VERSIONS.read_text())
    reports = look_up(parser.parse_args().pip_audit)
    problems = [*disagreements(rows, locked_versions()), *vulnerabilities(reports, rows)]
    print(*problems, sep="\n", end="\n" if problems else "")
    total, skipped = len(python_packages()), sum("skip_reason" in report for report in reports)
    unknown = total - len(reports) + skipped
    if unknown:
        print(
            f"{unknown} of {total} Python packages could not be looked up, and were only compared "
            "with docs/reference/audited-versions.md"
        )
    if not problems:
        print("the locked versions have no known vulnerabilities")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
