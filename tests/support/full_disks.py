"""Run streams whose disk becomes full, and print a JSON line with the result of each.

    full_disks.py SERVERS TABLES FOLDER DISK

TABLES is a folder of filled tables, which each stream copies. FOLDER is a new folder. DISK is the
mount point of a small file system, which the process mounts in its own mount namespace before.
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

#: Settings whose files are on the small disk, one per stream.
PLACES = ("checkpoint", "tables", "pcap_path")


def run(deployment: Deployment, disk: Path) -> dict[str, Any]:
    """Fill the disk between two batches, free it, and start the stream again."""
    error_text = ""
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
        error_text = str(error)
    # A full disk leaves a checkpoint that can be read.
    position(deployment.spark, deployment.settings.checkpoint)
    (disk / "filler").unlink()
    deployment.run()
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    outcome = deployment.outcome(itch)
    return {
        "error": error_text,
        "logged": logged,
        "batches": [row["batch_id"] for row in deployment.ledger],
        **outcome.counts(),
        "counted": sum(r["messages"] for r in deployment.tables.rows("delivery_statistics")),
    }


def main(servers: str, tables: Path, folder: Path, disk: Path) -> None:
    spark = session.start("full disks")
    for place in PLACES:
        (folder / place).mkdir(parents=True)
        folder_on_disk = disk / place
        deployment = Deployment(spark, servers, folder / place, **{place: str(folder_on_disk)})
        shutil.copytree(tables, deployment.settings.tables)
        print(json.dumps({"place": place, **run(deployment, disk)}), flush=True)
        shutil.rmtree(folder_on_disk)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
