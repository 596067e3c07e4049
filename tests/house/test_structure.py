"""What ``./spark-submit.sh make structure`` says of code, and what holds of the product."""

from __future__ import annotations

import json

import pytest

from tests.make.structure import Code, main, tree_texts

pytestmark = pytest.mark.unit

TEXTS = {
    "udfs/__init__.py": "",
    "udfs/errors.py": "ROOT = 1\n\n\n",
    "udfs/low/__init__.py": '"""Low."""\n',
    "udfs/low/one.py": "from udfs.low import two\nfrom udfs.errors import ROOT\n",
    "udfs/low/two.py": "def late():\n    import udfs.low.one\n",
    "udfs/high/__init__.py": "",
    "udfs/high/top.py": "from udfs.low.one import two\nimport json\n",
    "udfs/high/side.py": "from .top import two\n",
    "jobs/adapters/room/work.py": "from udfs.high import side, top\n",
}


def test_modules_lines_callers_and_circles_are_counted_by_package_and_room():
    code = Code(TEXTS)
    found = {name: code.structure(name) for name in code.rooms()}
    assert list(found) == [
        "jobs",
        "jobs.adapters",
        "jobs.adapters.room",
        "udfs",
        "udfs.high",
        "udfs.low",
    ]
    assert (found["udfs"].modules, found["udfs"].lines) == (8, 11)
    # errors, two and side; top is called by its neighbour and by a job.
    assert found["udfs"].one_caller == 3
    assert found["udfs.low"].circles == [["udfs.low.one", "udfs.low.two"]]
    assert code.circles() == [("udfs.low.one", "udfs.low.two")]


def test_rooms_that_import_each_other_are_a_circle_though_no_modules_are():
    code = Code({**TEXTS, "udfs/low/up.py": "from udfs.high.side import two\n"})
    assert ("udfs.high", "udfs.low") in code.circles()


def test_it_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]):
    main([])
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["modules", "lines", "one", "caller", "circles"]
    main(["--json"])
    (rooms,) = json.loads(capsys.readouterr().out).values()
    assert table[1].split()[1] == str(rooms[0]["modules"])
    assert {"jobs.adapters.stream", "udfs.filters", "cli"} <= {room["name"] for room in rooms}


def test_nothing_of_the_product_imports_in_a_circle():
    assert Code(tree_texts()).circles() == []
