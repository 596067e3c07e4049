"""All implementations of checkpoint folders behave the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from memory_files import MemoryFolder

from stackcast.jobs.adapters.checkpoint.files import BatchFiles, Folder
from stackcast.jobs.adapters.checkpoint.hadoop_files import HadoopFolder, open_folder
from stackcast.jobs.adapters.checkpoint.local_files import LocalFolder
from stackcast.udfs.errors import StreamError

MakeFolder = Callable[[], Folder]

UNIT = pytest.mark.unit
INTEGRATION = pytest.mark.integration
CONTENT = bytes(range(256)) * 40


FILE_SYSTEMS = [
    pytest.param("local", marks=UNIT),
    pytest.param("hadoop", marks=INTEGRATION),
]


@pytest.fixture(params=[pytest.param("memory", marks=UNIT), *FILE_SYSTEMS], scope="module")
def make_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MakeFolder:
    """Returns a function that returns a new folder, which does not exist yet."""
    parent, numbers = tmp_path_factory.mktemp("folders") / "parent", count()
    if request.param == "memory":
        return MemoryFolder
    if request.param == "local":
        return lambda: LocalFolder(parent / str(next(numbers)))
    spark = request.getfixturevalue("spark")

    def hadoop() -> HadoopFolder:
        path = spark._jvm.org.apache.hadoop.fs.Path(str(parent / str(next(numbers))))
        files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        return HadoopFolder(spark._jvm, files, path)

    return hadoop


def test_a_folder_that_does_not_exist_is_empty(make_folder: MakeFolder) -> None:
    folder = make_folder()
    assert folder.read("1") is None
    assert folder.names() == []
    folder.remove("1")
    assert folder.folder("sources/0").read("0") is None


def test_a_file_is_written_once_and_replaced_only_on_request(make_folder: MakeFolder) -> None:
    folder = make_folder()
    assert folder.write("1", CONTENT)
    assert not folder.write("1", b"other")
    assert folder.read("1") == CONTENT
    folder.replace("1", b"other")
    assert folder.read("1") == b"other"
    folder.replace("2", b"new")
    assert sorted(folder.names()) == ["1", "2"]
    folder.remove("1")
    assert folder.write("1", b"again")
    assert folder.read("1") == b"again"


def test_a_folder_inside_a_folder_has_its_own_files(make_folder: MakeFolder) -> None:
    folder = make_folder()
    assert folder.folder("sources/0").write("0", b"start")
    assert folder.folder("sources").folder("0").read("0") == b"start"
    assert folder.read("0") is None
    assert folder.folder("sources/0").path("0").startswith(folder.path())
    assert folder.folder("sources/0").path("0").endswith("/sources/0/0")
    folder.folder("sources/0").sync("0")


NAMES = st.sampled_from(["0", "1", "2.json"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "replace", "remove"]), NAMES, st.binary(max_size=600)),
    max_size=12,
)


@examples(60)
@given(STEPS)
def test_any_changes_have_the_effect_of_changes_of_a_dictionary(
    make_folder: MakeFolder, steps: list[tuple[str, str, bytes]]
) -> None:
    folder, expected = make_folder(), dict[str, bytes]()
    for action, name, content in steps:
        if action == "write":
            assert folder.write(name, content) == (name not in expected)
            expected.setdefault(name, content)
        elif action == "replace":
            folder.replace(name, content)
            expected[name] = content
        else:
            folder.remove(name)
            expected.pop(name, None)
        assert {name: folder.read(name) for name in folder.names()} == expected


def test_only_the_newest_batches_keep_their_files(make_folder: MakeFolder) -> None:
    folder = make_folder()
    files = BatchFiles(folder, ".json", retained=3)
    assert files.newest() is None
    for batch in range(12):
        assert files.write(batch, str(batch).encode())
    files.replace(12, b"12")
    folder.write("metadata", b"")
    assert files.batches() == [10, 11, 12]
    assert files.newest() == 12
    assert files.read(11) == b"11"
    assert not files.write(11, b"other")


@UNIT
def test_a_local_folder_checks_the_checksum_of_hadoop(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.write("1.json", b"one")
    (tmp_path / ".1.json.crc").write_bytes(b"old")
    with pytest.raises(StreamError, match=r"CHECKPOINT_UNREADABLE: .*1\.json"):
        folder.read("1.json")
    # Hadoop would compare the checksum with the new file.
    folder.replace("1.json", b"two")
    assert folder.read("1.json") == b"two"
    assert not (tmp_path / ".1.json.crc").exists()


@INTEGRATION
def test_local_folders_and_hadoop_read_the_files_of_each_other(spark, tmp_path: Path) -> None:
    local = open_folder(spark, str(tmp_path))
    assert isinstance(local, LocalFolder)
    path = spark._jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}")
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    hadoop = HadoopFolder(spark._jvm, files, path)
    assert hadoop.write("1", CONTENT)
    assert local.read("1") == CONTENT
    local.replace("1", b"short")
    assert hadoop.read("1") == b"short"


@pytest.mark.parametrize("make_folder", FILE_SYSTEMS, indirect=True)
def test_a_refused_change_is_an_os_error(make_folder: MakeFolder) -> None:
    folder = make_folder()
    folder.write("0", b"a file instead of a folder")
    for change in (folder.folder("0").write, folder.folder("0").replace):
        with pytest.raises(OSError, match="parent"):
            change("1", b"")


@UNIT
def test_a_power_failure_loses_what_is_not_on_the_disk() -> None:
    folder = MemoryFolder()
    folder.write("0", b"old")
    folder.write_unsynced("1", b"lost")
    folder.write_unsynced("2", b"synced")
    folder.sync("2")
    folder.remove("0")
    folder.lose_power()
    assert {name: folder.read(name) for name in folder.names()} == {"0": b"old", "2": b"synced"}
    folder.remove("0")
    folder.write("3", b"new")
    folder.lose_power()
    assert sorted(folder.names()) == ["2", "3"]
