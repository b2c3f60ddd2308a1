"""What every command does as Kafka's shell tools do: --version, -h, and flags whose value may be left out.

`groups --list --state` and `groups --list --state stable,empty` are both right; a flag of Typer's either has a value or
has none, so the word after such a flag is looked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand


@dataclass(frozen=True)
class OptionalValue:
    """A flag that may stand alone. With a value it is written as `valued`; alone as `alone`."""

    valued: str
    alone: tuple[str, ...]
    is_value: Callable[[str], bool]
    """Whether the next word is this flag's value, and not a positional argument."""


class ShellCommand(TyperCommand):
    """A command with Kafka's manners; subclasses name the flags whose value is optional."""

    optional_values: ClassVar[Mapping[str, OptionalValue]] = {}

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        names = {"help_option_names": ["--help", "-h"]}
        settings["context_settings"] = {**names, **(settings.get("context_settings") or {})}
        super().__init__(*arguments, **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args == ["--version"]:
            from barnabas import __version__

            typer.echo(f"barnabas {__version__}")
            raise typer.Exit
        try:
            return super().parse_args(ctx, spelled_out(args, self.optional_values))
        except Exception as error:
            if getattr(error, "ctx", ctx) is None:
                error.ctx = ctx  # type: ignore[attr-defined]  # a usage error that does not say of which command
            raise


def spelled_out(arguments: Sequence[str], optional_values: Mapping[str, OptionalValue]) -> list[str]:
    """The same arguments with flags that all have, or all lack, a value."""
    found: list[str] = []
    at = 0
    while at < len(arguments):
        word = arguments[at]
        at += 1
        name, equals, value = word.partition("=")
        flag = optional_values.get(name)
        if word == "--":
            return [*found, *arguments[at - 1 :]]
        if flag is None:
            found.append(word)
        elif equals:
            found += [flag.valued, value]
        elif at < len(arguments) and flag.is_value(arguments[at]):
            found += [flag.valued, arguments[at]]
            at += 1
        else:
            found += flag.alone
    return found
