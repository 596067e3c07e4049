"""The pictures and the tables of docs/results/pipeline-*.md, generated from the last runs.

A table, or the link to a picture, is between ``<!-- table pipeline NAME [PART] -->`` and
``<!-- end -->``. Tables of parts that never ran stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.pipeline import pictures as pipeline_pictures
from benchmarks.pipeline.throughput import CORE, MAIN, OURS
from benchmarks.support.results import Line, load
from benchmarks.support.tables import DOCS, fill_pages

MARK = re.compile(r"(<!-- table pipeline (\w+)(?: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)
PARTS = (
    *("throughput", "cases", "peers", "latency", "realtime", "spark_realtime"),
    *("start", "memory", "growth"),
)


def run(docs: Path = DOCS, pictures: Path = pipeline_pictures.PICTURES) -> None:
    """Draw the pictures and write the tables."""
    pipeline_pictures.draw(pictures)
    lines = {part: load("pipeline", part) for part in PARTS}
    fill_pages("pipeline", lambda text: filled(text, lines), docs)


def filled(text: str, lines: dict[str, list[Line]]) -> str:
    """Return a page with its tables generated from these lines, by part."""

    def replaced(match: re.Match[str]) -> str:
        head, name, part, end = match.groups()
        # Some figures come from several parts.
        parts = (part,) if part else PARTS_OF.get(name, (name,))
        table = TABLES[name]([line for part in parts for line in lines[part]])
        return head + table + end if table else match[0]

    return MARK.sub(replaced, text)


def floors(lines: Sequence[Line]) -> str:
    return _table(
        ("measurement", "result", "target", ""),
        (
            (
                line["what"],
                _with_unit(line["value"], line["unit"]),
                ("≥ " if line["least"] else "≤ ") + _with_unit(line["floor"], line["unit"]),
                "met" if line["held"] else "**missed**",
            )
            for line in _named(lines, "floor")
        ),
    )


def throughput(lines: Sequence[Line]) -> str:
    """Return the table of the main workload, of one part."""
    rows = _ways(lines, MAIN.name)
    ours = next((line["records_per_second"] for line in rows if line["way"] == OURS), None)
    return _table(
        (
            "program",
            "records/s",
            "runs",
            "Stackcast's relative rate",
            "CPU µs per record",
            "in the kernel",
        ),
        (
            (
                line["way"],
                _number(line["records_per_second"]),
                " / ".join(_number(rate) for rate in sorted(line["turns"])),
                f"{ours / line['records_per_second']:.2f} x"
                if ours and line["way"] != OURS
                else "",
                f"**{line['microseconds']:.2f}**",
                f"{line['in_kernel']:.2f}",
            )
            for line in rows
        ),
    )


def components(lines: Sequence[Line]) -> str:
    """Return CPU microseconds per record of each program by component."""
    return _table(
        ("program", *COMPONENTS, "benchmark tools"),
        (
            (
                line["way"],
                *(_microseconds(line["parts"].get(part)) for part in COMPONENTS),
                _microseconds(line["tools"]),
            )
            for line in _ways(lines, MAIN.name)
        ),
    )


def workloads(lines: Sequence[Line]) -> str:
    rows = []
    for case in dict.fromkeys(line["case"] for line in _named(lines, "way")):
        mine = {line["way"]: line for line in _ways(lines, case) if line["way"] in CORE}
        for way, line in mine.items():
            ours = mine[OURS]["records_per_second"]
            rate = line["records_per_second"]
            rows.append(
                (
                    case,
                    way,
                    _number(rate),
                    _number(rate * line["frames_a_record"]) if line["frames_a_record"] else "",
                    "" if way == OURS else f"{ours / rate:.2f} x",
                    f"{line['microseconds']:.2f}",
                )
            )
    head = (
        "workload",
        "program",
        "records/s",
        "frames/s",
        "Stackcast's relative rate",
        "CPU µs per record",
    )
    return _table(head, rows)


def limits(lines: Sequence[Line]) -> str:
    return _table(
        (
            "sink",
            "bytes per frame",
            "sendmmsg in C, two processes",
            "Stackcast",
            "ratio in each run",
        ),
        (
            (
                line["wire"],
                f"{line['bytes']}",
                f"{_number(line['frames_per_second'])} frames/s",
                f"{_number(line['ours'])} frames/s",
                " / ".join(f"{ratio:.2f} x" for ratio in sorted(line["turns"])),
            )
            for line in _named(lines, "sendmmsg in C")
            if "wire" in line
        ),
    )


def account(lines: Sequence[Line]) -> str:
    """Return the cost of each step, which is the difference to the run without it."""
    rows = []
    before = {"microseconds": 0.0, "in_kernel": 0.0}
    for line in _named(lines, "account"):
        alone = (line[each] - before[each] for each in ("microseconds", "in_kernel"))
        name = WORK[line["work"]]
        rows.append((name, f"{line['microseconds']:.2f}", *(f"{each:.2f}" for each in alone)))
        if line["work"] in ("fetch", "match", "frame"):
            before = line
    head = ("all steps up to", "CPU µs per record", "last step only", "last step, in the kernel")
    return _table(head, rows)


def compared(lines: Sequence[Line]) -> str:
    return _table(
        ("program", "records", "frames", "digest", "digest of the oracle", ""),
        (
            (
                line["way"],
                _number(line["records"]),
                _number(line["frames"]),
                f"`{line['digest']}`",
                f"`{line['oracle']}`",
                "equal" if line["held"] else "**differs**",
            )
            for line in _named(lines, "compared")
            if line["frames"]
        ),
    )


def latency(lines: Sequence[Line]) -> str:
    best: dict[tuple[float, str], Line] = {}
    for line in _named(lines, "run"):
        key = line["records_per_second"], line["what"]
        if key not in best or line["p50_ms"] < best[key]["p50_ms"]:
            best[key] = line
    rows = [(f"{what}, micro-batches", line) for (_, what), line in best.items()]
    rows += [
        ("event to wire, real time", line) for line in _named(lines, "event to wire, real-time")
    ]
    return _table(
        ("measurement", "records/s", "p50", "p99", "cores used by producer, receiver"),
        (
            (
                what,
                _number(line["records_per_second"]),
                _milliseconds(line["p50_ms"]),
                _milliseconds(line["p99_ms"]),
                ", ".join(
                    f"{line[f'{tool}_cores']:.2f}"
                    for tool in ("producer", "receiver")
                    if f"{tool}_cores" in line
                ),
            )
            for what, line in rows
        ),
    )


def spark_realtime(lines: Sequence[Line]) -> str:
    rows = [line for line in lines if "program" in line]
    rate = next((_number(each["records_per_second"]) for each in rows if "p50_ms" in each), "")
    return _table(
        ("program", f"p50 at {rate} records/s", "p99", "highest rate, records/s"),
        (
            (
                line["program"],
                _milliseconds(line["p50_ms"]),
                _milliseconds(line["p99_ms"]),
                _number(line["highest_rate"]),
            )
            if "p50_ms" in line
            else (line["program"], f"refused: {_error_code(line['why'])}", "", "")
            for line in rows
        ),
    )


def _error_code(text: str) -> str:
    """Return the code of an error of Spark, such as ``[A.B]`` at its beginning, or its text."""
    match = re.match(r"\[([A-Z_.]+)\]", text)
    return f"`{match[1]}`" if match else text


def start(lines: Sequence[Line]) -> str:
    return _table(
        ("start to first frame", "time"),
        (
            (KERNELS[line["kernels"]], f"{line['seconds']:.1f} s")
            for line in _named(lines, "start to first frame")
        ),
    )


def memory(lines: Sequence[Line]) -> str:
    return _table(
        ("memory of", "after 10 % of the events", "after 50 %", "at the end"),
        (
            (
                line["what"],
                *(f"{line[f'mb_at_{part}_percent']:.0f} MB" for part in (10, 50, 100)),
            )
            for line in _named(lines, "memory")
        ),
    )


def growth(lines: Sequence[Line]) -> str:
    worse = {
        (line["axis"], line["step"]): ", ".join(line["worse"]) or "none"
        for line in _named(lines, "linear")
    }
    rows = []
    for axis in pipeline_pictures.AXES:
        mine = [line for line in _named(lines, "growth") if line["axis"] == axis]
        for step, name in pipeline_pictures.STEPS.items():
            if mine:
                sizes = " / ".join(_number(line["size"]) for line in mine)
                seconds = " / ".join(f"{line[step]:.2g}" for line in mine)
                rows.append((f"{sizes} {axis}", name, seconds, worse.get((axis, step), "")))
    return _table(("size", "measurement", "seconds", "steps that grow faster than linearly"), rows)


def publishers(lines: Sequence[Line]) -> str:
    return _table(
        (
            "publishers",
            "plan, s",
            "plan, MB",
            "pairs in use",
            "headers of the pairs, MB",
            "first packet, µs",
            "later packets, µs",
        ),
        (
            (
                _number(line["publishers"]),
                f"{line['plan_seconds']:.2f}",
                f"{line['plan_bytes'] / 1e6:.2f}",
                f"{line['pairs']:,}",
                f"{line['pair_bytes'] / 1e6:.2f}",
                f"{line['first_packet_us']:.0f}",
                f"{line['packet_us']:.2f}",
            )
            for line in _named(lines, "publishers")
        ),
    )


def executors(lines: Sequence[Line]) -> str:
    mine = _named(lines, "executors")
    parts = [part for part in COMPONENTS if any(line["parts"].get(part) for line in mine)]
    return _table(
        ("executors", "CPU µs per packet", *parts),
        (
            (
                _number(line["executors"]),
                f"**{line['packet_us']:.2f}**",
                *(_microseconds(line["parts"].get(part)) for part in parts),
            )
            for line in mine
        ),
    )


def rates(lines: Sequence[Line]) -> str:
    text = "![CPU microseconds per record by component, and records per second, by program](%s)\n"
    return _picture("pipeline-rates.svg", text, _named(lines, "way"))


def curves(lines: Sequence[Line]) -> str:
    text = "![Seconds for a plan, the first batch and a batch by size of the deployment](%s)\n"
    return _picture("pipeline-growth.svg", text, _named(lines, "growth"))


def _picture(name: str, text: str, lines: Sequence[Line]) -> str:
    """Return a link to a picture that `pipeline_pictures.draw` drew from these lines."""
    return text % f"../pictures/{name}" if lines else ""


TABLES: dict[str, Callable[[Sequence[Line]], str]] = {
    "floors": floors,
    "throughput": throughput,
    "components": components,
    "account": account,
    "workloads": workloads,
    "limits": limits,
    "compared": compared,
    "latency": latency,
    "spark_realtime": spark_realtime,
    "start": start,
    "memory": memory,
    "growth": growth,
    "publishers": publishers,
    "executors": executors,
    "rates": rates,
    "curves": curves,
}
PARTS_OF = {
    "latency": ("latency", "realtime"),
    "components": ("throughput",),
    "account": ("peers",),
    "workloads": ("cases",),
    "limits": ("cases",),
    "rates": ("throughput", "peers"),
    "curves": ("growth",),
    "publishers": ("growth",),
    "executors": ("growth",),
}


#: Components of a program that are measured separately.
COMPONENTS = pipeline_pictures.COMPONENTS
#: Description of a start, by the state of the compiled kernels.
KERNELS = {"cold": "without compiled kernels", "warm": "with compiled kernels"}
#: The steps for a record, by WORK of `program`.
WORK = {
    "fetch": "fetch",
    "match": "decode and match",
    "frame": "frame and count",
    "udp": "send, tunnel",
    "af_packet": "send, AF_PACKET",
    "af_xdp": "send, AF_XDP",
}


def _ways(lines: Iterable[Line], case: str) -> list[Line]:
    return [line for line in _named(lines, "way") if line["case"] == case]


def _named(lines: Iterable[Line], name: str) -> list[Line]:
    return [line for line in lines if line["name"] == name]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown; empty without rows."""
    body = [f"| {' | '.join(row)} |\n" for row in rows]
    if not body:
        return ""
    return f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n" + "".join(body)


def _number(value: float) -> str:
    """Two or three digits, and K or M."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    if value >= 1e4:
        return f"{value / 1e3:.3g} K"
    return f"{value:,.0f}"


def _microseconds(value: float | None) -> str:
    return f"{value:.2f}" if value and value >= 0.005 else ""


def _milliseconds(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _with_unit(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}"
