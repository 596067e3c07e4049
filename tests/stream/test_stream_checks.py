"""What a start says of a topic that lacks records, of another deployment, and of full disks."""

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

HELD = Identity(
    topic="itch.raw",
    cluster="C1",
    topic_id="T1",
    generation=0,
    format="itch",
    specification="abc",
    publisher="feed1",
    tables={"links": "L1", "hosts": "H1"},
)
ONWARD = "set spark.stackcast.checkpoint to a new folder"

offsets = st.integers(0, 50)
spans = st.dictionaries(st.integers(0, 3), st.tuples(offsets, offsets).map(sorted).map(tuple))


@given(st.dictionaries(st.integers(0, 3), offsets), spans)
def test_nothing_is_skipped_and_what_is_told_can_be_done(wanted, spans):
    """Either each next record is there, or the error says what to set so that it is."""
    there = all(spans[p][0] <= o for p, o in wanted.items() if p in spans)
    there &= all(first == 0 for p, (first, _) in spans.items() if p not in wanted)
    if there:
        check_records("t", wanted, spans, new=False)
        return
    with pytest.raises(StreamError) as refused:
        check_records("t", wanted, spans, new=False)
    assert refused.value.what == "RECORDS_GONE"
    (text,) = re.findall(r"startingOffsets to (\{.*\}\})", str(refused.value))
    told = {int(p): o for p, o in json.loads(text)["t"].items()}
    assert told.keys() == spans.keys() | wanted.keys()
    check_records("t", told, spans, new=True)
    lost = sum(max(0, first - wanted.get(p, 0)) for p, (first, _) in spans.items())
    assert f"no longer has {lost} records" in str(refused.value)
    assert all(told[p] == max(spans[p][0], wanted.get(p, 0)) for p in spans)


def test_a_new_checkpoint_may_begin_at_start_or_end_but_not_at_what_is_gone():
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
def test_each_difference_has_a_code_and_says_what_to_set(change, code):
    now = dataclasses.replace(HELD, **change)
    with pytest.raises(StreamError, match=rf"^STREAM\.{code}: .*spark\.stackcast\.") as refused:
        HELD.check(now, ONWARD)
    assert "\n" not in str(refused.value)
    # What is on record decides, so the same differs the other way round, too.
    with pytest.raises(StreamError, match=code):
        now.check(HELD, ONWARD)


def test_what_a_broker_does_not_tell_is_no_difference():
    silent = dataclasses.replace(HELD, cluster="", topic_id="")
    silent.check(HELD, ONWARD)
    HELD.check(silent, ONWARD)


@given(
    st.builds(
        Identity,
        *[st.text()] * 3,
        st.integers(0),
        *[st.text()] * 3,
        tables=st.dictionaries(st.text(), st.text()),
    )
)
def test_an_identity_is_read_as_it_was_written(identity):
    assert Identity.unpacked(identity.packed(), "f") == identity


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"layout": 4}', b"\xff"])
def test_a_damaged_identity_names_its_file(content):
    with pytest.raises(StreamError, match="CHECKPOINT_UNREADABLE: the file"):
        Identity.unpacked(content, "the file")


def test_the_checkpoint_of_a_newer_version_is_refused_and_the_error_says_what_to_do():
    newer = HELD.packed().replace(b'"layout": 4', b'"layout": 5')
    with pytest.raises(StreamError, match=r"the file: .* layout 5, .* up to 4: use") as refused:
        Identity.unpacked(newer, "the file")
    assert refused.value.what == "NEWER_LAYOUT"


def test_the_checkpoint_of_an_older_version_is_refused_and_the_error_says_what_to_do():
    older = HELD.packed().replace(b'"layout": 4', b'"layout": 3')
    with pytest.raises(
        StreamError, match=r"the file: .* layout 3, .* requires layout 4: set"
    ) as refused:
        Identity.unpacked(older, "the file")
    assert refused.value.what == "OLDER_LAYOUT"


def test_the_error_of_a_truncated_log_gives_the_range_and_the_option_to_go_on():
    truncation = Truncation("itch.raw", {0: 82_877, 1: 400}, {0: 82_724})
    text = str(truncation.error())
    assert text.startswith("STREAM.LOG_TRUNCATED: topic itch.raw ")
    assert "partition 0: offsets 82724 to 82876." in text
    assert "partition 1" not in text and "--accept-truncation" in text


def test_offsets_that_numbers_do_not_hold_are_refused_and_told_long_before(caplog):
    check_offsets("t", {0: (0, MAX_OFFSET // 2), 1: (0, 5)})
    assert not caplog.messages
    check_offsets("t", {0: (0, 5), 1: (0, MAX_OFFSET + 1)})
    assert "partition 1 of topic t has used 100 %" in caplog.text
    with pytest.raises(StreamError, match=r"partition 1 of topic t .* another name") as refused:
        check_offsets("t", {0: (0, 5), 1: (0, MAX_OFFSET + 2)})
    assert refused.value.what == "OFFSETS_EXHAUSTED"


def test_the_specification_of_attributes_is_their_table():
    assert specification_digest(Settings(format="attributes")) == ""
    assert len(specification_digest(Settings())) == 64


def test_a_full_disk_is_named_with_what_it_is_for(tmp_path, monkeypatch):
    left = {str(tmp_path / "c"): 0, str(tmp_path): 5 << 30}

    def usage(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=left[str(path)])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    (tmp_path / "c").mkdir()
    settings = Settings(checkpoint=str(tmp_path / "c" / "x"), tables=f"file:{tmp_path}/t")
    told = str(disk_full(settings, "No space left on device", str(tmp_path)))
    assert told.startswith(
        f"STREAM.DISK_FULL: no space left on the disk of the checkpoint ({tmp_path}/c/x"
    )
    assert "tables" not in told
    # Elsewhere nobody can look: then the words of who failed are told.
    away = Settings(checkpoint="s3a://b/c", tables="catalog.schema")
    assert "quota of b" in str(disk_full(away, "quota of b", str(tmp_path)))
    assert not Path("s3a:").exists()
