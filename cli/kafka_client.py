"""Options of the Kafka client of commands that publish: those of the jobs, from the same file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from stackcast.jobs.adapters.fetch.options import fetch_options
from stackcast.udfs.errors import KafkaError

PropertiesFile = Annotated[
    Path | None,
    typer.Option(
        "--properties-file",
        exists=True,
        dir_okay=False,
        help="File of a job with spark.stackcast.kafka.*: brokers, TLS and login.",
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        "--bootstrap",
        help="Kafka brokers, host:port; without it those of the file, or 127.0.0.1:9092.",
    ),
]
_PREFIX = "spark.stackcast.kafka."
_LOCAL = "127.0.0.1:9092"
_LINE = re.compile(r"\s*([^\s#!=:][^\s=:]*)\s*[=:\s]\s*(.*?)\s*$")


def client_options(properties: Path | None, bootstrap: str | None) -> tuple[str, dict[str, Any]]:
    """Returns the brokers, and keyword arguments of kafka-python.

    properties: of a job, ``key value`` or ``key=value`` a line; keys of no Kafka client are passed
    over. bootstrap: in place of the file's. Raises KafkaError BAD_OPTION.
    """
    found = {"bootstrap.servers": _LOCAL}
    for line in properties.read_text().splitlines() if properties else ():
        if (match := _LINE.match(line)) and match[1].startswith(_PREFIX):
            found[match[1].removeprefix(_PREFIX)] = match[2]
    if bootstrap:
        found["bootstrap.servers"] = bootstrap
    try:
        options = dict(fetch_options(found).client)
    except KafkaError as error:
        raise KafkaError(
            "BAD_OPTION",
            f"{properties}: the client of this command cannot do as {_PREFIX}{error.key} says: "
            "certificates are files of PEM, a login is PLAIN or SCRAM with user and password in "
            "sasl.jaas.config",
        ) from error
    return options.pop("bootstrap_servers"), options
