"""The description of a lab for jobs: the rows of its tables, and a file of Spark properties."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

from stackcast.installation import shipped
from stackcast.lab.fabric.hosts import receivers
from stackcast.lab.traffic import sensors
from stackcast.lab.traffic.subscriptions import subscriptions
from stackcast.lab.up.lab import Lab
from stackcast.udfs.messages.attributes.registry import FORMAT as ATTRIBUTES
from stackcast.udfs.network.encodings import label_bits
from stackcast.udfs.network.network import Network
from stackcast.udfs.network.programs import matching_program
from stackcast.udfs.network.rows import network_to_rows, tree_to_row
from stackcast.udfs.trees.publisher_trees import first_trees

#: Frames in flight to the lab's switches; loopback sockets hold this many without loss.
WINDOW = 64

#: Settings of ours in conf/spark-defaults.conf that hold for any deployment: how records are read.
_FETCHING = tuple(
    f"spark.stackcast.kafka.{key}"
    for key in ("max.poll.records", "max.partition.fetch.bytes", "fetch.max.wait.ms")
)


def rows(
    network: Network,
    p4runtime: str,
    count: int,
    seed: int,
    updated_at: dt.datetime | str | None = None,
    match: str = "spark",
    message_format: str = "itch",
    late: bool = False,
) -> dict[str, Sequence[dict[str, Any]]]:
    """Returns rows of ``switches``, ``hosts``, ``links``, ``virtual_trees`` and ``subscriptions``.

    For the format ``attributes``, whose subscriptions are over sensors, also of ``attributes`` and
    of ``advertisements`` by the network's first publisher.

    Parameters
    ----------
    p4runtime: address of all switches, ``host:port``.
    count: how many subscriptions; ``seed``: of them.
    updated_at: of what people write, as a time or as ISO text; now by default.
    match: what ``spark.stackcast.match`` is: with the format and the network's labels it decides
        on the switches' program.
    late: whether some of the sensors' subscriptions are for ``sensors.LATE``.
    """
    filtering = match == "network"
    program = matching_program(message_format) if filtering else network.labels.program
    hosts = receivers(network)
    now = dt.datetime.now(dt.UTC) if updated_at is None else updated_at
    # The columns that people fill when they write a table.
    who = {"updated_by": "lab", "updated_at": now}
    made: dict[str, Sequence[dict[str, Any]]] = {}
    if message_format == ATTRIBUTES:
        wanted = sensors.subscriptions(hosts, count, seed, late, coarse=True)
        announced = sensors.advertisements(network.publishers()[0])
        made["attributes"] = [{**row, "registered_at": now} for row in sensors.attribute_rows()]
        made["advertisements"] = [{**row, **who} for row in announced]
    else:
        wanted = subscriptions(hosts, count, seed=seed)
    return {
        **network_to_rows(network, dict.fromkeys(network.switches, p4runtime), program),
        "virtual_trees": [tree_to_row(tree) for tree in first_trees(network)],
        "subscriptions": [
            {**row, "format": message_format, "enabled": True, **who} for row in wanted
        ],
        **made,
    }


def write(lab: Lab, count: int, seed: int, match: str = "spark") -> None:
    """Writes ``lab.conf`` and ``network/<table>.jsonl`` into the folder of a lab that is up.

    ``lab.conf`` is complete, since Spark reads no ``spark-defaults.conf`` beside a properties file.
    """
    ours = {
        "kafka.bootstrap.servers": lab.bootstrap_servers,
        "match": match,
        "encoding": lab.network.labels.encoding,
        "label.bits": label_bits(lab.network.labels),
        "publisher": ",".join(lab.ingress),
        "sink": "udp",
        **({} if len(lab.ingress) > 1 else {"sink.udp.endpoint": next(iter(lab.ingress.values()))}),
        "sink.udp.window": WINDOW,
        "tables": lab.folder / "tables",
        "checkpoint": lab.folder / "checkpoint",
    }
    (lab.folder / "lab.conf").write_text(_properties(ours))
    folder = lab.folder / "network"
    folder.mkdir(exist_ok=True)
    now = dt.datetime.now(dt.UTC).isoformat()
    content_by_table = rows(lab.network, lab.p4runtime, count, seed, now, match)
    content_by_table |= ingress_rows(lab.ingress)
    for table, content in content_by_table.items():
        lines = "".join(json.dumps(row) + "\n" for row in content)
        (folder / f"{table}.jsonl").write_text(lines)


def ingress_rows(ingress: Mapping[str, str]) -> dict[str, Sequence[dict[str, Any]]]:
    """Return the rows of table ``ingresses``, by table; none for a single publisher.

    The setting of the sink contains the endpoint of a single publisher.

    Args:
        ingress: endpoint of each publisher's tunnel, by name.
    """
    if len(ingress) == 1:
        return {}
    return {
        "ingresses": [
            {"place": None, "publisher": name, "transport": endpoint}
            for name, endpoint in ingress.items()
        ]
    }


def _properties(ours: Mapping[str, object]) -> str:
    machine = shipped("conf/spark-defaults.conf").read_text()
    lines = ["# Written by 'stackcast lab up'. Jobs with these settings use the lab."]
    # Settings of ours in that file are of another deployment, but for how records are fetched.
    lines += [
        line
        for line in machine.splitlines()
        if not line.startswith("spark.stackcast.") or line.startswith(_FETCHING)
    ]
    lines += [f"spark.stackcast.{key} {value}" for key, value in ours.items()]
    return "\n".join(lines) + "\n"
