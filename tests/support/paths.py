"""Folders of the clone."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
#: The programs that are shipped, and those that are for tests.
P4 = ROOT / "p4"
COMPILED_P4 = P4 / "compiled"
BENCHMARKS = ROOT / "benchmarks"
TESTS = ROOT / "tests"
TEST_P4 = TESTS / "p4"
COMPILED_TEST_P4 = TEST_P4 / "compiled"
SUPPORT = TESTS / "support"
