"""Options of the lab: on the command lines of jobs, and as options of ``stackcast lab up``."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import pytest
import typer.main

from stackcast.cli.main import app
from stackcast.jobs import attribute_stream, console
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.embedded.kinds import SensorRun, SessionRun
from stackcast.jobs.embedded.lab import check_publishers
from stackcast.jobs.embedded.options import DEFAULT, RunOptions, add_arguments
from stackcast.lab.fabric.topologies import load_network
from stackcast.lab.up.deployment import ingress_rows
from stackcast.udfs.errors import SettingsError

pytestmark = pytest.mark.unit


def read(*arguments: str) -> RunOptions:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return RunOptions.of(parser.parse_args(arguments))


def test_each_option_is_an_argument_and_none_is_the_default(tmp_path: Path):
    assert read() == DEFAULT and DEFAULT.changed() == {}
    session = tmp_path / "session"
    session.touch()
    values = {"seed": 7, "pods": 7, "hosts": 7, "symbols": 7, "speed": "2500.5", "network": "line"}
    values["session"] = str(session)
    for option in fields(RunOptions):
        value = values.get(option.name, 7 if "int" in str(option.type) else "x")
        options = read(f"--{option.name}", str(value))
        assert options.changed() == {option.name: value}
    assert read("--messages", "1_000_000").messages == 1_000_000


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("messages", "many", "not a whole number of 1 or more"),
        ("messages", "", "not a whole number of 1 or more"),
        ("messages", "1.5", "not a whole number of 1 or more"),
        ("messages", "0", "not a whole number of 1 or more"),
        ("messages", "9" * 30, "not a whole number from 1 to 9223372036854775807"),
        ("subscriptions", "-1", "not a whole number of 0 or more"),
        ("symbols", "3", "not a whole number from 4 to 10000"),
        ("speed", "fast", "not full, recorded or a number of messages per second"),
        ("speed", "0", "not full, recorded or a number of messages per second"),
        ("speed", "..", "not full, recorded or a number of messages per second"),
        ("network", " ", "a value is missing"),
        ("session", "", "a value is missing"),
        ("session", "missing.bin", "there is no file 'missing.bin'"),
    ],
)
def test_an_invalid_value_is_refused_with_the_name_of_the_option(
    name: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        read(f"--{name}={value}")
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"argument --{name}: " in error and words in error


def test_the_speed_of_sensors_cannot_be_that_of_a_recording(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        attribute_stream.main(["--speed", "recorded"])
    assert ended.value.code == 2
    assert "argument --speed: events of sensors" in capsys.readouterr().err


def test_a_job_may_describe_an_option_in_its_own_words():
    parser = argparse.ArgumentParser()
    add_arguments(parser, without=("pods",), texts={"seed": "seed of the city"})
    text = " ".join(parser.format_help().split())
    assert (
        "seed of the city (default: 1)" in text and "generated subscriptions and mess" not in text
    )
    assert "number of racks per pod" in text and "--pods" not in text


def test_defaults_depend_on_the_kind_of_the_run():
    session, sensors = SessionRun().options, SensorRun().options
    assert (session.messages, session.subscriptions) == (100_000, 1000)
    assert (sensors.messages, sensors.subscriptions) == (20_000, 200)
    assert (session.speed, sensors.speed) == ("10000", "2000")
    assert SessionRun(RunOptions(speed="full")).options.speed == "full"
    assert SensorRun(RunOptions(messages=5)).options.messages == 5


def test_a_fabric_has_two_hosts_on_each_rack_and_another_network_one_on_each_node():
    options = DEFAULT.network_options("hops", 16)
    assert options.name == "" and options.pods * options.racks * options.hosts == 16
    assert options.hosts_per_switch == 1 and options.encoding == "hops"
    line = RunOptions(network="line", hosts=3).network_options("hops", 16)
    assert (line.name, line.hosts_per_switch) == ("line", 3)
    assert RunOptions(network="fabric").network_options("hops", 16) == options


def test_the_folder_is_in_the_folder_of_generated_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STACKCAST_VAR", "/data")
    assert DEFAULT.path == Path("/data/lab")
    assert RunOptions(folder="var/lab").path == Path("var/lab").absolute()


def test_options_are_refused_where_no_lab_runs(capsys: pytest.CaptureFixture[str]):
    DEFAULT.require_none("have no effect")
    with pytest.raises(SettingsError, match=r"BAD_VALUE.*\(--pods, --speed\) have no effect"):
        RunOptions(pods=3, speed="9").require_none("have no effect")
    with pytest.raises(SystemExit):
        console.main(["--speed", "9"])
    assert "(--speed) need --demo" in capsys.readouterr().err


def test_each_of_several_publishers_of_a_lab_has_a_row_with_its_tunnel():
    assert ingress_rows({"feed1": "127.0.0.1:1"}) == {}
    rows = ingress_rows({"feed1": "127.0.0.1:1", "feed2": "127.0.0.1:2"})["ingresses"]
    transports = {(row["place"], row["publisher"]): row["transport"] for row in rows}
    assert transports == {(None, "feed1"): "127.0.0.1:1", (None, "feed2"): "127.0.0.1:2"}


@pytest.mark.parametrize("command", ["up", "feed"])
def test_the_command_has_the_same_options_with_the_same_limits(
    command: str, capsys: pytest.CaptureFixture[str]
):
    group = typer.main.get_command(app).commands["lab"]  # type: ignore[attr-defined]
    parameters = {each.name: each for each in group.commands[command].params}
    common = [each for each in fields(RunOptions) if each.name in parameters]
    assert len(common) == {"up": 10, "feed": 4}[command]
    for option in common:
        if option.default is not None:
            assert parameters[option.name].default == option.default
        if option.metadata["limits"]:
            too_low = option.metadata["limits"]["min"] - 1
            with pytest.raises(SystemExit) as ended:
                app(["lab", command, f"--{option.name}={too_low}"])
            assert ended.value.code == 2 and f"--{option.name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option", "message"),
    [
        ("up", "--network=", "a value is missing"),
        ("up", "--network= ", "a value is missing"),
        ("up", "--folder=", "a value is missing"),
        ("status", "--folder=", "a value is missing"),
        (
            "feed --generate 5",
            "--speed=fast",
            "not full, recorded or a number of messages per second",
        ),
        ("feed --generate 5", "--speed=0", "not full, recorded or a number of messages per second"),
    ],
)
def test_the_command_refuses_a_text_that_jobs_refuse_before_it_does_anything(
    words: str, option: str, message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as ended:
        app(["lab", *words.split(), option])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and message in error
    assert option.partition("=")[0] in error


def test_a_publisher_that_the_lab_lacks_is_refused_with_those_that_it_has():
    network = load_network(RunOptions(publishers=2).network_options("virtual_trees", 16))
    for text in ("feed1", "feed2", "feed2, feed1", "*"):
        check_publishers(Settings(publisher=text), network)
    for text, subject in [
        ("feed9", "no publisher feed9"),
        ("feed1,h1,feed3", "no publishers h1, feed3"),
    ]:
        with pytest.raises(SettingsError) as caught:
            check_publishers(Settings(publisher=text), network)
        assert caught.value.code == "SETTINGS.BAD_VALUE"
        assert f"is {text!r}, but the embedded lab has {subject}: use" in caught.value.message
        assert ": use feed1, feed2, or start" in caught.value.message
