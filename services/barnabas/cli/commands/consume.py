"""`barnabas consume`: kafka-console-consumer and `kcat -C`, `kcat -G`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.commands import flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.refusal import usage
from barnabas.cli.text.output import OutputFormat

if TYPE_CHECKING:
    from barnabas.cli.text.record_format import Render

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
JsonFlag = Annotated[bool, typer.Option("-J", help="JSON as kcat writes it.")]
OffsetShownFlag = Annotated[
    bool, typer.Option("-O", help="Print offsets in front, with the key separator between.")
]
FormatterConfigFlag = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Properties as of --property; those go before.")
]
FormatterFlag = Annotated[
    str,
    typer.Option(metavar="CLASS", help="Kafka's DefaultMessageFormatter, LoggingMessageFormatter or NoOp..."),
]
KeyDeserializerFlag = Annotated[
    str, typer.Option(metavar="CLASS", help="A Java deserializer, such as LongDeserializer.")
]
ValueDeserializerFlag = Annotated[str, typer.Option(metavar="CLASS", help="The same for values.")]
DecodeFlag = Annotated[
    list[str] | None,
    typer.Option(
        "-s", metavar="[key=|value=]LETTERS", help="Unpack as kcat does: < > b B h H i I q Q c s $."
    ),
]
SkipMessageOnErrorFlag = Annotated[
    bool, typer.Option("--skip-message-on-error", help="Leave out what cannot be decoded.")
]
UnbufferedFlag = Annotated[bool, typer.Option("-u", hidden=True, help="Output is never kept back.")]
SystestEventsFlag = Annotated[bool, typer.Option("--enable-systest-events", hidden=True, help="Refused.")]
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


@dataclass(frozen=True)
class FormatFlags:
    """How records are written; `render` is the only one who knows."""

    format_: FormatFlag = ""
    key_separator: KeySeparatorFlag = None
    delimiter: DelimiterFlag = "\\n"
    null: NullFlag = False
    json_: JsonFlag = False
    offset_shown: OffsetShownFlag = False
    property_: PropertyFlag = None
    formatter_config: FormatterConfigFlag = None
    formatter: FormatterFlag = ""
    key_deserializer: KeyDeserializerFlag = ""
    value_deserializer: ValueDeserializerFlag = ""
    decode: DecodeFlag = None
    skip_message_on_error: SkipMessageOnErrorFlag = False

    def render(self, *, is_json: bool) -> Render:
        """From messages to bytes. Raises Refused for what does not fit together."""
        from barnabas.cli.text import decoders

        properties = self.properties()
        key_name = properties.pop("key.deserializer", self.key_deserializer)
        value_name = properties.pop("value.deserializer", self.value_deserializer)
        for text in self.decode or ():
            side, separator, letters = text.partition("=")
            if separator and side not in ("key", "value"):
                raise usage(f"-s {text}: write key=LETTERS, value=LETTERS or LETTERS for both")
            if side == "avro" or letters == "avro":
                raise usage("-s avro needs a schema registry, which this command does not know")
            key_name = letters or key_name if separator and side == "key" else key_name
            value_name = letters or value_name if separator and side == "value" else value_name
            if not separator:
                key_name = value_name = text
        render = choose_render(self, properties, is_json=is_json)
        if not key_name and not value_name:
            return render
        return decoders.decoding(
            render,
            decoders.decoder(key_name) if key_name else None,
            decoders.decoder(value_name) if value_name else None,
            skips_errors=self.skip_message_on_error,
        )

    def properties(self) -> dict[str, str]:
        """Those of Kafka's formatter, from its file and its flags."""
        from barnabas.cli.kafka.properties import parse_pairs, parse_properties

        found = parse_properties(self.formatter_config.read_text()) if self.formatter_config else {}
        return found | parse_pairs(self.property_ or (), "--property")


@spread
def consume(
    formats: FormatFlags,
    names: flags.TopicWords = None,
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
    unbuffered: UnbufferedFlag = False,
    systest_events: SystestEventsFlag = False,
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
        raise usage("consume needs a topic: barnabas consume TOPIC")
    check_words(output, isolation_level)
    if systest_events:
        raise usage("--enable-systest-events is for Kafka's own system tests: use --output json")
    render = formats.render(is_json=output is OutputFormat.json)
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


def choose_render(formats: FormatFlags, properties: Mapping[str, str], *, is_json: bool) -> Render:
    """How records are written: JSON, a format, Kafka's properties or formatters, or value and delimiter."""
    from barnabas.cli.text import envelope, record_format
    from barnabas.cli.text.escapes import unescape

    has_separator = formats.key_separator is not None or formats.offset_shown
    ways = (formats.format_, properties or formats.formatter, is_json, formats.json_, has_separator)
    if sum(map(bool, ways)) > 1:
        raise usage(
            "one of --format, --key-separator, --property, --formatter, -J and --output json at a time"
        )
    null = b"NULL" if formats.null else b""
    if is_json:
        return envelope.render_envelopes
    if formats.json_:
        return envelope.render_kcat_envelopes
    if formats.format_:
        return record_format.compile_pieces(record_format.parse_format(formats.format_, null))
    if properties or formats.formatter:
        pieces = record_format.formatter_pieces(formats.formatter, properties)
        return record_format.compile_pieces(pieces)
    separator = None if formats.key_separator is None else unescape(formats.key_separator)
    pieces = record_format.kcat_pieces(
        unescape(formats.delimiter), separator, null, has_offset=formats.offset_shown
    )
    return record_format.compile_pieces(pieces)
