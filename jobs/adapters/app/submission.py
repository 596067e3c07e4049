"""Checks a command line of spark-submit before its JVM starts, which takes seconds.

    python -m stackcast.jobs.adapters.app.submission [spark-submit options] jobs/JOB.py [arguments]

`spark-submit.sh` runs this program first. It prints an error as one line and then ends with exit
code 2. The jobs check their settings again, because not every start comes by that script. This
module must not import Spark or numba: it runs in a fraction of the time that they take to load.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stackcast.installation import shipped
from stackcast.jobs.adapters.app.properties_file import default_properties, read_properties
from stackcast.jobs.adapters.app.settings import Settings
from stackcast.udfs.errors import SettingsError, StackcastError, nearest, printable

FAILED = 2

_NAMES = """archives class conf deploy-mode driver-class-path driver-cores
    driver-default-class-path driver-java-options driver-library-path driver-memory
    exclude-packages executor-cores executor-memory extra-properties-file files jars keytab kill
    master name num-executors packages principal properties-file proxy-user py-files queue remote
    repositories status total-executor-cores"""
#: Options of spark-submit that take a value (SparkSubmitOptionParser of Spark 4.2).
WITH_VALUE = frozenset({"-c", *(f"--{name}" for name in _NAMES.split())})
#: Options without a value.
SWITCHES = frozenset(("--load-spark-defaults", "--supervise", "--verbose", "-v"))
#: With one of these, spark-submit starts no job.
NO_JOB = frozenset(("--help", "-h", "--kill", "--status", "--usage-error", "--version"))
#: Options that no job has: after the job, they are at the wrong place.
_ONLY_BEFORE = WITH_VALUE - {"-c", "--name"}
#: Jobs that run the embedded lab unless a broker is configured.
_STREAMS = ("attribute_stream", "itch_stream")
_HELP = ("--help", "-h")
_EXAMPLE = "./spark-submit.sh jobs/itch_stream.py"


@dataclass
class Submission:
    """A parsed command line.

    Attributes:
        job: path of the job as written; empty if none follows the options.
        arguments: arguments of the job.
        properties_file: path of the file of properties; empty if there is none.
        defaults: whether the defaults of Spark apply.
        properties: properties of ``--conf``, by key.
    """

    job: str = ""
    arguments: list[str] = field(default_factory=list)
    properties_file: str = ""
    defaults: bool = True
    properties: dict[str, str] = field(default_factory=dict)

    def all_properties(self) -> dict[str, str]:
        """Return the properties that the job gets. Those of ``--conf`` are stronger.

        Raises:
            SettingsError: ``UNREADABLE_FILE``.
        """
        properties = default_properties() if self.defaults else {}
        if self.properties_file:
            properties |= read_properties(self.properties_file)
        return properties | self.properties


def parse(words: Sequence[str]) -> Submission | None:
    """Return the parsed command line; None if Spark only prints something and starts no job.

    Raises:
        SettingsError: ``BAD_COMMAND_LINE``.
    """
    submission = Submission()
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, has_value, value = words[place].partition("=")
        if name in NO_JOB:
            return None
        if name not in WITH_VALUE | SWITCHES:
            raise _not_before(words, place)
        place += 1
        if name in SWITCHES:
            submission.defaults |= name == "--load-spark-defaults"
            continue
        if not has_value:
            if place == len(words):
                raise _bad(f"option {name} of spark-submit has no value")
            value = words[place]
            place += 1
        if name == "--properties-file":
            submission.properties_file = value
            submission.defaults = "--load-spark-defaults" in words[:place]
        elif name in ("--conf", "-c"):
            key, has_value, text = value.partition("=")
            if not has_value:
                raise _bad(f"--conf {value} has no value: write --conf KEY=VALUE")
            submission.properties[key] = text
    if place == len(words):
        raise _bad(f"no job follows the options of spark-submit: name one, as in {_EXAMPLE}")
    submission.job, submission.arguments = words[place], list(words[place + 1 :])
    return submission


def check(words: Sequence[str]) -> None:
    """Raise the error with which the job would end, if the command line shows it.

    Settings are checked only for jobs of Stackcast, and not if the job only prints its help.

    Raises:
        SettingsError: ``BAD_COMMAND_LINE``, ``UNREADABLE_FILE``, ``UNKNOWN_KEY``, ``BAD_VALUE``,
            ``NO_BROKER``.
        StackcastError: another error of `Settings.read`.
    """
    submission = parse(words)
    if submission is None:
        return
    properties = submission.all_properties()
    if not submission.job.endswith(".py") or "://" in submission.job:
        return
    job = Path(submission.job)
    if not job.is_file():
        raise _no_file(job)
    if not _is_ours(job.resolve()):
        return
    for place, word in enumerate(submission.arguments):
        if word.partition("=")[0] in _ONLY_BEFORE:
            raise _not_after(submission, place)
    if any(word in submission.arguments for word in _HELP):
        return
    settings = Settings.read(properties.items())
    if job.stem in _STREAMS:
        settings.embedded  # noqa: B018 - raises NO_BROKER


def _is_ours(job: Path) -> bool:
    home = os.environ.get("STACKCAST_HOME")
    folders = [shipped("jobs"), *([Path(home, "examples", "mobility").resolve()] if home else [])]
    return job.parent in folders


def _bad(message: str) -> SettingsError:
    return SettingsError("BAD_COMMAND_LINE", message)


def _not_before(words: Sequence[str], place: int) -> SettingsError:
    """Return the error of an option before the job that spark-submit does not have."""
    name = words[place].partition("=")[0]
    jobs = [at for at in range(place, len(words)) if words[at].endswith(".py")]
    if not jobs:
        near = nearest(name, WITH_VALUE | SWITCHES)
        hint = f"did you mean {near}?" if near else f"name a job first, as in {_EXAMPLE} {name} ..."
        return _bad(f"spark-submit has no option {name}, and no job follows it: {hint}")
    job = words[jobs[0]]
    moved: list[str] = []
    at = place
    while at < jobs[0]:
        if words[at] in WITH_VALUE:
            at += 2
            continue
        if words[at].partition("=")[0] not in WITH_VALUE | SWITCHES:
            moved.append(words[at])
        at += 1
    return _bad(
        f"{name} is before {job}, but spark-submit has no such option: put options of a job after "
        f"its file, as in ./spark-submit.sh {shlex.join([job, *moved])}"
    )


def _not_after(submission: Submission, place: int) -> SettingsError:
    """Return the error of an option of spark-submit after the job."""
    name, has_value, value = submission.arguments[place].partition("=")
    if not has_value:
        value = "".join(submission.arguments[place + 1 : place + 2])
    # A value of another option may be a password.
    shown = value if name == "--properties-file" and value else "VALUE"
    return _bad(
        f"{name} is after {submission.job}, but is an option of spark-submit: put it before the "
        f"job, as in ./spark-submit.sh {name} {shown} {submission.job}"
    )


def _no_file(job: Path) -> SettingsError:
    names = {path.name for path in job.parent.glob("[!_]*.py")} if job.parent.is_dir() else set()
    names |= {path.name for path in shipped("jobs").glob("[!_]*.py")} - {"__init__.py"}
    near = nearest(job.name, names)
    folder = job.parent if (job.parent / str(near)).is_file() else Path("jobs")
    hint = f"did you mean {folder / near}?" if near else "./spark-submit.sh --help lists the jobs"
    return _bad(f"there is no file {job}: {hint}")


def main() -> int:
    """Check the command line of this program; return 2 after an error, and 0 otherwise."""
    try:
        check(sys.argv[1:])
    except StackcastError as error:
        print(printable(f"stackcast: {error}"), file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
