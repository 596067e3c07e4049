"""The option ``--properties-file`` of commands that read settings of a deployment."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from stackcast.jobs.adapters.app.properties_file import default_properties, read_properties
from stackcast.jobs.adapters.app.settings import Settings

SparkPropertiesFile = Annotated[
    Path | None,
    typer.Option(
        "--properties-file",
        metavar="FILE",
        help="Spark properties of the deployment, the file of its jobs.",
    ),
]


def start_with(properties_file: Path | None) -> None:
    """Have Spark read a file of properties when this program starts its JVM.

    The settings are checked here, because a start of the JVM takes seconds.

    Args:
        properties_file: the file; None for the defaults of Spark.

    Raises:
        SettingsError: ``UNREADABLE_FILE``, or an error of `Settings.read`.
    """
    if properties_file is None:
        Settings.read(default_properties().items())
        return
    Settings.read(read_properties(properties_file).items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(
        ["--properties-file", str(properties_file.absolute()), "pyspark-shell"]
    )
