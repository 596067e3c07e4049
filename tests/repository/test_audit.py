"""The audit finds vulnerable versions, and reports which packages it could not look up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.make import audit

pytestmark = pytest.mark.integration

ROWS = audit.known_advisories(audit.AUDITED_VERSIONS.read_text())
LOCKED = audit.locked_versions()


def test_table_matches_locked_versions_and_each_contains_the_fix() -> None:
    assert len(ROWS) > 20
    assert not list(audit.disagreements(ROWS, LOCKED))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"locked": ("0.1",)}, "docs/reference/audited-versions.md lists 0.1"),
        ({"fixed": "99999"}, "upgrade to 99999"),
        ({"package": "left-pad"}, "left-pad is locked at no version"),
    ],
)
def test_wrong_row_is_reported(change: dict[str, Any], problem: str) -> None:
    (message,) = audit.disagreements([ROWS[0]._replace(**change)], LOCKED)
    assert problem in message


def pip_audit(folder: Path, report: object) -> str:
    """Return the path of a program that prints this report in the format of pip-audit."""
    path = folder / "pip-audit"
    program = (
        f"#!{sys.executable}\nimport json, sys\n"
        "names = [line.split('==') for line in open(sys.argv[-1])]\n"
        f"report = {report!r}\n"
        "if report is None: sys.exit('no connection')\n"
        "print(json.dumps({'dependencies': [{'name': name, 'version': version.strip(), "
        "**report.get(name, report['*'])} for name, version in names]}))\n"
    )
    path.write_text(program)
    path.chmod(0o755)
    return str(path)


PLY = {"vulns": [{"id": "PYSEC-1", "aliases": ["CVE-2025-56005"], "fix_versions": []}]}
BAD = {"vulns": [{"id": "CVE-2027-1", "aliases": [], "fix_versions": ["9.9"]}]}
UNKNOWN = {"skip_reason": "not found"}


@pytest.mark.parametrize(
    ("report", "code", "words"),
    [
        ({"*": {"vulns": []}, "ply": PLY}, 0, ["no known vulnerabilities"]),
        ({"*": {"vulns": []}, "h11": BAD}, 1, ["h11 ", "has CVE-2027-1, fixed in 9.9"]),
        ({"*": UNKNOWN}, 0, ["{total} of {total} Python packages could not be looked up"]),
        ({"*": {"vulns": []}, "h11": UNKNOWN}, 0, ["1 of {total} Python packages could not"]),
        (None, 0, ["{total} of {total} Python packages could not be looked up"]),
    ],
)
def test_report_contains_vulnerabilities_and_number_of_skipped_packages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    report: Any,
    code: int,
    words: list[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["audit", "--pip-audit", pip_audit(tmp_path, report)])
    assert audit.main() == code
    output = capsys.readouterr().out
    for text in words:
        assert text.format(total=len(audit.python_packages())) in output
    assert ("no known vulnerabilities" in output) == (code == 0)


def test_missing_pip_audit_is_reported_with_install_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["audit", "--pip-audit", "/nowhere/pip-audit"])
    assert audit.main() == 0
    assert "pip install pip-audit" in capsys.readouterr().err
