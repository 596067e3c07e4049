"""The output of ``./spark-submit.sh make structure``, and the structure of the product."""

from __future__ import annotations

import json

import pytest

from tests.make import structure
from tests.make.structure import Code

pytestmark = pytest.mark.unit

TEXTS = {
    "udfs/__init__.py": "",
    "udfs/errors.py": "ROOT = 1\n\n\n",
    "udfs/low/__init__.py": '"""Low."""\n',
    "udfs/low/one.py": (
        "from stackcast.udfs.low import two\nfrom stackcast.udfs.errors import ROOT\n"
    ),
    "udfs/low/two.py": "def late():\n    import stackcast.udfs.low.one\n",
    "udfs/high/__init__.py": "",
    "udfs/high/top.py": "from stackcast.udfs.low.one import two\nimport json\n",
    "udfs/high/side.py": "from .top import two\n",
    "jobs/adapters/package/work.py": "from stackcast.udfs.high import side, top\n",
}


def test_modules_lines_callers_and_cycles_are_counted_per_package():
    code = Code(TEXTS)
    structures = {name: code.structure(name) for name in code.rooms}
    assert list(structures) == [
        "jobs",
        "jobs.adapters",
        "jobs.adapters.package",
        "udfs",
        "udfs.high",
        "udfs.low",
    ]
    assert (structures["udfs"].modules, structures["udfs"].lines) == (5, 11)
    # These are errors, two and side. Both side and a job import top.
    assert structures["udfs"].one_caller == 3
    assert structures["udfs.low"].circles == [["udfs.low.one", "udfs.low.two"]]
    assert code.circles() == [("udfs.low.one", "udfs.low.two")]


def test_packages_that_import_each_other_are_a_cycle_even_if_no_modules_are():
    code = Code({**TEXTS, "udfs/low/up.py": "from stackcast.udfs.high.side import two\n"})
    assert ("udfs.high", "udfs.low") in code.circles()


def test_the_output_is_a_table_or_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(structure, "tree_texts", lambda: TEXTS)
    structure.main([])
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["modules", "lines", "one", "caller", "circles"]
    assert table[1].split() == ["all", "6", "12", "3", "1"]
    assert table[-1] == "circle: udfs.low.one, udfs.low.two"
    structure.main(["--json"])
    (packages,) = json.loads(capsys.readouterr().out).values()
    assert [package["name"] for package in packages] == ["all", *Code(TEXTS).rooms]
    assert packages[0]["lines"] == 12


def test_the_table_has_columns_for_a_revision_and_the_work_tree(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(structure, "tree_texts", lambda: TEXTS)
    monkeypatch.setattr(structure, "texts_at", {"v1": {"udfs/errors.py": "ROOT = 1\n"}}.get)
    structure.main(["--at", "v1"])
    table = capsys.readouterr().out.splitlines()
    assert table[1].split() == ["all", "1", "6", "1", "12", "0", "3", "0", "1"]


@pytest.mark.integration
def test_the_product_has_no_circular_imports():
    assert Code(structure.tree_texts()).circles() == []
