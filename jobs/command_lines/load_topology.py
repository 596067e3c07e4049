"""Command line of ``load_topology.py``."""

from __future__ import annotations

import argparse
import string
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stackcast.command_line import ArgumentParser

T = TypeVar("T")

FABRIC = ("pods", "racks", "hosts", "planes", "spines")
JELLYFISH = ("switches", "degree")
#: IANA's port for P4Runtime.
FIRST_PORT = 9559
LABEL_BITS = (16, 32)
PATTERN = f"{{switch}}:{FIRST_PORT}"


def parser(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the job, with its docstring as the description."""
    parser = ArgumentParser(prog="load_topology.py", description=description)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--fabric",
        metavar="SIZES",
        type=_said(lambda text: sizes(text, FABRIC)),
        help=f"three tiers of switches, given by their sizes: {', '.join(FABRIC)}",
    )
    source.add_argument(
        "--jellyfish",
        metavar="SIZES",
        type=_said(lambda text: sizes(text, JELLYFISH, ("seed",))),
        help=f"switches with random links: {', '.join(JELLYFISH)}, and optionally seed",
    )
    source.add_argument(
        "--topohub", metavar="NAME", help="network of topohub, such as topozoo/Abilene"
    )
    source.add_argument("--graphml", metavar="FILE", type=Path, help="GraphML file")
    parser.add_argument(
        "--hosts-per-switch",
        metavar="NUMBER",
        type=_least(1),
        help="number of hosts on each switch, except in a fabric (default: 1)",
    )
    parser.add_argument(
        "--publishers",
        metavar="NUMBER",
        type=_least(0),
        default=1,
        help="number of publishers, feed1, feed2 and so on",
    )
    parser.add_argument(
        "--parallel",
        action="store_true",
        help="keep parallel edges of a graph as separate links",
    )
    parser.add_argument(
        "--address-pattern",
        metavar="TEXT",
        type=_said(address_pattern),
        help="pattern of P4Runtime addresses with {switch}, {device_id} or {port}, a number that "
        f"counts up (default: {PATTERN}, for switches that are not in the tables)",
    )
    parser.add_argument(
        "--first-port",
        metavar="NUMBER",
        type=_least(1),
        default=FIRST_PORT,
        help="first number of {port}",
    )
    parser.add_argument(
        "--label-bits",
        type=int,
        choices=LABEL_BITS,
        help="width of a label in bits (default: spark.stackcast.label.bits, which all jobs need)",
    )
    parser.add_argument("--pipeline", metavar="NAME", help="P4 program of all switches")
    parser.add_argument(
        "--max-rules",
        metavar="NUMBER",
        type=_least(0),
        help="largest number of table entries on each switch",
    )
    parser.add_argument(
        "--replace", action="store_true", help="replace another network in the tables"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="write nothing, and print the changes"
    )
    return parser


def _said(parse: Callable[[str], T]) -> Callable[[str], T]:
    """argparse shows the words of its own error only."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of {least} or more")
        return int(text)

    return number


def sizes(text: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, int]:
    """Read ``pods=8,racks=4`` as numbers by name.

    Raises:
        ValueError: a name is unknown or missing, or a value is not a number.
    """
    values: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in needed + optional:
            raise ValueError(f"{name!r} is unknown: use {', '.join(needed + optional)}")
        if name in values:
            raise ValueError(f"{name} is set twice")
        if not (value.isascii() and value.isdecimal()):
            raise ValueError(f"{name} must be a whole number, such as {name}=4")
        values[name] = int(value)
    missing = [name for name in needed if name not in values]
    if missing:
        raise ValueError(f"missing {' and '.join(missing)}")
    return values


def address_pattern(text: str) -> str:
    """Return a pattern of addresses, if it is valid.

    Raises:
        ValueError: it is not.
    """
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        # Python's own words, which differ from version to version.
        raise ValueError(
            f"{text!r} must have the form host:port with matching braces: {error}"
        ) from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in ("switch", "device_id", "port") or form or conversion):
            raise ValueError(f"{{{name}}} is unknown: use {{switch}}, {{device_id}} or {{port}}")
    host, colon, port = text.rpartition(":")
    if not (host and colon) or not (port.isdecimal() or port in ("{port}", "{device_id}")):
        raise ValueError(
            f"{text!r} must have the form host:port, such as {PATTERN} or 10.0.0.1:{{port}}"
        )
    return text
