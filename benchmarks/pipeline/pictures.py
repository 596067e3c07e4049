"""Draw docs/pictures/pipeline-*.svg from the last run of each part."""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.bars import Bars
from benchmarks.support.plot import Panel, svg
from benchmarks.support.results import ROOT, Line, load

PICTURES = ROOT / "docs" / "pictures"
#: Short names for the axis of the bar charts.
SHORT = {
    "stackcast, AF_PACKET": "AF_PACKET",
    "stackcast, AF_XDP": "AF_XDP",
    "mapInArrow, Spark defaults": "counting, defaults",
    "mapInArrow": "counting",
    "mapInArrow, gc.freeze": "counting, frozen",
    "kernels, no Spark": "kernels only",
    "Bytewax, no processing": "Bytewax",
    "local-cluster, stackcast": "local-cluster",
    "local-cluster, mapInArrow, gc.freeze": "counting, cluster",
}
#: Components of a program, in the order of the colours.
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
    """Draw the pictures for which there are lines. Return the files."""
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
    """Draw the CPU time of each program by component, and its records per second."""
    ways: dict[str, Line] = {}
    for line in lines:
        if line["name"] == "way" and line["case"] == "5 % match":
            # Stackcast runs in several parts; the first one has the longest runs.
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
        "Bars per program: CPU microseconds per record by component, and records per second.",
        [
            Bars(title, "CPU µs per record", cores),
            Bars("Throughput", "records/s", rate),
        ],
    )


def growth(lines: list[Line]) -> str:
    """Draw seconds of plan, first batch and batch by subscriptions, hosts and partitions."""
    panels = []
    for axis, label in AXES.items():
        mine = [line for line in lines if line["name"] == "growth" and line["axis"] == axis]
        if mine:
            curves = {
                name: [(float(line["size"]), max(line[step], 1e-3)) for line in mine]
                for step, name in STEPS.items()
            }
            title = f"Cost by {label}"
            panels.append(Panel(title, label, "seconds", curves, True, "bottom right"))
    if not panels:
        return ""
    return svg(
        "Seconds by size of the deployment",
        "Seconds for a plan, the first batch and a batch by subscriptions, hosts and partitions, "
        "on logarithmic axes.",
        panels,
    )
