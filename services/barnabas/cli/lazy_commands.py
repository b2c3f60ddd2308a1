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
    "transactions",
    "cluster",
    "nodes",
    "rebalance",
    "doctor",
    "perf",
)


SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
PROGRAM: Final = "barnabas"
COMPLETION_VARIABLE: Final = "_BARNABAS_COMPLETE"


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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Typer finds out which shell it runs in; `--show-completion zsh` says it.
        if len(args) > 1 and args[0] in ("--install-completion", "--show-completion") and args[1] in SHELLS:
            _complete(args[0], args[1])
            raise typer.Exit
        return super().parse_args(ctx, args)

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
            refused = refusal_of_system(error)
            if refused is None:
                raise
            raise refused from error


def refusal_of_system(error: Exception) -> Refused | None:
    """The refusal for what the operating system, or a wait, raised; None for an error of another making."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return Refused("the cluster did not answer in time: is every broker of it running?")
    if isinstance(error, UnicodeDecodeError):
        return Refused(f"the input is not UTF-8 ({error.reason} at byte {error.start})")
    if isinstance(error, OSError) and error.filename is not None:
        return Refused(f"{error.filename}: {error.strerror}")
    if isinstance(error, OSError) and error.errno is not None:
        return Refused(f"cannot read or write ({error.strerror}): is the disk full, or the output closed?")
    return None


def _complete(flag: str, shell: str) -> None:
    from typer import completion as typer_completion

    completion: Any = typer_completion  # does not declare what it exports
    if flag == "--show-completion":
        typer.echo(
            completion.get_completion_script(prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE, shell=shell)
        )
        return
    _, path = completion.install(shell=shell, prog_name=PROGRAM, complete_var=COMPLETION_VARIABLE)
    typer.echo(f"{shell} completion installed in {path}; it works in a new terminal")
