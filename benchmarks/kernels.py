"""The cost, on one core, of a whole task (records in, frames out) and of building frames.

    ./spark-submit.sh bench kernels

Prints one line of JSON per measurement: ``seconds`` is the median time on the core over several
runs with the same bytes, and ``ratio`` compares with the measurement named in ``to``, of the same
run. ``bench match`` measures decoding and matching. docs/results/kernels.md shows the results.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.support.measuring import DecodedSession, Reporter, one_core
from stackcast import schemas
from stackcast.lab.traffic.subscriptions import subscriptions
from stackcast.udfs.delivery.plan import Addressing, Planner
from stackcast.udfs.delivery.task import Task
from stackcast.udfs.filters.compiler.compile import compile_rules
from stackcast.udfs.filters.matching.matcher import Matcher
from stackcast.udfs.filters.subscriptions import Subscription, check
from stackcast.udfs.messages.moldudp64 import decode
from stackcast.udfs.messages.readers import Packets
from stackcast.udfs.messages.record_batches import Records
from stackcast.udfs.messages.sequence import Topic, session_id
from stackcast.udfs.messages.specification import parse_specification
from stackcast.udfs.network.labels import HOP, NARROW
from stackcast.udfs.network.topology import fabric
from stackcast.udfs.stacks.frame import FrameTemplates, build_frames, header_template
from stackcast.udfs.trees.broadcast import broadcast_trees

MTU = 1500
#: Packets that are taken one at a time.
FEW = 256
HOSTS = [f"h{number}" for number in range(1, 17)]
GROUP, PORT = 0xE9360C01, 26400


def main() -> None:
    one_core()
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    session = DecodedSession.make()
    data = session.data
    say = Reporter(packets=len(session.packets), messages=len(session.messages), bytes=data.size)

    rows = [Subscription(**row) for row in subscriptions(HOSTS, count=1000, seed=1)]
    rules, rejected = check(rows, itch, set(HOSTS), "feed1")
    assert not rejected
    matcher = Matcher(compile_rules(rules, itch))
    fields = tuple(itch.field(name) for name in matcher.fields)

    messages = decode(itch, session.offsets, data, fields)
    leaf = matcher.match(messages.message_type, messages.values)

    # Frames: matched messages under their headers.
    template = header_template(
        [NARROW.label(HOP, 1), NARROW.label(HOP, 2)], 1, 0x0A000001, GROUP, PORT
    )
    templates = FrameTemplates.build([[template] if r else [] for r in matcher.receivers])
    bases = np.arange(len(session.packets), dtype=np.int64)
    who = np.frombuffer(session_id(Topic("bench"), 0), np.uint8).reshape(1, 10)

    def build() -> Any:
        return build_frames(templates, leaf, messages, data, bases, who, MTU)

    frames = build()
    target = np.empty_like(frames.data)
    count = frames.offsets.size - 1
    say("memcpy of the frames", lambda: np.copyto(target, frames.data), count)
    say("build frames", build, count, "memcpy of the frames")

    # A task: decodes, matches, frames and counts; of one record at a time it costs what is fixed.
    network = fabric(pods=4, racks=2, hosts=2, planes=1, spines=1)
    (publisher,) = network.publishers()
    compilation = Planner(
        Packets(itch), Addressing(publisher, GROUP, PORT, MTU, 64, PORT + 1)
    ).plan(
        rows,
        network,
        broadcast_trees(network),
        {"subscriptions": 1},
    )
    assert not compilation.rejections
    task = Task(
        compilation.plan, SimpleNamespace(value=compilation.header_stacks), Topic("bench"), 0, {}
    )
    borders = session.offsets.astype(np.int64)
    records = Records(bases, bases, borders, data, len(bases))
    (batch,) = records.batches(0)
    singles = [
        each
        for at in range(FEW)
        for each in Records(
            bases[at : at + 1], bases[:1], borders[at : at + 2], data, at + 1
        ).batches(0)
    ]

    def one_by_one() -> None:
        for single in singles:
            task.add(single)

    packets = len(session.packets)
    say("task, all packets at once", lambda: task.add(batch), packets)
    say("task, one packet at a time", one_by_one, FEW, "task, all packets at once")
    say("task, summaries for its hosts", task.summaries, len(HOSTS))


if __name__ == "__main__":
    main()
