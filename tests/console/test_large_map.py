"""The map of a network of 1,000 switches: its links are there, can be chosen and stand out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import MISSING, Browser, browser, there

from stackcast.udfs.network.drawing import drawing
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.report.page import render

pytestmark = [pytest.mark.integration, pytest.mark.skipif(not there(), reason=MISSING)]

BODY = """<main><section class="panel stage" style="height: 860px">
<div id="map" style="position: absolute; inset: 0 0 34px"></div></section></main>"""
SCRIPT = """
const map = networkMap(byId("map"), data.nodes, data.links);
map.onChoice((choice) => { window.chosen = choice; map.choose(choice); });
const pixel = (canvas, { x, y }) =>
  [...canvas.getContext("2d").getImageData(Math.round(x), Math.round(y), 1, 1).data].slice(0, 3);
const at = (link) => map.at({ kind: "link", id: link });
// The colour in the middle of a link, once the links are where they were drawn.
function middle(link) {
  const drawn = document.querySelector(".map-links");
  return new DOMMatrix(drawn.style.transform).isIdentity ? pixel(drawn, at(link)).join() : "";
}
const onPage = (link) => {
  const { x, y } = at(link), box = byId("map").getBoundingClientRect();
  return [box.x + x, box.y + y];
};
const heat = ([from, to]) =>
  map.weigh(data.links.map(({ u, v }) => Number(u === from && v === to)));
// By Ctrl and the wheel, at a link's middle.
function zoomTo(link) {
  const [clientX, clientY] = onPage(link);
  const canvas = document.querySelector("#map canvas:not(.map-links)");
  const turned = { bubbles: true, cancelable: true, ctrlKey: true, deltaY: -60, clientX, clientY };
  for (let turn = 0; turn < 120; turn += 1) canvas.dispatchEvent(new WheelEvent("wheel", turned));
}
// By the mouse, held on the ground beside the link.
function drag(link, dx, dy) {
  const [x, y] = onPage(link), canvas = document.querySelector("#map canvas:not(.map-links)");
  const mouse = (kind, clientX, clientY) => canvas.dispatchEvent(new MouseEvent(
    kind, { bubbles: true, cancelable: true, view: window, clientX, clientY, button: 0 }));
  mouse("mousedown", x + 40, y);
  for (const part of [0.5, 1]) mouse("mousemove", x + 40 + part * dx, y + part * dy);
  mouse("mouseup", x + 40 + dx, y + dy);
}
async function saved(link) {
  const image = new Image(), canvas = make("canvas");
  image.src = await map.png();
  await image.decode();
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext("2d").drawImage(image, 0, 0);
  window.inPicture = pixel(canvas, at(link)).join();
}
Object.assign(window, { map, middle, onPage, heat, zoomTo, drag, saved });
"""
#: A link by itself, so that its middle is nobody else's: a host's.
LINK = ["h1", "pod1-rack1"]
COLOUR = "return getComputedStyle(document.documentElement).getPropertyValue(`--${arguments[0]}`)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("large")
    network = fabric(pods=40, racks=20, hosts=1, planes=4, spines=10)
    assert len(network.switches) == 1_000
    path = folder / "map.html"
    path.write_text(render("map", BODY, SCRIPT, drawing(network)))
    with browser(folder) as window:
        window.size(1440, 950)
        window.open(path.as_uri())
        window.wait_for("window.map")
        window.run("zoomTo(arguments[0])", LINK)
        yield window


def colour(page: Browser, name: str) -> str:
    return ",".join(map(str, bytes.fromhex(page.run(COLOUR, name).strip().lstrip("#"))))


def test_links_are_as_warm_as_their_bytes(page: Browser) -> None:
    page.run("heat(arguments[0])", LINK)
    page.wait_for(f"middle({LINK}) === '{colour(page, 'hot')}'")
    page.run("map.weigh(null)")
    page.wait_for(f"middle({LINK}) !== '' && middle({LINK}) !== '{colour(page, 'hot')}'")


def test_a_link_that_is_tapped_is_chosen(page: Browser) -> None:
    x, y = page.run("return onPage(arguments[0])", LINK)
    page.fingers(True)
    page.tap(x, y)
    chosen = page.wait_for("window.chosen")
    page.fingers(False)
    assert chosen == {"kind": "link", "id": LINK}


def test_the_picture_of_a_map_has_its_links(page: Browser) -> None:
    page.run("map.choose(null); heat(arguments[0])", LINK)
    page.wait_for(f"middle({LINK}) === '{colour(page, 'hot')}'")
    page.run("saved(arguments[0])", LINK)
    assert page.wait_for("window.inPicture") == colour(page, "hot")


def test_a_map_that_is_dragged_goes_with_the_mouse(page: Browser) -> None:
    page.run("heat(arguments[0])", LINK)
    page.wait_for(f"middle({LINK}) === '{colour(page, 'hot')}'")
    x, y = page.run("return onPage(arguments[0])", LINK)
    page.run("drag(arguments[0], -60, 30)", LINK)
    assert page.run("return onPage(arguments[0])", LINK) == pytest.approx([x - 60, y + 30])
    page.wait_for(f"middle({LINK}) === '{colour(page, 'hot')}'")
