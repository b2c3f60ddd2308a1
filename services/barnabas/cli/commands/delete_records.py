"""`barnabas delete-records`: kafka-delete-records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, show_rows

COLUMNS: Final = (
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("lowWatermark", "LOW-WATERMARK", "green", is_number=True),
    Column("error", "ERROR", "red"),
)


def delete_records(
    name: flags.TopicWord = None,
    offset_json_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='{"partitions": [{"topic": , "partition": , "offset": }]}'),
    ] = None,
    topic: flags.Topic = "",
    partition: Annotated[int | None, typer.Option(min=0, help="The partition (with --topic).")] = None,
    offset: Annotated[
        int | None, typer.Option(min=-1, help="The first offset to keep; -1 deletes all there is.")
    ] = None,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
) -> None:
    """Delete records before an offset (kafka-delete-records)."""
    topic = flags.one_topic(name, topic, "delete-records")
    by_hand = (topic, partition, offset) != ("", None, None)
    if (offset_json_file is not None) == by_hand:
        raise usage("give --offset-json-file, or --topic, --partition and --offset")
    if offset_json_file is not None:
        asked = read_offsets_file(offset_json_file)
    elif not topic or partition is None or offset is None:
        raise usage("--topic, --partition and --offset belong together")
    else:
        asked = [(topic, partition, offset)]
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from confluent_kafka import TopicPartition

    from barnabas.cli.kafka import answers, errors

    wanted = [TopicPartition(*one) for one in asked]
    admin = connection.admin()
    check_there(connection.cluster(admin).topics, asked)
    deleted, failures = answers.sorted_out(admin.delete_records(wanted))
    rows: list[dict[str, Any]] = [
        {
            "topic": part.topic,
            "partition": part.partition,
            "lowWatermark": result.low_watermark,
            "error": None,
        }
        for part, result in deleted.items()
    ]
    rows += [
        {
            "topic": part.topic,
            "partition": part.partition,
            "lowWatermark": None,
            "error": errors.describe(error),
        }
        for part, error in failures.items()
    ]
    show_rows(rows, COLUMNS, output, title="deleted records")
    if failures:
        first = next(iter(failures.values()))
        raise Refused(f"{len(failures)} of {len(rows)} failed: {errors.describe_with_advice(first)}")


app = flags.application(delete_records)


def check_there(topics: Mapping[str, Any], asked: Iterable[tuple[str, int, int]]) -> None:
    """Raise Refused for what no cluster deletes, or does not have: librdkafka would say something else of it."""
    from barnabas.cli.kafka.topics import INTERNAL

    for name, number, _ in asked:
        if name in INTERNAL:
            raise Refused(
                f"{name} is the cluster's own: `barnabas groups --delete-offsets` forgets what a group committed; "
                "nothing was deleted"
            )
        if name not in topics:
            raise Refused(
                f"no topic {name}: `barnabas topics --list` shows what there is; nothing was deleted"
            )
        if number not in topics[name].partitions:
            raise Refused(
                f"topic {name} has no partition {number}: `barnabas topics --describe` shows what there is; "
                "nothing was deleted"
            )


def read_offsets_file(path: Path) -> list[tuple[str, int, int]]:
    """(topic, partition, offset) of each entry of kafka-delete-records' JSON."""
    try:
        document = json.loads(path.read_text())
        entries = [
            (str(one["topic"]), int(one["partition"]), int(one["offset"])) for one in document["partitions"]
        ]
    except OSError as error:
        raise usage(f"cannot read {path} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError) as error:
        raise usage(
            f'{path} is not of the form {{"partitions": [{{"topic": "t", "partition": 0, "offset": 9}}]}}'
        ) from error
    if len({entry[:2] for entry in entries}) < len(entries):
        raise usage(f"{path} names a partition twice")
    return entries
