"""The console by keyboard, by a finger on a telephone, in any width, dark and light."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import MISSING, Browser, browser, there
from console_server import TOKEN, console, serving
from paths import ROOT
from pcap_deployment import NETWORK, PUBLISHER, Deployment, records
from pyspark.sql import SparkSession

from stackcast.lab.up.broker import Broker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not there(), reason=MISSING),
]

VIEWS = ("map", "events", "subscriptions", "trees", "health")
WIDTHS = (390, 640, 800, 1024, 1400, 1920)
#: More stops of the Tab key than any page has.
MOST_STOPS = 400
#: Minimum contrast of text (WCAG 2.2, 1.4.3).
CONTRAST = 4.5
CHECKS = (ROOT / "tests" / "support" / "page_checks.js").read_text()


@pytest.fixture(scope="module")
def window(
    spark: SparkSession, broker: Broker, filled: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Browser, str, Deployment]]:
    """A console of a stream that has sent some records, and a browser."""
    folder = tmp_path_factory.mktemp("access")
    shutil.copytree(filled, folder / "tables")
    ran = Deployment(spark, broker.bootstrap_servers, folder)
    ran.publish([*records()[:60], records()[60][:-1]])
    ran.run()
    settings = ran.settings
    application = console(
        ran.tables,
        topic=settings.topic,
        dead_letter_topic=settings.dead_letter_topic,
        kafka=settings.kafka,
        publisher=settings.publisher,
        checkpoint=settings.checkpoint,
    )
    with serving(application) as address, browser(folder) as page:
        page.size(1440, 950)
        page.open(f"{address}/#map&token={TOKEN}")
        page.wait_for("document.documentElement.dataset.ready === 'yes'")
        yield page, address, ran


def open_view(page: Browser, address: str, view: str) -> None:
    # From another page; otherwise the browser would only change the view of the current page.
    page.open("about:blank")
    page.open(f"{address}/#{view}")
    page.wait_for("document.documentElement.dataset.ready === 'yes'")
    page.wait_for(f"views['{view}'].csv()[1].length > 0")


def focused(page: Browser) -> str:
    """Returns the id, label or text of the element that has the keyboard."""
    return page.run(
        "const at = document.activeElement;"
        "return at === document.body ? '' : at.id || at.getAttribute('aria-label')"
        " || at.innerText.trim().split('\\n')[0]"
    )


def tab_to(page: Browser, selector: str) -> None:
    """Press Tab until an element has the keyboard; each stop must be visibly outlined."""
    for _ in range(MOST_STOPS):
        page.press("Tab")
        outlined, reached = page.run(
            "const at = document.activeElement;"
            "return [at === document.body || getComputedStyle(at).outlineStyle !== 'none',"
            " at.matches(arguments[0])]",
            selector,
        )
        assert outlined, f"nothing shows that {focused(page)!r} has the keyboard"
        if reached:
            return
    raise AssertionError(f"Tab never comes to {selector!r}")


def test_everything_can_be_done_by_the_keyboard_alone(window: tuple[Browser, str, Deployment]):
    page, address, ran = window
    page.size(1440, 950)
    open_view(page, address, "map")
    page.press("/")
    assert focused(page) == "map-search"
    page.press(*"h1")
    tab_to(page, "[data-id=h1]")
    page.press("Enter")
    page.wait_for("document.getElementById('map-detail').textContent.includes('Gaps and repairs')")
    page.press("2")
    page.wait_for("document.querySelector('#events-rows .opens')")
    page.press("/")
    assert focused(page) == "events-wanted"
    page.press(*"price > 20")
    page.wait_for("document.querySelector('#events-rows .opens')")
    tab_to(page, "#events-rows .opens")
    page.press("Enter")
    page.wait_for("document.querySelector('#events-detail .labels, #events-detail .told')")
    tab_to(page, "#events-detail .main")
    page.press("Enter")
    page.wait_for("document.querySelector('#map-steps li')")

    page.press("3")
    page.wait_for("document.querySelector('#rows tbody')")
    tab_to(page, "#rule-id")
    page.press(*"keys")
    page.press("Tab")
    assert focused(page) == "rule-subscriber"
    page.press(*"h2")
    tab_to(page, "#rule-filter")
    page.press(*"pric")
    page.wait_for("!document.getElementById('offered').hidden")
    page.press("ArrowDown", "ArrowUp", "Enter")
    page.press(*" > 20")
    assert page.run("return document.getElementById('rule-filter').value") == "price > 20"
    page.wait_for("document.getElementById('checked').innerText === 'The rule is valid.'")
    page.press("Escape")
    tab_to(page, "#save")
    page.press("Enter")
    page.wait_for("document.getElementById('told').innerText.includes('not applied it yet')")
    assert "keys" in {row["id"] for row in ran.tables.rows("subscriptions")}

    page.run("document.activeElement.blur()")
    page.press("4")
    page.wait_for("document.querySelector('#trees-list .choice')")
    tab_to(page, "#trees-list .choice")
    page.press("Enter")
    page.wait_for("document.getElementById('trees-caption').innerText.startsWith('tree ')")
    page.press("5")
    page.wait_for("document.querySelector('#health details')")
    tab_to(page, "#health summary")
    page.press("Enter")
    page.wait_for("document.querySelector('#health details[open]')")


def check(page: Browser, call: str, *arguments: object) -> object:
    """Returns the result of a function of page_checks.js."""
    return page.run(f"{CHECKS}; return {call}", *arguments)


@pytest.mark.long
def test_everything_can_be_done_by_a_finger_on_a_telephone(
    window: tuple[Browser, str, Deployment],
):
    page, address, _ = window
    home = {"kind": "switch", "id": NETWORK.hosts[PUBLISHER].switch}
    place = "const at = views.map.of.at(arguments[0]);"
    page.telephone(390, 844)
    try:
        open_view(page, address, "map")
        # The loads of links arrive last, and their legend moves the map.
        page.wait_for("document.getElementById('map-scale').innerText.includes('busiest')")
        page.run("document.getElementById('map').scrollIntoView({block: 'center'})")
        x, y = page.run(
            f"{place} const box = document.getElementById('map').getBoundingClientRect();"
            "return [box.x + at.x, box.y + at.y]",
            home,
        )
        page.tap(x, y)
        page.wait_for(f"location.hash.startsWith('#map=switch:{home['id']}')")
        page.wait_for("document.getElementById('map-detail').textContent.includes('Dropped')")
        # A finger that moves on the map scrolls the page, and not the map.
        page.run("document.getElementById('map').scrollIntoView({block: 'center'})")
        before, *position = page.run(f"{place} return [scrollY, at.x, at.y]", home)
        page.swipe(*check(page, "middle('#map')"), up=-150)
        page.wait_for(f"scrollY < {before} - 80")
        assert page.run(f"{place} return [at.x, at.y]", home) == position
        page.run("scrollTo(0, 0)")
        page.tap(*check(page, "middle(arguments[0])", ".views a[href='#events']"))
        page.wait_for("location.hash.startsWith('#events')")
    finally:
        page.fingers(False)


def test_on_a_telephone_words_are_whole_and_the_legend_is_below_the_map(
    window: tuple[Browser, str, Deployment], tmp_path: Path
):
    page, address, _ = window
    page.size(390, 844)
    try:
        for view in VIEWS:
            open_view(page, address, view)
            page.run("for (const at of document.querySelectorAll('details')) at.open = true")
            page.picture(tmp_path / f"{view}.png")
            assert check(page, "outside()") == [], view
            assert check(page, "broken()") == [], view
        open_view(page, address, "events")
        heights = page.run(
            "return [...document.querySelectorAll('#events-rows tbody tr')]"
            ".map((row) => row.getBoundingClientRect().height)"
        )
        assert len(heights) > 5 and max(heights) < 844 / 5
        open_view(page, address, "map")
        map_end, legend_start = page.run(
            "return [document.getElementById('map').getBoundingClientRect().bottom,"
            " document.querySelector('#map-view .legend').getBoundingClientRect().top]"
        )
        assert map_end <= legend_start
        page.wait_for("views.map.of")
        height, places = page.run(
            "return [document.getElementById('map').clientHeight,"
            " arguments[0].map((id) => views.map.of.at({kind: 'host', id}).y)]",
            sorted(NETWORK.hosts),
        )
        assert max(places) < height - 10, "all hosts are on the map"
    finally:
        page.size(1440, 950)


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_view_fits_every_width_and_can_be_read(
    window: tuple[Browser, str, Deployment], tmp_path: Path, dark: bool
):
    page, address, _ = window
    page.dark(dark)
    for view in VIEWS:
        page.size(1400, 900)
        open_view(page, address, view)
        ground = page.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 200) is dark, ground
        assert check(page, "pale(arguments[0])", CONTRAST) == [], view
        for width in WIDTHS:
            page.size(width, 900)
            wide = page.run("return document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, (view, width, check(page, "outside()"))
            assert check(page, "outside()") == [], (view, width)
            page.picture(tmp_path / f"{view}-{width}.png")
    page.dark(False)
