"""`barnabas topics`: kafka-topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.commands.carrying_out import Pace
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.commands.topic_flags import TopicFlags
from barnabas.cli.refusal import usage
from barnabas.cli.text.output import Column, OutputFormat, say, show_rows

if TYPE_CHECKING:
    from barnabas.cli.kafka.connection import Connection

LIST_COLUMNS: Final = (
    Column("topic", "TOPIC", "cyan"),
    Column("partitions", "PARTITIONS", is_number=True),
    Column("replicationFactor", "REPLICAS", is_number=True),
    Column("internal", "INTERNAL"),
)


ActionFlag = Annotated[
    str | None,
    typer.Argument(help="create, delete, describe, list or alter; or as flags.", show_default=False),
]
CreateFlag = Annotated[bool, typer.Option("--create", help="Create a topic.")]
DeleteFlag = Annotated[bool, typer.Option("--delete", help="Delete topics.")]
DescribeFlag = Annotated[bool, typer.Option("--describe", help="Show partitions, replicas, configs.")]
ListFlag = Annotated[bool, typer.Option("--list", help="List the names.")]
AlterFlag = Annotated[bool, typer.Option("--alter", help="Add partitions, change configs, or the replicas.")]
PartitionsFlag = Annotated[int | None, typer.Option(min=1, help="How many partitions (in total).")]
ReplicationFactorFlag = Annotated[int | None, typer.Option(min=1, help="How many replicas of each.")]
ReplicaAssignmentFlag = Annotated[
    str, typer.Option(metavar="0:1,1:2", help="Brokers of each partition's replicas, by hand.")
]
ConfigFlag = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A topic config; repeatable.")
]
DeleteConfigFlag = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Back to the default (with --alter).")
]
IfExistsFlag = Annotated[bool, typer.Option("--if-exists", help="Nothing to do is no error.")]
IfNotExistsFlag = Annotated[bool, typer.Option("--if-not-exists", help="The topic may be there.")]
ExcludeInternalFlag = Annotated[bool, typer.Option("--exclude-internal", help="Without Kafka's own.")]
UnderReplicatedPartitionsFlag = Annotated[
    bool, typer.Option("--under-replicated-partitions", help="Those with replicas out of sync.")
]
UnavailablePartitionsFlag = Annotated[
    bool, typer.Option("--unavailable-partitions", help="Those without a leader.")
]
UnderMinIsrPartitionsFlag = Annotated[
    bool, typer.Option("--under-min-isr-partitions", help="Those below min.insync.replicas.")
]
AtMinIsrPartitionsFlag = Annotated[
    bool, typer.Option("--at-min-isr-partitions", help="Those exactly at min.insync.replicas.")
]
TopicsWithOverridesFlag = Annotated[
    bool, typer.Option("--topics-with-overrides", help="Those with configs of their own.")
]
TopicIdFlag = Annotated[str, typer.Option(metavar="ID", help="With --describe: the topic of this id.")]
PartitionSizeLimitFlag = Annotated[
    int | None,
    typer.Option(
        "--partition-size-limit-per-response", min=1, hidden=True, help="Not needed: answers are not split."
    ),
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Let the cluster check, change nothing.")]


@dataclass(frozen=True)
class FilterFlags:
    """What --describe leaves out."""

    under_replicated_partitions: UnderReplicatedPartitionsFlag = False
    unavailable_partitions: UnavailablePartitionsFlag = False
    under_min_isr_partitions: UnderMinIsrPartitionsFlag = False
    at_min_isr_partitions: AtMinIsrPartitionsFlag = False
    topics_with_overrides: TopicsWithOverridesFlag = False


@spread
def topics(
    filters: FilterFlags,
    action: ActionFlag = None,
    names: flags.TopicWords = None,
    create: CreateFlag = False,
    delete: DeleteFlag = False,
    describe: DescribeFlag = False,
    list_: ListFlag = False,
    alter: AlterFlag = False,
    topic: flags.Topics = None,
    partitions: PartitionsFlag = None,
    replication_factor: ReplicationFactorFlag = None,
    replica_assignment: ReplicaAssignmentFlag = "",
    config: ConfigFlag = None,
    delete_config: DeleteConfigFlag = None,
    if_exists: IfExistsFlag = False,
    if_not_exists: IfNotExistsFlag = False,
    exclude_internal: ExcludeInternalFlag = False,
    topic_id: TopicIdFlag = "",
    partition_size_limit: PartitionSizeLimitFlag = None,
    dry_run: DryRunFlag = False,
    output: flags.Output = OutputFormat.table,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: flags.CommandConfig = None,
    command_property: flags.CommandProperty = None,
    *,
    pace: Pace,
) -> None:
    """Create, delete, describe, list and alter topics (kafka-topics)."""
    given = {"create": create, "delete": delete, "describe": describe, "list": list_, "alter": alter}
    what = flags.chosen(given, action, "topics")
    more = TopicFlags(
        partitions,
        replication_factor,
        replica_assignment,
        config or (),
        delete_config or (),
        if_exists,
        if_not_exists,
        exclude_internal,
        dry_run,
        frozenset(name.replace("_", "-") for name, is_set in vars(filters).items() if is_set),
        pace,
        topic_id,
    )
    wanted = [*(topic or ()), *(names or ())]
    check(what, wanted, more)
    connection = flags.connect(bootstrap_server, command_config, command_property)
    _run(connection, what, wanted, more, output)


app = flags.application(topics)


def check(what: str, wanted: Sequence[str], more: TopicFlags) -> None:
    """Raise Refused for flags that say nothing to the action, as Kafka's tool does."""
    if not wanted and what in ("create", "delete", "alter"):
        raise usage(f"topics --{what} needs a --topic")
    if what == "create" and more.replica_assignment and (more.partitions or more.replication_factor):
        raise usage(
            "--replica-assignment says how many partitions and replicas there are: leave --partitions and "
            "--replication-factor out"
        )
    is_reassigning = what == "alter" and more.replication_factor is not None
    if more.pace != Pace() and not is_reassigning:
        raise usage("--throttle, --at-once and --give-up-after are for --alter with --replication-factor")
    fitting = {
        "--partitions": (more.partitions, "create alter"),
        "--replication-factor": (more.replication_factor, "create alter"),
        "--replica-assignment": (more.replica_assignment, "create alter"),
        "--config": (more.configs, "create alter"),
        "--delete-config": (more.deleted_configs, "alter"),
        "--if-exists": (more.if_exists, "alter delete describe"),
        "--if-not-exists": (more.if_not_exists, "create"),
        "--topic-id": (more.topic_id, "describe"),
        "--dry-run": (more.is_dry_run, "create alter delete"),
        **{f"--{name}": (True, "describe") for name in sorted(more.filters)},
    }
    for flag, (is_given, actions) in fitting.items():
        if is_given and what not in actions.split():
            where = " and ".join(f"--{action}" for action in actions.split())
            raise usage(f"{flag} is for {where}, not for --{what}")


def _run(
    connection: Connection, what: str, wanted: Sequence[str], more: TopicFlags, output: OutputFormat
) -> None:
    if what == "create":
        _create(connection, wanted, more)
    elif what == "delete":
        _delete(connection, wanted, more)
    elif what == "alter":
        _alter(connection, wanted, more, output)
    elif what == "list":
        _list(connection, wanted, more, output)
    else:
        from barnabas.cli.commands.topic_tables import describe_topics

        describe_topics(connection, wanted, more, output)


def _create(connection: Connection, names: Sequence[str], more: TopicFlags) -> None:
    from confluent_kafka import KafkaError

    from barnabas.cli.kafka import answers, errors
    from barnabas.cli.kafka.admin_types import NewTopic
    from barnabas.cli.kafka.properties import parse_pairs

    config = parse_pairs(more.configs, "--config")
    shape: dict[str, Any] = {}
    if more.replica_assignment:
        shape["replica_assignment"] = parse_assignment(more.replica_assignment)
        shape["num_partitions"] = len(shape["replica_assignment"])
    else:
        shape["num_partitions"] = -1 if more.partitions is None else more.partitions
        shape["replication_factor"] = -1 if more.replication_factor is None else more.replication_factor
    new = [NewTopic(name, config=config, **shape) for name in names]
    admin = connection.admin()  # kept: its futures fail when it goes
    created, failures = answers.sorted_out(admin.create_topics(new, validate_only=more.is_dry_run))
    for name in created:
        say(f"{'would create' if more.is_dry_run else 'created'} topic {name}")
    if more.if_not_exists:
        failures = {
            name: error
            for name, error in failures.items()
            if not errors.is_code(error, KafkaError.TOPIC_ALREADY_EXISTS)
        }
    answers.raise_failures(failures, "cannot create topic")


def _delete(connection: Connection, patterns: Sequence[str], more: TopicFlags) -> None:
    from barnabas.cli.kafka import answers
    from barnabas.cli.kafka.topics import matching_topics, no_such_topic

    admin = connection.admin()
    names = matching_topics(
        connection.cluster(admin).topics, patterns, exclude_internal=more.exclude_internal
    )
    if not names:
        if more.if_exists:
            return
        raise no_such_topic(patterns)
    if more.is_dry_run:
        say(f"would delete {', '.join(names)}")
        return
    deleted, failures = answers.sorted_out(admin.delete_topics(names))
    for name in deleted:
        say(f"deleted topic {name}")
    answers.raise_failures(failures, "cannot delete topic")


def _alter(connection: Connection, patterns: Sequence[str], more: TopicFlags, output: OutputFormat) -> None:
    from barnabas.cli.kafka import answers, configs
    from barnabas.cli.kafka.admin_types import NewPartitions
    from barnabas.cli.kafka.properties import parse_pairs
    from barnabas.cli.kafka.topics import matching_topics, no_such_topic

    if not (more.partitions or more.replication_factor or more.configs or more.deleted_configs):
        raise usage("topics --alter needs --partitions, --replication-factor, --config or --delete-config")
    changes = parse_pairs(more.configs, "--config")
    admin = connection.admin()
    cluster = connection.cluster(admin)
    names = matching_topics(cluster.topics, patterns, exclude_internal=more.exclude_internal)
    if not names:
        if more.if_exists:
            return
        raise no_such_topic(patterns)
    if more.partitions is not None:
        by_hand = parse_assignment(more.replica_assignment) if more.replica_assignment else []
        new = []
        for name in names:
            added = by_hand[len(cluster.topics[name].partitions) :]
            new.append(
                NewPartitions(name, more.partitions, **({"replica_assignment": added} if added else {}))
            )
        _, failures = answers.sorted_out(admin.create_partitions(new, validate_only=more.is_dry_run))
        answers.raise_failures(failures, "cannot add partitions to topic")
    if changes or more.deleted_configs:
        for name in names:
            configs.change(
                connection, admin, "topic", name, changes, more.deleted_configs, is_dry_run=more.is_dry_run
            )
    if more.replication_factor is not None:
        from barnabas.cli.commands.replication_factor import alter_replication_factor

        alter_replication_factor(
            *(connection, names, more.replication_factor, more.pace, output), is_dry_run=more.is_dry_run
        )
    say(f"{'would alter' if more.is_dry_run else 'altered'} {', '.join(names)}")


def _list(connection: Connection, patterns: Sequence[str], more: TopicFlags, output: OutputFormat) -> None:
    from barnabas.cli.kafka.topics import INTERNAL, matching_topics

    cluster = connection.cluster(connection.admin())
    rows: list[dict[str, Any]] = []
    for name in matching_topics(cluster.topics, patterns, exclude_internal=more.exclude_internal):
        found = cluster.topics[name].partitions
        replicas = max((len(part.replicas) for part in found.values()), default=0)
        rows.append(
            {
                "topic": name,
                "partitions": len(found),
                "replicationFactor": replicas,
                "internal": name in INTERNAL,
            }
        )
    show_rows(rows, LIST_COLUMNS, output, title="topics", plain_line=lambda row: str(row["topic"]))


def parse_assignment(text: str) -> list[list[int]]:
    """`0:1,1:2` to [[0, 1], [1, 2]]: the brokers of each partition in turn."""
    try:
        assignment = [[int(word) for word in part.split(":")] for part in text.split(",")]
    except ValueError as error:
        raise usage(f"--replica-assignment {text!r}: write the broker ids as 0:1,1:2") from error
    if len({len(replicas) for replicas in assignment}) > 1:
        raise usage("--replica-assignment must give every partition the same number of replicas")
    return assignment
