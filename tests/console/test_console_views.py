"""Map, events and trees of the console, on a stream that has run, also in Chromium."""

from __future__ import annotations

import csv
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from browser import MISSING, Browser, browser, there
from console_server import TOKEN, console, serving
from pcap_deployment import NETWORK, PUBLISHER, RULES, Deployment, records
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient
from waiting import until

from stackcast.udfs.filters.language.rule import parse_rule
from stackcast.udfs.filters.meaning.evaluate import matches
from stackcast.udfs.messages.reference import read_message, read_packet
from stackcast.udfs.messages.specification import Specification

pytestmark = pytest.mark.integration

RECORDS = 120
WRITES = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def ran(deployment: Deployment) -> Deployment:
    """A stream that has sent some records, one of which cannot be read."""
    deployment.publish([*records()[:RECORDS], records()[RECORDS][:-1]])
    deployment.run()
    return deployment


def console_of(ran: Deployment):
    settings = ran.settings
    return console(
        ran.tables,
        topic=settings.topic,
        dead_letter_topic=settings.dead_letter_topic,
        kafka=settings.kafka,
        publisher=settings.publisher,
        checkpoint=settings.checkpoint,
    )


def client(ran: Deployment) -> TestClient:
    application = console_of(ran).application
    return TestClient(application, base_url="http://127.0.0.1", headers=WRITES)


def test_map_and_events_show_the_frames_of_the_stream(ran: Deployment, itch: Specification):
    ask = client(ran)
    drawn = ask.get("/api/network").json()
    assert {node["id"] for node in drawn["nodes"]} == {*NETWORK.switches, *NETWORK.hosts}
    loads = ask.get("/api/loads").json()
    numbers = {(link["u"], link["v"]): n for n, link in enumerate(drawn["links"])}
    home = NETWORK.hosts[PUBLISHER].switch
    sent = sum(len(frame) for frame in ran.frames())
    first = numbers[min(PUBLISHER, home), max(PUBLISHER, home)]
    assert loads["stackcast"][first] == sent > 0, "on the publisher's link are all frames"
    assert sum(loads["stackcast"]) < sum(loads["broadcast"])

    link = ask.get("/api/detail", params={"kind": "link", "u": PUBLISHER, "v": home}).json()
    assert {way["from"]: way["stackcast"] for way in link["ways"]} == {PUBLISHER: sent, home: 0}
    host = ask.get("/api/detail", params={"kind": "host", "id": "h1"}).json()
    assert host["total"]["notifications"] > 0 and host["switch"] == NETWORK.hosts["h1"].switch
    switch = ask.get("/api/detail", params={"kind": "switch", "id": home}).json()
    assert PUBLISHER in {each["to"] for each in switch["links"]}
    assert ask.get("/api/detail", params={"kind": "switch", "id": "no"}).status_code == 404
    check_drops_and_repairs(ran, ask, home)

    rules = {name: parse_rule(text, itch) for name, (_, text) in RULES.items()}
    tail = ask.post("/api/events", json={"wanted": "price > 100"}).json()
    condition = parse_rule("price > 100", itch).condition
    events = [
        read_message(itch, message)
        for packet in records()[:RECORDS]
        for message in read_packet(packet)[2]
    ]
    assert (tail["looked_at"], tail["found"]) == (
        len(events),
        sum(matches(condition, event) for event in events),
    )
    for event in tail["events"]:
        packet = records()[2 * event["offset"] + event["partition"]]
        raw = read_message(itch, read_packet(packet)[2][event["index"]])
        assert event["rules"] == [n for n, r in rules.items() if matches(r.condition, raw)]
        assert event["batch"] is not None
    check_fields(tail["events"], itch)
    wrong = ask.post("/api/events", json={"wanted": "prise > 1"}).json()["error"]
    assert wrong["code"] == "SUBSCRIPTION.UNKNOWN_FIELD" and "^" in wrong["message"]

    (letter,) = ask.get("/api/letters").json()
    assert letter["reason"] == "truncated_message"
    assert bytes.fromhex(letter["sample"]) == records()[RECORDS][:-1][: len(letter["sample"]) // 2]

    batch = ran.ledger[0]["batch_id"]
    again = ask.post("/api/replay", json={"batch": batch}).json()
    assert again["same"] and again["frames"] == ran.ledger[0]["frames"] > 0
    assert ask.post("/api/replay", json={"batch": 99}).json()["error"]["code"] == "CONSOLE.NO_BATCH"

    trees = ask.get("/api/trees").json()
    assert trees["bytes"] <= trees["without"]


def check_fields(events: list[dict[str, Any]], itch: Specification) -> None:
    """Query fields come first, then times of day, which are written as rules write them."""
    queries = [name.rpartition(".")[2] for name in itch.queries]
    for event in events:
        packet = records()[2 * event["offset"] + event["partition"]]
        raw = read_message(itch, read_packet(packet)[2][event["index"]])
        names = [name.rpartition(".")[2] for name in event["fields"]]
        first = [name for name in queries if name in names]
        assert names[: len(first)] == first
        assert set(event["fields"]) == set(raw)
        (time,) = [name for name in raw if name.endswith(".timestamp")]
        assert [*event["fields"]].index(time) == len(first)
        text, zone = event["fields"][time].split(" ")
        assert zone == "ET"
        rule = parse_rule(f"{time} == {text}", itch)
        assert matches(rule.condition, raw), (text, raw[time])


def check_drops_and_repairs(ran: Deployment, ask: TestClient, home: str) -> None:
    """The page shows drops that the refresher recorded, and repairs of the re-request service."""
    counted_at = dt.datetime.now(dt.UTC)
    drop = {"switch": home, "reason": "NO_ROUTE", "packets": 7, "counted_at": counted_at}
    later = {**drop, "packets": 9, "counted_at": counted_at + dt.timedelta(seconds=10)}
    counts = {"requests": 2, "notifications": 5, "bytes": 600, "unavailable": 1, "rejected": 0}
    for rows in ([drop], [later, {**drop, "switch": "elsewhere"}]):
        ran.tables.append("switch_drops", rows)
        row = {"subscriber": "h1", **counts, "recorded_at": counted_at}
        ran.tables.append("rerequest_statistics", [row, {**row, "subscriber": "h2"}])
        switch = ask.get("/api/detail", params={"kind": "switch", "id": home}).json()
    (dropped,) = switch["drops"]
    assert (dropped["reason"], dropped["packets"]) == ("NO_ROUTE", 9)
    host = ask.get("/api/detail", params={"kind": "host", "id": "h1"}).json()
    assert {name: host["asked"][name] for name in counts} == {n: 2 * c for n, c in counts.items()}
    assert ask.get("/api/detail", params={"kind": "host", "id": "h3"}).json()["asked"] is None


def test_a_link_is_up_by_the_same_rule_on_all_pages(ran: Deployment):
    ask = client(ran)
    u, v = next(
        (link.switch, link.neighbor) for link in NETWORK.links if link.neighbor in NETWORK.switches
    )
    for down in ((u, v), (v, u)):
        rows = ran.tables.rows("links")
        for row in rows:
            row["up"] = (row["switch"], row["neighbor"]) != down
        ran.tables.overwrite("links", rows)
        (drawn,) = [
            link
            for link in ask.get("/api/network").json()["links"]
            if {link["u"], link["v"]} == {u, v}
        ]
        link = ask.get("/api/detail", params={"kind": "link", "u": u, "v": v}).json()
        ports = ask.get("/api/detail", params={"kind": "switch", "id": u}).json()["links"]
        (port,) = [each for each in ports if each["to"] == v]
        assert drawn["up"] is link["up"] is port["up"] is False
        assert link["down"] == [down[0]]
        metrics = samples(ask.get("/metrics").text)
        assert metrics["stackcast_link_up", u, v] == metrics["stackcast_link_up", v, u] == 0
    # With a second cable, a link is up if one of its cables is.
    first = [row for row in rows if {row["switch"], row["neighbor"]} == {u, v}]
    last = max(row["link_id"] for row in rows)
    second = [
        row | {"link_id": last + 1 + number, "port": 60, "neighbor_port": 60, "up": True}
        for number, row in enumerate(first)
    ]
    for row in first:
        row["up"] = False
    ran.tables.overwrite("links", rows + second)
    link = ask.get("/api/detail", params={"kind": "link", "u": u, "v": v}).json()
    assert (link["up"], sorted(link["down"])) == (True, sorted((u, v)))
    assert [[cable["up"] for cable in way["cables"]] for way in link["ways"]] == [[False, True]] * 2


def test_prometheus_gets_the_bytes_of_each_link(ran: Deployment):
    ask = client(ran)
    home = NETWORK.hosts[PUBLISHER].switch
    key = "stackcast_link_bytes_total", PUBLISHER, home
    assert samples(ask.get("/metrics").text)[key] == 0, "earlier bytes do not count"
    before = sum(map(len, ran.frames()))
    ran.publish(records()[RECORDS + 1 : RECORDS + 40])
    ran.run()
    metrics = samples(ask.get("/metrics").text)
    assert metrics[key] == sum(map(len, ran.frames())) - before > 0
    assert metrics["stackcast_link_bytes_total", home, PUBLISHER] == 0
    assert {name[1:] for name in metrics} >= {(x.switch, x.neighbor) for x in NETWORK.links}


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.skipif(not there(), reason=MISSING)
def test_views_are_used_in_a_browser(ran: Deployment, tmp_path: Path):
    with serving(console_of(ran)) as address, browser(tmp_path) as page:
        page.size(1440, 950)
        page.open(f"{address}/#map&token={TOKEN}")
        page.wait_for("document.documentElement.dataset.ready === 'yes'")
        assert page.run("return location.hash") == "#map", "only the token leaves the address"
        page.wait_for("document.getElementById('map-scale').innerText.includes('busiest')")
        page.click("#map-measures [value=broadcast]")
        page.wait_for("location.hash.includes('broadcast')")
        # Choose a host in the list.
        page.run("document.querySelector('#map-nodes [data-id=h1]').click()")
        page.wait_for("document.getElementById('map-detail').textContent.includes('live rule')")
        assert "bytes=broadcast" in page.run("return location.hash")
        scrolled = page.run(
            "const wheel = new WheelEvent('wheel', {deltaY: 40, bubbles: true, cancelable: true});"
            "return document.querySelector('#map canvas').dispatchEvent(wheel)"
        )
        assert scrolled, "a wheel without Ctrl scrolls the page"

        page.open(f"{address}/#events")
        page.wait_for("document.querySelector('#events-rows tbody')")
        every = page.text("#events-told")
        page.type("#events-wanted", "price > 200")
        page.wait_for(f"document.getElementById('events-told').innerText !== '{every}'")
        page.run("document.querySelector('#events-rows .opens').click()")
        page.wait_for("document.querySelector('#events-detail .labels, #events-detail .told')")
        assert "high" in page.text("#events-detail")
        page.click("#events-detail .main")
        page.wait_for("document.querySelector('#map-steps li')")
        assert "removed at" in page.text("#map-steps") and PUBLISHER in page.text("#map-steps")

        page.open(f"{address}/#trees")
        page.wait_for("document.querySelector('#trees-list .choice')")
        page.run("document.querySelector('#trees-list .choice').click()")
        page.wait_for("document.getElementById('trees-caption').innerText.startsWith('tree 1')")

        for view in ("map", "events", "subscriptions", "trees", "health"):
            page.open(f"{address}/#{view}")
            for width in (390, 1920):
                page.size(width, 900)
                wide = page.run("return document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (view, width, page.run("return innerWidth"))
        check_files(page, address, tmp_path)


WAITING = "document.getElementById('events-detail').innerText.includes('not on record yet')"
EXPLAINED = "document.querySelector('#events-detail .labels')"
NEWEST = "document.querySelector('#events-rows .opens')"


@pytest.mark.skipif(not there(), reason=MISSING)
def test_the_newest_event_is_explained_as_soon_as_its_batch_is_recorded(
    deployment: Deployment, tmp_path: Path
):
    packets = records()
    deployment.publish(packets[:RECORDS])
    with serving(console_of(deployment)) as address, browser(tmp_path) as page:
        page.size(1280, 900)
        page.open(f"{address}/#events&token={TOKEN}")
        # The topic has events, and no stream has sent any of them yet.
        page.wait_for(NEWEST)
        page.run(f"{NEWEST}.click()")
        page.wait_for(WAITING)
        deployment.run()
        page.wait_for(EXPLAINED)
        key = page.run("return location.hash")
        deployment.publish(packets[RECORDS : 2 * RECORDS])
        page.wait_for(f"!decodeURIComponent(location.hash).endsWith({NEWEST}.dataset.key)")
        page.run(f"{NEWEST}.click()")
        page.wait_for(f"location.hash !== '{key}' && {WAITING}")
        # Another view in the meantime does not end the waiting.
        page.open(f"{address}/#health")
        page.open(f"{address}/#events={page.run(f'return {NEWEST}.dataset.key')}")
        page.wait_for(WAITING)
        deployment.run()
        page.wait_for(EXPLAINED)


def check_files(page: Browser, address: str, folder: Path) -> None:
    """Check the CSV and PNG files that the buttons of each view save."""
    page.size(1280, 900)
    page.downloads(folder)
    for view in ("map", "events", "subscriptions", "trees", "health"):
        page.open(f"{address}/#{view}")
        page.wait_for(f"views['{view}'].csv()[1].length > 0")
        for kind in ("csv", "png"):
            page.click(f"#{kind}")
            path = folder / f"stackcast-{view}.{kind}"
            until(path.exists)
        with (folder / f"stackcast-{view}.csv").open(newline="") as file:
            rows = list(csv.reader(file))
        assert len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}
        assert (folder / f"stackcast-{view}.png").read_bytes().startswith(b"\x89PNG")
