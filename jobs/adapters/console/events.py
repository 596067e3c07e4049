"""Events as the topic has them: the newest, why one was sent, dead letters, a batch again."""

from __future__ import annotations

import datetime as dt
import json
import threading
from typing import Any

from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.console.reading import Reading, Row
from stackcast.jobs.adapters.console.records import NewestRecords
from stackcast.jobs.adapters.console.subscriptions import SubscriptionsView
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.replay.explanation import SentExplanation
from stackcast.jobs.adapters.replay.replay import Replay
from stackcast.jobs.adapters.tables.recorded_topics import topic_of_row
from stackcast.jobs.adapters.tables.tables import LEDGER
from stackcast.udfs.errors import ConsoleError
from stackcast.udfs.messages.sequence import Topic, sequence_number, session_id
from stackcast.udfs.messages.specification import Specification
from stackcast.udfs.replay.event_matches import NewestEvents

#: Records that a look at the tail reads, and events that a page shows.
RECORDS = 2_000
SHOWN = 200
#: Rules of an event that are named.
_RULES = 20
#: Batches in which an event is looked for, and frames of a replay that are shown.
_BATCHES = 500
_FRAMES = 20
#: Time zones of times of day, by format. Nasdaq writes New York time.
_ZONES = {"itch": "ET"}


class EventsView:
    """Reads events. For any thread; explanations and replays take turns, and start Spark."""

    def __init__(
        self,
        reading: Reading,
        settings: Settings,
        subscriptions: SubscriptionsView,
        records: NewestRecords,
        spark: SparkSession,
    ) -> None:
        self._reading = reading
        self._settings = settings
        self._subscriptions = subscriptions
        self._records = records
        self._spark = spark
        self._computing = threading.Lock()
        self._explanation: SentExplanation | None = None
        self._replay: Replay | None = None

    def tail(self, wanted: str = "", count: int = RECORDS, matched: bool = False) -> dict[str, Any]:
        """Returns the newest ``events`` that fulfil a condition, and that some rule matches where
        that is asked for, the newest first; how many were ``looked_at``, and how many of them were
        ``found``; or ``error``, as of a draft.

        Each has its place, time, fields as texts (query fields first, then times of day as hours,
        minutes and seconds), the rules that match it (those with state are left out: ``left_out``
        counts them), who gets it by them, and the batch that sent it.
        Raises as `NewestRecords.read`.
        """
        form, rules = self._subscriptions.rules()
        if wanted:
            error = self._subscriptions.condition_error(wanted)
            if error:
                return {"error": error}
        kept = NewestEvents(form, [rule.filter for rule in rules], wanted, SHOWN, matched)
        if wanted and not kept.matches.plain[-1]:
            raise ConsoleError(
                "BAD_REQUEST",
                "the condition keeps state and depends on earlier events, so it cannot select "
                "single events: remove macros and variables",
            )
        for batch in self._records.read(count):
            kept.add(batch)
        batches = self._reading.newest(LEDGER, "batch_id", _BATCHES)
        topic = _newest_topic(batches, self._settings.topic)
        batches = [row for row in batches if topic_of_row(row) == topic]
        found = []
        for event in kept.newest():
            met = [rules[number] for number in event.rules]
            found.append(
                {
                    "partition": event.partition,
                    "offset": event.offset,
                    "index": event.message_index,
                    "session": session_id(topic, event.partition).decode(),
                    "sequence": str(sequence_number(event.offset, event.message_index)),
                    "time": _time(event.time),
                    "fields": self._readable(
                        form.specification, formats.event_of(form, event.message)[0]
                    ),
                    "rules": [rule.id for rule in met[:_RULES]],
                    "matches": len(met),
                    "hosts": sorted({host for rule in met for host in rule.receivers}),
                    "batch": _batch_of(batches, *event[:2]),
                }
            )
        return {
            "error": None,
            "events": found,
            "looked_at": kept.looked_at,
            "found": kept.found,
            "left_out": int((~kept.matches.plain[: len(rules)]).sum()),
        }

    def dead_letters(self, count: int = SHOWN) -> list[dict[str, Any]]:
        """Returns the newest dead letters, the newest first: what the stream wrote of them, and
        the ``time`` of that. Raises as `NewestRecords.read`."""
        found = []
        for batch in self._records.read(count, self._settings.dead_letter_topic):
            borders = batch.borders.tolist()
            for at in range(len(batch)):
                text = batch.content[borders[at] : borders[at + 1]].tobytes()
                try:
                    told = json.loads(text)
                except ValueError:
                    told = None
                if not isinstance(told, dict):
                    told = {"reason": "not a dead letter of Stackcast", "sample": text.hex()}
                time = None if batch.time is None else int(batch.time[at])
                found.append({"time": _time(time), **told})
        found.sort(key=lambda row: row["time"] or "", reverse=True)
        return found[:count]

    def explain(self, session: str, sequence: int) -> dict[str, Any]:
        """Returns why a notification was sent, as `SentExplanation.explain`, with fields of events
        as in `tail`. Raises as that."""
        with self._computing:
            if self._explanation is None:
                self._explanation = SentExplanation(
                    self._spark, self._settings, self._reading.tables
                )
            explanation = self._explanation.explain(session, sequence)
        specification = self._subscriptions.rules()[0].specification
        events = [self._readable(specification, event) for event in explanation["events"]]
        return explanation | {"events": events}

    def _readable(self, specification: Specification, event: dict[str, str]) -> dict[str, str]:
        """Returns the fields of an event: query fields, readable times of day, all others."""
        fields = specification.fields
        # Messages of several types have a field of the same name.
        order = {fields[name].name: place for place, name in enumerate(specification.queries)}
        zone = _ZONES.get(self._settings.format, "")

        # An attribute may have been registered after the format was read.
        units = {name: fields[name].day_units if name in fields else 0 for name in event}

        def place(name: str) -> tuple[int, bool]:
            return order.get(name.rpartition(".")[2], len(order)), not units[name]

        return {
            name: _time_of_day(event[name], units[name], zone) if units[name] else event[name]
            for name in sorted(event, key=place)
        }

    def replay(self, number: int) -> dict[str, Any]:
        """Computes a batch again, and returns ``frames`` and ``bytes`` as computed and as the
        ledger has them (``then``), whether they are the ``same``, and the first of the frames.

        Raises ConsoleError NO_BATCH, and as `Replay`.
        """
        rows = self._reading.newest(LEDGER, "batch_id", _BATCHES)
        row = next((r for r in rows if r["batch_id"] == number), None)
        if row is None:
            raise ConsoleError(
                "NO_BATCH",
                f"batch {number} is not among the last {_BATCHES} batches of the ledger, so "
                "it cannot be recomputed here",
            )
        frames = size = 0
        shown: list[dict[str, Any]] = []
        with self._computing:
            if self._replay is None:
                tables = self._reading.tables
                self._replay = Replay(self._spark, self._settings, tables, by_ingress=True)
            replay = self._replay
            replay.ledger.refresh()
            if topic_of_row(row) != replay.ledger.topic:
                raise ConsoleError(
                    "NO_BATCH",
                    f"batch {number} was read before the topic was truncated or created again, so "
                    "it cannot be recomputed",
                )
            for part in row["partitions"]:
                at = part["from_offset"]
                while at < part["until_offset"]:
                    run = replay.prepare(part["partition"], at)
                    until = min(run.span.until, part["until_offset"])
                    sent = replay.run(run, None, (at, until), whole=True)
                    contents = sent.content.to_pylist()
                    frames += len(contents)
                    size += sum(map(len, contents))
                    for place in range(min(len(contents), _FRAMES - len(shown))):
                        receivers = sent.receivers[int(sent.group[place])]
                        shown.append(
                            {
                                "partition": part["partition"],
                                "sequence": str(int(sent.sequence[place])),
                                "session": session_id(
                                    topic_of_row(row), part["partition"]
                                ).decode(),
                                "receivers": list(receivers),
                                "hex": contents[place].hex(),
                            }
                        )
                    at = until
            replay.trim()
        then = {"frames": row["frames"], "bytes": row["bytes"]}
        now = {"frames": frames, "bytes": size}
        return {**now, "batch": number, "then": then, "same": now == then, "first": shown}


def _time(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    return dt.datetime.fromtimestamp(microseconds / 1e6, dt.UTC).isoformat()


def _time_of_day(text: str, units: int, zone: str) -> str:
    """Returns a time since midnight as rules write it, and the zone.

    Args:
        text: the time, in units.
        units: number of units in a second, a power of 10.
        zone: name of the time zone, which may be empty.
    """
    seconds, fraction = divmod(int(text), units)
    if seconds >= 86_400:
        return text
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    places = len(str(units)) - 1
    if places:
        clock += f".{fraction:0{places}d}"
    return f"{clock} {zone}".rstrip()


def _newest_topic(batches: list[Row], name: str) -> Topic:
    """Returns the topic as the newest of these batches has read it."""
    mine = [row for row in batches if row["topic"] == name]
    newest = max(mine, key=lambda row: row["started_at"], default=None)
    return Topic(name) if newest is None else topic_of_row(newest)


def _batch_of(batches: list[Row], partition: int, offset: int) -> int | None:
    for row in batches:
        if any(
            p["partition"] == partition and p["from_offset"] <= offset < p["until_offset"]
            for p in row["partitions"]
        ):
            return int(row["batch_id"])
    return None
