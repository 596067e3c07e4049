"""What a run leaves behind: report.json, the table on the terminal, the page.

The page must hold for any text that a subscriber may write, and need nothing but itself.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import MISSING, Browser, browser, there
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from stackcast.lab.report.page import (
    ReportData,
    print_table,
    render_html,
    verdict,
    write_html,
    write_json,
)

pytestmark = pytest.mark.unit

SUMMARY = {
    "messages_in": 100_000,
    "deliveries_expected": 12,
    "deliveries_received": 12,
    "missing": 0,
    "extra": 0,
    "duplicates": 0,
    "link_bytes": 1_000,
    "unicast_bytes": 1_500,
    "broadcast_bytes": 9_000,
    "seconds": 1.25,
    "parts": {"Spark and tables": 0.75, "publishing": 0.5},
    "latency": {
        "mode": "microbatch",
        "count": 3,
        "p50_ms": 4.2,
        "p99_ms": 1_500.0,
        "max_ms": 1_500.0,
        "after_first_second": {"p50_ms": 1.2, "p99_ms": 5.6, "max_ms": 7.0},
        "histogram": [
            {"from_ms": 3.5, "to_ms": 4.5, "count": 2},
            {"from_ms": 1_412.0, "to_ms": 1_585.0, "count": 1},
        ],
    },
}
HOSTS = [
    {"host": "h1", "expected": 5, "received": 5, "missing": 0, "extra": 0, "duplicates": 0},
    {"host": "h2", "expected": 7, "received": 7, "missing": 0, "extra": 0, "duplicates": 0},
]
NASTY = "</script><script>document.title='broken'</script><!--<script> & \u2028 '\"`${x}"


def sample(filter_text: str = "price > 50.25") -> ReportData:
    return ReportData(
        summary=SUMMARY,
        hosts=HOSTS,
        batches=[{"batch_id": 0, "rows": 9, "seconds": 0.5, "versions": {"subscriptions": 1}}],
        nodes=[
            {"id": "feed1", "kind": "publisher", "layer": None, "x": 0.0, "y": 1.0},
            {"id": "rack1", "kind": "switch", "layer": "rack", "x": 0.5, "y": 0.0},
            {"id": "h1", "kind": "host", "layer": None, "x": 0.5, "y": 1.0},
            {"id": "h2", "kind": "host", "layer": None, "x": 1.0, "y": 1.0},
        ],
        links=[{"u": "rack1", "v": name, "up": True} for name in ("feed1", "h1", "h2")],
        subscriptions=[{"id": "s1", "host": "h2", "filter": filter_text, "matched": 1_234}],
        notifications=[
            {
                "id": 0,
                "partition": 1,
                "offset": 77,
                "message": 2,
                "event": {"add_order.stock": "GOOGL", "add_order.price": "50.5000"},
                "subscriptions": ["s1"],
                "receivers": ["h2"],
                "labels": [
                    label("hop", 3, "0x80000003", ["rack1", "h2"]),
                    label("stop", 4, "0xc0000004", ["rack1", "h1"]),
                    label("stop", 5, "0xc0000005", ["rack1", "feed1"]),
                ],
                "edges": [["feed1", "rack1"], ["rack1", "h2"]],
            }
        ],
        run={
            "began": "2026-11-23T12:00:00+00:00",
            "version": "0.1.0",
            "network": "1 switches, 2 subscribers, 1 publisher, 3 links",
            "labels": "32 bits",
            "settings": {"--seed": 7},
        },
    )


def label(kind: str, number: int, wire: str, link: list[str]) -> dict[str, object]:
    return {"text": f"{kind} {number}", "kind": kind, "id": number, "wire": wire, "link": link}


class Scripts(HTMLParser):
    """The script elements of a page as a browser cuts them, and every attribute that loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.loads: list[str] = []
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "script":
            self._inside = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def test_page_is_complete_in_itself() -> None:
    page = render_html(sample())
    parsed = Scripts(page)
    assert parsed.loads == []
    assert len(parsed.scripts) == 3
    assert "Cytoscape Consortium" in parsed.scripts[1]
    assert "default-src 'none'" in page
    assert not re.search(r"/\*\{\w+\}\*/", page), "a mark of the template was left unfilled"


def test_licence_of_the_vendored_library_lies_beside_it() -> None:
    import stackcast.udfs.report  # noqa: PLC0415

    folder = Path(stackcast.udfs.report.__file__).parent
    assert "Permission is hereby granted" in (folder / "cytoscape.LICENSE").read_text()


@examples(15)
@given(
    st.text(max_size=40) | st.sampled_from([NASTY, "/*{script}*/", "/*{data}*/", "]]>", "\ud800"])
)
def test_no_text_of_a_user_breaks_out_of_the_data(text: str) -> None:
    scripts = Scripts(render_html(sample(text))).scripts
    assert len(scripts) == 3
    assert json.loads(scripts[0])["subscriptions"][0]["filter"] == text
    assert scripts[2].startswith('"use strict"')


@pytest.mark.parametrize("fault", ["missing", "extra", "duplicates", "out_of_order"])
def test_verdict_names_what_is_wrong(fault: str) -> None:
    assert verdict(SUMMARY)[0]
    exact, sentence = verdict(SUMMARY | {fault: 3})
    assert not exact
    assert sentence.startswith("Not delivered exactly: 3 ")


def test_json_is_written_whole_into_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "var" / "lab" / "report.json"
    write_json(path, SUMMARY)
    write_json(path, SUMMARY)
    assert json.loads(path.read_text()) == SUMMARY
    assert list(path.parent.iterdir()) == [path]


def test_table_is_plain_where_nobody_looks_at_a_terminal() -> None:
    stream = io.StringIO()
    print_table(SUMMARY, HOSTS, stream)
    text = stream.getvalue()
    assert "\x1b" not in text
    assert re.search(r"^h2 +7 +7 +0 +0 +0$", text, re.M)
    assert re.search(r"messages in +100,000$", text, re.M)
    assert "9,000 (9.00 x)" in text
    assert "median 4.2 ms, 99th percentile 1,500 ms, maximum 1,500 ms" in text
    assert "median 1.2 ms, 99th percentile 5.6 ms, maximum 7.0 ms" in text
    assert re.search(r"^seconds +1\.2\n  Spark and tables +0\.8\n  publishing +0\.5$", text, re.M)
    assert text.rstrip().endswith(
        "Delivered exactly: all 12 deliveries, none missing, extra or duplicated."
    )


def test_table_on_a_terminal_says_the_same() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    print_table(SUMMARY, [HOSTS[0] | {"host": "[red]h1"}], stream)
    assert "[red]h1" in stream.getvalue(), "a host's name is a text, not markup"
    assert "Delivered exactly" in stream.getvalue()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not there():
        pytest.skip(MISSING)
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def open_page(window: Browser, folder: Path, data: ReportData, choice: str = "") -> None:
    write_html(folder / "report.html", data)
    window.open(f"{(folder / 'report.html').as_uri()}{choice}")
    window.wait_for("document.documentElement.dataset.ready === 'yes'")


@pytest.mark.integration
def test_an_address_with_a_choice_lights_it(window: Browser, tmp_path: Path) -> None:
    open_page(window, tmp_path, sample(NASTY), "#notification=0")
    assert window.run("return document.title") == "Stackcast: run report"
    detail = window.text("#detail")
    assert "GOOGL @ 50.5000" in detail
    assert "0x80000003" in detail, "labels are shown as wide as they are on the wire"
    assert "0xc0000005" in detail
    assert detail.count("does not send on it") == 1, "what a stop is must be said once"
    assert "1,234 matches" in detail
    page = window.text("body")
    for told in ("2026-11-23 12:00:00 UTC", "version 0.1.0", "--seed", "32 bits"):
        assert told in page
    assert "2 records" in window.run("return document.querySelector('.histogram').innerHTML")
    assert "1.5 s" in page and "micro-batches: from the Kafka" in page
    assert "After the first second: median 1.2 ms, 99th percentile 5.6 ms, maximum 7 ms" in page
    assert "Spark and tables 0.75 s" in " ".join(window.text("#timed").split())
    assert "</script><script>document.title" in detail
    assert window.text(".choice[aria-pressed=true]").startswith("GOOGL")


@pytest.mark.integration
def test_a_stop_that_is_pointed_at_is_crossed_out_on_the_map(
    window: Browser, tmp_path: Path
) -> None:
    open_page(window, tmp_path, sample(), "#notification=0")
    point = "document.querySelectorAll('.stack .stop')[0].dispatchEvent(new Event(arguments[0]))"
    crossed = """return document.getElementById("map")._cyreg.cy.edges(".marked").map((edge) =>
        [edge.target().data("name"), edge.style("label"), edge.style("line-color")])"""
    colour = "return getComputedStyle(document.documentElement).getPropertyValue('--stop')"
    window.run(point, "mouseenter")
    ((host, cross, painted),) = window.run(crossed)
    assert (host, cross) == ("h1", "\u2715")
    wanted = window.run(colour).strip().lstrip("#")
    assert [int(n) for n in re.findall(r"\d+", painted)] == [*bytes.fromhex(wanted)]
    window.run(point, "mouseleave")
    assert window.run(crossed) == []


@pytest.mark.integration
@pytest.mark.parametrize("width", [800, 1400])
def test_nothing_is_cut_off(window: Browser, tmp_path: Path, width: int) -> None:
    """Neither the page nor any of its panels is wider than what shows it."""
    window.size(width, 1000)
    wide = [row | {name: 1_234_567 for name in row if name != "host"} for row in HOSTS]
    open_page(window, tmp_path, dataclasses.replace(sample(), hosts=wide), "#notification=0")
    assert window.run("return innerWidth") == width
    cut = """return [document.documentElement, ...document.querySelectorAll(".panel, .scroll")]
        .filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.outerHTML)"""
    assert window.run(cut) == []
    assert "duplicates" in window.text("#hosts")
    drawn = window.run("return document.getElementById('map').getBoundingClientRect().width")
    assert drawn > 600, "the map has room for its names"
