"""Identity of a checkpoint: the topic, format and tables that it is for, on record in the
checkpoint itself.

Offsets, pinned versions and state cells mean nothing for another topic, format or set of tables,
and a stream that went on with them would lose or repeat events without a word. So the first start
writes ``<checkpoint>/stackcast-identity.json``, and each further one compares.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from stackcast import schemas
from stackcast.jobs.adapters.app.settings import PREFIX, Settings
from stackcast.jobs.adapters.checkpoint.files import Folder
from stackcast.jobs.adapters.planning import formats
from stackcast.jobs.adapters.tables.tables import Tables
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.sequence import Topic
from stackcast.udfs.network.publishers import PARTITION

NAME = "stackcast-identity.json"
#: The form of all files of the checkpoint; one that changes it counts up.
LAYOUT = 4

#: Tables whose versions batches are pinned to, and the one that says which batches there were.
TABLES = (
    "subscriptions",
    "subscription_seniority",
    "switches",
    "hosts",
    "links",
    "ingresses",
    "virtual_trees",
    "egress_ledger",
)


@dataclass(frozen=True)
class Identity:
    """cluster and topic_id are Kafka's, empty where a broker tells none; tables: Delta's ids.
    generation: see `stackcast.udfs.messages.sequence.Topic`."""

    topic: str
    cluster: str
    topic_id: str
    generation: int
    format: str
    specification: str
    publisher: str
    tables: dict[str, str]

    @classmethod
    def now(
        cls, settings: Settings, tables: Tables, ids: tuple[str, str], generation: int = 0
    ) -> Identity:
        """Returns the identity of a checkpoint that is begun now.

        Args:
            settings: settings of the stream.
            tables: tables of the stream.
            ids: ids of Kafka's cluster and of the topic.
            generation: generation of the topic.

        Raises:
            TableError: MISSING, OLDER_LAYOUT, NEWER_LAYOUT.
        """
        cluster, topic_id = ids
        names = (*TABLES, *formats.sources(settings))
        return cls(
            topic=settings.topic,
            cluster=cluster,
            topic_id=topic_id,
            generation=generation,
            format=settings.format,
            specification=specification_digest(settings),
            publisher=_publisher(settings),
            tables={name: tables.head(name)[0] for name in names},
        )

    @property
    def read_topic(self) -> Topic:
        """The topic that the checkpoint is for."""
        return Topic(self.topic, self.topic_id, self.generation)

    def packed(self) -> bytes:
        text = json.dumps({"layout": LAYOUT, **dataclasses.asdict(self)}, indent=1, sort_keys=True)
        return f"{text}\n".encode()

    @classmethod
    def unpacked(cls, content: bytes, name: str) -> Identity:
        """Reads what `packed` wrote; ``name`` is that of the file.

        Raises StreamError CHECKPOINT_UNREADABLE, OLDER_LAYOUT, NEWER_LAYOUT.
        """
        try:
            values: dict[str, Any] = json.loads(content)
            if values["layout"] < LAYOUT:
                raise StreamError(
                    "OLDER_LAYOUT",
                    f"{name}: the checkpoint has layout {values['layout']}, but this version of "
                    f"Stackcast requires layout {LAYOUT}: set {PREFIX}checkpoint to a new folder "
                    f"and {PREFIX}startingOffsets to the offsets at which egress_ledger ends",
                )
            if values["layout"] > LAYOUT:
                raise StreamError(
                    "NEWER_LAYOUT",
                    f"{name}: the checkpoint has layout {values['layout']}, but this version of "
                    f"Stackcast supports layouts up to {LAYOUT}: use the version that wrote the "
                    f"checkpoint, or a newer one, or set {PREFIX}checkpoint to a new folder",
                )
            return cls(**{f.name: values[f.name] for f in dataclasses.fields(cls)})
        except (ValueError, KeyError, TypeError) as error:
            raise StreamError(
                "CHECKPOINT_UNREADABLE",
                f"{name} cannot be read ({error!r}): restore the file or remove it; if it is "
                "missing, the next start writes a new one and assumes that topic, format and "
                "tables belong to this checkpoint",
            ) from error

    def check(self, now: Identity, onward: str) -> None:
        """Refuse where it is for something else than ``now``; ``onward``: how to begin anew there.

        Raises StreamError OTHER_TOPIC, OTHER_CLUSTER, TOPIC_RECREATED, OTHER_FORMAT,
        OTHER_SPECIFICATION, OTHER_PUBLISHER, OTHER_TABLES.
        """
        from_start = f"set {PREFIX}checkpoint to a new folder to read the topic from its beginning"
        if self.topic != now.topic:
            raise other_topic(self.topic, now.topic)
        if self.cluster != now.cluster and self.cluster and now.cluster:
            raise StreamError(
                "OTHER_CLUSTER",
                f"the checkpoint is for topic {self.topic} of Kafka cluster {self.cluster}, but "
                f"{PREFIX}kafka.bootstrap.servers points to cluster {now.cluster}, where the "
                f"same offsets are other records: correct the setting, or {from_start}",
            )
        if self.topic_id != now.topic_id and self.topic_id and now.topic_id:
            raise StreamError(
                "TOPIC_RECREATED",
                f"topic {self.topic} was deleted and created again after the checkpoint was "
                f"created (topic id {self.topic_id} then, {now.topic_id} now), so the same "
                f"offsets are other records: {from_start}. The stream then sends in new "
                "sessions, so hosts do not confuse old and new events",
            )
        if self.format != now.format:
            raise StreamError(
                "OTHER_FORMAT",
                f"the checkpoint is for format {self.format}, but {PREFIX}format is "
                f"{now.format}: correct the setting, or give the other format its own topic, "
                "tables and checkpoint",
            )
        if self.specification != now.specification:
            raise StreamError(
                "OTHER_SPECIFICATION",
                f"messages/{self.format}.spec has changed since the checkpoint was created, so a "
                "repeated batch would send other bytes, and state cells may refer to other "
                f"fields: restore the specification, or {onward}",
            )
        if self.publisher != now.publisher:
            raise StreamError(
                "OTHER_PUBLISHER",
                f"the checkpoint is for publisher {self.publisher}, but {PREFIX}publisher "
                f"together with {PREFIX}publisher.by is {now.publisher}: correct the setting, or "
                f"{onward}",
            )
        if anew := [name for name in now.tables if self.tables.get(name) != now.tables[name]]:
            raise other_tables(f"created again: {', '.join(anew)}", onward)


def _publisher(settings: Settings) -> str:
    if settings.publisher_by == PARTITION:
        return settings.publisher
    return f"{settings.publisher} by {settings.publisher_by}"


def specification_digest(settings: Settings) -> str:
    """Returns a digest of the format's specification, whatever its comments and blanks; of
    attributes, which are in a table with versions, it is empty."""
    if settings.format == ATTRIBUTES:
        return ""
    text = schemas.read_text(f"messages/{settings.format}.spec")
    words = " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).split())
    return hashlib.sha256(words.encode()).hexdigest()


def other_topic(then: str, now: str) -> StreamError:
    return StreamError(
        "OTHER_TOPIC",
        f"the checkpoint is for topic {then}, but {PREFIX}topic is {now}: correct the setting, "
        f"or set {PREFIX}checkpoint to a separate folder for each topic",
    )


def other_tables(what: str, onward: str) -> StreamError:
    return StreamError(
        "OTHER_TABLES",
        f"{PREFIX}tables leads to other tables ({what}), so the versions to which batches are "
        f"pinned contain other rows: correct the setting, or {onward}",
    )


class IdentityFile:
    """``stackcast-identity.json`` of a checkpoint, on any file system that Hadoop knows."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint

    def read(self) -> Identity | None:
        """None where there is none. Raises StreamError CHECKPOINT_UNREADABLE, NEWER_LAYOUT."""
        content = self._folder.read(NAME)
        return None if content is None else Identity.unpacked(content, self._folder.path(NAME))

    def write(self, identity: Identity) -> None:
        """Write the file, in place of one that is there. Raises OSError.

        After a crash it is whole or missing, and the next start writes a missing one.
        """
        self._folder.replace(NAME, identity.packed())


QUOTA = "filters.quota"
#: The settings that shape the bytes of notifications, without their prefix: with these, the
#: versions of a batch and its offsets, its frames can be computed again.
SHAPING = (
    "publisher",
    "publisher.by",
    "match",
    "multicast.group",
    "multicast.port",
    "mtu",
    "maxLabels",
    "encoding",
    "label.bits",
    "format",
    "attributes.input",
    "attributes.encoding",
    "attributes.idBits",
    "attributes.bitmaskBits",
    "filters.order",
    QUOTA,
)
SPECIFICATION = "specification"


def shaping(settings: Settings) -> dict[str, str]:
    """Returns the settings that shape bytes, as pins and ledger keep them: their values as text,
    and a digest of the format as ``specification``."""
    named = {f.metadata["key"]: f.name for f in fields(Settings) if f.metadata}
    found = {key: str(getattr(settings, named[key])) for key in SHAPING}
    return found | {SPECIFICATION: specification_digest(settings)}


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Returns, of those that differ, the value that each had."""
    return {key: value for key, value in before.items() if now.get(key, value) != value}
