"""`barnabas perf`: kafka-producer-perf-test and kafka-consumer-perf-test."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.commands.perf_flags import (
    CommandConfigFlag,
    PaceFlags,
    PayloadFlags,
    PrintMetricsFlag,
    ProducerPropsFlag,
)
from barnabas.cli.commands.shell_command import OptionalValue, ShellCommand
from barnabas.cli.refusal import usage
from barnabas.cli.text.output import Column, OutputFormat

app = typer.Typer(
    help="Measure how fast records are sent and read.",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

CONSUMER_COLUMNS: Final = (
    Column("start.time", "START"),
    Column("end.time", "END"),
    Column("data.consumed.in.MB", "MB", is_number=True),
    Column("MB.sec", "MB/S", "green", is_number=True),
    Column("data.consumed.in.nMsg", "RECORDS", is_number=True),
    Column("nMsg.sec", "RECORDS/S", "green", is_number=True),
    Column("rebalance.time.ms", "REBALANCE-MS", is_number=True),
    Column("fetch.time.ms", "FETCH-MS", is_number=True),
    Column("fetch.MB.sec", "FETCH-MB/S", is_number=True),
    Column("fetch.nMsg.sec", "FETCH-RECORDS/S", is_number=True),
)


ProduceWordsFlag = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC] [NAME=VALUE]...",
        help="The topic, or --topic; and more of --producer-props, as Kafka's tool has them.",
        show_default=False,
        autocompletion=flags.complete_topic,
    ),
]


@app.command(cls=ShellCommand)
@spread
def produce(
    payload: PayloadFlags,
    pace: PaceFlags,
    words: ProduceWordsFlag = None,
    topic: flags.Topic = "",
    producer_props: ProducerPropsFlag = None,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: CommandConfigFlag = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Send records, as fast as it goes or at a rate (kafka-producer-perf-test)."""
    # No topic has = in its name.
    property_words = [word for word in words or () if "=" in word]
    for name in (word for word in words or () if "=" not in word):
        topic = flags.one_topic(name, topic, "perf produce")
    if not topic:
        raise usage("perf produce needs a topic: barnabas perf produce TOPIC")
    payload.check()
    pace.check()
    properties = [
        *(command_property or ()),
        *split_properties([*(producer_props or ()), *property_words], "--producer-props"),
    ]
    connection = flags.connect(bootstrap_server, command_config, properties)
    from barnabas.cli.commands import perf_produce

    payloads = perf_produce.payloads_of(payload.record_size, payload.payload_file, payload.payload_delimiter)
    perf_produce.run(connection, topic, payloads, pace, output)


MessagesFlag = Annotated[int, typer.Option("--messages", "--num-records", min=1, help="How many records.")]
GroupFlag = Annotated[str, typer.Option(help="The group; default: one of its own.")]
TimeoutFlag = Annotated[int, typer.Option(metavar="MS", min=1, help="End when nothing came so long.")]
FromLatestFlag = Annotated[bool, typer.Option("--from-latest", help="Start at the end.")]
ShowDetailedStatsFlag = Annotated[
    bool, typer.Option("--show-detailed-stats", help="A line for each interval.")
]
ReportingIntervalFlag = Annotated[int, typer.Option(metavar="MS", min=1, help="How long that is.")]
ConsumerPropsFlag = Annotated[
    list[str] | None,
    typer.Option("--consumer-props", metavar="NAME=VALUE", help="Client properties; repeatable, or k=v,k=v."),
]
ConsumeCommandConfigFlag = Annotated[
    flags.ConfigFile,
    typer.Option("--command-config", "--consumer.config", metavar="FILE", help=flags.CONFIG_HELP),
]


@dataclass(frozen=True)
class ShownFlags:
    """What is printed of a reading run."""

    show_detailed_stats: ShowDetailedStatsFlag = False
    reporting_interval: ReportingIntervalFlag = 5000
    hide_header: Annotated[bool, typer.Option("--hide-header", help="No titles.")] = False
    date_format: Annotated[
        str, typer.Option(metavar="PATTERN", help="How times are written, as Java's SimpleDateFormat.")
    ] = "yyyy-MM-dd HH:mm:ss:SSS"
    print_metrics: PrintMetricsFlag = False


class ConsumeCommand(ShellCommand):
    """Kafka's --timeout alone is its default."""

    optional_values: ClassVar = {
        "--timeout": OptionalValue("--timeout", (), lambda text: not text.startswith("-"))
    }


@app.command(cls=ConsumeCommand)
@spread
def consume(
    shown: ShownFlags,
    name: flags.TopicWord = None,
    topic: flags.Topic = "",
    include: Annotated[str, typer.Option(metavar="REGEX", help="Topics by regular expression.")] = "",
    messages: MessagesFlag = 100_000,
    group: GroupFlag = "",
    timeout: TimeoutFlag = 10_000,
    from_latest: FromLatestFlag = False,
    fetch_size: Annotated[
        int | None, typer.Option(min=1, metavar="BYTES", help="As max.partition.fetch.bytes.")
    ] = None,
    socket_buffer_size: Annotated[
        int | None, typer.Option(min=0, metavar="BYTES", help="As receive.buffer.bytes.")
    ] = None,
    consumer_props: ConsumerPropsFlag = None,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: ConsumeCommandConfigFlag = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Read records and throw them away (kafka-consumer-perf-test)."""
    topic = flags.one_topic(name, topic, "perf consume")
    if bool(topic) == bool(include):
        raise usage("perf consume needs a topic, or --include with a regular expression")
    properties = [*(command_property or ()), *split_properties(consumer_props, "--consumer-props")]
    connection = flags.connect(bootstrap_server, command_config, properties)
    from barnabas.cli.commands import perf_consume

    sizes = {"max.partition.fetch.bytes": fetch_size, "socket.receive.buffer.bytes": socket_buffer_size}
    plan = perf_consume.Plan(
        topic=topic or "^" + include.removeprefix("^"),
        records=messages,
        group=group,
        idle_seconds_max=timeout / 1000,
        starts_at_end=from_latest,
        interval_seconds=shown.reporting_interval / 1000 if shown.show_detailed_stats else None,
        shows_metrics=shown.print_metrics,
        shows_header=not shown.hide_header,
        time_format=java_time_format(shown.date_format),
        settings={name: value for name, value in sizes.items() if value is not None},
    )
    perf_consume.run(connection, plan, output, CONSUMER_COLUMNS)


JAVA_TIME_LETTERS: Final = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%f",
    "a": "%p",
    "hh": "%I",
    "EEE": "%a",
    "MMM": "%b",
}


def java_time_format(pattern: str) -> str:
    """Java's SimpleDateFormat as strftime's, with %f for milliseconds. Raises Refused for letters not known."""
    found = ""
    for match in re.finditer(
        r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>.)", pattern
    ):
        letters = match["letters"]
        if letters and letters not in JAVA_TIME_LETTERS:
            raise usage(f"--date-format has {letters}, which is not known: {', '.join(JAVA_TIME_LETTERS)}")
        found += (
            JAVA_TIME_LETTERS[letters] if letters else (match["quoted"] or match["other"]).replace("%", "%%")
        )
    return found


def split_properties(words: list[str] | None, flag: str) -> list[str]:
    """`acks=1,linger.ms=5` as well as one property a flag; a comma before a word without = belongs to the value.

    Raises Refused that names `flag` for a word that is no property.
    """
    found: list[str] = []
    for word in words or ():
        if "=" not in word.partition(",")[0]:
            raise usage(f"{flag} {word!r} has no value: write it as NAME=VALUE")
        for part in word.split(","):
            if "=" in part:
                found.append(part)
            else:
                found[-1] += f",{part}"
    return found
