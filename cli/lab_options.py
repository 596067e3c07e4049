"""The options of the lab as options of ``stackcast lab``, with the checks that jobs make."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import typer

from stackcast.jobs.embedded.options import RunOptions


def lab_option(name: str, text: str = "") -> dict[str, Any]:
    """Return the arguments of ``typer.Option``: metavar, help, and limits or a check of the value.

    Args:
        name: field of `RunOptions`.
        text: help, if it differs from that of the jobs.
    """
    (option,) = (option for option in fields(RunOptions) if option.name == name)
    limits: dict[str, int] = option.metadata["limits"]
    check = {} if limits else {"callback": _callback(option.metadata["parse"])}
    common = {"metavar": option.metadata["metavar"], "help": text or option.metadata["text"]}
    return {**common, **limits, **check}


def _callback(parse: Callable[[str], Any]) -> Callable[[str | None], Any]:
    """Return a check for Typer that accepts the values which a parser of argparse accepts."""

    def check(value: str | None) -> Any:
        try:
            return None if value is None else parse(value)
        except argparse.ArgumentTypeError as error:
            raise typer.BadParameter(str(error)) from None

    return check
