"""Spark properties for commands that start a JVM."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from stackcast.jobs.adapters.app.properties_file import default_properties, read_properties
from stackcast.jobs.adapters.app.settings import Settings


def start_with(properties_file: Path | None) -> None:
    """Make Spark read a properties file when this program starts its JVM.

    The settings are checked before, because the start of a JVM takes seconds.

    Args:
        properties_file: the file; None for the defaults of Spark.

    Raises:
        SettingsError: UNREADABLE_FILE, or an error of `Settings.read`.
    """
    if properties_file is None:
        Settings.read(default_properties().items())
        return
    Settings.read(read_properties(properties_file).items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
        ["--properties-file", str(properties_file.absolute()), "pyspark-shell"]
    )
