"""``stackcast lab``: a broker and a network of switches and hosts on this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from stackcast.cli.lab_options import lab_option
from stackcast.cli.options import Json, LabelBits
from stackcast.installation import var_folder
from stackcast.jobs.embedded.options import DEFAULT, RunOptions

app = typer.Typer(
    no_args_is_help=True,
    help="Run broker, switches and hosts of the lab in the background.",
)

Folder = Annotated[str | None, typer.Option("--folder", **lab_option("folder"))]


@app.command()
def up(
    *,
    network: Annotated[str | None, typer.Option("--network", **lab_option("network"))] = None,
    pods: Annotated[int, typer.Option("--pods", **lab_option("pods"))] = DEFAULT.pods,
    racks: Annotated[int, typer.Option("--racks", **lab_option("racks"))] = DEFAULT.racks,
    hosts: Annotated[int | None, typer.Option("--hosts", **lab_option("hosts"))] = None,
    planes: Annotated[int, typer.Option("--planes", **lab_option("planes"))] = DEFAULT.planes,
    spines: Annotated[int, typer.Option("--spines", **lab_option("spines"))] = DEFAULT.spines,
    publishers: Annotated[
        int, typer.Option("--publishers", **lab_option("publishers"))
    ] = DEFAULT.publishers,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Number of partitions of the topics")
    ] = 2,
    subscriptions: Annotated[
        int,
        typer.Option(
            "--subscriptions",
            show_default="1,000",
            **lab_option("subscriptions", "number of generated subscriptions"),
        ),
    ] = 1000,
    seed: Annotated[
        int, typer.Option("--seed", **lab_option("seed", "seed of the generated subscriptions"))
    ] = DEFAULT.seed,
    match: Annotated[
        Literal["spark", "network"],
        typer.Option(
            "--match", help="Match events in the stream (spark) or in the switches (network)"
        ),
    ] = "spark",
    encoding: Annotated[
        str,
        typer.Option(
            "--encoding",
            metavar="NAME",
            help="Encoding of header stacks, as in spark.stackcast.encoding",
        ),
    ] = "virtual_trees",
    label_bits: Annotated[
        LabelBits,
        typer.Option(
            "--label-bits",
            help="Width of a label in bits; virtual_trees needs 32 for more than 16,383 directed "
            "links, and encodings such as port and mc_group for more than 255 switches, or ports "
            "of a switch",
        ),
    ] = "16",
    loss: Annotated[
        float,
        typer.Option(
            "--loss", metavar="SHARE", min=0, max=1, help="Share of frames that each link loses"
        ),
    ] = 0.0,
    external_host: Annotated[
        list[str] | None,
        typer.Option(
            "--external-host",
            metavar="HOST=IP:PORT",
            help="Send the datagrams of this host to another program; may be repeated",
        ),
    ] = None,
    ready: Annotated[
        bool,
        typer.Option(
            "--ready",
            help="Also fill the tables, write the switches and start the stream, and wait until "
            "the stream is ready",
        ),
    ] = False,
    folder: Folder = None,
) -> None:
    """Start the broker and the network, which run until 'stackcast lab down'.

    With --ready, the stream runs as well, and switches and rules follow edits of the tables.
    """
    start = time.monotonic()
    from stackcast.cli import lab_control  # noqa: PLC0415
    from stackcast.lab.fabric.hosts import external_hosts  # noqa: PLC0415
    from stackcast.lab.up import daemon  # noqa: PLC0415
    from stackcast.udfs.network.encodings import ENCODINGS  # noqa: PLC0415

    if encoding not in ENCODINGS:
        raise typer.BadParameter(
            f"--encoding {encoding!r} is unknown: use one of {', '.join(ENCODINGS)}"
        )
    run = RunOptions(
        folder=str(_path(folder)),
        network=network,
        pods=pods,
        racks=racks,
        hosts=hosts,
        planes=planes,
        spines=spines,
        publishers=publishers,
    )
    options = daemon.LabOptions(
        folder=str(run.path),
        network=run.network_options(encoding, int(label_bits)),
        partitions=max(partitions, publishers),
        subscriptions=subscriptions,
        seed=seed,
        external=external_hosts(external_host or ()),
        match=match,
        loss=loss,
        services=lab_control.services(run.path, subscriptions, seed) if ready else {},
    )
    lab_control.start(options)
    if ready:
        lab_control.await_stream(run.path, start)


@app.command()
def status(
    watch: Annotated[
        list[str] | None,
        typer.Option(
            "--watch",
            metavar="NAME",
            help="Print the counters of a host, a switch or a link (FROM,TO) every second, until "
            "Ctrl-C; may be repeated",
        ),
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Print addresses and counters of the running lab.

    The exit code is 1 if no lab is running, or if its stream has ended on its own.
    """
    from stackcast.cli import lab_control  # noqa: PLC0415

    path = _path(folder)
    state = lab_control.read_status(path)
    if watch:
        lab_control.watch(path, watch, state["counters"])
        return
    ended = lab_control.ended_services(state)
    if as_json:
        typer.echo(json.dumps(state))
    else:
        lab_control.print_status(state, ended)
    raise typer.Exit(int(bool(ended)))


@app.command("feed")
def feed_command(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Nasdaq BinaryFILE to send, .gz or not")
    ] = None,
    *,
    generated: Annotated[
        int,
        typer.Option(
            "--generate", min=0, help="Send a generated session with this number of messages"
        ),
    ] = 0,
    speed: Annotated[
        str,
        typer.Option(
            "--speed",
            **lab_option(
                "speed",
                "publishing speed: full (no limit), recorded (by timestamps), or messages per "
                "second",
            ),
        ),
    ] = "full",
    seed: Annotated[
        int, typer.Option("--seed", **lab_option("seed", "seed of the generated session"))
    ] = DEFAULT.seed,
    symbols: Annotated[int, typer.Option("--symbols", **lab_option("symbols"))] = DEFAULT.symbols,
    folder: Folder = None,
) -> None:
    """Send all packets of a session to the publisher's switch of a lab whose switches match.

    The command first writes each packet to the topic of the lab's jobs: the offset of the record
    determines the sequence number. The lab must run with --match network. Ctrl-C ends the command.
    """
    if (file is None) == (generated == 0):
        raise typer.BadParameter("give either a file or --generate N")
    from stackcast.cli import lab_control  # noqa: PLC0415

    lab_control.send_session(_path(folder), file, generated, speed, seed, symbols)


@app.command()
def fetch() -> None:
    """Fetch the jars of the lab's Kafka broker into var/jars/broker, if they are missing.

    Ivy fetches them from Maven Central, unless the Ivy settings of this machine name another
    repository. Each file must have the hash that Stackcast lists.
    """
    from stackcast.lab.up.jars import fetch_broker  # noqa: PLC0415

    folder = var_folder().absolute() / "jars" / "broker"
    count = fetch_broker(folder, lambda name: typer.echo(name, err=True))
    typer.echo(f"{count} jars of the broker are in {folder}")


@app.command()
def down(folder: Folder = None) -> None:
    """Stop the lab, and wait until all its processes have ended."""
    from stackcast.lab.up import daemon  # noqa: PLC0415

    path = _path(folder)
    typer.echo("the lab is down" if daemon.down(path) else f"no lab is up in {path}")


def _path(folder: str | None) -> Path:
    return RunOptions(folder=folder).path
