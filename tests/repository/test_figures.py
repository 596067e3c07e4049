"""Figures quoted in README and in the summary of results are those of the generated tables.

The tables come from `bench pipeline document`. If a table changes, the sentences must change too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from paths import ROOT

pytestmark = pytest.mark.unit

RESULTS = ROOT / "docs" / "results"
README, OVERVIEW = ROOT / "README.md", RESULTS / "overview.md"
LATENCY, THROUGHPUT = RESULTS / "pipeline-latency.md", RESULTS / "pipeline-throughput.md"


def rows_of(page: Path, table: str) -> list[dict[str, str]]:
    """Return the rows of a generated table by the names of its columns."""
    mark = f"<!-- table {table} -->\n"
    _, found, rest = page.read_text("utf-8").partition(mark)
    assert found, f"{page.name} has no table {table!r}"
    lines = rest.partition("<!-- end -->")[0].splitlines()
    heads, _, *body = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines)
    return [dict(zip(heads, cells, strict=True)) for cells in body]


def number(text: str) -> float:
    """Return the value of a cell such as ``80 K`` or ``1.08 ms``."""
    match = re.match(r"([\d.,]+)( [KM]\b)?", text)
    assert match, text
    return float(match[1].replace(",", "")) * {None: 1, " K": 1e3, " M": 1e6}[match[2]]


def milliseconds(text: str) -> str:
    """Return a time as a sentence quotes it: whole from 100 ms on, otherwise with one decimal."""
    value = number(text)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def interval(rows: list[dict[str, str]], column: str) -> str:
    """Return ``1.1 to 1.4 ms``, or a single value if all rows have the same."""
    ordered = sorted((row[column] for row in rows), key=number)
    least, most = milliseconds(ordered[0]), milliseconds(ordered[-1])
    return f"{least} ms" if least == most else f"{least} to {most} ms"


def latency_sentences() -> list[str]:
    """Return the sentences on latency for README and the summary."""
    rows = rows_of(LATENCY, "pipeline latency")
    (batches,) = (row for row in rows if row["measurement"] == "event to wire, micro-batches")
    real_time = [row for row in rows if row["measurement"] == "event to wire, real time"]
    rates = sorted(number(row["records/s"]) for row in real_time)
    return [
        "In micro-batches, the time from event to wire is "
        f"{milliseconds(batches['p50'])} ms at the median and {milliseconds(batches['p99'])} ms "
        "for 99 % of the events, measured on two cores with "
        f"{number(batches['records/s']):,.0f} records per second.",
        f"In real time, it is {interval(real_time, 'p50')} at the median and "
        f"{interval(real_time, 'p99')} for 99 % of the events, with {rates[0]:,.0f} to "
        f"{rates[-1]:,.0f} records per second",
    ]


def throughput_sentences() -> list[str]:
    """Return the sentences on throughput for the summary."""
    rows = {row["program"]: row for row in rows_of(THROUGHPUT, "pipeline throughput")}
    rate = number(rows["stackcast"]["records/s"])
    ratio = {program: row["Stackcast's relative rate"] for program, row in rows.items()}
    java, default, tuned = (
        ratio[program].removesuffix(" x")
        for program in ("Java consumer", "mapInArrow, Spark defaults", "mapInArrow, gc.freeze")
    )
    return [
        f"With two partitions, Stackcast processes {rate:,.0f} records per second.",
        f"This is {java} times the rate of a Java consumer with the same task, and {default} times "
        "the rate of `mapInArrow` with Spark's defaults, which only counts the records.",
        "With settings tuned for counting, Stackcast reaches "
        f"{tuned} times the rate of `mapInArrow`.",
    ]


@pytest.mark.parametrize("page", [README, OVERVIEW], ids=lambda page: page.name)
def test_quoted_latencies_are_those_of_the_table(page: Path):
    check(page, latency_sentences(), LATENCY)


def test_the_quoted_throughput_is_that_of_the_table():
    check(OVERVIEW, throughput_sentences(), THROUGHPUT)


def test_figures_are_rounded_as_sentences_quote_them():
    assert [milliseconds(text) for text in ("1.08 ms", "10.9 ms", "547 ms")] == [
        "1.1",
        "10.9",
        "547",
    ]
    assert [number(text) for text in ("80 K", "2,000", "1.2 M")] == [80_000, 2_000, 1_200_000]
    rows = [{"p50": "1.41 ms"}, {"p50": "1.08 ms"}]
    assert interval(rows, "p50") == "1.1 to 1.4 ms"
    assert interval(rows[:1], "p50") == "1.4 ms"


def check(page: Path, sentences: list[str], source: Path) -> None:
    """Check that a page contains these sentences, whatever its line breaks are."""
    text = " ".join(page.read_text("utf-8").split())
    for sentence in sentences:
        assert sentence in text, (
            f"{page.relative_to(ROOT)} does not quote the figures of {source.relative_to(ROOT)}. "
            f"Write: {sentence}"
        )
