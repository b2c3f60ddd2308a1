"""The command line: which commands and flags there are. What they do is imported only when they run."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from barnabas.cli.lazy_commands import LazyCommands, refusal_of_system
from barnabas.cli.options import (
    COORDINATORS_MAX,
    GATEWAYS_MAX,
    NODES_MAX,
    PORT_MAX,
    Advertise,
    LogLevel,
    UpOptions,
    UpRefused,
)
from barnabas.cli.refusal import INTERRUPTED, PIPE_CLOSED, USAGE, PipeClosed, Refused

STARTED: Final = time.monotonic()
"""When this process began, for the time in the ready line."""

_TYPES: Final = {
    "int range": "a whole number",
    "integer range": "a whole number",
    "integer": "a whole number",
    "int": "a whole number",
    "float range": "a number",
    "float": "a number",
}
"""What the types of flags are called for people, the longer names first."""

app = typer.Typer(
    cls=LazyCommands,
    help="Barnabas: a Kafka-compatible distributed commit log.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback(invoke_without_command=True)
def barnabas(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Barnabas: a Kafka-compatible distributed commit log."""
    if version:
        from barnabas import __version__

        typer.echo(f"barnabas {__version__}")
        raise typer.Exit


_NODES_HELP: Final = (
    "Storage nodes (Kafka's brokers). From 3 on, topics get default.replication.factor=3 and min.insync.replicas=2, "
    "unless --override says otherwise."
)


_Override = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A broker setting of Kafka; give it again for more."),
]
_Racks = Annotated[
    str, typer.Option(metavar="A,B,C", help="Racks (broker.rack) that the nodes are dealt out to in turn.")
]


@app.command()
def up(
    host: Annotated[str, typer.Option(help="Address that clients connect to.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=1, max=PORT_MAX, help="First port; every further node has the next one.")
    ] = 9092,
    data_dir: Annotated[Path, typer.Option(help="Where everything is kept.")] = Path("data"),
    nodes: Annotated[int, typer.Option(min=1, max=NODES_MAX, help=_NODES_HELP)] = 1,
    gateways: Annotated[
        int, typer.Option(min=1, max=GATEWAYS_MAX, help="Every node is one; each beyond 1 is a process more.")
    ] = 1,
    coordinators: Annotated[
        int,
        typer.Option(min=1, max=COORDINATORS_MAX, help="As --gateways: each beyond 1 is a process more."),
    ] = 1,
    http_port: Annotated[
        int, typer.Option(min=1, max=PORT_MAX, help="Port of /readyz, /healthz, /metrics and /services.")
    ] = 8080,
    advertise: Annotated[
        Advertise, typer.Option(help="One port a node, or the whole cluster as one broker at one port.")
    ] = Advertise.port,
    etcd: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Keep the metadata in etcd (http://HOST:PORT, several with commas)."
        ),
    ] = "",
    log_level: Annotated[
        LogLevel, typer.Option(help="The least level of the log lines on stderr.", case_sensitive=False)
    ] = LogLevel.warning,
    fault_injection: Annotated[
        bool, typer.Option("--fault-injection", help="Let tests inject faults and stop services over HTTP.")
    ] = False,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="When stdin closes, stop at once and remove the data.")
    ] = False,
    separate: Annotated[
        bool, typer.Option("--separate", help="Gateways, nodes and coordinators as processes of their own.")
    ] = False,
    override: _Override = None,
    racks: _Racks = "",
) -> None:
    """Start a whole cluster on this machine, in the foreground, one process a node. Ctrl-C stops it."""
    from barnabas.kernel.allocator import collection_put_off

    with collection_put_off():
        from barnabas.cli.up import run_up

    options = UpOptions(
        *(host, port, data_dir, nodes, gateways, coordinators, http_port, advertise, etcd, log_level),
        fault_injection=fault_injection,
        ephemeral=ephemeral,
        separate=separate,
        overrides=tuple(override or ()),
        racks=tuple(rack.strip() for rack in racks.split(",")) if racks else (),
    )
    options.check()
    raise typer.Exit(run_up(options, started=STARTED))


def main() -> None:
    """Run the command; every refusal is one line on stderr and a non-zero status."""
    try:
        status = app(standalone_mode=False, prog_name="barnabas")
        sys.stdout.flush()
    except (Refused, UpRefused) as error:
        _refuse(str(error), error.status)
    except (PipeClosed, BrokenPipeError):
        _leave_broken_pipe()
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except Exception as error:
        refused = refusal_of_system(error)
        if refused is not None:
            _refuse(str(refused), refused.status)
        # Usage errors: Typer does not export their base class, but each can say itself in one line.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        message = str(format_message()).replace("\n", " ").rstrip(".")
        _refuse_usage(_in_words(message), getattr(error, "ctx", None))
    sys.exit(status)


def _in_words(message: str) -> str:
    """Typer's own message without its names of types."""
    for types, words in _TYPES.items():
        message = message.replace(f"is not a valid {types}", f"is not {words}")
    return message


def _refuse_usage(message: str, context: Any) -> NoReturn:
    """A wrong command line: what is wrong with it, and where the right one is described."""
    if message:
        command = context.command_path if context is not None else "barnabas"
        _refuse(f"{message}: `{command} --help` shows what there is", USAGE)
    sys.exit(USAGE)


def _refuse(message: str, status: int) -> NoReturn:
    typer.echo(f"barnabas: {message}", err=True)
    _drop_output()
    sys.exit(status)


def _leave_broken_pipe() -> None:
    """Whoever read our output has gone: leave quietly, also past the flush at the interpreter's end."""
    _drop_output()
    sys.exit(PIPE_CLOSED)


def _drop_output() -> None:
    """Write out what there is, or forget it where that fails: the interpreter would complain at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
