"""Spark's temporary folders are removed after their application was killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stackcast.jobs.adapters.app import local_folders
from stackcast.jobs.adapters.app.local_folders import MARK, mark, remove_leftovers

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def only_own_marks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    marks: dict[Path, object] = {}
    monkeypatch.setattr(local_folders, "_marks", marks)
    yield
    kill()


def kill() -> None:
    """Release the locks, as a kill does."""
    while local_folders._marks:
        local_folders._marks.popitem()[1].close()


def application(folder: Path, name: str) -> tuple[Path, Path]:
    root, blocks = folder / f"spark-{name}", folder / f"blockmgr-{name}"
    for each in (root / "pyspark-1", blocks / "0a"):
        each.mkdir(parents=True)
        (each / "file").write_text("content")
    mark(root, [blocks])
    return root, blocks


def test_what_a_killed_application_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    leftovers = application(tmp_path, "1")
    unmarked = tmp_path / "spark-of-others", tmp_path / "blockmgr-of-others"
    for folder in unmarked:
        folder.mkdir()
    kill()
    running = application(tmp_path, "2")
    remove_leftovers([tmp_path])
    assert not any(folder.exists() for folder in leftovers)
    for folder in (*running, *unmarked):
        assert folder.is_dir()
    assert (running[0] / "pyspark-1" / "file").read_text() == "content"


def test_a_second_context_of_a_process_adds_its_folder_to_the_mark(tmp_path: Path) -> None:
    root, first = application(tmp_path, "1")
    second = tmp_path / "blockmgr-2"
    second.mkdir()
    mark(root, [second])
    kill()
    remove_leftovers([tmp_path])
    assert not any(folder.exists() for folder in (root, first, second))


def test_a_mark_cannot_name_other_folders(tmp_path: Path) -> None:
    local = tmp_path / "local"
    precious = tmp_path / "precious", local / "precious", tmp_path / "blockmgr-1"
    for folder in precious:
        folder.mkdir(parents=True)
    (local / "blockmgr-2").symlink_to(precious[0])
    root = local / "spark-1"
    root.mkdir()
    names = *precious, local / "blockmgr-2", local / "blockmgr-3" / ".." / "precious", "", ".", "/"
    (root / MARK).write_text("\n".join(map(str, names)))
    remove_leftovers([local])
    assert not root.exists() and all(folder.is_dir() for folder in precious)


def test_folders_of_other_users_and_links_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = application(tmp_path, "1")
    elsewhere = tmp_path / "elsewhere"
    link = elsewhere / "spark-2"
    elsewhere.mkdir()
    link.symlink_to(root)
    kill()
    remove_leftovers([elsewhere])
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    remove_leftovers([tmp_path])
    assert link.is_symlink() and (root / "pyspark-1" / "file").exists()
