"""The cost, on one core, of putting matched messages into frames.

    ./spark-submit.sh bench kernels

One line of JSON a measurement: ``seconds`` is the median of the time on the core in some
runs over the same bytes, ``ratio`` compares with the measurement named in ``to``, in this very run.
``bench match`` measures what comes before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import schemas
from benchmarks.support.measuring import DecodedSession, Reporter, one_core
from lab.traffic.subscriptions import subscriptions
from udfs.filters.compiler.compile import compile_rules
from udfs.filters.matching.matcher import Matcher
from udfs.filters.subscriptions import Subscription, check
from udfs.messages.moldudp64 import decode
from udfs.messages.sequence import session_id
from udfs.messages.specification import parse_specification
from udfs.network.labels import HOP, NARROW
from udfs.stacks.frame import FrameTemplates, build_frames, header_template

MTU = 1500
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
    who = np.frombuffer(session_id("bench", 0), np.uint8).reshape(1, 10)

    def build() -> Any:
        return build_frames(templates, leaf, messages, data, bases, who, MTU)

    frames = build()
    target = np.empty_like(frames.data)
    count = frames.offsets.size - 1
    say("memcpy of the frames", lambda: np.copyto(target, frames.data), count)
    say("build frames", build, count, "memcpy of the frames")


if __name__ == "__main__":
    main()
