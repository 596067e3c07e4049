"""Write the tables of the documentation that are generated from the code.

    ./spark-submit.sh make docs

These are the settings in docs/reference/settings.md and the options of the lab in
docs/reference/lab-options.md. Benchmarks write the tables of their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from paths import ROOT

from stackcast.jobs.adapters.app.settings import describe
from stackcast.jobs.embedded.options import RunOptions

REFERENCE = ROOT / "docs" / "reference"
COMMAND = "./spark-submit.sh make docs"


@dataclass(frozen=True)
class GeneratedTable:
    """A table of a page that is generated from the code.

    Attributes:
        page: path of the page.
        mark: name of the table in the marks before and after it.
        table: returns the current table.
    """

    page: Path
    mark: str
    table: Callable[[], str]

    def updated(self) -> str:
        """Return the text of the page with the current table between the marks."""
        begin = f"<!-- {self.mark}: {COMMAND} writes this table -->\n"
        end = f"<!-- /{self.mark} -->\n"
        before, following = self.page.read_text().split(begin)
        return before + begin + self.table() + end + following.split(end)[1]


def settings_table() -> str:
    """Return the table of all settings."""
    return _table(
        "setting",
        (
            (key, f"`{default}`" if default else "", description)
            for key, default, description in describe()
        ),
    )


def options_table() -> str:
    """Return the table of the lab's options."""
    return _table(
        "option",
        (
            (
                f"--{option.name}",
                "" if option.default is None else f"`{option.default}`",
                _sentence(option.metadata["text"]),
            )
            for option in fields(RunOptions)
        ),
    )


def _table(kind: str, rows: Iterable[tuple[str, str, str]]) -> str:
    lines = [f"| `{name}` | {default} | {description} |" for name, default, description in rows]
    return "\n".join([f"| {kind} | default | description |", "|---|---|---|", *lines]) + "\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


SETTINGS = GeneratedTable(REFERENCE / "settings.md", "settings", settings_table)
LAB_OPTIONS = GeneratedTable(REFERENCE / "lab-options.md", "lab options", options_table)
GENERATED_TABLES = (SETTINGS, LAB_OPTIONS)


def main() -> None:
    for table in GENERATED_TABLES:
        table.page.write_text(table.updated())


if __name__ == "__main__":
    main()
