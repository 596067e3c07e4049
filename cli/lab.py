"""``stackcast lab``: a broker and a network of switches and hosts on this machine."""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stackcast.cli import lab_watch
from stackcast.cli.lab_options import lab_option
from stackcast.cli.signals import stop_on_signal
from stackcast.installation import shipped, var_folder
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.jobs.adapters.wire import SinkOptions, open_sink
from stackcast.jobs.embedded.feed import feed
from stackcast.jobs.embedded.options import DEFAULT, RunOptions
from stackcast.lab.fabric.hosts import external_hosts
from stackcast.lab.fabric.network import read_description
from stackcast.lab.traffic.packets import check_records, open_records
from stackcast.lab.traffic.topic_log import TopicLog
from stackcast.lab.traffic.trading_session import TradingSession
from stackcast.lab.up import daemon, deployment, service
from stackcast.lab.up.jars import coordinates, fetch_broker, spark_jars
from stackcast.udfs.errors import printable
from stackcast.udfs.network.encodings import ENCODINGS

app = typer.Typer(
    no_args_is_help=True,
    help="Run broker, switches and hosts of the lab in the background.",
)

_SHOWN_HOSTS = 20
#: From one look of --watch to the next.
_LOOK_S = 1.0

Folder = Annotated[str | None, typer.Option("--folder", **lab_option("folder"))]


@app.command()
def up(
    *,
    folder: Folder = None,
    network: Annotated[
        str | None,
        typer.Option("--network", **lab_option("network")),
    ] = None,
    pods: Annotated[int, typer.Option("--pods", **lab_option("pods"))] = DEFAULT.pods,
    racks: Annotated[int, typer.Option("--racks", **lab_option("racks"))] = DEFAULT.racks,
    hosts: Annotated[int | None, typer.Option("--hosts", **lab_option("hosts"))] = None,
    planes: Annotated[int, typer.Option("--planes", **lab_option("planes"))] = DEFAULT.planes,
    spines: Annotated[int, typer.Option("--spines", **lab_option("spines"))] = DEFAULT.spines,
    publishers: Annotated[
        int, typer.Option("--publishers", **lab_option("publishers"))
    ] = DEFAULT.publishers,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of partitions of the topics.")
    ] = 2,
    subscriptions: Annotated[
        int,
        typer.Option(
            "--subscriptions", **lab_option("subscriptions", "number of generated subscriptions")
        ),
    ] = daemon.LabOptions.subscriptions,
    seed: Annotated[
        int, typer.Option("--seed", **lab_option("seed", "seed of the generated subscriptions"))
    ] = DEFAULT.seed,
    match: Annotated[
        Literal["spark", "network"],
        typer.Option(
            "--match", help="Match events in the stream (spark) or in the switches (network)."
        ),
    ] = "spark",
    encoding: Annotated[
        str, typer.Option("--encoding", help=f"Encoding of header stacks: {', '.join(ENCODINGS)}.")
    ] = "virtual_trees",
    label_bits: Annotated[
        Literal["16", "32"],
        typer.Option(
            "--label-bits",
            help="Bits of a label; 32 for over 16,383 directed links, 255 ports or 255 switches.",
        ),
    ] = "16",
    loss: Annotated[
        float, typer.Option("--loss", min=0, max=1, help="Share of frames that each link loses.")
    ] = 0.0,
    external_host: Annotated[
        list[str] | None,
        typer.Option(
            "--external-host",
            metavar="HOST=IP:PORT",
            help="Send the datagrams of this host to another program; may be repeated.",
        ),
    ] = None,
    ready: Annotated[
        bool,
        typer.Option(
            "--ready",
            help="Also fill the tables, write the switches and start the stream, and wait until "
            "the stream is ready.",
        ),
    ] = False,
) -> None:
    """Start the broker and the network, which run until 'stackcast lab down'.

    With --ready, the stream runs as well, and switches and rules follow edits of the tables.
    """
    began = time.monotonic()
    if encoding not in ENCODINGS:
        raise typer.BadParameter(f"{encoding!r} is none of {', '.join(ENCODINGS)}")
    asked = RunOptions(
        folder=str(_folder(folder)),
        network=network,
        pods=pods,
        racks=racks,
        hosts=hosts,
        planes=planes,
        spines=spines,
        publishers=publishers,
    )
    where = asked.path
    options = daemon.LabOptions(
        folder=str(where),
        network=asked.network_options(encoding, int(label_bits)),
        partitions=max(partitions, publishers),
        subscriptions=subscriptions,
        seed=seed,
        external=external_hosts(external_host or ()),
        match=match,
        loss=loss,
        services={"stream": _stream(where, subscriptions, seed)} if ready else {},
    )
    typer.echo("bringing up the broker and the network ...", err=True)
    state = daemon.up(options, _show_left_out)
    typer.echo(_addresses(state))
    typer.echo(
        f"settings   {where / 'lab.conf'}\n"
        f"rows       {where / 'network'}\n"
        f"receipts   {where / 'receipts'}"
    )
    if ready:
        _await_stream(where, began)


def _stream(folder: Path, subscriptions: int, seed: int) -> list[str]:
    """Return the command of the stream that serves a lab."""
    home = os.environ.get("SPARK_HOME")
    submit = Path(home) / "bin" / "spark-submit" if home else shutil.which("spark-submit")
    if submit is None:
        raise typer.BadParameter("--ready needs spark-submit, which is not on the path")
    # spark-submit.sh installs Delta and the Kafka connector beside Spark's own jars.
    missing = (
        [] if spark_jars("delta-spark_*.jar") else ["--packages", ",".join(coordinates("spark"))]
    )
    return [
        *(str(submit), *missing, "--properties-file", str(folder / "lab.conf")),
        *(str(shipped("jobs") / "embedded" / "lab_stream.py"), str(folder)),
        *("--subscriptions", str(subscriptions), "--seed", str(seed)),
    ]


def _await_stream(folder: Path, began: float) -> None:
    """Wait until the stream of a lab is ready, and print what to do next.

    If it cannot be started, the lab is taken down.
    """

    def report(line: str) -> None:
        typer.echo(f"{time.monotonic() - began:5.1f} s  {line}", err=True)

    try:
        daemon.await_services(folder, report)
    except BaseException:
        typer.echo("taking the lab down ...", err=True)
        daemon.down(folder)
        raise
    conf = os.path.relpath(folder / "lab.conf")
    typer.echo(
        f"stream     ready after {time.monotonic() - began:.1f} s; log "
        f"{folder / 'log' / 'stream.log'}\n\n"
        f"Next: stackcast itch publish --generate 20000 --properties-file {conf}\n"
        f"      stackcast lab status shows what hosts got; stackcast lab down ends all of it.\n"
        "      docs/tutorials/lab.md puts a rule of your own live on this lab."
    )


def _show_left_out(line: str) -> None:
    typer.echo(f"network: {line}", err=True)


@app.command()
def status(
    folder: Folder = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON object.")
    ] = False,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            "--watch",
            metavar="NAME",
            help="Print the counters of a host, a switch, or a link (FROM,TO) each second, until "
            "Ctrl-C; may be repeated.",
        ),
    ] = None,
) -> None:
    """Print addresses and counters of the running lab.

    The exit code is 1 if no lab is up, or if its stream has ended by itself.
    """
    where = _folder(folder)
    state = daemon.status(where)
    if state is None:
        typer.echo(f"no lab is up in {where}", err=True)
        raise typer.Exit(1)
    if watch:
        _watch(where, watch, state["counters"])
        return
    broken = [name for name, each in state["services"].items() if each["state"] == service.ENDED]
    if as_json:
        typer.echo(json.dumps(state))
        raise typer.Exit(int(bool(broken)))
    counters = state["counters"]
    deliveries = [f"{host} {count:,}" for host, count in counters["deliveries"].items() if count]
    drops = [f"{reason} {count:,}" for reason, count in counters["drops"].items()]
    typer.echo(_addresses(state))
    typer.echo(
        f"frames     {counters['frames_in']:,} in\n"
        f"deliveries {sum(counters['deliveries'].values()):,}"
        f"{': ' if deliveries else ''}{', '.join(deliveries)}\n"
        f"drops      {', '.join(drops) or 'none'}\n"
        f"links      {sum(counters['link_bytes'].values()):,} bytes"
    )
    for name, each in state["services"].items():
        if name in broken:
            typer.echo(str(service.ended(name, each)), err=True)
        else:
            step = f", {each['stage']}" if each["state"] == service.STARTING else ""
            typer.echo(f"{name:<10} {each['state']}{step}; log {each['log']}")
    raise typer.Exit(int(bool(broken)))


def _watch(folder: Path, names: list[str], counters: dict[str, Any]) -> None:
    """Until Ctrl-C, or until the lab is down."""
    for name in names:
        lab_watch.check(name, counters)
    looked = time.monotonic()
    with stop_on_signal() as stop:
        while not stop.wait(_LOOK_S) and (state := daemon.status(folder)) is not None:
            before, counters = counters, state["counters"]
            since, looked = looked, time.monotonic()
            for name in names:
                typer.echo(printable(lab_watch.line(name, before, counters, looked - since)))


@app.command("feed")
def feed_command(
    file: Annotated[Path | None, typer.Argument(help="BinaryFILE to send, .gz or not.")] = None,
    *,
    folder: Folder = None,
    generated: Annotated[
        int,
        typer.Option(
            "--generate", min=0, help="Send a generated session with this number of messages."
        ),
    ] = 0,
    speed: Annotated[
        str,
        typer.Option(
            "--speed",
            **lab_option(
                "speed",
                "full (as fast as possible), recorded (by timestamps), or messages per second",
            ),
        ),
    ] = "full",
    seed: Annotated[
        int, typer.Option("--seed", **lab_option("seed", "seed of the generated session"))
    ] = DEFAULT.seed,
    symbols: Annotated[int, typer.Option("--symbols", **lab_option("symbols"))] = DEFAULT.symbols,
) -> None:
    """Send all packets of a session to the publisher's switch of a lab whose switches match.

    Each packet is first written to the topic of the lab's jobs, whose offset gives its sequence
    number. The lab must run with --match network. Ctrl-C ends the command.
    """
    if (file is None) == (generated == 0):
        raise typer.BadParameter("give a file or --generate N, and not both")
    where = _folder(folder)
    state = daemon.status(where)
    if state is None or state.get("match") != "network":
        typer.echo(f"no lab is up in {where} that was started with --match network", err=True)
        raise typer.Exit(1)
    publisher, endpoint = next(iter(state["ingress"].items()))
    network = read_description(where / "network.json")
    settings = Settings()
    sink = open_sink(SinkOptions("udp", endpoint=endpoint, window=deployment.WINDOW))
    session = TradingSession(generated, seed, symbols)
    try:
        with (
            stop_on_signal() as stop,
            open_records(file) if file else nullcontext(session) as source,
            TopicLog(state["bootstrap_servers"], settings.topic) as log,
        ):
            checked = check_records(iter(source), False)
            host = network.host(publisher)
            fed = feed(
                *(settings, host, sink, checked, stop, _show_fed),
                topic=log,
                speed=speed,
                seed=seed,
            )
    finally:
        sink.close()
    typer.echo(
        f"{publisher} by {endpoint}: {fed.messages:,} messages in {len(fed.packets):,} packets, "
        f"{fed.seconds:.1f} s"
    )


def _show_fed(messages: int, packets: int) -> None:
    typer.echo(f"{messages:,} messages in {packets:,} packets", err=True)


@app.command()
def fetch() -> None:
    """Fetch the jars of the lab's Kafka broker into var/jars/broker, if they are missing.

    Ivy fetches them from Maven Central, unless the settings of Ivy on this machine name another
    repository. Each file must have the hash that Stackcast lists.
    """
    folder = var_folder().absolute() / "jars" / "broker"
    count = fetch_broker(folder, lambda name: typer.echo(name, err=True))
    typer.echo(f"{count} jars of the broker are in {folder}")


@app.command()
def down(folder: Folder = None) -> None:
    """Stop the lab, and wait until all its processes have ended."""
    where = _folder(folder)
    typer.echo("the lab is down" if daemon.down(where) else f"no lab is up in {where}")


def _folder(folder: str | None) -> Path:
    return RunOptions(folder=folder).path


def _addresses(state: dict[str, Any]) -> str:
    ingress = ", ".join(
        printable(f"{host} by {address}") for host, address in state["ingress"].items()
    )
    hosts = [printable(host) for host in state["hosts"]]
    more = ", ..." if len(hosts) > _SHOWN_HOSTS else ""
    external = "".join(f"\n           {printable(h)} at {a}" for h, a in state["external"].items())
    return (
        f"broker     {state['bootstrap_servers']}\n"
        f"p4runtime  {state['p4runtime']}  ({len(state['switches'])} switches)\n"
        f"tunnel     {ingress}\n"
        f"hosts      {len(hosts)}: {', '.join(hosts[:_SHOWN_HOSTS])}{more}{external}"
    )
