"""The retuning as a service on a thread of the test, and its record of publications."""

from __future__ import annotations

import dataclasses
import datetime as dt
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from following import job_on_thread

from stackcast.jobs import retune_trees
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.retune import planning
from stackcast.jobs.adapters.retune.record import RecordedPublications, read_record
from stackcast.jobs.adapters.tables.tables import DELIVERIES, PUBLICATIONS, Tables
from stackcast.udfs.trees.publications import Publication


@contextmanager
def retuning_service(
    settings: Settings,
    arguments: Sequence[str],
    port: int = 0,
    record: Callable[..., RecordedPublications] = read_record,
) -> Iterator[Callable[[], bool]]:
    """Run the service; yields a function that fails if it has ended.

    At the end of the block the service is asked to stop, and its exit code must be 0.

    Args:
        settings: of the deployment.
        arguments: of the job.
        port: on which it serves metrics and health; 0 for none.
        record: reads the record.
    """
    options = retune_trees.parser().parse_args(arguments)
    settings = dataclasses.replace(settings, metrics_port=port)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "read_record", record)
        with job_on_thread(lambda cycle: retune_trees.work(options, settings, cycle)) as runs:
            yield runs


def get(port: int, path: str) -> str:
    """Returns a page of the service; an empty text if it does not serve yet."""
    with (
        suppress(urllib.error.URLError, ConnectionError),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=600) as answer,
    ):
        return str(answer.read().decode())
    return ""


def check_place_is_free(tables: Tables) -> None:
    """Check that the last claim of the retuning has ended."""
    claims = [row for row in tables.rows("writers") if row["role"] == "retuning"]
    last = max(row["epoch"] for row in claims)
    assert any(row["ended_at"] for row in claims if row["epoch"] == last), claims


def record_of_rows(
    tables: Tables, most: int, window: dt.timedelta | None = None, as_of: int | None = None
) -> RecordedPublications:
    """Returns the same as `read_record`, without Spark, which takes seconds in a test."""
    deliveries = tables.rows(DELIVERIES, as_of)
    if not deliveries:
        return RecordedPublications([])
    last = max(row["recorded_at"] for row in deliveries)
    batches = {
        (row["batch_id"], row["recorded_at"])
        for row in deliveries
        if window is None or row["recorded_at"] > last - window
    }
    counts: defaultdict[tuple[str, frozenset[str]], Counter[str]] = defaultdict(Counter)
    for row in tables.rows(PUBLICATIONS):
        if (row["batch_id"], row["recorded_at"]) in batches:
            key = row["publisher"], frozenset(row["receivers"])
            counts[key].update({n: row[n] for n in ("notifications", "datagram_bytes")})
    publications = [
        Publication(*key, count["notifications"], count["datagram_bytes"])
        for key, count in counts.items()
    ]

    def weight(publication: Publication) -> int:
        return publication.datagram_bytes * len(publication.receivers)

    publications.sort(key=lambda p: (-weight(p), p.publisher, sorted(p.receivers)))
    total = sum(map(weight, publications))
    heaviest = publications[:most]
    return RecordedPublications(
        heaviest,
        len(batches),
        sum(map(weight, heaviest)) / total if total else 1.0,
        min(recorded_at for _, recorded_at in batches),
        last,
    )
