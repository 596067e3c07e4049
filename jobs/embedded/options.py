"""Options of the lab: arguments of the jobs that run it, and options of ``stackcast lab``.

`RunOptions` defines the name, default, limits and help of each option. `add_arguments` adds them to
the command line of a job, and `stackcast.cli.lab_options` to a command. Importing this module does
not load the lab, so that jobs can parse their command line first.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stackcast.installation import var_folder
from stackcast.udfs.errors import SettingsError

if TYPE_CHECKING:
    from stackcast.lab.fabric.topologies import NetworkOptions

_LARGEST = (1 << 63) - 1
_SPEED = re.compile(r"full|recorded|[0-9]*[1-9][0-9]*(\.[0-9]+)?|0?\.[0-9]*[1-9][0-9]*", re.ASCII)


def whole_number(least: int, most: int = _LARGEST) -> Callable[[str], int]:
    """Return a function that parses an argument as a whole number within these limits."""

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            limits = (
                f"from {least} to {most}" if most < max(_LARGEST, number) else f"of {least} or more"
            )
            raise argparse.ArgumentTypeError(f"{value!r} is not a whole number {limits}")
        return number

    return parse


def _number(default: int | None, text: str, least: int = 1, most: int = _LARGEST) -> Any:
    """Define an option that is a whole number."""
    return _option(
        default,
        text,
        "NUMBER",
        whole_number(least, most),
        **({"min": least} if most == _LARGEST else {"min": least, "max": most}),
    )


def _option(
    default: Any, text: str, metavar: str, parse: Callable[[str], Any], **limits: int
) -> Any:
    return field(
        default=default,
        metadata={"text": text, "metavar": metavar, "parse": parse, "limits": limits},
    )


def _speed(text: str) -> str:
    if not _SPEED.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not full, recorded or a number of messages per second"
        )
    return text


def _text(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("a value is missing")
    return text


def _file(text: str) -> str:
    if not Path(_text(text)).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}")
    return text


@dataclass(frozen=True)
class RunOptions:
    """Options of a lab and its traffic. The run sets the default of options that are None."""

    folder: str | None = _option(None, "folder of the lab (default: var/lab)", "FOLDER", _text)
    network: str | None = _option(
        None,
        "network of the lab: fabric, line (three switches), a topohub name such as "
        "topozoo/Abilene, or a GraphML file (default: fabric)",
        "NAME",
        _text,
    )
    pods: int = _number(4, "number of pods in the fabric")
    racks: int = _number(2, "number of racks per pod")
    hosts: int | None = _number(
        None,
        "number of hosts per rack of the fabric, or per node of any other network "
        "(default: 2 per rack, 1 per node)",
    )
    planes: int = _number(
        2, "number of spine planes, which is also the number of fabric switches per pod"
    )
    spines: int = _number(2, "number of spine switches per plane")
    publishers: int = _number(
        1, "number of publishers (feed1, feed2 and so on), each with its own topic partition"
    )
    subscriptions: int | None = _number(
        None, "number of generated subscriptions (default: 1,000, or 200 for sensors)", least=0
    )
    seed: int = _number(1, "random seed of the generated subscriptions and messages", least=0)
    messages: int | None = _number(
        None,
        "number of generated messages (default: 100,000, or 20,000 for sensors and --demo)",
    )
    symbols: int = _number(
        200, "number of stock symbols in the generated session", least=4, most=10_000
    )
    session: str | None = _option(
        None,
        "Nasdaq BinaryFILE (plain or .gz) to publish instead of a generated session",
        "FILE",
        _file,
    )
    speed: str | None = _option(
        None,
        "publishing speed: full (no limit), recorded (by timestamps), or messages per second "
        "(default: 10,000; 2,000 for sensors; 150 with --demo; full if switches match events)",
        "SPEED",
        _speed,
    )

    @staticmethod
    def of(arguments: argparse.Namespace) -> RunOptions:
        """Return the options of a command line that was parsed with those of `add_arguments`."""
        names = {option.name for option in fields(RunOptions)}
        return RunOptions(**{k: v for k, v in vars(arguments).items() if k in names})

    def with_defaults(self, **defaults: Any) -> RunOptions:
        """Return these options with a value for each one that is None."""
        missing = {k: value for k, value in defaults.items() if getattr(self, k) is None}
        return replace(self, **missing)

    @property
    def path(self) -> Path:
        """The absolute path of the lab's folder."""
        return Path(self.folder or var_folder() / "lab").absolute()

    @property
    def network_name(self) -> str:
        """The name of the network; empty for the fabric."""
        return "" if self.network in (None, "fabric") else str(self.network)

    def network_options(self, encoding: str, label_bits: int) -> NetworkOptions:
        """Return the options of the lab's network, with the labels of an encoding."""
        # Jobs that run without a lab also import this module for their command line.
        from stackcast.lab.fabric.topologies import NetworkOptions  # noqa: PLC0415

        return NetworkOptions(
            pods=self.pods,
            racks=self.racks,
            hosts=self.hosts or 2,
            planes=self.planes,
            spines=self.spines,
            hosts_per_switch=self.hosts or 1,
            name=self.network_name,
            encoding=encoding,
            label_bits=label_bits,
            publishers=self.publishers,
        )

    def changed(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name."""
        return {
            option.name: getattr(self, option.name)
            for option in fields(self)
            if getattr(self, option.name) != option.default
        }

    def require_none(self, reason: str) -> None:
        """Raise SettingsError ``BAD_VALUE`` if an option of the lab is given.

        Args:
            reason: end of the message, which says why there is no lab.
        """
        if changed := self.changed():
            names = ", ".join(f"--{name}" for name in changed)
            raise SettingsError("BAD_VALUE", f"options of the embedded lab ({names}) {reason}")


#: The options of a run without arguments.
DEFAULT = RunOptions()


def add_arguments(
    parser: argparse.ArgumentParser,
    without: Collection[str] = (),
    texts: Mapping[str, str] | None = None,
) -> None:
    """Add the options to the command line of a job.

    Args:
        parser: parser of the job.
        without: names of options that the job does not have.
        texts: help texts that differ from those of the other jobs, by name of the option.
    """
    group = parser.add_argument_group("options of the embedded lab")
    for option in fields(RunOptions):
        if option.name in without:
            continue
        default = "" if option.default is None else " (default: %(default)s)"
        group.add_argument(
            f"--{option.name}",
            metavar=option.metadata["metavar"],
            type=option.metadata["parse"],
            default=option.default,
            help=(texts or {}).get(option.name, option.metadata["text"]) + default,
        )
