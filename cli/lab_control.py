"""Actions of ``stackcast lab``: starting a lab, printing its state, and sending a session."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer

from stackcast.cli import lab_watch
from stackcast.cli.signals import stop_on_signal
from stackcast.installation import shipped
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.jobs.embedded.feed import feed
from stackcast.lab.fabric.network import read_description
from stackcast.lab.traffic.packets import check_records, open_records
from stackcast.lab.traffic.topic_log import TopicLog
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up import daemon, deployment, service
from stackcast.lab.up.jars import coordinates, spark_jars
from stackcast.udfs.errors import printable

#: Largest number of hosts that are listed by name.
_MAX_LISTED_HOSTS = 20
#: Time between two lines of --watch, in seconds.
_WATCH_SECONDS = 1.0


def services(folder: Path, subscriptions: int, seed: int) -> dict[str, list[str]]:
    """Return the command of the stream that serves a lab.

    Raises:
        typer.BadParameter: spark-submit is not installed.
    """
    home = os.environ.get("SPARK_HOME")
    submit = Path(home) / "bin" / "spark-submit" if home else shutil.which("spark-submit")
    if submit is None:
        raise typer.BadParameter("--ready needs spark-submit, which is not on the path")
    # spark-submit.sh installs Delta and the Kafka connector next to Spark's own jars.
    has_jars = bool(spark_jars("delta-spark_*.jar"))
    packages = [] if has_jars else ["--packages", ",".join(coordinates("spark"))]
    command = [
        *(str(submit), *packages, "--properties-file", str(folder / "lab.conf")),
        *(str(shipped("jobs") / "embedded" / "lab_stream.py"), str(folder)),
        *("--subscriptions", str(subscriptions), "--seed", str(seed)),
    ]
    return {"stream": command}


def start(options: daemon.LabOptions) -> None:
    """Start a lab, and print its addresses and folders."""
    typer.echo("starting the broker and the network ...", err=True)
    state = daemon.up(options, lambda line: typer.echo(f"network: {line}", err=True))
    folder = Path(options.folder)
    typer.echo(addresses_text(state))
    typer.echo(
        f"settings   {folder / 'lab.conf'}\n"
        f"rows       {folder / 'network'}\n"
        f"receipts   {folder / 'receipts'}"
    )


def await_stream(folder: Path, start: float) -> None:
    """Wait until the stream of a lab is ready, and print what to do next.

    If the stream cannot be started, stop the lab.

    Args:
        folder: folder of the lab.
        start: start of the command, by the monotonic clock, in seconds.
    """

    def report(line: str) -> None:
        typer.echo(f"{time.monotonic() - start:5.1f} s  {line}", err=True)

    try:
        daemon.await_services(folder, report)
    except BaseException:
        typer.echo("stopping the lab ...", err=True)
        daemon.down(folder)
        raise
    conf = os.path.relpath(folder / "lab.conf")
    typer.echo(
        f"stream     ready after {time.monotonic() - start:.1f} s; log "
        f"{folder / 'log' / 'stream.log'}\n\n"
        f"Next: stackcast itch publish --generate 20000 --properties-file {conf}\n"
        f"      'stackcast lab status' shows what the hosts received, 'stackcast lab down' stops "
        "the lab.\n"
        "      See docs/tutorials/lab.md for how to add a rule of your own."
    )


def read_status(folder: Path) -> dict[str, Any]:
    """Return the state and the counters of a lab.

    Raises:
        typer.Exit: no lab is up in the folder; a line on standard error reports this.
    """
    state = daemon.status(folder)
    if state is None:
        typer.echo(f"no lab is up in {folder}", err=True)
        raise typer.Exit(1)
    return state


def ended_services(state: dict[str, Any]) -> list[str]:
    """Return the names of the services that have ended on their own."""
    return [name for name, row in state["services"].items() if row["state"] == service.ENDED]


def print_status(state: dict[str, Any], ended: list[str]) -> None:
    """Print addresses, counters and services of a lab.

    Args:
        state: state of the lab.
        ended: names of the services that have ended on their own.
    """
    counters = state["counters"]
    deliveries = [f"{host} {count:,}" for host, count in counters["deliveries"].items() if count]
    drops = [f"{reason} {count:,}" for reason, count in counters["drops"].items()]
    typer.echo(addresses_text(state))
    typer.echo(
        f"frames     {counters['frames_in']:,} in\n"
        f"deliveries {sum(counters['deliveries'].values()):,}"
        f"{': ' if deliveries else ''}{', '.join(deliveries)}\n"
        f"drops      {', '.join(drops) or 'none'}\n"
        f"links      {sum(counters['link_bytes'].values()):,} bytes"
    )
    for name, row in state["services"].items():
        if name in ended:
            typer.echo(str(service.ended(name, row)), err=True)
        else:
            stage = f", {row['stage']}" if row["state"] == service.STARTING else ""
            typer.echo(f"{name:<10} {row['state']}{stage}; log {row['log']}")


def watch(folder: Path, names: list[str], counters: dict[str, Any]) -> None:
    """Print counters every second until Ctrl-C, or until the lab is down.

    Args:
        folder: folder of the lab.
        names: hosts, switches and links.
        counters: first reading of the counters.

    Raises:
        typer.BadParameter: the lab has no object of one of the names.
    """
    for name in names:
        lab_watch.check(name, counters)
    read_at = time.monotonic()
    with stop_on_signal() as stop:
        while not stop.wait(_WATCH_SECONDS) and (state := daemon.status(folder)) is not None:
            before, counters = counters, state["counters"]
            before_at, read_at = read_at, time.monotonic()
            for name in names:
                text = lab_watch.line(name, before, counters, read_at - before_at)
                typer.echo(printable(text))


def send_session(
    folder: Path, file: Path | None, generated: int, speed: str, seed: int, symbols: int
) -> None:
    """Send a session into a lab whose switches match, and print how much was sent.

    Args:
        folder: folder of the lab.
        file: BinaryFILE; None to generate a session.
        generated: number of generated messages.
        speed: ``full``, ``recorded``, or messages per second.
        seed: seed of the generated session.
        symbols: number of stocks in the generated session.

    Raises:
        typer.Exit: no such lab is running; a line on standard error reports this.
    """
    state = daemon.status(folder)
    if state is None or state.get("match") != "network":
        typer.echo(
            f"no lab is up in {folder}, or it was not started with --match network", err=True
        )
        raise typer.Exit(1)
    publisher, endpoint = next(iter(state["ingress"].items()))
    network = read_description(folder / "network.json")
    settings = Settings()
    sink = open_sink(SinkOptions("udp", endpoint=endpoint, window=deployment.WINDOW))
    session = TradingSession(generated, seed, symbols)
    try:
        with (
            stop_on_signal() as stop,
            open_records(file) if file else nullcontext(session) as source,
            TopicLog(state["bootstrap_servers"], settings.topic) as log,
        ):
            records = check_records(iter(source), False)
            host = network.host(publisher)
            result = feed(
                *(settings, host, sink, records, stop, _show_progress),
                topic=log,
                speed=speed,
                seed=seed,
            )
    finally:
        sink.close()
    typer.echo(
        f"{publisher} to {endpoint}: {result.messages:,} messages in {len(result.packets):,} "
        f"packets, {result.seconds:.1f} s"
    )


def _show_progress(messages: int, packets: int) -> None:
    typer.echo(f"{messages:,} messages in {packets:,} packets", err=True)


def addresses_text(state: dict[str, Any]) -> str:
    """Return the addresses of a lab as text."""
    ingress = ", ".join(
        printable(f"{host} at {address}") for host, address in state["ingress"].items()
    )
    hosts = [printable(host) for host in state["hosts"]]
    more = ", ..." if len(hosts) > _MAX_LISTED_HOSTS else ""
    external = "".join(
        f"\n           {printable(host)} at {address}"
        for host, address in state["external"].items()
    )
    return (
        f"broker     {state['bootstrap_servers']}\n"
        f"p4runtime  {state['p4runtime']}  ({len(state['switches'])} switches)\n"
        f"tunnel     {ingress}\n"
        f"hosts      {len(hosts)}: {', '.join(hosts[:_MAX_LISTED_HOSTS])}{more}{external}"
    )
