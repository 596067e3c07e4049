"""A lab's folder is its own, nothing of an earlier run stays in it, and it is freed last of all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from stackcast.lab.fabric.hosts import external_hosts
from stackcast.lab.up.folder import MARKER, FolderLock
from stackcast.lab.up.lab import Lab
from stackcast.udfs.errors import LabError
from stackcast.udfs.network.topology import fabric

pytestmark = pytest.mark.unit

NETWORK = fabric(pods=1, racks=2, hosts=1, planes=1, spines=1)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def code(failure: pytest.ExceptionInfo[LabError]) -> str:
    return failure.value.code


@pytest.mark.parametrize("name", ["tables/part.parquet", "notes.txt", "lock", "network.json"])
def test_a_folder_of_somebody_elses_is_refused_and_stays_as_it_is(tmp_path: Path, name: str):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(LabError, match="empty folder") as failure, Lab(tmp_path, NETWORK):
        pass
    assert code(failure) == "LAB.NOT_A_LAB"
    assert files(tmp_path) == {name, "thesis.tex"}


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "lab"):
        with pytest.raises(LabError) as failure, Lab(path, NETWORK):
            pass
        assert code(failure) == "LAB.NOT_A_LAB"


@pytest.mark.parametrize("held", [(), ("lock",)], ids=["empty", "of a lab that starts"])
def test_clear_removes_what_a_run_left_and_nothing_else(tmp_path: Path, held: tuple[str, ...]):
    for name in held:
        (tmp_path / name).touch()
    precious = tmp_path.parent / f"{tmp_path.name}-precious"
    precious.mkdir()
    (precious / "kept").touch()
    with Lab(tmp_path, NETWORK):
        pass
    for name in ("tables/t/a", "checkpoint/b", "receipts/h1.mold", "broker/data/c", "log/lab.log"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "report.json").touch()
    (tmp_path / "mine.txt").touch()
    (tmp_path / "network").symlink_to(precious)
    with Lab(tmp_path, NETWORK) as lab:
        lab.clear()
        assert files(tmp_path) == {MARKER, "lock", "log/lab.log", "mine.txt"}
    assert files(precious) == {"kept"}
    with pytest.raises(LabError) as failure:
        lab.clear()  # it is not ours any more
    assert code(failure) == "LAB.FOLDER_NOT_EMPTIED"


class Part:
    """Stands for broker or switches: tells who was stopped, and what was true then."""

    def __init__(self, name: str, log: list[str], lock: FolderLock, action=lambda: None) -> None:
        self.name, self.log, self.lock, self.action = name, log, lock, action

    def stop(self) -> None:
        assert self.lock.holder() == os.getpid()
        self.action()
        self.log.append(self.name)


@pytest.fixture
def parts(tmp_path: Path):
    def make(action):
        lab, log = Lab(tmp_path, NETWORK), []
        lab.__enter__()
        lock = FolderLock(tmp_path)
        lab._switches = Part("switches", log, lock, action)
        lab._broker = Part("broker", log, lock)
        return lab, log, lock

    return make


def test_ctrl_c_does_not_cut_the_end_short(parts):
    before = signal.getsignal(signal.SIGINT)
    lab, log, lock = parts(lambda: os.kill(os.getpid(), signal.SIGINT))
    lab.down()
    assert log == ["switches", "broker"]
    assert lock.holder() is None
    assert signal.getsignal(signal.SIGINT) is before


def test_a_part_that_cannot_be_stopped_does_not_keep_the_others(parts):
    def fail() -> None:
        raise SystemExit("cut short")

    lab, log, lock = parts(fail)
    with pytest.raises(SystemExit):
        lab.down()
    assert log == ["broker"]
    assert lock.holder() is None


@pytest.mark.parametrize("text", ["h3", "h3=", "h3=26400", "=127.0.0.1:1", "h3=x:1", "h3=::1:0"])
def test_an_external_host_is_a_name_and_an_address(text: str):
    assert external_hosts(["h3=127.0.0.1:26400"]) == {"h3": "127.0.0.1:26400"}
    with pytest.raises(LabError, match="HOST=IP:PORT") as failure:
        external_hosts([text])
    assert code(failure) == "LAB.BAD_EXTERNAL_HOST"


def test_an_external_host_is_one_of_the_network(tmp_path: Path):
    with pytest.raises(LabError, match="h99") as failure:
        Lab(tmp_path, NETWORK, external={"h99": "127.0.0.1:1"})
    assert code(failure) == "LAB.UNKNOWN_HOST"
