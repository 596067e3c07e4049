"""Costs of the P4 programs: passes per frame, entries per switch, frames per second, refreshes.

    ./spark-submit.sh bench p4 [--refresh] [--p4c FILE] [--bmv2 FILE] [--pictures]

Prints one line of JSON per measurement. With ``--refresh`` it only measures how long refreshes of
switches take. With ``--p4c`` (path of p4c-bm2-ss) it compiles the program for each number of labels
per pass, and runs it. With ``--bmv2`` (path of simple_switch_grpc) it also sends the frames through
BMv2, over pairs of virtual interfaces, which needs the right to create them. ``--pictures`` draws
docs/pictures/passes.svg, and needs ``--p4c``. docs/results/switches.md describes the measurements.
"""

from __future__ import annotations

from pathlib import Path

from p4_products import FOLDER, TEXT, compile_program, products

from benchmarks.compile import say
from benchmarks.p4 import messages, network, refresh, speed, text_program
from benchmarks.p4 import passes as p4_passes
from benchmarks.p4.workloads import workloads
from benchmarks.support.measuring import one_core
from benchmarks.support.plot import Panel, svg
from stackcast.command_line import ArgumentParser
from stackcast.udfs.switches.stack_entries import LABELS_A_PASS

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "passes.svg"
DRAWN = {
    "16 hosts, racks of 2, default session": "16 hosts, default session",
    "128 hosts, racks of 4, 10% of them": "128 hosts, 10 % of them",
    "128 hosts, racks of 4, 30% of them": "128 hosts, 30 % of them",
    "192 hosts, racks of 12, 70% of them": "192 hosts, 70 % of them",
}


def main() -> None:
    parser = ArgumentParser(prog="./spark-submit.sh bench p4")
    parser.add_argument("--refresh", action="store_true", help="measure only refreshes of switches")
    parser.add_argument("--p4c", help="path of p4c-bm2-ss, to vary the number of labels per pass")
    parser.add_argument("--bmv2", help="path of simple_switch_grpc, to measure it as well")
    parser.add_argument("--pictures", action="store_true", help="draw docs/pictures/passes.svg")
    options = parser.parse_args()
    if options.pictures and not options.p4c:
        parser.error("--pictures needs --p4c")
    refresh.run()
    if options.refresh:
        return
    one_core()
    programs = {LABELS_A_PASS: products("virtual_trees")[1].read_bytes()}
    if options.p4c:
        for count in p4_passes.COUNTS:
            _, text = compile_program(
                options.p4c, FOLDER / "virtual_trees.p4", [f"-DLABELS_A_PASS={count}"]
            )
            programs[count] = text.encode()
    work = workloads()
    text_info, text = products(text_program.PROGRAM, TEXT)
    passes = p4_passes.passes(work, programs, text.read_bytes())
    entries = p4_passes.entries(work)
    speeds = speed.speeds(programs)
    network.session(work[0], programs[LABELS_A_PASS])
    messages.messages(work[0].network)
    if options.bmv2:
        from benchmarks.p4 import bmv2  # noqa: PLC0415

        bmv2.beside(options.bmv2)
        bmv2.the_text(options.bmv2, work, text_info.read_text(), text.read_bytes())
    if options.pictures:
        draw(passes, entries, speeds)


def draw(
    passes: dict[str, p4_passes.Curve],
    entries: dict[str, p4_passes.Curve],
    speeds: dict[str, p4_passes.Curve],
) -> None:
    x = "labels per pass"
    PICTURE.write_text(
        svg(
            "Passes, entries and frames per second by labels per pass",
            "Left: passes decrease until all labels fit into one pass. Middle: entries grow with "
            "the labels per pass. Right: the effect on the software switch.",
            [
                Panel(
                    "Passes through a switch",
                    x,
                    "mean passes per frame",
                    {DRAWN[name]: curve for name, curve in passes.items() if name in DRAWN},
                    log=True,
                    names="top right",
                ),
                Panel("Label entries of a switch", x, "entries", entries, log=True),
                Panel(
                    "Software switch, one core",
                    x,
                    "frames per second",
                    speeds,
                    log=True,
                    names="bottom right",
                ),
            ],
        ),
        "utf-8",
    )
    say("picture", path=f"docs/pictures/{PICTURE.name}")


if __name__ == "__main__":
    main()
