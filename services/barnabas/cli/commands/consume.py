"""`barnabas consume`: kafka-console-consumer and `kcat -C`, `kcat -G`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.commands import flags
from barnabas.cli.refusal import usage
from barnabas.cli.text.output import OutputFormat

if TYPE_CHECKING:
    from barnabas.cli.text.record_format import Render


NamesFlag = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="The topics; or --topic.", show_default=False),
]
TopicFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="A topic; ^ in front makes it a regular expression; repeatable.",
        autocompletion=flags.complete_topic,
    ),
]
IncludeFlag = Annotated[str, typer.Option(metavar="REGEX", help="Topics by regular expression.")]
GroupFlag = Annotated[
    str, typer.Option("--group", "-G", metavar="GROUP", help="Read as a member of a group, and commit.")
]
PartitionFlag = Annotated[
    str, typer.Option("--partition", "-p", metavar="0,1", help="Only these partitions.")
]
OffsetFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--offset",
        "-o",
        metavar="OFFSET",
        help="beginning, end, stored, N, -N (the last N), s@MS (from a time), e@MS (until a time).",
    ),
]
FromBeginningFlag = Annotated[bool, typer.Option("--from-beginning", help="As --offset beginning.")]
FromFlag = Annotated[
    str, typer.Option("--from", metavar="TIME", help="From a time: 2026-01-31T12:00:00, 10m ago.")
]
UntilFlag = Annotated[str, typer.Option(metavar="TIME", help="Until a time, then end.")]
MaxMessagesFlag = Annotated[
    int | None, typer.Option("--max-messages", "-c", min=1, help="End after so many records.")
]
ExitAtEndFlag = Annotated[
    bool, typer.Option("--exit", "-e", help="End when every partition is read to its end.")
]
TimeoutMsFlag = Annotated[
    int | None, typer.Option(min=1, metavar="MS", help="End when nothing came for so long.")
]
FormatFlag = Annotated[
    str, typer.Option("--format", "-f", metavar="FORMAT", help="kcat's: %s %k %t %p %o %h %T %S %K %R.")
]
KeySeparatorFlag = Annotated[
    str | None,
    typer.Option("--key-separator", "-K", metavar="TEXT", help="Print keys, with this between."),
]
DelimiterFlag = Annotated[
    str, typer.Option("--delimiter", "-D", metavar="TEXT", help="What stands between records.")
]
NullFlag = Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for null keys and values.")]
JsonFlag = Annotated[bool, typer.Option("-J", help="As --output json.")]
PropertyFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "--formatter-property",
        metavar="NAME=VALUE",
        help="print.key, print.timestamp, print.headers, ... as kafka-console-consumer has them.",
    ),
]
IsolationLevelFlag = Annotated[str, typer.Option(metavar="LEVEL", help="read_committed or read_uncommitted.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No summary at the end.")]
CommandConfigFlag = Annotated[
    flags.ConfigFile,
    typer.Option("--command-config", "--consumer.config", "-F", metavar="FILE", help=flags.CONFIG_HELP),
]
CommandPropertyFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--command-property", "--consumer-property", "-X", metavar="NAME=VALUE", help=flags.PROPERTY_HELP
    ),
]


def consume(
    names: NamesFlag = None,
    topic: TopicFlag = None,
    include: IncludeFlag = "",
    group: GroupFlag = "",
    partition: PartitionFlag = "",
    offset: OffsetFlag = None,
    from_beginning: FromBeginningFlag = False,
    from_: FromFlag = "",
    until: UntilFlag = "",
    max_messages: MaxMessagesFlag = None,
    exit_at_end: ExitAtEndFlag = False,
    timeout_ms: TimeoutMsFlag = None,
    format_: FormatFlag = "",
    key_separator: KeySeparatorFlag = None,
    delimiter: DelimiterFlag = "\\n",
    null: NullFlag = False,
    json_: JsonFlag = False,
    property_: PropertyFlag = None,
    isolation_level: IsolationLevelFlag = "read_uncommitted",
    quiet: QuietFlag = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: CommandConfigFlag = None,
    command_property: CommandPropertyFlag = None,
) -> None:
    """Read records, by default what comes from now on (kafka-console-consumer, kcat -C)."""
    patterns = [*(topic or ()), *(names or ())]
    if include:
        patterns.append("^" + include.removeprefix("^"))
    if not patterns:
        raise usage("consume needs a --topic")
    check_words(output, isolation_level)
    render = choose_render(
        format_,
        key_separator,
        delimiter,
        property_ or (),
        is_null_shown=null,
        is_json=json_ or output is OutputFormat.json,
    )
    from barnabas.cli.commands.offsets import parse_numbers
    from barnabas.cli.kafka.positions import parse_span

    span = parse_span(offset or (), from_, until, is_from_beginning=from_beginning, is_ending=exit_at_end)
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka.consuming import Reading, read

    reading = Reading(
        patterns=tuple(patterns),
        partitions=frozenset(parse_numbers(partition)) if partition else frozenset(),
        group=group,
        span=span,
        messages_max=max_messages,
        exits_at_end=exit_at_end,
        idle_seconds_max=None if timeout_ms is None else timeout_ms / 1000,
        isolation_level=isolation_level,
    )
    read(connection, reading, render, is_quiet=quiet)


app = flags.application(consume)


def check_words(output: OutputFormat, isolation_level: str) -> None:
    """Raise Refused for values that other commands have and this one does not."""
    if output is OutputFormat.yaml:
        raise usage("consume writes --output table or json")
    if isolation_level not in ("read_committed", "read_uncommitted"):
        raise usage(f"--isolation-level {isolation_level}: read_committed or read_uncommitted")


def choose_render(
    format_: str,
    key_separator: str | None,
    delimiter: str,
    properties: list[str] | tuple[()],
    *,
    is_null_shown: bool,
    is_json: bool,
) -> Render:
    """How records are written: JSON, a format, Kafka's properties, or value and delimiter."""
    from barnabas.cli.kafka.properties import parse_pairs
    from barnabas.cli.text import envelope, record_format
    from barnabas.cli.text.escapes import unescape

    if sum((bool(format_), bool(properties), is_json, key_separator is not None)) > 1:
        raise usage("one of --format, --key-separator, --property and --output json at a time")
    null = b"NULL" if is_null_shown else b""
    if is_json:
        return envelope.render_envelopes
    if format_:
        return record_format.compile_pieces(record_format.parse_format(format_, null))
    if properties:
        return record_format.compile_pieces(record_format.kafka_pieces(parse_pairs(properties, "--property")))
    separator = None if key_separator is None else unescape(key_separator)
    return record_format.compile_pieces(record_format.kcat_pieces(unescape(delimiter), separator, null))
