"""Where programs find the files that the package is shipped with."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

from stackcast.installation import shipped

pytestmark = pytest.mark.integration


def test_a_checkout_has_them_in_its_folders() -> None:
    assert shipped("p4") == ROOT / "p4"
    assert shipped("conf/ivy.xml") == ROOT / "conf" / "ivy.xml"


def test_an_archive_is_unpacked_once_for_each_content(tmp_path: Path) -> None:
    archive = tmp_path / "stackcast.zip"

    def find(text: str) -> Path:
        with zipfile.ZipFile(archive, "w") as file:
            for name in ("__init__.py", "installation.py", "requirements.py"):
                file.write(ROOT / "stackcast" / name, f"stackcast/{name}")
            file.writestr(zipfile.ZipInfo("stackcast/p4/switch.p4"), text)
        done = subprocess.run(
            [
                *(sys.executable, "-c"),
                "from stackcast.installation import shipped; print(shipped('p4/switch.p4'))",
            ],
            env=os.environ | {"PYTHONPATH": str(archive), "STACKCAST_VAR": str(tmp_path / "var")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return Path(done.stdout.strip())

    first, again, second = find("one"), find("one"), find("two")
    assert first == again != second and second.read_text() == "two"
    assert len(list((tmp_path / "var" / "unpacked").iterdir())) == 2
