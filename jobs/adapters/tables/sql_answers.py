"""Answers of SQL statements as text, and the number of rows that a statement has written."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from stackcast.jobs.adapters.tables.changes import commit_info
from stackcast.jobs.adapters.tables.definitions import NAMES
from stackcast.jobs.adapters.tables.statements import Statement
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import TableError

#: Column of the answer of UPDATE, DELETE and MERGE.
AFFECTED = "num_affected_rows"
#: Metrics of Delta's commits with numbers of rows, by operation, and what happened to the rows.
_COUNTED = {
    "WRITE": {"numOutputRows": "inserted"},
    "UPDATE": {"numUpdatedRows": "updated"},
    "DELETE": {"numDeletedRows": "deleted"},
    "TRUNCATE": {"numDeletedRows": "deleted"},
    "MERGE": {
        "numTargetRowsInserted": "inserted",
        "numTargetRowsUpdated": "updated",
        "numTargetRowsDeleted": "deleted",
    },
}
#: Operations of Delta, by the first word of the statement that does them, where names differ.
_OPERATIONS = {"insert": "WRITE"}
#: How Spark shows a line break in a value.
_BREAK = "\\n"


def answer_text(answer: DataFrame, most: int) -> str:
    """Returns the rows of an answer as a table, and below it how many there are.

    Values of several lines, such as messages with a caret, take several lines.

    Args:
        answer: the answer.
        most: number of rows that are shown.
    """
    # Lines of the table are borders, the header and one for each row.
    lines = answer._show_string(most, False).split("\n")
    border = lines[0]
    rows = [line for line in lines[3:] if line.startswith("|")]
    cut = any(line.startswith("only showing") for line in lines)
    return "\n".join([*_unfolded(border, lines[1], rows), _count_text(len(rows), cut)])


def _count_text(count: int, cut: bool) -> str:
    if cut:
        return f"only showing the first {count:,} rows; --all shows all"
    return "1 row" if count == 1 else f"{count:,} rows"


def _unfolded(border: str, header: str, rows: list[str]) -> list[str]:
    """Returns the lines of a table in which values may have several lines."""
    ends = [place for place, sign in enumerate(border) if sign == "+"]
    spans = list(itertools.pairwise(ends))
    # In lines of another length, wide characters have moved the columns.
    regular = all(len(line) == len(border) for line in (header, *rows))
    if not regular or not any(_BREAK in row for row in rows):
        return [border, header, border, *rows, border]
    cells = [
        [line[begin + 1 : end].rstrip().split(_BREAK) for begin, end in spans]
        for line in (header, *rows)
    ]
    widths = [max(len(part) for row in cells for part in row[at]) for at in range(len(spans))]
    border = f"+{'+'.join('-' * width for width in widths)}+"
    lines = []
    for row in cells:
        for number in range(max(map(len, row))):
            parts = (cell[number] if number < len(cell) else "" for cell in row)
            padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
            lines.append(f"|{'|'.join(padded)}|")
    return [border, lines[0], border, *lines[1:], border]


def named_tables(words: list[str]) -> list[str]:
    """Returns the tables of ours among the words of a statement, in their order, each once."""
    return [word for word in dict.fromkeys(words) if word in NAMES]


class WriteReport:
    """Reports what a statement writes into a table of ours. Create it before the statement runs."""

    def __init__(self, tables: Tables, statement: Statement) -> None:
        self._tables = tables
        words = statement.writing_words
        self._target = next(iter(named_tables(words)), None)
        self._word = words[0] if words else ""
        self._before = self._version()

    def text(self, answer: DataFrame) -> str | None:
        """Returns the number of rows that were written, and the version of the table.

        Args:
            answer: the answer of the statement.

        Returns:
            None for a statement that writes no rows of a table of ours.
        """
        if self._before is None or self._target is None:
            return None
        affected = None
        if AFFECTED in answer.columns:
            affected = int(answer.collect()[0][AFFECTED])
        after = self._version()
        assert after is not None
        operation = _OPERATIONS.get(self._word, self._word.upper())
        for version in range(self._before + 1, after + 1):
            info = commit_info(self._tables, self._target, version)
            counts = _counts(info)
            # Another editor may have committed, too.
            if info.get("operation") != operation or not _fits(counts, affected):
                continue
            return f"{_counts_text(counts, self._word)}, version {version} of {self._target}"
        if affected == 0:
            return f"0 rows, {self._target} remains at version {after}"
        return None if after == self._before else f"version {after} of {self._target}"

    def _version(self) -> int | None:
        if self._target is None:
            return None
        try:
            return self._tables.version(self._target)
        except TableError:
            # The statement itself will fail, and its error names the table.
            return None


def _counts(info: Mapping[str, Any]) -> dict[str, int]:
    """Returns the numbers of rows of a commit, by what happened to them."""
    metrics = dict(info.get("operationMetrics") or {})
    counted = _COUNTED.get(str(info.get("operation")), {})
    return {word: int(metrics[key]) for key, word in counted.items() if key in metrics}


def _fits(counts: Mapping[str, int], affected: int | None) -> bool:
    return affected is None or not counts or sum(counts.values()) == affected


def _counts_text(counts: Mapping[str, int], word: str) -> str:
    """Returns text such as ``2 rows updated``."""
    shown = {done: count for done, count in counts.items() if count} or dict(counts)
    if not shown:
        return f"{word} done"
    (first, count), *others = shown.items()
    text = f"{count:,} {'row' if count == 1 else 'rows'} {first}"
    return ", ".join([text, *(f"{count:,} {done}" for done, count in others)])
