"""No locked version has a known vulnerability, and the report says what it could not look up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.make import audit

pytestmark = pytest.mark.integration

ROWS = audit.known_advisories(audit.SECURITY.read_text())
LOCKED = audit.locked_versions()


def test_every_locked_version_is_that_of_the_table_and_has_the_fix() -> None:
    assert len(ROWS) > 20
    assert not list(audit.disagreements(ROWS, LOCKED))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"locked": ("0.1",)}, "the table of docs/security.md says 0.1"),
        ({"fixed": "99999"}, "take 99999"),
        ({"package": "left-pad"}, "left-pad is locked at no version"),
    ],
)
def test_a_row_that_does_not_agree_is_a_problem(change: dict[str, Any], problem: str) -> None:
    (found,) = audit.disagreements([ROWS[0]._replace(**change)], LOCKED)
    assert problem in found


def pip_audit(folder: Path, report: object) -> str:
    """Return a program that prints what pip-audit would, of the packages that it is given."""
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
        ({"*": {"vulns": []}, "ply": PLY}, 0, ["no locked version has"]),
        ({"*": {"vulns": []}, "h11": BAD}, 1, ["h11 ", "has CVE-2027-1: 9.9 has a fix"]),
        ({"*": UNKNOWN}, 0, ["{total} of {total} Python packages could not be looked up"]),
        ({"*": {"vulns": []}, "h11": UNKNOWN}, 0, ["1 of {total} Python packages could not"]),
        (None, 0, ["{total} of {total} Python packages could not be looked up"]),
    ],
)
def test_the_report_has_what_the_database_knows_and_what_it_was_not_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    report: Any,
    code: int,
    words: list[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["audit", "--pip-audit", pip_audit(tmp_path, report)])
    assert audit.main() == code
    said = capsys.readouterr().out
    for each in words:
        assert each.format(total=len(audit.python_packages())) in said
    assert ("no locked version has" in said) == (code == 0)


def test_without_pip_audit_the_report_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["audit", "--pip-audit", "/nowhere/pip-audit"])
    assert audit.main() == 0
    assert "pip install pip-audit" in capsys.readouterr().err
