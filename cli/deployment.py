"""Options of commands that read the settings of a deployment instead of taking each as an option.

An option on the command line comes first, then the file of properties, then the default. Commands
that use a broker or tables take the file of the lab that is up, if none is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stackcast.cli.attributes.event_lines import EventReader
from stackcast.cli.attributes.files import read_registry, widths_of
from stackcast.jobs.adapters.app.properties_file import read_properties
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded.options import DEFAULT
from stackcast.lab.up.folder import read_state
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.messages.attributes.registry import Registry

DeploymentFile = Annotated[
    Path | None,
    typer.Option(
        "--properties-file",
        metavar="FILE",
        help="Spark properties of the deployment, the file of its jobs. Options that are not given "
        "have the values of this file.",
    ),
]
LabOrDeploymentFile = Annotated[
    Path | None,
    typer.Option(
        "--properties-file",
        metavar="FILE",
        help="Spark properties of the deployment, the file of its jobs; by default the file of the "
        "lab that is up in var/lab.",
    ),
]
EventAttributes = Annotated[
    Path | None,
    typer.Option(
        "--attributes",
        metavar="FILE",
        help="Messages are attribute/value events. FILE has the attributes, as 'stackcast "
        "attributes export' writes it.",
    ),
]
EventEncoding = Annotated[
    Literal["id_pairs", "bitmask"] | None,
    typer.Option("--encoding", help="Encoding of events in messages; bitmask by default."),
]
EventWidths = Annotated[
    str | None,
    typer.Option(
        "--widths", help="Bits of an id (8, 16) and of a bitmask (8, 16, 32, 64); 8/32 by default."
    ),
]


@dataclass(frozen=True)
class Deployment:
    """Settings of a deployment, and the attributes of its events.

    Attributes:
        settings: settings of the file, or the defaults.
        attributes: file of attributes, if one is given.
        encoding: encoding of events in messages, if it is given.
        widths: widths of events.
    """

    settings: Settings
    attributes: Path | None
    encoding: str | None
    widths: Widths

    @property
    def has_events(self) -> bool:
        """Whether messages are attribute/value events."""
        return self.settings.format == ATTRIBUTES

    @cached_property
    def registry(self) -> Registry | None:
        """The attributes of the file, or of the table if it is on this machine.

        Raises:
            AttributeTableError: the attributes cannot be used.
        """
        if self.attributes is not None:
            return read_registry(self.attributes, self.widths)
        rows = local_rows(self.settings, ATTRIBUTES) if "tables" in self.settings.given else None
        return None if rows is None else Registry.from_rows(rows, self.widths)

    def events(self) -> EventReader | None:
        """Return a reader of events in messages; None if messages are none, or have no names."""
        if not self.has_events or self.registry is None:
            return None
        return EventReader(self.encoding or self.settings.attributes_encoding, self.registry)


def read_deployment(
    properties_file: Path | None,
    attributes: Path | None = None,
    encoding: str | None = None,
    widths: str | None = None,
) -> Deployment:
    """Return the deployment that options describe.

    Its messages are events if ``attributes`` is given, or if the file has this format or a setting
    of it: only the name of the job says so otherwise.

    Args:
        properties_file: file of properties of its jobs.
        attributes: value of ``--attributes``.
        encoding: value of ``--encoding``.
        widths: value of ``--widths``.

    Raises:
        SettingsError: UNREADABLE_FILE, or an error of `Settings.read`.
    """
    settings = read_settings(properties_file)
    own = any(key.startswith("attributes.") for key in settings.given)
    if attributes is not None or encoding or ("format" not in settings.given and own):
        settings = replace(settings, format=ATTRIBUTES)
    chosen = widths_of(widths) if widths else settings.widths
    return Deployment(settings, attributes, encoding, chosen)


def read_settings(properties_file: Path | None) -> Settings:
    """Return the settings of a file of properties, without a JVM; the defaults without a file.

    Raises:
        SettingsError: UNREADABLE_FILE, or an error of `Settings.read`.
    """
    pairs: Mapping[str, str] = read_properties(properties_file) if properties_file else {}
    return Settings.read(pairs.items())


def lab_properties() -> Path | None:
    """Return the file of properties of the lab that is up in the default folder, if one is."""
    state = read_state(DEFAULT.path)
    return DEFAULT.path / "lab.conf" if state is not None and state.get("ready") else None


def local_rows(settings: Settings, table: str) -> list[dict[str, Any]] | None:
    """Return the rows of a table in a folder of this machine; None if it is elsewhere."""
    folder = Path(settings.tables.removeprefix("file:")) / table
    if "://" in settings.tables or not (folder / "_delta_log").is_dir():
        return None
    # It imports Spark, which other commands should not wait for.
    from stackcast.jobs.adapters.tables import local  # noqa: PLC0415

    return local.rows(str(folder.absolute()))
