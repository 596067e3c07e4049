"""Commands whose options are the fields of dataclasses, because they have many."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, get_type_hints

Result = TypeVar("Result")


def takes_groups(command: Callable[..., Result]) -> Callable[..., Result]:
    """Turn parameters that are dataclasses into one option for each of their fields.

    Options are in the order of the parameters, and of the fields in each. A field is declared as a
    parameter of a command: an ``Annotated`` type with a default.

    Returns:
        The command with the signature that Typer reads.
    """
    groups = {name: hint for name, hint in get_type_hints(command).items() if name != "return"}
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=get_type_hints(group, include_extras=True)[field.name],
        )
        for group in groups.values()
        for field in dataclasses.fields(group)
    ]

    @wraps(command)
    def run(**values: Any) -> Result:
        return command(**{name: _filled(group, values) for name, group in groups.items()})

    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _filled(group: Any, values: dict[str, Any]) -> Any:
    return group(**{field.name: values[field.name] for field in dataclasses.fields(group)})
