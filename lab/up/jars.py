"""The jars of Spark and of the broker: their coordinates, and how they are fetched.

``conf/ivy.xml`` lists the coordinates. The Ivy that pyspark ships resolves them, and each file must
have the hash of ``conf/jars.sha256``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from stackcast.installation import shipped
from stackcast.requirements import check_java, java_program
from stackcast.udfs.errors import LabError

IVY = "conf/ivy.xml"
HASHES = "conf/jars.sha256"

_LOG_LINES = 5


def spark_jars(pattern: str) -> list[Path]:
    """Return the jars of Spark whose names match a pattern, in alphabetical order.

    Raises:
        LabError: ``NO_BROKER_JARS``, if there is no Spark.
    """
    # Under spark-submit the Python package is a zip without jars; SPARK_HOME is the real place.
    home = os.environ.get("SPARK_HOME")
    if not home:
        spark = find_spec("pyspark")
        if spark is None or spark.origin is None:
            raise LabError(
                "NO_BROKER_JARS", "pyspark is not installed, but the broker needs its jars"
            )
        home = str(Path(spark.origin).parent)
    return sorted((Path(home) / "jars").glob(pattern))


def coordinates(configuration: str) -> list[str]:
    """Return the Maven coordinates of the jars of a configuration of ``conf/ivy.xml``.

    Args:
        configuration: ``spark`` or ``broker``.
    """
    dependencies = ElementTree.parse(shipped(IVY)).iter("dependency")
    return [
        ":".join((each.attrib["org"], each.attrib["name"], each.attrib["rev"]))
        for each in dependencies
        if each.attrib["conf"] == configuration
    ]


def fetch_broker(folder: Path, report: Callable[[str], None]) -> int:
    """Fetch the jars of the broker into a folder, unless they are there.

    Args:
        folder: the folder; jars of another version in it are removed.
        report: gets the name of each jar that is downloaded.

    Returns:
        The number of jars.

    Raises:
        LabError: ``JARS_NOT_FETCHED``, ``WRONG_JARS``.
        RequirementError: ``JAVA``.
    """
    expected = _hashes("broker")
    if _contents(folder) == expected:
        return len(expected)
    java = java_program()
    check_java(java)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as temporary:
        new = Path(temporary) / "jars"
        _resolve(java, "broker", new, Path(temporary) / "cache", report)
        fetched = _contents(new)
        if fetched != expected:
            wrong = sorted(name for name, _ in fetched.items() ^ expected.items())
            raise LabError(
                "WRONG_JARS",
                f"jars fetched by Ivy differ from {shipped(HASHES)}: {', '.join(wrong)}; if you "
                "use a repository other than Maven Central, check where it gets its files",
                jars=wrong,
            )
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    return len(expected)


def _resolve(
    java: str, configuration: str, folder: Path, cache: Path, report: Callable[[str], None]
) -> None:
    """Run Ivy, which writes the jars of a configuration into a folder."""
    ivy = spark_jars("ivy-*.jar")
    if not ivy:
        raise LabError(
            "NO_BROKER_JARS", "Spark does not contain Ivy, which fetches the jars of the broker"
        )
    command = [
        *(java, "-jar", str(ivy[0]), "-ivy", str(shipped(IVY)), "-cache", str(cache)),
        *("-types", "jar", "bundle", "-confs", configuration),
        *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
    ]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in map(str.strip, process.stdout):
            lines.append(line)
            if "[SUCCESSFUL ]" in line:
                report(line.split()[2].partition("!")[2].removesuffix("(bundle)"))
    if process.returncode or any("UNRESOLVED" in x or "FAILED DOWNLOADS" in x for x in lines):
        errors = [line for line in lines if "ERROR" in line or "WARN" in line or "rror:" in line]
        raise LabError(
            "JARS_NOT_FETCHED",
            f"the jars of the {configuration} could not be fetched: "
            f"{' '.join((errors or lines)[-_LOG_LINES:])}; check the network and its proxy",
        )


def _hashes(configuration: str) -> dict[str, str]:
    """Return the SHA-256 of each jar of a configuration by the jar's file name."""
    listed = {}
    for line in shipped(HASHES).read_text(encoding="utf-8").splitlines():
        digest, _, path = line.partition("  ")
        part, _, name = path.partition("/")
        if part == configuration:
            listed[name] = digest
    return listed


def _contents(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each jar in a folder."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.jar")
    }
