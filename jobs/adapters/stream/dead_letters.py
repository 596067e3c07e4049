"""Dead letters of batches: samples for their topic, and batches without a valid record."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from stackcast.jobs.adapters.app.error_lines import one_line
from stackcast.jobs.adapters.app.logs import named
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.stream.metrics import StreamMetrics
from stackcast.jobs.adapters.stream.report import BatchReport
from stackcast.udfs.delivery.plan import Compilation
from stackcast.udfs.errors import printable
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.reference import HEADER
from stackcast.udfs.messages.specification import Specification

log = logging.getLogger(__name__)

#: First bytes that reveal a wrong topic or a wrong setting.
_JSON = (ord("{"), ord("["))
_REGISTRY = 0
_GZIP = b"\x1f\x8b"
#: Maximum number of reasons and fields in a text.
_SHOWN = 3


class LettersTopic(Protocol):
    """The topic of dead letters."""

    def write_dead_letters(self, letters: list[dict[str, Any]]) -> None:
        """Write samples."""


class DeadLetters:
    """Writes the dead letters of a stream, and detects batches in which all records are dead.

    Args:
        settings: settings of the stream.
        topic: topic to which samples are written.
        metrics: receives the problem that `/health` reports until a batch has a valid record.
    """

    def __init__(self, settings: Settings, topic: LettersTopic, metrics: StreamMetrics) -> None:
        self._settings = settings
        self._topic = topic
        self._metrics = metrics
        self._run: DeadRun | None = None
        #: The last cause that was logged, and whether it was about a single record.
        self._logged: tuple[str, bool] | None = None

    def put(self, batch_id: int, compilation: Compilation, report: BatchReport) -> None:
        """Write the samples of a batch, and compare its dead records with its records."""
        if report.dead_letters:
            self._write(batch_id, compilation, report)
        records = report.total("packets")
        if not records:
            return
        if report.dead_records < records:
            self._end(batch_id)
            return
        run = self._run = self._run or DeadRun(batch_id)
        run.add(batch_id, records, report)
        cause = run.cause(self._settings, compilation.plan.specification)
        text, single = f"{run}: {cause}", run.records == 1
        if (cause, single) != self._logged:
            log.warning("%s", text)
            self._logged = cause, single
        self._metrics.dead_records(text, single)

    def _end(self, batch_id: int) -> None:
        if self._run is not None:
            log.info("batch %d contains valid records again", batch_id)
            self._run, self._logged = None, None
            self._metrics.dead_records("")

    def _write(self, batch_id: int, compilation: Compilation, report: BatchReport) -> None:
        log.warning(
            "batch %d: dead letters by reason: %s; %s",
            batch_id,
            dict(report.reasons),
            named(compilation.versions),
        )
        try:
            self._topic.write_dead_letters(report.letters)
        except Exception as error:
            # Ledger and log count them in any case, and samples must not stop the stream.
            log.error(
                "batch %d: %d samples could not be written to topic %s: %s",
                batch_id,
                len(report.letters),
                self._settings.dead_letter_topic,
                one_line(error),
            )


class DeadRun:
    """Consecutive batches in which all records are dead letters.

    Attributes:
        records: number of their records.
    """

    def __init__(self, first: int) -> None:
        self._first = self._last = first
        self.records = 0
        self._reasons: Counter[str] = Counter()
        self._first_bytes: Counter[int] = Counter()
        self._letters: list[dict[str, Any]] = []

    def add(self, batch_id: int, records: int, report: BatchReport) -> None:
        """Add a batch, all of whose records are dead."""
        self._last = batch_id
        self.records += records
        self._reasons.update(report.reasons)
        self._first_bytes.update(report.first_bytes)
        self._letters = report.letters or self._letters

    def __str__(self) -> str:
        frequent = self._reasons.most_common(_SHOWN)
        if self.records == 1:
            return f"the only record of batch {self._last} is a dead letter ({frequent[0][0]})"
        reasons = [f"{name} {count:,}" for name, count in frequent]
        batches = f"batch {self._last}"
        if self._first != self._last:
            batches = f"batches {self._first} to {self._last}"
        return f"all {self.records:,} records of {batches} are dead letters ({', '.join(reasons)})"

    def cause(self, settings: Settings, specification: Specification) -> str:
        """Return the likely cause and its remedy.

        Args:
            settings: settings of the stream.
            specification: format of its messages.
        """
        samples = [bytes.fromhex(letter["sample"]) for letter in self._letters]
        samples = [sample for sample in samples if sample]
        first = self._first_byte()
        begin = "it begins" if self.records == 1 else "all of them begin"
        beginning = "" if first is None else f"{begin} with {_byte(first)}: "
        if samples and all(sample.startswith(_GZIP) for sample in samples):
            return "the samples are compressed with gzip: publish records without compression"
        if settings.format == ATTRIBUTES:
            cause = self._cause_of_events(settings, samples, first)
        else:
            cause = self._cause_of_packets(settings, samples, first, specification)
        return beginning + cause if cause else self._by_field()

    def _cause_of_packets(
        self,
        settings: Settings,
        samples: Sequence[bytes],
        first: int | None,
        specification: Specification,
    ) -> str:
        if first in _JSON:
            return (
                f"does topic {settings.topic} contain attribute/value events? Use "
                "jobs/attribute_stream.py to deliver them"
            )
        lengths = [letter["length"] for letter in self._letters if letter["sample"]]
        sized = list(zip(samples, lengths, strict=True))
        if sized and all(_is_message(specification, sample, length) for sample, length in sized):
            return (
                f"records are {specification.name} messages without a MoldUDP64 packet around "
                "them: use 'stackcast itch publish' to publish packets"
            )
        return ""

    def _cause_of_events(
        self, settings: Settings, samples: Sequence[bytes], first: int | None
    ) -> str:
        if samples and all(map(_is_packet, samples)):
            return (
                f"records look like MoldUDP64 packets: does topic {settings.topic} contain ITCH? "
                "Use jobs/itch_stream.py to deliver it"
            )
        if settings.attributes_input != "json":
            json = f"set {PREFIX}attributes.input to json"
            return (
                f"does topic {settings.topic} contain JSON? Then {json}" if first in _JSON else ""
            )
        if first == ord("["):
            return "a record must be one JSON object, not a list"
        if first == _REGISTRY:
            return (
                "serializers with a schema registry write this byte, but "
                f"{PREFIX}attributes.input is json: publish plain JSON"
            )
        if first not in (None, ord("{")) and self._reasons.keys() <= {"malformed_json"}:
            return (
                f"records are not JSON objects, but {PREFIX}attributes.input is json: set it to "
                "id_pairs or bitmask if they have one of these encodings"
            )
        return ""

    def _by_field(self) -> str:
        """Return the reasons and fields of the samples, the most frequent ones first."""
        counts = Counter(
            f"{letter['reason']}: {printable(letter['field'])}"
            for letter in self._letters
            if "field" in letter
        )
        frequent = ", ".join(text for text, _ in counts.most_common(_SHOWN))
        frequent = f"the most frequent ones are {frequent}; " if frequent else ""
        return f"{frequent}run 'stackcast dead-letters' to see samples"

    def _first_byte(self) -> int | None:
        """Return the first byte of all records; None if they have different ones."""
        byte, count = next(iter(self._first_bytes.most_common(1)), (0, 0))
        return byte if count == self.records else None


def _byte(value: int) -> str:
    character = chr(value)
    return f"`{character}`" if 0x20 < value < 0x7F else f"byte {value:#04x}"


def _is_message(specification: Specification, sample: bytes, length: int) -> bool:
    """Return True if a record of this length is a single message."""
    header = specification.header_of_type(sample[0])
    return header is not None and header.length == length


def _is_packet(sample: bytes) -> bool:
    """Return True if a sample starts with a MoldUDP64 header and a plausible message."""
    if len(sample) < HEADER.size + 2:
        return False
    session, _, count = HEADER.unpack_from(sample)
    length = int.from_bytes(sample[HEADER.size : HEADER.size + 2])
    text = session.decode("latin-1")
    return text.isascii() and text.isprintable() and 0 < count < 1 << 13 and 0 < length < 1 << 11
