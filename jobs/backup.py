"""Back up or restore a deployment: its tables, its checkpoint and its positions in the topic.

    spark-submit [--properties-file conf/X.conf] jobs/backup.py [--take-over] FOLDER
    spark-submit [--properties-file conf/X.conf] jobs/backup.py --restore FOLDER

The job creates FOLDER. The stream must have ended; --take-over ends a stream that runs, and is also
needed after a stream has died. No stream can start during the backup. With --restore, the folders
of spark.stackcast.tables and spark.stackcast.checkpoint must be new or empty. A stream that starts
afterwards continues at the positions of the backup.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from functools import partial

from stackcast.jobs.command_lines.backup import parser

if __name__ == "__main__":
    parser(__doc__).parse_args()

from stackcast.jobs.adapters.app import application, session
from stackcast.jobs.adapters.app.lifecycle import Lifecycle
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint import backup
from stackcast.jobs.adapters.checkpoint.hadoop_files import open_folder
from stackcast.jobs.adapters.tables.open_tables import open_tables

log = logging.getLogger("stackcast.backup")


def main(arguments: list[str]) -> int:
    return application.run(partial(work, parser(__doc__).parse_args(arguments)))


def work(asked: argparse.Namespace, settings: Settings, _lifecycle: Lifecycle) -> int:
    spark = session.start("stackcast backup")
    checkpoint = open_folder(spark, settings.checkpoint)
    application = str(spark.sparkContext.applicationId)
    deployment = settings, open_tables(spark, settings.tables), checkpoint
    if asked.restore:
        manifest = backup.restore(*deployment, asked.folder.absolute(), application)
    else:
        manifest = backup.create(
            *deployment, asked.folder.absolute(), application, take_over=asked.take_over
        )
    log.info(
        "%s: topic %s up to offsets %s, batch %d is next",
        "restored" if asked.restore else f"{asked.folder} is made",
        manifest["topic"],
        json.dumps(manifest["offsets"]),
        manifest["next_batch"],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
