"""The options of the lab as options of ``stackcast lab``, with the checks that jobs make."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import typer

from stackcast.jobs.embedded.options import RunOptions


def lab_option(name: str, text: str = "") -> dict[str, Any]:
    """Return an option's arguments of ``typer.Option``: help, and limits or a check of its text.

    Args:
        name: field of `RunOptions`.
        text: help, if it differs from that of the jobs.
    """
    (option,) = (each for each in fields(RunOptions) if each.name == name)
    words = text or option.metadata["text"]
    limits: dict[str, int] = option.metadata["limits"]
    check = {} if limits else {"callback": _callback(option.metadata["parse"])}
    return {"help": f"{words[0].upper()}{words[1:]}.", **limits, **check}


def _callback(parse: Callable[[str], Any]) -> Callable[[str | None], Any]:
    """Return a check for typer of the texts that a parser of argparse takes."""

    def check(value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except argparse.ArgumentTypeError as error:
            raise typer.BadParameter(str(error)) from None

    return check
