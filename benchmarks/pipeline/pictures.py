"""Pictures of what the last run of each part found: docs/pictures/pipeline-*.svg."""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.bars import Bars
from benchmarks.support.plot import Panel, svg
from benchmarks.support.results import ROOT, Line, load

PICTURES = ROOT / "docs" / "pictures"
#: Names on the axis of bars have room for as many letters.
SHORT = {
    "stackcast, AF_PACKET": "ours, interface",
    "stackcast, AF_XDP": "ours, AF_XDP",
    "mapInArrow, as Spark comes": "counting, plain",
    "mapInArrow": "counting",
    "mapInArrow, gc.freeze": "counting, frozen",
    "kernels, no Spark": "kernels alone",
    "Bytewax, nothing done": "Bytewax",
    "local-cluster, stackcast": "on executors",
    "local-cluster, mapInArrow, gc.freeze": "counting there",
}
#: Components of a way, in the order of the colours.
COMPONENTS = (
    "Python workers",
    "JVM",
    "JVM: compiler",
    "JVM: collector",
    "driver",
    "broker",
)
AXES = {"subscriptions": "subscriptions", "hosts": "hosts", "partitions": "partitions"}
STEPS = {"plan": "plan", "first_batch": "first batch", "batch": "a batch"}


def draw(folder: Path = PICTURES) -> list[Path]:
    """Draw what there are lines for; returns the files."""
    drawn = []
    for name, picture in (
        ("rates", rates(load("pipeline", "throughput") + load("pipeline", "peers"))),
        ("growth", growth(load("pipeline", "growth"))),
    ):
        if picture:
            path = folder / f"pipeline-{name}.svg"
            path.write_text(picture, "utf-8")
            drawn.append(path)
    return drawn


def rates(lines: list[Line]) -> str:
    """Draws what each way takes of the cores, by component, and records a second."""
    ways: dict[str, Line] = {}
    for line in lines:
        if line["name"] == "way" and line["case"] == "5 % match":
            # Ours is in several parts: the first has most of it.
            ways.setdefault(SHORT.get(line["way"], line["way"]), line)
    if not ways:
        return ""
    cores, rate = {}, {}
    for name, line in ways.items():
        cores[name] = [tuple(line["parts"].get(part, 0.0) for part in COMPONENTS)]
        rate[name] = [(line["records_per_second"],)]
    title = "Workers, JVM (and compiler, collector), driver or program, broker"
    return svg(
        "From Kafka to the wire, 5 % match",
        "Bars by way: microseconds of a core a record by component, and records a second.",
        [
            Bars(title, "µs of a core a record", cores),
            Bars("By the clock", "records/s", rate),
        ],
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
            title = f"Cost against {label}"
            panels.append(Panel(title, label, "seconds", curves, True, "bottom right"))
    if not panels:
        return ""
    return svg(
        "Seconds as work grows",
        "Seconds of a plan, of the first batch and of a batch against subscriptions, hosts and "
        "partitions, on logarithmic axes.",
        panels,
    )
