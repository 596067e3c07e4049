"""Pictures of what the last run of each part found: docs/pictures/pipeline-*.svg."""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.bars import Bars
from benchmarks.support.plot import Panel, svg
from benchmarks.support.results import ROOT, Line, load

PICTURES = ROOT / "docs" / "pictures"
#: Names on the axis of bars have room for as many letters.
SHORT = {
    "5 % match": "5 %",
    "0.5 % match": "0.5 %",
    "100 % match": "100 %",
    "5 % match, 35 messages a packet": "5 %, full",
    "5 % match, single-message records": "5 %, single",
    "kernels, no Spark": "kernels alone",
    "plain Python": "plain Python",
    "a topic a subscriber": "topic each",
    "Spark join": "Spark join",
    "stackcast": "stackcast",
}
AXES = {"subscriptions": "subscriptions", "hosts": "hosts", "partitions": "partitions"}
STEPS = {"plan": "plan", "first_batch": "first batch", "batch": "a batch"}


def draw(folder: Path = PICTURES) -> list[Path]:
    """Draw what there are lines for; returns the files."""
    drawn = []
    for name, picture in (
        ("rates", rates(load("pipeline", "throughput"), load("pipeline", "peers"))),
        ("growth", growth(load("pipeline", "growth"))),
    ):
        if picture:
            path = folder / f"pipeline-{name}.svg"
            path.write_text(picture, "utf-8")
            drawn.append(path)
    return drawn


def rates(throughput: list[Line], peers: list[Line]) -> str:
    """Draws records a second: ours and through ``mapInArrow`` alone, and of other ways."""
    panels = []
    cases = [line for line in throughput if line["name"] == "throughput"]
    if cases:
        groups = {
            SHORT[line["case"]]: [
                (line["mapInArrow_per_second"],),
                (line["records_per_second"],),
            ]
            for line in cases
        }
        panels.append(Bars("mapInArrow that only counts, and ours below", "records/s", groups))
    ways = [line for line in peers if line["name"] == "peer"]
    if ways:
        others = {SHORT[line["way"]]: [(line["records_per_second"],)] for line in ways}
        panels.append(Bars("Other ways, 5 % match", "records/s", others))
    if not panels:
        return ""
    return svg(
        "Records a second from Kafka to the wire",
        "Bars by share of messages that match, and by way of delivering them.",
        panels,
    )


def growth(lines: list[Line]) -> str:
    """Draws seconds of plan, first batch and batch against subscriptions, hosts and partitions."""
    panels = []
    for axis, label in AXES.items():
        mine = [line for line in lines if line["name"] == "growth" and line["axis"] == axis]
        if mine:
            curves = {
                name: [(float(line["size"]), max(line[step], 1e-3)) for line in mine]
                for step, name in STEPS.items()
            }
            panels.append(Panel(f"Cost against {label}", label, "seconds", curves, log=True))
    if not panels:
        return ""
    return svg(
        "Seconds as work grows",
        "Seconds of a plan, of the first batch and of a batch against subscriptions, hosts and "
        "partitions, on logarithmic axes.",
        panels,
    )
