"""Run a stream whose disks become full, and print a JSON line with what it does.

    full_disks.py SERVERS TABLES FOLDER DISKS

TABLES is a folder of filled tables, which the stream copies. FOLDER is a new folder. DISKS is a
folder with a mount point for each of `PLACES`, on which the process has mounted a small file system
in its own mount namespace before.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pcap_deployment import Deployment, records

from stackcast import schemas
from stackcast.jobs.adapters.app import session
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
from stackcast.jobs.adapters.checkpoint.progress import position
from stackcast.udfs.errors import StackcastError
from stackcast.udfs.messages.specification import parse_specification

#: Settings whose files are on a small disk of their own.
PLACES = ("checkpoint", "tables", "pcap_path")


def fill(disk: Path) -> None:
    """Write a file that leaves no byte free."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        block = bytes(1 << 16)
        try:
            while filler.write(block) == len(block):
                pass
            while filler.write(b"x"):
                pass
        except OSError:
            pass


def run(deployment: Deployment, disks: Path) -> dict[str, Any]:
    """Fill the disk of each place between two batches, and start the stream again if it ends."""
    logged: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("stackcast.jobs").addHandler(handler)
    packets = [records()[begin : begin + 70] for begin in range(0, 280, 70)]
    errors: dict[str, str] = {}

    def fill_and_publish(place: str) -> Callable[[], None]:
        def step() -> None:
            fill(disks / place)
            deployment.publish(packets.pop())

        return step

    def run_until_full(*places: str) -> None:
        """Run the stream until the disk of the last place ends it."""
        try:
            deployment.run(*map(fill_and_publish, places))
        except StackcastError as error:
            errors[places[-1]] = str(error)
        # A full disk leaves a checkpoint that can be read.
        position(open_folder(deployment.spark, deployment.settings.checkpoint))
        for place in places:
            (disks / place / "filler").unlink()

    deployment.publish(packets.pop())
    run_until_full("tables", "pcap_path")
    run_until_full("checkpoint")
    deployment.run()
    itch = parse_specification(schemas.read_text("messages/itch.spec"), "itch")
    outcome = deployment.outcome(itch)
    return {
        "errors": errors,
        "logged": logged,
        "batches": [row["batch_id"] for row in deployment.ledger],
        **outcome.counts(),
        "counted": sum(r["messages"] for r in deployment.tables.rows("delivery_statistics")),
    }


def main(servers: str, tables: Path, folder: Path, disks: Path) -> None:
    # Spark tries a task that fails once again.
    spark = session.start("full disks", {"spark.master": "local[2,2]"})
    folder.mkdir()
    places = {place: str(disks / place / "files") for place in PLACES}
    deployment = Deployment(spark, servers, folder, **places)
    shutil.copytree(tables, deployment.settings.tables)
    print(json.dumps(run(deployment, disks)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
