"""What Delta says of versions that it has no more, told from errors that may pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stackcast.jobs.adapters.app.error_texts import SQL_ERRORS, gone_for_good
from stackcast.jobs.adapters.tables.open_tables import open_tables
from stackcast.udfs.network.network import Switch
from stackcast.udfs.network.rows import switch_to_row

pytestmark = pytest.mark.integration


def test_versions_whose_files_or_log_are_gone_are_told_from_errors_that_may_pass(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = open_tables(spark, str(tmp_path))
    tables.create("switches")
    for number in (1, 2):
        row = switch_to_row(Switch(f"s{number}", number), "127.0.0.1:1")
        tables.overwrite("switches", [row])
    version = tables.version("switches")
    log = tmp_path / "switches" / "_delta_log" / f"{version - 1:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (path,) = [action["add"]["path"] for action in actions if "add" in action]
    (tmp_path / "switches" / path).unlink()
    for old in (version - 1, version + 7):
        with pytest.raises(SQL_ERRORS) as failed:
            tables.rows("switches", old)
        assert gone_for_good(failed.value), str(failed.value)
    assert len(tables.rows("switches", version)) == 1
    with pytest.raises(SQL_ERRORS) as failed:
        tables.read("switches", version).where("no_column = 1").collect()
    assert not gone_for_good(failed.value)
