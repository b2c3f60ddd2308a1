"""`barnabas log-dirs`: kafka-log-dirs."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, show_rows

COLUMNS: Final = (
    Column("broker", "BROKER", is_number=True),
    Column("logDir", "LOG-DIR"),
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("size", "BYTES", "green", is_number=True),
    Column("offsetLag", "OFFSET-LAG", is_number=True),
    Column("isFuture", "FUTURE"),
    Column("error", "ERROR", "red"),
)


def log_dirs(
    action: Annotated[str | None, typer.Argument(help="describe; or as a flag.", show_default=False)] = None,
    names: flags.TopicWords = None,
    describe: Annotated[bool, typer.Option("--describe", help="Show what lies where.")] = False,
    broker_list: Annotated[str, typer.Option(metavar="0,1", help="Only these brokers.")] = "",
    topic_list: Annotated[str, typer.Option(metavar="A,B", help="Only these topics.")] = "",
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Show the brokers' log directories and the bytes in them (kafka-log-dirs)."""
    flags.chosen({"describe": describe}, action, "log-dirs")
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka import requests

    cluster = connection.cluster(connection.admin())
    brokers = cluster.brokers
    if not all(word.strip().isdigit() for word in broker_list.split(",") if broker_list):
        raise usage(f"--broker-list {broker_list}: write broker ids with commas")
    wanted = [int(word) for word in broker_list.split(",")] if broker_list else sorted(brokers)
    missing = [str(number) for number in wanted if number not in brokers]
    if missing:
        raise usage(f"no broker {', '.join(missing)}: `barnabas cluster brokers` shows what there is")
    named = [*(word.strip() for word in topic_list.split(",")), *(names or ())]
    topics = {name for name in named if name} or None
    unknown = sorted((topics or set()) - cluster.topics.keys())
    if unknown:
        raise Refused(f"no topic {', '.join(unknown)}: `barnabas topics --list` shows what there is")
    rows = []
    for number in wanted:
        results = requests.describe_log_dirs(connection, brokers[number].host, brokers[number].port)
        for result in results:
            rows += directory_rows(number, result, topics)
    show_rows(rows, COLUMNS, output, title="log directories")


app = flags.application(log_dirs)


def directory_rows(broker: int, result: Any, topics: set[str] | None) -> list[dict[str, Any]]:
    """A row for each partition of one directory, or one row for a directory that has an error."""
    if result.error_code != 0:
        name = result.error_code.name.upper()
        return [{"broker": broker, "logDir": result.log_dir, "error": name}]
    return [
        {
            "broker": broker,
            "logDir": result.log_dir,
            "topic": topic.name,
            "partition": part.partition_index,
            "size": part.partition_size,
            "offsetLag": part.offset_lag,
            "isFuture": part.is_future_key,
            "error": None,
        }
        for topic in sorted(result.topics, key=lambda topic: str(topic.name))
        if topics is None or topic.name in topics
        for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
    ]
