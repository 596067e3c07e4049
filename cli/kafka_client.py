"""Options of the Kafka client of commands that publish: those of the jobs, from the same file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from stackcast.jobs.adapters.app.properties_file import read_properties
from stackcast.jobs.adapters.app.settings import KAFKA_PREFIX
from stackcast.jobs.adapters.fetch.options import fetch_options
from stackcast.jobs.embedded.options import DEFAULT
from stackcast.lab.up.folder import read_state
from stackcast.udfs.errors import KafkaError, LabError

PropertiesFile = Annotated[
    Path | None,
    typer.Option(
        "--properties-file",
        metavar="FILE",
        help="File of a job with spark.stackcast.kafka.*: brokers, TLS and login.",
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "--bootstrap",
        help="Kafka brokers, host:port. By default those of --properties-file; without that option "
        "the broker of the lab that is up in var/lab, or 127.0.0.1:9092 if none is up.",
    ),
]
_LOCAL = "127.0.0.1:9092"


def client_options(properties: Path | None, bootstrap: str | None) -> tuple[str, dict[str, Any]]:
    """Returns the brokers, and keyword arguments of kafka-python.

    Args:
        properties: file of a job's Spark properties; only keys of the Kafka client are read.
        bootstrap: brokers to use instead of those of the file.

    Raises:
        KafkaError: ``BAD_OPTION``.
        LabError: ``NO_ANSWER`` if neither is given, and the lab is coming up.
        SettingsError: ``UNREADABLE_FILE``.
    """
    found = {"bootstrap.servers": _LOCAL}
    if properties is None and not bootstrap:
        found["bootstrap.servers"] = _lab_broker() or _LOCAL
    for key, value in read_properties(properties).items() if properties else ():
        if key.startswith(KAFKA_PREFIX):
            found[key.removeprefix(KAFKA_PREFIX)] = value
    if bootstrap:
        found["bootstrap.servers"] = bootstrap
    try:
        options = dict(fetch_options(found).client)
    except KafkaError as error:
        raise KafkaError(
            "BAD_OPTION",
            f"{properties}: the client of this command cannot do as {KAFKA_PREFIX}{error.key} "
            "says: certificates are files of PEM, a login is PLAIN or SCRAM with user and password "
            "in sasl.jaas.config",
        ) from error
    return options.pop("bootstrap_servers"), options


@contextmanager
def broker_errors() -> Iterator[None]:
    """Adds to the error of a broker that does not answer which lab is up on this machine."""
    try:
        yield
    except KafkaError as error:
        if error.what != "BROKER_UNREACHABLE":
            raise
        hint = _hint(error.fields.get("bootstrap_servers"))
        raise KafkaError(
            "BROKER_UNREACHABLE", f"{error.message}; {hint}", **error.fields
        ) from error


def _lab_broker() -> str | None:
    """Returns the address of the broker of the lab in the default folder; None if no lab is up."""
    state = read_state(DEFAULT.path)
    if state is None:
        return None
    if not state["ready"]:
        raise LabError(
            "NO_ANSWER",
            f"the lab in {DEFAULT.path} is still starting: try again in a moment, or name another "
            "broker with --bootstrap",
        )
    return str(state["bootstrap_servers"])


def _hint(brokers: str | None) -> str:
    """Returns the state of the lab in the default folder, and what to do."""
    state = read_state(DEFAULT.path)
    if state is None:
        return (
            f"no lab is up in {DEFAULT.path}: start one with 'stackcast lab up', or name a broker "
            "with --bootstrap or --properties-file"
        )
    address = state.get("bootstrap_servers")
    if address is None:
        return f"the lab in {DEFAULT.path} is still starting: try again in a moment"
    if address == brokers:
        return f"it is the broker of the lab in {DEFAULT.path}, whose folder log says more"
    return (
        f"the lab in {DEFAULT.path} is up, and its broker is at {address}: leave out --bootstrap "
        "and --properties-file to use it"
    )
