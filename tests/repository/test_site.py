"""The pages of docs/ form a site: sorted by purpose, short, wrapped, and with links that work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

from tests.make.site import build

pytestmark = pytest.mark.integration

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
PURPOSES = {"tutorials", "how-to", "reference", "explanation", "results"}
WIDTH = 100
MOST_WORDS = 3_000
_GENERATED = re.compile(r"<!-- (?!end)[^>]+ -->\n.*?<!-- (?:end|/[\w ]+) -->", re.DOTALL)
_COMMAND = re.compile(r"^ {4}.*$", re.MULTILINE)
_TABLE = re.compile(r"^\|.*$", re.MULTILINE)


def test_each_page_has_one_of_five_purposes_and_a_line_in_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\):\s+\S", index, re.MULTILINE)
    pages = {path.relative_to(DOCS).as_posix() for path in PAGES} - {"index.md"}
    assert set(listed) == pages and len(listed) == len(pages)
    assert {page.partition("/")[0] for page in pages} == PURPOSES


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(DOCS).as_posix())
def test_a_page_has_one_title_and_at_most_3000_words_by_hand(page: Path) -> None:
    text = page.read_text()
    assert text.startswith("# ") and len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    words = [word for word in _COMMAND.sub("", _GENERATED.sub("", text)).split() if word != "|"]
    assert len(words) <= MOST_WORDS


@pytest.mark.parametrize(
    "page",
    [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"],
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_prose_is_wrapped_at_one_width(page: Path) -> None:
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for line in _TABLE.sub("", text).splitlines():
        # A command or a link cannot be broken.
        breakable = not line.startswith(("    ", "<!--", "![")) and " " in line.strip()
        if breakable and len(line) > WIDTH:
            assert re.match(r" *(- )?\S*(\[[^\]]*\]\([^)]*\)|`[^`]*`)\S*$", line), line


def test_the_site_is_built_without_a_broken_link_and_has_a_search_index(tmp_path: Path) -> None:
    assert build(tmp_path) == 0
    start = (tmp_path / "index.html").read_text()
    for purpose in ("Tutorials", "How-to guides", "Reference", "Explanation", "Results"):
        assert purpose in start
    found = (tmp_path / "searchindex.js").read_text()
    assert "multicast" in found and (tmp_path / "search.html").is_file()
