"""What `groups --list` and `groups --describe` show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType

from barnabas.cli.kafka import answers
from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX, Connection
from barnabas.cli.kafka.offset_lookup import PartitionKey, look_up
from barnabas.cli.refusal import Refused, usage
from barnabas.cli.text.output import Column, OutputFormat, say, show_rows
from barnabas.kernel.kafka_values import LATEST

STATES: Final = {
    ConsumerGroupState.UNKNOWN: "Unknown",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
TYPES: Final = {
    ConsumerGroupType.UNKNOWN: "Unknown",
    ConsumerGroupType.CONSUMER: "Consumer",
    ConsumerGroupType.CLASSIC: "Classic",
}
LIST_COLUMNS: Final = (
    Column("group", "GROUP", "cyan"),
    Column("type", "TYPE"),
    Column("state", "STATE", "green"),
)
OFFSET_COLUMNS: Final = (
    Column("group", "GROUP", "cyan"),
    Column("topic", "TOPIC", "cyan"),
    Column("partition", "PARTITION", is_number=True),
    Column("currentOffset", "CURRENT-OFFSET", is_number=True),
    Column("logEndOffset", "LOG-END-OFFSET", is_number=True),
    Column("lag", "LAG", "yellow", is_number=True),
    Column("consumerId", "CONSUMER-ID"),
    Column("host", "HOST"),
    Column("clientId", "CLIENT-ID"),
)
MEMBER_COLUMNS: Final = (
    Column("group", "GROUP", "cyan"),
    Column("consumerId", "CONSUMER-ID"),
    Column("groupInstanceId", "GROUP-INSTANCE-ID"),
    Column("host", "HOST"),
    Column("clientId", "CLIENT-ID"),
    Column("partitionCount", "#PARTITIONS", is_number=True),
)
ASSIGNMENT_COLUMN: Final = Column("assignment", "ASSIGNMENT")
STATE_COLUMNS: Final = (
    Column("group", "GROUP", "cyan"),
    Column("coordinator", "COORDINATOR (ID)"),
    Column("assignmentStrategy", "ASSIGNMENT-STRATEGY"),
    Column("state", "STATE", "green"),
    Column("type", "TYPE"),
    Column("memberCount", "#MEMBERS", is_number=True),
)


def list_groups(
    connection: Connection, states: str, types: str, output: OutputFormat, *, with_columns: bool
) -> None:
    """Names, one a line in a pipe; with their type and state where these, or only some of them, are asked for."""
    wanted = parse_states(word.strip() for word in states.split(",") if word.strip())
    kept = parse_types(word.strip() for word in types.split(",") if word.strip())
    rows = [
        {
            "group": listing.group_id,
            "type": TYPES.get(listing.type, "Unknown"),
            "state": STATES.get(listing.state, "Unknown"),
        }
        for listing in _listings(connection, wanted)
        if not kept or TYPES.get(listing.type, "Unknown") in kept
    ]
    plain = None if with_columns or wanted or kept else (lambda row: str(row["group"]))
    show_rows(rows, LIST_COLUMNS, output, title="groups", plain_line=plain)


def parse_states(words: Iterable[str]) -> set[ConsumerGroupState]:
    """Kafka's names of states, in any case."""
    words = list(words)
    known = {name.lower(): state for state, name in STATES.items()}
    unknown = [word for word in words if word.lower() not in known]
    if unknown:
        raise usage(f"--state {','.join(unknown)}: one of {', '.join(STATES.values())}")
    return {known[word.lower()] for word in words}


def parse_types(words: Iterable[str]) -> set[str]:
    """Kafka's names of group types, in any case. Raises Refused for those that librdkafka does not see."""
    known = {name.lower(): name for name in TYPES.values()}
    found = set()
    for word in words:
        if word.lower() in ("share", "streams"):
            raise usage(f"{word.lower()} groups are not seen by this command: use kafka-groups for them")
        if word.lower() not in known:
            raise usage(f"--type {word}: one of {', '.join(known)}")
        found.add(known[word.lower()])
    return found


def group_names(connection: Connection) -> list[str]:
    return [listing.group_id for listing in _listings(connection, set())]


def describe_groups(
    connection: Connection, names: Sequence[str], view: str, output: OutputFormat, *, is_verbose: bool
) -> None:
    """One table for all the groups. Raises Refused when one does not exist."""
    if not names:
        show_rows([], LIST_COLUMNS, output, title="groups")
        return
    admin = connection.admin()
    found, failures = answers.sorted_out(admin.describe_consumer_groups(list(names)))
    described = [found[name] for name in names if name in found]
    rows: list[dict[str, Any]] = []
    missing = []
    for group in described:
        offsets = committed_offsets(admin, group.group_id)
        if group.state == ConsumerGroupState.DEAD and not offsets:
            missing.append(group.group_id)
            continue
        if view == "offsets":
            rows += offset_rows(group, offsets, ends_of(admin, group, offsets))
        elif view == "members":
            rows += [member_row(group, member) for member in group.members]
        else:
            rows.append(state_row(group))
        if not group.members and view != "state":
            say(f"group {group.group_id} has no active members")
    columns = {
        "offsets": OFFSET_COLUMNS,
        "members": (*MEMBER_COLUMNS, ASSIGNMENT_COLUMN) if is_verbose else MEMBER_COLUMNS,
        "state": STATE_COLUMNS,
    }[view]
    if rows or output is not OutputFormat.table:
        show_rows(rows, columns, output, title="groups")
    answers.raise_failures(failures, "cannot describe group")
    if missing:
        raise Refused(f"no group {', '.join(missing)}: `barnabas groups --list` shows what there is")


def committed_offsets(admin: Any, group: str) -> dict[PartitionKey, int]:
    """What the group committed; partitions without a commit are left out."""
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = answers.all_of(admin.list_consumer_group_offsets(asked, require_stable=False))[group]
    return {
        (part.topic, part.partition): part.offset
        for part in answer.topic_partitions
        if part.error is None and part.offset >= 0
    }


def assigned(member: Any) -> list[PartitionKey]:
    """The partitions that a member has now."""
    parts = member.assignment.topic_partitions if member.assignment else []
    return sorted((part.topic, part.partition) for part in parts)


def ends_of(admin: Any, group: Any, offsets: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """The log end offset of everything committed or assigned; without those of deleted topics."""
    wanted = {*offsets, *(key for member in group.members for key in assigned(member))}
    there = admin.list_topics(timeout=ANSWER_SECONDS_MAX).topics
    return look_up(
        admin, [key for key in wanted if key[0] in there and key[1] in there[key[0]].partitions], LATEST
    )


def offset_rows(
    group: Any, offsets: dict[PartitionKey, int], ends: dict[PartitionKey, int]
) -> list[dict[str, Any]]:
    """A row for each partition that is assigned or has a commit."""
    owners = {key: member for member in group.members for key in assigned(member)}
    rows = []
    for topic, partition in sorted({*offsets, *owners}):
        key = (topic, partition)
        current, end, owner = offsets.get(key), ends.get(key), owners.get(key)
        rows.append(
            {
                "group": group.group_id,
                "topic": topic,
                "partition": partition,
                "currentOffset": current,
                "logEndOffset": end,
                "lag": None if current is None or end is None else max(end - current, 0),
                "consumerId": owner.member_id if owner else None,
                "host": owner.host if owner else None,
                "clientId": owner.client_id if owner else None,
            }
        )
    return rows


def member_row(group: Any, member: Any) -> dict[str, Any]:
    parts: dict[str, list[int]] = {}
    for topic, partition in assigned(member):
        parts.setdefault(topic, []).append(partition)
    return {
        "group": group.group_id,
        "consumerId": member.member_id,
        "groupInstanceId": member.group_instance_id,
        "host": member.host,
        "clientId": member.client_id,
        "partitionCount": sum(map(len, parts.values())),
        "assignment": [f"{topic}({','.join(map(str, numbers))})" for topic, numbers in parts.items()],
    }


def state_row(group: Any) -> dict[str, Any]:
    node = group.coordinator
    return {
        "group": group.group_id,
        "coordinator": f"{node.host}:{node.port} ({node.id})" if node else None,
        "assignmentStrategy": group.partition_assignor,
        "state": STATES.get(group.state, "Unknown"),
        "type": TYPES.get(group.type, "Unknown"),
        "memberCount": len(group.members),
    }


def _listings(connection: Connection, states: set[ConsumerGroupState]) -> list[Any]:
    admin = connection.admin()
    more = {"states": states} if states else {}
    result = admin.list_consumer_groups(**more).result(ANSWER_SECONDS_MAX)
    if result.errors:
        raise result.errors[0]
    return sorted(result.valid, key=lambda listing: str(listing.group_id))
