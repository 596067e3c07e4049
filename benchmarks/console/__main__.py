"""How fluid the map of the console is: the time of a frame while it is moved, by size of network.

    ./spark-submit.sh bench console

Draws networks in Chromium as the console does, drags and zooms them by events of a mouse, and
gives a tenth of the links another weight, as news do every two seconds. A line of JSON each:
milliseconds from frame to frame, at the median, for 99 of 100 and at most, and how often the median
of the smallest network; ``rest`` is the longest frame after a movement has ended. Headless Chromium
draws by the processor alone; a graphics card takes less.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from browser import MISSING, Browser, browser, there

from stackcast.udfs.network.drawing import drawing
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.topology import fabric, jellyfish
from stackcast.udfs.report.page import render

FRAMES = 90
_BODY = """<main><section class="panel stage" style="height: 860px">
<div id="map" style="position: absolute; inset: 0 0 34px"></div></section></main>"""
_SCRIPT = Path(__file__).with_name("frames.js").read_text()


def networks() -> Iterator[tuple[str, Network]]:
    """Yields fabrics and random graphs of rising size by their names."""
    for pods, racks, planes, spines in ((4, 2, 2, 2), (20, 10, 2, 10), (40, 20, 4, 10)):
        made = fabric(pods=pods, racks=racks, hosts=1, planes=planes, spines=spines)
        yield f"fabric of {len(made.switches)}", made
    made = jellyfish(1000, 6, seed=1)
    yield f"jellyfish of {len(made.switches)}", made


def main() -> int:
    if not there():
        print(MISSING, file=sys.stderr)
        return 2
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, network in networks():
            page = Path(folder, "map.html")
            page.write_text(render("map", _BODY, _SCRIPT, drawing(network)))
            profile = Path(folder, name.replace(" ", "-"))
            profile.mkdir()
            with browser(profile) as window:
                for line in measured(window, page.as_uri(), least):
                    size = {"switches": len(network.switches), "links": len(network.links)}
                    print(json.dumps({"network": name, **size, **line}), flush=True)
    return 0


def measured(window: Browser, address: str, least: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Yields what each kind of movement takes; ``least`` keeps the first network's medians."""
    window.size(1440, 950)
    window.open(address)
    window.wait_for("window.drawnIn")
    yield {"what": "draw", "ms": round(window.run("return drawnIn"), 1)}
    moves = (("drag", FRAMES), ("rest", 1), ("zoom", FRAMES), ("rest", 1), ("weigh", 5))
    for what, frames in moves:
        times = sorted(window.run(f"return {what}({frames})"))
        median, high = times[len(times) // 2], times[int(0.99 * (len(times) - 1))]
        first = least.setdefault(what, median)
        told = {
            "p50_ms": round(median, 1),
            "p99_ms": round(high, 1),
            "most_ms": round(times[-1], 1),
        }
        yield {"what": what, **told, "to_smallest": round(median / first, 2)}


if __name__ == "__main__":
    sys.exit(main())
