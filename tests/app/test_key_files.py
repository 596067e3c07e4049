"""A file of keys is read by nobody but who should, and what is wrong with it is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stackcast.cli.main import app
from stackcast.cli.receive.key_file import KeyFile
from stackcast.jobs.adapters.app.key_files import keys_in, signing_key
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.udfs.errors import SettingsError
from stackcast.udfs.messages.summaries import Summary
from stackcast.udfs.messages.summary_keys import HostKeys, SummaryKey

pytestmark = pytest.mark.unit

FIRST, SECOND = SummaryKey(1, b"\xab" * 32), SummaryKey(2, b"\xcd" * 32)
SUMMARY = Summary(b"8ZY63T0000", 0, 1, 0, 0, 0).pack()


def written(path: Path, *keys: SummaryKey, mode: int = 0o600) -> Path:
    path.touch(0o600)
    path.write_text("".join(f"{key.id} {key.secret.hex()}\n" for key in keys))
    path.chmod(mode)
    return path


def test_the_first_key_signs(tmp_path: Path):
    path = written(tmp_path / "keys", FIRST, SECOND)
    assert signing_key(Settings(summary_keys=str(path))) == FIRST
    assert signing_key(Settings()) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int):
    path = written(tmp_path / "keys", FIRST, mode=mode)
    with pytest.raises(SettingsError, match=f"SETTINGS.KEYS_NOT_PRIVATE: .*{mode:04o}"):
        keys_in(path)


def test_a_group_may_read_a_file_of_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written(tmp_path / "keys", FIRST, mode=0o640)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert keys_in(path) == [FIRST]
    path.chmod(0o644)
    with pytest.raises(SettingsError, match=r"SETTINGS\.KEYS_NOT_PRIVATE"):
        keys_in(path)


def test_what_is_wrong_is_said_with_setting_file_and_line(tmp_path: Path):
    path = written(tmp_path / "keys", FIRST)
    with path.open("a") as file:
        file.write("2 secret-that-nobody-may-see\n")
    with pytest.raises(SettingsError) as refused:
        signing_key(Settings(summary_keys=str(path)))
    told = str(refused.value)
    assert told.startswith(f"SETTINGS.BAD_KEYS: spark.stackcast.summary.keys: {path}, line 2: ")
    assert "secret" not in told and "abab" not in told
    for content in (None, b"1 \xff\n"):
        path.unlink(missing_ok=True)
        if content is not None:
            written(path).write_bytes(content)
        with pytest.raises(SettingsError, match=r"SETTINGS\.BAD_KEYS: .*keys"):
            keys_in(path)


def test_a_host_is_given_its_own_keys_alone(tmp_path: Path):
    path = written(tmp_path / "keys", FIRST, SECOND)
    ran = CliRunner().invoke(app, ["host-key", str(path), "h3"])
    assert ran.exit_code == 0
    own = tmp_path / "h3.keys"
    own.touch(0o600)
    own.write_text(ran.output)
    keys = keys_in(own)
    assert keys == [FIRST.for_host("h3"), SECOND.for_host("h3")]
    for master in (FIRST, SECOND):
        assert master.secret.hex() not in ran.output
        assert HostKeys(keys).proves(master.for_host("h3").sign(SUMMARY))
        assert not HostKeys(keys).proves(master.for_host("h4").sign(SUMMARY))


def test_keys_change_while_they_are_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = written(tmp_path / "h3.keys", FIRST)
    it = KeyFile(path)
    assert it.keys(1.0).proves(FIRST.sign(SUMMARY)) and not it.keys(1.0).proves(
        SECOND.sign(SUMMARY)
    )
    written(path, FIRST, SECOND)
    assert not it.keys(1.5).proves(SECOND.sign(SUMMARY))
    assert it.keys(2.0).proves(SECOND.sign(SUMMARY)) and it.keys(2.0).proves(FIRST.sign(SUMMARY))
    # What has become wrong changes nothing, and is said once.
    for change in (lambda: path.write_text("1 2 3\n"), lambda: path.chmod(0o644), path.unlink):
        capsys.readouterr()
        change()
        now = it._next
        assert it.keys(now).proves(SECOND.sign(SUMMARY)) and it.keys(now + 1)
        assert capsys.readouterr().err.count("stay in use") == 1
    written(path, SECOND)
    now = it._next
    assert not it.keys(now).proves(FIRST.sign(SUMMARY)) and it.keys(now).proves(
        SECOND.sign(SUMMARY)
    )
