"""The commands beside `up`: found by name, imported when they are called, or listed by `--help`.

A module `commands/NAME.py` has an `app`: a Typer with one command, or with several where the command has subcommands.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final

import typer
from typer.core import TyperGroup

from barnabas.cli.refusal import PipeClosed, Refused

COMMANDS: Final = (
    "topics",
    "configs",
    "groups",
    "produce",
    "consume",
    "offsets",
    "log-dirs",
    "dump-log",
    "delete-records",
    "cluster",
    "perf",
)


class LazyCommands(TyperGroup):
    """The group `barnabas`. Also the one place where what a Kafka client raised becomes a line for the user."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"barnabas.cli.commands.{cmd_name.replace('-', '_')}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeClosed from error  # Typer would end with 1, as if something had failed
        except Refused:
            raise
        except Exception as error:
            if "confluent_kafka" in sys.modules:
                from barnabas.cli.kafka.errors import refusal_of

                refused = refusal_of(error)
                if refused is not None:
                    raise refused from error
            if isinstance(error, OSError) and error.filename is not None:
                raise Refused(f"{error.filename}: {error.strerror}") from error
            raise
