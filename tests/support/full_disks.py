"""Runs streams whose disk gets full, and prints what became of each: a JSON line a place.

For a process in a mount namespace of its own, which mounts a small file system first:

    full_disks.py SERVERS TABLES FOLDER DISK

TABLES are filled ones to copy. FOLDER is new, DISK is where the small file system is mounted.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

from pcap_deployment import Deployment, records

import schemas
from jobs.adapters.app import session
from jobs.adapters.checkpoint.progress import position
from udfs.errors import StackcastError
from udfs.messages.specification import parse_specification

#: What of a deployment lies on the small disk.
PLACES = ("checkpoint", "tables", "pcap_path")


def run(deployment: Deployment, disk: Path) -> dict[str, Any]:
    """Fill the disk between two batches, make room again, and start again."""
    told = ""
    logged: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("jobs").addHandler(handler)

    def fill() -> None:
        with (disk / "filler").open("wb", buffering=0) as filler:
            block = bytes(1 << 16)
            try:
                while filler.write(block) == len(block):
                    pass
                while filler.write(b"x"):
                    pass
            except OSError:
                pass
        deployment.publish(records()[60:])

    deployment.publish(records()[:60])
    try:
        deployment.run(fill)
    except StackcastError as error:
        told = str(error)
    stood = position(deployment.spark, deployment.settings.checkpoint)
    (disk / "filler").unlink()
    deployment.run()
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    outcome = deployment.outcome(itch)
    return {
        "told": told,
        "logged": logged,
        "batches": [row["batch_id"] for row in deployment.ledger],
        "stood": sum(stood.offsets.values()) if stood else None,
        **outcome.counts(),
        "counted": sum(r["messages"] for r in deployment.tables.rows("delivery_statistics")),
    }


def main(servers: str, tables: Path, folder: Path, disk: Path) -> None:
    spark = session.start("full disks")
    for place in PLACES:
        (folder / place).mkdir(parents=True)
        where = disk / place
        deployment = Deployment(spark, servers, folder / place, **{place: str(where)})
        shutil.copytree(tables, deployment.settings.tables)
        print(json.dumps({"place": place, **run(deployment, disk)}), flush=True)
        shutil.rmtree(where)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
