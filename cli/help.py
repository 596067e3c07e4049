"""Help of commands in the style of `stackcast.command_line`, as wide as the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from stackcast.command_line import help_text, metavar_text

#: What Typer appends to the help of an option: default, limits, and whether it is required.
_REMARKS = re.compile(r" {0,2}\[([^\[\]]*)\]$")
#: Largest number of characters of a value in a message.
_LONGEST = 40
_DEFAULT = re.compile(r"default: \(?(.*?)\)?")


class HelpCommand(TyperCommand):
    """A command with the arguments and options of its help in the style of the jobs.

    Arguments and options whose value is a FILE must not be empty or folders.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments and options, and check the names of files."""
        texts = set(args)
        try:
            extra = super().parse_args(ctx, args)
        except BadParameter as error:
            raise _named(error) from None
        if not ctx.resilient_parsing:
            for parameter in self.params:
                if parameter.metavar == "FILE":
                    _check_file(parameter, ctx.params.get(parameter.name), texts)
        return extra

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the usage line, with required arguments as plain words."""
        return [re.sub(r"[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        _write_options(self, ctx, formatter)


class HelpGroup(TyperGroup):
    """A group of commands whose help shows the whole summary of each command."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options and commands."""
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands. That of typer imports each command."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands. That of typer cuts each summary to one line."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.summary(ctx, name)) for name in self.list_commands(ctx)]
            )

    def summary(self, ctx: Any, name: str) -> str:
        """Return the summary of a command: the first sentence of its help."""
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=1000) if command else ""


def _name(parameter: Any) -> str:
    """Return the name of an argument or option in messages."""
    is_option = parameter.param_type_name == "option"
    return str(parameter.opts[0] if is_option else parameter.metavar or parameter.name.upper())


def _named(error: BadParameter) -> BadParameter:
    """Return an error with option, value and limits in plain words.

    Typer converts values with Pydantic, whose messages have no value and one limit at most.
    """
    cause: Any = error.__cause__
    if error.param is None or not hasattr(cause, "errors"):
        return error
    parameter: Any = error.param
    problem = cause.errors(include_url=False)[0]
    name, kind, value = _name(parameter), problem["type"], str(problem["input"])
    shown = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}..."
    if kind in ("greater_than_equal", "less_than_equal"):
        return BadParameter(f"{name} {shown} must be {_limits(parameter)}")
    if kind.startswith(("int_", "float_", "finite_")):
        noun = "a whole number" if kind.startswith("int_") else "a number"
        limits = f": {_limits(parameter)}" if _limits(parameter) else ""
        return BadParameter(f"{name} {shown!r} must be {noun}{limits}")
    message = problem["msg"].removeprefix("Value error, ").removesuffix(".")
    return BadParameter(f"{name}{' ' if message.startswith(repr(value)) else ': '}{message}")


def _limits(parameter: Any) -> str:
    """Return the limits of a number as text; empty if it has none."""
    if parameter.min is None:
        return "" if parameter.max is None else f"at most {parameter.max}"
    return f"{parameter.min} {'or more' if parameter.max is None else f'to {parameter.max}'}"


def _check_file(parameter: Any, value: Any, texts: set[str]) -> None:
    """Check the name of a file.

    Args:
        parameter: the argument or option.
        value: its value.
        texts: words of the command line. The path of an empty text is that of the current folder.

    Raises:
        BadParameter: the value is empty, or is a folder.
    """
    if value is None or value == parameter.default or not isinstance(value, str | Path):
        return
    name = _name(parameter)
    if str(value) in ("", ".") and ("" in texts or f"{name}=" in texts):
        raise BadParameter(f"{name} '': give a file")
    # The error of a properties file has a code.
    if name != "--properties-file" and Path(value).is_dir():
        raise BadParameter(f"{name} '{value}' is a folder: give a file")


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
    for parameter in command.get_params(ctx):
        if record := parameter.get_help_record(ctx):
            name, text = _row(*record)
            is_argument = parameter.param_type_name == "argument"
            # The name of an argument is its metavar, and its type follows.
            row = (name.split()[0] if is_argument else name, text)
            sections[parameter.param_type_name].append(row)
    for kind, rows in sections.items():
        if rows:
            with formatter.section(f"{kind.capitalize()}s"):
                formatter.write_dl(rows)


def _row(name: str, text: str) -> tuple[str, str]:
    """Return an option and its help in the style of the jobs."""
    remarks = _REMARKS.search(text)
    default = None
    if remarks:
        text = text[: remarks.start()]
        for remark in remarks[1].split("; "):
            if match := _DEFAULT.fullmatch(remark):
                default = match[1].removesuffix(".0")
            elif remark == "required":
                text = f"{text.rstrip('.')} (required)"
    return metavar_text(name), help_text(text, default)
