"""Errors of a start about deleted records, another deployment, and full disks."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.checkpoint.identity import Identity, specification_digest
from stackcast.jobs.adapters.stream.checks import check_offsets, check_records
from stackcast.jobs.adapters.stream.failures import disk_full
from stackcast.jobs.adapters.stream.truncation import Truncation
from stackcast.udfs.errors import StreamError
from stackcast.udfs.messages.sequence import MAX_OFFSET

pytestmark = pytest.mark.unit

RECORDED = Identity(
    topic="itch.raw",
    cluster="C1",
    topic_id="T1",
    generation=0,
    format="itch",
    specification="abc",
    publisher="feed1",
    tables={"links": "L1", "hosts": "H1"},
)
REMEDY = "set spark.stackcast.checkpoint to a new folder"

offsets = st.integers(0, 50)
spans = st.dictionaries(st.integers(0, 3), st.tuples(offsets, offsets).map(sorted).map(tuple))


@given(st.dictionaries(st.integers(0, 3), offsets), spans)
def test_the_error_of_deleted_records_contains_offsets_that_exist(positions, spans):
    complete = all(spans[p][0] <= o for p, o in positions.items() if p in spans)
    complete &= all(first == 0 for p, (first, _) in spans.items() if p not in positions)
    if complete:
        check_records("t", positions, spans, new=False)
        return
    with pytest.raises(StreamError) as refused:
        check_records("t", positions, spans, new=False)
    assert refused.value.what == "RECORDS_GONE"
    (text,) = re.findall(r"startingOffsets to (\{.*\}\})", str(refused.value))
    offsets = {int(p): o for p, o in json.loads(text)["t"].items()}
    assert offsets.keys() == spans.keys() | positions.keys()
    check_records("t", offsets, spans, new=True)
    deleted = sum(max(0, first - positions.get(p, 0)) for p, (first, _) in spans.items())
    assert f"no longer has {deleted} records" in str(refused.value)
    assert all(offsets[p] == max(spans[p][0], positions.get(p, 0)) for p in spans)


def test_a_new_checkpoint_may_begin_at_start_or_end_but_not_at_deleted_records():
    check_records("t", {}, {0: (40, 50)}, new=True)
    check_records("t", {0: -2, 1: -1}, {0: (40, 50), 1: (3, 9)}, new=True)
    with pytest.raises(StreamError, match=r"RECORDS_GONE.* 5 .*set spark.stackcast.startingOff"):
        check_records("t", {0: 35, 1: -1}, {0: (40, 50), 1: (3, 9)}, new=True)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "other"}, "OTHER_TOPIC"),
        ({"cluster": "C2"}, "OTHER_CLUSTER"),
        ({"topic_id": "T2"}, "TOPIC_RECREATED"),
        ({"format": "attributes"}, "OTHER_FORMAT"),
        ({"specification": "abd"}, "OTHER_SPECIFICATION"),
        ({"publisher": "h1"}, "OTHER_PUBLISHER"),
        ({"tables": {"links": "L2", "hosts": "H1"}}, "OTHER_TABLES"),
    ],
)
def test_each_difference_has_a_code_and_its_error_names_a_setting(change, code):
    current = dataclasses.replace(RECORDED, **change)
    with pytest.raises(StreamError, match=rf"^STREAM\.{code}: .*spark\.stackcast\.") as refused:
        RECORDED.check(current, REMEDY)
    assert "\n" not in str(refused.value)
    # The same difference is an error in the other direction.
    with pytest.raises(StreamError, match=code):
        current.check(RECORDED, REMEDY)


def test_ids_that_a_broker_does_not_report_make_no_difference():
    silent = dataclasses.replace(RECORDED, cluster="", topic_id="")
    silent.check(RECORDED, REMEDY)
    RECORDED.check(silent, REMEDY)


@given(
    st.builds(
        Identity,
        *[st.text()] * 3,
        st.integers(0),
        *[st.text()] * 3,
        tables=st.dictionaries(st.text(), st.text()),
    )
)
def test_reading_a_written_identity_returns_the_same_identity(identity):
    assert Identity.unpacked(identity.packed(), "f") == identity


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"layout": 4}', b"\xff"])
def test_a_damaged_identity_names_its_file(content):
    with pytest.raises(StreamError, match="CHECKPOINT_UNREADABLE: the file"):
        Identity.unpacked(content, "the file")


def test_the_checkpoint_of_a_newer_version_is_refused_with_a_remedy():
    newer = RECORDED.packed().replace(b'"layout": 4', b'"layout": 5')
    with pytest.raises(StreamError, match=r"the file: .* layout 5, .* up to 4: use") as refused:
        Identity.unpacked(newer, "the file")
    assert refused.value.what == "NEWER_LAYOUT"


def test_the_checkpoint_of_an_older_version_is_refused_with_a_remedy():
    older = RECORDED.packed().replace(b'"layout": 4', b'"layout": 3')
    with pytest.raises(
        StreamError, match=r"the file: .* layout 3, .* requires layout 4: set"
    ) as refused:
        Identity.unpacked(older, "the file")
    assert refused.value.what == "OLDER_LAYOUT"


def test_the_error_of_a_truncated_log_contains_the_range_and_the_option_to_continue():
    truncation = Truncation("itch.raw", {0: 82_877, 1: 400}, {0: 82_724})
    text = str(truncation.error())
    assert text.startswith("STREAM.LOG_TRUNCATED: topic itch.raw ")
    assert "partition 0: offsets 82724 to 82876." in text
    assert "partition 1" not in text and "--accept-truncation" in text


def test_offsets_beyond_sequence_numbers_are_refused_after_an_early_warning(caplog):
    check_offsets("t", {0: (0, MAX_OFFSET // 2), 1: (0, 5)})
    assert not caplog.messages
    check_offsets("t", {0: (0, 5), 1: (0, MAX_OFFSET + 1)})
    assert "partition 1 of topic t has used 100 %" in caplog.text
    with pytest.raises(StreamError, match=r"partition 1 of topic t .* another name") as refused:
        check_offsets("t", {0: (0, 5), 1: (0, MAX_OFFSET + 2)})
    assert refused.value.what == "OFFSETS_EXHAUSTED"


def test_events_of_attributes_have_no_digest_of_a_specification():
    assert specification_digest(Settings(format="attributes")) == ""
    assert len(specification_digest(Settings())) == 64


def test_the_error_of_a_full_disk_names_the_files_on_it(tmp_path, monkeypatch):
    free_bytes = {str(tmp_path / "c"): 0, str(tmp_path): 5 << 30}

    def usage(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=free_bytes[str(path)])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    (tmp_path / "c").mkdir()
    settings = Settings(checkpoint=str(tmp_path / "c" / "x"), tables=f"file:{tmp_path}/t")
    error = str(disk_full(settings, "No space left on device", str(tmp_path)))
    assert error.startswith(
        f"STREAM.DISK_FULL: no space left on the disk of the checkpoint ({tmp_path}/c/x"
    )
    assert "tables" not in error
    # The error of the write is quoted if the disks cannot be examined.
    remote = Settings(checkpoint="s3a://b/c", tables="catalog.schema")
    assert "quota of b" in str(disk_full(remote, "quota of b", str(tmp_path)))
    assert not Path("s3a:").exists()
