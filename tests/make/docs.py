"""Writes the tables of the documents that are made from the code.

    ./spark-submit.sh make docs

That is the table of settings in docs/operations.md; benchmarks write the tables of what they
measured.
"""

from __future__ import annotations

from paths import ROOT

from stackcast.jobs.adapters.app.settings import describe

OPERATIONS = ROOT / "docs" / "operations.md"
COMMAND = "./spark-submit.sh make docs"

BEGIN = f"<!-- settings: {COMMAND} writes this table -->\n"
END = "<!-- /settings -->\n"


def settings_table() -> str:
    """The table of all settings, as docs/operations.md has it."""
    rows = [
        f"| `{key}` | {f'`{default}`' if default else ''} | {meaning} |"
        for key, default, meaning in describe()
    ]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows]) + "\n"


def with_settings(text: str) -> str:
    """The document with the table between its marks replaced by the current one."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + settings_table() + END + rest.split(END)[1]


def main() -> None:
    OPERATIONS.write_text(with_settings(OPERATIONS.read_text()))


if __name__ == "__main__":
    main()
