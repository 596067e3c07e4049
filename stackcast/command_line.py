"""Command lines of jobs, programs and commands: one style of help for all of them."""

from __future__ import annotations

import argparse
import re
import textwrap
from typing import Any

_TYPES = (
    (re.compile(r"<(?:int|float)(?: range)?>"), "NUMBER"),
    (re.compile(r"<(?:str|list\[str\])>"), "TEXT"),
    (re.compile(r"<([^ <>]+)>"), r"\1"),
)


def help_text(text: str, default: object = None) -> str:
    """Return the help of an option as a sentence with the default of the option.

    Args:
        text: the help, which may end with a default of its own, such as ``(default: 5)``.
        default: the default; None, False and an empty text are not shown.
    """
    sentence, mark, end = text.rstrip(".").partition(" (default: ")
    if not mark and default is not None and default is not False and str(default):
        mark, end = " (default: ", f"{default})"
    return f"{sentence[:1].upper()}{sentence[1:]}{mark}{end}."


def metavar_text(text: str) -> str:
    """Return an option with the name of its value in capitals, or its choices as ``a|b``.

    Args:
        text: the option as Typer shows it, such as ``--port <int range>``.
    """
    for pattern, replacement in _TYPES:
        text = pattern.sub(replacement, text)
    return text


class HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs up to the width of the terminal, and shows the default of each option.

    Indented lines of a description, such as commands, stay as they are.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [
            part if part.startswith(" ") else textwrap.fill(" ".join(part.split()), width)
            for part in re.split(r"\n\s*\n", text.strip("\n"))
        ]
        return "\n\n".join(textwrap.indent(part, indent) for part in paragraphs)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.help is None or action.default == argparse.SUPPRESS:
            return action.help and help_text(action.help)
        shown = action.option_strings and action.nargs != 0 and action.default not in (None, "")
        return help_text(action.help, "%(default)s" if shown else None)

    def _metavar_formatter(self, action: argparse.Action, default_metavar: str) -> Any:
        if action.metavar is None and action.choices is not None:
            choices = "|".join(map(str, action.choices))
            return lambda count: (choices,) * count
        return super()._metavar_formatter(action, default_metavar)


class ArgumentParser(argparse.ArgumentParser):
    """A parser that accepts only whole names of options, with help by `HelpFormatter`.

    An abbreviation of one option may be the name of another one in a later version, and would hide
    a typing error.
    """

    def __init__(self, prog: str | None = None, **options: Any) -> None:
        super().__init__(prog, allow_abbrev=False, **{"formatter_class": HelpFormatter, **options})
