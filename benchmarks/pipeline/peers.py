"""Other ways from the same topic to the same wire, one after the other, and what a worker does.

Measured as in `throughput`, where ways stand ready together; here ours is one of them, and all are
compared with that.
"""

from __future__ import annotations

from benchmarks.pipeline.makers import Makers
from benchmarks.pipeline.program import SINKS
from benchmarks.pipeline.throughput import FROZEN, MAIN, OURS, compare, rotate, warm
from benchmarks.pipeline.ways import Topic, Way
from benchmarks.pipeline.wire import Wire
from benchmarks.pipeline.world import World
from benchmarks.support.results import Lines

KERNELS, BYTEWAX, CLUSTER = "kernels, no Spark", "Bytewax, no processing", "local-cluster, "
PEERS = (
    *(OURS, KERNELS, "Spark's connector", "Kafka Streams", BYTEWAX, "Spark's join"),
    *(CLUSTER + OURS, CLUSTER + FROZEN),
)
#: Those that send no frames.
SILENT = (BYTEWAX, CLUSTER + FROZEN)
#: How much of a record is done, each with all before it, and then sent by each sink.
WORK = ("fetch", "match", "frame", "udp")
#: Seconds of a turn, of one to get warm, and of one up to a step of a worker.
TURN, WARM, STEP = 18.0, 12.0, 6.0


def run(world: World, lines: Lines) -> None:
    """Each in processes of its own that end before the next begins."""
    makers = Makers(world)
    topic = MAIN.topic(world)
    scale = 0.2 if world.quick else 1.0
    for name in PEERS:
        # One that does not come up takes nothing from the others.
        try:
            with makers.way(name) as way:
                if name not in SILENT:
                    compare(world, lines, makers, [way])
                warm(world, lines, [way], topic, WARM * scale, 3)
                rotate(lines, MAIN.name, [way], topic, 1, TURN * scale)
                if name == KERNELS:
                    account(lines, way, topic, world.wire, STEP * scale)
        except Exception as error:
            lines.say("failed", way=name, why=f"{type(error).__name__}: {error}"[:500])


def account(lines: Lines, way: Way, topic: Topic, wire: Wire, seconds: float) -> None:
    """Microseconds of cores a record by what is done of it, in turns of the same processes; the
    broker's are apart."""
    for work in (*WORK, *SINKS) if wire.kind != "udp" else WORK:
        turn = way.turn(topic, seconds, work, wire if work in SINKS else None)
        per = 1e6 / turn.records
        lines.say(
            "account",
            work=work,
            records_per_second=turn.rate,
            microseconds=per * turn.cores["driver"],
            in_kernel=per * turn.cores["kernel: driver"],
            broker=per * turn.cores["broker"],
        )
