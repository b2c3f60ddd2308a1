"""`barnabas perf`: kafka-producer-perf-test and kafka-consumer-perf-test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.cli.commands import flags
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


NumRecordsFlag = Annotated[int, typer.Option(min=1, help="How many records.")]
RecordSizeFlag = Annotated[int | None, typer.Option(min=1, metavar="BYTES", help="Bytes of each value.")]
PayloadFileFlag = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Values to choose from at random instead.")
]
PayloadDelimiterFlag = Annotated[str, typer.Option(metavar="TEXT", help="Between the file's values.")]
ThroughputFlag = Annotated[
    float, typer.Option(metavar="RECORDS/S", help="At most so many a second; -1 for no limit.")
]
ProducerPropsFlag = Annotated[
    list[str] | None,
    typer.Option("--producer-props", metavar="NAME=VALUE", help="Client properties; repeatable, or k=v,k=v."),
]
PrintMetricsFlag = Annotated[
    bool, typer.Option("--print-metrics", help="librdkafka's own counters at the end.")
]
CommandConfigFlag = Annotated[
    flags.ConfigFile,
    typer.Option("--command-config", "--producer.config", metavar="FILE", help=flags.CONFIG_HELP),
]


@app.command()
def produce(
    topic: flags.Topic = "",
    num_records: NumRecordsFlag = 100_000,
    record_size: RecordSizeFlag = None,
    payload_file: PayloadFileFlag = None,
    payload_delimiter: PayloadDelimiterFlag = "\\n",
    throughput: ThroughputFlag = -1,
    producer_props: ProducerPropsFlag = None,
    print_metrics: PrintMetricsFlag = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: CommandConfigFlag = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Send records, as fast as it goes or at a rate (kafka-producer-perf-test)."""
    if not topic:
        raise usage("perf produce needs a --topic")
    if (record_size is None) == (payload_file is None):
        raise usage("give --record-size or --payload-file")
    properties = [*(command_property or ()), *split_properties(producer_props)]
    connection = flags.connect(bootstrap_server, command_config, properties)
    from barnabas.cli.commands import perf_produce

    payloads = perf_produce.payloads_of(record_size, payload_file, payload_delimiter)
    perf_produce.run(
        connection,
        topic,
        payloads,
        num_records,
        throughput,
        output,
        shows_metrics=print_metrics,
    )


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


@app.command()
def consume(
    topic: flags.Topic = "",
    messages: MessagesFlag = 100_000,
    group: GroupFlag = "",
    timeout: TimeoutFlag = 10_000,
    from_latest: FromLatestFlag = False,
    show_detailed_stats: ShowDetailedStatsFlag = False,
    reporting_interval: ReportingIntervalFlag = 5000,
    print_metrics: PrintMetricsFlag = False,
    consumer_props: ConsumerPropsFlag = None,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: ConsumeCommandConfigFlag = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Read records and throw them away (kafka-consumer-perf-test)."""
    if not topic:
        raise usage("perf consume needs a --topic")
    properties = [*(command_property or ()), *split_properties(consumer_props)]
    connection = flags.connect(bootstrap_server, command_config, properties)
    from barnabas.cli.commands import perf_consume

    plan = perf_consume.Plan(
        topic=topic,
        records=messages,
        group=group,
        idle_seconds_max=timeout / 1000,
        starts_at_end=from_latest,
        interval_seconds=reporting_interval / 1000 if show_detailed_stats else None,
        shows_metrics=print_metrics,
    )
    perf_consume.run(connection, plan, output, CONSUMER_COLUMNS)


def split_properties(words: list[str] | None) -> list[str]:
    """`acks=1,linger.ms=5` as well as one property a flag; a comma before a word without = belongs to the value."""
    found: list[str] = []
    for word in words or ():
        for part in word.split(","):
            if "=" in part or not found:
                found.append(part)
            else:
                found[-1] += f",{part}"
    return found
