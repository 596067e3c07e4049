"""Two workers that start without compiled kernels share out the compiling; later ones need not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from stackcast.udfs import columns
from stackcast.udfs.delivery import compiled_mark, kernel_cache

pytestmark = pytest.mark.unit


@pytest.fixture
def compiled(monkeypatch):
    """What was compiled, in order; nothing takes any time."""
    parts: list[str] = []
    monkeypatch.setattr(kernel_cache, "warm_up", lambda: parts.append("encoder"))
    monkeypatch.setattr(kernel_cache, "_packets", lambda: parts.append("packets"))
    monkeypatch.setattr(columns, "warm_up", lambda: parts.append("loaded"))
    return parts


def start_of(number):
    """A worker's start, which is told its number by the row that it gets."""
    row = pa.record_batch({"id": pa.array([number], pa.int64())})
    assert list(columns.warmed_up(iter([row]))) == [row]


def test_neighbors_begin_from_other_ends(monkeypatch, tmp_path, compiled):
    for number in (0, 1):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / str(number)))
        (tmp_path / str(number)).mkdir()
        start_of(number)
    assert compiled == ["encoder", "packets", "loaded", "packets", "encoder", "loaded"]


def test_a_worker_that_comes_later_loads_what_others_compiled(monkeypatch, tmp_path, compiled):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not compiled_mark.is_set()
    start_of(0)
    assert compiled_mark.is_set()
    compiled.clear()
    start_of(1)
    assert compiled == ["loaded"]


def test_kernels_without_a_folder_of_their_own_lie_beside_their_code(monkeypatch, compiled):
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    start_of(0)
    assert compiled == ["loaded"]
    compiled_mark.put()
