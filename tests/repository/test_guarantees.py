"""Each guarantee of README names its tests, and they run with the test command."""

from __future__ import annotations

import ast
import re

import pytest
from paths import ROOT, TESTS

pytestmark = pytest.mark.unit

SECTION = (
    (ROOT / "CONTRIBUTING.md").read_text().partition("**Guarantees.**")[2].partition("\n**")[0]
)
ROWS = [line for line in SECTION.splitlines() if "::" in line]
NAMED = sorted(set(re.findall(r"`(\w+/\w+\.py)::(\w+)`", SECTION)))


def test_each_guarantee_names_a_test() -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("## Guarantees")[2].partition("\n## ")[0]
    assert len(ROWS) >= section.count("\n- **") > 0
    assert SECTION.count("::") == sum(row.count("::") for row in ROWS) >= len(ROWS)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_command_runs_each_named_test(file: str, name: str) -> None:
    tree = ast.parse((TESTS / file).read_text())
    (function,) = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name
    ]
    assert not [mark for mark in function.decorator_list if ast.unparse(mark) == "pytest.mark.long"]
