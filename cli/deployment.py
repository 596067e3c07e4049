"""Settings of a deployment that commands read from its properties file.

An option on the command line has priority over the properties file, and the file over the default.
Commands that use a broker or tables use the file of the running lab if none is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackcast.jobs.adapters.app.properties_file import read_properties
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded.options import DEFAULT
from stackcast.lab.up.folder import read_state
from stackcast.udfs.errors import LabError
from stackcast.udfs.messages.attributes.events import Widths
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES

if TYPE_CHECKING:
    from stackcast.cli.attributes.event_lines import EventReader
    from stackcast.udfs.messages.attributes.registry import Registry


@dataclass(frozen=True)
class Deployment:
    """Settings of a deployment, and the attributes of its events.

    Attributes:
        settings: settings of the file, or the defaults.
        attributes: file of attributes; None if the command line has none.
        encoding: encoding of events in messages; None if the command line has none.
        widths: widths of ids and bitmasks.
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
        from stackcast.cli.attributes.files import read_registry  # noqa: PLC0415
        from stackcast.udfs.messages.attributes.registry import Registry  # noqa: PLC0415

        if self.attributes is not None:
            return read_registry(self.attributes, self.widths)
        rows = local_rows(self.settings, ATTRIBUTES) if "tables" in self.settings.given else None
        return None if rows is None else Registry.from_rows(rows, self.widths)

    def events(self) -> EventReader | None:
        """Return a reader of events; None if messages are not events or attributes are unknown."""
        if not self.has_events or self.registry is None:
            return None
        from stackcast.cli.attributes.event_lines import EventReader  # noqa: PLC0415

        return EventReader(self.encoding or self.settings.attributes_encoding, self.registry)


def read_deployment(
    properties_file: Path | None,
    attributes: Path | None = None,
    encoding: str | None = None,
    widths: str | None = None,
) -> Deployment:
    """Return the deployment that options describe.

    Its messages are events if ``attributes`` or ``encoding`` is given, or if the file sets this
    format. A file that sets no format but has settings of attributes belongs to a stream of events.

    Args:
        properties_file: properties file of the jobs.
        attributes: value of ``--attributes``.
        encoding: value of ``--encoding``.
        widths: value of ``--widths``.

    Raises:
        SettingsError: UNREADABLE_FILE, or an error of `Settings.read`.
    """
    from stackcast.cli.attributes.files import widths_of  # noqa: PLC0415

    settings = read_settings(properties_file)
    has_own = any(key.startswith("attributes.") for key in settings.given)
    if attributes is not None or encoding or ("format" not in settings.given and has_own):
        settings = replace(settings, format=ATTRIBUTES)
    event_widths = widths_of(widths) if widths else settings.widths
    return Deployment(settings, attributes, encoding, event_widths)


def read_settings(properties_file: Path | None) -> Settings:
    """Return the settings of a properties file, or the defaults, without starting a JVM.

    Raises:
        SettingsError: UNREADABLE_FILE, or an error of `Settings.read`.
    """
    pairs: Mapping[str, str] = read_properties(properties_file) if properties_file else {}
    return Settings.read(pairs.items())


def lab_properties() -> Path | None:
    """Return the properties file of the lab in the default folder; None if no lab is up.

    Raises:
        LabError: NO_ANSWER if the lab is still starting.
    """
    state = lab_state()
    if state is None:
        return None
    if not state.get("ready"):
        raise LabError(
            "NO_ANSWER",
            f"the lab in {DEFAULT.path} is still starting: try again in a moment, or name another "
            "deployment with --properties-file",
        )
    return DEFAULT.path / "lab.conf"


def lab_state() -> dict[str, Any] | None:
    """Return the state of the lab in the default folder; None if no lab is up."""
    return read_state(DEFAULT.path)


def local_rows(settings: Settings, table: str) -> list[dict[str, Any]] | None:
    """Return the rows of a table in a folder of this machine; None if only Spark can read it.

    Raises:
        TableError: the table cannot be used.
    """
    folder = Path(settings.tables.removeprefix("file:")) / table
    if "://" in settings.tables or not (folder / "_delta_log").is_dir():
        return None
    # It takes a third of a second to import.
    from stackcast.jobs.adapters.tables.folder_tables import FolderTables, NeedsSparkError  # noqa: PLC0415

    try:
        return FolderTables(str(folder.parent)).rows(table)
    except NeedsSparkError:
        return None
