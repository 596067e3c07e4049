"""``stackcast receive``: receive a stream as a host, and request lost notifications again."""

from __future__ import annotations

import typer

from stackcast.cli.option_groups import takes_groups
from stackcast.cli.options import check_name
from stackcast.cli.receive.options import (
    EventOptions,
    OutputOptions,
    RecoveryOptions,
    StreamOptions,
    TopicOptions,
    TrialOptions,
)


@takes_groups
def receive(
    stream: StreamOptions,
    recovery: RecoveryOptions,
    topic: TopicOptions,
    trial: TrialOptions,
    events: EventOptions,
    output: OutputOptions,
) -> None:
    """Print each message for this host once, and request lost messages again.

    Without --rerequest, losses are only reported. The command ends on Ctrl-C, on SIGTERM or after
    --seconds. It then prints statistics on standard error, where it also reports losses and long
    silence; with --json, statistics are the last line of standard output.

    The exit code is 1 if messages were lost, if an announced message is missing at the end, if
    earlier messages are missing with --from-start, if keys are given and the last summary of a
    session is not authentic, if nothing was received and the kernel shows why, or if the kernel
    dropped datagrams and --rerequest is not given.
    """
    output.check()
    topic.check()
    stream.check()
    if recovery.name:
        check_name("--name", recovery.name)
    from stackcast.cli.deployment import read_deployment  # noqa: PLC0415
    from stackcast.cli.receive import receiving  # noqa: PLC0415

    deployment = read_deployment(
        events.properties_file,
        events.attributes,
        events.encoding or stream.event_frames,
        events.widths,
    )
    options = receiving.ReceiveOptions(stream, recovery, topic, trial, output)
    if not receiving.receive(options, deployment):
        raise typer.Exit(1)
