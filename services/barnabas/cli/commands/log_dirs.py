"""`barnabas log-dirs`: kafka-log-dirs, and moves between the log directories of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.commands.log_dir_moves import MoveFlags
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, show_rows

COLUMNS: Final = (
    Column("broker", "BROKER", is_number=True),
    Column("logDir", "LOG-DIR"),
    Column("isCordoned", "CORDONED"),
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("size", "BYTES", "green", is_number=True),
    Column("offsetLag", "OFFSET-LAG", is_number=True),
    Column("isFuture", "FUTURE"),
    Column("error", "ERROR", "red"),
)


@spread
def log_dirs(
    action: Annotated[
        str | None, typer.Argument(help="describe, move or even; or as a flag.", show_default=False)
    ] = None,
    names: flags.TopicWords = None,
    describe: Annotated[bool, typer.Option("--describe", help="Show what lies where.")] = False,
    move: Annotated[bool, typer.Option("--move", help="Move replicas to another directory.")] = False,
    even: Annotated[
        bool, typer.Option("--even", help="Empty cordoned directories, even out the others.")
    ] = False,
    broker_list: Annotated[str, typer.Option(metavar="0,1", help="Only these brokers.")] = "",
    topic_list: Annotated[str, typer.Option(metavar="A,B", help="Only these topics.")] = "",
    output: flags.Output = OutputFormat.table,
    *,
    moves: MoveFlags,
    cluster: flags.ClusterFlags,
) -> None:
    """Show the brokers' log directories and the bytes in them (kafka-log-dirs); move replicas between those of one."""
    what = flags.chosen({"describe": describe, "move": move, "even": even}, action, "log-dirs")
    named = [*(word.strip() for word in topic_list.split(",")), *(names or ())]
    topics = {name for name in named if name}
    moves.check(what, is_of_topics=bool(topics), is_of_brokers=bool(broker_list))
    if what == "describe":
        _describe(cluster, broker_list, topics, output)
        return
    from barnabas.cli.commands.log_dir_moves import move_replicas

    move_replicas(cluster, what, topics, moves, output)


def _describe(cluster: flags.ClusterFlags, broker_list: str, topics: set[str], output: OutputFormat) -> None:
    from barnabas.cli.kafka import requests

    connection = cluster.connect()
    known = connection.cluster(connection.admin())
    brokers = known.brokers
    if not all(word.strip().isdigit() for word in broker_list.split(",") if broker_list):
        raise usage(f"--broker-list {broker_list}: write broker ids with commas")
    wanted = [int(word) for word in broker_list.split(",")] if broker_list else sorted(brokers)
    missing = [str(number) for number in wanted if number not in brokers]
    if missing:
        raise usage(f"no broker {', '.join(missing)}: `barnabas cluster brokers` shows what there is")
    check_topics(topics, known.topics)
    rows = []
    for number in wanted:
        results = requests.describe_log_dirs(connection, brokers[number].host, brokers[number].port)
        for result in results:
            rows += directory_rows(number, result, topics)
    show_rows(rows, COLUMNS, output, title="log directories")


app = flags.application(log_dirs)


def check_topics(wanted: set[str], known: Sequence[str] | dict[str, Any]) -> None:
    """Raise Refused for topics that are not there."""
    unknown = sorted(wanted.difference(known))
    if unknown:
        raise Refused(f"no topic {', '.join(unknown)}: `barnabas topics --list` shows what there is")


def directory_rows(broker: int, result: Any, topics: set[str]) -> list[dict[str, Any]]:
    """A row for each partition of one directory, or one row for a directory that has none, or an error."""
    directory = {
        "broker": broker,
        "logDir": result.log_dir,
        "isCordoned": getattr(result, "is_cordoned", None),  # brokers before 4.3 do not say so
    }
    if result.error_code != 0:
        return [directory | {"isCordoned": None, "error": result.error_code.name.upper()}]
    rows = [
        directory
        | {
            "topic": topic.name,
            "partition": part.partition_index,
            "size": part.partition_size,
            "offsetLag": part.offset_lag,
            "isFuture": part.is_future_key,
            "error": None,
        }
        for topic in sorted(result.topics, key=lambda topic: str(topic.name))
        if not topics or topic.name in topics
        for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
    ]
    return rows or ([directory | {"error": None}] if not topics else [])
