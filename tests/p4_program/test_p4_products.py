"""Source and product of each P4 program belong together: by their sums, and by compiling again."""

from __future__ import annotations

import p4_products
import pytest

pytestmark = pytest.mark.unit


def test_sources_and_products_are_those_that_were_compiled_together():
    present = {
        path.relative_to(p4_products.FOLDER).as_posix(): p4_products.digest(path)
        for path in sorted(p4_products.FOLDER.rglob("*"))
        if path.is_file() and path != p4_products.CHECKSUMS
    }
    recorded = p4_products.recorded()
    odd = {name for name in present | recorded if present.get(name) != recorded.get(name)}
    assert not odd, f"compile again: {p4_products.COMMAND}"


@pytest.mark.p4c
@pytest.mark.parametrize("program", p4_products.programs())
def test_p4c_makes_the_committed_products(program, pytestconfig):
    p4c = str(pytestconfig.getoption("--p4c"))
    made = p4_products.compile_program(p4c, p4_products.FOLDER / f"{program}.p4")
    for path, text in zip(p4_products.products(program), made, strict=True):
        assert path.read_text() == text, f"{path.name} is old: {p4_products.COMMAND}"
