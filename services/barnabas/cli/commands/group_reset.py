"""`groups --reset-offsets`: which partitions, to where, and whether it is done or only shown."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

from barnabas.cli.commands.group_tables import committed_offsets
from barnabas.cli.kafka import answers
from barnabas.cli.kafka.connection import Connection
from barnabas.cli.kafka.offset_lookup import PartitionKey, clamped, look_up
from barnabas.cli.kafka.times import parse_duration, parse_time
from barnabas.cli.kafka.topics import parse_topic_partitions
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, say, show_rows
from barnabas.cli.text.progress import progress_bar
from barnabas.kernel.kafka_values import EARLIEST, LATEST

COLUMNS: Final = (
    Column("group", "GROUP", "cyan"),
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("newOffset", "NEW-OFFSET", "green", is_number=True),
)


@dataclass(frozen=True)
class Scope:
    """Which partitions: some topics', all that the group committed, or those in a file, which has offsets too."""

    topics: tuple[str, ...] = ()
    is_all_topics: bool = False
    from_file: Path | None = None


@dataclass(frozen=True)
class Way:
    """To where: exactly one is given, unless the scope is a file."""

    to_earliest: bool = False
    to_latest: bool = False
    to_current: bool = False
    to_offset: int | None = None
    shift_by: int | None = None
    to_datetime: str = ""
    by_duration: str = ""


def check(scope: Scope, way: Way) -> None:
    """Raise Refused unless there is one scope and one way."""
    ways = {
        "--to-earliest": way.to_earliest,
        "--to-latest": way.to_latest,
        "--to-current": way.to_current,
        "--to-offset": way.to_offset is not None,
        "--shift-by": way.shift_by is not None,
        "--to-datetime": bool(way.to_datetime),
        "--by-duration": bool(way.by_duration),
        "--from-file": scope.from_file is not None,
    }
    given = [flag for flag, is_given in ways.items() if is_given]
    if len(given) > 1:
        raise usage(f"groups --reset-offsets takes only one of {', '.join(given)}")
    if not given:
        raise usage(f"groups --reset-offsets needs one of {', '.join(ways)}")
    if scope.from_file is None and bool(scope.topics) == scope.is_all_topics:
        raise usage("groups --reset-offsets needs --topic or --all-topics")


def reset(
    connection: Connection,
    groups: Sequence[str],
    scope: Scope,
    way: Way,
    output: OutputFormat,
    *,
    is_executed: bool,
    is_exported: bool,
) -> None:
    """Show the new offsets of each group, and commit them when that is wanted."""
    check(scope, way)
    admin = connection.admin()
    found = answers.all_of(admin.describe_consumer_groups(list(groups)))
    active = [
        name
        for name, group in found.items()
        if group.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
    ]
    if active:
        raise Refused(
            f"group {', '.join(active)} is active, and only offsets of groups without members can be reset: stop its "
            "consumers first"
        )
    now = round(time.time() * 1000)
    rows: list[dict[str, Any]] = []
    with progress_bar("resetting offsets", len(groups)) as advance:
        for name in groups:
            offsets = _new_offsets(connection, admin, name, scope, way, now, is_only=len(groups) == 1)
            if is_executed and offsets:
                parts = [TopicPartition(*key, offset) for key, offset in sorted(offsets.items())]
                asked = [ConsumerGroupTopicPartitions(name, parts)]
                _check_parts(answers.all_of(admin.alter_consumer_group_offsets(asked))[name].topic_partitions)
            rows += [
                {"group": name, "topic": topic, "partition": partition, "newOffset": offset}
                for (topic, partition), offset in sorted(offsets.items())
            ]
            advance(1)
    if is_exported:
        write_csv(rows, with_group=len(groups) > 1)
    else:
        show_rows(rows, COLUMNS, output, title="new offsets")
    if not is_executed and not is_exported:
        say("nothing was changed: add --execute to do it")


def write_csv(rows: Iterable[Mapping[str, Any]], *, with_group: bool) -> None:
    """Kafka's export: topic,partition,offset, with the group in front where there are several."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for row in rows:
        fields = [row["topic"], row["partition"], row["newOffset"]]
        writer.writerow([row["group"], *fields] if with_group else fields)


def read_csv(path: Path, group: str, *, is_only: bool) -> dict[PartitionKey, int]:
    """The offsets of `group` in a file of topic,partition,offset or group,topic,partition,offset."""
    found: dict[PartitionKey, int] = {}
    try:
        with path.open(newline="") as lines:
            for row in csv.reader(lines):
                if not row:
                    continue
                owner, topic, partition, offset = row if len(row) == 4 else (group, *row)
                if len(row) == 3 and not is_only:
                    raise usage(
                        f"{path} names no groups: give one --group, or lines group,topic,partition,offset"
                    )
                if owner == group:
                    found[topic, int(partition)] = int(offset)
    except OSError as error:
        raise usage(f"cannot read {path} ({error.strerror})") from error
    except ValueError as error:
        raise usage(f"{path} is not lines of [group,]topic,partition,offset") from error
    return found


def _new_offsets(
    connection: Connection, admin: Any, group: str, scope: Scope, way: Way, now: int, *, is_only: bool
) -> dict[PartitionKey, int]:
    if scope.from_file is not None:
        return clamped(read_csv(scope.from_file, group, is_only=is_only), admin)
    committed = committed_offsets(admin, group)
    partitions = _partitions(connection, admin, scope, committed)
    if way.to_earliest:
        return look_up(admin, partitions, EARLIEST)
    if way.to_latest:
        return look_up(admin, partitions, LATEST)
    if way.to_offset is not None:
        return clamped(dict.fromkeys(partitions, way.to_offset), admin)
    if way.shift_by is not None:
        missing = [f"{topic}-{number}" for topic, number in partitions if (topic, number) not in committed]
        if missing:
            raise Refused(f"group {group} has no offset of {', '.join(missing)} to shift: use --to-offset")
        return clamped({key: committed[key] + way.shift_by for key in partitions}, admin)
    if way.to_current:
        ends = look_up(admin, [key for key in partitions if key not in committed], LATEST)
        return {**ends, **clamped({key: committed[key] for key in partitions if key in committed}, admin)}
    by_time = parse_time(way.to_datetime, now) if way.to_datetime else None
    timestamp = now - parse_duration(way.by_duration) if by_time is None else by_time
    found = look_up(admin, partitions, timestamp)
    ends = look_up(admin, [key for key, offset in found.items() if offset < 0], LATEST)
    return {**found, **ends}


def _partitions(
    connection: Connection, admin: Any, scope: Scope, committed: Iterable[PartitionKey]
) -> list[PartitionKey]:
    topics = connection.cluster(admin).topics
    if scope.is_all_topics:
        return sorted(key for key in committed if key[0] in topics)
    partitions: set[PartitionKey] = set()
    for text in scope.topics:
        for topic, numbers in parse_topic_partitions(text).items():
            if topic not in topics:
                raise Refused(f"no topic {topic}: `barnabas topics --list` shows what there is")
            there = set(topics[topic].partitions)
            if numbers is not None and numbers - there:
                raise Refused(
                    f"topic {topic} has no partition {min(numbers - there)}: `barnabas topics --describe --topic "
                    f"{topic}` shows what there is"
                )
            partitions.update((topic, number) for number in (there if numbers is None else numbers))
    return sorted(partitions)


def _check_parts(parts: Iterable[Any]) -> None:
    failed = [f"{part.topic}-{part.partition}: {part.error}" for part in parts if part.error is not None]
    if failed:
        raise Refused(f"not every offset was committed: {'; '.join(failed)}")
