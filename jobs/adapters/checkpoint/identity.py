"""Identity of a checkpoint: the topic, format and tables to which it belongs.

Offsets, pinned versions and state cells are not valid for another topic, format or set of tables: a
stream that continued with them would silently lose or repeat events. So the first start writes
``<checkpoint>/stackcast-identity.json``, and every later start compares it with its settings. If
the first start crashes before the file is written, the next one writes it.
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
#: Layout of all files of the checkpoint. Increase it when one of them changes.
LAYOUT = 4

#: Tables to whose versions batches are pinned, and the ledger of all batches.
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
    """What a checkpoint belongs to.

    Attributes:
        topic: name of the topic.
        cluster: id of the Kafka cluster; empty if brokers do not report it.
        topic_id: id of the topic; empty if brokers do not report it.
        generation: generation of the topic; see `stackcast.udfs.messages.sequence.Topic`.
        format: format of the messages.
        specification: digest of the specification of the format.
        publisher: publisher of the topic, and the rule by which several publishers differ.
        tables: by name, the id that Delta has given a table.
    """

    topic: str
    cluster: str
    topic_id: str
    generation: int
    format: str
    specification: str
    publisher: str
    tables: dict[str, str]

    @classmethod
    def current(
        cls, settings: Settings, tables: Tables, ids: tuple[str, str], generation: int = 0
    ) -> Identity:
        """Return the identity that a new checkpoint would have.

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
        """The topic of the checkpoint."""
        return Topic(self.topic, self.topic_id, self.generation)

    def packed(self) -> bytes:
        """Return the content of a file, as JSON."""
        text = json.dumps({"layout": LAYOUT, **dataclasses.asdict(self)}, indent=1, sort_keys=True)
        return f"{text}\n".encode()

    @classmethod
    def unpacked(cls, content: bytes, name: str) -> Identity:
        """Return the identity in the content of a file.

        Args:
            content: result of `packed`.
            name: path of the file, for errors.

        Raises:
            StreamError: CHECKPOINT_UNREADABLE, OLDER_LAYOUT, NEWER_LAYOUT.
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

    def check(self, current: Identity, remedy: str) -> None:
        """Raise an error if the checkpoint belongs to something other than the settings.

        Args:
            current: identity of the settings.
            remedy: how to continue with the settings in a new checkpoint, for errors.

        Raises:
            StreamError: OTHER_TOPIC, OTHER_CLUSTER, TOPIC_RECREATED, OTHER_FORMAT,
                OTHER_SPECIFICATION, OTHER_PUBLISHER, OTHER_TABLES.
        """
        from_start = f"set {PREFIX}checkpoint to a new folder to read the topic from its beginning"
        if self.topic != current.topic:
            raise other_topic(self.topic, current.topic)
        if self.cluster != current.cluster and self.cluster and current.cluster:
            raise StreamError(
                "OTHER_CLUSTER",
                f"the checkpoint is for topic {self.topic} of Kafka cluster {self.cluster}, but "
                f"{PREFIX}kafka.bootstrap.servers points to cluster {current.cluster}, where the "
                f"same offsets are other records: correct the setting, or {from_start}",
            )
        if self.topic_id != current.topic_id and self.topic_id and current.topic_id:
            raise StreamError(
                "TOPIC_RECREATED",
                f"topic {self.topic} was deleted and created again after the checkpoint was "
                f"created (topic id {self.topic_id} then, {current.topic_id} now), so the same "
                f"offsets are other records: {from_start}. The stream then sends in new "
                "sessions, so hosts do not confuse old and new events",
            )
        if self.format != current.format:
            raise StreamError(
                "OTHER_FORMAT",
                f"the checkpoint is for format {self.format}, but {PREFIX}format is "
                f"{current.format}: correct the setting, or give the other format its own topic, "
                "tables and checkpoint",
            )
        if self.specification != current.specification:
            raise StreamError(
                "OTHER_SPECIFICATION",
                f"messages/{self.format}.spec has changed since the checkpoint was created, so a "
                "repeated batch would send other bytes, and state cells may refer to other "
                f"fields: restore the specification, or {remedy}",
            )
        if self.publisher != current.publisher:
            raise StreamError(
                "OTHER_PUBLISHER",
                f"the checkpoint is for publisher {self.publisher}, but {PREFIX}publisher "
                f"together with {PREFIX}publisher.by is {current.publisher}: correct the setting, "
                f"or {remedy}",
            )
        if tables := [n for n, table in current.tables.items() if self.tables.get(n) != table]:
            raise other_tables(f"created again: {', '.join(tables)}", remedy)


def _publisher(settings: Settings) -> str:
    if settings.publisher_by == PARTITION:
        return settings.publisher
    return f"{settings.publisher} by {settings.publisher_by}"


def specification_digest(settings: Settings) -> str:
    """Return a digest of the specification of the format, without comments and white space.

    It is empty for the format of attributes, whose definitions are a table with versions.
    """
    if settings.format == ATTRIBUTES:
        return ""
    text = schemas.read_text(f"messages/{settings.format}.spec")
    words = " ".join(re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL).split())
    return hashlib.sha256(words.encode()).hexdigest()


def other_topic(recorded: str, configured: str) -> StreamError:
    """Return the error of a checkpoint that belongs to another topic."""
    return StreamError(
        "OTHER_TOPIC",
        f"the checkpoint is for topic {recorded}, but {PREFIX}topic is {configured}: correct the "
        f"setting, or set {PREFIX}checkpoint to a separate folder for each topic",
    )


def other_tables(difference: str, remedy: str) -> StreamError:
    """Return the error of a checkpoint that belongs to other tables.

    Args:
        difference: what differs.
        remedy: how to continue with these tables in a new checkpoint.
    """
    return StreamError(
        "OTHER_TABLES",
        f"{PREFIX}tables leads to other tables ({difference}), so the versions to which batches "
        f"are pinned contain other rows: correct the setting, or {remedy}",
    )


class IdentityFile:
    """The file ``stackcast-identity.json`` of a checkpoint."""

    def __init__(self, checkpoint: Folder) -> None:
        self._folder = checkpoint

    def read(self) -> Identity | None:
        """Return the identity in the file; None if it does not exist.

        Raises:
            StreamError: CHECKPOINT_UNREADABLE, OLDER_LAYOUT, NEWER_LAYOUT.
        """
        content = self._folder.read(NAME)
        return None if content is None else Identity.unpacked(content, self._folder.path(NAME))

    def write(self, identity: Identity) -> None:
        """Write the file, or replace it with the identity of a new generation.

        Raises:
            OSError: the file could not be written.
        """
        self._folder.replace(NAME, identity.packed())


QUOTA = "filters.quota"
#: Settings that shape the bytes of notifications, without their prefix. The frames of a batch can
#: be computed again from these settings, the versions of the tables, and the offsets.
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
    """Return the settings that shape bytes, as pins and ledger contain them.

    Returns:
        By key of `SHAPING`, the value as text, and a digest of the specification as
        ``specification``.
    """
    names = {f.metadata["key"]: f.name for f in fields(Settings) if f.metadata}
    values = {key: str(getattr(settings, names[key])) for key in SHAPING}
    return values | {SPECIFICATION: specification_digest(settings)}


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the previous values of the settings that differ."""
    return {key: value for key, value in before.items() if after.get(key, value) != value}
