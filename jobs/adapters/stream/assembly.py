"""The parts of a stream, assembled around the systems that it uses.

The job passes Spark, Delta and Kafka, and a simulation passes systems in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from stackcast.jobs.adapters.app.key_files import signing_key
from stackcast.jobs.adapters.app.settings import Settings, seconds_of
from stackcast.jobs.adapters.checkpoint.files import Folder
from stackcast.jobs.adapters.checkpoint.identity import IdentityFile, shaping
from stackcast.jobs.adapters.checkpoint.journal import Journal
from stackcast.jobs.adapters.checkpoint.leader_epochs import recorded_epochs
from stackcast.jobs.adapters.checkpoint.pins import Pins
from stackcast.jobs.adapters.checkpoint.progress import Progress, position
from stackcast.jobs.adapters.checkpoint.reports import Reports, writer_of
from stackcast.jobs.adapters.checkpoint.state import CarriedState
from stackcast.jobs.adapters.checkpoint.summary_progress import SummaryProgressStore
from stackcast.jobs.adapters.kafka.handoffs import Handoffs
from stackcast.jobs.adapters.kafka.record_source import RecordSource
from stackcast.jobs.adapters.kafka.topic_log import TopicLog
from stackcast.jobs.adapters.planning.plans import Plans, sources, switch_sources
from stackcast.jobs.adapters.planning.stream_plan import StreamPlan
from stackcast.jobs.adapters.planning.versions import BatchVersions
from stackcast.jobs.adapters.runtime.engine import Engine
from stackcast.jobs.adapters.stream.batch_recorder import BatchRecorder
from stackcast.jobs.adapters.stream.dead_letters import DeadLetters, LettersTopic
from stackcast.jobs.adapters.stream.delivery import BatchDelivery, EndingBatch
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.plan_keeper import PlanKeeper
from stackcast.jobs.adapters.stream.progress_reports import ProgressReports
from stackcast.jobs.adapters.stream.recovery import Recovery
from stackcast.jobs.adapters.stream.resumption import begin_generation, resume
from stackcast.jobs.adapters.stream.slices import Slices
from stackcast.jobs.adapters.stream.summary_ledger import SummaryLedger
from stackcast.jobs.adapters.stream.summary_schedule import SummarySchedule
from stackcast.jobs.adapters.stream.truncation import Beginning, Leaders
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.jobs.adapters.tables.writers import Fence
from stackcast.jobs.adapters.wire import sink_options
from stackcast.udfs.delivery.sink import Opener

#: Maximum seconds for which a start waits for header stacks that no earlier run has written.
STACKS_SECONDS = 20.0


@dataclass(frozen=True)
class Systems:
    """The systems that a stream uses.

    Attributes:
        engine: runs the tasks.
        slots: number of tasks that it runs at the same time.
        tables: tables of the stream.
        checkpoint: folder of its checkpoint.
        topics: log of its topic.
        letters: topic of its dead letters.
        open_sink: opens the sinks of the tasks.
        last_batch: finds out whether the batch in progress can still end, after a stop.
        stopping: returns True if the stream was asked to stop.
    """

    engine: Engine
    slots: int
    tables: Tables
    checkpoint: Folder
    topics: TopicLog
    letters: LettersTopic
    open_sink: Opener
    last_batch: EndingBatch
    stopping: Callable[[], bool]


def assemble(
    settings: Settings,
    systems: Systems,
    beginning: Beginning,
    fence: Fence,
    query_id: str,
    metrics: StreamMetrics,
    ending: ExitStack,
) -> BatchDelivery:
    """Return the parts of a stream, which has a plan for its first batch.

    If Kafka has truncated the log, the stream continues in a new generation of the topic.

    Args:
        settings: settings of the stream.
        systems: systems that it uses.
        beginning: where it begins, see `stackcast.jobs.adapters.stream.checks.before_start`.
        fence: fence of the stream, which has claimed its role.
        query_id: id of the query, from its checkpoint.
        metrics: metrics of the stream.
        ending: closes what the caller has opened. It becomes part of the delivery, and closes the
            delivery if the start fails afterwards.

    Raises:
        StackcastError: the tables cannot be used and no batch was recorded, or the checkpoint
            cannot be read or written.
    """
    checkpoint, tables, topics = systems.checkpoint, systems.tables, systems.topics
    progress, pins = Progress(checkpoint, settings.topic), Pins(checkpoint)
    reports = Reports(checkpoint)
    interval = seconds_of(settings.ledger_interval)
    journal = Journal(reports, fence, interval, metrics.journal, threads=systems.engine)
    ending.callback(journal.close)
    plans = plan_keeper(settings, systems, pins, metrics)
    ending.callback(plans.close)
    journal.recover()
    plans.prepare(STACKS_SECONDS, systems.stopping)
    topic, generation = beginning.identity.read_topic, None
    if beginning.truncation is not None:
        generation = begin_generation(
            beginning,
            IdentityFile(checkpoint),
            progress,
            lambda batch_id: journal.recorded(writer_of(query_id), batch_id),
            position(checkpoint) is None,
        )
        topic = generation.topic
    leaders = Leaders(
        topics,
        topic.name,
        lambda: recorded_epochs(pins, reports, tables, topic),
        systems.stopping,
    )
    summaries = SummaryLedger(
        *(topic, pins, reports, tables),
        SummaryProgressStore(checkpoint),
        SummarySchedule(seconds_of(settings.summary_interval), systems.engine.clock),
    )
    recorder = BatchRecorder(
        writer=query_id,
        topic=topic,
        publisher=settings.publisher,
        shaping=shaping(settings),
        fence=fence,
        state=CarriedState(checkpoint),
        dead_letters=DeadLetters(settings, systems.letters, metrics),
        journal=journal,
        summaries=summaries,
        leaders=leaders,
        plans=plans,
        metrics=metrics,
        clock=systems.engine.clock,
    )
    closing = ExitStack()
    delivery = BatchDelivery(
        topic=topic,
        fence=fence,
        engine=systems.engine,
        open_sink=systems.open_sink,
        samples=settings.dead_letter_samples,
        shaping=shaping(settings),
        pins=pins,
        plans=plans,
        summaries=summaries,
        recorder=recorder,
        leaders=leaders,
        metrics=metrics,
        last_batch=systems.last_batch,
        ending=closing,
    )
    closing.push(ending.pop_all())
    ending.callback(delivery.close)
    if generation is not None:
        resume(generation, delivery, progress)
    return delivery


def plan_keeper(
    settings: Settings, systems: Systems, pins: Pins, metrics: StreamMetrics
) -> PlanKeeper:
    """Return the owner of a stream's plans, which has no plan yet."""
    tables, engine = systems.tables, systems.engine
    decisive = sources(settings), switch_sources(settings)
    plans = Plans(settings, tables, signing_key(settings), sink_options(settings))
    rejections = settings.match != "network"
    return PlanKeeper(
        tables,
        BatchVersions(tables, settings.topic, *decisive, engine),
        BatchVersions(tables, settings.topic, *decisive, engine),
        StreamPlan(
            *(engine, systems.slots, tables, settings.publisher, plans, metrics, rejections),
        ),
        *(pins, shaping(settings), engine, metrics),
    )


def real_time(
    settings: Settings,
    systems: Systems,
    delivery: BatchDelivery,
    source: RecordSource,
    patience: float,
    handoffs: Handoffs,
    reports: ProgressReports,
) -> Slices:
    """Return a stream in real time, which has not started.

    Args:
        settings: settings of the stream.
        systems: systems that it uses.
        delivery: its parts.
        source: source of its records.
        patience: seconds for which a broker may be unreachable.
        handoffs: handoffs between the tasks of a machine.
        reports: progress reports of this run.
    """
    progress = Progress(systems.checkpoint, settings.topic)
    recovery = Recovery(settings, systems.topics, delivery, progress, source, reports)
    return Slices(
        *(settings, systems.topics, delivery, progress, source, patience, handoffs, reports),
        lambda: recovery.run(position(systems.checkpoint)),
        systems.tables.local,
        systems.stopping,
    )
