"""The committed products of each P4 program are those that p4c makes of its sources."""

from __future__ import annotations

import os
from pathlib import Path

import p4_products
import pytest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("folder", p4_products.FOLDERS, ids=lambda folder: folder.name)
def test_sources_and_products_are_those_that_were_compiled_together(folder):
    compiled = folder / p4_products.COMPILED
    recorded = p4_products.recorded(folder)
    # Programs of tests include some of p4/. BMv2 records answers of test programs.
    outside = [name for name in recorded if name.startswith("../../")]
    present = {name: p4_products.digest(compiled / name) for name in outside} | {
        os.path.relpath(path, compiled): p4_products.digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in (".p4", ".txtpb", ".json")
    }
    odd = {name for name in present | recorded if present.get(name) != recorded.get(name)}
    assert not odd, f"compile again: {p4_products.COMMAND}"


@pytest.mark.parametrize("folder", p4_products.FOLDERS, ids=lambda folder: folder.name)
def test_sources_and_products_are_in_folders_of_their_own(folder):
    suffixes = {True: set(), False: set()}
    for path in filter(Path.is_file, folder.rglob("*")):
        suffixes[path.parent.name == p4_products.COMPILED].add(path.suffix)
    assert suffixes[True] == {".json", ".txtpb", ""}
    assert suffixes[False] - {".answers"} == {".p4"}


@pytest.mark.p4c
@pytest.mark.parametrize(
    ("folder", "program"),
    [(folder, name) for folder in p4_products.FOLDERS for name in p4_products.programs(folder)],
    ids=lambda value: getattr(value, "name", value),
)
def test_p4c_makes_the_committed_products(folder, program, pytestconfig):
    p4c = str(pytestconfig.getoption("--p4c"))
    texts = p4_products.compile_program(p4c, folder / f"{program}.p4")
    for path, text in zip(p4_products.products(program, folder), texts, strict=True):
        assert path.read_text() == text, f"{path.name} is old: {p4_products.COMMAND}"
