"""Jars are the ones that were looked at when their versions were chosen."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest
from paths import ROOT

from stackcast.installation import var_folder

pytestmark = pytest.mark.integration

LIST = ROOT / "conf" / "jars.sha256"


def test_the_jars_of_this_environment_are_those_of_the_list() -> None:
    folder = var_folder() / "jars"
    found = {
        f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.glob("*/*.jar")
    }
    listed = {name: digest for digest, name in map(str.split, LIST.read_text().splitlines())}
    assert found == listed and len(listed) > 30


@pytest.mark.parametrize("fault", ["", "changed", "added", "missing"])
def test_a_jar_that_is_not_on_the_list_is_refused(tmp_path: Path, fault: str) -> None:
    jars = tmp_path / "jars"
    for name in ("spark/a.jar", "broker/b c.jar"):
        (jars / name).parent.mkdir(parents=True, exist_ok=True)
        (jars / name).write_text(name)
    (tmp_path / "conf").mkdir()
    digests = subprocess.run(
        "sha256sum */*.jar", shell=True, cwd=jars, capture_output=True, check=True
    )
    (tmp_path / "conf" / "jars.sha256").write_bytes(digests.stdout)
    if fault == "changed":
        (jars / "spark" / "a.jar").write_text("other")
    elif fault == "added":
        (jars / "spark" / "c.jar").write_text("one more")
    elif fault == "missing":
        (jars / "spark" / "a.jar").unlink()
    script = (ROOT / "spark-submit.sh").read_text()
    (function,) = re.findall(r"^jars_are_known\(\) \{\n.*?^\}\n", script, re.M | re.S)
    done = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f"{function}\nJARS={jars} ROOT={tmp_path}\njars_are_known",
        ],
        check=False,
    )
    assert (done.returncode == 0) == (fault == "")
