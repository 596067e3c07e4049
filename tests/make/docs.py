"""Writes the tables of the documents that are made from the code.

    ./spark-submit.sh make docs

These are the tables of settings and of the lab's options in docs/operations.md. Benchmarks write
the tables of what they measured.
"""

from __future__ import annotations

from dataclasses import fields

from paths import ROOT

from stackcast.jobs.adapters.app.settings import describe
from stackcast.jobs.embedded.options import RunOptions

OPERATIONS = ROOT / "docs" / "operations.md"
COMMAND = "./spark-submit.sh make docs"

BEGIN = f"<!-- settings: {COMMAND} writes this table -->\n"
END = "<!-- /settings -->\n"
BEGIN_OPTIONS = f"<!-- lab options: {COMMAND} writes this table -->\n"
END_OPTIONS = "<!-- /lab options -->\n"


def settings_table() -> str:
    """The table of all settings, as docs/operations.md has it."""
    rows = [
        f"| `{key}` | {f'`{default}`' if default else ''} | {meaning} |"
        for key, default, meaning in describe()
    ]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows]) + "\n"


def options_table() -> str:
    """Return the table of the lab's options."""
    rows = [
        f"| `--{option.name}` | {'' if option.default is None else f'`{option.default}`'} "
        f"| {option.metadata['text']} |"
        for option in fields(RunOptions)
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows]) + "\n"


def with_tables(text: str) -> str:
    """Return the document with the current tables between their marks."""
    for begin, table, end in (
        (BEGIN, settings_table(), END),
        (BEGIN_OPTIONS, options_table(), END_OPTIONS),
    ):
        before, rest = text.split(begin)
        text = before + begin + table + end + rest.split(end)[1]
    return text


def main() -> None:
    OPERATIONS.write_text(with_tables(OPERATIONS.read_text()))


if __name__ == "__main__":
    main()
