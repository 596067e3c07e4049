"""Renders docs/ as a site with search: ./spark-submit.sh make site [--out FOLDER].

Sphinx reads the Markdown files as they are. `docs/index.md` is the start page, and its lists of
links are also the navigation: one section per heading. A broken link, and a page that the index
does not name, end the command with an error.
"""

from __future__ import annotations

import re
from pathlib import Path

from paths import ROOT
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from stackcast.command_line import ArgumentParser
from stackcast.installation import var_folder

DOCS = ROOT / "docs"
SETTINGS = {
    "project": "Stackcast",
    "html_title": "Stackcast",
    "extensions": ["myst_parser", "sphinx_copybutton", __name__],
    "source_suffix": {".md": "markdown"},
    "myst_heading_anchors": 4,
    "highlight_language": "none",
    "html_theme": "furo",
    "html_static_path": [str(Path(__file__).parent / "site")],
    "html_css_files": ["site.css"],
    "html_show_sourcelink": False,
    "html_show_copyright": False,
    "copybutton_prompt_text": "$ ",
}
_LINE = re.compile(r"^(?:(##+) (.+)|- \[[^\]]+\]\(([\w/-]+)\.md\).*)$", re.MULTILINE)


def navigation(index: str) -> str:
    """Return Sphinx's `toctree` directives for the pages that the index links to.

    Each heading of the index that is followed by links becomes one directive. The caption of a
    heading of the third level begins with that of the second: `How-to guides: hosts`.
    """
    trees: list[tuple[str, list[str]]] = []
    purpose = ""
    for level, heading, page in _LINE.findall(index):
        if page:
            trees[-1][1].append(page)
        elif level == "##":
            purpose = heading
            trees.append((purpose, []))
        else:
            trees.append((f"{purpose}: {heading[0].lower()}{heading[1:]}", []))
    return "\n\n".join(
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"])
        for caption, pages in trees
        if pages
    )


def _add_navigation(_app: Sphinx, page: str, content: list[str]) -> None:
    if page == "index":
        content[0] += f"\n\n{navigation(content[0])}\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register this module as an extension of Sphinx."""
    app.connect("source-read", _add_navigation)
    return {"parallel_read_safe": True}


def build(folder: Path) -> int:
    """Render the pages into `folder`, and print warnings to standard error.

    Returns:
        0, or 1 if a link has no target or the index does not name a page.
    """
    with docutils_namespace():
        app = Sphinx(
            srcdir=DOCS,
            confdir=None,
            outdir=folder,
            doctreedir=folder / ".doctrees",
            buildername="html",
            confoverrides=SETTINGS,
            status=None,
            warningiserror=True,
        )
        app.build()
        return app.statuscode


def main() -> None:
    parser = ArgumentParser("./spark-submit.sh make site", description="Render docs/ as a site.")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=var_folder() / "site")
    folder = parser.parse_args().out
    if build(folder):
        raise SystemExit(1)
    print(f"site: {folder / 'index.html'}")


if __name__ == "__main__":
    main()
