"""Flags that several commands have, declared once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.commands.shell_command import ShellCommand
from barnabas.cli.refusal import usage
from barnabas.cli.text.output import OutputFormat

if TYPE_CHECKING:
    from barnabas.cli.kafka.administration import Administration
    from barnabas.cli.kafka.connection import Connection

BOOTSTRAP_VARIABLE: Final = "BARNABAS_BOOTSTRAP_SERVER"
COMPLETION_SECONDS_MAX: Final = 2.0


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topic names for the shell's completion; none when the cluster does not answer soon."""
    try:
        from barnabas.cli.kafka.connection import connect

        connection = connect(ctx.params.get("bootstrap_server") or "", ctx.params.get("command_config"))
        metadata = connection.admin().list_topics(timeout=COMPLETION_SECONDS_MAX)
    except Exception:  # a completion that fails must not disturb the line that is being typed
        return []
    return sorted(name for name in metadata.topics if name.startswith(incomplete))


ConfigFile = Path | None
CONFIG_HELP: Final = "Client properties, in librdkafka's names or the Java client's."
PROPERTY_HELP: Final = "One client property; repeatable."

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        help="Where the cluster is; several with commas. Default: localhost:9092.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help=CONFIG_HELP,
    ),
]
CommandProperty = Annotated[
    list[str] | None,
    typer.Option("--command-property", "-X", metavar="NAME=VALUE", help=PROPERTY_HELP),
]
ClusterConfig = Annotated[
    ConfigFile,
    typer.Option("--command-config", "--config", "-c", metavar="FILE", help=CONFIG_HELP),
]
BootstrapController = Annotated[
    str, typer.Option("--bootstrap-controller", metavar="HOST:PORT", hidden=True, help="Refused.")
]
Output = Annotated[OutputFormat, typer.Option("--output", help="How the result is written.")]
Topic = Annotated[
    str,
    typer.Option("--topic", metavar="TOPIC", help="The topic.", autocompletion=complete_topic),
]
TopicWord = Annotated[
    str | None,
    typer.Argument(
        metavar="[TOPIC]",
        help="The topic; or --topic.",
        show_default=False,
        autocompletion=complete_topic,
    ),
]
TopicWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC]...",
        help="The topics; or as a flag.",
        show_default=False,
        autocompletion=complete_topic,
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="A topic, or a regular expression for names; repeatable.",
        autocompletion=complete_topic,
    ),
]


def connect(
    bootstrap: str, command_config: Path | None, properties: Sequence[str] | None = None
) -> Connection:
    """The cluster that the flags name; imports librdkafka only now."""
    from barnabas.cli.kafka.connection import connect as connect_with

    # Typer takes `-b ''` (a script's empty variable, say) for an address, and asks the environment no more.
    return connect_with(bootstrap or os.environ.get(BOOTSTRAP_VARIABLE, ""), command_config, properties)


@dataclass(frozen=True)
class ClusterFlags:
    """Which cluster, of a command that asks it one thing after another."""

    bootstrap_server: BootstrapServer = ""
    command_config: CommandConfig = None
    command_property: CommandProperty = None

    def connect(self) -> Connection:
        return connect(self.bootstrap_server, self.command_config, self.command_property)

    def administer(self) -> Administration:
        """Its connections, to be entered."""
        connection = self.connect()
        from barnabas.cli.kafka.administration import Administration

        return Administration(connection)

    def look(self) -> Administration:
        """Its connections, of a command that changes nothing: a broker that is slow is waited for only briefly."""
        connection = self.connect()
        from barnabas.cli.kafka.administration import LOOK_SECONDS_MAX, Administration

        return Administration(connection, LOOK_SECONDS_MAX)


def refuse_controller(address: str) -> None:
    """Raise Refused for --bootstrap-controller: these commands speak to brokers."""
    if address:
        raise usage(
            "--bootstrap-controller is not for this command, which speaks to brokers: use --bootstrap-server"
        )


def chosen(flags: Mapping[str, bool], word: str | None, command: str) -> str:
    """The one action asked for, by a flag (`--list`) or by a word (`list`); Refused for none and for two."""
    given = [name for name, is_set in flags.items() if is_set]
    if word is not None and word not in flags:
        raise usage(f"{command} does not know {word!r}: it has {', '.join(flags)}")
    if word is not None and word not in given:
        given.append(word)
    if len(given) == 1:
        return given[0]
    wanted = ", ".join(f"--{name}" for name in flags)
    if not given:
        raise usage(f"say what to do with {command}: one of {wanted}")
    raise usage(f"{' and '.join('--' + name for name in given)} at once: give one of {wanted}")


def one_topic(word: str | None, flag: str, command: str, *, advice: str = "give one of them") -> str:
    """The topic that a word or a flag names, empty without any; Refused for two of them."""
    if word and flag:
        raise usage(f"{command} has one topic, and here are two, {flag} and {word}: {advice}")
    return word or flag


def application(function: Any, cls: type[ShellCommand] = ShellCommand) -> typer.Typer:
    """A Typer with one command, as `commands/NAME.py` exports it."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=False)
    app.command(cls=cls)(function)
    return app
