"""``stackcast jobs``: arguments for ``spark-submit`` if the package is installed."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from stackcast.installation import shipped

app = typer.Typer(
    no_args_is_help=True,
    help="Print arguments for spark-submit: the path of a job, packages, properties.",
)


@app.command()
def path(
    name: Annotated[
        str, typer.Argument(metavar="JOB", help="Name of the job, such as itch_stream")
    ],
) -> None:
    """Print the path of a job's script.

    \b
    spark-submit --packages "$(stackcast jobs packages)" "$(stackcast jobs path itch_stream)"
    """
    scripts = {file.stem: file for file in shipped("jobs").glob("[!_]*.py")}
    name = name.removeprefix("jobs/").removesuffix(".py")
    if name not in scripts:
        similar = difflib.get_close_matches(name, scripts, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"jobs: {', '.join(sorted(scripts))}"
        raise typer.BadParameter(f"there is no job {name!r}; {hint}")
    typer.echo(scripts[name])


@app.command()
def packages() -> None:
    """Print the Maven coordinates of Delta and the Kafka connector, for --packages."""
    from stackcast.lab.up.jars import coordinates  # noqa: PLC0415

    typer.echo(",".join(coordinates("spark")))


@app.command()
def properties() -> None:
    """Print the path of a file of Spark properties for one machine, for --properties-file."""
    typer.echo(shipped("conf/spark-defaults.conf"))
