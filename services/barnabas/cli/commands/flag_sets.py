"""Flags in groups: a command's parameter that is a dataclass stands for a flag for each of its fields.

    @dataclass(frozen=True)
    class Target:
        topic: Annotated[str, typer.Option("--topic")] = ""

    @spread
    def produce(target: Target, output: ...) -> None: ...

Typer sees `--topic` and `--output`; `produce` gets a Target.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any


def spread(function: Callable[..., None]) -> Callable[..., None]:
    """`function` with the signature that Typer is to see. Every field must have a default."""
    hints = typing.get_type_hints(function, include_extras=True)
    sets: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if dataclasses.is_dataclass(hint):
            sets[parameter.name] = hint
            parameters += _parameters_of(hint)
        else:
            parameters.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def run(**values: Any) -> None:
        arguments = {
            name: kind(**{field.name: values.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in sets.items()
        }
        function(**arguments, **values)

    del run.__wrapped__  # else its signature would be the one that counts
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters_of(kind: Any) -> list[inspect.Parameter]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(kind)
    ]
