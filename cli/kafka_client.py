"""Kafka client of commands that publish or consume, with the options of the jobs' client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stackcast.cli.deployment import lab_properties, lab_state
from stackcast.jobs.adapters.app.properties_file import read_properties
from stackcast.jobs.adapters.app.settings import KAFKA_PREFIX
from stackcast.jobs.adapters.kafka.options import fetch_options
from stackcast.jobs.embedded.options import DEFAULT
from stackcast.udfs.errors import KafkaError

_LOCAL = "127.0.0.1:9092"


def client_options(properties: Path | None, bootstrap: str | None) -> tuple[str, dict[str, Any]]:
    """Return the brokers, and keyword arguments of kafka-python.

    Args:
        properties: properties file of a job, of which only the keys of the Kafka client are read;
            None for the file of the running lab, unless brokers are given.
        bootstrap: brokers to use instead of those of the file.

    Raises:
        KafkaError: BAD_OPTION.
        LabError: NO_ANSWER if neither is given, and the lab is still starting.
        SettingsError: UNREADABLE_FILE.
    """
    if properties is None and not bootstrap:
        properties = lab_properties()
    values = {"bootstrap.servers": _LOCAL}
    for key, value in read_properties(properties).items() if properties else ():
        if key.startswith(KAFKA_PREFIX):
            values[key.removeprefix(KAFKA_PREFIX)] = value
    if bootstrap:
        values["bootstrap.servers"] = bootstrap
    try:
        options = dict(fetch_options(values).client)
    except KafkaError as error:
        raise KafkaError(
            "BAD_OPTION",
            f"{properties}: the Kafka client of this command does not support the value of "
            f"{KAFKA_PREFIX}{error.key}: certificates must be PEM files, and a login must be PLAIN "
            "or SCRAM with user and password in sasl.jaas.config",
        ) from error
    return options.pop("bootstrap_servers"), options


@contextmanager
def broker_errors() -> Iterator[None]:
    """Add which lab is up on this machine to the error of a broker that does not answer."""
    try:
        yield
    except KafkaError as error:
        if error.what != "BROKER_UNREACHABLE":
            raise
        hint = _hint(error.fields.get("bootstrap_servers"))
        raise KafkaError(
            "BROKER_UNREACHABLE", f"{error.message}; {hint}", **error.fields
        ) from error


def _hint(brokers: str | None) -> str:
    """Return the state of the lab in the default folder, and what to do."""
    state = lab_state()
    if state is None:
        return (
            f"no lab is up in {DEFAULT.path}: start one with 'stackcast lab up', or name a broker "
            "with --bootstrap-servers or --properties-file"
        )
    address = state.get("bootstrap_servers")
    if address is None:
        return f"the lab in {DEFAULT.path} is still starting: try again in a moment"
    if address == brokers:
        return f"it is the broker of the lab in {DEFAULT.path}: see the logs in its folder log"
    return (
        f"the lab in {DEFAULT.path} is up, and its broker is at {address}: leave out "
        "--bootstrap-servers and --properties-file to use it"
    )
